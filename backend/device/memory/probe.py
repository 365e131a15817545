"""How much memory batches of a model need: measured on the device, or predicted without one; kept for later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from backend.device.batch_split import release_frames
from backend.device.faults import FaultKind, classify
from backend.device.memory.device_memory import advice, readable
from backend.device.memory.memory_table import Affine, MemoryTable
from backend.device.tuning_cache import TuningCache
from backend.errors import DoesNotFit
from backend.telemetry import log_event

if TYPE_CHECKING:
    import torch

    from backend.device.memory.dry_run import Inputs

_log = logging.getLogger(__name__)

COUNTS = (1, 2)  # two points make the line; more add nothing (research/gpu_training.md §9.2: residual 0.0 %)
SAFETY = 1.10  # on what was measured: workspaces and rounding differ a little by count
# On what was predicted: the dry run sees no kernel's workspace and no allocator's rounding. GLiNER serves with 1.3.
PREDICTION_SAFETY = 1.3
_FREE_RATIO_MIN = 0.95  # of the free memory at the measurement: a desktop's own use comes and goes by a few percent
_KEY = "memory:"  # before the fingerprint: the tuned settings of the same model lie in the same file


class Meter(Protocol):
    """Reads the memory that this process has on a device."""

    def reset(self) -> None:
        """Forget the peak so far; wait for what still runs."""

    def in_use_bytes(self) -> int:
        """Now."""

    def peak_bytes(self) -> int:
        """The most since ``reset``."""


class CudaMeter:
    """The books of torch's allocator: exact, and blind to neighbours, whose coming and going is none of a model's.

    Differences of what the driver calls free are not (vllm#56830: a neighbour's release made a profile negative).
    """

    def __init__(self, device: str) -> None:
        self._device = device

    def reset(self) -> None:
        """Forget the peak so far; wait for what still runs."""
        import torch  # a CUDA placement has imported it already

        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def in_use_bytes(self) -> int:
        """In live tensors, now."""
        import torch  # likewise

        return int(torch.cuda.memory_allocated(self._device))

    def peak_bytes(self) -> int:
        """The most in live tensors since ``reset``."""
        import torch  # likewise

        return int(torch.cuda.max_memory_allocated(self._device))


def measure(
    run: Callable[[int, int], object],
    meter: Meter,
    lengths: Sequence[int],
    *,
    counts: Sequence[int] = COUNTS,
    safety: float = SAFETY,
    limit_bytes: int | None = None,
) -> MemoryTable:
    """Run a few small batches of every length and note their peaks above what was in use before.

    A length at which one item alone runs out of memory ends the table: beyond it nothing is known.

    Args:
        run: a batch of (count, length), exactly as it is served: dtype, attention, compilation.
        limit_bytes: no batch is run that could need more; None to find out by trying. Give it on WSL2, where running
            out of memory again and again can stop the host (WSL#40732).

    Raises: DoesNotFit when not one item of the shortest length fits.
    """
    buckets: dict[int, Affine] = {}
    for length in sorted(lengths):
        if not buckets:
            _peak(run, meter, 1, length)  # what libraries take once (workspaces, plans) is no batch's
        peaks: dict[int, int] = {}
        for count in sorted(counts):
            if limit_bytes is not None and _at_worst(buckets, peaks, length, count) > limit_bytes:
                break
            if (peak := _peak(run, meter, count, length)) is None:
                break
            peaks[count] = peak
        if not peaks:
            break
        buckets[length] = Affine.through(peaks, safety=safety)
    if not buckets:
        raise DoesNotFit(f"one item of {min(lengths)} tokens does not fit the device beside the model's weights")
    return MemoryTable(buckets)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model would need, found without a device."""

    weights_bytes: int  # parameters and buffers
    table: MemoryTable  # of its batches, above the weights


@dataclass(frozen=True, slots=True)
class FitReport:
    """Whether a batch fits, and what would."""

    fits: bool
    needs_bytes: int | None  # weights and batch; None for a length beyond the table
    most: int  # items of that length that fit beside the weights
    message: str  # for people


def predict(
    make_model: Callable[[], torch.nn.Module],
    make_inputs: Callable[[int, int], Inputs],
    lengths: Sequence[int],
    *,
    counts: Sequence[int] = COUNTS,
    safety: float = PREDICTION_SAFETY,
) -> Prediction | None:
    """What a torch model would need for inference, before a byte of it is loaded; a fraction of a second a length.

    None where it cannot be said (a model whose shapes depend on values, a torch without fake tensors): measure then.

    Args:
        make_model: builds it from its configuration, in the dtype it will run in; loads nothing.
        make_inputs: of (count, length), whatever its forward takes; on the CPU.
    """
    shapes = [(length, count) for length in lengths for count in counts]
    try:
        from backend.device.memory.dry_run import dry_run  # torch at once, which a CPU service must not pay for

        weights_bytes, peaks = dry_run(make_model, make_inputs, shapes)
        by_length = {length: {count: peaks[length, count] for count in counts} for length in lengths}
        table = MemoryTable({length: Affine.through(each, safety=safety) for length, each in by_length.items()})
    except Exception as error:  # noqa: BLE001  # any model's code, on tensors that it does not know
        log_event(_log, logging.INFO, "no dry run for this model", reason=repr(error))
        return None
    return Prediction(weights_bytes, table)


def will_it_fit(prediction: Prediction, free_bytes: int, length: int, count: int) -> FitReport:
    """Whether the model and a batch of ``count`` x ``length`` fit in ``free_bytes``, before anything is loaded."""
    left = free_bytes - prediction.weights_bytes
    weights = f"the weights need {readable(prediction.weights_bytes)}"
    if left < 0:
        needs = prediction.table.peak_bytes(length, count)
        total = None if needs is None else prediction.weights_bytes + needs
        return FitReport(False, total, 0, f"{weights}, {readable(free_bytes)} is free: the model does not fit")
    batch = prediction.table.peak_bytes(length, count)
    fits = batch is not None and batch <= left
    message = f"{weights}; {advice(prediction.table, length, count, left)}"
    needs = None if batch is None else prediction.weights_bytes + batch
    known = prediction.table.at(length)
    return FitReport(fits, needs, 0 if known is None else known.most(left), message)


def load_table(kept: TuningCache, key: str, free_bytes: int | None) -> MemoryTable | None:
    """The table kept under ``key``; None when there is none, or when less memory is free than it was measured with.

    Args:
        key: ``profile.fingerprint`` of model, dtype, attention, card and versions: peaks differ by each of them.
    """
    entry = kept.load(_KEY + key)
    if entry is None:
        return None
    baseline = entry.get("free_bytes")
    try:
        table = MemoryTable.from_json(entry.get("table"))
    except ValueError as error:
        log_event(_log, logging.WARNING, "the kept memory table cannot be read; measuring again", reason=error)
        return None
    if isinstance(baseline, int) and free_bytes is not None and free_bytes < baseline * _FREE_RATIO_MIN:
        log_event(
            _log,
            logging.INFO,
            "less memory is free than when batches were measured; measuring again",
            free_bytes=free_bytes,
            free_then_bytes=baseline,
        )
        return None
    return table


def save_table(
    kept: TuningCache,
    key: str,
    table: MemoryTable,
    free_bytes: int | None,
    *,
    caps: Mapping[int, int] | None = None,
) -> None:
    """Keep a measured table, the memory that was free then, and what ``LearntLimits`` has learnt since (its caps)."""
    rows = [[length, count] for length, count in sorted((caps or {}).items())]
    kept.save(_KEY + key, {"table": table.to_json(), "free_bytes": free_bytes, "caps": rows})


def load_caps(kept: TuningCache, key: str) -> dict[int, int]:
    """The learnt limits kept beside the table; empty where there are none or they cannot be read."""
    rows = (kept.load(_KEY + key) or {}).get("caps")
    if not isinstance(rows, list):
        return {}
    return {
        row[0]: row[1]
        for row in rows
        if isinstance(row, list) and len(row) == 2 and all(type(each) is int and each >= 1 for each in row)
    }


def _peak(run: Callable[[int, int], object], meter: Meter, count: int, length: int) -> int | None:
    """Bytes above what was in use before; None when memory ran out."""
    meter.reset()
    before = meter.in_use_bytes()
    failure: Exception | None = None
    try:
        run(count, length)
    except Exception as error:
        if classify(error).kind is not FaultKind.OUT_OF_MEMORY:
            raise
        failure = error
    if failure is not None:
        release_frames(failure)
        return None
    return max(0, meter.peak_bytes() - before)


def _at_worst(buckets: Mapping[int, Affine], peaks: Mapping[int, int], length: int, count: int) -> float:
    """More than a batch can need by what is known of smaller ones: linear in count, square in length (attention)."""
    if peaks:
        known = max(peaks)
        return peaks[known] * count / known
    if not buckets:
        return 0.0  # the first must be tried
    last = max(buckets)
    return buckets[last].peak_bytes(count) * (length / last) ** 2
