"""Zero-shot by embeddings: labels split into names, averaged over templates, compared with texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS
from backend.serving.engines.zero_shot import (
    TEMPLATES,
    Reference,
    label_names,
    label_texts,
    label_vectors,
    reference_of,
    scores,
)

WIDTH = 6
TEMPLATE_COUNT = sum(map(len, TEMPLATES.values()))


def vectors_of(*names: int) -> np.ndarray:
    """A label whose names stand along these axes, in every template."""
    return np.repeat(np.eye(WIDTH)[list(names)], TEMPLATE_COUNT, axis=0)


def reference(*common: int, neutral: np.ndarray | None = None, spread: float = 0.1) -> Reference:
    """Common labels along these axes; neutral texts have no direction unless given."""
    languages = ("en", "es", None)
    away = np.zeros(WIDTH) if neutral is None else neutral
    labels = label_vectors([vectors_of(axis) for axis in common])
    return Reference(labels, dict.fromkeys(languages, away), dict.fromkeys(languages, spread))


@pytest.mark.parametrize(
    ("label", "names"),
    [
        pytest.param("sports", ["sports"], id="one"),
        pytest.param("science/technology", ["science", "technology"], id="slash"),
        pytest.param("bank_statement", ["bank statement"], id="underscore"),
        pytest.param("ocio y cultura", ["ocio", "cultura"], id="spanish"),
        pytest.param("health & safety", ["health", "safety"], id="ampersand"),
        pytest.param("yo/yo", ["yo"], id="the-same-twice"),
        pytest.param("Android", ["Android"], id="and-inside-a-word"),
        pytest.param(" / ", ["/"], id="no-name"),
        pytest.param("a,b,c,d,e,f,g,h,i", ["a,b,c,d,e,f,g,h,i"], id="too-many"),
        pytest.param("日本", ["日本"], id="other-scripts"),
    ],
)
def test_names(label, names):
    assert names == label_names(label)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_any_label_has_something_to_embed(labels):
    texts = label_texts(labels)

    assert [TEMPLATE_COUNT * len(label_names(label)) for label in labels] == [len(prompts) for prompts in texts]
    assert all(prompt for prompts in texts for prompt in prompts)


def test_a_label_stands_in_the_templates_of_each_language():
    """English ones first; as many of one language as of another."""
    [texts] = label_texts(["viajes"])

    assert ["An article about viajes.", "Un artículo sobre viajes."] == [texts[1], texts[4]]
    assert 1 == len({len(templates) for templates in TEMPLATES.values()})


def test_the_nearest_name_counts():
    """A text about one of a label's names is as near as if that were the only one."""
    labels = label_vectors([vectors_of(0, 1), vectors_of(2)])

    near = labels.similarities(np.eye(WIDTH)[:3], "es")

    np.testing.assert_allclose(near, [[1, 0], [1, 0], [0, 1]], atol=1e-12)


