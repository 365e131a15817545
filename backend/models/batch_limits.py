"""How many texts fit a device's memory at once: measured by two batches a length, kept, adapted while serving."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from backend.device.facts.torch_source import Torch
from backend.device.memory.device_memory import headroom_bytes, release
from backend.device.memory.memory_table import COUNT_MAX, LENGTHS, MemoryTable, bucket_of, lengths_to
from backend.device.memory.probe import CudaMeter, load_caps, load_table, measure, save_table
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType, Platform
from backend.device.tuning_cache import TuningCache, fingerprint
from backend.errors import DoesNotFit, ModelUnavailable
from backend.models.autotune import Choice
from backend.models.encoder import Encoder, Ids
from backend.models.runtimes import versions
from backend.models.spec import ModelSpec, Pooling
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_UNLIMITED_BYTES = 1 << 62
_DRIVER_EVERY_S = 1.0
_SHRINK = 0.875  # on thrash: a step of timm's decay (utils/decay_batch.py); halving would waste half the card
_GROW = 1.125
_CLEAN_BATCHES = 64  # between two increases: a limit that is too high runs out of memory in under 2 % of the batches
_THRASHING_BATCHES = 2  # as MosaicML Composer detects thrashing; a single retry is the cache filling for the first time
_SHARE_MIN = 0.125  # of the headroom: thrashing that continues below an eighth has another cause


@dataclass(slots=True)
class _Cap:
    count: float  # most items of a batch; fractional so that an eighth of 3 adds up over time
    clean: int = 0  # batches since the last change that used at least half of the cap


class AdaptiveCountLimit:
    """The largest count of items in a batch, by length. Thread-safe.

    An out-of-memory error halves the cap of its length bucket; longer buckets follow, because longer items never need
    less. Thrashing concerns the whole device: it shrinks the share of the headroom that any batch may take. Both
    recover by an eighth after 64 clean batches. A batch counts for a cap only if it used at least half of it.

    Args:
        table: the measured memory of batches, never exceeded. None where nothing was measured (a CPU): then only
            out-of-memory errors limit.
        caps: the ``caps`` of an earlier process.
    """

    def __init__(self, table: MemoryTable | None, *, caps: Mapping[int, int] | None = None) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._caps = {length: _Cap(count) for length, count in (caps or {}).items() if count >= 1}
        self._share, self._clean, self._retries = 1.0, 0, 0

    def max_count(self, length: int, headroom_bytes: int) -> int:
        """How many items padded to ``length`` a batch may hold now; at least 1: a lone item is always tried.

        Args:
            headroom_bytes: free for this batch now (``device_memory.headroom_bytes``).
        """
        with self._lock:
            cap = min((cap.count for bucket, cap in self._caps.items() if bucket <= self._bucket(length)), default=None)
            share = self._share
        measured = COUNT_MAX if self._table is None else self._table.max_count(length, int(headroom_bytes * share))
        return max(1, measured if cap is None else min(measured, int(cap)))

    def out_of_memory(self, length: int, count: int) -> None:
        """Halve the limit: a batch of ``count`` items padded to ``length`` ran out of memory."""
        with self._lock:
            bucket = self._bucket(length)
            cap = self._caps.get(bucket)
            half = min(count, cap.count if cap else count) / 2
            self._caps[bucket] = _Cap(max(1.0, half))
            self._clean = self._retries = 0

    def retried(self) -> None:
        """Report a batch that ran only after the allocator had flushed its cache (num_alloc_retries grew).

        The second such batch in a row is thrashing and lowers the limits before a batch fails.
        """
        with self._lock:
            self._retries += 1
            if self._retries < _THRASHING_BATCHES:
                return
            self._retries = self._clean = 0
            self._share = max(_SHARE_MIN, self._share * _SHRINK)
            for cap in self._caps.values():
                cap.count, cap.clean = max(1.0, cap.count * _SHRINK), 0

    def succeeded(self, length: int, count: int) -> None:
        """Report a batch of ``count`` items padded to ``length`` that ran without a retry.

        Counts for every shorter length too.
        """
        with self._lock:
            self._retries = 0
            self._recover_share()
            if not self._caps:
                return
            bucket = self._bucket(length)
            for capped, cap in list(self._caps.items()):
                if capped <= bucket and count * 2 >= int(cap.count):
                    self._recover(capped, cap)

    @property
    def caps(self) -> dict[int, int]:
        """The current caps by length bucket, to be saved for the next process; empty before the first error."""
        with self._lock:
            return {length: int(cap.count) for length, cap in sorted(self._caps.items())}

    def _bucket(self, length: int) -> int:
        lengths = LENGTHS if self._table is None else self._table.lengths
        return bucket_of(length, lengths) or 1 << (length - 1).bit_length()  # beyond the last bucket: powers of two

    def _recover_share(self) -> None:
        if self._share < 1.0:
            self._clean += 1
            if self._clean >= _CLEAN_BATCHES:
                self._share, self._clean = min(1.0, self._share * _GROW), 0

    def _recover(self, bucket: int, cap: _Cap) -> None:
        cap.clean += 1
        if cap.clean < _CLEAN_BATCHES:
            return
        # an eighth of a small cap is less than one item: then grow by one
        cap.count, cap.clean = max(cap.count * _GROW, cap.count + 1), 0
        if cap.count >= COUNT_MAX:
            del self._caps[bucket]


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """The device's memory at one moment."""

    headroom_bytes: int  # for the next batch
    retries: int = 0  # times the allocator had to flush its cache, since the start


