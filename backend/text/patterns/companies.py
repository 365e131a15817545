"""Companies by their legal form: "Aceros del Norte, S.A.", "Acme Holdings Ltd". A tagger trained on news misses many.

The name is read backwards from the legal form: capitalised words, and the small words that join them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.text.patterns.pattern import CLEAR, END, Pattern, PatternMatch, matches

LEGAL_FORM = re.compile(
    r"[ ](?:"
    r"S\. ?(?:A\.(?: ?(?:U\.|L\.|(?:de )?C\. ?V\.))?|L\.(?: ?(?:U\.|L\.|P\.|N\. ?E\.))?|Coop\.|C\. ?P\.)"
    r"|S\. ?(?:r\. ?l\.|p\. ?A\.|de R\. ?L\.)"
    r"|(?:S\.?A\.?U|S\.?L\.?U|S\.?L\.?L|S\.?L\.?P|SA|SL|SAS|SARL|Srl|SRL|SpA|GmbH|Ltd|LTD|Limited|LLC|LLP|LP|PLC|plc"
    rf"|Inc|INC|Corp|CORP|Corporation|Lda|Ltda|N\. ?V\.|NV|B\. ?V\.|BV|A\. ?G\.|AG|Pty){END}\.?"
    r")(?![\w])"
)
_NAME_CHARACTERS = 90  # searched for the name before a legal form
_MAX_WORDS = 8  # of a name
_NAME = re.compile(r"[\"'(]?[^\W\d_a-z][\w&.'+\-/]*|\d[\w.\-]*|&")
_JOINERS = frozenset(re.split(" ", "de del la las los el y e i of and the for & do da dos di et und von van"))
# Words that introduce a company and are no part of its name, capitalised because they begin a line or a field.
_INTRODUCTIONS = frozenset(
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


def _find_companies(text: str) -> Iterator[PatternMatch]:
    for form in matches(LEGAL_FORM, text):
        start = _name_start(text, form.start())
        if start is not None:
            yield PatternMatch(start, form.end(), score=CLEAR)


def _name_start(text: str, end: int) -> int | None:
    """Where the name before a legal form begins; None where there is no name."""
    least = max(text.rfind("\n", max(0, end - _NAME_CHARACTERS), end) + 1, end - _NAME_CHARACTERS, 0)
    words: list[tuple[int, str]] = []  # from the last to the first
    stop = end
    while stop > least and len(words) < _MAX_WORDS:
        start = text.rfind(" ", least, stop) + 1 or least
        word = text[start:stop].rstrip(",") if not words else text[start:stop]
        is_end = _ENDS.search(word) is not None and _ABBREVIATED.fullmatch(word) is None
        is_joiner = word.lower() in _JOINERS and bool(words)
        if is_end or not (is_joiner or _NAME.fullmatch(word)):
            break
        words.append((start, word))
        stop = start - 1
    while words and (words[-1][1].lower().strip("\"'(") in _INTRODUCTIONS | _JOINERS or words[-1][1][0].isdigit()):
        words.pop()
    return words[-1][0] if words else None


PATTERNS = (Pattern("ORG", _find_companies, needs_digit=False),)
