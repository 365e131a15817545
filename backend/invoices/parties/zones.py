"""Where on a page the parties stand: above the lines of goods or the first amounts."""

from __future__ import annotations

import re

from backend.files.visual_rows import PageRows, VisualRow
from backend.invoices.label_match import tokens_of

# Headings of the columns of goods and services, without accents.
_GOODS = frozenset(
    re.split(
        " ",
        "descripcion concepto conceptos articulo articulos detalle producto servicio cantidad cant uds "
        "unidades referencia description item items product qty quantity hours details particulars service "
        "activity bezeichnung beschreibung menge pos leistung anzahl artikel designation quantite descricao "
        "quantidade artigo descrizione quantita descripcio quantitat omschrijving aantal",
    )
)
_FIGURES = frozenset(
    re.split(
        " ",
        "precio importe dto ud pvp total price rate amount unit disc preis einzelpreis betrag gesamt prix "
        "montant pu preco valor prezzo importo preu import prijs bedrag iva vat tax",
    )
)
_LEAST_COLUMNS = 2
_AMOUNT = re.compile(r"(?<![\d.,/-])-?\d{1,3}(?:[., ]?\d{3})*[.,]\d{2}(?![\d./-])")
_MOST_ABOVE_HEADER = 4  # rows with an amount
_NEXT_ROWS, _LEAST_AMOUNTS = 6, 2  # as many of the rows after the first with an amount have one, too
_LONGEST = 400  # characters of a row that are looked at
_WIDE_CELL = 5  # words; column headings are shorter


def body_start(page: PageRows) -> int:
    """The index of the row at which lines of goods begin: their header row, else where rows with amounts begin.

    A few amounts may stand above the header row: the total in the box of the invoice's number and date.
    """
    amounts: list[int] = []
    for row in page.rows:
        if _is_header(row):
            return row.index
        if _AMOUNT.search(row.text[:_LONGEST]):
            amounts.append(row.index)
            if len(amounts) > _MOST_ABOVE_HEADER:
                break
    for first, later in zip(amounts, amounts[_LEAST_AMOUNTS:], strict=False):
        if later - first <= _NEXT_ROWS:
            return first
    return amounts[0] if amounts and amounts[0] > _NEXT_ROWS else len(page.rows)


def _is_header(row: VisualRow) -> bool:
    cells = [cell for cell in row.cells if len(cell.words) <= _WIDE_CELL]
    headings = {token for cell in cells for token in tokens_of(cell.text)}
    goods = len(headings & _GOODS)
    return len(cells) >= _LEAST_COLUMNS and goods > 0 and goods + len(headings & _FIGURES) >= _LEAST_COLUMNS
