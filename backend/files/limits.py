"""Limits on uploaded files, and the setting of each."""

from __future__ import annotations

from dataclasses import dataclass

from backend.errors import TooLarge

MEBIBYTE = 2**20
WALL_RATIO = 3.0  # seconds on the clock for each second of work that is allowed; a longer wait is a hang
MAX_OPEN_FILES = 4  # in one worker: pages of one request find their file open, and files of many do not pile up
MAX_OPEN_STREAMS = 64  # of these, beside them: one that is closed has to be decoded from its beginning again
SMALLER_IMAGE_ADVICE = "Send it smaller; 200 to 300 dpi are enough to read print."


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits with their defaults; each comment names the setting."""

    file_bytes: int = 100 * MEBIBYTE  # LIMIT_FILE_BYTES; of one upload
    pages: int = 200  # LIMIT_PAGES; read in one request, not pages of the file
    document_lines: int = 200_000  # LIMIT_DOCUMENT_LINES; lines and cells that are set, of a file without pages
    document_chars: int = 5_000_000  # LIMIT_DOCUMENT_CHARS; of all its pages together, each of which may have millions
    page_pixels: int = 100_000_000  # LIMIT_PAGE_PIXELS; of an image, from its header: A3 at 600 dpi is 70 million
    page_s: float = 20.0  # LIMIT_PAGE_S; of work, for one page or to open the file; then the worker is killed
    render_pixels: int = 40_000_000  # LIMIT_RENDER_PIXELS; of a rendered page (A0 at 160 dpi); else it gets fewer dpi
    audio_s: float = 14_400.0  # LIMIT_AUDIO_S; seconds of one recording, counted as they are decoded
    audio_channels: int = 8  # LIMIT_AUDIO_CHANNELS
    worker_bytes: int = 1024 * MEBIBYTE  # LIMIT_READER_BYTES; memory that a worker may use for a file


def check_pixels(width: int, height: int, limits: FileLimits, number: int) -> None:
    """Raises: TooLarge for an image whose header says that it is over the limit; nothing is decoded before."""
    if width * height > limits.page_pixels:
        raise TooLarge(
            f"page {number}: pixels ({width} x {height})",
            width * height,
            limits.page_pixels,
            "LIMIT_PAGE_PIXELS",
            advice=SMALLER_IMAGE_ADVICE,
            param="file",
        )
