"""Tables of pages with text: which there are, their rows, columns and spans."""

import random
import time

import pytest

from backend.files.pages import Page
from backend.tables import find, ruled
from backend.tables.records import Layout
from tests.tables.printed_tables import document_of, grid, page_of, rows_at, tables_of, texts_of

PRICES = [
    ["Artículo", "Unidades", "Precio"],
    ["Papel A4", "12", "1.284,50"],
    ["Tóner negro", "3", "84,00"],
    ["Silla operativa", "1", "139,00"],
]
PLACES = (50, -300, -400)


def test_a_drawn_grid() -> None:
    """Each closed cell is one, with a header, values and places in the text."""
    page = page_of(rows_at(PRICES, PLACES), grid([45, 200, 305, 405], [95, 115, 135, 155, 175]))

    [table] = tables_of(page)
    price = next(cell for cell in table.cells if cell.text == "1.284,50")

    assert PRICES == texts_of(table)
    assert ("ruled", (1,)) == (table.source, table.pages)
    assert [True] * 3 + [False] * 9 == [cell.header for cell in table.cells]
    assert ("1284.50", "1.284,50") == (price.value, page.text[price.start : price.end])


@pytest.mark.parametrize(
    ("rulings", "is_within"),
    [
        pytest.param([(50, 97, 400, 97), (50, 115, 400, 115)], False, id="a-border"),
        pytest.param([(50, 97, 220, 97), (222, 97, 400, 97), (50, 115, 400, 115)], False, id="that-a-scan-broke"),
        pytest.param([(50, 97, 300, 97), (50, 115, 400, 115)], True, id="below-some-columns"),
        pytest.param([(50, 97, 400, 97)], True, id="the-only-ruling"),
    ],
)
def test_a_ruling_above_the_header(rulings: list[tuple[float, float, float, float]], *, is_within: bool) -> None:
    """What stands above the upper border of a table is none of it."""
    above = [("Pedido", 50, 80), ("Marzo", -400, 80)]

    [table] = tables_of(page_of(above + rows_at(PRICES, PLACES), [*rulings, (50, 175, 400, 175)]))

    assert (PRICES == texts_of(table), texts_of(table)[1:] == PRICES) == (not is_within, is_within)


def test_cells_that_span_rows_and_columns() -> None:
    """Where no ruling is between two cells, they are one."""
    rulings = grid([40, 140, 240, 340], [90, 110, 130, 150])
    rulings.remove((140, 90, 140, 110))  # Monday is over both columns
    rulings.remove((240, 130, 340, 130))  # the field trip takes two rows
    texts = [("Lunes", 100, 95), ("Martes", 250, 95), ("Lengua", 50, 115), ("Física", 150, 115),
             ("Salida", 250, 125), ("Historia", 50, 135), ("Música", 150, 135)]  # fmt: skip

    [table] = tables_of(page_of(texts, rulings))

    assert [["1x2:Lunes", "Martes"], ["Lengua", "Física", "2x1:Salida"], ["Historia", "Música"]] == texts_of(table)


def test_a_grid_without_its_right_border() -> None:
    """Level rulings that go on beyond the last upright one end at a border."""
    rulings = [r for r in grid([45, 200, 305, 405], [95, 115, 135, 155, 175]) if r[0] != 405 or r[2] != 405]

    [table] = tables_of(page_of(rows_at(PRICES, PLACES), rulings))

    assert PRICES == texts_of(table)


@pytest.mark.parametrize(("rows", "expected"), [(8, 1), (60, 0)])
def test_a_grid_with_a_word_in_each_row_and_column(rows: int, expected: int) -> None:
    """A drawn grid that would be nearly all empty places is none: answers would write out the square of its words."""
    at = [40 + 8.0 * index for index in range(rows + 1)]
    rulings = grid(at, at)
    diagonal = [(x, y, x, y + 8) for x, y in zip(at, at, strict=True)]
    kept = [
        one for one in rulings if one[1] == one[3] or any(abs(one[0] - x) < 9 and one[1] == y for x, y, *_ in diagonal)
    ]
    words = [("a", x + 1, x + 1) for x in at[:-1]]

    assert expected == len(tables_of(page_of(words, kept)))


def test_rows_without_rulings_between_drawn_columns() -> None:
    """An invoice's item box has upright rulings only: each line of figures is a row, with the lines around it."""
    texts = [*rows_at(PRICES, PLACES, step=30), ("de 80 gramos", 50, 142)]

    [table] = tables_of(page_of(texts, grid([45, 200, 305, 405], [95, 120, 220])))

    assert ["Papel A4 de 80 gramos", "12", "1.284,50"] == texts_of(table)[1]
    assert 4 == table.rows


def test_stripes_are_one_table() -> None:
    """Only every second row is filled with a colour: those between and around belong to the table."""
    stripes = [*grid([45, 200, 305, 405], [115, 135]), *grid([45, 200, 305, 405], [155, 175])]
    rows = [*PRICES, ["Mesa", "2", "99,00"]]

    [table] = tables_of(page_of(rows_at(rows, PLACES), stripes))

    assert rows == texts_of(table)


