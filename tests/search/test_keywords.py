"""Terms of chunks and queries: what finds what, and that hostile text costs no more than any other."""

import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.search.keywords import matched_spans, query_identifiers, query_terms, text_terms, tokens_of, word_coverage
from backend.search.records import KeywordQuery

_TEXT = st.text(max_size=200)
_LANGUAGES = st.sampled_from(("es", "en", "de", None))


def _finds(query: str, text: str, language: str | None = "es") -> bool:
    """Whether a keyword search for ``query`` has ``text`` among its hits."""
    terms, asked = text_terms(text, language), query_terms(query)
    return bool(set(terms) & set(asked.terms)) or any(
        term.startswith(prefix) for term in terms for prefix in asked.prefixes
    )


@pytest.mark.parametrize(
    ("query", "text", "language"),
    [
        pytest.param("facturación", "facturas de enero", "es", id="stem-spanish"),
        pytest.param("invoices", "The invoiced amount", "en", id="stem-english"),
        pytest.param("invoices", "The invoice", None, id="stem-of-unknown-language"),
        pytest.param("Rechnungen", "Zwei Rechnungen", "de", id="word-of-a-language-without-stemmer"),
        pytest.param("facturacion", "La facturación", "es", id="query-without-accent"),
        pytest.param("facturación", "La facturacion", "es", id="text-without-accent"),
        pytest.param("FACTURACIÓN", "facturacio\u0301n", "es", id="capitals-and-decomposed-accent"),
        pytest.param("ano", "el año", "es", id="query-without-tilde"),
        pytest.param("año", "el ano", "es", id="text-read-without-tilde"),
        pytest.param("email", "un e-mail", "es", id="compound-as-one-word"),
        pytest.param("e-mail", "un email", "es", id="one-word-as-compound"),
        pytest.param("facturación", "la factu-\nración", "es", id="hyphen-at-the-end-of-a-line"),
        pytest.param("facturación", "la factu\u00adración", "es", id="soft-hyphen"),
        pytest.param("hospitalet", "L\u2019Hospitalet", "ca", id="elision"),
        pytest.param("company", "the company's", "en", id="possessive"),
        pytest.param("Acme S.L.", "de la SL", "es", id="letters-with-dots"),
        pytest.param("oficina", "la o\ufb01cina", "es", id="ligature"),
    ],
)
def test_word_is_found_in_another_form(query, text, language):
    """Words are found whatever their inflection, accents and hyphens."""
    assert _finds(query, text, language)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("FA-2024/0017", "Factura FA 2024 0017"), ("FA 2024 0017", "Factura FA-2024/0017"),
        ("fa20240017", "Factura FA-2024/0017"), ("FA-2024", "Factura FA-2024/0017"), ("0017", "Factura FA-2024/0017"),
        ("B12345678", "CIF B-12345678"), ("B-12345678", "CIF B12345678"), ("B-1234", "CIF B12345678"),
        ("12345678Z", "NIF 12.345.678-Z"), ("12.345.678-Z", "NIF 12345678Z"), ("12345678 Z", "NIF 12345678Z"),
        ("ES9121000418450200051332", "IBAN ES91 2100 0418 4502 0005 1332"),
        ("ES91 2100 0418", "IBAN ES9121000418450200051332"),
        ("ES91 2100 0418 4502 0005 1332", "IBAN ES9121000418450200051332"), ("DE136695976", "VAT DE 136 695 976"),
        ("1284.50", "Total 1.284,50 €"), ("1.284,50 €", "Total 1,284.50"), ("1284,5", "Total 1 284,50 EUR"),
        ("1284.50", "Total 1\u00a0284,50"), ("1284", "Total 1.284,00"), ("1.284", "Total 1284 unidades"),
        ("12/03/2024", "Madrid, 12 de marzo de 2024"), ("12 March 2024", "2024-03-12"),
        ("2024-03-12", "el 12.03.2024"), ("marzo de 2024", "Fecha: 12/03/2024"), ("912345678", "Tel. 912 345 678"),
        ("١٢٨٤", "Total 1284"),
    ],
)  # fmt: skip
def test_identifier_is_found_whichever_way_it_is_written(query, text):
    """Numbers, dates and ids are the same whatever separates their parts, and are found by their beginning."""
    assert _finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        pytest.param("B87654321", "CIF B12345678", id="another-number"),
        pytest.param("1284.50", "Total 1.284,05", id="another-amount"),
        pytest.param("12/03/2024", "el 13 de marzo de 2024", id="shares-only-the-year-with-a-date-in-words"),
        pytest.param("de la", "de la factura", id="function-words-alone"),
        pytest.param("año", "la mano", id="part-of-a-word"),
    ],
)
def test_what_differs_shares_no_whole_identifier(query, text):
    """Another number is no hit; of another date only the parts that are the same."""
    terms, asked = set(text_terms(text, "es")), query_terms(query)

    assert not terms & set(asked.terms) - {"2024"}
    assert not any(term.startswith(prefix) for term in terms for prefix in asked.prefixes)


_MARCH_5 = (
    "5 de marzo", "5 marzo", "el 5 de mar.", "March 5", "march 5th", "5th of March", "Mar 5, 2026", "05/03/2026",
    "5.3.2026", "2026-03-05", "5-mar-26", "5 de marzo de 2026",
)  # fmt: skip


@pytest.mark.parametrize("language", ["es", "en", "de", None])
@pytest.mark.parametrize("query", _MARCH_5)
def test_a_day_is_found_whichever_way_it_is_written(query, language):
    """In words or numbers, with and without its year, in Spanish and English; the day before and after are not."""
    asked = query_terms(query)
    for text in _MARCH_5:
        assert "D0305" in set(asked.terms) & set(text_terms(f"Se firma {text}.", language)), text
    for other in ("4 de marzo", "March 6", "05/04/2027", "2027-05-03", "5 de mayo"):
        assert not {"D0305", "20260305"} & set(text_terms(other, language)), other


