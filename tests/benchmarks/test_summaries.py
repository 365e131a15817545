"""ROUGE-L, and how documents become texts with references."""

from __future__ import annotations

import pytest

from benchmarks.summaries import rouge_l, sample_of

BODY = "The plan keeps the old interface for two releases. " * 80
REFERENCE = "This document proposes a plan for the interface of the library and says how long the old one stays. " * 2


@pytest.mark.parametrize(
    ("summary", "reference", "expected"),
    [
        pytest.param("The cat sat.", "the CAT sat", 1.0, id="case-and-marks-count-nothing"),
        pytest.param("the cat sat", "the cat ran", 2 / 3, id="two-of-three"),
        pytest.param("police killed the gunman", "police kill the gunman", 0.75, id="Lin-2004-table"),
        pytest.param("the gunman kill police", "police kill the gunman", 0.5, id="order-counts"),
        pytest.param("a b c d", "a x b", 2 * 2 / 7, id="gaps-count-nothing"),
        pytest.param("", "a", 0.0, id="empty"),
        pytest.param("a", "b", 0.0, id="nothing-in-common"),
    ],
)
def test_rouge_l(summary: str, reference: str, expected: float) -> None:
    """Harmonic mean of the shares of both texts in their longest common subsequence of words."""
    assert expected == pytest.approx(rouge_l(summary, reference))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(f"Abstract\n========\n\n{REFERENCE}\n\nMotivation\n==========\n\n{BODY}", id="rst"),
        pytest.param(
            f"- Feature: x\n\n# Summary\n[summary]: #summary\n\n{REFERENCE}\n\n# Motivation\n\n{BODY}", id="md"
        ),
    ],
)
def test_a_document(source: str) -> None:
    """The reference is cut out of the text."""
    sample = sample_of("one", source)

    assert sample is not None
    assert REFERENCE.strip() == sample.reference.strip()
    assert "proposes" not in sample.text
    assert "two releases" in sample.text


def test_a_document_without_an_abstract() -> None:
    """Is no sample; neither is one whose text is too short."""
    assert sample_of("one", f"Motivation\n==========\n\n{BODY}") is None
    assert sample_of("one", f"Abstract\n========\n\n{REFERENCE}\n\nMotivation\n==========\n\nShort.") is None
