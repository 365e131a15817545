"""Bank statements: the account, its holder, the period, balances and movements."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from backend.files.pages import Word, bounding_box
from backend.files.visual_rows import Cell, PageRows, VisualRow
from backend.invoices.header.dates import PrintedDate, dates_in
from backend.invoices.label_match import LabelMatch, Vocabulary
from backend.invoices.records import Field, FieldRow, printed_field
from backend.reasons import because
from backend.tables.numbers import Number, numbers_in
from backend.text.patterns import find_patterns
from backend.text.patterns.dates import DateOrder, find_dates, order_of
from backend.text.patterns.folding import fold

# Columns of an account's movements.
COLUMNS = Vocabulary(
    {
        "Date": (
            "fecha", "fecha operacion", "f operacion", "f oper", "fecha oper", "f op", "fecha contable", "f contable",
            "fecha mov", "fecha apunte", "dia", "date", "posting date", "transaction date", "trans date", "posted",
            "date posted", "datum", "buchung", "buchungstag", "buchungsdatum", "date operation", "date d'operation",
            "data", "data operacio", "data mov", "data operazione", "data movimento", "data contabile", "data lanc",
        ),
        "ValueDate": (
            "f valor", "fecha valor", "valor", "f val", "fec valor", "value date", "value", "wert", "wertstellung",
            "valuta", "date valeur", "valeur", "date de valeur", "data valor", "data valuta",
        ),
        "Description": (
            "concepto", "descripcion", "movimiento", "movimientos", "detalle", "operacion", "concepte", "observaciones",
            "descripcion del movimiento", "concepto referencia", "description", "details", "particulars", "transaction",
            "transaction details", "transaction description", "payment type and details", "narrative",
            "verwendungszweck", "buchungstext", "vorgang", "umsatz", "libelle", "nature de l'operation", "operations",
            "descrizione", "causale", "descricao", "descricao do movimento", "descripcio",
        ),
        "Debit": (
            "cargo", "cargos", "debe", "adeudo", "adeudos", "gastos", "pagos", "salidas", "retiros", "debito",
            "debitos", "debit", "debits", "paid out", "money out", "withdrawal", "withdrawals", "payments", "out",
            "soll", "belastung", "lastschrift", "carrec", "carrecs", "deure", "dare", "uscite", "addebiti",
            "withdrawals debits",
        ),
        "Credit": (
            "abono", "abonos", "haber", "ingreso", "ingresos", "entradas", "depositos", "credito", "creditos", "credit",
            "credits", "paid in", "money in", "deposit", "deposits", "receipts", "in", "haben", "gutschrift",
            "abonament", "abonaments", "avere", "entrate", "accrediti", "deposits credits",
        ),
        "Amount": (
            "importe", "importe eur", "amount", "betrag", "montant", "import", "importo", "valor eur", "montante",
        ),
        "Balance": (
            "saldo", "saldo eur", "saldo disponible", "saldo contable", "balance", "running balance", "ledger balance",
            "kontostand", "solde", "saldo contabilistico", "saldo progressivo",
        ),
    }
)  # fmt: skip

# What stands beside a value.
FACTS = Vocabulary(
    {
        "OpeningBalance": (
            "saldo anterior", "saldo inicial", "saldo de apertura", "saldo al inicio", "saldo previo",
            "saldo inicial del periodo", "saldo periodo anterior", "saldo mes anterior", "saldo extracto anterior",
            "opening balance", "beginning balance", "starting balance", "previous balance", "balance brought forward",
            "brought forward", "balance forward", "start balance", "your previous balance", "opening ledger balance",
            "alter saldo", "alter kontostand", "anfangssaldo", "saldovortrag", "solde precedent", "ancien solde",
            "solde initial", "solde anterieur", "saldo iniziale", "saldo inicial em", "saldo precedente",
        ),
        "ClosingBalance": (
            "saldo final", "saldo actual", "nuevo saldo", "saldo de cierre", "saldo al cierre",
            "saldo final del periodo", "saldo a su favor", "saldo resultante", "saldo a fecha",
            "saldo disponible a fecha", "saldo final a", "closing balance", "ending balance", "new balance",
            "your new balance", "end balance", "current balance", "balance carried forward", "carried forward",
            "closing ledger balance", "neuer saldo", "neuer kontostand", "endsaldo", "nouveau solde", "solde final",
            "solde au", "saldo finale", "saldo contabile finale",
        ),
        "AccountHolder": (
            "titular", "titulares", "titular de la cuenta", "nombre del titular", "account holder", "account name",
            "account holders", "name of account", "kontoinhaber", "titulaire", "titulaire du compte", "intestatario",
            "intestazione", "titular da conta", "titular del compte", "customer name", "cliente",
        ),
        "AccountNumber": (
            "iban", "cuenta", "numero de cuenta", "n de cuenta", "n cuenta", "cuenta n", "num cuenta", "codigo cuenta",
            "codigo cuenta cliente", "ccc", "account number", "account no", "account", "acct no", "konto",
            "kontonummer", "konto nr", "n de compte", "numero de compte", "compte n", "numero conto", "conto n",
            "conto corrente n", "n da conta", "numero da conta", "conta", "num de compte",
        ),
        "Period": (
            "periodo", "periodo del extracto", "extracto del", "movimientos del", "statement period", "period",
            "period covered", "for the period", "statement from", "zeitraum", "periode", "du", "periodo di riferimento",
            "desde", "fecha desde", "from",
        ),
        "PeriodEnd": (
            "hasta", "fecha hasta", "to", "al", "au", "bis",
        ),
    }
)  # fmt: skip

_MIN_COLUMNS = 3
_MONEY = ("Debit", "Credit", "Amount", "Balance")
_DAY_AND_MONTH = re.compile(r"(\d{1,2})[/.-](\d{1,2})\.?")
_DECIMALS = 2
_MAX_DRIFT = 4.0  # line heights between the edge of a number and that of its column
_SURE, _LIKELY = 0.97, 0.8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of movements, by the place of its label on the levelled page."""

    name: str
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Movement:
    """One line of an account."""

    page: PageRows
    date: str  # ISO 8601; "--03-12" where no year is known
    date_words: tuple[Word, ...]
    value_date: str | None
    value_words: tuple[Word, ...]
    description: tuple[Word, ...]
    amount: Number
    signed: Decimal
    balance: Number | None
    holds: bool | None  # whether the balance before and the amount make the balance; None where one is missing


