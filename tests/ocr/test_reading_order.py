"""Detected lines sorted into reading order, on level, skewed and curled pages."""

import math
import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from backend.ocr.reading_order import TextLine, in_order
from backend.ocr.records import OcrWord, PixelBox

Warp = Callable[[np.ndarray], np.ndarray]  # (points, 2) on the level page -> on the scanned one


def text_line(text: str, left: float, top: float, width: float = 100, height: float = 10) -> TextLine:
    box = PixelBox(left, top, left + width, top + height)
    middle = np.array([[left, top + height / 2], [left + width, top + height / 2]])
    return TextLine(tuple(OcrWord(word, box, 1.0) for word in text.split()), middle, height)


def read(*strips: TextLine, seed: int = 7) -> list[list[str]]:
    """Texts of the sorted lines in their blocks, for lines that come in random order."""
    shuffled = random.Random(seed).sample(strips, len(strips))
    return [[" ".join(word.text for word in line) for line in block] for block in in_order(shuffled)]


def lines_of(blocks: list[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def warped(line: TextLine, warp: Warp) -> TextLine:
    """The line as a detector gives it on a warped page: straight between its ends, with errors of a pixel."""
    noise = np.random.default_rng(len(line.words[0].text)).normal(0, 1, (2, 2)) * (0, 1)
    middle = warp(line.middle) + noise
    (left, top), (right, bottom) = middle.min(axis=0), middle.max(axis=0)
    box = PixelBox(left, top - line.height / 2, right, bottom + line.height / 2)
    return TextLine(tuple(word._replace(box=box) for word in line.words), middle, line.height)


def skewed(degrees: float) -> Warp:
    return lambda points: points + np.stack([0 * points[:, 0], math.tan(math.radians(degrees)) * points[:, 0]], axis=1)


def rotated(degrees: float) -> Warp:
    """Laid askew on the scanner: unlike on a skewed page, the edges of its columns lean as well."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return lambda points: points @ np.array([[cos, sin], [-sin, cos]])


def arched(points: np.ndarray) -> np.ndarray:
    """Up to the middle and down again, by four lines."""
    bend = 160 * np.sin(points[:, 0] / 1700 * math.pi)
    return points - np.stack([0 * bend, bend], axis=1)


def curled(points: np.ndarray) -> np.ndarray:
    """A page that bends to its spine at the left, by one and a half lines and more further down."""
    bend = 60 * np.exp(-points[:, 0] / 500) * (1 + points[:, 1] / 2000)
    return points + np.stack([0 * bend, bend], axis=1)


def wavy(points: np.ndarray) -> np.ndarray:
    wave = 24 * np.sin(points[:, 0] / 280)
    return points + np.stack([0 * wave, wave], axis=1)


WARPS = [
    pytest.param(skewed(0), id="level"), pytest.param(skewed(-1), id="skewed-1"),
    pytest.param(skewed(4), id="skewed-4"), pytest.param(curled, id="curled"), pytest.param(wavy, id="wavy"),
]  # fmt: skip


def column(name: str, left: float, top: float, width: float, rows: int) -> list[list[str | TextLine]]:
    """Rows of prose, each detected in two pieces of different lengths, with the text of the whole row."""
    column_rows: list[list[str | TextLine]] = []
    for row in range(rows):
        cut = width * (0.3 + 0.4 * (row * 7 % 5) / 5)
        first, second = f"{name} {row} starts with some words", f"and {name} {row} ends"
        y = top + 40 * row
        pieces = [text_line(first, left, y, cut - 8, 28), text_line(second, left + cut + 8, y, width - cut - 8, 28)]
        column_rows.append([f"{first} {second}", *pieces])
    return column_rows


def texts(rows: Sequence[list[str | TextLine]]) -> list[str]:
    return [str(row[0]) for row in rows]


def pieces_on(rows: Sequence[list[str | TextLine]], warp: Warp) -> list[TextLine]:
    return [warped(piece, warp) for row in rows for piece in row[1:] if isinstance(piece, TextLine)]


def test_no_lines():
    assert () == in_order([])


def test_rows_from_top_to_bottom_and_left_to_right():
    """On a receipt, an article and its price are one line, though detected apart and at slightly different heights."""
    strips = [
        text_line("2 coffee", 0, 0),
        text_line("3.00", 300, 3, 40),
        text_line("1 tea", 0, 14),
        text_line("1.50", 300, 11, 40),
    ]

    assert [["2 coffee 3.00", "1 tea 1.50"]] == read(*strips)


def test_white_gaps_separate_blocks():
    """Paragraphs are apart by more than the height of a line."""
    assert [["a", "b"], ["c"]] == read(text_line("a", 0, 0), text_line("b", 0, 15), text_line("c", 0, 60))


@pytest.mark.parametrize("warp", WARPS)
def test_lines_in_pieces_are_joined(warp):
    """A typescript with lines that the detector cut, on paper that is not flat."""
    rows = column("prose", 100, 100, 1500, 40)

    assert texts(rows) == lines_of(read(*pieces_on(rows, warp)))


@pytest.mark.parametrize("warp", WARPS)
def test_columns_of_prose_are_read_one_after_the_other(warp):
    """A headline above, two filled columns, a footer below."""
    head, foot = text_line("headline", 100, 0, 1500, 40), text_line("footer", 600, 1000, 400, 28)
    left, right = column("left", 100, 100, 700, 20), column("right", 860, 100, 740, 18)
    pieces = [warped(head, warp), warped(foot, warp), *pieces_on(left + right, warp)]

    assert ["headline", *texts(left + right), "footer"] == lines_of(read(*pieces))


@pytest.mark.parametrize(
    "warp",
    [
        pytest.param(rotated(3), id="rotated"),
        pytest.param(lambda points: skewed(-3)(rotated(3)(points)), id="edges-of-a-rotated-page"),
    ],
)
def test_columns_of_a_rotated_page(warp):
    """The gutter between them leans by more than its width."""
    left, right = column("left", 100, 100, 700, 50), column("right", 860, 100, 740, 50)

    assert texts(left + right) == lines_of(read(*pieces_on(left + right, warp)))


def line_across(left: str, right: str, top: float, gutter: tuple[float, float] = (800, 824)) -> TextLine:
    """Words on both sides of a narrow gutter that the detector took for one line."""
    words = [
        OcrWord(word, PixelBox(x, top, x + 60, top + 28), 1.0)
        for text, start in ((left, gutter[0] - 72 * len(left.split()) + 12), (right, gutter[1]))
        for x, word in zip(range(int(start), 4000, 72), text.split(), strict=False)
    ]
    middle = np.array([[words[0].box.left - 8, top + 14], [words[-1].box.right + 8, top + 14]])
    return TextLine(tuple(words), middle, 40)


def test_columns_whose_lines_were_detected_as_one():
    """Their words show the gutter. A centred line above has a space over it, and is not cut there."""
    left = [f"l{row} is a line of the left column which ends" for row in range(12)]
    right = [f"r{row} is a line of the right column which ends" for row in range(12)]
    head = line_across("a centred", "line", 0)
    merged = [line_across(*texts, 100 + 40 * row) for row, texts in enumerate(zip(left, right, strict=True))]

    assert ["a centred line", *left, *right] == lines_of(read(head, *merged))


def test_short_lines_of_an_arched_page():
    """Long lines are detected with their bend, and each tells of the page's as much as a straight one."""
    rows = []
    for row in range(12):
        length = 260 if row % 2 else 1400
        line = text_line(f"row{row}", 100, 300 + 40 * row, length, 28)
        middle = np.stack([np.linspace(100, 100 + length, 33), np.full(33, line.middle[0, 1])], axis=1)
        rows.append(TextLine(line.words, arched(middle), line.height))

    assert [f"row{row}" for row in range(12)] == lines_of(read(*rows))


def test_amounts_of_an_arched_receipt():
    """Too few long lines to be sure of a bend, but with it more of the page's pieces are level."""
    names = [text_line(f"article{row} and more", 100, 300 + 40 * row, 500 + 40 * (row % 5), 28) for row in range(16)]
    counts = [text_line(f"{row} pieces", 820, 300 + 40 * row, 150, 28) for row in range(16)]
    amounts = [text_line(f"{row}.00", 1300, 300 + 40 * row, 90, 28) for row in range(16)]
    slightly = 0.18
    pieces = [
        warped(piece, lambda points: points + (arched(points) - points) * slightly)
        for piece in names + counts + amounts
    ]

    assert [f"article{row} and more {row} pieces {row}.00" for row in range(16)] == lines_of(read(*pieces))


def test_lines_cut_at_a_fold_are_no_columns():
    """The gap between two words of a line is narrower than a gutter, even where all lines are cut at one place."""
    left = [text_line(f"the line {row} is cut", 0, 40 * row, 600, 28) for row in range(20)]
    right = [text_line(f"at the fold {row}", 606, 40 * row, 600, 28) for row in range(20)]

    assert [f"the line {row} is cut at the fold {row}" for row in range(20)] == lines_of(read(*left, *right))


def test_the_rows_of_columns_need_not_be_level():
    """Two pages on one scan: the lines of the right one are half a line lower."""
    left, right = column("left", 100, 100, 700, 20), column("right", 960, 120, 700, 20)

    assert texts(left + right) == lines_of(read(*pieces_on(left + right, skewed(1))))


@pytest.mark.parametrize("warp", WARPS[:3])
def test_table_rows(warp):
    """Short cells show hardly any slope each, but together: they are level at one."""
    cells = [[text_line(f"r{row}c{x}", x, 100 + 50 * row, 90, 28) for x in (0, 400, 800, 1500)] for row in range(12)]
    pieces = [warped(cell, warp) for row in cells for cell in row]

    assert [f"r{row}c0 r{row}c400 r{row}c800 r{row}c1500" for row in range(12)] == lines_of(read(*pieces))


@pytest.mark.parametrize("phase", [0.4, 2.4])
def test_amounts_of_a_wavy_receipt(phase):
    """No line spans the white between articles and amounts, which lie up to a line and a half lower or higher."""

    def wavy_strip(points: np.ndarray) -> np.ndarray:
        wave = 18 * np.sin(points[:, 0] / 240 + phase)
        return points + np.stack([0 * wave, wave], axis=1)

    names = [f"article {row} " + "of some length " * (row % 4) for row in range(24)]
    articles = [text_line(name, 40, 100 + 26 * row, 11 * len(name), 20) for row, name in enumerate(names)]
    amounts = [text_line(f"{row}.50", 800, 100 + 26 * row, 60, 20) for row in range(24)]

    pieces = [warped(piece, wavy_strip) for piece in articles + amounts]
    assert [f"{name.strip()} {row}.50" for row, name in enumerate(names)] == lines_of(read(*pieces))


def test_cells_far_from_the_long_lines_of_a_skewed_page():
    """Long lines stand in its middle only: what they tell of the curl says nothing about the edges."""
    rows: list[list[str | TextLine]] = []
    for row in range(16):
        y = 100 + 40 * row
        cells = (
            [("some long words in a line", 400, 300)] if row % 5 == 0 else [(f"m{row}", 450, 40), (f"z{row}", 1400, 30)]
        )
        strips = [text_line(text, left, y, width, 24) for text, left, width in [(f"a{row}", 50, 30), *cells]]
        rows.append([" ".join(word.text for strip in strips for word in strip.words), *strips])

    assert texts(rows) == lines_of(read(*pieces_on(rows, skewed(1))))


def test_names_beside_amounts_are_rows():
    """A form has a white gap down its middle too, but its cells are not filled like prose."""
    widths = [30, 60, 90, 40, 100, 50, 20, 70]
    names = [text_line(f"name{row}", 0, 14 * row, width) for row, width in enumerate(widths)]
    amounts = [text_line(f"amount{row}", 300, 14 * row, 200 - width) for row, width in enumerate(widths)]

    assert [f"name{row} amount{row}" for row in range(8)] == lines_of(read(*names, *amounts))


def test_amounts_of_one_length_are_no_column_of_prose():
    names = [text_line(f"an article with a long name {row}", 0, 14 * row, 200) for row in range(12)]
    amounts = [text_line(f"{row + 10}.00", 400, 14 * row, 40) for row in range(12)]

    lines = lines_of(read(*names, *amounts))

    assert [f"an article with a long name {row} {row + 10}.00" for row in range(12)] == lines


def test_a_footnote_mark_stays_on_its_line():
    strips = [
        text_line("as was said", 0, 0, 200, 30),
        text_line("1", 202, -2, 8, 14),
        text_line("before", 214, 0, 90, 30),
        text_line("and again", 0, 40, 200, 30),
    ]

    assert ["as was said 1 before", "and again"] == lines_of(read(*strips))


def test_a_stamp_along_the_margin_joins_no_row():
    """A line that runs down the page is read where it begins."""
    stamp = TextLine((OcrWord("stamp", PixelBox(0, 0, 20, 300), 1.0),), np.array([[-30.0, 5.0], [-30.0, 300.0]]), 20)
    rows = column("row", 0, 20, 800, 8)

    assert ["stamp", *texts(rows)] == lines_of(read(stamp, *pieces_on(rows, skewed(0))))


@pytest.mark.parametrize("seed", range(20))
def test_every_word_once_in_an_order_that_input_does_not_change(seed):
    """Random boxes, as in a picture: no order is right, but none may lose words or depend on chance."""
    rng = np.random.default_rng(seed)
    strips = [
        text_line(f"w{index}", x, y, width, height)
        for index, (x, y, width, height) in enumerate(rng.uniform([0, 0, 1, 1], [900, 900, 400, 60], (60, 4)))
    ]
    words = " ".join(lines_of(read(*strips))).split()

    assert sorted(f"w{index}" for index in range(60)) == sorted(words)
    assert words == " ".join(lines_of(read(*strips, seed=seed))).split()


def test_a_page_of_sparse_lines_takes_no_long():
    """Every place between its words may be a gutter: no word is lost, and the work stays small."""
    starts = np.sort(np.random.default_rng(7).uniform(0, 3000, (60, 20)), axis=1)
    lines = [
        TextLine(
            tuple(OcrWord("word", PixelBox(x, 40 * row, x + 10, 40 * row + 20), 1.0) for x in places),
            np.array([[places[0], 40.0 * row], [places[-1] + 10, 40.0 * row]]),
            20,
        )
        for row, places in enumerate(starts)
    ]
    started_s = time.process_time()

    words = [word for block in in_order(lines) for line in block for word in line]

    assert len(words) == 60 * 20
    assert time.process_time() - started_s < 5
