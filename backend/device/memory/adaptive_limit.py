"""How many items a batch may hold, learnt while serving: every miss lowers it, clean batches recover it slowly."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from backend.device.memory.memory_table import COUNT_MAX, LENGTHS, MemoryTable, bucket_of

_SHRINK = 0.875  # on thrash: a step of timm's decay (utils/decay_batch.py); halving would waste half the card
_GROW = 1.125
_CLEAN_BATCHES = 64  # between two recoveries: a limit that is too high misses in under 2 % of the batches
_THRASHING_BATCHES = 2  # composer's signal; one retry alone is the cache being filled for the first time
_SHARE_MIN = 0.125  # of the headroom: thrash that goes on below an eighth has another cause


@dataclass(slots=True)
class _Cap:
    count: float  # most items of a batch; fractional so that an eighth of 3 adds up over time
    clean: int = 0  # batches since the last change that used at least half of it


class LearntLimits:
    """The limit on a batch's count, by length. Any thread may ask and tell.

    A miss is a matter of its length, so it halves that bucket; longer buckets follow, for longer items never need less.
    Thrash is a matter of the whole device, so it shrinks the share of the headroom that any batch may take. Both
    recover by an eighth after 64 clean batches. Only batches that used at least half of a cap prove anything about it.

    Args:
        table: what was measured; never exceeded. None where nothing was (a CPU): then only misses limit.
        caps: what an earlier process had learnt (its ``caps``).
    """

    def __init__(self, table: MemoryTable | None, *, caps: Mapping[int, int] | None = None) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._caps = {length: _Cap(count) for length, count in (caps or {}).items() if count >= 1}
        self._share, self._clean, self._retries = 1.0, 0, 0

    def most(self, length: int, headroom_bytes: int) -> int:
        """How many items padded to ``length`` a batch may hold now; at least 1, for a lone item is always tried.

        Args:
            headroom_bytes: free for this batch now (``memory.headroom_bytes``).
        """
        with self._lock:
            cap = min((cap.count for bucket, cap in self._caps.items() if bucket <= self._bucket(length)), default=None)
            share = self._share
        measured = COUNT_MAX if self._table is None else self._table.most(length, int(headroom_bytes * share))
        return max(1, measured if cap is None else min(measured, int(cap)))

    def missed(self, length: int, count: int) -> None:
        """A batch of ``count`` items padded to ``length`` ran out of memory: half as many from now on."""
        with self._lock:
            bucket = self._bucket(length)
            known = self._caps.get(bucket)
            half = min(count, known.count if known else count) / 2
            self._caps[bucket] = _Cap(max(1.0, half))
            self._clean = self._retries = 0

    def retried(self) -> None:
        """A batch ran, but only after the allocator had flushed its cache (num_alloc_retries grew).

        The second such batch in a row is thrash, and lowers the limits before anything has failed.
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
        """A batch of ``count`` items padded to ``length`` ran without a retry.

        What fits at this length fits at every shorter one.
        """
        with self._lock:
            self._retries = 0
            self._recover_share()
            bucket = self._bucket(length)
            for other, cap in list(self._caps.items()):
                if other <= bucket and count * 2 >= int(cap.count):
                    self._recover(other, cap)

    @property
    def caps(self) -> dict[int, int]:
        """The learnt limits by length bucket, where there are any: to be shown and kept."""
        with self._lock:
            return {length: int(cap.count) for length, cap in sorted(self._caps.items())}

    @property
    def headroom_share(self) -> float:
        """The part of the headroom that batches may take; under 1 after thrash."""
        with self._lock:
            return self._share

    def _bucket(self, length: int) -> int:
        lengths = LENGTHS if self._table is None else self._table.lengths
        return bucket_of(length, lengths) or 1 << (length - 1).bit_length()  # beyond the last: doubling goes on

    def _recover_share(self) -> None:
        if self._share < 1.0:
            self._clean += 1
            if self._clean >= _CLEAN_BATCHES:
                self._share, self._clean = min(1.0, self._share * _GROW), 0

    def _recover(self, bucket: int, cap: _Cap) -> None:
        cap.clean += 1
        if cap.clean < _CLEAN_BATCHES:
            return
        # the eighth of a small cap is less than one item: one at a time then
        cap.count, cap.clean = max(cap.count * _GROW, cap.count + 1), 0
        if cap.count >= COUNT_MAX:
            del self._caps[bucket]
