"""Heads computed on a device give what the numpy heads give, and the way home waits for its own batch alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from backend.models.encoder import pack_rows
from backend.models.numpy_layers import FUNCTIONS, Activation
from backend.models.readout import SequenceLogits, TokenVectors
from backend.models.sequence_head import SequenceHead
from backend.models.spec import Pooling
from backend.models.torch_packed_layers import FUNCTIONS as TORCH_FUNCTIONS
from backend.models.torch_readout import DeviceHeads, queued
from backend.models.torch_transfers import DirectTransfers, PinnedTransfers, aligned, fill, split
from backend.models.weights import Linear, Norm

WIDTH, LABELS = 16, 5
RANDOM = np.random.default_rng(5)
CPU = torch.device("cpu")


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


HEAD = SequenceHead(
    Pooling.CLS, Linear(array(WIDTH, WIDTH), array(WIDTH)), "gelu", None, 1e-5,
    Linear(array(LABELS, WIDTH), array(LABELS)), tuple("abcde"), Activation.SOFTMAX, Activation.IDENTITY,
)  # fmt: skip


def computed(readout: Any, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = torch.from_numpy(vectors)
    values, sizes = DeviceHeads(CPU).compute(readout, rows=lambda: rows, pooled=lambda _pooling: rows)
    return values.numpy(), sizes.numpy()


@pytest.mark.parametrize("function", list(FUNCTIONS))
@pytest.mark.parametrize("norm", [None, Norm(array(WIDTH), array(WIDTH))], ids=["plain", "normed"])
def test_a_sequence_head_gives_the_numpy_logits(function, norm):
    head, vectors = replace(HEAD, function=function, norm=norm), array(7, WIDTH)

    np.testing.assert_allclose(computed(SequenceLogits(head), vectors)[0], head.logits(vectors), atol=2e-5)


def test_every_function_is_in_torch_too():
    """A head that numpy serves must not fail on a card."""
    assert set(FUNCTIONS) == set(TORCH_FUNCTIONS)


@pytest.mark.parametrize("per_token", [True, False])
def test_one_text_that_is_not_finite_does_not_touch_its_neighbours(per_token):
    """Also for results a token: a text is whole or not."""
    batch = pack_rows([np.ones(length, np.int64) for length in (2, 3, 1)], lambda _tokens: 8)
    vectors = array(8 if per_token else 3, WIDTH)
    vectors[3 if per_token else 1, 0] = np.nan
    vectors[6:] = np.nan  # rows of no text
    readout: Any = TokenVectors() if per_token else SequenceLogits(HEAD)
    rows = torch.from_numpy(vectors)
    values, sizes = DeviceHeads(CPU).compute(readout, rows=lambda: rows, pooled=lambda _pooling: rows)

    results, finite = queued(batch, readout, values, sizes, DirectTransfers()).wait()
    assert [True, False, True] == finite.tolist()
    assert ([2, 3, 1] if per_token else [LABELS] * 3) == [len(result) for result in results]


# Transfers


class FakeCuda:
    """CUDA's events, which here tell when they were recorded and waited for."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def current_stream(self, device: torch.device) -> str:
        return f"stream of {device}"

    def Event(self, *, blocking: bool = False) -> Any:  # noqa: N802 - torch's name
        assert blocking, "a wait that spins takes a core, and counts as work"
        number, steps = sum(step.startswith("record") for step in self.steps), self.steps

        class Event:
            def record(self, stream: str) -> None:
                steps.append(f"record {number} on {stream}")

            def synchronize(self) -> None:
                steps.append(f"wait for {number}")

        return Event()


@pytest.fixture
def unpinned(monkeypatch):
    """Page-locked memory needs a card: take the usual."""
    empty = torch.empty

    def without_pinning(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        assert pin_memory
        return empty(*shape, **options)

    monkeypatch.setattr("backend.models.torch_transfers.torch.empty", without_pinning)


def test_a_batch_waits_for_its_own_copy_alone(unpinned):
    """Two batches in flight: finishing the first does not wait for the second, and nothing waits before that."""
    cuda = FakeCuda()
    transfers = PinnedTransfers(torch.device("cuda:1"), cuda=cuda)
    first, second = transfers.copy_out(torch.ones(2)), transfers.copy_out(torch.zeros(2))

    assert ["record 0 on stream of cuda:1", "record 1 on stream of cuda:1"] == cuda.steps
    assert [1.0, 1.0] == first().tolist()
    assert ["wait for 0"] == cuda.steps[2:]
    assert [0.0, 0.0] == second().tolist()


def test_inputs_are_int32_in_one_page_locked_buffer(unpinned):
    buffer = PinnedTransfers(torch.device("cuda:0"), cuda=FakeCuda()).buffer(8)

    assert (torch.int32, 8) == (buffer.dtype, len(buffer))


def test_parts_of_a_buffer_begin_where_vector_loads_may():
    parts = [np.arange(5), np.arange(3), np.arange(4)]
    buffer = torch.full((sum(aligned(part.size) for part in parts),), -1, dtype=torch.int32)
    places = fill(buffer, parts)

    assert [0, 8, 12] == [place.start for place in places]
    assert [part.tolist() for part in parts] == [part.tolist() for part in split(buffer, [5, 3, 4])]
