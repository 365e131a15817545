"""External programs that tests use to check our files."""

import re
import shutil
import subprocess

from tests.conftest import absent

_BIDI = re.compile("[\u202a-\u202e\u200e\u200f]")


def pdftotext(pdf: bytes, *options: str) -> str:
    """The text that poppler extracts, without the direction marks that it adds."""
    if shutil.which("pdftotext") is None:
        absent("pdftotext is not installed (poppler-utils)")
    result = subprocess.run(["pdftotext", *options, "-", "-"], input=pdf, capture_output=True, check=True, timeout=30)
    return _BIDI.sub("", result.stdout.decode())
