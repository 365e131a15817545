"""Merging of entities from model and patterns: what is kept, what is not, and why."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.text.entity_merge import MODEL, PATTERN, Entity, merge
from backend.text.patterns import find_patterns


def by_model(text: str, name: str, kind: str, score: float = 0.9) -> Entity:
    start = text.index(name)
    return Entity(kind, name, start, start + len(name), score, MODEL)


def by_pattern(kind: str, start: int, end: int, *, score: float = 0.95, valid: bool | None = None) -> Entity:
    return Entity(kind, "x" * (end - start), start, end, score, PATTERN, "value", valid)


def kept(text: str, *entities: Entity) -> list[tuple[str, str]]:
    return [(entity.type, entity.text) for entity in merge([*entities, *find_patterns(text)]).kept]


def test_an_account_inside_an_iban_is_lost_to_it():
    """Both checksums are right; the longer one is kept."""
    text = "IBAN ES79 2100 0813 6101 2345 6789"

    merged = merge(find_patterns(text))

    assert ["IBAN"] == [entity.type for entity in merged.kept]
    assert [("CCC", "IBAN", "the longer one stands")] == [
        (loss.entity.type, loss.to.type, loss.why) for loss in merged.lost
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
def test_a_name_that_includes_a_number_is_cut_back(name, left):
    """A model's entity keeps its own words, and the overlap is reported in ``lost``."""
    text = f"Vendedor: {name}."

    merged = merge([by_model(text, name, "ORG"), *find_patterns(text)])

    (organisation,) = [entity for entity in merged.kept if entity.type == "ORG"]
    assert left == organisation.text == text[organisation.start : organisation.end]
    assert (0.9, MODEL) == (organisation.score, organisation.source)
    assert [("ORG", name, "CIF")] == [
        (loss.entity.type, loss.entity.text, loss.to.type) for loss in merged.lost if loss.entity.source == MODEL
    ]


def test_a_name_that_is_only_a_number_is_lost():
    """An ORG that is only a number and its label is dropped."""
    text = "CIF B64717838"

    merged = merge([by_model(text, text, "ORG"), *find_patterns(text)])

    assert ["CIF"] == [entity.type for entity in merged.kept]
    assert ["its checksum is right goes before an organisation, by the model"] == [loss.why for loss in merged.lost]


def test_the_same_from_both_sides_is_one_with_the_value():
    """Of equal type and span the pattern's is kept, which has the value, even if its score is weak."""
    text = "el 14 de mayo"

    merged = merge([by_model(text, "14 de mayo", "DATE", 0.99), *find_patterns(text)])

    assert [(PATTERN, "--05-14")] == [(entity.source, entity.value) for entity in merged.kept]
    assert [(MODEL, "the pattern found the same and has its value")] == [
        (loss.entity.source, loss.why) for loss in merged.lost
    ]


def test_the_model_goes_before_a_weak_pattern():
    """A street named after a day is a place."""
    text = "en 17 de Junio"

    assert [("LOC", "17 de Junio")] == kept(text, by_model(text, "17 de Junio", "LOC"))


def test_a_date_goes_before_the_models_organisation():
    """A date with its year is a strong pattern."""
    text = "Enron 12/03/2024"

    assert [("ORG", "Enron"), ("DATE", "12/03/2024")] == kept(text, by_model(text, text, "ORG"))


def test_types_filter_after_the_merge():
    """An account inside an IBAN is not reported, even if only accounts are requested."""
    text = "ES79 2100 0813 6101 2345 6789"

    merged = merge(find_patterns(text), ["CCC"])

    assert ([], ["CCC"]) == (merged.kept, [loss.entity.type for loss in merged.lost])


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
    """By the rows of the table, then length, score and start; independent of the input order."""
    for entities in ([strong, weak], [weak, strong]):
        merged = merge(entities)

        assert [strong] == merged.kept
        assert [(weak, strong)] == [(loss.entity, loss.to) for loss in merged.lost]


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


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(entities(), max_size=12))
def test_kept_entities_do_not_overlap_and_none_vanishes(found):
    """Kept entities are in order, without overlaps, and match the text; every entity is kept or in ``lost``."""
    merged = merge(found)

    for entity, after in zip(merged.kept, merged.kept[1:], strict=False):
        assert entity.end <= after.start
    for entity in merged.kept:
        assert TEXT[entity.start : entity.end] == entity.text != ""
    assert set(found) <= {*merged.kept, *(loss.entity for loss in merged.lost)}
    for loss in merged.lost:
        assert loss.to.start < loss.entity.end
        assert loss.entity.start < loss.to.end
