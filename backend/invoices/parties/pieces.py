"""Takes the lines of letterheads and address blocks apart: names, address lines, tax numbers, contact data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from stdnum import iban

from backend.files.pages import Word
from backend.invoices.parties.labels import NAME
from backend.invoices.parties.names import (
    CERTAIN,
    LEGAL_FORM,
    LIKELY,
    NONE,
    address_strength,
    has_legal_form,
    is_form_alone,
    is_name,
    is_place,
    legal_form_end,
    street_start,
)
from backend.invoices.parties.tax_ids import TaxId, is_tax_label, tax_ids_in
from backend.invoices.records import words_at
from backend.text.patterns.folding import fold


class Role(Enum):
    """What a piece of text is in a letterhead or an address block."""

    NAME = "name"
    ADDRESS = "address"
    TAX_ID = "tax id"
    CONTACT = "contact"  # telephone, e-mail, web site
    REGISTRY = "registry"  # what only sellers print: "Inscrita en el Registro Mercantil de …", an account
    HEADING = "heading"  # of the document: "FACTURA"
    FIELD = "field"  # another labelled datum, a date, an amount
    OTHER = "other"


class LinePart(NamedTuple):
    """A stretch of a line."""

    role: Role
    text: str  # as printed
    words: tuple[Word, ...]
    tax_id: TaxId | None = None
    form: str = ""  # what the label of its row in a form says: "name", "address", "town"

    @property
    def folded(self) -> str:
        """The text without accents."""
        return fold(self.text).text

    @property
    def strength(self) -> float:
        """How sure it is that this is part of an address, as `parties_address.address_strength` says."""
        return address_strength(self.folded) if self.role is Role.ADDRESS else 0.0


# The labels of an address separate, too: "… Domicilio social: Calle Mayor 3".
_SEPARATOR = re.compile(
    r"\s[*\u2013\u2014-]\s|\s?[·•●|;■▪¦]\s?|,\s(?:por (?:los|las|el|la)|la cantidad|el importe|en concepto)\s.*$"
    r"|\.?\s(?:(?:domicilio|direccion|dirección|sede|sitz|siege|siège|morada) ?(?:social|fiscal|legale)?\s?:"
    r"|(?:con )?domicilio (?:(?:social|fiscal) )?en"
    r"|,?\s(?:con|with|mit|avec)\s*$|[\w ]{0,60}\b(?:presenta|emite|expide|gira|factura) a(?:\s|$)"
    r"|registered (?:office|address)\s?:?|siege social\s?:?|sede (?:social|legale)\s?:?)\s?",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(rf"{_SEPARATOR.pattern}|\.\s(?=[A-Z])|[.,]?\s(?=con (?:domicilio|sede))", re.IGNORECASE)
_EMAIL = re.compile(
    r"(?:(?:e-?mail|correo|mail|courriel)\s?[.:]?\s*)?[\w.+%-]{1,64}\s?@\s?[\w-]+(?:\.[\w-]+)+", re.IGNORECASE
)
_WEB = re.compile(
    r"(?:(?:web|website|url|internet)\s?:\s*)?(?:https?://\S+|www\.\S+|(?<![\w.@-])[\w-]+(?:\.[\w-]+)*"
    r"\.(?:com|es|net|org|eu|cat|info|biz|co\.uk|ie|uk|de|fr|pt|it|example|io)(?![\w.]))",
    re.IGNORECASE,
)
_PHONE = re.compile(
    r"(?<![^\W_])(?:(?:tel[eé]?f?(?:ono|efono|éfono|ephone|efon|efone|éfon|èfon)?s?|te1|tfn?o?s?|tlfn?o?s?|telf"
    r"|movil|móvil|mobile|mob"
    r"|phone|ph|fax|handy|gsm|whatsapp|hp|contact (?:no|number)|telemovel|telemóvel|cell|portable"
    r"|atenci[oó]n al cliente"
    r"|aver[ií]as|customer (?:service|care)|careline"
    r"|hotline)(?![^\W\d_])[ .:/º°no]{0,6}(?=[+(\d ])(?:[+(]?\d[\d ().\-/+]{4,})"
    r"(?:\s?[/y,]\s?[+(]?\d[\d ().\-]{6,})?|\+\d{2,3}[ .()\-]?\d[\d ().\-]{6,}|\(\d{3}\) ?\d{3}-\d{4})",
    re.IGNORECASE,
)
_BARE_PHONE = re.compile(r"[T(M:]?\s?\+?[\d() .\-/]{8,60}$")
_REGISTRY = re.compile(
    r"(?<![^\W_])(?:inscrit[ao]|insc\.|reg(?:istro|\.)? ?merc|r\.? ?m\.? (?:de )?[A-Z]|registered in"
    r"|registered (?:company|charity|no|number)"
    r"|company (?:reg|no|number)|co\.? ?reg|reg\.? no|registration no|incorporated in|amtsgericht|registergericht"
    r"|handelsregister|HR[AB]\b"
    r"|gesch[aä]ftsf[uü]hrer|r\.?c\.?s\.? |siren\b|siret\b|capital social|au capital|kvk|matriculad[ao]"
    r"|conservat[oó]ria|rea\b"
    r"|registro delle imprese|cap\. soc|hoja [A-Z]{1,2}-|tomo \d|folio \d|nº reg)",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(r"(?:IBAN[ :.]{1,3})?([A-Z]{2}\d\d(?: ?[A-Z0-9]{1,4}){3,8})")
_HEADING = re.compile(
    r"\W*(?:(?:la |original |copia |tax |sales |commercial |pro-?forma |vat |cash |simplified |final |credit "
    r"|debit |e-|electronic )*"
    r"(?:factura|tax ?invoice|cash (?:sales?|bill)|invoice|receipt|recibo|ticket|tique|fra|bill|credit note"
    r"|credit memo|note|rechnung|gutschrift"
    r"|facture|avoir|fatura"
    r"|fattura|abono|albaran|presupuesto|proforma|pro forma|nota|statement|quotation|quote|estimate|liquidacion"
    r"|minuta|duplicado"
    r"|original|copia|copy|duplicate|nomina|extracto|quittung|kassenbon|bon|recu|scontrino|talao|factuur"
    r"|bestellung|lieferschein)"
    r"(?: (?:simplificada|rectificativa|completa|ordinaria|original|proforma|electronica|recapitulativa|de venta"
    r"|de compra|de abono|de luz"
    r"|de gas|de agua|de electricidad|de servicios?|de honorarios|de alquiler|de telefonia|recibo|receipt|invoice"
    r"|invoic[eé]|tax|iva|de caja|de venda"
    r"|original|copia|adjustment note|/|simplifiee|d avoir|acquittee|commerciale|immediata|elettronica|n|nr|no"
    r"|credito|electricidad|summary))*)\W*",
    re.IGNORECASE,
)
# Data of the document that stand near a party and are no part of it. Whole words.
_NUMBER = re.compile(r"\W*(?:n\.?[ºo]|nr)(?![^\W\d_])\.?", re.IGNORECASE)  # of an invoice; of a house, too
_FIELD = re.compile(
    r"\W*(?:num(?:ero)?(?![^\W\d_])|#"
    r"|(?:fecha|date|datum|factura|invoice|facture|rechnung|fatura|fattura|fra|receipt|recelpt|ticket|pedido"
    r"|orden|recibo|minuta"
    r"|albaran|delivery note|vencimiento|vto|due|venc|periodo|period|billing period|contrato|contract|cups|poliza"
    r"|policy"
    r"|cuenta|account|ref|referencia|reference|su ref|your ref|our ref|customer (?:id|no|number|code)|client (?:id"
    r"|no)|cod|codigo"
    r"|id|p\.?o\.? ?(?:number|no|#)|purchase|page|pagina|pag|hoja|seite|importe|subtotal|iva|vat|tax"
    r"|amount|balance"
    r"|forma|formas|payment|pago|terms|condicion|condiciones|iban|bic|swift|sort code|entidad|motivo|rectifica"
    r"|serie|hora"
    r"|cajero|cashier|pax|bizdate|sales ?(?:rep|associate|person)\w*|served|staff|trans|slip|s1ip"
    r"|pos no|terminal"
    r"|operador|items|description|descripcion|concepto|cantidad|qty|agente|tarifa|potencia|consumo|lectura"
    r"|resumen|summary"
    r"|venciment|bestelldatum|rechnungsdatum|[a-z]+datum|[a-z]+nummer|[a-z]+-nr|numero de|detalle|detail"
    r"|phone|reg c\d*|zahlung|client n|condizioni|pagamento|expediente|matricula|vehiculo"
    r"|habitacion|moneda|divisa|currency|wahrung|devise|valuta|leistungszeitraum|abrechnungszeitraum"
    r"|reserva|check-? ?(?:in|out)|entrada|salida|estancia|booking|gracias|thank|thanks|merci|danke|welcome"
    r"|bienvenid[oa]s?"
    r"|www|http|iban|domiciliacion|emision|kunden-?nr|kundennummer|bestellnummer|lieferdatum|zahlbar)(?![^\W\d_]))",
    re.IGNORECASE,
)
_AMBIGUOUS = re.compile(  # a label where it is short or has a value; a name may begin with it: "Mesa Valley Electric"
    r"\W*(?:mesa|table|order|time|data|bank|banco|caja|room|site|details|item|service|total|base)(?![^\W\d_])",
    re.IGNORECASE,
)
# Labels without their value.
_EMPTY_FIELD = re.compile(
    r"(?:telefono|telefon|tel|tlf|tfno|movil|email|e-mail|correo|fax|web|phone|mobile|cuota|precio|tipo|price|cant"
    r"|articulo|provincia|poblacion"
    r"|tarjeta|efectivo|cambio|cash|change|visa|mastercard|debit|credit|product|producto|uds)\W*",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"(?<!\d)\d{1,2}[/.-](?:\d{1,2}|[A-Za-z]{3,4})[/.-]\d{2,4}(?!\d)|(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)"
    r"|(?<!\d)\d{1,2}:\d{2}(?!\d)"
    r"|(?<!\d)\d{1,2}(?:st|nd|rd|th|\.|º)?(?: de)? (?:ene|jan|feb|fev|m[aä]r|abr|apr|avr|ma[iyj]|jun|jui|jul|ago"
    r"|aug|ao[uû]|sep|set|oct|okt|out|nov|dic|dec|dez|d[eé]c)"
    r"[a-zé]*\.?,?(?: del?)? \d{4}|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d{1,2}(?:st|nd"
    r"|rd|th)? ?, \d{4}(?!\d)",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"[€$£]\s?-?\d|\d[.,]\d{2}\s?(?:€|eur\b|usd|gbp)|^-?\d{1,3}(?:[.,]\d{3})*[.,]\d{2}$|\d\s?%", re.IGNORECASE
)


_POSTCODE_FIRST = re.compile(r"\s*(?:[A-Z]{1,2}[., -]{0,2})?\d{4,5}\b|\s*[A-Z]{1,2}\d")
_FORM_NEXT = re.compile(rf" {LEGAL_FORM.pattern}")  # "Ecosway.com Sdn Bhd" is a name
_PUNCTUATION = " ,;:-"
_LONGEST_LINE = 600  # characters; longer ones are prose, or made to take long
_PHONE_DIGITS = 8
_LABEL_WORDS = 2


def pieces_of(words: Sequence[Word], form: str = "") -> list[LinePart]:
    """The pieces of a line from left to right.

    Args:
        words: of the line, without the label before it.
        form: what that label says, from `parties_labels`: "name", "address" or "town"; empty where there is none.
    """
    if sum(len(word.text) + 1 for word in words) > _LONGEST_LINE:
        return []
    line = _Line.of(words)
    tax_ids = {tax_id.start: tax_id for tax_id in tax_ids_in(line.text)}
    pieces = []
    for start, end, role in _stretches(line.text, list(tax_ids.values())):
        tax_id = tax_ids.get(start) if role is Role.TAX_ID else None
        if tax_id is not None:
            pieces.append(LinePart(Role.TAX_ID, *line.part(tax_id.value_start, end), tax_id))
            continue
        for first, last in _name_and_address(line.text, start, end) if role is None else [(start, end)]:
            text, inside = line.part(first, last)
            if any(map(str.isalnum, text)):
                of_form = (Role.NAME if form == NAME else Role.ADDRESS) if form else None
                pieces.append(LinePart(role or of_form or _role(line.text[first:last]), text, inside, None, form))
    return pieces


class _Line(NamedTuple):
    """Words with a folded text of the same length as the printed one."""

    text: str
    printed: str
    words: tuple[Word, ...]

    @classmethod
    def of(cls, words: Sequence[Word]) -> _Line:
        printed = " ".join(word.text for word in words)
        folded = fold(printed)
        return cls(folded.text if folded.offsets is None else printed, printed, tuple(words))

    def part(self, start: int, end: int) -> tuple[str, tuple[Word, ...]]:
        """A stretch as printed, without punctuation around it, and the words it touches."""
        text = self.printed[start:end]
        start, end = end - len(text.lstrip(_PUNCTUATION)), start + len(text.rstrip(_PUNCTUATION))
        return self.printed[start:end], words_at(self.words, start, end)


def _stretches(text: str, tax_ids: Sequence[TaxId]) -> Iterator[tuple[int, int, Role | None]]:
    """Where a line is cut: numbers and contact data with their roles, and what is left between them and separators."""
    marked = [(tax_id.start, tax_id.end, Role.TAX_ID) for tax_id in tax_ids]
    contacts = [match.span() for regex in (_EMAIL, _WEB, _PHONE) for match in regex.finditer(text)]
    marked.extend((*span, Role.CONTACT) for span in contacts if not _FORM_NEXT.match(text, span[1]))
    for registry in _REGISTRY.finditer(text):
        start, stop = registry.start(), _sentence_end(text, registry.end())
        marked.append((start, min([stop, *(mark[0] for mark in marked if mark[0] > start)]), Role.REGISTRY))
    position = 0
    for start, end, role in sorted(marked, key=lambda mark: mark[:2]):
        if start < position:
            continue
        yield from _separated(text, position, start)
        yield start, end, role
        position = end
    yield from _separated(text, position, len(text))


def _separated(text: str, start: int, end: int) -> Iterator[tuple[int, int, None]]:
    for match in _SEPARATOR.finditer(text, start, end):
        yield start, match.start(), None
        start = match.end()
    yield start, end, None


def _sentence_end(text: str, start: int) -> int:
    end = _SENTENCE_END.search(text, start)
    return end.start() if end else len(text)


def _name_and_address(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Cuts "Aceros del Norte, S.A. Calle Mayor 3" and "Ana Gil, Calle Mayor 3" after the name."""
    stretch = text[start:end]
    cut = legal_form_end(stretch)
    if cut is None or address_strength(stretch[cut:]) == NONE:
        cut = street_start(stretch) or _name_end(stretch)
        if cut is not None and not is_name(stretch[:cut].strip(" ,-")):
            cut = None
    return [(start, end)] if not cut else [(start, start + cut), (start + cut, end)]


