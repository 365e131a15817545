"""A worker whose pages fail in one way each. Tests start it as a WorkerProcess."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

from backend.files import worker
from backend.files.pdf_file import PdfFile

# page numbers; page 1 is read
HANGS, CRASHES, OUT_OF_MEMORY, EXITS, INCONSISTENT, BAD_FRAME, RAISES, CRASHES_IF_USED, SLOW, WORKS = range(2, 12)
_text_layer = PdfFile.text_layer


def text_layer(self: PdfFile, number: int) -> Any:
    if number == HANGS:
        time.sleep(600)
    while number == WORKS:
        pass
    if number == CRASHES or (number == CRASHES_IF_USED and pages_read):
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == OUT_OF_MEMORY:
        np.ones(1 << 40, np.uint8)
    if number == EXITS:
        os._exit(7)
    if number == INCONSISTENT:
        words, stats, size, rulings = _text_layer(self, 1)
        return words._replace(texts=[*words.texts, "one more"]), stats, size, rulings
    if number == BAD_FRAME:
        os.write(int(sys.argv[1]), b"x" * 100)
        time.sleep(600)
    if number == RAISES:
        raise RuntimeError("a parser's own words")
    if number == SLOW:
        time.sleep(1.2)
    pages_read.append(number)
    return _text_layer(self, 1)


pages_read: list[int] = []

if __name__ == "__main__":
    PdfFile.text_layer = text_layer  # type: ignore[method-assign]
    worker.main(int(sys.argv[1]))
