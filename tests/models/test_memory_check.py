"""A model that cannot fit is refused before it is loaded, with the numbers."""

from __future__ import annotations

import pytest

from backend.device.memory.device_memory import RESERVE_BYTES, Books
from backend.device.records import AllocatorStats
from backend.errors import ModelUnavailable
from backend.models.memory_check import check_fit, foresee
from tests.tiny_models import TinyModels, copy_of, placement, spec_of, tiny

__all__ = ["copy_of", "tiny"]


def books(free_bytes: int) -> Books:
    return Books(AllocatorStats(), free_bytes)


@pytest.mark.parametrize(("dtype", "bytes_each"), [("fp32", 4), ("bf16", 2), ("fp16", 2)])
def test_weights_are_foreseen_exactly(dtype, bytes_each):
    """22.7 million parameters of all-MiniLM-L6-v2 in the width of each dtype, from its configuration alone."""
    found = foresee(spec_of("bundled"), dtype)

    assert found is not None
    assert 22_713_216 * bytes_each == pytest.approx(found.weights_bytes, rel=0.001)


def test_a_model_that_fits():
    """With room to spare it says how many texts fit beside the weights."""
    report = check_fit(spec_of("bundled"), "fp32", placement(), books(4 << 30))

    assert report is not None
    assert report.fits
    assert report.most > 8


def test_a_model_that_does_not_fit():
    """What it needs, what is free, and four things to do."""
    with pytest.raises(ModelUnavailable) as caught:
        check_fit(spec_of("bundled"), "fp32", placement(), books(RESERVE_BYTES + (50 << 20)))

    message = str(caught.value)
    assert "does not fit cpu" in message
    assert "86.7 MiB" in message
    assert "50.0 MiB" in message
    for cure in ("other users", "GPU_MEMORY_FRACTION", "EMBEDDING_MODEL", "DEVICE=cpu"):
        assert cure in message


def test_half_precision_may_fit_where_float32_does_not():
    """The next candidate is tried: only the dtype that is too large is refused."""
    free = books(RESERVE_BYTES + (75 << 20))
    with pytest.raises(ModelUnavailable):
        check_fit(spec_of("bundled"), "fp32", placement(), free)

    report = check_fit(spec_of("bundled"), "bf16", placement(), free)
    assert report is not None
    assert report.fits


def test_every_family_can_be_foreseen(tiny: TinyModels):
    """The dry run works for each architecture that is served."""
    for family in ("bert", "mpnet", "xlm-roberta", "distilbert", "roberta"):
        found = foresee(spec_of(tiny.folder(family)), "fp32")

        assert found is not None, family
        assert found.weights_bytes > 0
