"""Reads files of plain text: their encoding, by what its letters would be, and nothing that is not text."""

from __future__ import annotations

import codecs
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from backend.errors import TooLarge
from backend.files.limits import FileLimits
from backend.files.pages import Box, Document, Page, Source, Word
from backend.files.records import LayerStats, TextLayer
from backend.reasons import because

_BOMS: tuple[tuple[bytes, str], ...] = (  # UTF-32's begin with those of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")  # without a BOM: told by their NULs
_WIDE_MARKS = (*_BOMS[1:], *(("<".encode(encoding), encoding) for encoding in _WIDE))  # or markup that begins in these
# By Python's names: those of the web (https://encoding.spec.whatwg.org/#names-and-labels) and the wide ones. Python has
# others that are no text (rot13, unicode_escape), fail (undefined) or take quadratic time (punycode).
_ENCODINGS = frozenset(
    {"ascii", "utf-7", "utf-8", *_WIDE, "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp866", "cp874"}
    | {f"iso8859-{part}" for part in range(1, 17)}
    | {f"cp{page}" for page in (850, *range(1250, 1259))}
    | {"gbk", "gb2312", "gb18030", "big5", "euc_jp", "iso2022_jp", "shift_jis", "cp932", "euc_kr", "cp949"}
)
_SAMPLE_BYTES = 4096
# Formats that are text to a decoder, and to nobody else.
_PROGRAMS_TEXT = (b"{\\rtf", b"%!PS", b"%PDF")
_CONTROLS = {code: " " for code in (*range(9), *range(14, 32), *range(127, 160)) if code != 0x85}
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # without escape, which colours logs
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAX_CONTROLS = 0.001  # of the characters; a form feed and the like are blanks
_DECLARED = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w-]{2,40})|<\?xml[^>]{0,100}?encoding=[\"']([\w-]{2,40})"
)
_ROW_NAMES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".log"})
# Row: the first letter, column: the second, a to z, accents off. A digit is 9 + log2 of the share of the second after
# the first, rounded, at least 0: the mean of Spanish, English, Catalan, Galician, Basque, Portuguese, French, German,
# Italian, Swedish, Dutch and Romanian. tests/files/test_letter_bigrams.py recomputes it from public texts.
TABLE = (
    "33451342414646230656430112", "73007001620510500632500030", "70306006604401700314500000",
    "60018000600100600321500000", "42443242403547221765331203", "60016520700400700625500010",
    "61027033600404610644600010", "70007000601313600414400020", "52545340233547531466240203",
    "70036220305305710120620003", "60006013603433700445520020", "71147121611620600044520030",
    "74017000600042650021400000", "61466352502104500057420022", "33443331302557440664532101",
    "70007003500500740733500000", "00000000200000000000910000", "72347131602244611445421011",
    "61516113604331641057510000", "70007015600200600644501114", "53436231502557140655021203",
    "70007000700100600310210000", "70127005700203600131300010", "61417002700000560005420220",
    "62546241402455640464200020", "72007000704010500004603013",
)  # fmt: skip
_FIRST, _LAST = "a", "z"
_SLICE_CHARS = 2**17  # at once: what counts or looks at each holds Python's lock, .3 s for the two million of one page
_MAX_CHARACTER_BYTES = 4  # in any encoding


def decode_text(content: bytes) -> str | None:
    """The text of a file, or None where it is not text.

    In this order: a byte order mark; the encoding that HTML or XML declares; UTF-8; UTF-16 or UTF-32 by their NULs;
    where no byte is a control character, the code page whose letters it has. Line ends become line
    feeds, stray control characters blanks.
    """
    if content.startswith(_PROGRAMS_TEXT):
        return None
    text = _decoded(content)
    if text is None or any(_SURROGATE.search(part) for part in _slices(text)):
        return None
    if len(_CONTROL.findall(text[: 2**20])) > _MAX_CONTROLS * min(len(text), 2**20):
        return None
    return "".join(part.translate(_CONTROLS) for part in _slices(text.replace("\r\n", "\n").replace("\r", "\n")))


