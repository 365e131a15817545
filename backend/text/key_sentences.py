"""Key sentences of a text: an extractive summary, selected by the sentences' vectors."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.text.diverse_selection import min_max_scaled, select_diverse, unit_vectors
from backend.text.sentences import CLOSERS, FOREIGN_STOPS, STOPS

# An opener of several words has "_" between them.
_SPANISH = """
a_continuación a_este_respecto a_pesar_de_ello a_su_vez además adicionalmente ahora_bien ahí al_mismo_tiempo
al_respecto allí ambas ambos ante_ello análogamente aparte_de_esto aquel aquella aquellas aquello aquellos aquí
asimismo así aun_así con_ello con_eso con_este_fin consecuentemente consiguientemente de_ahí de_ahí_que de_ese_modo
de_esta_forma de_esta_manera de_este_modo de_forma_similar de_hecho de_igual_forma de_igual_manera de_igual_modo
de_la_misma_forma de_la_misma_manera del_mismo_modo dicha dichas dicho dichos el_cual el_mismo ella ellas ello ellos
empero en_cambio en_consecuencia en_definitiva en_ese_caso en_este_caso en_este_sentido en_otras_palabras
en_segundo_lugar en_tal_caso en_tercer_lugar entonces es_decir esa esas ese eso esos esta estas este esto estos
finalmente igualmente la_cual la_misma las_mismas les lo_anterior lo_cual lo_mismo los_mismos luego mientras_tanto
no_obstante o_sea para_ello para_eso pero por_consiguiente por_ejemplo por_el_contrario por_ello por_eso
por_esta_razón por_estas_razones por_este_motivo por_lo_cual por_lo_que por_lo_tanto por_otra por_otra_parte por_otro
por_otro_lado por_su_parte por_tanto por_último posteriormente pues pues_bien referida referidas referido referidos
sin_embargo sino su sus tal tal_como tales también tampoco tanto_es_así y él
"""

_ENGLISH = """
accordingly additionally afterwards all_of_this also alternatively and as_a_consequence as_a_result as_such
at_that_time at_the_same_time because_of_this besides both but by_contrast by_then consequently conversely
despite_this either even_so finally for_example for_instance for_that_reason for_these_reasons for_this_reason
furthermore he he's hence her here his however if_so in_addition in_both_cases in_contrast in_either_case in_fact
in_other_words in_particular in_such_a_case in_such_cases in_that_case in_the_latter_case in_this_case in_this_context
in_this_regard in_this_respect in_this_way in_turn indeed instead it it's its lastly later latter likewise meanwhile
moreover namely neither nevertheless nonetheless nor notwithstanding_this on_the_contrary on_the_one_hand on_the_other
on_the_other_hand or otherwise secondly she she's similarly so some_of_them specifically still subsequently such that
that's the_former the_latter the_other the_others the_same their them then thence thereafter thereby therefore these
they they're thirdly this those though thus to_that_end to_this_end too under_these_circumstances what_is_more which
with_this yet
"""

# What may stand before a pronoun at the beginning: "Según él", "A pesar de ello", "Because of them", "Most of them".
_BEFORE_PRONOUNS = {
    "es": """
a además aparte acerca alguna algunas alguno algunos ante antes bajo buena cada causa como con conforme consecuencia
contra contrario cuatro cualquiera cuanto de debido dentro desde después detrás dos durante efecto ejemplo en encima
entre excepto fin fruto frente fuera gracias hacia hasta incluso junto la las lo los lejos luego mayoría mediante
mitad muchas muchos más ninguna ninguno para parte pesar pese por prueba raíz respecto resto salvo según si sin sobre
solo sólo tanto tenor toda todas todo todos tras tres una uno uso varias varios vez virtud vista
""",
    "en": """