class Notation(NamedTuple):
    """How a statement writes numbers and dates."""

    mark: str  # its decimal separator
    order: DateOrder
    last_day: str | None  # ISO 8601; of its period: the year of dates that are printed without one


def movement_columns(row: VisualRow, page: PageRows) -> tuple[Column, ...]:
    """The columns that a row heads; empty where it is no header of movements."""
    columns: dict[str, Column] = {}
    for cell in row.cells:
        for match in COLUMNS.find(cell):
            box = bounding_box(page.level(word.box) for word in match.words)
            columns.setdefault(match.label, Column(match.label, box.left, box.right))
    names = columns.keys()
    has_money = "Amount" in names or {"Debit", "Credit"} <= names
    is_account = "Balance" in names or {"Debit", "Credit"} <= names
    if len(names) < _MIN_COLUMNS or "Date" not in names or not (has_money and is_account):
        return ()
    return tuple(sorted(columns.values(), key=lambda column: column.left))


def find_movements(pages: Sequence[PageRows], notation: Notation, opening: Decimal | None) -> list[Movement]:
    """The movements of all pages in their order; a page without a header continues the columns of the one before.

    Args:
        opening: the balance before the first movement, if it is printed.
    """
    columns: tuple[Column, ...] = ()
    found: list[Movement] = []
    for page in pages:
        open_line = False  # whether a line may go on in the next row
        for row in page.rows:
            header = movement_columns(row, page)
            if header:
                columns, open_line = header, False
            elif columns:
                movement = _movement(page, row, columns, notation)
                if movement is not None:
                    found.append(movement)
                    open_line = True
                elif open_line and found and _goes_on(row, columns, notation.mark):
                    found[-1] = replace(found[-1], description=(*found[-1].description, *row.words))
                else:
                    open_line = False
    return _settled(found, opening)


