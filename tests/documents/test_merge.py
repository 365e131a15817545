"""One list from model and patterns: who stays, who goes, and why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.documents.entities import MODEL, PATTERN, Entity
from backend.documents.merge import PRIORITY, merge
from backend.documents.patterns import find_patterns


def by_model(text: str, name: str, kind: str, score: float = 0.9) -> Entity:
    start = text.index(name)
    return Entity(kind, name, start, start + len(name), score, MODEL)


def by_pattern(kind: str, start: int, end: int, *, score: float = 0.95, valid: bool | None = None) -> Entity:
    return Entity(kind, "x" * (end - start), start, end, score, PATTERN, "value", valid)


def kept(text: str, *entities: Entity) -> list[tuple[str, str]]:
    return [(one.type, one.text) for one in merge([*entities, *find_patterns(text)]).kept]


def test_an_account_inside_an_iban_is_lost_to_it():
    """Both checksums are right; the longer one is the whole."""
    text = "IBAN ES79 2100 0813 6101 2345 6789"

    merged = merge(find_patterns(text))

    assert ["IBAN"] == [one.type for one in merged.kept]
    assert [("CCC", "IBAN", "the longer one stands")] == [
        (one.entity.type, one.to.type, one.why) for one in merged.lost
    ]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        pytest.param("Aceros del Norte S.A. B64717838", "Aceros del Norte S.A.", id="number-behind"),
        pytest.param("Aceros del Norte S.A., CIF B64717838", "Aceros del Norte S.A.", id="with-its-label"),
        pytest.param("Aceros del Norte S.A. (C.I.F.: B64717838", "Aceros del Norte S.A.", id="with-a-bracket"),
        pytest.param("B64717838 - Aceros del Norte S.A.", "Aceros del Norte S.A.", id="number-in-front"),
        pytest.param("Aceros del Norte S.A. B64717838 Vigo", "Aceros del Norte S.A.", id="the-longer-side"),
    ],
)
def test_a_name_that_took_a_number_along_is_cut_back(name, left):
    """A model's entity keeps its own words; what it reached over is told with what it lost."""
    text = f"Vendedor: {name}."

    merged = merge([by_model(text, name, "ORG"), *find_patterns(text)])

    (organisation,) = [one for one in merged.kept if one.type == "ORG"]
    assert left == organisation.text == text[organisation.start : organisation.end]
    assert (0.9, MODEL) == (organisation.score, organisation.source)
    assert [("ORG", name, "CIF")] == [
        (one.entity.type, one.entity.text, one.to.type) for one in merged.lost if one.entity.source == MODEL
    ]


def test_a_name_that_is_only_a_number_is_lost():
    """Nothing is left of an ORG that is the number and its label."""
    text = "CIF B64717838"

    merged = merge([by_model(text, text, "ORG"), *find_patterns(text)])

    assert ["CIF"] == [one.type for one in merged.kept]
    assert ["its checksum is right goes before an organisation, by the model"] == [one.why for one in merged.lost]


def test_the_same_from_both_sides_is_one_with_the_value():
    """Equal type and place: the pattern's, which has the value, even where its own score is weak."""
    text = "el 14 de mayo"

    merged = merge([by_model(text, "14 de mayo", "DATE", 0.99), *find_patterns(text)])

    assert [(PATTERN, "--05-14")] == [(one.source, one.value) for one in merged.kept]
    assert [(MODEL, "the pattern found the same and has its value")] == [
        (one.entity.source, one.why) for one in merged.lost
    ]


def test_the_model_goes_before_a_weak_pattern():
    """A street named after a day is a place."""
    text = "en 17 de Junio"

    assert [("LOC", "17 de Junio")] == kept(text, by_model(text, "17 de Junio", "LOC"))


def test_a_date_goes_before_the_models_organisation():
    """A date with its year is beyond doubt."""
    text = "Enron 12/03/2024"

    assert [("ORG", "Enron"), ("DATE", "12/03/2024")] == kept(text, by_model(text, text, "ORG"))


def test_types_choose_the_answer_and_not_the_contest():
    """An account inside an IBAN is none, also for who asks for accounts alone."""
    text = "ES79 2100 0813 6101 2345 6789"

    merged = merge(find_patterns(text), ["CCC"])

    assert ([], ["CCC"]) == (merged.kept, [one.entity.type for one in merged.lost])


@pytest.mark.parametrize(
    ("strong", "weak"),
    [
        pytest.param(by_pattern("NIF", 0, 4, valid=True), by_pattern("PHONE", 0, 9), id="checksum-before-form"),
        pytest.param(by_pattern("URL", 0, 9), by_pattern("DATE", 2, 9, valid=True), id="address-before-date"),
        pytest.param(by_pattern("INVOICE_NUMBER", 0, 4), by_pattern("DATE", 0, 9), id="label-before-date"),
        pytest.param(by_pattern("MONEY", 0, 4), by_pattern("PHONE", 0, 9), id="amount-before-phone"),
        pytest.param(by_pattern("DATE", 0, 9), by_pattern("MONEY", 0, 4), id="longer"),
        pytest.param(by_pattern("DATE", 0, 4, score=0.99), by_pattern("MONEY", 0, 4), id="higher-score"),
        pytest.param(by_pattern("DATE", 0, 4), by_pattern("MONEY", 3, 7), id="earlier"),
    ],
)
def test_priority(strong, weak):
    """The declared rows, then length, score and place; the order of arrival says nothing."""
    for entities in ([strong, weak], [weak, strong]):
        merged = merge(entities)

        assert [strong] == merged.kept
        assert [(weak, strong)] == [(one.entity, one.to) for one in merged.lost]


def test_nothing_to_merge():
    merged = merge([])

    assert ([], []) == (merged.kept, merged.lost)


TEXT = "Aceros del Norte S.A., CIF B64717838, Vigo 12/03/2024. " * 2
SPANS = st.tuples(st.integers(0, len(TEXT) - 1), st.integers(1, 30))


@st.composite
def entities(draw: st.DrawFn) -> Entity:
    start, length = draw(SPANS)
    end = min(len(TEXT), start + length)
    kind = draw(st.sampled_from(["ORG", "PER", "DATE", "CIF", "IBAN", "URL", "MONEY", "PHONE"]))
    source = draw(st.sampled_from([MODEL, PATTERN]))
    valid = draw(st.sampled_from([True, False, None])) if source == PATTERN else None
    return Entity(kind, TEXT[start:end], start, end, draw(st.sampled_from([0.3, 0.7, 0.95])), source, None, valid)


@settings(max_examples=300)
@given(st.lists(entities(), max_size=12))
def test_the_answer_never_overlaps_and_nobody_vanishes(found):
    """Kept ones are in order and apart, each stands where its text is; every entity is kept or among the lost."""
    merged = merge(found)

    for one, after in zip(merged.kept, merged.kept[1:], strict=False):
        assert one.end <= after.start
    for one in merged.kept:
        assert TEXT[one.start : one.end] == one.text != ""
    assert set(found) <= {*merged.kept, *(one.entity for one in merged.lost)}
    for one in merged.lost:
        assert one.to.start < one.entity.end
        assert one.entity.start < one.to.end


def test_the_table_of_priority_takes_everyone():
    """The last row fits whatever the others leave."""
    assert PRIORITY[-1][1](Entity("X", "x", 0, 1, 0.0, PATTERN))
