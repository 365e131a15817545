"""Zero-shot by embeddings: labels split into names, averaged over templates, compared with texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.engines.zero_shot import COMMON_LABELS, TEMPLATES, label_names, label_texts, label_vectors, scores

WIDTH = 6


def vectors_of(*names: int) -> np.ndarray:
    """A label whose names stand along these axes, in every template."""
    return np.repeat(np.eye(WIDTH)[list(names)], len(TEMPLATES), axis=0)


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

    assert [len(TEMPLATES) * len(label_names(label)) for label in labels] == [len(prompts) for prompts in texts]
    assert all(prompt for prompts in texts for prompt in prompts)


def test_the_nearest_name_counts():
    """A text about one of a label's names is as near as if that were the only one."""
    labels = label_vectors([vectors_of(0, 1), vectors_of(2)])

    near = labels.similarities(np.eye(WIDTH)[:3])

    np.testing.assert_allclose(near, [[1, 0], [1, 0], [0, 1]], atol=1e-12)


def test_templates_are_averaged():
    """Half along one axis, half along another: between them, of length 1."""
    one = np.eye(WIDTH)[[0, 1] * (len(TEMPLATES) // 2)]

    labels = label_vectors([one])

    assert pytest.approx(np.sqrt(0.5)) == labels.similarities(np.eye(WIDTH)[:1]).item()


def test_one_label_a_text_is_shared_out():
    """Sums to 1; the nearest is first; the length of the text's vector says nothing."""
    labels = label_vectors([vectors_of(0), vectors_of(1), vectors_of(2)])
    text = np.array([[0.6, 0.5, 0.1, 0, 0, 0]])

    found = scores(text, labels, labels, multi_label=False)

    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert [0, 1, 2] == np.argsort(-found[0]).tolist()
    np.testing.assert_allclose(scores(7 * text, labels, labels, multi_label=False), found)


def test_labels_on_their_own():
    """What one scores does not change with the others that are asked for; none of them may fit, or several."""
    common = label_vectors([vectors_of(4), vectors_of(5)])
    text = np.array([[0.7, 0.7, 0, 0, 0.1, 0.1]])
    three, one = (label_vectors(list(map(vectors_of, some))) for some in ((0, 1, 2), (1,)))

    found = scores(text, three, common, multi_label=True)

    assert [True, True, False] == (found[0] > 0.5).tolist()
    assert pytest.approx(found[0, 1]) == scores(text, one, common, multi_label=True).item()
    assert (scores(np.eye(WIDTH)[4:], three, common, multi_label=True) < 0.5).all()


def test_a_batch_gives_what_single_texts_give():
    random = np.random.default_rng(0)
    labels = label_vectors([random.normal(size=(2 * len(TEMPLATES), WIDTH)) for _ in range(3)])
    texts = random.normal(size=(5, WIDTH)).astype(np.float32)

    for multi_label in (False, True):
        batched = scores(texts, labels, labels, multi_label=multi_label)
        single = [scores(texts[[row]], labels, labels, multi_label=multi_label)[0] for row in range(5)]
        np.testing.assert_allclose(batched, single, atol=1e-12)


def test_a_vector_of_nothing_is_no_error():
    """Zeros, as a model may give them: all labels alike."""
    labels = label_vectors([vectors_of(0), vectors_of(1)])

    found = scores(np.zeros((1, WIDTH)), labels, labels, multi_label=False)

    np.testing.assert_allclose(found, 0.5)


def test_the_common_labels_are_different_ones():
    assert len(COMMON_LABELS) == len({name for label in COMMON_LABELS for name in label_names(label)})
