"""OCR engines for the lanes: an image in, words with boxes out."""
