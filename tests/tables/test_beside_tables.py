"""What stands beside, above and within tables: second tables, boxes, letterheads, and long texts in cells."""

import pytest

from backend.tables.records import Table
from tests.tables.printed_tables import grid, page_of, rows_at, tables_of, texts_of
from tests.tables.test_find import PRICES

STOCK = [["Producto", "Coste"], ["Bomba", "84,00"], ["Válvula", "12,50"], ["Filtro", "139,00"]]
SPARES = [["Recambio", "Precio"], ["Junta", "4,00"], ["Tornillo", "0,50"], ["Correa", "39,00"], ["Polea", "8,00"]]
ITEMS = [["Concepto", "Cantidad", "Precio", "Importe"], ["Diseño", "2", "40,00", "80,00"],
         ["Textos", "1", "84,00", "84,00"], ["Fotos", "3", "10,00", "30,00"]]  # fmt: skip


def beside(left: list[list[str]], right: list[list[str]]) -> list[tuple[str, float, float]]:
    return rows_at(left, (50, -150)) + rows_at(right, (300, -400))


@pytest.mark.parametrize(
    "rulings",
    [
        pytest.param([r for y in (115, 135, 155) for r in ((50, y, 150, y), (300, y, 400, y))], id="rulings-apart"),
        pytest.param(
            [r for top in (95, 135) for x in (45, 295) for r in grid([x, x + 65, x + 110], [top, top + 20])],
            id="stripes",
        ),
    ],
)
def test_two_tables_side_by_side(rulings: list[tuple[float, float, float, float]]) -> None:
    """Rulings of their own, or fills of their own, tell two tables apart."""
    spares = SPARES[:4]

    assert [STOCK, spares] == [texts_of(table) for table in tables_of(page_of(beside(STOCK, spares), rulings))]


def test_two_tables_side_by_side_without_rulings() -> None:
    """Texts and figures twice, with a gap between them wider than those between columns."""
    left, right = ([["Artículo", "Uds.", "Coste"], *([a, "3", b] for a, b in rows[1:])] for rows in (STOCK, SPARES))
    texts = rows_at(left, (50, -130, -180)) + rows_at(right, (290, -370, -420))

    assert [left, right] == [texts_of(table) for table in tables_of(page_of(texts))]


@pytest.mark.parametrize("height", [97, 115, 135])
def test_a_ruling_across_the_gap_keeps_two_tables_one(height: int) -> None:
    """Even one of them, above or between the rows, is a border that both have."""
    spares = SPARES[:4]
    apart = [r for y in (115, 135, 155) for r in ((50, y, 150, y), (300, y, 400, y))]

    [table] = tables_of(page_of(beside(STOCK, spares), [*apart, (50, height, 400, height)]))

    assert [left + right for left, right in zip(STOCK, spares, strict=True)] == texts_of(table)


def test_figures_far_from_their_labels_stay_with_them() -> None:
    """The widest gap of a table is no reason to part it."""
    rows = [
        ["Ventas", "2024", "2025"],
        ["Norte", "84,00", "85,00"],
        ["Sur", "12,50", "13,00"],
        ["Este", "1,00", "2,00"],
    ]

    [table] = tables_of(page_of(rows_at(rows, (50, -420, -470))))

    assert rows == texts_of(table)


def test_a_box_beside_a_table_is_no_column() -> None:
    """Its title stands where the table's has one, and its few lines have no share in the rows."""
    rows = [("Detalle", ""), ("Potencia", "12,27 €"), ("Energía punta", "18,36 €"), ("Energía valle", "6,42 €"),
            ("Alquiler", "0,77 €"), ("Bono social", "0,37 €")]  # fmt: skip
    box = [("Datos de pago", 300, 100), ("Domiciliación bancaria", 300, 140), ("Caja Rural", 300, 180)]

    [table] = tables_of(page_of([*rows_at(rows, (50, -220)), *box]))

    assert [list(row) for row in rows[1:]] == texts_of(table)


def invoice(header: list[tuple[str, float, float]]) -> list[Table]:
    """The tables of a page with these texts above the items."""
    return list(tables_of(page_of([*header, *rows_at(ITEMS, (50, -320, -400, -480), top=250)])))


