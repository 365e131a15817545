"""Cuts the text of a file into chunks for the embedding model, each with the words of the pages it stands on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.documents.chunks import SPECIAL_TOKENS, Span, text_chunks
from backend.files.pages import Document, Page
from backend.search.records import Chunking, NewChunk, PageSize, PlacedWord

MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS = 100, 4096  # that a client may ask for, as OpenAI's


def chunk_tokens(chunking: Chunking, model_tokens: int, prompt_tokens: int) -> tuple[int, int]:
    """Tokens of a chunk, and how many of them may be those of the chunk before, so that each fits the model.

    Args:
        model_tokens: that the model reads, special ones included.
        prompt_tokens: of what stands before each text.
    """
    most = max(1, min(chunking.max_tokens, model_tokens - SPECIAL_TOKENS - prompt_tokens))
    return most, min(chunking.overlap_tokens, most // 2)


def cut_chunks(
    text: str, token_starts: NDArray[np.int64], sizes: tuple[int, int], rows: Sequence[Span], document: Document | None
) -> list[NewChunk]:
    """The chunks of a file, in order. Takes milliseconds a page: call it on a thread.

    Their texts have a line break for each form feed, which stands between pages and is nothing to read.

    Args:
        token_starts: as for `text_chunks`.
        sizes: from `chunk_tokens`.
        rows: of tables, which are not cut.
        document: where the words of the text stand; None for a plain text.
    """
    max_tokens, overlap_tokens = sizes
    spans = text_chunks(text, token_starts, max_tokens, overlap_tokens=overlap_tokens, rows=rows)
    page_starts = document.page_starts if document else ()
    return [
        NewChunk(
            index,
            start,
            end,
            text[start:end].replace("\f", "\n"),
            int(np.searchsorted(token_starts, end) - np.searchsorted(token_starts, start)),
            () if document is None else tuple(_words(document.pages, page_starts, start, end)),
        )
        for index, (start, end) in enumerate(spans)
    ]


def page_sizes(document: Document) -> tuple[PageSize, ...]:
    return tuple(PageSize(page.number, page.width, page.height, page.rotation, page.part) for page in document.pages)


def _words(pages: Sequence[Page], page_starts: Sequence[int], start: int, end: int) -> Iterator[PlacedWord]:
    """The words between two places of the document's text; one that a chunk cuts in two is in both."""
    first, past = max(0, bisect_right(page_starts, start) - 1), bisect_left(page_starts, end)
    for page, offset in zip(pages[first:past], page_starts[first:past], strict=True):
        low = bisect_right(page.words, start - offset, key=lambda word: word.end)
        high = bisect_left(page.words, end - offset, lo=low, key=lambda word: word.start)
        for word in page.words[low:high]:
            word_start, word_end = max(0, word.start + offset - start), min(end, word.end + offset) - start
            yield PlacedWord(word_start, word_end, page.number, word.line, word.box)
