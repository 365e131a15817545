"""Characters with boxes into words, lines and blocks. Runs in the workers; arithmetic on arrays, no PDFium.

PDFium's own order and its generated blanks and line ends are kept: it is the order of the content stream, which is the
author's. Added here are the ends it does not mark: a line that goes on after a hyphen, a jump on the page within what
it takes for one word, and blocks, which `reading_order` then sorts where the author drew one above another later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.documents.pages import Box, around
from backend.documents.parsing.reading_order import reading_order

HYPHENS = (0x02, 0xFFFE)  # how PDFium marks a hyphen at which it joined two lines
_LINE_ENDS = (0x0A, 0x0D, 0x0B, 0x0C, 0x85, 0x2028, 0x2029)
_BLANKS = (0x09, 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_SAME_LINE = 0.3  # of the lower character's height that two neighbours of a line share
_CLOSE = 0.5  # heights between a number and its raised footnote mark, which PDFium takes for a line of its own
_WORD_GAP = 1.0  # heights between characters of one word; PDFium ends most words itself, wide tracking is none
_BACKWARDS = 3.0  # heights that a character may stand before the one it follows: right-to-left script, accents
_BLOCK_GAP = 0.6  # heights between lines of one block; boxes hold ascent and descent, so single spacing has about 0
_UPRIGHT_SHARE = 0.6  # of the characters must stand the same way for the page to be turned


class Grouped(NamedTuple):
    """Words in reading order, and how the page was turned for them."""

    texts: list[str]
    boxes: NDArray[np.float32]  # (words, 4): left, top, right, bottom, in page units after the turn
    lines: NDArray[np.int32]  # (words,), counted through the page
    blocks: NDArray[np.int32]  # (words,)
    turn: int  # degrees clockwise


@dataclass(frozen=True, slots=True)
class Characters:
    """The characters of a page in content order, as a viewer shows it, top left the origin."""

    codes: NDArray[np.uint32]  # (characters,) code points
    boxes: NDArray[np.float32]  # (characters, 4): left, top, right, bottom
    quarters: NDArray[np.int8]  # (characters,): quarter turns clockwise that would set it upright, 0 to 3
    width: float  # of the page
    height: float


class _Word(NamedTuple):
    text: str
    box: Box


def group(characters: Characters) -> Grouped:
    """The words of a page. What lies off the page, where no viewer shows it, is left out."""
    is_blank = np.isin(characters.codes, (*_BLANKS, *_LINE_ENDS))
    quarter = _main_quarter(characters.quarters[~is_blank])
    boxes = turned(characters.boxes, quarter, characters.width, characters.height)
    width, height = characters.width, characters.height
    if quarter % 2:
        width, height = height, width
    quarters = ((characters.quarters - quarter) % 4).astype(np.int8)
    lines = list(_lines(characters.codes, boxes, quarters, is_blank))
    lines = [kept for line in lines if (kept := [word for word in line if _on_page(word.box, width, height)])]
    blocks = _blocks(lines)
    order = reading_order([around(word.box for line in block for word in line) for block in blocks])
    return _numbered([blocks[index] for index in order], quarter * 90)


def turned(boxes: NDArray[np.float32], quarter: int, width: float, height: float) -> NDArray[np.float32]:
    """Boxes (any, 4) of a page of this size after so many quarter turns clockwise."""
    left, top, right, bottom = boxes.T
    sides = {
        0: (left, top, right, bottom),
        1: (height - bottom, left, height - top, right),
        2: (width - right, height - bottom, width - left, height - top),
        3: (top, width - right, bottom, width - left),
    }[quarter % 4]
    return np.stack(sides, axis=-1).astype(np.float32)


def _main_quarter(quarters: NDArray[np.int8]) -> int:
    counts = np.bincount(quarters, minlength=4)
    most = int(counts.argmax())
    return most if counts[most] > _UPRIGHT_SHARE * counts.sum() else 0


def _lines(
    codes: NDArray[np.uint32], boxes: NDArray[np.float32], quarters: NDArray[np.int8], is_blank: NDArray[np.bool_]
) -> Iterator[list[_Word]]:
    """Words, line by line, in content order."""
    inked = np.flatnonzero(~is_blank)
    if not len(inked):
        return
    line_marks = np.cumsum(np.isin(codes, _LINE_ENDS))[inked]
    codes, boxes, quarters = codes[inked], boxes[inked], quarters[inked]
    hyphen = np.isin(codes, HYPHENS)
    text = _decoded(np.where(hyphen, ord("-"), codes))
    line_ends = _line_ends(boxes, quarters, line_marks[1:] > line_marks[:-1]) | hyphen[:-1]
    word_ends = line_ends | (np.diff(inked) > 1) | _jumps(boxes, quarters)
    starts = np.concatenate([[0], np.flatnonzero(word_ends) + 1])
    ends = np.append(starts[1:], len(text))
    corners = (np.minimum.reduceat(boxes[:, :2], starts), np.maximum.reduceat(boxes[:, 2:], starts))
    sides = np.concatenate(corners, axis=1).tolist()
    line: list[_Word] = []
    for start, end, side in zip(starts.tolist(), ends.tolist(), sides, strict=True):
        line.append(_Word(text[start:end], Box(*side)))
        if end == len(text) or line_ends[end - 1]:
            yield line
            line = []


def _decoded(codes: NDArray[np.uint32]) -> str:
    """One character for each code; halves of a surrogate pair and what is no character become U+FFFD."""
    bad = ((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF) | (codes < 0x20)
    return np.where(bad, 0xFFFD, codes).astype("<u4").tobytes().decode("utf-32-le")


def _line_ends(boxes: NDArray[np.float32], quarters: NDArray[np.int8], marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Between each character and the next: whether the line ends there, as PDFium marked it or by their places.

    What stands close behind, raised or lowered, goes on with the line (the mark of a footnote), whoever marked it.
    """
    start, end, upper, lower = _along(boxes, quarters)
    height = np.maximum(lower - upper, 1e-3)
    shared = np.minimum(lower[1:], lower[:-1]) - np.maximum(upper[1:], upper[:-1])
    lesser = np.minimum(height[1:], height[:-1])
    gap = start[1:] - end[:-1]
    is_close = (np.abs(gap) < _CLOSE * lesser) & (shared > _SAME_LINE * lesser)
    turns = quarters[1:] != quarters[:-1]
    apart = (shared < _SAME_LINE * lesser) & ((gap < -lesser) | (shared <= 0))
    ends: NDArray[np.bool_] = turns | (marked & ~is_close) | apart
    return ends


