"""A worker whose pages fail one way each. Run by tests as the process that a WorkerProcess starts."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

from backend.documents.parsing import worker
from backend.documents.parsing.pdf_file import PdfFile

HANGS, CRASHES, SWELLS, EXITS, LIES, BABBLES, RAISES, CRASHES_IF_USED = range(2, 10)  # page numbers; page 1 is read
_layer = PdfFile.layer


def layer(self: PdfFile, number: int) -> Any:
    if number == HANGS:
        time.sleep(600)
    if number == CRASHES or (number == CRASHES_IF_USED and seen):
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == SWELLS:
        np.ones(1 << 40, np.uint8)
    if number == EXITS:
        os._exit(7)
    if number == LIES:
        words, stats, size = _layer(self, 1)
        return words._replace(texts=[*words.texts, "one more"]), stats, size
    if number == BABBLES:
        os.write(int(sys.argv[1]), b"x" * 100)
        time.sleep(600)
    if number == RAISES:
        raise RuntimeError("a parser's own words")
    seen.append(number)
    return _layer(self, 1)


seen: list[int] = []

if __name__ == "__main__":
    PdfFile.layer = layer  # type: ignore[method-assign]
    worker.main(int(sys.argv[1]))