def test_level_rulings_only() -> None:
    """Columns are where space separates them; the rulings above and below the header show that it is one."""
    rulings = [(45, y, 405, y) for y in (95, 115, 175)]

    [table] = tables_of(page_of(rows_at(PRICES, PLACES), rulings))

    assert PRICES == texts_of(table)
    assert "half_ruled" == table.source


def test_headings_over_several_columns() -> None:
    """A heading spans the columns that it is centred over, a lone one beside it both rows of the header."""
    texts = [("Delegación", 50, 109), ("2025", 212, 100), ("2024", 352, 100)]
    body = [["", "T1", "T2", "T1", "T2"], ["Centro", "27,6", "61,5", "40,3", "38,2"],
            ["Levante", "50,8", "13,3", "18,5", "89,9"], ["Canarias", "97,5", "83,8", "46,4", "69,2"]]  # fmt: skip
    texts += rows_at(body, (50, -210, -260, -350, -400), top=118)

    [table] = tables_of(page_of(texts))

    assert [["2x1:Delegación", "1x2:2025", "1x2:2024"], ["T1", "T2", "T1", "T2"]] == texts_of(table)[:2]


def test_sections_and_totals_span_columns() -> None:
    """A line with one text at the left is a section; a total's label that crosses columns stands left of its sum."""
    rows = [*PRICES[:2], ["SERVICIOS"], *PRICES[2:]]
    texts = [*rows_at(rows, PLACES), ("Total a pagar con impuestos", 150, 200), ("1.507,50", -400, 200)]

    [table] = tables_of(page_of(texts))

    assert ["1x3:SERVICIOS"] == texts_of(table)[2]
    assert ["1x2:Total a pagar con impuestos", "1.507,50"] == texts_of(table)[-1]


def test_cells_of_several_lines_without_rulings() -> None:
    """Space between rows tells lines of a cell from rows, also where figures stand in the middle of it."""
    texts = rows_at([PRICES[0]], PLACES)
    for index, (name, more, count, price) in enumerate(
        [("Papel blanco", "de 80 gramos", "12", "4,50"), ("Tóner negro", "para HP", "3", "84,00"),
         ("Silla de", "oficina", "1", "139,00")]
    ):  # fmt: skip
        top = 125 + 36 * index
        texts += [(name, 50, top), (more, 50, top + 12), (count, -300, top + 6), (price, -400, top + 6)]

    [table] = tables_of(page_of(texts))

    assert [PRICES[0], ["Papel blanco de 80 gramos", "12", "4,50"], ["Tóner negro para HP", "3", "84,00"],
            ["Silla de oficina", "1", "139,00"]] == texts_of(table)  # fmt: skip


def test_a_table_over_pages_is_one() -> None:
    """A repeated header is left out; a piece without a header goes on at the top of the page."""
    rows = [[f"Artículo {index}", str(index), f"{index},50"] for index in range(1, 31)]
    first = page_of(rows_at([PRICES[0], *rows], PLACES))
    second = page_of(rows_at([PRICES[0], *rows[:5]], PLACES, top=60), number=2)
    third = page_of(rows_at(rows[:2], PLACES, top=60), number=3)

    [joined] = tables_of(first, second)
    [rest] = tables_of(first, page_of(rows_at(rows[:2], PLACES, top=60), number=2))

    assert ((1, 2), 36) == (joined.pages, joined.rows)
    assert {1, 2} == {cell.page for cell in joined.cells}
    assert 33 == rest.rows
    assert not tables_of(third)


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(
            [(f"palabras de la columna {name} que siguen", place, 100 + 14 * line)
             for line in range(20) for name, place in (("una", 50), ("dos", 310))],
            id="prose-in-columns",
        ),
        pytest.param(
            [("Aceros del Norte, S.A.", 50, 50), ("Calle Mayor 3", 50, 64), ("28013 Madrid", 50, 78),
             ("Factura nº:", 350, 50), ("A-17", 450, 50), ("Fecha:", 350, 64), ("3/5/2026", 450, 64),
             ("Vencimiento:", 350, 78), ("3/6/2026", 450, 78)],
            id="letterhead",
        ),
        pytest.param(
            [text for index, page in enumerate((3, 7, 12, 30, 44, 51))
             for text in ((f"Capítulo {index}", 50, 100 + 15 * index), (str(page), -500, 100 + 15 * index))],
            id="contents",
        ),
        pytest.param(
            [text for index in range(5)
             for text in (("•", 50, 100 + 15 * index), ("una línea de la lista", 65, 100 + 15 * index))],
            id="list",
        ),
        pytest.param([], id="empty"),
    ],
)  # fmt: skip
def test_no_table(texts: list[tuple[str, float, float]]) -> None:
    """Prose in columns, a letterhead, a table of contents, a list and an empty page have none."""
    assert () == tables_of(page_of(texts))


