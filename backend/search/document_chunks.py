"""Cuts the text of a file into chunks for the embedding model, each with the words of the pages it stands on.

The words are kept as bytes: columns of differences, compressed.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.documents.chunks import SPECIAL_TOKENS, Span, text_chunks
from backend.files.pages import Box, Document, Page
from backend.search.records import Chunking, EncoderIdentity, NewChunk, PageSize, PlacedWord
from backend.serving.catalog import LoadedModel
from backend.text.embeddings import EmbedOptions

MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS = 100, 4096  # that a client may ask for, as OpenAI's
# Names that models give these prompts, by preference; a model without any embeds texts as they stand.
PASSAGE = EmbedOptions(prompts=("passage", "document", "search_document", "retrieval.passage"), normalize=True)
QUERY = EmbedOptions(prompts=("query", "search_query", "retrieval.query"), normalize=True)


def identity_of(model: LoadedModel) -> EncoderIdentity:
    """Whose vectors these are, whatever runtime computes them: replicas on other machines share a store."""
    return EncoderIdentity(model.spec.fingerprint, model.name, model.spec.width)


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


_UNITS = 100  # a page unit: a hundredth of a point is a quarter of a hair
_COLUMNS = 8


def pack_words(words: Sequence[PlacedWord]) -> bytes:
    """Some 9 bytes a word. Boxes are rounded to 0.01 page units."""
    if not words:
        return b""
    table = np.empty((_COLUMNS, len(words)), np.int64)
    table[:4] = np.array([word[:4] for word in words], np.int64).T
    table[4:] = np.rint(np.array([word.box for word in words], np.float64).T * _UNITS)
    table[1] -= table[0]  # lengths
    table[6:] -= table[4:6]  # widths and heights
    return zlib.compress(np.diff(table, axis=1, prepend=0).astype("<i4").tobytes(), 1)


def unpack_words(packed: bytes) -> tuple[PlacedWord, ...]:
    """Raises: ValueError, zlib.error for bytes that `pack_words` did not write."""
    if not packed:
        return ()
    table = np.frombuffer(zlib.decompress(packed), "<i4").reshape(_COLUMNS, -1).cumsum(axis=1, dtype=np.int64)
    table[6:] += table[4:6]
    table[1] += table[0]
    places, boxes = table[:4].T.tolist(), (table[4:].T / _UNITS).tolist()
    return tuple(
        PlacedWord(start, end, page, line, Box(*box))
        for (start, end, page, line), box in zip(places, boxes, strict=True)
    )
