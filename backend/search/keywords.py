"""The terms of texts and queries: folded and stemmed words of Spanish and English, and identifiers as they stand.

Terms are letters and digits, nothing else, so no query syntax can be in them; all but those of days are lower-case:

- *words* without accents, then stemmed. Stemming after folding, on both sides, is what lets "facturacion" find
  "facturación". A word with ñ has two terms, "año" and "ano": who types the ñ ranks it first, who cannot finds it too.
- *codes*, whichever signs separate their parts: "FA-2024/0017" is fa20240017, and fa, 2024, 0017.
- *numbers* by value: "1.284,50", "1,284.50" and "1284.5" are 1284d5. Three digits after a lone separator are thousands.
- *dates* as year, month, day: "12 de marzo de 2024" and "12/03/2024" are 20240312, March 2024 is 202403, their prefix.
  Each date with a day has its month and day as well, D0312, which no code can be: "12 de marzo" and "March 12" find it.
- account and tax numbers that are written in groups, as one: "ES91 2100 0418 …" is es912100….
- of texts also the digits of a code, from six of them ("B12345674" is 12345674), the number of "ESB12345674" without
  its country, and capitals and digits with a blank between them as one: "4521 KLM" is 4521klm.

Codes, dates and numbers that only the patterns of `backend.text` recognise are added to the words they stand in.
An index of these terms must compare them as they are, with their ñ, and remember the `TERMS_VERSION` that made them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import version
from typing import Literal, NamedTuple

from snowballstemmer.english_stemmer import EnglishStemmer
from snowballstemmer.spanish_stemmer import SpanishStemmer

from backend.normal_forms import normalized
from backend.search.records import KeywordQuery
from backend.text.patterns import find_patterns
from backend.text.patterns.amounts import NUMBER, format_scaled, parse_number
from backend.text.patterns.folding import fold
from backend.text.patterns.pattern import compact, matches
from backend.text.word_lists import FUNCTION_WORDS

K1 = 0.9  # with B the defaults of Anserini; on TAT-QA MRR@10 0.594, with 1.2 and 0.75 it is 0.573
B = 0.4


def idf(chunks: int, matches: int) -> float:
    """How much a term says that ``matches`` of ``chunks`` have.

    Never below zero, as Lucene has it: with the textbook's form a term in half of a small store's chunks says nothing.
    """
    return math.log1p((chunks - matches + 0.5) / (matches + 0.5))


# Raised with each change of the rules; another release of the stemmer may have other stems.
TERMS_VERSION = f"2 snowball {version('snowballstemmer')}"

_Stems = Literal["es", "en", "both", "none"]

_MAX_TERM_CHARS = 64  # what is longer is cut
_MAX_QUERY_TERMS = 256  # a query longer than the model reads has no more distinct words
_CACHED_WORDS = 65_536  # spellings; some 20 MB when full
_MAX_QUERY_CHARS = 20_000  # of a query; what is behind them is not read
_MIN_PREFIX_CHARS = 4

_CHARACTER = r"[^\W_\u00aa\u00ba]"  # the ordinal signs stand after numbers: "1º" is 1
_UNSEEN = r"[\u0300-\u036f\u00ad\u200b-\u200f\u2060\ufeff]"  # combining accents, soft hyphens, joiners
_WORD = rf"{_CHARACTER}++(?:{_UNSEEN}++{_CHARACTER}*+)*+"
_HYPHEN = r"[-\u2010-\u2015\u2212]"
# Signs inside a code, a number or a compound; a hyphen may end a line. A comma only joins digits.
_SEPARATOR = rf"(?:[/._'\u2019&]|{_HYPHEN}(?:\r?\n)?|(?<=\d),(?=\d)|(?<=\d)[\u00a0\u202f](?=\d{{3}}(?!\d)))"
_TOKEN = re.compile(rf"{_WORD}(?:{_SEPARATOR}{_WORD})*+")
_PART = re.compile(_WORD)
_NUMBER = re.compile(NUMBER)
_SPACED_NUMBER = re.compile(r"\d \d{3}(?!\d)")
_JOINING = re.compile(rf"{_HYPHEN}|&")  # "e-mail" is also "email"
_DIGIT = re.compile(r"\d")
_YEAR = re.compile(r"(?:19|20)\d\d")

_GROUPED = ("IBAN", "CCC", "NIF", "NIE", "CIF", "VAT", "PHONE")  # types that are written with blanks between groups
_MIN_DATE_DIGITS = 6  # year and month
_DAY = re.compile(r"(?:\d{4}|-)-(\d\d)-(\d\d)")  # a date with month and day in ISO 8601
_DAY_TERM = re.compile(r"D\d{4}")
_DAY_OR_MONTH = re.compile(r"\d{1,2}(?:st|nd|rd|th|er|o)?")  # that stands for itself in a query only outside of a date
# The patterns take "may 5" and "5 ene" for dates where the month has a capital; next to a number few omit it otherwise.
_SMALL_WORD = re.compile(r"(?<=\d )[a-z]{3,10}(?![^\W_])|(?<![^\W_])[a-z]{3,10}(?=\.? \d)")
_MAX_GROUPS = 9  # of a code typed with blanks: an IBAN of 34 characters
_GROUP = re.compile(r"[a-z]{1,4}|(?=[a-z]*\d)[a-z\d]{1,10}")
_PARTED = re.compile(  # number plates, tax numbers; no amounts
    r"(?<![\w.,/-])(?:\d{3,10}[ \u00a0][A-Z]{1,3}|[A-Z]{1,4}[ \u00a0]\d{3,10}[A-Z]?)(?![\w-]|[.,/]\d)"
)
_COUNTRY = re.compile(r"es(?=(?:[a-z]\d{7}[a-z\d]|\d{8}[a-z])$)")  # before a Spanish tax number
_VALUE = re.compile(r"\d+d\d+")  # the term of a number with decimals
_INNER_DIGITS = re.compile(r"\d{6,}")
_MIN_IDENTIFIER_DIGITS = 3  # of a code with letters
_MIN_NUMBER_DIGITS = 5  # of a number among words: those with less are counts and years
_MAX_NAMING_CHARS = 1_000  # of a query that is looked through for identifiers
_MAX_IDENTIFIERS = 8  # of a query; a text with more is no question for one of them
_UNITS = frozenset(("euro", "euros", "eur", "usd", "gbp"))


class Token(NamedTuple):
    """A word, code, number or date with its place in the text, and the terms it is found by."""

    start: int
    end: int
    terms: tuple[str, ...]


def text_terms(text: str, language: str | None) -> list[str]:
    """The terms of a chunk in order, with repetitions; function words are left out.

    Thread-safe; linear in the text.

    Args:
        language: ISO 639-1 of the document; Spanish and English are stemmed, others folded only, None both.
    """
    if not _DIGIT.search(text):
        stems = _stems_of(language)
        return [term for token in _TOKEN.findall(text) for term in _text_token(token, stems)]
    return [term for token in tokens_of(text, language) for term in token.terms]


def query_terms(text: str) -> KeywordQuery:
    """The terms of a query, whose language is not known: stems of both languages, identifiers, and their prefixes.

    Function words count only where there is nothing else. At most 256 terms, of the first 20,000 characters.
    """
    text = text[:_MAX_QUERY_CHARS]
    words = _query_words(text)
    ignored = _FUNCTION_WORDS["both"]
    tokens = [word for word in words if _folded(text[word.start : word.end]) not in ignored] or words
    tokens = sorted([*tokens, *_recognised(text, set())])
    found = dict.fromkeys(term for token in tokens for term in token.terms)
    found |= dict.fromkeys(_joined_groups(text))
    found |= dict.fromkeys(domestic for term in found if (domestic := _COUNTRY.sub("", term)))
    kept = tuple(found)[:_MAX_QUERY_TERMS]
    return KeywordQuery(kept, tuple(term for term in kept if _begins_identifier(term)))


class Identifiers(NamedTuple):
    """The codes, dates and numbers of a query that a chunk may hold as they are."""

    wanted: tuple[KeywordQuery, ...]  # for each its spellings: a chunk with any of these terms holds it
    alone: bool  # the query has nothing else, so there is no meaning to be near to


_NO_IDENTIFIERS = Identifiers((), alone=False)


def query_identifiers(text: str) -> Identifiers:
    """What a query names exactly: codes with letters and digits, and numbers from five digits.

    Years, counts, amounts and dates are parts of questions; they are identifiers where a query has nothing else.
    """
    if len(text) > _MAX_NAMING_CHARS or not _DIGIT.search(text):
        return _NO_IDENTIFIERS
    dates = list(_dates(text))
    runs = [run for run in _runs(text) if not any(date.start <= run.start and run.end <= date.end for date in dates)]
    recognised = [token for token in _recognised(text, set()) if not _covers(runs, token)]
    whole = [*runs, *recognised]
    words = [Token(*match.span(), _query_token(match[0])) for match in _TOKEN.finditer(text)]
    single = [word for word in words if not _covers(whole, word) and _DIGIT.search("".join(word.terms))]
    rest = [word for word in words if not _covers([*whole, *single], word) and not _is_filling(text, word)]
    named = [(token, token.terms) for token in runs]
    named += [(word, word.terms[:1]) for word in (*recognised, *single)]  # without days of any year and parts of codes
    wanted = [
        KeywordQuery(tuple(dict.fromkeys(spelling for term in terms for spelling in (term, _COUNTRY.sub("", term)))))
        for token, terms in sorted(named)
        if not rest or _is_identifier(text[token.start : token.end], terms[0])
    ]
    if len(wanted) > _MAX_IDENTIFIERS:
        return _NO_IDENTIFIERS
    return Identifiers(tuple(dict.fromkeys(wanted)), alone=bool(wanted) and not rest)


def word_coverage(text: str, language: str | None, query: str) -> float:
    """Which part of a query's words and identifiers a text has, from 0 to 1; function words do not count."""
    words = [word.terms for word in _query_words(query[:_MAX_QUERY_CHARS])]
    ignored = _FUNCTION_WORDS["both"]
    words = [terms for terms in words if terms and ignored.isdisjoint(terms)]
    if not words:
        return 0.0
    there = frozenset(text_terms(text, language))

    def is_there(terms: tuple[str, ...]) -> bool:
        prefixes = tuple(filter(_begins_identifier, terms))
        return not there.isdisjoint(terms) or (bool(prefixes) and any(term.startswith(prefixes) for term in there))

    found = {terms: is_there(terms) for terms in dict.fromkeys(words)}
    return sum(found.values()) / len(found)


