"""The functions of last layers against torch's, and scores that stay scores at both ends of float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transformers.activations import ACT2FN

from backend.models.activations import FUNCTIONS, Activation, activate, sigmoid, softmax

WIDE = np.concatenate([np.linspace(-12, 12, 4001), [0.0, 1e-20, -1e-20, 40, -40, 1e4, -1e4]]).astype(np.float32)
LOGITS = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-80, 80, width=32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_transformers_own(name):
    """By their names there, over all that float32 can tell apart."""
    found = FUNCTIONS[name](WIDE)

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ACT2FN[name](torch.from_numpy(WIDE)).numpy(), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_not_a_number_stays_so(name):
    """In its own place, without a warning."""
    found = FUNCTIONS[name](np.array([1.0, np.nan, -1.0], np.float32))

    assert [True, False, True] == np.isfinite(found).tolist()


@given(LOGITS)
def test_scores_are_torchs(logits):
    """Each function over the labels of each row."""
    given_logits = torch.from_numpy(logits)

    np.testing.assert_allclose(activate(logits, Activation.SOFTMAX), given_logits.softmax(-1), atol=1e-6)
    np.testing.assert_allclose(activate(logits, Activation.SIGMOID), given_logits.sigmoid(), rtol=1e-5, atol=0)
    assert activate(logits, Activation.IDENTITY) is logits


def test_low_scores_keep_their_order():
    """Where a sum with one would have rounded them all to nothing."""
    found = sigmoid(np.linspace(-60, -20, 50, dtype=np.float32))

    assert (np.diff(found) > 0).all()
    assert found[0] > 0


def test_nothing_overflows():
    """At the ends of float32 a score is 0 or 1, and a row's scores sum to one."""
    ends = np.array([-3e38, 0.0, 3e38], np.float32)

    assert [0.0, 0.5, 1.0] == sigmoid(ends).tolist()
    assert [0.0, 0.0, 1.0] == softmax(ends).tolist()


def test_softmax_takes_the_last_axis():
    """Of any number of axes."""
    found = softmax(np.zeros((2, 3, 4), np.float32))

    np.testing.assert_allclose(found, 0.25)
