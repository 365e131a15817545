"""Labels that no model has learnt: which logit says what, sentences about labels, and scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backend.errors import InvalidField
from backend.serving.engines.zero_shot import NliLabels, hypotheses, read_nli, zero_shot

LOGITS = arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 5), st.just(3)), elements=st.floats(-30, 30, width=32)
)
NLI = NliLabels(entailment=2, contradiction=0, neutral=1)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(["contradiction", "neutral", "entailment"], (2, 0, 1), id="roberta-large-mnli"),
        pytest.param(["entailment", "neutral", "contradiction"], (0, 2, 1), id="deberta-v3-mnli"),
        pytest.param(["ENTAILMENT", "Contradiction", " Neutral "], (0, 1, 2), id="any-case"),
        pytest.param(["contradict", "entail"], (1, 0, None), id="without-neutral"),
        pytest.param(["entailment", "not_entailment"], (0, 1, None), id="two-classes"),
        pytest.param(["non-entailment", "entailment"], (1, 0, None), id="two-classes-with-a-hyphen"),
        pytest.param(["not entailed", "entailed"], (1, 0, None), id="participles"),
    ],
)
def test_which_logit_says_what(labels, expected):
    """By their names, in whatever order a model has them."""
    assert NliLabels(*expected) == read_nli(labels)


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(["positive", "negative"], id="sentiment"),
        pytest.param(["LABEL_0", "LABEL_1", "LABEL_2"], id="unnamed"),
        pytest.param(["neutral", "positive", "negative"], id="sentiment-with-neutral"),
        pytest.param(["entailment"], id="nothing-against-it"),
        pytest.param(["entailment", "entails", "contradiction"], id="two-of-a-kind"),
        pytest.param(["entailment", "contradiction", "sports"], id="a-stranger"),
        pytest.param(["contradiction", "neutral"], id="no-entailment"),
        pytest.param([], id="none"),
    ],
)
def test_labels_of_other_models(labels):
    """A classifier of something else must not be asked what a text entails."""
    assert read_nli(labels) is None


def test_the_label_takes_its_place():
    """By default in transformers' sentence, or in one in the language of the texts."""
    assert ["This example is urgent.", "This example is {odd}."] == hypotheses(["urgent", "{odd}"])
    assert ["Este texto trata de deportes."] == hypotheses(["deportes"], "Este texto trata de {}.")


@pytest.mark.parametrize("template", ["", "no place", "{0}", "{label}", "{0.__class__}"])
def test_a_template_without_a_place(template):
    """It would make the same sentence of every label; and no other field is ever read."""
    with pytest.raises(InvalidField, match=r"has no \{\} where the label goes") as caught:
        hypotheses(["urgent"], template)

    assert "hypothesis_template" == caught.value.param


@given(LOGITS)
def test_scores_of_exclusive_labels_sum_to_one(logits):
    """Unless there is one label only; the label most entailed comes first."""
    found = zero_shot(logits, NLI, multi_label=False)

    assert logits.shape[:2] == found.shape
    assert found.dtype == np.float32
    if logits.shape[1] > 1:
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
        most = logits[..., 2].argmax(axis=1)
        np.testing.assert_allclose(np.take_along_axis(found, most[:, None], 1)[:, 0], found.max(axis=1))


@given(LOGITS, st.data())
def test_labels_that_may_all_be_right_are_scored_alone(logits, data):
    """Neither another label, nor neutral, nor the order changes a score."""
    order = data.draw(st.permutations(range(logits.shape[1])))
    found = zero_shot(logits, NLI, multi_label=True)
    changed = logits.copy()
    changed[..., 1] += 7

    np.testing.assert_array_equal(found[:, order], zero_shot(changed[:, order], NLI, multi_label=True))
    exact = logits.astype(np.float64)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(exact[..., 0] - exact[..., 2])), rtol=1e-4)


@given(LOGITS, st.booleans())
def test_a_batch_equals_its_texts(logits, multi_label):
    """(labels, classes) of one text, or (texts, labels, classes)."""
    together = zero_shot(logits, NLI, multi_label=multi_label)

    np.testing.assert_array_equal(
        together, np.stack([zero_shot(text, NLI, multi_label=multi_label) for text in logits])
    )