@pytest.mark.parametrize("query", ["12 de marzo", "March 12", "march 12", "12th of March", "12/03/2026", "12 mar 2026"])
def test_a_day_finds_no_lone_number(query):
    """The number of the day, or of the month, is no word of the query; the same number outside of the date is."""
    for text in ("12 unidades", "Página 12 de 40", "03", "Unit 12", "12th floor", "12.03 m"):
        assert not _finds(query, text), text
    assert _finds(f"{query}, 12 unidades", "12 unidades")


@pytest.mark.parametrize(
    ("query", "there", "absent"),
    [
        ("5 de marzo", "Vence el 05/03/2026", "Vence el 06/03/2026"),
        ("March 5, 2026", "due 2026-03-05", "due 2026-03-06"),
        ("05/03/2026", "el 5 de marzo de 2026", "el 5 de abril"),
    ],
)
def test_coverage_takes_a_date_as_a_whole(query, there, absent):
    """Its words count as there where the date is, however it is written."""
    assert 1 == word_coverage(there, None, query)
    assert word_coverage(absent, None, query) < 0.5  # the year alone


def test_identifiers_of_dates():
    """A date is one only where the query has nothing else, and then that of its own year."""
    assert (KeywordQuery(("D0305",)),) == query_identifiers("5 de marzo").wanted
    assert (KeywordQuery(("20260305",)),) == query_identifiers("5 mar 2026").wanted
    assert () == query_identifiers("pagos del 5 de marzo").wanted


def test_year_with_tilde_ranks_before_one_without():
    """Who types the ñ shares two terms with "año", and one with "ano"."""
    asked = set(query_terms("año").terms)

    assert 2 == len(asked & set(text_terms("año", "es")))
    assert 1 == len(asked & set(text_terms("ano", "es")))


def test_a_year_is_no_prefix():
    """2024 stands in codes and dates as a term; as a prefix it would match every date of the year twice."""
    assert query_terms("informe 2024").prefixes == ()
    assert query_terms("FA-2024").prefixes == ("fa2024",)


def test_function_words_count_where_there_is_nothing_else():
    """A query of function words alone keeps them."""
    assert "who" in query_terms("The Who").terms
    assert "of" not in query_terms("director of finance").terms


def test_query_has_a_bounded_number_of_terms():
    """A query of any length is no longer than an index can take."""
    assert 256 == len(query_terms(" ".join(f"palabra{index}" for index in range(5000))).terms)


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("La factura de enero", "facturas", ["factura"]),
        ("Pagado el 12 de marzo de 2024 en Madrid", "12/03/2024", ["12 de marzo de 2024"]),
        ("Vence el 05/03/2026, 5 uds", "5 de marzo", ["05/03/2026"]),
        ("Due 2026-03-05.", "March 5", ["2026-03-05"]),
        ("Paid on March 5 in cash", "05/03/2026", ["March 5"]),
        ("IBAN ES91 2100 0418 4502 0005 1332.", "ES9121000418", ["ES91 2100 0418 4502 0005 1332"]),
        ("Factura FA-2024/0017, total 1.284,50 €", "fa-2024/0017 1284.5", ["FA-2024/0017", "1.284,50"]),
        ("El facturacio\u0301n", "facturación", ["facturacio\u0301n"]),
        ("nada", "factura", []),
    ],
)
def test_matched_spans(text, query, expected):
    """The spans are those of the text as it is written."""
    spans = matched_spans(text, query_terms(query), "es")

    assert expected == [text[start:end] for start, end in spans]


@given(_TEXT, _LANGUAGES)
def test_terms_are_letters_and_digits(text, language):
    """No term has a character of a query syntax, whatever the text."""
    query = query_terms(text)

    for term in (*text_terms(text, language), *query.terms, *query.prefixes):
        assert term.isalnum()
        assert len(term) <= 64


@given(_TEXT, _LANGUAGES)
def test_tokens_have_the_terms_of_their_text(text, language):
    """With and without their places, terms are the same."""
    tokens = tokens_of(text, language)

    assert text_terms(text, language) == [term for token in tokens for term in token.terms]
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)


@given(_TEXT, _LANGUAGES)
def test_text_is_found_by_itself(text, language):
    """A text that has terms shares one with itself as a query, and is highlighted by it."""
    if not (terms := set(text_terms(text, language))):
        return
    query = query_terms(text)
    shared = terms & set(query.terms)
    spans = matched_spans(text, query, language)

    assert shared
    assert spans
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))


@pytest.mark.parametrize(
    "make",
    [
        lambda size: "a" * size, lambda size: "1" * size, lambda size: "1." * (size // 2),
        lambda size: "a-" * (size // 2), lambda size: "1 234 " * (size // 6), lambda size: "\u0301" * size,
        lambda size: "a\u00ad" * (size // 2), lambda size: "ñ" * size, lambda size: "ES91 2100 " * (size // 10),
        lambda size: "12/03/2024 " * (size // 11), lambda size: "5 de marzo " * (size // 11),
    ],
)  # fmt: skip
def test_time_grows_with_the_text(make: Callable[[int], str]):
    """Ten times the text takes no more than some twenty times as long."""
    times = []
    for size in (10_000, 100_000):
        text, taken = make(size), []
        for _ in range(2):
            started_s = time.perf_counter()
            text_terms(text, None)
            query_terms(text)
            taken.append(time.perf_counter() - started_s)
        times.append(min(taken))

    assert times[1] < 25 * times[0] + 0.5