def _jumps(boxes: NDArray[np.float32], quarters: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Between each character and the next: whether the word ends there by their places alone."""
    start, end, upper, lower = _along(boxes, quarters)
    height = np.maximum(lower - upper, 1e-3)
    ahead = start[1:] - end[:-1] > _WORD_GAP * np.maximum(height[1:], height[:-1])
    back = end[1:] < start[:-1] - _BACKWARDS * height[:-1]
    jumps: NDArray[np.bool_] = ahead | back
    return jumps


def _along(boxes: NDArray[np.float32], quarters: NDArray[np.int8]) -> tuple[NDArray[np.float32], ...]:
    """Each character's extent in its own direction of reading, and across it: start, end, upper, lower."""
    left, top, right, bottom = boxes.T
    ways = [quarters == way for way in range(4)]
    return (
        np.select(ways, [left, -bottom, -right, top]),
        np.select(ways, [right, -top, -left, bottom]),
        np.select(ways, [top, left, -bottom, -right]),
        np.select(ways, [bottom, right, -top, -left]),
    )


def _on_page(box: Box, width: float, height: float) -> bool:
    return -1 <= (box.left + box.right) / 2 <= width + 1 and -1 <= (box.top + box.bottom) / 2 <= height + 1


def _blocks(lines: list[list[_Word]]) -> list[list[list[_Word]]]:
    boxes = [around(word.box for word in line) for line in lines]
    blocks = [lines[:1]] if lines else []
    for (above, below), line in zip(pairwise(boxes), lines[1:], strict=True):
        if _parts(above, below):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _numbered(blocks: list[list[list[_Word]]], turn: int) -> Grouped:
    lines = [line for block in blocks for line in block]
    words = [word for line in lines for word in line]
    return Grouped(
        texts=[word.text for word in words],
        boxes=np.array([word.box for word in words], np.float32).reshape(-1, 4),
        lines=np.repeat(np.arange(len(lines), dtype=np.int32), [len(line) for line in lines]),
        blocks=np.repeat(
            np.arange(len(blocks), dtype=np.int32), [sum(len(line) for line in block) for block in blocks]
        ),
        turn=turn,
    )


def _parts(above: Box, below: Box) -> bool:
    """Whether a block ends between two lines that follow each other."""
    height = max(min(above.height, below.height), 1e-3)
    if min(above.right, below.right) <= max(above.left, below.left):
        beside = min(above.bottom, below.bottom) - max(above.top, below.top) > 0.5 * height
        return not beside  # the next cell of a row belongs to the same table
    gap = below.top - above.bottom
    return gap > _BLOCK_GAP * height or below.bottom < above.top - height