def _name_end(stretch: str) -> int | None:
    """Where a whole address begins after the first comma of a stretch, and no building or town stands before it."""
    head, comma, rest = stretch.partition(",")
    if not comma or address_strength(rest) < CERTAIN or is_place(head) or _POSTCODE_FIRST.match(rest):
        return None
    return len(head) + 1


def _role(text: str) -> Role:
    text = text.strip(_PUNCTUATION)
    if _HEADING.fullmatch(text):
        return Role.HEADING
    if (account := _ACCOUNT.fullmatch(text)) and iban.is_valid(account[1]):
        return Role.REGISTRY
    if is_tax_label(text) or _EMPTY_FIELD.fullmatch(text):
        return Role.FIELD
    if is_form_alone(text) or (has_legal_form(text) and is_name(text)):
        return Role.NAME
    strength = address_strength(text)
    if _DATE.search(text) or (_AMOUNT.search(text) and strength < CERTAIN):
        return Role.FIELD
    if _BARE_PHONE.fullmatch(text) and sum(map(str.isdigit, text)) >= _PHONE_DIGITS:
        return Role.CONTACT
    if (_FIELD.match(text) and (strength < CERTAIN or ":" in text)) or (_NUMBER.match(text) and strength < LIKELY):
        return Role.FIELD
    if _AMBIGUOUS.match(text) and (len(text.split()) <= _LABEL_WORDS or any(c.isdigit() or c == ":" for c in text)):
        return Role.FIELD
    if strength:
        return Role.ADDRESS
    return Role.NAME if is_name(text) else Role.OTHER