class AdaptiveBatchLimits:
    """An engine's ``BatchLimits`` on one device: the measured table, lowered after out-of-memory errors. Any thread.

    Args:
        snapshot: reads the device's memory; called on the lane, once a batch.
        save_caps: called with the lowered limits after each out-of-memory error, so that the next process starts with
            them.
    """

    def __init__(
        self,
        limits: AdaptiveCountLimit,
        device: str,
        snapshot: Callable[[], MemorySnapshot],
        table: MemoryTable | None = None,
        save_caps: Callable[[Mapping[int, int]], None] | None = None,
    ) -> None:
        self._limits, self._device, self._snapshot, self._table = limits, device, snapshot, table
        self._save_caps = save_caps
        self._retries = snapshot().retries

    def capacity(self) -> Callable[[int], int]:
        """Longest payload's tokens -> payloads that fit now."""
        if self._table is None and not self._limits.caps:  # no limit: spare the snapshot
            return lambda _longest: COUNT_MAX
        return partial(self._limits.max_count, headroom_bytes=self._snapshot().headroom_bytes)

    def out_of_memory(self, longest: int, count: int) -> None:
        """Lower the limit and release cached memory, so that the batch's halves fit."""
        self._limits.out_of_memory(longest, count)
        release(self._device)
        if self._save_caps is not None:
            self._save_caps(self._limits.caps)

    def succeeded(self, longest: int, count: int) -> None:
        """Raise a lowered limit slowly; a batch for which the allocator had to flush its cache lowers it instead."""
        retries = self._snapshot().retries
        if retries > self._retries:
            self._retries = retries
            self._limits.retried()
        else:
            self._limits.succeeded(longest, count)

    def batch_bytes(self, budget: int, longest: int) -> int | None:
        """Peak of a full batch of the longest payloads by the table; None without one."""
        return None if self._table is None else self._table.peak_bytes(longest, max(1, budget // longest))


def measure_batch_limits(
    encoder: Encoder, spec: ModelSpec, choice: Choice, placement: Placement, *, kept: TuningCache, platform: Platform
) -> AdaptiveBatchLimits:
    """The encoder's limits on a placement. On a CUDA card without a kept table, two batches a length are measured.

    Other devices do not report a batch's peak: only out-of-memory errors limit batches there.

    Raises: ModelUnavailable when not even one short text fits beside the weights.
    """
    if placement.type is not DeviceType.CUDA:
        return AdaptiveBatchLimits(AdaptiveCountLimit(None), placement.device, _unlimited)
    snapshot = CudaMemory(placement)
    key = _key(spec, choice, placement)
    free_bytes = snapshot().headroom_bytes
    table = load_table(kept, key, free_bytes)
    caps = {} if table is None else load_caps(kept, key)
    if table is None:
        table = _measured(encoder, spec, placement, limit_bytes=free_bytes if platform.wsl else None)
        save_table(kept, key, table, free_bytes)

    def save_caps(caps: Mapping[int, int]) -> None:
        save_table(kept, key, table, free_bytes, caps=caps)

    return AdaptiveBatchLimits(AdaptiveCountLimit(table, caps=caps), placement.device, snapshot, table, save_caps)


def learnt_batch_limits(placement: Placement) -> AdaptiveBatchLimits:
    """Limits that nothing measured: only batches that ran out of memory lower them."""
    snapshot = CudaMemory(placement) if placement.type is DeviceType.CUDA else _unlimited
    return AdaptiveBatchLimits(AdaptiveCountLimit(None), placement.device, snapshot)


def _key(spec: ModelSpec, choice: Choice, placement: Placement) -> str:
    return fingerprint(
        {
            "memory of": spec.sha256,
            "arithmetic": (choice.runtime, choice.dtype),
            "card": placement.uuid,
            "ceiling": placement.memory_bytes,
            "versions": versions(),
        }
    )


def _measured(encoder: Encoder, spec: ModelSpec, placement: Placement, *, limit_bytes: int | None) -> MemoryTable:
    log_event(_log, logging.INFO, "measuring the memory of batches, once for this model and card", model=spec.name)

    def run(count: int, length: int) -> None:
        batch = encoder.prepare(probe_batch(count, length))
        encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN)  # not by a graph, whose memory is there already

    try:
        table = measure(run, CudaMeter(placement.device), lengths_to(spec.max_tokens), limit_bytes=limit_bytes)
    except DoesNotFit as error:
        raise ModelUnavailable(f"{spec.name}: {error}") from error
    release(placement.device)
    return table


def probe_batch(count: int, length: int) -> list[Ids]:
    """``count`` texts, the longest of ``length`` tokens and the others shorter, as texts are.

    Equal lengths would need no mask, and with one attention runs in another kernel that takes more: at 8,192 tokens 1.8
    times the memory.
    """
    return [np.ones(length, np.int64), *(np.ones(max(1, length - 1), np.int64) for _ in range(count - 1))]


def _unlimited() -> MemorySnapshot:
    return MemorySnapshot(_UNLIMITED_BYTES)


class CudaMemory:
    """Reads one CUDA card's memory: the allocator's counters each time, the driver's once a second (it costs 1 ms).

    Between two reads of the driver, what is free there and what our allocator holds change places; their sum changes
    only with other processes on the card.
    """

    def __init__(self, placement: Placement, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._placement, self._clock = placement, clock
        self._torch = Torch()
        self._available_bytes = 0  # free at the driver, or held by our allocator
        self._driver_read_s = -math.inf

    def __call__(self) -> MemorySnapshot:
        """The card now."""
        device, now_s = self._placement.device, self._clock()
        stats = self._torch.allocator(device)
        if now_s - self._driver_read_s > _DRIVER_EVERY_S:
            self._available_bytes, self._driver_read_s = _free_bytes(device) + stats.reserved_bytes, now_s
        free_bytes = self._available_bytes - stats.reserved_bytes
        # Vectors of search are allocated too, at most `vector_bytes`: what models were promised is left to them.
        return MemorySnapshot(headroom_bytes(stats, free_bytes, self._ceiling_bytes(stats.fraction)), stats.retries)

    def _ceiling_bytes(self, fraction: float | None) -> int:
        """The placement's, or what torch was left of it: OCR on the same card takes a part that torch never sees."""
        ceiling_bytes = self._placement.process_bytes
        if fraction is None:
            return ceiling_bytes
        torch_bytes = int(fraction * _total_bytes(self._placement.device))
        return min(ceiling_bytes, torch_bytes) if ceiling_bytes else torch_bytes


def _total_bytes(device: str) -> int:
    import torch  # a CUDA placement has imported it already

    return int(torch.cuda.get_device_properties(device).total_memory)


def _free_bytes(device: str) -> int:
    import torch  # a CUDA placement has imported it already

    return int(torch.cuda.mem_get_info(device)[0])