def matched_spans(text: str, query: KeywordQuery, language: str | None) -> list[tuple[int, int]]:
    """Where a chunk's text has terms of the query, by start, without overlaps; for highlights."""
    terms, prefixes, stems = frozenset(query.terms), query.prefixes, _stems_of(language)

    def is_asked(found: tuple[str, ...]) -> bool:
        return not terms.isdisjoint(found) or (bool(prefixes) and any(term.startswith(prefixes) for term in found))

    matches = [match.span() for match in _TOKEN.finditer(text) if is_asked(_text_token(match[0], stems))]
    if any(_DIGIT.search(term) for term in terms):  # else no date or number can be asked for
        found = (*_recognised(text, set()), *_parted(text))
        matches += [(token.start, token.end) for token in found if is_asked(token.terms)]
        matches.sort()
    spans: list[tuple[int, int]] = []
    for start, end in matches:
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans


def tokens_of(text: str, language: str | None) -> list[Token]:
    """The tokens of a text by start; a date or an account number may overlap the words it is made of."""
    stems = _stems_of(language)
    words = [Token(*match.span(), terms) for match in _TOKEN.finditer(text) if (terms := _text_token(match[0], stems))]
    known = {term for word in words for term in word.terms}
    recognised = list(_recognised(text, known))
    known |= {term for token in recognised for term in token.terms}
    return sorted([*words, *recognised, *(token for token in _parted(text) if token.terms[0] not in known)])


