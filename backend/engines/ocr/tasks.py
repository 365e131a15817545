"""The names of the engines that read pages, as metrics and logs know them."""

TESSERACT = "ocr_tesseract"
PROGRAM = "ocr_tesseract_program"
DETECT = "ocr_detect"
RECOGNIZE = "ocr_recognize"
OCR_TASKS = (TESSERACT, PROGRAM, DETECT, RECOGNIZE)