def _movement(page: PageRows, row: VisualRow, columns: Sequence[Column], notation: Notation) -> Movement | None:
    """The movement in a row; None where it has no date or no amount."""
    dates = _leading_dates(row, notation, is_ocr=page.page.source == "ocr")
    if not dates:
        return None
    used = {word.start for _, words in dates for word in words}
    numbers = [
        number for cell in row.cells for number in numbers_in(cell, notation.mark) if number.decimals == _DECIMALS
    ]
    placed: dict[str, Number] = {}
    for number in numbers:
        column = _column_of(page, number, columns)
        if column is not None and not used & {word.start for word in number.words}:
            placed.setdefault(column.name, number)
    name = next((name for name in ("Debit", "Credit", "Amount") if name in placed), None)
    if name is None:
        return None
    amount = placed[name]
    money = {word.start for number in placed.values() for word in number.words} | used
    description = tuple(word for word in row.words if word.start not in money and any(map(str.isalnum, word.text)))
    signed = -abs(amount.value) if name == "Debit" else amount.value
    value_date, value_words = dates[1] if len(dates) > 1 else (None, ())
    return Movement(
        page,
        dates[0][0],
        dates[0][1],
        value_date,
        value_words,
        description,
        amount,
        signed,
        placed.get("Balance"),
        None,
    )


def _leading_dates(row: VisualRow, notation: Notation, *, is_ocr: bool) -> list[tuple[str, tuple[Word, ...]]]:
    """The dates at the beginning of a row, two at most: of booking and of value."""
    words = row.words
    found: list[tuple[str, tuple[Word, ...]]] = []
    index = 0
    while index < len(words) and len(found) < 2:
        dates = dates_in(words[index : index + 4], notation.order, is_ocr=is_ocr)
        if dates and dates[0].first == 0:
            found.append((dates[0].value, dates[0].words))
            index += len(dates[0].words)
            continue
        value = _without_year(words[index].text, notation)
        if value is None:
            break
        found.append((value, (words[index],)))
        index += 1
    return found


def _without_year(text: str, notation: Notation) -> str | None:
    """A day and a month, in the year that puts them before the end of the period: "--03-12" where that is unknown."""
    match = _DAY_AND_MONTH.fullmatch(text)
    if match is None:
        return None
    first, second = int(match[1]), int(match[2])
    day, month = (second, first) if notation.order.month_first else (first, second)
    if not (1 <= day <= 31 and 1 <= month <= 12):
        return None
    if notation.last_day is None:
        return f"--{month:02}-{day:02}"
    year = int(notation.last_day[:4]) - (f"{month:02}-{day:02}" > notation.last_day[5:])
    return f"{year:04}-{month:02}-{day:02}"


def _column_of(page: PageRows, number: Number, columns: Sequence[Column]) -> Column | None:
    """The money column whose edge or middle is nearest to the number's."""
    box = bounding_box(page.level(word.box) for word in number.words)

    def distance(column: Column) -> float:
        middle = abs(box.left + box.right - column.left - column.right) / 2
        return min(abs(box.right - column.right), abs(box.left - column.left), middle)

    nearest = min((column for column in columns if column.name in _MONEY), key=distance, default=None)
    return nearest if nearest is not None and distance(nearest) < _MAX_DRIFT * page.line_height else None


def _goes_on(row: VisualRow, columns: Sequence[Column], mark: str) -> bool:
    """Whether a row is a further line of the description above: words in its column, no amount, no label."""
    first = next((column for column in columns if column.name == "Description"), None)
    if first is None or len(row.cells) > 1 or any(FACTS.find(cell) for cell in row.cells):
        return False
    cell = row.cells[0]
    starts_there = abs(cell.box.left - first.left) < 2 * (cell.box.bottom - cell.box.top)
    return starts_there and not any(number.decimals == _DECIMALS for number in numbers_in(cell, mark))


def _settled(movements: Sequence[Movement], opening: Decimal | None) -> list[Movement]:
    """The movements with their signs as the balances say, and whether each agrees with its balance.

    Statements run either way: newest last or newest first.
    """
    forward = _checked(movements, opening)
    newest_first = _checked(movements[::-1], None)
    if sum(m.holds is True for m in newest_first) > sum(m.holds is True for m in forward):
        return newest_first[::-1]
    return forward


def _checked(movements: Sequence[Movement], opening: Decimal | None) -> list[Movement]:
    before, checked = opening, []
    for movement in movements:
        after = movement.balance.value if movement.balance is not None else None
        holds: bool | None = None
        signed = movement.signed
        if before is not None and after is not None:
            if before + signed != after and before - signed == after:
                signed = -signed
            holds = before + signed == after
        checked.append(replace(movement, signed=signed, holds=holds))
        before = after if after is not None else None if before is None else before + signed
    return checked