def random_page(seed: int) -> Page:
    """Words and rulings at chance places."""
    chance = random.Random(seed)
    choices = ["12,50", "uno dos", "Total", "—", "x" * 40]
    texts = [
        (chance.choice(choices), chance.uniform(0, 560), chance.uniform(0, 800)) for _ in range(chance.randrange(200))
    ]
    xs, ys = (sorted(chance.uniform(0, 800) for _ in range(chance.randrange(2, 8))) for _ in range(2))
    rulings = [ruling for ruling in grid(xs, ys) if chance.random() < 0.8]
    return page_of(texts + rows_at(PRICES * 3, PLACES, top=chance.uniform(0, 300)), rulings)


@pytest.mark.parametrize("seed", range(40))
def test_every_word_is_in_one_cell_and_cells_do_not_overlap(seed: int) -> None:
    """The cells of a table fill its rows and columns, each place once; no word is printed in two of them."""
    page = random_page(seed)
    used: list[tuple[float, ...]] = []
    for table in tables_of(page):
        places = [
            (row, column)
            for cell in table.cells
            for row in range(cell.row, cell.row + cell.rowspan)
            for column in range(cell.column, cell.column + cell.colspan)
        ]
        assert sorted(places) == [(row, column) for row in range(table.rows) for column in range(table.columns)]
        used += [box for cell in table.cells for box in cell.boxes]
        words = [word for cell in table.cells for word in cell.text.split()]
        assert len(words) <= len(page.words)

    assert len(used) == len(set(used))


@pytest.mark.slow
def test_hostile_pages_cost_little() -> None:
    """Ten thousand words at chance places, and thousands of rulings, take seconds at most."""
    chance = random.Random(3)
    words = [("12 a", chance.uniform(0, 580), chance.uniform(0, 830)) for _ in range(5_000)]
    level = [
        (chance.uniform(0, 300), y, chance.uniform(310, 590), y) for y in (chance.uniform(0, 840) for _ in range(2_000))
    ]
    upright = [
        (x, chance.uniform(0, 400), x, chance.uniform(410, 840)) for x in (chance.uniform(0, 590) for _ in range(2_000))
    ]
    page = page_of(words, level + upright)
    started = time.process_time()

    tables_of(page)

    assert time.process_time() - started < 5


def test_squared_paper_is_not_cut_into_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of 1,200 rulings has 375,000 cells, which took 5 s to find; of 4,000, four million."""
    monkeypatch.setattr(ruled, "_drawn_cells", lambda *_: pytest.fail("too many cells"))
    lines = [
        line for place in range(0, 4_800, 12) for line in ((0.0, place, 4_800.0, place), (place, 0.0, place, 4_800.0))
    ]

    assert not tables_of(page_of([("12", 100.0, 100.0)], lines))


def test_cells_of_scattered_words_are_no_more_than_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 900 rows and 900 columns all places became cells before a look at them told that they are no table."""
    made: list[Layout] = []
    score = find.table_score
    monkeypatch.setattr(find, "table_score", lambda layout, rulings: made.append(layout) or score(layout, rulings))
    texts = [("Ab", 40 * (row + beside), 20 * row) for row in range(900) for beside in (0, 1)]

    assert () == tables_of(page_of(texts))
    assert [900] == [layout.rows for layout in made]
    assert all(len(layout.cells) <= len(texts) for layout in made)


def test_scattered_words_are_no_rest_of_a_table() -> None:
    """Words of a page below a table with as many columns: all their places would be written out as its cells."""
    columns = 40
    wide = [(f"{column},00", 40 * column, 20 * row + 700) for row in range(5) for column in range(columns)]
    stairs = [("1,00", 40 * ((row + beside) % columns), 20 * row) for row in range(columns) for beside in (0, 1)]

    first, *others = tables_of(page_of(wide), page_of(stairs, number=2))

    assert ((1,), 5 * columns) == (first.pages, len(first.cells))
    assert [] == others


def test_tables_beside_one_another_end() -> None:
    """Parts of parts of a row of a thousand tables, the widest gap last, met Python's limit of calls."""
    words, left = list[tuple[str, float, float]](), 0.0
    for number in range(1_200):
        left += 110.0 + number / 100
        for row, texts in enumerate([("Artículo", "Precio"), *[("Papel", "2,00")] * 3]):
            words += [(texts[0], left, 50.0 + 12 * row), (texts[1], left + 60, 50.0 + 12 * row)]

    tables_of(page_of(words))


def test_values_follow_the_document() -> None:
    """Decimals as the document writes them, dates as ISO 8601, codes and texts without a value."""
    rows = [["Fecha", "Concepto", "Importe"], ["03/05/2026", "Recibo luz", "1.284,50"],
            ["04/05/2026", "Nómina", "-85,10 €"], ["05/05/2026", "Cajero", "12,00"]]  # fmt: skip

    [table] = tables_of(page_of(rows_at(rows, (50, 150, -400))))

    assert [None, None, None, "2026-05-03", None, "1284.50", "2026-05-04", None, "-85.10"] == [
        cell.value for cell in table.cells[:9]
    ]
    assert document_of().pages == ()