def _stems_of(language: str | None) -> _Stems:
    return "both" if language is None else "es" if language == "es" else "en" if language == "en" else "none"


def _text_token(token: str, stems: _Stems) -> tuple[str, ...]:
    """The terms of one match of `_TOKEN`; none of a function word."""
    return _cached_text_token(token, stems) if len(token) <= _MAX_TERM_CHARS else _terms(token, stems)


def _with_inner(terms: tuple[str, ...]) -> tuple[str, ...]:
    """The terms of a code, and those of its parts that people look for alone."""
    if not terms or not _INNER_DIGITS.search(terms[0]) or terms[0].isdigit() or _VALUE.fullmatch(terms[0]):
        return terms
    return tuple(dict.fromkeys((*terms, _COUNTRY.sub("", terms[0]), *_INNER_DIGITS.findall(terms[0]))))


@lru_cache(_CACHED_WORDS)
def _cached_text_token(token: str, stems: _Stems) -> tuple[str, ...]:
    return () if _folded(token) in _FUNCTION_WORDS[stems] else _with_inner(_terms(token, stems))


def _query_token(token: str) -> tuple[str, ...]:
    """The terms of both languages, and those of a language without a stemmer: words as they are."""
    return tuple(dict.fromkeys((*_terms(token, "both"), *_terms(token, "none"))))