about above according after against all along among and any apart around as aside at because before behind below
beside besides between beyond both by concerning contrary despite due during each either even every except few
following for from given half if in inside instead into like many more most near neither next none of on one only out
over part per prior regarding several since some subject such than thanks three through throughout to together toward
towards two under unlike until up upon via view with within without
""",
}
_PRONOUNS = {
    "es": """
él ella ellas ello ellos esto eso aquello este esta estos estas ese esa esos esas aquel aquella aquellos aquellas
dicho dicha dichos dichas tal tales lo_anterior lo_cual éste ésta éstos éstas
""",
    "en": "him her it them this that these those",
}

# What a document calls itself: "This agreement", "Este contrato" refer to nothing that was said before.
_ITSELF = """
acta acuerdo agreement anexo anexos annex announcement anuncio appendix article artículo auto aviso boletín book
brochure carta certificado certificate circular comunicación comunicado contract contrato convenio correo decision
decreto deed dictamen directiva directive document documento email escrito escritura estudio factura filing folleto
form formulario guide guía handbook impreso informe instrucción instrumento invoice lease letter ley libro licence
license manual memorandum memoria mensaje message minuta notice notificación oferta offer orden order page paper plan
pliego poder policy política presentación press presupuesto programa prospectus protocolo publicación publication
página real reglamento regulation release report resolución resolution resumen review sección section sentencia site
sitio solicitud statement study summary survey tesis thesis trabajo tratado treaty web website
"""

_DEMONSTRATIVES = frozenset(["este", "esta", "estos", "estas", "this", "these"])
_REFERRING_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")  # with what follows an apostrophe: "it's"
_LONGEST_OPENER = 4  # words
_MAX_BEFORE_A_PRONOUN = 4  # words: "como consecuencia de ello" has three
_READ_CHARS = 80  # of a sentence's beginning


def _openers(words: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(opener.split("_")) for opener in words.split())


_OPENERS = {"es": _openers(_SPANISH), "en": _openers(_ENGLISH), None: _openers(_SPANISH + _ENGLISH)}
_LEADING: dict[str | None, frozenset[str]] = {
    **{language: frozenset(words.split()) for language, words in _BEFORE_PRONOUNS.items()},
    None: frozenset(" ".join(_BEFORE_PRONOUNS.values()).split()),
}
_POINTING: dict[str | None, frozenset[tuple[str, ...]]] = {
    **{language: _openers(words) for language, words in _PRONOUNS.items()},
    None: _openers(" ".join(_PRONOUNS.values())),
}
_DOCUMENTS = frozenset(_ITSELF.split())


def opens_with_reference(sentence: str, language: str | None) -> bool:
    """Whether a sentence opens with a word that points back to the one before it.

    Args:
        language: ISO 639-1; None looks for both languages' words, one without a list for none.
    """
    openers = _OPENERS.get(language)
    if openers is None:
        return False
    words = [word.lower().replace("\u2019", "'") for word in _REFERRING_WORD.findall(sentence[:_READ_CHARS])]
    if words[:1] and words[0] in _DEMONSTRATIVES and words[1:2] and words[1] in _DOCUMENTS:
        return False
    if any(tuple(words[:count]) in openers for count in range(1, min(_LONGEST_OPENER, len(words)) + 1)):
        return True
    return _has_pronoun_first(words, language)


def _has_pronoun_first(words: list[str], language: str | None) -> bool:
    """Whether nothing but prepositions and the like stands before the first pronoun: "Según él", "Most of them"."""
    for place, word in enumerate(words[: _MAX_BEFORE_A_PRONOUN + 1]):
        if place and ((word,) in _POINTING[language] or tuple(words[place : place + 2]) in _POINTING[language]):
            return not (word in _DEMONSTRATIVES and words[place + 1 : place + 2] and words[place + 1] in _DOCUMENTS)
        if word not in _LEADING[language]:
            return False
    return False


_MIN_COPIES = 3  # anywhere; twice may be a point that is made again
_MIN_COPIES_AT_ENDS = 2  # at the beginning or the end of different pages
_AT_ENDS = 3  # sentences and lines, counted from each
_OVERLAP = 0.9  # of the words; the numbers are the same: "sales of March" is no copy of "sales of May"
_COMPARED = 16  # sentences that begin, or end, alike; bounds the time
_KEY_WORDS = 3
_REPEATED_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
_PAGE_NUMBER = re.compile(r"\b(?:p[áa]g(?:ina)?s?|pages?|hoja|sheet)\b\.?\s*\d+(?:\s*(?:de|of|/)\s*\d+)?")


@dataclass(frozen=True, slots=True)
class _Said:
    words: frozenset[str]
    numbers: frozenset[str]  # but for the page's
    begins: tuple[str, ...]
    ends: tuple[str, ...]

    def is_like(self, other: _Said) -> bool:
        common, all_words = len(self.words & other.words), len(self.words | other.words)
        return self.numbers == other.numbers and common > _OVERLAP * all_words


def repeated_sentences(texts: Sequence[str], pages: Sequence[int] = ()) -> frozenset[int]:
    """Which sentences the text says three times or more, or on two pages at their beginning or end.

    Takes time linear in the sentences.

    Args:
        texts: the sentences, in order.
        pages: of each; unset: all on one.
    """
    copies = _copies(texts)
    ends = _at_page_ends(pages)
    return frozenset(
        index
        for indexes in copies
        if len(indexes) >= _MIN_COPIES
        or (indexes <= ends and len({pages[index] for index in indexes}) >= _MIN_COPIES_AT_ENDS)
        for index in indexes
    )


def _copies(texts: Sequence[str]) -> list[set[int]]:
    """For each different sentence, where it and those like it stand."""
    places: dict[_Said, list[int]] = {}
    for index, text in enumerate(texts):
        places.setdefault(_said(text), []).append(index)
    copies = {said: set(indexes) for said, indexes in places.items()}
    alike: dict[tuple[str, tuple[str, ...]], list[_Said]] = {}
    for said in places:
        alike.setdefault(("begins", said.begins), []).append(said)
        alike.setdefault(("ends", said.ends), []).append(said)
    for group in alike.values():
        for one, other in itertools.combinations(group[:_COMPARED], 2):
            if one.is_like(other):
                copies[one].update(places[other])
                copies[other].update(places[one])
    return [indexes for said, indexes in copies.items() if said.words]


def _said(text: str) -> _Said:
    read = _PAGE_NUMBER.sub(" ", text.lower())
    words = _REPEATED_WORD.findall(read)
    return _Said(
        frozenset(words), frozenset(_NUMBER.findall(read)), tuple(words[:_KEY_WORDS]), tuple(words[-_KEY_WORDS:])
    )


def _at_page_ends(pages: Sequence[int]) -> frozenset[int]:
    """The sentences near the beginning or the end of their page."""
    found: set[int] = set()
    for _, numbered in itertools.groupby(enumerate(pages), key=lambda item: item[1]):
        indexes = [index for index, _ in numbered]
        found.update(indexes[:_AT_ENDS], indexes[-_AT_ENDS:])
    return frozenset(found)


# Length of a sentence that can stand alone: shorter ones are headings and fields, longer ones lists.
_MIN_SENTENCE_CHARS = 30
MAX_SENTENCE_CHARS = 600
_MIN_WORDS = 5  # distinct ones, numbers counted as one, in a sentence that ends with a full stop
_MIN_WORDS_OF_A_LINE = 8  # in one without; most of those are headings, addresses and rows
_ENDS = tuple(STOPS + FOREIGN_STOPS)
_MIN_LETTERS = 0.6  # of the non-blank characters; rows of figures have fewer
_WORD = re.compile(r"[^\W\d_]{2,}")
_FIGURE = re.compile(r"\d")
_WORD_OR_NUMBER = re.compile(r"\w+")
# Share of common words and numbers of two sentences that say the same. Not the cosine of their vectors: with
# multilingual-e5-small different sentences of one text have 0.99, as much as a repeated one.
_DUPLICATE_OVERLAP = 0.9
_MAX_CAPITALS = 0.7  # of the letters; headings have more
_MAX_CANDIDATES = 8192  # a book's; bounds the memory: 384 numbers each, 25 MB in float64
_POSITION_SHARE = 0.25  # advantage of the first sentence over the last; the second has 0.7 of it, the tenth 0.3
_CENTRALITY_SHARE = 0.35  # of similarity to the other sentences, against similarity to the text


@dataclass(frozen=True, slots=True)
class KeySentence:
    index: int  # in the input sentences
    score: float  # 0 to 1; comparable within one text only


@dataclass(frozen=True, slots=True)
class SummaryLength:
    """How long a summary may be; both limits hold, None is no limit."""

    sentences: int | None = None
    tokens: int | None = None  # of the embedding model


@dataclass(frozen=True, slots=True)
class SummaryCandidates:
    """The sentences of a text that may be in its summary. Shapes: (candidates) each."""

    indexes: NDArray[np.int64]  # in the sentences, ascending
    before: NDArray[np.int64]  # how many candidates right before it must be in a summary that has it


def select_key_sentences(
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    text_vector: NDArray[np.float32],
    *,
    count: int,
) -> list[KeySentence]:
    """The ``count`` sentences that best represent the text and differ from each other, in the text's order.

    Shapes: vectors (sentences, width), text_vector (width), of any length; a sentence without a vector has zeros.

    Args:
        texts: the sentences, in order; too short, too long and letterless ones are skipped. If that leaves none,
            the limits of length are dropped, so that a text of form fields has a summary too.

    Source: similarity to the centroid and position from MEAD (Radev et al. 2004), similarity to the other sentences
    from LexRank's degree centrality (Erkan and Radev 2004), maximal marginal relevance (Carbonell and Goldstein 1998).
    """
    eligible = [index for index, text in enumerate(texts) if _stands_alone(text)]
    eligible = eligible or [index for index, text in enumerate(texts) if len(_WORD.findall(text)) > 1]
    if not eligible or count < 1:
        return []
    normalized = unit_vectors(vectors[eligible])
    relevance = _relevance(normalized, text_vector)
    repeats = _repeats_of([texts[index] for index in eligible])
    selected = select_diverse(normalized, relevance, count, redundant_with=repeats)
    return [KeySentence(eligible[index], float(relevance[index])) for index in sorted(selected)]


def summary_candidates(texts: Sequence[str], language: str | None, *, pages: Sequence[int] = ()) -> SummaryCandidates:
    """The sentences that may be in a summary: whole ones that stand alone, or that follow one that does.

    A sentence that opens with a reference to what was said ("Además", "This") needs the one before it. The first
    sentence of a text refers to nothing that the reader of the summary lacks. What pages repeat is left out.

    Args:
        texts: the sentences of a text, in order.
        language: ISO 639-1; None where it is not known. Only for "es" and "en" there is a list of references.
        pages: of each sentence; unset: all on one.
    """
    eligible = [index for index, text in enumerate(texts) if _stands_alone(text)]
    eligible = [index for index in eligible if _is_whole(texts[index])] or eligible
    eligible = _without_repeated(eligible, texts, pages)
    before: dict[int, int] = {}
    for index in eligible:
        if index == 0 or not opens_with_reference(texts[index], language):
            before[index] = 0
        elif index - 1 in before:
            before[index] = before[index - 1] + 1
    if len(before) > _MAX_CANDIDATES:
        first = [index for index, count in before.items() if count == 0]
        before = dict.fromkeys(first[:: 1 + (len(first) - 1) // _MAX_CANDIDATES], 0)
    return SummaryCandidates(np.array(list(before), np.int64), np.array(list(before.values()), np.int64))


def select_summary(
    texts: Sequence[str],
    before: NDArray[np.int64],
    vectors: NDArray[np.float32],
    text_vector: NDArray[np.float32],
    *,
    length: SummaryLength,
    tokens: NDArray[np.int64],
) -> list[KeySentence]:
    """The candidates that best represent the text within a length, in the text's order; selected as key sentences are.

    None, where none fits: a sentence is never cut.

    Shapes: vectors (candidates, width), text_vector (width), tokens (candidates).

    Args:
        texts, before: of `SummaryCandidates`.
        tokens: of each candidate.
    """
    if not texts:
        return []
    normalized = unit_vectors(vectors)
    relevance = _relevance(normalized, text_vector)
    runs = [relevance[index - count : index + 1].mean() for index, count in enumerate(before.tolist())]
    selected = select_diverse(
        normalized,
        np.array(runs),
        len(texts) if length.sentences is None else length.sentences,
        redundant_with=_repeats_of(texts),
        before=before,
        costs=tokens.astype(np.float64),
        budget=math.inf if length.tokens is None else length.tokens,
    )
    return [KeySentence(index, float(relevance[index])) for index in sorted(selected)]


def _relevance(normalized: NDArray[np.float64], text_vector: NDArray[np.float32]) -> NDArray[np.float64]:
    """How well each sentence represents the text, 0 to 1. Shapes: (sentences, width) of length 1, (width)."""
    centrality = normalized @ normalized.mean(axis=0)
    position = 1 / np.sqrt(1 + np.arange(len(normalized)))
    to_text = min_max_scaled(normalized @ unit_vectors(text_vector[None])[0])
    similarity = (1 - _CENTRALITY_SHARE) * to_text + _CENTRALITY_SHARE * min_max_scaled(centrality)
    relevance: NDArray[np.float64] = (1 - _POSITION_SHARE) * similarity + _POSITION_SHARE * position
    return relevance


def _repeats_of(texts: Sequence[str]) -> Callable[[int], NDArray[np.bool_]]:
    """Tells which sentences say the same as the one at an index."""
    words = [frozenset(_WORD_OR_NUMBER.findall(text.lower())) for text in texts]
    return lambda index: _repeats(words, words[index])


def _repeats(sentences: Sequence[frozenset[str]], other: frozenset[str]) -> NDArray[np.bool_]:
    """Which sentences have the words of another, as those that are repeated on each page."""
    return np.array([len(words & other) > _DUPLICATE_OVERLAP * len(words | other) for words in sentences], np.bool_)


def _without_repeated(eligible: list[int], texts: Sequence[str], pages: Sequence[int]) -> list[int]:
    """Those that pages do not repeat; all, where there are no others."""
    repeated = repeated_sentences(texts, pages)
    return [index for index in eligible if index not in repeated] or eligible


def _is_whole(text: str) -> bool:
    """Whether a sentence has its beginning and its end, and is no heading in capitals."""
    letters = [letter for letter in text if letter.isalpha()]
    capitals = sum(map(str.isupper, letters))
    return (
        not letters[0].islower() and capitals <= _MAX_CAPITALS * len(letters) and text.rstrip(CLOSERS).endswith(_ENDS)
    )


def _stands_alone(text: str) -> bool:
    """Whether a sentence makes sense by itself: it is no heading, no row of figures, and not half a page long."""
    if not _MIN_SENTENCE_CHARS <= len(text) <= MAX_SENTENCE_CHARS:
        return False
    words = {word.lower() for word in _WORD.findall(text)}
    if text.rstrip(CLOSERS).endswith(_ENDS):
        if len(words) + (_FIGURE.search(text) is not None) < _MIN_WORDS:
            return False
    elif len(words) < _MIN_WORDS_OF_A_LINE:
        return False
    letters, blanks = sum(map(str.isalpha, text)), sum(map(str.isspace, text))
    return letters >= _MIN_LETTERS * (len(text) - blanks) and not text.endswith(":")
