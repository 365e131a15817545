"""Whether a document is an invoice, a receipt or a bank statement: nothing is looked for in others.

A word such as "invoice" stands in contracts and letters too; a title, a number's label, a total beside an amount and
short rows together are what a business document has. Weights were set by reading, and checked on fields_dev and on
contracts, letters, reports and court decisions (docs/fields.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, NamedTuple

from backend.files.visual_rows import Cell, PageRows
from backend.invoices.header.labels import LABELS as DATE_LABELS
from backend.invoices.label_match import LabelMatch, Vocabulary
from backend.invoices.learned.read import PageReader
from backend.invoices.money.labels import MONEY_LABELS, readings_of
from backend.invoices.money.labels import Kind as MoneyKind
from backend.invoices.parties.blocks import party_label
from backend.invoices.parties.labels import CUSTOMER
from backend.invoices.statement import movement_columns
from backend.models.fields_network import KINDS
from backend.reasons import because
from backend.tables.numbers import numbers_in
from backend.text.patterns.folding import fold

Kind = Literal["invoice", "credit_note", "receipt", "bank_statement"]

# Document types of the bundled classifier -> what fields are looked for.
KIND_OF_TYPE: dict[str, Kind] = {
    "invoice": "invoice",
    "utility_bill": "invoice",
    "credit_note": "credit_note",
    "receipt": "receipt",
    "bank_statement": "bank_statement",
}
_TITLES = Vocabulary(
    {
        "credit_note": (
            "factura rectificativa", "rectificativa", "factura de abono", "nota de abono", "nota de crédito",
            "credit note", "credit memo", "credit invoice", "gutschrift", "stornorechnung", "rechnungskorrektur",
            "facture d'avoir", "nota di credito", "nota de crèdit",
        ),
        "receipt": (
            "factura simplificada", "ticket", "tique", "tiquet", "recibo", "receipt", "sales receipt", "cash receipt",
            "cash bill", "cash sales", "simplified tax invoice", "official receipt", "kassenbon", "quittung",
            "kassenbeleg", "ticket de caisse", "reçu", "scontrino", "talão", "justificante de compra", "guest check",
        ),
        "bank_statement": (
            "extracto de cuenta", "extracto bancario", "extracto de movimientos", "extracto mensual",
            "movimientos de la cuenta", "movimientos de cuenta", "últimos movimientos", "extracto integral",
            "bank statement", "account statement", "statement of account", "current account statement",
            "checking account statement", "kontoauszug", "relevé de compte", "relevé bancaire", "extrato de conta",
            "extrato bancário", "estratto conto", "extracte de compte",
        ),
        "invoice": (
            "factura", "factura completa", "factura proforma", "factura electrónica", "minuta de honorarios", "minuta",
            "invoice", "tax invoice", "vat invoice", "sales invoice", "commercial invoice", "proforma invoice",
            "billing statement", "utility bill", "electricity bill", "your bill", "bill", "rechnung", "honorarnote",
            "facture", "note d'honoraires", "fattura", "parcella", "fatura", "fatura recibo",
        ),
    }
)  # fmt: skip
_OTHER_TITLES = Vocabulary(
    {
        "payslip": (
            "nómina", "recibo de salarios", "recibo individual justificativo del pago de salarios", "hoja de salario",
            "recibo individual de salarios", "payslip", "pay stub", "earnings statement", "wage slip",
            "gehaltsabrechnung", "lohnabrechnung", "entgeltabrechnung", "bulletin de paie", "fiche de paie",
            "busta paga", "recibo de vencimento", "full de salari",
        ),
        "quote": (
            "presupuesto", "oferta", "oferta económica", "quotation", "quote", "estimate", "angebot",
            "kostenvoranschlag", "devis", "preventivo", "orçamento", "pressupost",
        ),
        "order": (
            "pedido", "orden de compra", "hoja de pedido", "confirmación de pedido", "purchase order", "sales order",
            "order confirmation", "bestellung", "auftragsbestätigung", "bon de commande", "ordine", "encomenda",
        ),
        "delivery note": (
            "albarán", "albarán de entrega", "nota de entrega", "delivery note", "packing slip", "packing list",
            "lieferschein", "bon de livraison", "bolla", "guia de remessa", "guia de transporte",
        ),
        "tax form": (
            "modelo 303", "modelo 111", "modelo 115", "modelo 130", "modelo 190", "modelo 347", "modelo 390",
            "autoliquidación", "declaración", "tax return", "declaration",
        ),
        "policy": ("póliza", "póliza de seguro", "condiciones particulares", "insurance policy", "policy schedule"),
    }
)  # fmt: skip
# What the network was never shown. They begin a heading, whatever else it says: "certificado de retenciones 2025".
_HEADINGS = Vocabulary(
    {
        "reminder": (
            "recordatorio de pago", "recordatorio", "aviso de impago", "requerimiento de pago", "reclamación de pago",
            "reclamación de deuda", "recordatori de pagament", "payment reminder", "reminder", "final reminder",
            "overdue notice", "past due notice", "final notice", "mahnung", "zahlungserinnerung", "rappel", "relance",
            "mise en demeure", "sollecito di pagamento", "sollecito", "aviso de pagamento em atraso", "lembrete",
        ),
        "payment": (
            "justificante de pago", "justificante de transferencia", "justificante de ingreso",
            "orden de transferencia", "transferencia emitida", "comprobante de transferencia", "comprobante de pago",
            "recibo de transferencia", "aviso de domiciliación", "adeudo por domiciliación", "adeudo domiciliado",
            "adeudo directo", "aviso de adeudo", "aviso de cargo", "justificant de pagament",
            "justificant de transferència", "xustificante de pagamento", "remittance advice", "payment advice",
            "payment confirmation", "transfer confirmation", "zahlungsavis", "überweisungsbeleg", "avis de paiement",
            "avis de virement", "ordre de virement", "avis de prélèvement", "avviso di pagamento",
            "disposizione di bonifico", "comprovativo de transferência", "comprovativo de pagamento",
        ),
        "certificate": (
            "certificado", "certificat", "certificate", "certificato", "bescheinigung", "attestation", "declaração",
            "certificación",
        ),
        "contract": (
            "contrato", "contracte", "contract", "agreement", "service agreement", "rental agreement",
            "lease agreement", "maintenance agreement", "vertrag", "mietvertrag", "wartungsvertrag", "contrat",
            "contratto", "acuerdo", "escritura",
        ),
        "statement": (
            "estado de cuenta", "extracto de cliente", "liquidación de comisiones", "liquidación de gastos",
            "hoja de gastos", "nota de gastos", "expense report", "expense claim", "spesenabrechnung",
            "reisekostenabrechnung", "note de frais", "nota spese", "commission statement", "provisionsabrechnung",
            "statement", "relevé de factures",
        ),
        "work report": (
            "parte de trabajo", "parte de asistencia", "parte de obra", "orden de trabajo", "orden de reparación",
            "hoja de trabajo", "work order", "job sheet", "arbeitsbericht", "bon d'intervention", "full de treball",
            "folha de obra", "rapporto di intervento",
        ),
        "delivery note": (
            "packing list", "albarán valorado", "nota de devolución", "lista de contenido", "lista de embalaje",
            "lista de bultos", "carta de porte", "conocimiento de embarque", "bill of lading", "lettre de voiture",
            "frachtbrief", "documento di trasporto", "ddt", "packliste", "liste de colisage", "guia de transporte",
        ),
        "quote": (
            "tarifa de precios", "lista de precios", "price list", "preisliste", "liste de prix", "listino prezzi",
            "oferta comercial", "propuesta económica", "propuesta comercial", "proposta comercial", "orzamento",
            "cotización", "cotação", "proposal", "hoja de encargo", "nota de encargo",
        ),
        "order": (
            "confirmación de reserva", "confirmación de pedido", "booking confirmation", "reservation confirmation",
            "buchungsbestätigung", "confirmation de réservation", "confirmation de commande", "conferma d'ordine",
            "conferma di prenotazione", "confirmação de reserva", "confirmação de encomenda", "nota de pedido",
            "encomenda a fornecedor",
        ),
        "tax form": (
            "documento único administrativo", "modelo", "autoliquidación", "recibo del impuesto", "carta de pago",
            "impuesto sobre bienes inmuebles", "póliza de seguro", "tarjeta de embarque", "boarding pass",
            "notificación", "resolución", "acta", "informe",
        ),
    }
)  # fmt: skip
_INVOICES = (
    "factura", "fra", "fact", "factura simplificada", "factura rectificativa", "ticket", "recibo", "minuta", "facture",
    "invoice", "tax invoice", "bill", "receipt", "credit note", "inv", "cash bill", "fattura", "fatura", "rechnung",
    "minuta de honorarios", "nota de honorarios", "note d'honoraires", "honorarnote", "parcella",
)  # fmt: skip
_NUMBERED = Vocabulary(
    {
        "id": (
            *(f"{noun} {mark}" for noun in _INVOICES for mark in ("n", "no", "num", "numero", "number", "nr", "id")),
            *(f"{mark} {of}{noun}" for noun in _INVOICES for mark in ("n", "no", "num") for of in ("", "de ")), "inv",
            "rechnungsnummer", "rechnungs nr", "belegnummer", "beleg nr", "numero de la facture", "gutschriftsnummer",
            "numero da fatura", "numero della fattura", "numero y serie",
        ),
        "title": (
            "factura", "invoice", "tax invoice", "ticket", "recibo", "receipt", "bill", "facture", "rechnung", "fra",
            "fattura", "fatura", "factura simplificada", "credit note", "cash bill", "minuta",
        ),
    }
)  # fmt: skip
# What the labels of money say -> the name under which it counts here.
_AMOUNTS: Mapping[str, tuple[MoneyKind, ...]] = {
    "total": ("total", "due"),
    "tax": ("tax", "withholding", "surcharge"),
    "base": ("base", "gross"),
    "paid": ("paid", "cash"),
    "change": ("change",),
    "account": ("balance",),
}
_POINTS = {
    "id": 1.5, "total": 1.5, "tax": 0.5, "base": 0.5, "date": 0.5, "due": 0.5, "paid": 0.5, "change": 0.5,
    "account": 0.5, "slip": 0.5,
}  # fmt: skip
_PAIRS = ({"tax", "base"}, {"paid", "change"})  # what is together on invoices and receipts alone
_PAIR = 0.5
_SUMMED = {"id", "total", "tax", "base"}  # no other paper says all of an invoice
_BILLED = {"total", "tax"}  # letters name sums of money; with their tax only those that bill
_AMOUNT = re.compile(r"\d[.,]\d\d(?![.,]?\d)")  # no date
_WORDS_TO_AMOUNT = 8  # from what a sentence calls it
_SURE = 0.7  # least strength of a reading: "importe" alone heads any column
_STATEMENT = 2.5  # points for the header of an account's movements
_SAYS_NO_INVOICE = re.compile(  # "This is not a VAT invoice" stands on those of the United States
    r"(?:documento?|recibo|justificante|extracto?|albaran|presupuesto|pedido|presente|;) n(?:o|ao|on) "
    r"(?:es|e|constitu\w+|s[ie]r?ve (?:de|como)"
    r"|t(?:ien)?en? (?:a |la )?(?:validez|valor) (?:de|como)) (?:u[nm]h?a |cap |ninguna )?fac?tura"
    r"|non costituisce (?:una )?fattura|nao (?:constitui|serve de) (?:uma )?fatura"
    r"|(?:this|document) (?:is not|does not constitute) an invoice|ist keine rechnung|pas une facture"
)
_TITLE_WORDS = 5  # of a cell that is a title: more are a sentence
_PROSE_WORDS = 12  # of a cell of prose
_MAX_PROSE = 0.45  # share of words in such cells; invoices with long legal notes have a third
_TOP = 0.4  # of the first page's height: where titles stand
_ENOUGH = 3.0  # of 400 texts of other types contracts, quotes and tax forms have as much, seven in all
_ENOUGH_WITH_TYPE = 1.0  # where the classifier takes it for such a document
_ENOUGH_AGAINST_TYPE = 4.0  # where the classifier takes it for another
_CERTAIN = 0.98  # probability with which the network is sure of none
_LIKELY = 0.9  # and of one: of 215 other papers none that has the least points reaches 0.1
_KINDS_OF_PAGE: Mapping[Kind, tuple[str, ...]] = {
    "invoice": ("invoice", "utility", "proforma"),
    "receipt": ("simplified",),
    "credit_note": ("credit",),
}
_TITLED = 20.0  # times as likely is what titles and labels say; what they call a bill is no credit note
_BUYER = 10.0  # and an invoice where they name who buys
_SHORT = 3  # letters of "Sr", "An", "To": codes of taxes and words of sentences, too
_SPOKEN_TITLE = 1.5  # points of a title that begins a sentence
_PROSE_COST = 2.0  # points; not of a letter that gives an invoice's number, with a total below it
_NUMBER = re.compile(r"(?!(?:19|20)\d\d\D?$)[#(]?[A-Z]{0,4}[-/]?\d[\dA-Z/-]*\d[.,)]?")  # no year
_SLIP = 1.9  # times its width: a till's paper is as high
_LARGE = 1.25  # median heights of words: a heading
_FIRST_ROWS = 3
_MAX_CELLS = 4000  # that are looked at: the first pages say what it is


class DocumentKind(NamedTuple):
    """What kind of business document a document is; None where it is none."""

    kind: Kind | None
    why: str  # one sentence


def document_kind(
    pages: Sequence[PageRows], document_type: str | None = None, reader: PageReader | None = None
) -> DocumentKind:
    """What kind of business document it is.

    Args:
        document_type: the label of the bundled classifier of document types, where it is known.
        reader: reads the first page with the network, which decides where it is sure.
    """
    if pages and says_no_invoice(pages[0]):
        return DocumentKind(None, because("says_no_invoice"))
    evidence = evidence_of(pages)
    ruled = _ruled(evidence, document_type)
    if reader is None or not pages:
        return ruled
    kinds = reader.kinds(pages[0])
    if not kinds:
        return ruled
    if kinds["fields"] <= 1 - _CERTAIN and ruled.kind is not None:
        if ruled.kind == "bank_statement" and kinds["bank"] > 1 - _CERTAIN:
            return ruled
        return DocumentKind(None, because("looks_like_other", type=max(KINDS, key=kinds.__getitem__)))
    if ruled.kind == "bank_statement" or (ruled.kind is None and (kinds["fields"] < _LIKELY or evidence.other)):
        return ruled
    said = ruled.kind or evidence.kind
    chances = {kind: sum(map(kinds.__getitem__, names)) for kind, names in _KINDS_OF_PAGE.items()}
    if said in ("invoice", "receipt"):
        del chances["credit_note"]
    chances["invoice"] *= _BUYER if evidence.buyer else 1
    kind = max(chances, key=lambda kind: chances[kind] * (_TITLED if kind == said else 1))
    return ruled if kind == ruled.kind else DocumentKind(kind, because("looks_like_one", kind=kind.replace("_", " ")))


def _ruled(evidence: Evidence, document_type: str | None) -> DocumentKind:
    """The kind by titles, labels and the document type."""
    hinted = KIND_OF_TYPE.get(document_type or "")
    is_letter = evidence.has_total and (evidence.titled or "id" in evidence.reasons)
    is_prose = evidence.prose > _MAX_PROSE and not is_letter
    points = evidence.points - (_PROSE_COST if is_prose else 0.0)
    if evidence.other and not evidence.titled:
        return DocumentKind(None, because("title_of_other", type=evidence.other))
    if not (evidence.has_total or evidence.kind or evidence.is_statement):
        return DocumentKind(None, because("no_total"))
    enough = _ENOUGH if document_type is None else _ENOUGH_WITH_TYPE if hinted else _ENOUGH_AGAINST_TYPE
    if points < enough:
        return DocumentKind(None, because("too_few_signs", points=points, needed=enough))
    is_statement = hinted == "bank_statement" and not evidence.titled
    kind = "bank_statement" if is_statement else evidence.kind or hinted or "invoice"
    hint = f"; {because('classed', type=document_type)}" if document_type else ""
    return DocumentKind(kind, because("read_as", kind=kind.replace("_", " "), signs=evidence.reasons) + hint)


class Evidence(NamedTuple):
    points: float
    kind: Kind | None  # of its title
    has_total: bool
    is_statement: bool
    buyer: bool  # a label says who buys
    titled: bool  # such a title stands at its top
    other: str  # the title of another kind at its top; empty where none is
    prose: float  # share of words in cells of prose
    reasons: tuple[str, ...]


def evidence_of(pages: Sequence[PageRows]) -> Evidence:
    """What the pages say of their kind, and how much speaks for a document of it."""
    signs = _Signs()
    cells = ((page, cell) for page in pages for cell in page.cells)
    for page, cell in islice(cells, _MAX_CELLS):
        signs.add(page, cell)
    seen, titles = signs.seen, signs.titles
    if signs.spoken_of >= _BILLED:
        seen |= _BILLED
    if pages and pages[0].page.height > _SLIP * pages[0].page.width:
        seen.add("slip")
    title = max(titles.values(), default=0.0)
    has_movements = any(movement_columns(row, page) for page in pages[:2] for row in page.rows)
    points = title + sum(_POINTS[name] for name in seen) + _PAIR * sum(pair <= seen for pair in _PAIRS)
    points += _STATEMENT if has_movements else 0.0
    is_statement = ("bank_statement" in titles and "account" in seen) or has_movements
    kind = _kind(titles, seen, is_statement=is_statement, buyer=signs.buyer)
    reasons = [f"title {kind.replace('_', ' ')}"] if kind and kind in titles else []
    reasons += [name for name in _POINTS if name in seen]
    is_strange = bool(signs.strange) and not signs.headed and not seen >= _SUMMED
    return Evidence(
        points,
        kind,
        "total" in seen,
        is_statement,
        signs.buyer,
        titled=title > 1 and not is_strange,
        other=signs.strange or signs.other,
        prose=signs.prose / max(1, signs.words),
        reasons=tuple(reasons),
    )


@dataclass(slots=True)
class _Signs:
    """What the cells of a document say of its kind."""

    titles: dict[str, float] = field(default_factory=dict)  # kind -> how clearly
    seen: set[str] = field(default_factory=set)  # names of _POINTS
    spoken_of: set[str] = field(default_factory=set)  # what sentences name beside an amount
    buyer: bool = False
    headed: bool = False  # a title of ours is a heading
    strange: str = ""  # the first heading of another kind
    other: str = ""  # the first other title
    words: int = 0
    prose: int = 0  # of them in cells of prose

    def add(self, page: PageRows, cell: Cell) -> None:
        """Note what one cell says."""
        self.words += len(cell.words)
        if len(cell.words) > _PROSE_WORDS:
            self._add_prose(page, cell)
            return
        self.seen.update(name for match in _labels_in(cell) if (name := _name_of(match)))
        party = party_label(cell)
        self.buyer |= party is not None and party.label == CUSTOMER and len(party.phrase) > _SHORT
        self._add_titles(page, cell)
        self.seen.update(_amount_labels(page, cell))

    def _add_prose(self, page: PageRows, cell: Cell) -> None:
        self.prose += len(cell.words)
        self.seen.update(_names_in_sentence(cell))
        self.spoken_of.update(_amounts_in_sentence(cell))
        if _is_top(page, cell) and (spoken := _TITLES.find(_beginning(cell))) and spoken[0].first == 0:
            self.titles.setdefault(spoken[0].label, _SPOKEN_TITLE)  # "Factura que emite Juan Pérez …"

    def _add_titles(self, page: PageRows, cell: Cell) -> None:
        if heading := _heading_of_other(page, cell):
            self.strange = self.strange or heading
        elif sum(len(word.text) > 1 for word in cell.words) > _TITLE_WORDS:  # letters alone are a spaced-out word
            pass
        elif others := [match.label for match in _OTHER_TITLES.find(cell) if not match.rest]:
            # "Pedido" above a number is no title
            self.other = self.other or (others[0] if _is_heading(page, cell) else "")
        else:
            for match in _TITLES.find(cell):
                self.headed |= _is_heading(page, cell)
                self.titles[match.label] = max(self.titles.get(match.label, 0.0), 2.0 if _is_top(page, cell) else 1.0)


def says_no_invoice(page: PageRows) -> bool:
    """Whether a page says of itself that it is none."""
    text = " ".join(fold(page.page.text).text.lower().replace("\u2019", "'").split())
    return _SAYS_NO_INVOICE.search(text) is not None


def _is_top(page: PageRows, cell: Cell) -> bool:
    return page.is_first and cell.middle < _TOP * max(page.page.height, 1.0)


def _names_in_sentence(cell: Cell) -> set[str]:
    """What labels before a number say in a sentence; most sentences of prose have no digit, and are not searched."""
    if not any(character.isdigit() for word in cell.words for character in word.text):
        return set()
    return {name for match in _labels_in(cell) if _is_followed_by_number(match) and (name := _name_of(match))}


def _amounts_in_sentence(cell: Cell) -> set[str]:
    """What a sentence says of its amounts: "to which VAT at 20% of £570.00 must be added"."""
    amounts = {index for index, word in enumerate(cell.words) if _AMOUNT.search(word.text)}
    if not amounts:
        return set()
    return _amounts_named(
        match
        for match in MONEY_LABELS.find(cell)
        if not amounts.isdisjoint(range(match.last, match.last + _WORDS_TO_AMOUNT))
    )


def _amounts_named(matches: Iterable[LabelMatch]) -> set[str]:
    """Under which names labels of amounts count."""
    readings = [reading for match in matches for reading in readings_of(match) if reading.strength >= _SURE]
    return {name for name, kinds in _AMOUNTS.items() for reading in readings if reading.kind in kinds}


def _beginning(cell: Cell) -> Cell:
    return replace(cell, words=cell.words[:_TITLE_WORDS])


def _is_followed_by_number(match: LabelMatch) -> bool:
    """Whether a label within a sentence stands before a number: "factura nº 23 de fecha 3 de mayo"."""
    return any(character.isdigit() for word in match.rest[:2] for character in word.text)


def _is_heading(page: PageRows, cell: Cell) -> bool:
    """Large at the top of the first page, or alone in one of its first rows."""
    is_large = cell.box.height > _LARGE * page.line_height
    is_first = cell.row < _FIRST_ROWS and len(page.rows[cell.row].cells) == 1
    return _is_top(page, cell) and (is_large or is_first)


def _heading_of_other(page: PageRows, cell: Cell) -> str:
    """Of what other kind a heading is; empty for none, and for "Contrato: 998" among the lines at the top of a bill."""
    is_large = cell.box.height > _LARGE * page.line_height
    is_sentence_end = cell.words[0].text[:1].islower() and cell.words[-1].text.endswith(".")
    if is_sentence_end or not _is_top(page, cell) or not (is_large or cell.row < _FIRST_ROWS):
        return ""
    found = next(iter(_HEADINGS.find(_beginning(cell))), None)
    if found is None or any(character.isalpha() for word in cell.words[: found.first] for character in word.text):
        return ""
    is_plain = not any(_NUMBER.fullmatch(word.text) for word in found.rest[:2])
    is_alone = len(page.rows[cell.row].cells) == 1 or (
        " " in found.phrase and all(word.text.isupper() for word in found.words)
    )
    return found.label if is_large or (is_plain and is_alone) else ""


def _labels_in(cell: Cell) -> list[LabelMatch]:
    return [*_NUMBERED.find(cell), *DATE_LABELS.find(cell)]


def _name_of(match: LabelMatch) -> str:
    """Under which name a label of the head counts: of the number, its date, or when it is due; empty for others."""
    if match.label == "title" and match.rest and _NUMBER.fullmatch(match.rest[0].text):
        return "id"  # "Fra. 88", "Here is invoice #3307"
    return match.label if match.label in ("id", "date", "due") else ""


def _amount_labels(page: PageRows, cell: Cell) -> set[str]:
    """What the labels in a cell beside or above an amount say of it."""
    found = _amounts_named(MONEY_LABELS.find(cell))
    if not found:
        return set()
    row = page.rows[cell.row]
    below = page.rows[cell.row + 1 : cell.row + 2]
    beside = any(numbers_in(other) for other in row.cells if other.box.left >= cell.box.left)
    under = any(
        numbers_in(other) for following in below for other in following.cells if other.box.shares_width(cell.box)
    )
    return found if beside or under else set()


def _kind(titles: Mapping[str, float], seen: AbstractSet[str], *, is_statement: bool, buyer: bool) -> Kind | None:
    if is_statement and not {"invoice", "credit_note"} & titles.keys():
        return "bank_statement"
    invoice = titles.get("invoice", 0.0)
    if titles.get("credit_note", 0.0) >= max(invoice, 1.0):
        return "credit_note"
    if invoice and buyer:
        return "invoice"
    is_paid_at_once = "paid" in seen and seen.isdisjoint({"due", "id", "account"})
    if is_paid_at_once or (titles.get("receipt", 0.0) >= max(invoice, 1.0) and "due" not in seen):
        return "receipt"
    return "invoice" if invoice else None
