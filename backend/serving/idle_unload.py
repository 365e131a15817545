"""Unloads models that have not been used for a while. One timer a model; no polling."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from backend.device.memory.release import release
from backend.models.encoder_source import UnloadableEncoder
from backend.supervision import Supervisor
from backend.telemetry import Telemetry


class IdleUnloader:
    """Unloads idle models, and keeps the gauge of loaded ones. Belongs to the loop; models load on other threads.

    Args:
        keep_alive_s: idle time after which a model is unloaded, and the memory of its device released; None never
            unloads. A model on several devices leaves each one when it has been idle there.
    """

    def __init__(self, keep_alive_s: float | None, telemetry: Telemetry, supervisor: Supervisor | None = None) -> None:
        self._keep_alive_s = keep_alive_s
        self._telemetry, self._supervisor = telemetry, supervisor or Supervisor(telemetry)
        self._watched: set[UnloadableEncoder] = set()
        self._timers: dict[UnloadableEncoder, asyncio.TimerHandle] = {}
        self._unloading: set[asyncio.Task[None]] = set()

    def add(self, loop: asyncio.AbstractEventLoop, residents: Sequence[UnloadableEncoder]) -> None:
        """Count and unload these from now on; time before the call does not count as idle."""
        for resident in residents:
            self._watched.add(resident)
            self._count(resident, loaded=resident.is_loaded)
            resident.changed = partial(self._on_change, loop, resident)
            self._set_timer(loop, resident, idle_s=0.0)

    def remove(self, residents: Sequence[UnloadableEncoder]) -> None:
        """Stop watching these: another model has taken their place."""
        for resident in residents:
            self._watched.discard(resident)
            self._telemetry.model_loaded.labels(resident.name).set(0)
            if (timer := self._timers.pop(resident, None)) is not None:
                timer.cancel()

    async def unload_idle(self, least_idle_s: float) -> None:
        """Unload the models that nobody has used for so long, whatever MODEL_KEEP_ALIVE_S says."""
        for resident in tuple(self._watched):
            if resident.is_loaded and resident.idle_s >= least_idle_s:
                await asyncio.to_thread(_unload, resident)

    def stop(self) -> None:
        """Cancel the timers; what is loaded stays."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._watched.clear()

    def _on_change(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder, loaded: bool) -> None:
        self._count(resident, loaded=loaded)
        if loaded and not loop.is_closed():
            loop.call_soon_threadsafe(self._reset_timer, loop, resident)

    def _count(self, resident: UnloadableEncoder, *, loaded: bool) -> None:
        anywhere = loaded or any(other.is_loaded for other in tuple(self._watched) if other.name == resident.name)
        self._telemetry.model_loaded.labels(resident.name).set(anywhere)
        self._telemetry.model_loads_total.labels(resident.name).inc(loaded)

    def _reset_timer(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder) -> None:
        self._set_timer(loop, resident, resident.idle_s)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder, idle_s: float) -> None:
        if self._keep_alive_s is None or resident not in self._watched:
            return
        delay_s = max(0.0, self._keep_alive_s - idle_s)
        self._timers[resident] = loop.call_later(delay_s, self._check, loop, resident)

    def _check(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder) -> None:
        if self._keep_alive_s is not None and resident.idle_s < self._keep_alive_s:
            self._reset_timer(loop, resident)  # it was used meanwhile
            return
        task = self._supervisor.run("unload_idle", partial(self._unload, loop, resident))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _unload(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder) -> None:
        try:
            await asyncio.to_thread(_unload, resident)
        except Exception:
            self._set_timer(loop, resident, idle_s=0.0)  # a model that could not leave memory is tried again
            raise


def _unload(resident: UnloadableEncoder) -> None:
    if resident.unload():
        release(resident.device)
