"""Recordings as Markdown and as subtitles, from the pages that are their minutes."""

from __future__ import annotations

from collections.abc import Iterator

from backend.documents.formats.markdown import escape
from backend.files.pages import Document, blocks_of
from backend.speech.pages import transcript_of
from backend.speech.subtitles import srt, webvtt


def stream_srt(document: Document) -> Iterator[bytes]:
    """SubRip of the whole recording."""
    yield srt(transcript_of(document).segments).encode()


def stream_vtt(document: Document) -> Iterator[bytes]:
    """WebVTT of the whole recording."""
    yield webvtt(transcript_of(document).segments).encode()


def stream_spoken_markdown(document: Document) -> Iterator[bytes]:
    """A paragraph for what is said between two pauses, with the time at which it begins."""
    for index, page in enumerate(document.pages):
        paragraphs = [
            f"**{_clock(block[0][0].box.left)}** "
            + "\n".join(escape(page.text[line[0].start : line[-1].end]) for line in block)
            for block in blocks_of(page)
        ]
        yield (("\n" if index and paragraphs else "") + "".join(f"{text}\n\n" for text in paragraphs)[:-1]).encode()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
