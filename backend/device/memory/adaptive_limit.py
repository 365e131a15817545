"""A limit on the items of a batch that adapts while serving: out-of-memory errors lower it, clean batches raise it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from backend.device.memory.memory_table import COUNT_MAX, LENGTHS, MemoryTable, bucket_of

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
            bucket = self._bucket(length)
            for capped, cap in list(self._caps.items()):
                if capped <= bucket and count * 2 >= int(cap.count):
                    self._recover(capped, cap)

    @property
    def caps(self) -> dict[int, int]:
        """The current caps by length bucket, to be saved for the next process; empty before the first error."""
        with self._lock:
            return {length: int(cap.count) for length, cap in sorted(self._caps.items())}

    @property
    def headroom_share(self) -> float:
        """The fraction of the headroom that batches may take; below 1 after thrashing."""
        with self._lock:
            return self._share

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
