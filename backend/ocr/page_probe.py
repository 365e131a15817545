"""Whether what Tesseract has read of a page shows that RapidOCR should read it. A pure decision.

What the whole page decides in the end (`engine_choice`) costs Tesseract's whole time on pages that RapidOCR then reads.
"""

from __future__ import annotations

from backend.ocr.engine_choice import DOUBTFUL
from backend.ocr.tesseract_words import TesseractResult

# Chosen on every second page of seven sets. On the other 31 pages: of the 25 whose result `engine_choice` doubts in the
# end 15 are left, after 0.35 of Tesseract's time at the median, and none of the six that it keeps.
_SURE_LINES = 0.91  # confidence; a page needs 0.92, and of a few lines it varies
_DOUBTFUL_SHARE = 0.0125  # of the words that the whole page may have; `engine_choice` asks for less than 0.01
_MIN_DOUBTFUL = 2  # a stain may spoil one word of any page


def reason_to_leave(lines: TesseractResult, ink_share: float) -> str:
    """Why Tesseract should not read the rest of the page; "" where it may be good enough.

    Args:
        lines: what it has read so far.
        ink_share: of the page's ink that is in them.
    """
    words = [word for block in lines.blocks for line in block for word in line]
    if not words:
        return "Tesseract found no word in its densest lines"
    confidence = lines.confidence or 0.0
    doubtful = sum(word.confidence < DOUBTFUL for word in words)
    page_words = len(words) / max(ink_share, 0.01)
    if confidence >= _SURE_LINES and doubtful < max(_MIN_DOUBTFUL, _DOUBTFUL_SHARE * page_words):
        return ""
    of_them = f"{doubtful} of {len(words)} words doubtful"
    return f"Tesseract was unsure of its first lines (confidence {confidence:.2f}, {of_them})"