def movements_field(movements: Sequence[Movement]) -> Field:
    """The field `Movements`."""
    score = sum(_SURE if movement.holds else _LIKELY for movement in movements) / len(movements)
    checked = [movement.holds for movement in movements if movement.holds is not None]
    why = because("movements", lines=len(movements))
    rows = tuple(FieldRow(tuple(_row(movement))) for movement in movements)
    valid = all(checked) if checked else None
    return Field("Movements", "", "", round(score, 4), "text", why, rows=rows, valid=valid)


def _row(movement: Movement) -> Iterator[Field]:
    page, score = movement.page, _SURE if movement.holds else _LIKELY
    why = (
        because("in_column")
        if movement.holds is None
        else because("balance_agrees")
        if movement.holds
        else because("balance_disagrees")
    )
    yield printed_field("Date", movement.date, movement.date_words, page, score=score, why=because("line_begins"))
    if movement.value_date is not None:
        value_why = because("behind_booking_date")
        yield printed_field("ValueDate", movement.value_date, movement.value_words, page, score=score, why=value_why)
    if movement.description:
        text = " ".join(word.text for word in movement.description)
        yield printed_field("Description", text, movement.description, page, score=score, why=because("in_column"))
    yield printed_field(
        "Amount", f"{movement.signed:f}", movement.amount.words, page, score=score, why=why, valid=movement.holds
    )
    if movement.balance is not None:
        value = f"{movement.balance.value:f}"
        yield printed_field("Balance", value, movement.balance.words, page, score=score, why=why, valid=movement.holds)


_LABEL_WORDS = 14  # of a cell that may hold a label: prose is longer
_MONTH = re.compile(r"\d{4}-\d\d")
_ACCOUNT = re.compile(r"[\dA-Z][\dA-Z*Xx./-]*")
_MIN_ACCOUNT_DIGITS = 6
_MAX_NAME_WORDS = 8
_TOP_ROWS = 30  # of a page, in which titles and periods stand


class _Fact(NamedTuple):
    """A label and where its value may stand."""

    page: PageRows
    label: LabelMatch
    places: tuple[tuple[Word, ...], ...]  # behind, beside, below


def find_statement(pages: Sequence[PageRows], mark: str) -> tuple[Field, ...]:
    """AccountNumber, AccountHolder, PeriodStart, PeriodEnd, OpeningBalance, ClosingBalance, Movements.

    Nothing where no page heads an account's movements and none has both balances.

    Args:
        mark: the document's decimal separator, from `numbers.decimal_mark_of`.
    """
    facts = [fact for page in pages for fact in _facts(page)]
    opening = _balance(facts, "OpeningBalance", mark)
    closing = _balance(facts, "ClosingBalance", mark)
    has_columns = any(movement_columns(row, page) for page in pages for row in page.rows)
    if not has_columns and (opening is None or closing is None):
        return ()
    order = order_of(fold("\n".join(page.page.text for page in pages)).text)
    period = _period(pages, facts, order)
    notation = Notation(mark, order, period[1].value if period else None)
    before = Decimal(opening.value) if opening is not None else None
    movements = find_movements(pages, notation, before)
    fields = [*_account(pages, facts), *period]
    fields += [field for field in (opening, closing) if field is not None]
    if movements:
        fields.append(movements_field(movements))
        last = movements[-1]
        if closing is None and last.balance is not None and last.date >= movements[0].date:
            why = because("last_balance")
            value = f"{last.balance.value:f}"
            fields.append(printed_field("ClosingBalance", value, last.balance.words, last.page, score=0.8, why=why))
    return tuple(fields)


def _facts(page: PageRows) -> Iterator[_Fact]:
    for cell in page.cells:
        if len(cell.words) > _LABEL_WORDS:
            continue
        matches = FACTS.find(cell)
        for index, match in enumerate(matches):
            stop = matches[index + 1].first if index + 1 < len(matches) else None
            yield _Fact(page, match, tuple(_places(page, cell, cell.words[match.last : stop])))