def test_a_letterhead_above_the_header_is_left_out() -> None:
    """A table begins with the line that names its columns, however near other lines in columns stand above it."""
    texts = [("Cliente", 50, 166), ("Factura", 200, 166), ("Fecha", 300, 166), ("Talleres Sur", 50, 180),
             ("A-17", 200, 180), ("3/5/2026", 300, 180), ("Calle Mayor 3, bajo", 50, 194), ("Su pedido", 200, 194),
             ("Vence", 300, 194), ("Ronda Norte", 50, 208), ("PO 581", 200, 208), ("3/6/2026", 300, 208)]  # fmt: skip

    assert [ITEMS] == [texts_of(table) for table in invoice(texts)]


def test_a_header_close_to_the_first_row() -> None:
    """It is a row of its own, also where the rows are further apart than it is from the first one."""
    rows = rows_at(ITEMS[1:], (50, -320, -400, -480), top=114, step=24)
    sums = [("Subtotal", 330, 200), ("194,00", -480, 200), ("IVA 21 %", 330, 216), ("40,74", -480, 216)]

    [table] = tables_of(page_of([*rows_at(ITEMS[:1], (50, -320, -400, -480)), *rows, *sums]))

    assert ITEMS[:2] == texts_of(table)[:2]


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(
            [("Número", 50, 100), ("A-17", 120, 100), ("Talleres Sur, S.L.", 300, 100), ("Fecha", 50, 114),
             ("3/5/2026", 120, 114), ("Calle Mayor 3", 300, 114), ("Agente", 50, 128), ("03", 120, 128),
             ("28013 Madrid", 300, 128)],
            id="number-and-customer",
        ),
        pytest.param(
            [("Bill to", 50, 100), ("Ship to", 300, 100), ("Harbor Books", 50, 114), ("Lake Dental", 300, 114),
             ("98 Elm Road", 50, 128), ("3 Main St", 300, 128), ("Austin, TX 78701", 50, 142),
             ("Boise, ID 83702", 300, 142)],
            id="two-parties",
        ),
        pytest.param(
            [("Nombre:", 50, 100), ("Ana Gil", 200, 100), ("Teléfono:", 50, 114), ("600 100 200", 200, 114),
             ("Domicilio:", 50, 128), ("Calle Mayor 3", 200, 128)],
            id="form",
        ),
    ],
)  # fmt: skip
def test_parties_and_forms_are_no_tables(texts: list[tuple[str, float, float]]) -> None:
    """Neither with rulings below their lines nor without."""
    rulings = [(45, y, 405, y) for y in (98, 112, 126, 140, 156)]

    assert () == tables_of(page_of(texts))
    assert () == tables_of(page_of(texts, rulings))


def test_a_drawn_form_is_no_table() -> None:
    """Labels with colons beside their values, in a grid."""
    rows = [["Nombre:", "Ana Gil"], ["Domicilio:", "Calle Mayor 3"], ["Correo:", "ana@example.com"]]

    assert () == tables_of(page_of(rows_at(rows, (50, 160)), grid([45, 150, 300], [95, 115, 135, 155])))


RISKS = [
    ["Risk", "Mitigation", "Owner"],
    ["Pump fails during the night shift", "Keep a second one in stock and ready", "Head of works"],
    ["Supplier leaves the market at short notice", "Agree terms with two others each year", "Finance team"],
    ["Water damages the archive in the cellar", "Move the files upstairs before winter", "Office"],
]


@pytest.mark.parametrize(
    "heights", [pytest.param([120, 164, 208, 252], id="between-rows"), pytest.param([120], id="below-the-header")]
)
def test_long_texts_in_cells(heights: list[float]) -> None:
    """Texts of several lines in all columns: rulings between the rows, or wide space, keep the rows apart."""
    texts = rows_at(RISKS[:1], (50, 220, 420))
    for index, row in enumerate(RISKS[1:]):
        for text, place in zip(row, (50, 220, 420), strict=True):
            words = text.split()
            texts += [
                (" ".join(words[start : start + 4]), place, 126 + 44 * index + 14 * line)
                for line, start in enumerate(range(0, len(words), 4))
            ]

    [table] = tables_of(page_of(texts, [(45, y, 520, y) for y in heights]))

    assert RISKS == texts_of(table)


def test_the_score_falls_with_empty_cells() -> None:
    """A full grid is surer than one with gaps; below a half nothing is answered."""
    rulings = grid([45, 200, 305, 405], [95, 115, 135, 155, 175])
    holes = [PRICES[0], ["Papel A4", "", ""], ["Tóner negro", "", "84,00"], ["Silla", "", ""]]
    [full], [sparse] = (tables_of(page_of(rows_at(rows, (50, -300, -400)), rulings)) for rows in (PRICES, holes))

    assert 1.0 == full.score
    assert 0.5 <= sparse.score < 0.9
