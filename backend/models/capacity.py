"""What of an encoder's work fits a device's memory: measured by two probes a length, kept, learnt while serving."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from backend.device.facts.torch_source import Torch
from backend.device.measurements import TunedSettings, fingerprint
from backend.device.memory.adaptive_limit import LearntLimits
from backend.device.memory.device_memory import headroom_bytes
from backend.device.memory.memory_table import COUNT_MAX, MemoryTable, lengths_to
from backend.device.memory.probe import CudaMeter, load_caps, load_table, measure, save_table
from backend.device.memory.release import release
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType, Platform
from backend.errors import DoesNotFit, ModelUnavailable
from backend.models.autotune import Choice
from backend.models.encoder import Encoder
from backend.models.runtimes import versions
from backend.models.spec import ModelSpec, Pooling
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_PLENTY = 1 << 62
_DRIVER_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Glance:
    """The device's memory at one moment."""

    headroom_bytes: int  # for the next batch
    retries: int = 0  # times the allocator had to flush its cache, since the start


class LearntRoom:
    """An engine's room on one device: what was measured, less what went wrong lately. Any thread.

    Args:
        glance: a look at the device's memory; on the lane, once a batch.
        keep: told what was learnt after each miss, so that the next process need not learn it again.
    """

    def __init__(
        self,
        limits: LearntLimits,
        device: str,
        glance: Callable[[], Glance],
        table: MemoryTable | None = None,
        keep: Callable[[Mapping[int, int]], None] | None = None,
    ) -> None:
        self._limits, self._device, self._glance, self._table, self._keep = limits, device, glance, table, keep
        self._retries = glance().retries

    def capacity(self) -> Callable[[int], int]:
        """Longest payload's tokens -> payloads that fit now."""
        if self._table is None and not self._limits.caps:  # nothing limits, and nothing need be asked a job
            return _any_number
        return partial(self._limits.most, headroom_bytes=self._glance().headroom_bytes)

    def missed(self, longest: int, count: int) -> None:
        """Lower the limit and give back what is cached, so that the halves find room."""
        self._limits.missed(longest, count)
        release(self._device)
        if self._keep is not None:
            self._keep(self._limits.caps)

    def succeeded(self, longest: int, count: int) -> None:
        """Recover slowly; a batch for which the allocator had to flush its cache is a warning instead."""
        retries = self._glance().retries
        if retries > self._retries:
            self._retries = retries
            self._limits.retried()
        else:
            self._limits.succeeded(longest, count)

    def batch_bytes(self, budget: int, longest: int) -> int | None:
        """Peak of a full batch of the longest payloads, as the table has it."""
        return None if self._table is None else self._table.peak_bytes(longest, max(1, budget // longest))


def learn_room(
    encoder: Encoder, spec: ModelSpec, choice: Choice, placement: Placement, *, kept: TunedSettings, platform: Platform
) -> LearntRoom:
    """The encoder's room on a placement. On a CUDA card without a kept table two batches a length are run and measured.

    Elsewhere nothing tells a batch's peak: there only misses limit.

    Raises: ModelUnavailable when not even one short text fits beside the weights.
    """
    if placement.type is not DeviceType.CUDA:
        return LearntRoom(LearntLimits(None), placement.device, _plenty)
    glance = CardGlance(placement)
    key = _key(spec, choice, placement)
    free_bytes = glance().headroom_bytes
    table = load_table(kept, key, free_bytes)
    caps = {} if table is None else load_caps(kept, key)
    if table is None:
        table = _measured(encoder, spec, placement, limit_bytes=free_bytes if platform.wsl else None)
        save_table(kept, key, table, free_bytes)
    keep = partial(_keep, kept, key, table, free_bytes)
    return LearntRoom(LearntLimits(table, caps=caps), placement.device, glance, table, keep)


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


def _keep(kept: TunedSettings, key: str, table: MemoryTable, free_bytes: int, caps: Mapping[int, int]) -> None:
    save_table(kept, key, table, free_bytes, caps=caps)


def _measured(encoder: Encoder, spec: ModelSpec, placement: Placement, *, limit_bytes: int | None) -> MemoryTable:
    log_event(_log, logging.INFO, "measuring the memory of batches, once for this model and card", model=spec.name)

    def run(count: int, length: int) -> None:
        batch = encoder.prepare([np.ones(length, np.int64)] * count)
        encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN)

    try:
        table = measure(run, CudaMeter(placement.device), lengths_to(spec.max_tokens), limit_bytes=limit_bytes)
    except DoesNotFit as error:
        raise ModelUnavailable(f"{spec.name}: {error}") from error
    release(placement.device)
    return table


def _any_number(_longest: int) -> int:
    return COUNT_MAX


def _plenty() -> Glance:
    return Glance(_PLENTY)


class CardGlance:
    """Looks at one CUDA card: the allocator's books each time, the driver's once a second, for it costs a millisecond.

    Between two looks at the driver what is free there and what our allocator holds change places; their sum changes
    only with the neighbours.
    """

    def __init__(self, placement: Placement, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._placement, self._clock = placement, clock
        self._torch = Torch()
        self._ours_bytes = 0  # free at the driver, or held by our allocator
        self._looked_s = -math.inf

    def __call__(self) -> Glance:
        """The card now."""
        device, now_s = self._placement.device, self._clock()
        stats = self._torch.allocator(device)
        if now_s - self._looked_s > _DRIVER_EVERY_S:
            self._ours_bytes, self._looked_s = _free_bytes(device) + stats.reserved_bytes, now_s
        free_bytes = self._ours_bytes - stats.reserved_bytes
        return Glance(headroom_bytes(stats, free_bytes, self._placement.memory_bytes), stats.retries)


def _free_bytes(device: str) -> int:
    import torch  # a CUDA placement has imported it already

    return int(torch.cuda.mem_get_info(device)[0])
