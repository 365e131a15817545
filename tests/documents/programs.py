"""Other people's programs that tests ask about our files."""

from __future__ import annotations

import re
import shutil
import subprocess

from tests.conftest import absent

_BIDI = re.compile("[\u202a-\u202e\u200e\u200f]")


def pdftotext(pdf: bytes, *options: str) -> str:
    """What poppler reads, without the marks of direction that it adds."""
    if shutil.which("pdftotext") is None:
        absent("pdftotext is not installed (poppler-utils)")
    done = subprocess.run(["pdftotext", *options, "-", "-"], input=pdf, capture_output=True, check=True, timeout=30)
    return _BIDI.sub("", done.stdout.decode())
