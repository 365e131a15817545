"""Measures the memory of a model's batches on a device, or predicts it with fake tensors, and caches the result."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.device.batch_split import release_frames
from backend.device.faults import FaultKind, classify
from backend.device.memory.device_memory import advice, format_bytes
from backend.device.memory.memory_table import Affine, MemoryTable
from backend.device.tuning_cache import TuningCache
from backend.errors import DoesNotFit
from backend.telemetry import log_event

if TYPE_CHECKING:
    import torch

    from backend.device.memory.trial_run import Inputs

_log = logging.getLogger(__name__)

COUNTS = (1, 2)  # two points determine the line; measured, the residual of further counts is 0.0 %
SERVED_COUNTS = (1, 2, 3)  # a lone item is never padded, so two more points determine the line of those that are
_MASK_FACTOR = 2  # at most: what padding adds to the memory of an item; 1.8 times was measured at 8,192 tokens
SAFETY = 1.10  # on measured peaks: workspaces and rounding differ a little by count
# On predicted peaks: a dry run sees neither workspaces of kernels nor the allocator's rounding. GLiNER serves with 1.3.
PREDICTION_SAFETY = 1.3
_FREE_RATIO_MIN = 0.95  # of the free memory at the measurement: what a desktop uses varies by a few percent
_KEY = "memory:"  # prefix of the fingerprint: the tuned settings of the same model are in the same file


class CudaMeter:
    """Measures the memory of this process on a card by torch's allocator: exact, and independent of other processes.

    Differences of the driver's free memory are not (vllm#56830: another process freed memory).
    """

    def __init__(self, device: str) -> None:
        self._device = device

    def reset(self) -> None:
        """Synchronize and reset the peak."""
        import torch  # already imported by the CUDA placement

        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def in_use_bytes(self) -> int:
        """Bytes in live tensors now."""
        import torch  # likewise

        return int(torch.cuda.memory_allocated(self._device))

    def peak_bytes(self) -> int:
        """The maximum of ``in_use_bytes`` since ``reset``."""
        import torch  # likewise

        return int(torch.cuda.max_memory_allocated(self._device))


def measure(
    run: Callable[[int, int], object],
    meter: CudaMeter,
    lengths: Sequence[int],
    *,
    counts: Sequence[int] = SERVED_COUNTS,
    safety: float = SAFETY,
    limit_bytes: int | None = None,
) -> MemoryTable:
    """Run a few small batches of every length and fit a table to their peaks above the memory in use before.

    The table ends before the first length at which one item alone runs out of memory.

    Args:
        run: runs a batch of (count, length) exactly as it is served: dtype, attention, compilation, and padding where
            there are several.
        limit_bytes: batches that could need more are not run; None to run all. Set it on WSL2, where running out of
            memory repeatedly can stop the host (WSL#40732).

    Raises: DoesNotFit when not one item of the shortest length fits.
    """
    buckets: dict[int, Affine] = {}
    for length in sorted(lengths):
        if not buckets:
            _peak(run, meter, 1, length)  # warm-up: libraries allocate workspaces once, which belong to no batch
        peaks: dict[int, int] = {}
        for count in sorted(counts):
            if limit_bytes is not None and _upper_bound(buckets, peaks, length, count) > limit_bytes:
                break
            if (peak := _peak(run, meter, count, length)) is None:
                break
            peaks[count] = peak
        if not peaks:
            break
        buckets[length] = _fit(peaks, safety)
    if not buckets:
        raise DoesNotFit(f"one item of {min(lengths)} tokens does not fit the device beside the model's weights")
    return MemoryTable(buckets)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The memory that a model will need, computed without a device."""

    weights_bytes: int  # parameters and buffers
    table: MemoryTable  # of its batches, without the weights


def predict(
    make_model: Callable[[], torch.nn.Module],
    make_inputs: Callable[[int, int], Inputs],
    lengths: Sequence[int],
    *,
    counts: Sequence[int] = COUNTS,
    safety: float = PREDICTION_SAFETY,
) -> Prediction | None:
    """Predict the memory that a torch model needs for inference, without loading it; a fraction of a second per length.

    None where fake tensors cannot run the model, for example when shapes depend on values: measure then.

    Args:
        make_model: builds the model from its configuration, in the dtype it will run in; loads nothing.
        make_inputs: (count, length) -> the inputs of the model's forward, on the CPU.
    """
    shapes = [(length, count) for length in lengths for count in counts]
    try:
        from backend.device.memory.trial_run import dry_run  # lazy: it imports torch

        weights_bytes, peaks = dry_run(make_model, make_inputs, shapes)
        by_length = {length: {count: peaks[length, count] for count in counts} for length in lengths}
        table = MemoryTable({length: Affine.through(line, safety=safety) for length, line in by_length.items()})
    except Exception as error:  # noqa: BLE001  # foreign model code, run on fake tensors
        log_event(_log, logging.INFO, "no dry run for this model", reason=repr(error))
        return None
    return Prediction(weights_bytes, table)


def why_not_fit(prediction: Prediction, free_bytes: int, length: int, count: int) -> str:
    """What the model and a batch of ``count`` x ``length`` need beyond ``free_bytes``; "" where they fit."""
    left = free_bytes - prediction.weights_bytes
    weights = f"the weights need {format_bytes(prediction.weights_bytes)}"
    if left < 0:
        return f"{weights}, {format_bytes(free_bytes)} is free: the model does not fit"
    batch = prediction.table.peak_bytes(length, count)
    return "" if batch is not None and batch <= left else f"{weights}; {advice(prediction.table, length, count, left)}"


def load_table(cache: TuningCache, key: str, free_bytes: int | None) -> MemoryTable | None:
    """The cached table; None when there is none, or when less memory is free than at its measurement.

    Args:
        key: ``fingerprint`` of model, dtype, attention, card and versions, each of which changes the peaks.
    """
    entry = cache.load(_KEY + key)
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
    cache: TuningCache, key: str, table: MemoryTable, free_bytes: int | None, *, caps: Mapping[int, int] | None = None
) -> None:
    """Cache a measured table, the memory that was free then, and the caps that ``AdaptiveCountLimit`` has set since."""
    rows = [[length, count] for length, count in sorted((caps or {}).items())]
    cache.save(_KEY + key, {"table": table.to_json(), "free_bytes": free_bytes, "caps": rows})


