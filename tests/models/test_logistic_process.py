"""A large head is fitted in a process of its own: the same head, and it ends with its caller."""

import asyncio
import time

import numpy as np
import pytest

from backend.abandoned import run_to_end
from backend.errors import Unavailable
from backend.models import logistic_process
from backend.models.logistic import fit_head
from backend.models.logistic_process import fit_head_beside


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(logistic_process, "LARGE", 0)


def examples(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    targets = random.integers(3, size=count)
    vectors = random.normal(size=(3, 16))[targets] + random.normal(size=(count, 16))
    return vectors.astype(np.float32), targets


def test_the_head_is_that_of_a_fit_here():
    vectors, targets = examples()
    here, beside = (fit(vectors, targets, labels=3, texts=()) for fit in (fit_head, fit_head_beside))

    np.testing.assert_allclose(here.weight, beside.weight, atol=1e-6)
    assert here.temperature.value == pytest.approx(beside.temperature.value)


def test_what_is_wrong_is_said():
    vectors, targets = examples()

    with pytest.raises(Unavailable, match=r"ended with status 1: .*Error"):
        fit_head_beside(vectors, targets, labels=3, no_such_option=True)


async def test_the_process_ends_with_its_caller(monkeypatch):
    """A fit of minutes, whose caller leaves at once."""
    vectors, targets = np.ones((20_000, 384), np.float32), np.arange(20_000) % 40
    fitting = asyncio.create_task(run_to_end(lambda: fit_head_beside(vectors, targets, labels=40)))
    await asyncio.sleep(0.2)
    fitting.cancel()
    started_s = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await fitting

    assert time.monotonic() - started_s < 5.0
