"""Scores of tables: neighbouring cells."""

from benchmarks.fields_scores import Count
from benchmarks.fields_table_scores import is_near, score_tables


def cell(text, rowspan=1, colspan=1, header=False):
    return {"text": text, "rowspan": rowspan, "colspan": colspan, "header": header}


def table(*rows, header=True, **more):
    return {
        "rows": [[cell(text, header=header and not index) for text in row] for index, row in enumerate(rows)],
        **more,
    }


def test_same_table_in_other_form():
    """Cells with row and column say the same as rows; spans are filled in."""
    truth = [
        {
            "rows": [
                [cell("Zone", 2), cell("Prices", 1, 2)],
                [cell("A"), cell("B")],
                [cell("North"), cell("1"), cell("2")],
            ]
        }
    ]
    cells = [
        ("Zone", 0, 0, 2, 1),
        ("Prices", 0, 1, 1, 2),
        *(("A", 1, 1, 1, 1), ("B", 1, 2, 1, 1)),
        *(("North", 2, 0, 1, 1), ("1", 2, 1, 1, 1), ("2", 2, 2, 1, 1)),
    ]
    names = ("text", "row", "column", "rowspan", "colspan")
    given = [{"cells": [dict(zip(names, values, strict=True)) for values in cells]}]

    assert 1.0 == score_tables(truth, given).f1


def test_shifted_row_breaks_its_neighbours():
    """A row that was answered in other columns loses the relations to the rows around it."""
    truth = [table(("a", "b"), ("c", "d"))]

    assert Count(1, 3, 3) == score_tables(truth, [table(("a", "b"), ("d", "c"))])


def test_pages_of_a_table_in_pieces_or_joined():
    """A table over two pages may be answered either way, its repeated header once when joined."""
    truth = [table(("h", "i"), ("1", "2")), table(("h", "i"), ("3", "4"), continues=True)]

    for given in (truth, [table(("h", "i"), ("1", "2"), ("3", "4"))]):
        assert 1.0 == score_tables(truth, given).f1


def test_letters_may_differ_figures_may_not():
    """Scans confuse letters; a wrong figure is a wrong cell."""
    assert is_near("consumo bloque 1", "consurno bloque 1")
    assert not is_near("consumo bloque 1", "consumo bloque 2")
    assert not is_near("1.234", "1.235")
