"""Measuring, predicting and caching the memory of batches."""

import json
import logging
from pathlib import Path

import pytest
import torch
from torch import nn

from backend.device.memory.memory_table import Affine, MemoryTable
from backend.device.memory.probe import (
    CudaMeter,
    Prediction,
    load_caps,
    load_table,
    measure,
    predict,
    save_table,
    why_not_fit,
)
from backend.device.memory.trial_run import dry_run
from backend.device.tuning_cache import TuningCache
from backend.errors import DoesNotFit

MIB, GIB = 2**20, 2**30
WIDTH = 16


class Machine:
    """A device that runs batches of a known need and a meter that reads it; out of memory over ``capacity``."""

    def __init__(self, capacity: int = 2**62, *, granularity: int = 1) -> None:
        self.capacity, self.granularity = capacity, granularity
        self.weights = 5 * GIB
        self.workspace = 0  # taken by the first batch for good, as cuBLAS does
        self.peak = 0
        self.runs: list[tuple[int, int]] = []

    @staticmethod
    def need(count: int, length: int) -> int:
        """Attention's square in the length; affine in the count."""
        return 1000 * length + count * (100 * length + length**2)

    def run(self, count: int, length: int) -> str:
        self.runs.append((length, count))
        self.workspace = 64 * MIB
        need = self.need(count, length)
        if need > self.capacity:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.peak = max(self.peak, self.in_use_bytes() + need)
        return "vectors"

    def reset(self) -> None:
        self.peak = self.in_use_bytes()

    def in_use_bytes(self) -> int:
        return self.weights + self.workspace

    def peak_bytes(self) -> int:
        return -(-self.peak // self.granularity) * self.granularity


def test_two_counts_determine_every_other():
    """At every measured length the table gives any count, without weights and workspaces."""
    machine = Machine()

    table = measure(machine.run, machine, (128, 64), safety=1.0)

    assert (64, 128) == table.lengths
    assert [(64, 1), (64, 1), (64, 2), (64, 3), (128, 1), (128, 2), (128, 3)] == machine.runs
    for length in table.lengths:
        for count in (1, 7, 64):
            assert machine.need(count, length) == table.peak_bytes(length, count)


class MaskedMachine(Machine):
    """Several items have a mask, which takes 0.8 times an item's need; a lone one has none."""

    @staticmethod
    def need(count: int, length: int) -> int:
        item = 100 * length + length**2
        return 1000 * length + count * (item if count == 1 else item * 9 // 5)


def test_padding_is_in_the_line_of_several():
    """Whatever the count, what batches with a mask take is foreseen, and little more."""
    machine = MaskedMachine()
    table = measure(machine.run, machine, (64, 8192), safety=1.0)

    for length in table.lengths:
        for count in (2, 7, 64):
            assert machine.need(count, length) == table.peak_bytes(length, count)
        assert machine.need(1, length) <= (table.peak_bytes(length, 1) or 0)


def test_a_lone_item_that_takes_more_than_the_line():
    """Kernels for a batch of one may: the line is raised to it."""

    class OtherKernel(Machine):
        @staticmethod
        def need(count: int, length: int) -> int:
            return 5000 * length if count == 1 else Machine.need(count, length)

    machine = OtherKernel()
    table = measure(machine.run, machine, (64,), safety=1.0)

    assert 5000 * 64 == table.peak_bytes(64, 1)
    assert Machine.need(9, 64) <= (table.peak_bytes(64, 9) or 0)


def test_a_limit_counts_padding_that_was_not_measured_yet():
    """A second item may bring a mask for both: on WSL2 it is not run where that could pass the limit."""
    machine = MaskedMachine()
    limit = 3 * machine.need(1, 512)
    table = measure(machine.run, machine, (512,), safety=1.0, limit_bytes=limit)

    assert [(512, 1), (512, 1)] == machine.runs
    assert 1 == len(table.lengths)


def test_safety():
    """A tenth on top of what was measured."""
    table = measure((machine := Machine()).run, machine, (64,))

    assert pytest.approx(1.10 * Machine.need(32, 64), rel=1e-4) == table.peak_bytes(64, 32)


def test_lengths_that_do_not_fit():
    """They end the table; shorter lengths stay in it."""
    machine = Machine(Machine.need(2, 512))

    table = measure(machine.run, machine, (64, 512, 1024, 2048), safety=1.0)

    assert (64, 512) == table.lengths
    assert (1024, 1) == machine.runs[-1]


def test_a_meter_that_counts_in_large_steps():
    """A rise that it cannot see is not taken for none."""
    machine = Machine(granularity=64 * MIB)

    table = measure(machine.run, machine, (64,), safety=1.0)

    assert (table.peak_bytes(64, 100) or 0) >= Machine.need(100, 64)


def test_no_batch_beyond_a_limit():
    """On WSL2 nothing may run out of memory: what could need more than the limit is not even tried."""
    machine = Machine()
    limit = Machine.need(2, 512)

    table = measure(machine.run, machine, (64, 128, 256, 512, 1024), safety=1.0, limit_bytes=limit)

    assert all(Machine.need(count, length) <= limit for length, count in machine.runs)
    assert table.lengths[0] == 64
    assert 1024 not in table.lengths


def test_no_second_item_beyond_a_limit():
    """Twice the first one's need at worst: over the limit it is not run, and the first alone makes the bucket."""
    machine = Machine()
    limit = (Machine.need(1, 64) + Machine.need(2, 64)) // 2

    table = measure(machine.run, machine, (64,), safety=1.0, limit_bytes=limit)

    assert [(64, 1), (64, 1)] == machine.runs
    assert Affine(0, Machine.need(1, 64)) == table.at(64)


def test_a_model_that_does_not_fit_at_all():
    machine = Machine(10)

    with pytest.raises(DoesNotFit, match="one item of 64 tokens does not fit"):
        measure(machine.run, machine, (128, 64))


def test_another_error_is_not_hidden():
    """A model that fails is no matter of memory."""

    def run(count: int, length: int) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        measure(run, Machine(), (64,))


def test_a_real_card(device):
    """On a card (--device cuda:0) the line through two small batches foretells a large one within a few percent."""
    if not device.startswith("cuda"):
        pytest.skip("torch keeps no books of a CPU's memory; runs with --device cuda:0")
    model = Tiny(width=256, layers=4).to(device).eval()

    def run(count: int, length: int) -> None:
        with torch.inference_mode():
            model(torch.zeros(count, length, dtype=torch.long, device=device))

    meter = CudaMeter(device)
    table = measure(run, meter, (64, 512), safety=1.0)
    meter.reset()
    before = meter.in_use_bytes()
    run(64, 512)

    assert pytest.approx(meter.peak_bytes() - before, rel=0.05) == table.peak_bytes(512, 64)


class Tiny(nn.Module):
    """An encoder of torch's own layers."""

    def __init__(self, width: int = WIDTH, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(100, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.ModuleList([layer] * layers)  # shared on purpose: counted once
        self.register_buffer("scale", torch.ones(8))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden.mean(1)


def ids(count: int, length: int) -> tuple[torch.Tensor]:
    """What Tiny takes."""
    return (torch.zeros(count, length, dtype=torch.long),)


class Widening(nn.Module):
    """A model whose peak can be counted by hand."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.new_zeros(*x.shape, 10)  # lives while the next is made
        wider = wide.new_zeros(*x.shape, 100)
        del wide, wider
        return x.new_zeros(*x.shape, 50)


def test_a_dry_run_counts_what_lives_together():
    """Not the sum of all results: their peak; views and inputs count once, weights not at all."""
    weights, peaks = dry_run(Widening, lambda count, length: (torch.zeros(count, length),), [(8, 2)])

    assert (0, 110 * 8 * 2 * 4) == (weights, peaks[8, 2])


class Masked(nn.Module):
    """Attention with a mask, which torch turns into numbers inside, and a weight that is seen through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, WIDTH)
        self.out = nn.Parameter(torch.zeros(8, WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids).unsqueeze(1)
        scores = hidden @ self.out.t()
        mask = (ids > 0)[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
        return nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, attn_mask=mask).sum() + scores


@pytest.mark.parametrize("model", [Tiny, Masked])
def test_a_dry_run_agrees_with_torchs_own(model):
    """To the byte, where this torch still has its private tracker."""
    tracking = pytest.importorskip("torch.distributed._tools.mem_tracker")
    _, peaks = dry_run(model, ids, [(32, 4)])

    with torch._subclasses.FakeTensorMode():
        module, tracker = model().eval(), tracking.MemTracker()
        tracker.track_external(module)
        inputs = ids(4, 32)
        with torch.no_grad(), tracker:
            module(*inputs)
    activations = sum(
        size
        for sizes in tracker.get_tracker_snapshot("peak").values()
        for kind, size in sizes.items()
        if "ACT" in str(kind)
    )

    assert activations == peaks[32, 4]


def test_a_dry_run_allocates_nothing():
    """A model of a terabyte is tried on any machine."""
    found = predict(lambda: Tiny(width=2**18), ids, (64,))

    assert found.weights_bytes > 10**12


def test_a_prediction_is_a_line_for_each_length():
    """Two counts foretell all others exactly: affine at a fixed length."""
    found = predict(Tiny, ids, (16, 64), safety=1.0)
    _, peaks = dry_run(Tiny, ids, [(16, 32), (64, 32)])

    assert {length: found.table.peak_bytes(length, 32) for length in (16, 64)} == {
        length: peaks[length, 32] for length in (16, 64)
    }


def test_inputs_by_name():
    """As transformers' models take them; what a batch brings along is not its activations'."""
    by_name = predict(Tiny, lambda count, length: {"ids": ids(count, length)[0]}, (16,))

    assert by_name == predict(Tiny, ids, (16,))


class Peeking(nn.Module):
    """Its shapes depend on values, which a dry run does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.sum().item())]


@pytest.mark.parametrize("make", [Peeking, lambda: 1 / 0, nn.Identity], ids=["shape-of-values", "broken", "nothing"])
def test_what_cannot_be_predicted(caplog, make):
    """None and a line in the log: measure then."""
    caplog.set_level(logging.INFO)

    assert predict(make, ids, (16,)) is None
    assert "no dry run for this model" in caplog.text


PREDICTION = Prediction(4 * GIB, MemoryTable({256: Affine(32 * MIB, 15 * MIB), 512: Affine(64 * MIB, 30 * MIB)}))


@pytest.mark.parametrize(
    ("free", "length", "count", "expected"),
    [
        pytest.param(6 * GIB, 512, 64, "", id="fits"),
        pytest.param(
            5 * GIB,
            512,
            64,
            "the weights need 4.0 GiB; a batch of 64 x 512 tokens needs 1.9 GiB, 1.0 GiB is free: 32 fit; "
            "or shorten to 256 tokens",
            id="half-fits",
        ),
        pytest.param(
            3 * GIB,
            512,
            1,
            "the weights need 4.0 GiB, 3.0 GiB is free: the model does not fit",
            id="not-even-the-weights",
        ),
        pytest.param(
            8 * GIB,
            600,
            1,
            "the weights need 4.0 GiB; one item of 600 tokens is longer than anything measured (512 tokens); "
            "4.0 GiB is free: shorten to 512 tokens",
            id="longer-than-predicted",
        ),
    ],
)
def test_why_not_fit(free, length, count, expected):
    """Asked before anything is loaded, answered with numbers."""
    assert expected == why_not_fit(PREDICTION, free, length, count)


@pytest.fixture
def cache(tmp_path: Path) -> TuningCache:
    return TuningCache(tmp_path / "tuning.json")


TABLE = PREDICTION.table


@pytest.mark.parametrize(
    ("free", "found"),
    [
        pytest.param(10 * GIB, True, id="as-much-free"),
        pytest.param(int(9.6 * GIB), True, id="a-desktop-breathes"),
        pytest.param(9 * GIB, False, id="a-neighbour-has-come"),
        pytest.param(None, True, id="unknown"),
    ],
)
def test_a_kept_table(cache, free, found):
    """Reused while at least as much memory is free as when it was measured."""
    save_table(cache, "key", TABLE, 10 * GIB)

    assert (TABLE if found else None) == load_table(cache, "key", free)


def test_the_tuned_settings_of_the_same_model_stay(cache):
    """Both lie in one file under one fingerprint."""
    cache.save("key", {"budget": 512})
    save_table(cache, "key", TABLE, None)

    assert {"budget": 512} == cache.load("key")
    assert TABLE == load_table(cache, "key", 0)


def test_caps_are_cached(cache):
    save_table(cache, "key", TABLE, GIB, caps={512: 8, 64: 100})

    assert {64: 100, 512: 8} == load_caps(cache, "key")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({}, id="empty"),
        pytest.param({"table": {"version": 1, "buckets": []}, "caps": 7}, id="no-bucket"),
        pytest.param({"table": [], "caps": [[1], ["64", 2], [64, 0], None]}, id="of-another-kind"),
    ],
)
def test_an_invalid_table(cache, caplog, entry):
    """It is logged and measured again; the start does not fail."""
    save_table(cache, "key", TABLE, GIB)
    content = json.loads(cache._file.read_text())
    content["entries"] = dict.fromkeys(content["entries"], entry)
    cache._file.write_text(json.dumps(content))

    assert load_table(cache, "key", GIB) is None
    assert {} == load_caps(cache, "key")
    assert "the kept memory table cannot be read" in caplog.text
