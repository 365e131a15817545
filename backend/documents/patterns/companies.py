"""Companies by their legal form: "Aceros del Norte, S.A.", "Acme Holdings Ltd". A tagger trained on news misses many.

Read backwards from the form: capitalised words, and the small words that join them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.documents.patterns.pattern import CLEAR, END, Found, Kind

_FORM = re.compile(
    r"[ ](?:"
    r"S\. ?(?:A\.(?: ?(?:U\.|L\.|(?:de )?C\. ?V\.))?|L\.(?: ?(?:U\.|L\.|P\.|N\. ?E\.))?|Coop\.|C\. ?P\.)"
    r"|S\. ?(?:r\. ?l\.|p\. ?A\.|de R\. ?L\.)"
    r"|(?:S\.?A\.?U|S\.?L\.?U|S\.?L\.?L|S\.?L\.?P|SA|SL|SAS|SARL|Srl|SRL|SpA|GmbH|Ltd|LTD|Limited|LLC|LLP|LP|PLC|plc"
    rf"|Inc|INC|Corp|CORP|Corporation|Lda|Ltda|N\. ?V\.|NV|B\. ?V\.|BV|A\. ?G\.|AG|Pty){END}\.?"
    r")(?![\w])"
)
_BACK = 90  # characters before a form that may be its company's name
_WORDS = 8
_NAME = re.compile(r"[\"'(]?[^\W\d_a-z][\w&.'+\-/]*|\d[\w.\-]*|&")
_JOINERS = frozenset(re.split(" ", "de del la las los el y e i of and the for & do da dos di et und von van"))
# Capitalised because they begin a line or a field: they introduce a company and are no part of its name.
_LEADS = frozenset(
    word
    for words in (
        "factura invoice cliente client customer proveedor supplier vendor empresa company sociedad mercantil emisor",
        "receptor razon social entre between from to by por con with para a en de del la el los las the entidad",
        "compania titular beneficiario comprador vendedor arrendador arrendatario lessor lessee buyer seller lender",
        "borrower and y dear attn att estimados senores messrs bill ship nombre name domiciliada denominada chairman",
        "director president officer",
    )
    for word in words.split()
)
_ENDS = re.compile(r"[.:;,!?)\]»\"]$")
_ABBREVIATED = re.compile(r"(?:[^\W\d_]\.)+|(?:Hnos|Cia|Const|Bros|Co|St|Sta|Sto|Dr|Ind|Int|Mfg)\.", re.IGNORECASE)


def _companies(text: str) -> Iterator[Found]:
    for form in _FORM.finditer(text):
        start = _name_start(text, form.start())
        if start is not None:
            yield Found(start, form.end(), score=CLEAR)


def _name_start(text: str, end: int) -> int | None:
    """Where the name before a form begins; None where no name stands there."""
    least = max(text.rfind("\n", max(0, end - _BACK), end) + 1, end - _BACK, 0)
    taken: list[tuple[int, str]] = []
    stop = end
    while stop > least and len(taken) < _WORDS:
        start = text.rfind(" ", least, stop) + 1 or least
        said = text[start:stop].rstrip(",") if not taken else text[start:stop]
        ends = _ENDS.search(said) is not None and _ABBREVIATED.fullmatch(said) is None
        joins = said.lower() in _JOINERS and bool(taken)
        if ends or not (joins or _NAME.fullmatch(said)):
            break
        taken.append((start, said))
        stop = start - 1
    while taken and (taken[-1][1].lower().strip("\"'(") in _LEADS | _JOINERS or taken[-1][1][0].isdigit()):
        taken.pop()
    return taken[-1][0] if taken else None


KINDS = (Kind("ORG", _companies, needs_digit=False),)