def _places(page: PageRows, cell: Cell, behind: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    if behind:
        yield behind
    row = page.rows[cell.row]
    yield from (other.words for other in row.cells if other.box.left >= cell.box.right and not FACTS.find(other))
    for below in page.rows[cell.row + 1 : cell.row + 2]:
        under = [other for other in below.cells if other.box.shares_width(cell.box)]
        yield from (other.words for other in under if not FACTS.find(other))


def _amounts(fact: _Fact, mark: str) -> Iterator[Number]:
    for words in fact.places:
        cell = Cell(fact.label.cell.page, words, fact.label.cell.box, fact.label.cell.row)
        yield from (number for number in numbers_in(cell, mark) if number.decimals == _DECIMALS)


def _balance(facts: Sequence[_Fact], name: str, mark: str) -> Field | None:
    """A balance beside or below its label."""
    for fact in facts:
        if fact.label.label == name:
            number = next(_amounts(fact, mark), None)
            if number is not None:
                why = because("label", position="beside", label=" ".join(word.text for word in fact.label.words))
                return printed_field(name, f"{number.value:f}", number.words, fact.page, score=0.9, why=why)
    return None


def _account(pages: Sequence[PageRows], facts: Sequence[_Fact]) -> Iterator[Field]:
    number = _iban(pages) or _account_number(facts)
    if number is not None:
        yield number
    for fact in facts:
        name = _name(fact) if fact.label.label == "AccountHolder" else ()
        if name:
            value = " ".join(word.text for word in name).strip(" .,:;-")
            yield printed_field(
                "AccountHolder", value, name, fact.page, score=0.85, why=because("its_label", position="beside")
            )
            return


def _name(fact: _Fact) -> tuple[Word, ...]:
    for words in fact.places:
        chosen = words[:_MAX_NAME_WORDS]
        letters = [word for word in chosen if any(map(str.isalpha, word.text))]
        if letters and not any(map(str.isdecimal, "".join(word.text for word in chosen))):
            return chosen
    return ()


def _iban(pages: Sequence[PageRows]) -> Field | None:
    for page in pages:
        for entity in find_patterns(page.page.text, ["IBAN"]):
            if entity.value is not None and entity.score > 0.6:  # less: wrong and without a label
                words = [word for word in page.page.words if word.start < entity.end and entity.start < word.end]
                return printed_field(
                    "AccountNumber", entity.value, words, page, score=0.97, why=because("iban"), valid=entity.valid
                )
    return None


def _account_number(facts: Sequence[_Fact]) -> Field | None:
    for fact in facts:
        if fact.label.label != "AccountNumber":
            continue
        for words in fact.places:
            chosen: list[Word] = []
            for word in words:
                if not _ACCOUNT.fullmatch(word.text.strip(".,:;")):
                    break
                chosen.append(word)
            value = "".join("".join(filter(str.isalnum, word.text)) for word in chosen)
            if sum(map(str.isdecimal, value)) >= _MIN_ACCOUNT_DIGITS:
                return printed_field(
                    "AccountNumber", value, chosen, fact.page, score=0.85, why=because("its_label", position="beside")
                )
    return None


def _period(pages: Sequence[PageRows], facts: Sequence[_Fact], order: DateOrder) -> list[Field]:
    """Start and end: two dates behind a label or in one title, or the month of the title."""
    for fact in facts:
        if fact.label.label == "Period":
            row = fact.page.rows[fact.label.cell.row]
            dates = dates_in(row.words, order, is_ocr=fact.page.page.source == "ocr")
            if len(dates) >= 2:
                return _span(fact.page, dates[0], dates[1], because("its_label", position="behind"))
    for page in pages[:1]:
        for row in page.rows[:_TOP_ROWS]:
            if movement_columns(row, page):
                break
            dates = dates_in(row.words, order, is_ocr=page.page.source == "ocr")
            if len(dates) == 2 and dates[0].value < dates[1].value:
                return _span(page, dates[0], dates[1], because("two_dates"))
            if month := _month(page, row.words):
                return month
    return []


def _span(page: PageRows, first: PrintedDate, last: PrintedDate, why: str) -> list[Field]:
    return [
        printed_field(name, date.value, date.words, page, score=0.9, why=why, valid=True, ambiguous=date.ambiguous)
        for name, date in (("PeriodStart", first), ("PeriodEnd", last))
    ]


def _month(page: PageRows, words: Sequence[Word]) -> list[Field]:
    """Both ends of a month in words: "Extracto de cuenta - marzo 2026"."""
    text = " ".join(word.text for word in words)
    for match in find_dates(fold(text).text):
        if match.value is not None and _MONTH.fullmatch(match.value):
            year, month = map(int, match.value.split("-"))
            ends = (f"{match.value}-01", f"{match.value}-{monthrange(year, month)[1]:02}")
            why = because("month_of_title")
            return [
                printed_field(name, value, words, page, score=0.75, why=why, valid=True)
                for name, value in zip(("PeriodStart", "PeriodEnd"), ends, strict=True)
            ]
    return []