def _query_words(text: str) -> list[Token]:
    """The words of a query; those of a date are found by the date too, and its day and month by nothing else."""
    dates = sorted(_dates(text))
    starts = [date.start for date in dates]
    words: list[Token] = []
    for match in _TOKEN.finditer(text):
        terms, index = _query_token(match[0]), bisect_right(starts, match.start()) - 1
        if index >= 0 and match.end() <= dates[index].end:
            told = (term for term in terms if not _DAY_OR_MONTH.fullmatch(term))
            terms = (*told, dates[index].terms[0])
        if terms:
            words.append(Token(*match.span(), terms))
    return words


def _terms(token: str, stems: _Stems) -> tuple[str, ...]:
    """The terms of one match of `_TOKEN`."""
    parts = _PART.findall(token)
    folded = [word for part in parts if (word := _folded(part))]
    if _DIGIT.search("".join(folded)):
        return tuple(dict.fromkeys(_code_terms(token, folded)))
    if len(folded) > 1 and all(len(word) == 1 for word in folded):
        return ("".join(folded)[:_MAX_TERM_CHARS],)  # S.L., U.S.A.
    if len(folded) > 1 and ("'" in token or "\u2019" in token):
        folded = [word for word in folded if len(word) > 1]  # company's, d'or
    elif len(folded) > 1 and _JOINING.search(token):
        folded.append("".join(folded))
    return tuple(dict.fromkeys(stem for word in folded for stem in _stemmed(word, stems)))


def _code_terms(token: str, parts: list[str]) -> Iterator[str]:
    """Of what has a digit: the value of a number; of anything else, all of it and its parts."""
    plain = fold(token).text.replace(" ", "'")  # a no-break space groups thousands, as the apostrophe does
    if len(parts) == 1:
        yield parts[0][:_MAX_TERM_CHARS]
    elif _NUMBER.fullmatch(plain):
        yield _number_term(plain)
    else:
        if sum(map(len, parts)) <= _MAX_TERM_CHARS:
            yield "".join(parts)
        yield from (part[:_MAX_TERM_CHARS] for part in parts)


def _number_term(digits: str) -> str:
    return format_scaled(parse_number(digits)).replace(".", "d")


def _stemmed(word: str, stems: _Stems) -> Iterator[str]:
    word = word[:_MAX_TERM_CHARS]
    for spelling in dict.fromkeys((word, word.replace("ñ", "n"))):
        if stems == "none":
            yield spelling
        # Stemmers hold the word they work on: one for each call, as several threads call this.
        if stems in ("es", "both"):
            yield SpanishStemmer().stemWord(spelling)
        if stems in ("en", "both"):
            yield EnglishStemmer().stemWord(spelling)


def _folded_uncached(word: str) -> str:
    """A word in lower case, without accents but with its ñ, letters and digits only."""
    composed = normalized("NFKC", normalized("NFKC", word).casefold())
    plain = "ñ".join(fold(part).text for part in composed.split("ñ"))
    return "".join(character for character in plain if character.isalnum())


_folded_cached = lru_cache(_CACHED_WORDS)(_folded_uncached)


def _folded(word: str) -> str:
    return _folded_cached(word) if len(word) <= _MAX_TERM_CHARS else _folded_uncached(word)


def _recognised(text: str, known: set[str]) -> Iterator[Token]:
    """Dates, numbers and ids that are written with blanks, unless their term is known already."""
    if not _DIGIT.search(text):
        return
    found = {
        (token.start, token.end, token.terms[0]): token
        for token in (*_dates(text), *_grouped_ids(text), *_spaced_numbers(text))
    }
    for token in found.values():
        if terms := tuple(term for term in token.terms if term not in known):
            yield token._replace(terms=terms)


def _dates(text: str) -> Iterator[Token]:
    """Dates: year, month and day where they have a year, and the month and day."""
    if not _DIGIT.search(text):
        return
    capitalized = _SMALL_WORD.sub(lambda match: match[0].capitalize(), text)
    for entity in find_patterns(capitalized, ("DATE",)):
        value = entity.value or ""
        digits, day = "".join(_DIGIT.findall(value)), _DAY.fullmatch(value)
        terms = [digits] if len(digits) >= _MIN_DATE_DIGITS else []
        if day:
            terms.append(f"D{day[1]}{day[2]}")
        if terms:
            yield Token(entity.start, entity.end, tuple(terms))


