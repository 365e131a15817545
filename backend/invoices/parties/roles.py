"""Recognises the words that say whose name follows: labels of the vocabulary, and phrases that are made like them."""

from __future__ import annotations

import re
from dataclasses import replace

from backend.files.pages import Word
from backend.files.visual_rows import Cell
from backend.invoices.label_match import LabelMatch, Vocabulary, tokens_of
from backend.invoices.parties.labels import (
    ATTENTION,
    CUSTOMER,
    FORM_LABELS,
    GREETING,
    OTHER,
    PARTY_LABELS,
    VENDOR,
)
from backend.invoices.parties.names import is_name
from backend.text.patterns.folding import fold

_LABEL_WORDS = 7
_SHORT_TOKEN = 3  # letters
_WORDS_AFTER_SLASH, _WORDS_BEFORE_SLASH = 4, 2
_DIRECTED_WORDS = 4
_GREETING_WORDS = 9
_ARTICLES = frozenset(("el", "la", "los", "las", "the", "le", "les", "der", "die", "das", "o", "il", "els"))
# "Adressée à", "Charged to"; "Émise par", "Sent by". A participle stands before the preposition.
_TO = re.compile(
    r"(?!(?:correspond|relat|refer|period|valid|appl|gracia|thank|up|due|total|equal|ship|deliver|envia|entreg|livr"
    r"|lieferung|signed|subject|sujet|ready|welcome|bon|bien|saldo|desde|return|conforme|paid|pagad|abon|ingres|transf|uberweis|remit|write|send|reply|contact|pay|how|what|why))"
    r"[^\W\d_]+(?: [^\W\d_]+){0,2} (?:to|for|a|para|an|pour|fur|voor|aan)",
    re.IGNORECASE,
)
_BY = re.compile(
    r"(?:issued|billed|invoiced|charged|sent|supplied|sold|provided|rendered|raised|made out|emi\w+|envoye\w*|etabli\w*"
    r"|factur\w+|fatur\w+|fattur\w+|expedid\w|enviad\w|vendid\w|prestad\w|cobrad\w|girad\w|ausgestellt|erstellt"
    r"|geliefert|berechnet|vendu\w*|fourni\w*|lliurad\w|uitgegeven|verzonden)(?: [^\W\d_]+)? "
    r"(?:by|from|par|por|per|pel|pela|pelo|da|von|durch|door)",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"(?:(?:hello|hi|dear|hey|good (?:morning|afternoon|evening|day)|hola|buenos dias|buenas tardes|estimad[oa]s?"
    r"|apreciad[oa]s?|distinguid[oa]s?|querid[oa]s?|benvolgut|benvolguda|bon dia|sehr geehrte[rs]?|hallo|guten tag"
    r"|liebe[rs]?|bonjour|chere?|gentile|egregi[oa]|buongiorno|ciao|car[oa]|prezad[oa]|ola|geachte|beste)"
    r"(?![^\W_]))[ ,]+(?P<name>[^,:!;.?]+(?:\.[^,:!;?]{1,40})??)(?P<end>[,:!;]|$)",
    re.IGNORECASE,
)
_NOBODY = frozenset(
    re.split(
        " ",
        "customer customers client clients cliente clientes sir madam sirs damen herren kunde kundin kunden kundinnen "
        "senor senora senores amigo amiga all team friend member guest user valued socio socia usuario abonado "
        "monsieur madame messieurs todos there again klant mevrouw heer subscriber parents padres familia",
    )
)


def party_label(cell: Cell) -> LabelMatch | None:
    """The words at the beginning of a cell that say whose name follows; None where there are none."""
    return label_of(cell, PARTY_LABELS) or _directed(cell) or _greeting(cell)


def label_of(cell: Cell, vocabulary: Vocabulary) -> LabelMatch | None:
    """The label with which a cell begins: all of it, before a colon, or of several words."""
    head = cell if len(cell.words) <= _LABEL_WORDS else replace(cell, words=cell.words[:_LABEL_WORDS])
    match = next(iter(vocabulary.find(head)), None)
    if match is None or not _is_certain(match):
        return None
    match = _to_colon(replace(match, cell=cell))
    last, rest = match.words[-1].text, match.rest
    has_colon = last.endswith(":") or (bool(rest) and rest[0].text.startswith(":"))
    if match.first:
        # "Residente / Pagador:", "El obligado al pago:"
        is_after_slash = match.first <= _WORDS_BEFORE_SLASH and cell.words[match.first - 1].text.endswith("/")
        is_after_article = match.first == 1 and fold(cell.words[0].text).text.lower() in _ARTICLES
        return replace(match, first=0) if (is_after_slash or is_after_article) and has_colon else None
    alone = not any(any(map(str.isalnum, word.text)) for word in rest)
    if match.label == ATTENTION:
        return replace(match, label=CUSTOMER) if alone else None
    if alone or has_colon:
        return match
    if match.last == 1 or match.label == OTHER:
        return None
    begins = rest[0].text[:1]
    return match if begins.isupper() or (vocabulary is FORM_LABELS and begins.isdigit()) else None


def without_colon(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words after a label, without the colon that stands apart."""
    if words and not any(map(str.isalnum, words[0].text)):
        return words[1:]
    return words


def _to_colon(match: LabelMatch) -> LabelMatch:
    """The label with what a slash adds to it: "Paciente / alumno:"."""
    if match.rest and match.rest[0].text.startswith("/"):
        for last, word in enumerate(match.rest[:_WORDS_AFTER_SLASH], match.last + 1):
            if word.text.endswith(":"):
                return replace(match, last=last)
    return match


def _is_certain(match: LabelMatch) -> bool:
    """Whether a misread label cannot be another: "Invoice No" is not "Invoice to", "Factura" is not "Factura a"."""
    phrase = tokens_of(match.phrase)
    said, meant = "".join(tokens_of(" ".join(word.text for word in match.words))), "".join(phrase)
    return said == meant or len(phrase[-1]) > _SHORT_TOKEN or (len(said) == len(meant) and said.endswith(phrase[-1]))


def _directed(cell: Cell) -> LabelMatch | None:
    """A short phrase that ends with a preposition: all of the cell, or before a colon."""
    head = next((index for index, word in enumerate(cell.words, 1) if word.text.endswith(":")), None)
    if head is None and len(cell.words) > 1 and cell.words[1].text == ":":
        head = 1
    if head is None:
        head = len(cell.words)
    if not 1 < head <= _DIRECTED_WORDS:
        return None
    text = fold(" ".join(word.text for word in cell.words[:head])).text.strip(" :")
    label = VENDOR if _BY.fullmatch(text) else CUSTOMER if _TO.fullmatch(text) else ""
    return LabelMatch(label, text, cell, 0, head) if label else None


def _greeting(cell: Cell) -> LabelMatch | None:
    """The label of "Dear Ana Ruiz,": the words before the name, which ends the cell or has a comma after it."""
    words = [word.text for word in cell.words[:_GREETING_WORDS]]
    match = _GREETING.match(fold(" ".join(words)).text)
    if match is None or (not match["end"] and len(cell.words) > _GREETING_WORDS):
        return None
    name = [word.lower().strip(".") for word in match["name"].split()]
    if not name or not _NOBODY.isdisjoint(name) or not is_name(match["name"]):
        return None
    first = len(match.string[: match.start("name")].split())
    return LabelMatch(GREETING, "greeting", cell, 0, first)
