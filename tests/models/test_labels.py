"""Labels by their numbers, whatever order config.json lists them in."""

from __future__ import annotations

import pytest

from backend.errors import ModelUnavailable
from backend.models.labels import named_labels


def test_labels_stand_by_their_numbers():
    """JSON's keys are strings: "10" comes after "9"."""
    config = {"id2label": {str(number): f"label {number}" for number in (10, 2, 1, 0, 9, 8, 7, 6, 5, 4, 3)}}

    assert tuple(f"label {number}" for number in range(11)) == named_labels(config, "tiny")


@pytest.mark.parametrize("named", [None, {}, [], "O", {"1": "a"}, {"0": "a", "2": "b"}, {"zero": "a"}])
def test_labels_that_cannot_be_told(named):
    """The error names the model and the file's field."""
    with pytest.raises(ModelUnavailable, match=r"tiny: config\.json has no id2label that names every label from 0 on"):
        named_labels({"id2label": named}, "tiny")