def _grouped_ids(text: str) -> Iterator[Token]:
    for entity in find_patterns(text, _GROUPED):
        if 0 < len(term := _folded(compact(entity.text))) <= _MAX_TERM_CHARS:
            yield Token(entity.start, entity.end, (term,))


def _spaced_numbers(text: str) -> Iterator[Token]:
    """Numbers whose thousands are set off by blanks: "1 284,50"."""
    folded = fold(text)
    if not _SPACED_NUMBER.search(folded.text):
        return
    for match in matches(_NUMBER, folded.text):
        if " " in match[0]:
            yield Token(*folded.span(*match.span()), (_number_term(match[0]),))


def _parted(text: str) -> Iterator[Token]:
    """Capitals and digits with a blank between them, as one: "4521 KLM"."""
    for match in matches(_PARTED, text):
        if (term := _folded(match[0])) and not _YEAR.search(match[0]):
            yield Token(*match.span(), _with_inner((term,)))


def _runs(text: str) -> Iterator[Token]:
    """Codes of a query that are typed with blanks, each with the terms of its groups joined.

    Up to two groups at either end may be words beside it: "IBAN ES91 2100 …".
    """
    words = [(match, _folded(match[0])) for match in re.finditer(r"\S+", text)]
    ignored = (_FUNCTION_WORDS["both"] | _UNITS) - {"es"}
    first = 0
    while first < len(words):
        last = first
        while last < len(words) and last - first < _MAX_GROUPS:
            folded = words[last][1]
            if not _GROUP.fullmatch(folded) or (folded in ignored and len(folded) > 1):
                break
            last += 1
        groups = [folded for _, folded in words[first:last]]
        terms = tuple(term for term in _joined_ends(groups) if _is_identifier(term, term))
        if terms and not all(_YEAR.fullmatch(group) for group in groups if _DIGIT.search(group)):
            yield Token(words[first][0].start(), words[last - 1][0].end(), terms)
        first = max(last, first + 1)


def _joined_ends(groups: list[str]) -> Iterator[str]:
    for first in range(3):
        for last in range(len(groups), len(groups) - 3, -1):
            if last - first > 1:
                yield "".join(groups[first:last])


def _covers(tokens: Iterable[Token], one: Token) -> bool:
    return any(token.start < one.end and one.start < token.end for token in tokens)


def _is_filling(text: str, word: Token) -> bool:
    folded = _folded(text[word.start : word.end])
    return folded in _FUNCTION_WORDS["both"] or folded in _UNITS


def _is_identifier(written: str, term: str) -> bool:
    """Whether a term with digits names one thing, also among the words of a question."""
    digits = len(_DIGIT.findall(term))
    if _DAY_TERM.fullmatch(term):
        return False
    if not term.isdigit():
        return not _VALUE.fullmatch(term) and digits >= _MIN_IDENTIFIER_DIGITS
    return digits >= _MIN_NUMBER_DIGITS and not re.search("[.,]", written)


def _joined_groups(text: str) -> Iterator[str]:
    """A code that is typed with blanks, "FA 2024 0017" or the first groups of an IBAN, as one term."""
    groups = [_folded(word) for word in text.split()]
    for first in range(len(groups)):
        joined = ""
        for group in groups[first : first + _MAX_GROUPS]:
            if not _GROUP.fullmatch(group):
                break
            joined += group
            if joined != group and _DIGIT.search(joined) and len(joined) > _MIN_PREFIX_CHARS:
                yield joined


def _begins_identifier(term: str) -> bool:
    """Whether longer identifiers may begin with a term; years and days stand for themselves in dates and codes."""
    if len(term) < _MIN_PREFIX_CHARS or _DAY_TERM.fullmatch(term):
        return False
    return _DIGIT.search(term) is not None and _YEAR.fullmatch(term) is None


def _folded_words(words: Iterable[str]) -> frozenset[str]:
    return frozenset(_folded(part) for word in words for part in word.split("'") if part)


_FUNCTION_WORDS = {
    "es": _folded_words(FUNCTION_WORDS["es"]),
    "en": _folded_words(FUNCTION_WORDS["en"]),
    "both": _folded_words(FUNCTION_WORDS["es"]) | _folded_words(FUNCTION_WORDS["en"]),
    "none": frozenset[str](),
}