def test_templates_are_averaged_by_language():
    """English sentences along one axis, Spanish along another: between them for a text in neither language."""
    each = np.repeat(np.eye(WIDTH)[:2], TEMPLATE_COUNT // 2, axis=0)

    labels = label_vectors([each])

    near = [labels.similarities(np.eye(WIDTH)[:2], language).ravel().tolist() for language in ("en", "es", None)]
    half = pytest.approx(np.sqrt(0.5))
    assert [[1, 0], [0, 1], [half, half]] == near


def test_one_label_a_text_is_shared_out():
    """Sums to 1; the nearest is first; the length of the text's vector says nothing."""
    labels = label_vectors([vectors_of(0), vectors_of(1), vectors_of(2)])
    text = np.array([[0.6, 0.5, 0.1, 0, 0, 0]])

    found = scores(text, ["en"], labels, reference(4, 5), multi_label=False)

    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert [0, 1, 2] == np.argsort(-found[0]).tolist()
    np.testing.assert_allclose(scores(7 * text, ["en"], labels, reference(4, 5), multi_label=False), found)


@pytest.mark.parametrize("multi_label", [True, False])
def test_what_all_texts_share_does_not_decide(multi_label):
    """A model that draws every text towards a label: less that direction, the text's own subject is nearest."""
    labels, drawn = label_vectors([vectors_of(0), vectors_of(1)]), np.eye(WIDTH)[0]
    text = np.array([[0.8, 0.6, 0, 0, 0, 0]])

    raw = scores(text, ["es"], labels, reference(4, 5), multi_label=multi_label)
    less = scores(text, ["es"], labels, reference(4, 5, neutral=0.6 * drawn), multi_label=multi_label)

    assert [0, 1] == [raw[0].argmax(), less[0].argmax()]


def test_scores_do_not_depend_on_a_models_scale():
    """Cosines half as far apart, measured with half the spread, mean the same."""
    wide, narrow = (np.array([[size, size / 2, 0, 0, 0, np.sqrt(1 - 1.25 * size**2)]]) for size in (0.4, 0.2))
    labels = label_vectors([vectors_of(0), vectors_of(1)])

    for multi_label in (True, False):
        expected = scores(wide, ["en"], labels, reference(3, 4, spread=0.2), multi_label=multi_label)
        actual = scores(narrow, ["en"], labels, reference(3, 4, spread=0.1), multi_label=multi_label)
        np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_labels_on_their_own():
    """What one scores does not change with the others that are asked for; none of them may fit, or several."""
    text = np.array([[0.7, 0.7, 0, 0, 0.1, 0.1]])
    three, one = (label_vectors(list(map(vectors_of, some))) for some in ((0, 1, 2), (1,)))

    found = scores(text, ["en"], three, reference(4, 5), multi_label=True)

    assert [True, True, False] == (found[0] > 0.5).tolist()
    assert pytest.approx(found[0, 1]) == scores(text, ["en"], one, reference(4, 5), multi_label=True).item()
    assert (scores(np.eye(WIDTH)[4:], ["en"] * 2, three, reference(4, 5), multi_label=True) < 0.5).all()


def test_a_batch_gives_what_single_texts_give():
    """Texts of several languages in one batch."""
    random = np.random.default_rng(0)
    labels = label_vectors([random.normal(size=(2 * TEMPLATE_COUNT, WIDTH)) for _ in range(3)])
    texts, languages = random.normal(size=(5, WIDTH)).astype(np.float32), ["en", "es", None, "es", "en"]
    measured = reference_of(label_vectors([vectors_of(axis) for axis in range(WIDTH)]), neutral_vectors())

    for multi_label in (False, True):
        batched = scores(texts, languages, labels, measured, multi_label=multi_label)
        single = [
            scores(texts[[row]], [languages[row]], labels, measured, multi_label=multi_label)[0] for row in range(5)
        ]
        np.testing.assert_allclose(batched, single, atol=1e-12)


def neutral_vectors() -> np.ndarray:
    """Of length 1, around the first axis for English and the second for Spanish."""
    random = np.random.default_rng(1)
    centre = np.repeat(np.eye(WIDTH)[:2], len(ALL_NEUTRAL_TEXTS) // 2, axis=0)
    rows = centre + 0.3 * random.normal(size=(len(ALL_NEUTRAL_TEXTS), WIDTH))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_model_is_measured_by_language():
    """Neutral texts of a language give its direction; those of all languages give that of other texts."""
    measured = reference_of(label_vectors([vectors_of(axis) for axis in range(WIDTH)]), neutral_vectors())

    directions = {language: vector.argmax() for language, vector in measured.neutral.items()}
    assert {"en": 0, "es": 1} == {language: directions[language] for language in ("en", "es")}
    np.testing.assert_allclose(measured.neutral[None], (measured.neutral["en"] + measured.neutral["es"]) / 2)
    assert all(value > 0.1 for value in measured.spread.values())


def test_a_model_that_tells_nothing_apart_is_no_error():
    """All texts and labels alike: every label as likely."""
    same = np.tile(np.eye(WIDTH)[:1], (len(ALL_NEUTRAL_TEXTS), 1))
    measured = reference_of(label_vectors([vectors_of(0), vectors_of(0)]), same)

    found = scores(np.eye(WIDTH)[:1], ["en"], label_vectors([vectors_of(0)] * 2), measured, multi_label=False)

    np.testing.assert_allclose(found, 0.5)


def test_a_vector_of_nothing_is_no_error():
    """Zeros, as a model may give them: all labels alike."""
    labels = label_vectors([vectors_of(0), vectors_of(1)])

    found = scores(np.zeros((1, WIDTH)), ["en"], labels, reference(4, 5), multi_label=False)

    np.testing.assert_allclose(found, 0.5)
