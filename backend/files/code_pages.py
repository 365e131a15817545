"""Which code page a text without a mark is of, by the letters that its bytes would be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice

_WESTERN = (
    "áéíóúñü",  # Spanish, Catalan, Portuguese, French, Italian, German, Nordic, Dutch, Icelandic
    "àèéíïòóúüç·",
    "áâãàçéêíóôõúü",
    "àâçéèêëîïôùûüœ",
    "àèéìòù",
    "äöüß",
    "åäöæøé",
    "ëïéèöü",
    "áéíóúýðþæö",
)
_ALL_WESTERN = frozenset("".join(_WESTERN))
_CENTRAL = (
    "ąćęłńóśźż",
    "áčďéěíňóřšťúůýžäľĺôŕ",
    "áéíóöőúüű",
    "ăâîşţ",
    "čćđšž",
)  # Polish, Czech and Slovak, Hungarian, …
# The letters behind a blank are rare ones. Text of one code page is letters in another too, but unlikely ones.
_CYRILLIC = ("оеаинтсрвлкмдпуя бгзжйхцчшщъыьэюфё", "оаинвтерсілкумдп бгґєжзйїфхцчшщьюя")
_GREEK = ("αοιετσνηυρπκμλςόίέάήύώ γδθβχφξζψϊϋΐΰ",)
# The likely first: where two explain a text alike, the first does.
_CODE_PAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cp1252", _WESTERN), ("iso8859-15", _WESTERN), ("cp1250", _CENTRAL), ("iso8859-2", _CENTRAL),
    ("cp1251", _CYRILLIC), ("cp1253", _GREEK), ("iso8859-7", _GREEK), ("cp1254", ("çğıöşüâî",)),
    ("mac-roman", _WESTERN), ("cp850", _WESTERN), ("koi8-r", _CYRILLIC), ("cp866", _CYRILLIC),
    ("iso8859-5", _CYRILLIC), ("mac-cyrillic", _CYRILLIC),
)  # fmt: skip
_SIGNS = frozenset("¿¡ºª«»“”„\u2018\u2019\u2013—…€£§©®°·•№\u00a0\u00b4²³½¼\u00d7±")
_BETWEEN_LETTERS = frozenset("\u2019·\u2013—")
_MAX_PLACES = 4_000  # that are looked at
_RARE, _FOREIGN, _WRONG = 0.3, 1.0, 3.0  # costs: of a rare letter, one of another language, what no language writes
_MARGIN = 1.0  # that another page has to be better by than Windows-1252: one word may be of another language
_MAX_COST = 0.5  # a character: dearer is no text of any of these


def likely_code_pages(content: bytes) -> Iterator[str]:
    """The code pages (Python's names) that explain the bytes above 127, the best first, Windows-1252 at the end.

    A page is as good as the language is whose alphabet has most of the letters that the bytes are there.
    """
    places = Counter(
        (content[at - 1 : at] or b" ") + content[at : at + 2]
        for match in islice(re.finditer(rb"[\x80-\xff]", content), _MAX_PLACES)
        for at in (match.start(),)
    )
    total = sum(places.values())
    costs = {page: _cost(places, page, languages) for page, languages in _CODE_PAGES}
    costs["cp1252"] -= _MARGIN
    yield from (page for page in sorted(costs, key=costs.__getitem__) if costs[page] <= _MAX_COST * total)
    yield "cp1252"


def _cost(places: Counter[bytes], page: str, languages: tuple[str, ...]) -> float:
    """How badly the language explains them that does it best."""
    texts = [(place.decode(page, "replace"), times) for place, times in places.items()]
    is_latin = "a" < languages[0][0] < "ƀ"
    return min(
        sum(_cost_of(text, language, is_latin=is_latin) * times for text, times in texts) for language in languages
    )


def _cost_of(place: str, language: str, *, is_latin: bool) -> float:
    """The cost of a character, of the one before it and the one after it."""
    before, character, after = place[0], place[1], place[2:3]
    if not character.isalpha() or character in "ºª":
        if before.isalpha() and after.isalpha():
            return 0.0 if character in _BETWEEN_LETTERS else _WRONG
        return 0.0 if character in _SIGNS else _WRONG
    if before.islower() and character.isupper():
        return _WRONG
    neighbours = [one for one in (before, after) if one.isalpha()]
    if is_latin and len(neighbours) == 2 and not any(one.isascii() for one in neighbours):
        return _WRONG
    if not is_latin and any(one.isascii() for one in neighbours):
        return _WRONG
    common, _, rare = language.partition(" ")
    letter = character.lower()
    if letter in common:
        return 0.0
    return _RARE if letter in rare or (is_latin and letter in _ALL_WESTERN) else _FOREIGN
