"""Candidates and ranking of key phrases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.models.words import word_places
from backend.text.key_phrases import MAX_CANDIDATES, Candidate, phrase_candidates, rank_phrases
from backend.text.sentences import sentence_spans
from backend.text.word_lists import FUNCTION_WORDS

PIECES = st.sampled_from(
    [
        "contrato ", "de ", "la ", "arrendamiento ", "l'exercice ", "company's ", "net ", "loss ", ". ", ", ", "12 ",
        "\n", "   ", "\t", "e\u0301l ", "👍🏽 ", "שלום ", "東京 ", "S.A. ", "\ufeff", "ana@x.com ", "A ", "'s ",
        "x" * 60 + " ",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(st.characters(), max_size=100), st.lists(PIECES, max_size=40).map("".join))


def found_in(text: str, language: str | None = "en") -> list[Candidate]:
    return phrase_candidates(text, word_places(text), sentence_spans(text), language)


def names(text: str, language: str | None = "en") -> set[str]:
    return {candidate.text for candidate in found_in(text, language)}


@pytest.mark.parametrize(
    ("text", "language", "there", "not_there"),
    [
        pytest.param(
            "The net operating loss of the company", "en", ["net operating loss", "loss of the company"],
            ["The net", "of", "loss of", "loss of the"], id="no-word-of-grammar-at-an-edge",
        ),
        pytest.param(
            "el contrato de arrendamiento de la vivienda",
            "es",
            ["contrato de arrendamiento", "arrendamiento de la vivienda"],
            ["contrato de", "el contrato"],
            id="spanish",
        ),
        pytest.param(
            "firma la empresa su balance", "es", ["empresa", "balance"], ["firma la empresa", "empresa su balance"],
            id="an-article-joins-only-after-a-preposition",
        ),
        pytest.param(
            "clients do business", "en", ["business"], ["clients do business"], id="connectors-are-of-their-language"
        ),
        pytest.param(
            "Gross margin. Net income, cash flow", "en", ["Gross margin", "Net income", "cash flow"],
            ["margin Net", "income cash"], id="within-a-sentence-and-between-commas",
        ),
        pytest.param(
            "Revenue\nOther income   Tax rate\tCash", "en", ["Revenue", "Tax rate", "Cash"],
            ["Revenue Other income", "income Tax", "rate Cash"], id="not-over-lines-and-columns",
        ),
        pytest.param(
            "paid 1,200 euros on 12 March 2024 and three million", "en", ["euros"],
            ["1,200", "March", "million", "1,200 euros"], id="numbers-and-dates-are-none",
        ),
        pytest.param(
            "Year ended. The section. Fiscal year.", "en", ["Fiscal year"], ["Year ended", "section", "Year"],
            id="vague-words-alone-are-none",
        ),
        pytest.param(
            "La sociedad firmó rápidamente acuerdos marco", "es", ["acuerdos marco", "sociedad"],
            ["sociedad firmó", "rápidamente acuerdos"], id="verbs-and-adverbs-by-their-ending",
        ),
        pytest.param(
            "l'exercice clos de l'entreprise", "fr", ["exercice clos de l'entreprise"], ["l'exercice"], id="elisions"
        ),
        pytest.param("The company's revenue", "en", ["revenue"], ["company's"], id="possessives"),
        pytest.param(
            "ana@example.com INV04096 COVID-19 B", "en", ["COVID-19"], ["ana@example.com", "INV04096", "B"], id="codes"
        ),
        pytest.param(
            "\ufeffContrato marco. Cafe\u0301 molido", "es", ["Contrato marco", "Cafe\u0301 molido"], [], id="marks"
        ),
        pytest.param("חוזה שכירות חדש", "he", ["חוזה שכירות חדש"], [], id="a-language-without-a-list"),
    ],
)  # fmt: skip
def test_phrases(text, language, there, not_there):
    """One to four adjacent content words, joined only by words like "de" and "of"."""
    found = names(text, language)

    assert set(there) <= found
    assert not found & set(not_there)


def test_inflected_forms_are_one_phrase():
    """With all spans in order and the most frequent spelling."""
    text = "Lease contract. The lease contracts. A LEASE\nCONTRACT. Two lease contracts."

    [found] = [candidate for candidate in found_in(text) if ("lease", "contract") == candidate.words]

    assert "lease contracts" == found.text
    assert 4 == found.count
    assert ["Lease contract", "lease contracts", "LEASE\nCONTRACT", "lease contracts"] == [
        text[start:stop] for start, stop in found.places.tolist()
    ]


def test_a_phrase_only_inside_a_longer_one_weighs_little():
    """It occurs three times, but never without the longer one."""
    weights = {candidate.text: candidate.weight for candidate in found_in("The net operating loss, " * 3)}

    assert weights["net operating loss"] > 2 * weights["operating loss"]


def test_names_early_and_often_weigh_more():
    """Capitals within a sentence, the first place, and frequency."""
    weights = {
        candidate.text: candidate.weight
        for candidate in found_in("He saw cash. He dealt with Acme. He saw margin, margin, rent.")
    }

    assert weights["Acme"] > weights["cash"] > weights["rent"]
    assert weights["margin"] > weights["rent"]


@pytest.mark.parametrize("language", ["en", "es", "fr", None, "he"])
@given(text=TEXTS)
def test_every_place_holds_its_phrase(text, language):
    """In range, in order, within one sentence; no function word at an edge; bounded in number."""
    sentences = sentence_spans(text)

    found = found_in(text, language)

    assert len(found) <= MAX_CANDIDATES
    assert sorted(candidate.weight for candidate in found) == [candidate.weight for candidate in reversed(found)]
    for candidate in found:
        assert candidate.count > 0
        assert 1 <= len(candidate.words) <= 4
        starts = [start for start, _ in candidate.places.tolist()]
        assert sorted(set(starts)) == starts
        for start, stop in candidate.places.tolist():
            assert 0 <= start < stop <= len(text)
            assert ((sentences[:, 0] <= start) & (stop <= sentences[:, 1])).sum() == 1
        edges = {candidate.text.split()[0].lower(), candidate.text.split()[-1].lower()}
        assert not edges & FUNCTION_WORDS.get(language or "en", frozenset())


@pytest.mark.slow
def test_a_megabyte_gives_a_bounded_number_of_candidates():
    """Even if nearly every phrase is new."""
    text = " ".join(
        f"alfa{chr(97 + number % 26)}{chr(97 + number // 26 % 26)}beta{number % 7}," for number in range(75_000)
    )

    assert MAX_CANDIDATES == len(found_in(text))


def phrase(text: str, weight: float) -> Candidate:
    return Candidate(text, tuple(text.lower().split()), np.array([[0, len(text)]]), weight)


def test_ranking_by_similarity_and_weight():
    """Of equal weight the more similar first, of equal similarity the heavier."""
    found = [phrase("far away", 1.0), phrase("near by", 1.0), phrase("heavy load", 5.0), phrase("light load", 0.1)]
    vectors = np.array([[0, 1, 0], [1, 0.2, 0], [0.5, 0, 0.5], [0.5, 0, 0.5]], np.float32)

    ranked = [key.text for key in rank_phrases(found, vectors, np.array([1, 0, 0], np.float32), top=4)]

    assert ranked.index("near by") < ranked.index("far away")
    assert ranked.index("heavy load") < ranked.index("light load")


def test_redundant_phrases_are_left_out():
    """ "loss" within "net loss", and "net loss deferred" beside it; a phrase with one word in common stays."""
    found = [
        phrase(text, weight)
        for text, weight in [("net loss", 9), ("loss", 8), ("net loss deferred", 7), ("tax loss", 6), ("rent", 5)]
    ]
    vectors = np.eye(5, dtype=np.float32)

    ranked = [key.text for key in rank_phrases(found, vectors, np.ones(5, np.float32), top=5)]

    assert ["net loss", "tax loss", "rent"] == ranked


@given(st.lists(st.tuples(st.text("abc ", min_size=1, max_size=8), st.floats(0, 100)), max_size=15), st.integers(0, 20))
def test_any_candidates_are_ranked(drawn, top):
    """Each at most once, at most ``top``, scores within 0 and 1, also with zero vectors."""
    found = [phrase(text or "a", weight) for text, weight in drawn]
    vectors = np.zeros((len(found), 3), np.float32)
    vectors[::2] = 1

    ranked = rank_phrases(found, vectors, np.array([1, 0, 0], np.float32), top=top)

    assert len(ranked) <= min(top, len(found))
    assert all(0 <= key.score <= 1 + 1e-9 for key in ranked)
    assert len({key.text for key in ranked}) == len(ranked)
