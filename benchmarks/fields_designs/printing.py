"""Prints HTML to PDF with a headless Chromium, without the structure that would give tables away."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

PROGRAM = "chromium"
_FLAGS = (
    "--headless",
    "--no-sandbox",  # it opens pages made here only; in containers it runs as root, where the sandbox cannot start
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--no-pdf-header-footer",
    "--disable-pdf-tagging",
)
_LIMIT_S = 120.0


def print_pdf(html: str, target: Path) -> None:
    """Write the PDF of a page. Raises: subprocess.CalledProcessError, FileNotFoundError without chromium."""
    with tempfile.TemporaryDirectory(prefix="print-") as folder:
        source = Path(folder) / "page.html"
        source.write_text(html, encoding="utf-8")
        flags = (*_FLAGS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}")
        command = [PROGRAM, *flags, source.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