def load_caps(cache: TuningCache, key: str) -> dict[int, int]:
    """The caps cached with the table; empty where there are none or they are invalid."""
    rows = (cache.load(_KEY + key) or {}).get("caps")
    if not isinstance(rows, list):
        return {}
    return {
        row[0]: row[1]
        for row in rows
        if isinstance(row, list) and len(row) == 2 and all(type(value) is int and value >= 1 for value in row)
    }


def _fit(peaks: Mapping[int, int], safety: float) -> Affine:
    """The line of batches of several items, where two were measured; a lone item lies under it: it needs no mask."""
    several = {count: peak for count, peak in peaks.items() if count > 1}
    if len(several) < 2:
        return Affine.through(peaks, safety=safety)
    line = Affine.through(several, safety=safety)
    lone = math.ceil(peaks.get(1, 0) * safety)
    return line if line.peak_bytes(1) >= lone else Affine(lone - line.slope_bytes, line.slope_bytes)


def _peak(run: Callable[[int, int], object], meter: CudaMeter, count: int, length: int) -> int | None:
    """Peak bytes of one batch above the memory in use before; None when it ran out of memory."""
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


def _upper_bound(buckets: Mapping[int, Affine], peaks: Mapping[int, int], length: int, count: int) -> float:
    """An upper bound from smaller batches: linear in the count, quadratic in the length (attention)."""
    if peaks:
        largest = max(peaks)
        return peaks[largest] * count / largest * (_MASK_FACTOR if largest == 1 else 1)
    if not buckets:
        return 0.0  # the first batch is always run
    longest = max(buckets)
    return buckets[longest].peak_bytes(count) * (length / longest) ** 2