def _slices(text: str) -> Iterator[str]:
    return (text[start : start + _SLICE_CHARS] for start in range(0, len(text), _SLICE_CHARS))


def read_text_file(content: bytes, limits: FileLimits) -> str | None:
    """The text of a file as it stands; None where it is not text.

    Raises: TooLarge for more characters than LIMIT_DOCUMENT_CHARS.
    """
    _check_characters("characters of the file, at least", len(content) // _MAX_CHARACTER_BYTES, limits)
    text = decode_text(content)
    if text is not None:
        _check_characters("characters of the file", len(text), limits)
    return text


def _check_characters(what: str, characters: int, limits: FileLimits) -> None:
    if characters > limits.document_chars:
        raise TooLarge(
            what, characters, limits.document_chars, "LIMIT_DOCUMENT_CHARS", advice="Split the file.", param="file"
        )


def has_rows(name: str) -> bool:
    """Whether each line of a file is a record, by its name."""
    return _suffix(name) in _ROW_NAMES


def _suffix(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).suffix.lower()


def _decoded(content: bytes) -> str | None:
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return decoded_as(content[len(bom) :], encoding)
    declared = _DECLARED.search(content[:1024])
    if declared is not None:
        name = (declared[1] or declared[2]).decode("ascii")
        if (text := decoded_as(content, name)) is not None:
            return text
    if b"\x00" in content[:_SAMPLE_BYTES]:
        return next((text for encoding in _WIDE if (text := _wide(content, encoding)) is not None), None)
    if (text := decoded_as(content, "utf-8")) is not None:
        return text
    if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", content):
        return None
    return next((text for page in likely_code_pages(content) if (text := decoded_as(content, page)) is not None), None)


def _wide(content: bytes, encoding: str) -> str | None:
    """The text, where few of its first characters are ideograms, which chance makes of anything else."""
    text = decoded_as(content, encoding)
    if text is None:
        return None
    sample = text[:500]
    likely = sum(
        (character.isprintable() and not 0x3000 <= ord(character) < 0x10000) or character in "\r\n\t"
        for character in sample
    )
    return text if sample and likely >= 0.9 * len(sample) else None


def narrowed(content: bytes) -> bytes:
    """The same in UTF-8 where it is UTF-16 or UTF-32: by its mark, or as markup that begins in these."""
    for mark, encoding in _WIDE_MARKS:
        if content.startswith(mark):
            return content.decode(encoding, "replace").removeprefix("\ufeff").encode("utf-8", "replace")
    return content


def decoded_as(content: bytes, encoding: str, errors: str = "strict") -> str | None:
    """The text in an encoding that the web, mail or a program names; None where that is no text's, or it is another."""
    try:
        return str(content, encoding, errors) if codecs.lookup(encoding).name in _ENCODINGS else None
    except (LookupError, UnicodeError, ValueError):
        return None


# In points of a 12-point typewriter face: a column is 10 to the inch, a line 6 to the inch.
_COLUMN, _LINE, _HEIGHT = 7.2, 12.0, 10.0
_TABULATOR = 8  # columns
_WORD = re.compile(r"\S+")


def document_of_text(text: str, most_words: int = sys.maxsize) -> Document:
    """One page that holds the text as it stands; words keep their offsets. Two spaces or a tabulator part columns.

    Args:
        most_words: of the page; further ones stand in its text alone.
    """
    words: list[Word] = []
    block, was_blank, offset = 0, True, 0
    for index, line in enumerate(text.split("\n")):
        place = column = 0  # of the line: up to where it is read, and how wide that is
        for match in islice(_WORD.finditer(line), most_words - len(words)):
            block, was_blank = block + (was_blank and bool(words)), False
            (start, stop), top = match.span(), index * _LINE
            column = _column(line[place:start], column)
            box = Box(column * _COLUMN, top, (column + stop - start) * _COLUMN, top + _HEIGHT)
            words.append(Word(match.group(), box, 1.0, offset + start, offset + stop, index, block))
            place, column = stop, column + stop - start
        was_blank = was_blank or not place
        offset += len(line) + 1
        if len(words) >= most_words:
            break
    width = max((word.box.right for word in words), default=0.0)
    height = _LINE * (text.count("\n") + 1)
    page = Page(1, width, height, 72.0, 0, text, tuple(words), "text_layer", "a text", "text")
    return Document("text", (page,), 1, sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _column(blanks: str, column: int) -> int:
    """Where ``blanks`` end that begin at ``column``."""
    *tabulated, rest = blanks.split("\t")
    for part in tabulated:
        column = (column + len(part)) // _TABULATOR * _TABULATOR + _TABULATOR
    return column + len(rest)


class BigramScore(NamedTuple):
    """The mean table digit of a text's bigrams (about 5.4 in a language, 2.4 by chance), and how many there are."""

    mean: float
    total: int


def score_bigrams(text: str) -> BigramScore:
    """How common the letter bigrams of a text are. Letters of other scripts are ignored."""
    folds = {ord(character): _folded(character) for character in set(text)}  # some eighty, of thousands of characters
    plain = text.translate(folds)
    total = count = 0
    pairs = Counter[tuple[str, str]]()
    for start in range(0, len(plain), _SLICE_CHARS):
        pairs.update(pairwise(plain[start : start + _SLICE_CHARS + 1]))
    for (first, second), times in pairs.items():
        if _FIRST <= first <= _LAST and _FIRST <= second <= _LAST:
            total += int(TABLE[ord(first) - 97][ord(second) - 97]) * times
            count += times
    return BigramScore(total / count if count else 0.0, count)


def _folded(character: str) -> str:
    """Lower case without accents; empty for a lone accent."""
    decomposed = unicodedata.normalize("NFKD", character.lower())
    return "".join(mark for mark in decomposed if not unicodedata.combining(mark))


RequestedSource = Literal["auto", "text_layer", "ocr"]

_FEW_CHARACTERS = 10  # as in Apache Tika; fewer are a page number or a stamp
_STAMPED = 100  # visible characters on a scan: fewer are a header added by a scanner or a court
_SCAN_RATIO = 0.5  # of the page covered by images
_UNMAPPED_RATIO = 0.1  # of glyphs; bullets and arrows of symbol fonts stay below
_REPLACED_RATIO = 0.05  # of characters
_ODD_RATIO = 0.3  # of characters that are not letters, digits or punctuation
MIN_BIGRAM_SCORE = 4.1  # between the worst language, 4.4, and the best scramble, 3.8 (letter_bigrams)
_MIN_BIGRAMS = 60  # fewer decide nothing: codes, abbreviations
_LATIN_SHARE = 0.5  # of the letters, for the bigrams to be representative
_SINGLE_RATIO = 0.6  # of words with letters; of 227 dev pages none has over 0.14, letter-spaced ones have 0.9
_MIN_WORDS = 20  # with letters; fewer are the marks of a drawing
_ODD_CATEGORIES = frozenset({"So", "Sk", "Cc", "Co", "Cn", "Cs"})  # symbols, lone accents, private use, unassigned


@dataclass(frozen=True, slots=True)
class ChosenSource:
    """Where a page's text comes from, and why."""

    source: Source
    why: str  # one sentence


@dataclass(frozen=True, slots=True)
class TextQuality:
    """How much a string looks like text of a language."""

    bigrams: BigramScore
    latin_share: float  # of its letters
    odd_ratio: float  # of its characters


def choose_source(layer: TextLayer, requested: RequestedSource = "auto") -> ChosenSource:
    """The page's own text where it can be trusted, else OCR. An explicit request is always followed.

    A page that was set here has nothing to recognise, whatever was asked for.
    The invisible text that earlier OCR left over a scan is checked like any other.
    """
    if layer.stats.is_set:
        return ChosenSource("text_layer", because("set_here"))
    if requested != "auto":
        return ChosenSource(requested, because("asked_for"))
    return _by_content(layer.stats) or _by_glyphs(layer.stats) or _by_language(layer)


def text_quality(text: str) -> TextQuality:
    """Statistics of a text in any script."""
    counts = Counter(text)  # few distinct characters, whatever the length
    inked = sum(count for character, count in counts.items() if not character.isspace())
    letters = sum(count for character, count in counts.items() if character.isalpha())
    latin = sum(count for character, count in counts.items() if character.isalpha() and _is_latin(character))
    odd = sum(count for character, count in counts.items() if _is_odd(character))
    return TextQuality(score_bigrams(text), latin / max(letters, 1), odd / max(inked, 1))


def _by_content(stats: LayerStats) -> ChosenSource | None:
    """Decides by what is drawn on the page."""
    if not stats.objects:
        return ChosenSource("text_layer", because("blank"))
    if not stats.characters:
        return ChosenSource("ocr", because("no_text"))
    if stats.characters < _FEW_CHARACTERS and stats.drawings:
        return ChosenSource("ocr", because("little_text", characters=stats.characters))
    visible = stats.characters - stats.invisible
    if stats.image_ratio >= _SCAN_RATIO and visible < _STAMPED and stats.invisible < _STAMPED:
        return ChosenSource("ocr", because("scan", share=stats.image_ratio, characters=stats.characters))
    return None


def _by_glyphs(stats: LayerStats) -> ChosenSource | None:
    """Decides by whether its glyphs are mapped to characters."""
    if stats.unmapped_ratio >= _UNMAPPED_RATIO:
        return ChosenSource("ocr", because("unmapped_glyphs", share=stats.unmapped_ratio))
    replaced = stats.replaced / max(stats.characters, 1)
    if replaced >= _REPLACED_RATIO:
        return ChosenSource("ocr", because("replaced_characters", share=replaced))
    return None


def _by_language(layer: TextLayer) -> ChosenSource:
    """Decides by whether its characters look like text."""
    quality = text_quality(layer.text)
    if quality.odd_ratio > _ODD_RATIO:
        return ChosenSource("ocr", because("odd_characters", share=quality.odd_ratio))
    single_ratio = _single_ratio(layer.text)
    if single_ratio > _SINGLE_RATIO:
        return ChosenSource("ocr", because("torn_words", share=single_ratio))
    is_decisive = quality.bigrams.total >= _MIN_BIGRAMS and quality.latin_share >= _LATIN_SHARE
    if is_decisive and quality.bigrams.mean < MIN_BIGRAM_SCORE:
        return ChosenSource("ocr", because("no_language"))
    stats = layer.stats
    origin = "earlier_ocr" if stats.invisible > stats.characters / 2 else "own_text"
    return ChosenSource("text_layer", because(origin, characters=stats.characters))


def _single_ratio(text: str) -> float:
    """The share of single letters among the words with letters; 0 of few words, and in scripts without upper case."""
    words = [word for word in text.split() if word.lower() != word.upper()]
    return sum(len(word) == 1 for word in words) / len(words) if len(words) >= _MIN_WORDS else 0.0


def _is_latin(letter: str) -> bool:
    return letter < "\u0250" or "\u1e00" <= letter < "\u1f00"


def _is_odd(character: str) -> bool:
    return not character.isspace() and unicodedata.category(character) in _ODD_CATEGORIES


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
    is_latin = "a" < languages[0][0] < "ƀ"
    cost, letters = 0.0, Counter[str]()
    for place, times in places.items():
        text = place.decode(page, "replace")
        if (wrong := _cost_of_place(text, is_latin=is_latin)) is None:
            letters[text[1].lower()] += times
        else:
            cost += wrong * times
    return cost + min(
        sum(_cost_of_letter(letter, language, is_latin=is_latin) * times for letter, times in letters.items())
        for language in languages
    )


def _cost_of_place(place: str, *, is_latin: bool) -> float | None:
    """The cost of a character between two others in any language; None for a letter that may stand there."""
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
    return None


def _cost_of_letter(letter: str, language: str, *, is_latin: bool) -> float:
    common, _, rare = language.partition(" ")
    if letter in common:
        return 0.0
    return _RARE if letter in rare or (is_latin and letter in _ALL_WESTERN) else _FOREIGN
