"""Chunks of whole sentences with an overlap, and rows of tables that stay together."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from backend.documents.chunks import printed_rows, table_rows, text_chunks
from backend.tables.records import Table, TableCell


def words_of(text: str) -> np.ndarray:
    """Each word a token."""
    return np.array([match.start() for match in re.finditer(r"\S+", text)], np.int64)


def chunks_of(text: str, most: int, **options: object) -> list[str]:
    return [text[start:end] for start, end in text_chunks(text, words_of(text), most, **options)]  # type: ignore[arg-type]


PROSE = "Uno dos tres. Cuatro cinco. Seis siete ocho nueve. Diez."


@pytest.mark.parametrize(
    ("most", "overlap", "expected"),
    [
        pytest.param(5, 0, ["Uno dos tres. Cuatro cinco.", "Seis siete ocho nueve. Diez."], id="none"),
        pytest.param(7, 2, ["Uno dos tres. Cuatro cinco.", "Cuatro cinco. Seis siete ocho nueve. Diez."], id="whole"),
        pytest.param(6, 1, ["Uno dos tres. Cuatro cinco.", "cinco. Seis siete ocho nueve. Diez."], id="words"),
        pytest.param(100, 50, [PROSE], id="all-in-one"),
    ],
)
def test_overlap(most: int, overlap: int, expected: list[str]) -> None:
    """A chunk begins with the sentences of the one before that fit, else with its last words."""
    assert expected == chunks_of(PROSE, most, overlap_tokens=overlap)


def test_a_row_is_not_cut() -> None:
    """Whatever stops it holds; one that is too long is."""
    text = "Antes va esto.\nAceros S.A. Total. 12,00\nOtra S.L. Suma. 15,00"
    rows = [(15, 40), (41, len(text))]

    assert ["Antes va esto.", "Aceros S.A. Total. 12,00", "Otra S.L. Suma. 15,00"] == chunks_of(text, 4, rows=rows)
    assert all(len(chunk.split()) <= 2 for chunk in chunks_of(text, 2, rows=rows))


BODY = "La renta se revisa cada enero con el índice."
BEFORE = "El pago se hace por meses. Vale siempre."


@pytest.mark.parametrize(
    "heading",
    [
        "Quinta. Actualización.", "QUINTA.- Actualización de la renta", "Décimo primera. Fuero.",
        "Cláusula 5. Actualización.", "Artículo 5º. Actualización", "5. Actualización",
        "5.1 Actualización de la renta.", "IV. Actualización", "Clause five", "Section 5. Updates.",
        "ACTUALIZACIÓN DE LA RENTA", "TÍTULO II\nArtículo 5. Actualización.", "Quinta. Actualización.\n",
        "Actualización de la renta\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("gap", ["\n\n", "\n\f"])
def test_a_heading_goes_with_what_it_heads(heading: str, gap: str) -> None:
    """It is the beginning of the next chunk, not the end of the one before; what does not fit there stays."""
    text = f"{BEFORE}{gap}{heading}\n{BODY}"

    assert [BEFORE, f"{heading}\n{BODY}"] == chunks_of(text, 16)
    assert len(chunks_of(text, 9)) > 2
    assert [text] == chunks_of(text, 100)


@pytest.mark.parametrize(
    "line",
    ["Es así.", "Primera vuelta ganada.", "Hoy, 5. de nuevo.", "1. Pan.\n2. Vino.", "A\nB\nC\nD", "Nombre   Importe"],
)
def test_what_is_no_heading_stays(line: str) -> None:
    """Short sentences, lists and rows end a chunk as ever."""
    text = f"{BEFORE}\n{line}\n{BODY}"

    assert [f"{BEFORE}\n{line}", BODY] == chunks_of(text, 13)


def test_a_heading_of_a_sentence_that_is_cut() -> None:
    """Goes with the first part of it."""
    text = "Vale ya.\nQuinta. Objeto.\n" + "uno " * 20 + "fin."

    assert chunks_of(text, 6)[1].startswith("Quinta. Objeto.\nuno")


def test_rows_of_tables() -> None:
    """Those whose words follow one another; a table read column after column has none."""

    def table(*cells: tuple[int, int, int]) -> Table:
        made = tuple(TableCell(row, 0, "x", start=start, end=end) for row, start, end in cells)
        return Table((1,), (), 2, 2, made, "ruled", 1.0)

    level, by_columns = table((0, 0, 4), (0, 5, 9), (1, 10, 14)), table((0, 20, 24), (1, 25, 29), (0, 30, 34))

    assert [(0, 9), (10, 14)] == table_rows([by_columns, level])


def test_rows_of_a_text() -> None:
    text = "Una frase normal, con coma.\na\tb\tc\n| x | y |\n\nuno     dos"

    assert ["a\tb\tc", "| x | y |", "uno     dos"] == [text[start:end] for start, end in printed_rows(text)]
    assert 4 == len(printed_rows(text, every_line=True))


@pytest.mark.parametrize("text", ["", " \n\t\n", "\f"])
def test_a_blank_text_has_none(text: str) -> None:
    assert [] == chunks_of(text, 10)


@given(
    some.text(alphabet="ab .\n\t|É", max_size=300)
    | some.lists(some.sampled_from(["Quinta. Uno.\n", "5. A\n", "SON\n\n", "a b c. ", "D\n", "\f", "É\t1\n"])).map(
        "".join
    ),
    some.integers(1, 12),
    some.floats(0, 0.5),
)
def test_nothing_is_lost(text: str, most: int, overlap_ratio: float) -> None:
    """Every token is in a chunk, chunks go forward, and none has more tokens than it may."""
    overlap, starts = int(most * overlap_ratio), words_of(text)
    spans = text_chunks(text, starts, most, overlap_tokens=overlap, rows=printed_rows(text))

    assert all(any(start <= token < end for start, end in spans) for token in starts)
    assert all(earlier[1] <= later[1] and earlier[0] < later[0] for earlier, later in pairwise(spans))
    assert all(np.searchsorted(starts, end) - np.searchsorted(starts, start) <= most for start, end in spans)
