"""Liveness and readiness: whether the service can answer now, proved by a batch on the device."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from backend.errors import FinanciaError
from backend.lanes.batcher import Batcher, BatcherStatus
from backend.lanes.cache.store import VectorCache
from backend.lanes.inference import Urgency, run_one
from backend.serving.catalog import Catalog

FRESH_S = 10.0  # a batch that succeeded this lately proves the device; else a probe runs
PROBE_S = 5.0  # time for the probe, which waits behind whatever is queued
HUNG_S = 60.0  # one batch on a lane for longer than this is a hang


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests would be answered, and if not, why."""

    ready: bool
    reasons: tuple[str, ...] = ()


class HealthService:
    """Readiness and reports. Belongs to the loop's thread.

    Args:
        gpu: the typed answer of GET /metrics/gpu: the same shape with and without a GPU.
        measuring: what serves by what is known of its kind until it is measured here.
        others: those that the catalog does not hold, as `report` has them.
    """

    def __init__(
        self,
        catalog: Catalog,
        batcher: Batcher,
        cache: VectorCache,
        gpu: Callable[[], dict[str, Any]],
        *,
        degraded: Callable[[], Sequence[str]] = tuple,
        measuring: Callable[[], Sequence[str]] = tuple,
        others: Callable[[], Sequence[dict[str, object]]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog, self._batcher, self._cache, self._clock = catalog, batcher, cache, clock
        self.gpu, self._degraded, self._others = gpu, degraded, others
        self._measuring = measuring
        self._watched: list[Callable[[], Sequence[str]]] = []
        self._probe: asyncio.Task[str] | None = None
        self._probe_fault = ""  # of the last probe, and when it ended
        self._probe_ended_s = -math.inf

    async def ready(self) -> Readiness:
        """Ready while lanes live and a batch succeeded lately or a probe succeeds now.

        An idle model that was unloaded is not probed: that would load it again.
        """
        status = self._batcher.status()
        faults = _faults(status)
        if not self._catalog.embedding().is_loaded:
            return Readiness(not faults, tuple(faults))
        if not faults and (status.last_batch_age_s is None or status.last_batch_age_s > FRESH_S):
            faults = [fault for fault in [await self._shared_probe()] if fault]
        return Readiness(not faults, tuple(faults))

    def known_ready(self) -> bool:
        """Readiness without a probe, for the metrics; safe on any thread.

        True while lanes live, and the last probe did not fail or a batch has succeeded since.
        """
        status = self._batcher.status()
        probe_age_s = self._clock() - self._probe_ended_s
        proved = status.last_batch_age_s is not None and status.last_batch_age_s < probe_age_s
        return not _faults(status) and (proved or not self._probe_fault)

    def watch(self, degraded: Callable[[], Sequence[str]]) -> None:
        """Tell also of what ``degraded`` names."""
        self._watched.append(degraded)

    def degraded(self) -> list[str]:
        """A sentence about each part that fails without making the service unready; pending models are among them."""
        watched = [sentence for degraded in self._watched for sentence in degraded()]
        return [*self._catalog.pending.sentences(), *self._degraded(), *watched]

    def report(self) -> dict[str, object]:
        """Models, device, lanes and cache, and what is degraded, for people and dashboards."""
        model = self._catalog.embedding()
        return {
            "models": [
                *(
                    {
                        "name": loaded.name,
                        "task": loaded.task,
                        "runtime": loaded.runtime,
                        "dtype": loaded.dtype,
                        "is_loaded": loaded.is_loaded,
                    }
                    for loaded in self._catalog.models()
                ),
                *self._others(),
            ],
            "device": {"device": model.device, "lanes": model.placement.lanes, "reason": model.placement.why[0]},
            "lanes": asdict(self._batcher.status()),
            "cache": asdict(self._cache.status()),
            "degraded": self.degraded(),
            "measuring": list(self._measuring()),
        }

    def lanes(self) -> BatcherStatus:
        """What waits and what runs."""
        return self._batcher.status()

    async def _shared_probe(self) -> str:
        """One probe at a time, shared by all requests meanwhile; why it failed, or ""."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._run_probe())
        return await asyncio.shield(self._probe)

    async def _run_probe(self) -> str:
        self._probe_fault = await self._embed_probe()
        self._probe_ended_s = self._clock()
        return self._probe_fault

    async def _embed_probe(self) -> str:
        model = self._catalog.embedding()
        tokens = model.tokenizer.encode(["canary"])[0]
        try:
            urgency = Urgency(deadline_s=self._clock() + PROBE_S)
            vector = await run_one(self._batcher, model.engine, tokens.ids, len(tokens.ids), urgency)
        except FinanciaError as error:
            return f"the device did not answer a probe: {error}"
        return "" if np.isfinite(vector).all() else "the device answered a probe with numbers that are not finite"


def _faults(status: BatcherStatus) -> list[str]:
    if status.device_fault:
        return [status.device_fault]
    faults = []
    if not status.lanes_alive:
        faults.append(f"none of {status.lanes} lanes is alive")
    if status.running_s > HUNG_S and math.isfinite(status.running_s):
        faults.append(f"a lane has run one batch for {status.running_s:.0f} s")
    return faults
