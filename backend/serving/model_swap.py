"""Replaces the model that serves by another without downtime: loads it beside the old one, checks it, swaps.

Also lets models leave memory that nobody has used for `MODEL_KEEP_ALIVE_S`.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from backend.device.memory.device_memory import release
from backend.errors import FinanciaError, InvalidField, ModelUnavailable, SetupError, Unavailable
from backend.lanes.engine import UnloadableEncoder
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.answers import LABEL_TASK
from backend.serving.loading import LoadContext, ModelRequest, load_model
from backend.serving.pending_models import PendingModel
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger(__name__)
Load = Callable[[LoadContext, ModelRequest], LoadedModel]
_BY_FIRST_REQUEST = frozenset({LABEL_TASK})  # 80 MiB that few ask for, half a second of a core away


class ModelSwapper:
    """Loads and swaps models while the service runs. Belongs to the loop; the loading is done on a thread.

    The old model answers until the new one has computed a vector. Running requests keep the model they began with;
    it leaves memory when the last of them has ended. Both are in memory for a while.

    Args:
        requests: how each task's model was requested; a new one inherits precision, runtime and aliases.
        on_swap: called with the new model once it serves.
    """

    def __init__(
        self,
        context: LoadContext,
        catalog: Catalog,
        unloader: IdleUnloader,
        requests: Mapping[str, ModelRequest],
        *,
        load: Load = load_model,
        on_swap: Callable[[LoadedModel], None] = lambda _model: None,
    ) -> None:
        self._context, self._catalog, self._unloader = context, catalog, unloader
        self._requests, self._load, self._on_swap = requests, load, on_swap
        self._lock = asyncio.Lock()
        self._announce: Callable[[], Awaitable[None]] | None = None

    def announce_to(self, announce: Callable[[], Awaitable[None]]) -> None:
        """Have ``announce`` tell other processes of each swap; a call here returns when it has."""
        self._announce = announce

    async def load(
        self, source: str, task: str, *, check: Callable[[LoadedModel], None] = lambda _model: None
    ) -> LoadedModel:
        """Serve the model at ``source`` ("bundled", a folder or a hub id) for ``task`` until the next start.

        Args:
            check: raises ModelUnavailable for a model that must not serve.

        Raises: InvalidField with the reason when it cannot be loaded or its first output is not finite; then the old
            model stays.
        """
        async with self._lock:  # one at a time: each may need seconds of every core and memory for two models
            try:
                model = await asyncio.to_thread(self._load_and_check, source, task, check)
            except SetupError as error:
                raise InvalidField(f"source: {error}", param="source") from error
            await self._swap(model)
            return model

    async def fulfil(self, pending: PendingModel) -> None:
        """Serve a model that was pending, unless another was loaded for its task meanwhile.

        Raises: ModelUnavailable as at the start, also when its first output is not finite; then it stays pending.
        """
        async with self._lock:
            if self._catalog.pending.of(pending.task) is pending:
                await self._swap(await asyncio.to_thread(self._load_and_check, pending.source, pending.task))

    async def finish_start(self) -> None:
        """Load the models of the start that come later, and warm them up; some come with the first request for them.

        One that cannot be loaded in the way that was known or kept is loaded in the next way that works, and then all
        are loaded: what fails for one may fail for others.
        """
        waits = True
        for model in sorted(self._catalog.models(), key=lambda model: model.task in _BY_FIRST_REQUEST):
            if model.after_start is None or (waits and model.task in _BY_FIRST_REQUEST):
                continue
            try:
                await asyncio.to_thread(model.after_start.warm_up)
            except Unavailable as error:
                waits = False
                log_event(_log, logging.WARNING, "loading a model in another way", task=model.task, reason=error)
                await self._serve_anew(model)

    async def adopt_measured(self, model: LoadedModel) -> None:
        """Serve a model as it was measured since, unless another serves by now; in memory only where it was before."""
        assert model.after_start is not None
        choice = await asyncio.to_thread(model.after_start.measured)
        if choice is None:
            return
        log_event(_log, logging.INFO, "model measured", task=model.task, why="; ".join(choice.why))
        if (choice.candidate, choice.budget) != (model.choice.candidate, model.choice.budget):
            new = await self._serve_anew(model)
            for resident in new.residents if new is not None and not model.is_loaded else ():
                await asyncio.to_thread(_unload, resident)
        elif self._catalog.of(model.task) is model:
            self._catalog.replace(replace(model, choice=choice, after_start=None))

    async def _serve_anew(self, model: LoadedModel) -> LoadedModel | None:
        """Serve the same model by what is known by now; None where another serves, or its files were replaced."""
        assert model.after_start is not None
        async with self._lock:
            if self._catalog.of(model.task) is not model:
                return None
            new = await asyncio.to_thread(self._checked, model.after_start.load)
            if new.spec.fingerprint != model.spec.fingerprint:
                return None
            await self._swap(new)
            return new

    def _load_and_check(
        self, source: str, task: str, check: Callable[[LoadedModel], None] = lambda _model: None
    ) -> LoadedModel:
        return self._checked(partial(self._load, self._context, replace(self._requests[task], source=source)), check)

    def _checked(
        self, load: Callable[[], LoadedModel], check: Callable[[LoadedModel], None] = lambda _model: None
    ) -> LoadedModel:
        model = load()
        check(model)
        if model.after_start is not None:
            model.after_start.warm_up()
        outputs = [_first_output(model, device_index) for device_index in range(len(self._context.placements))]
        if any(isinstance(output, FinanciaError) or not np.isfinite(output).all() for output in outputs):
            raise ModelUnavailable(f"{model.name} was loaded, but its first output is not finite")
        return model

    async def _swap(self, model: LoadedModel) -> None:
        old = self._catalog.replace(model)
        residents = old.residents if old else ()
        self._unloader.remove(residents)
        self._unloader.add(asyncio.get_running_loop(), model.residents)
        for resident in residents:  # after its last user, on whichever thread that is
            weakref.finalize(resident, release, resident.device)
        show_model(self._context.telemetry, model, old)
        old_name = old.name if old else "none"
        self._on_swap(model)
        if self._announce is not None:
            await self._announce()
        log_event(_log, logging.INFO, "model swapped", task=model.task, old=old_name, new=model.name)


def show_model(telemetry: Telemetry, model: LoadedModel, old: LoadedModel | None = None) -> None:
    """Set the metric of the model that serves, and clear that of the one before."""
    if old is not None:
        telemetry.model_info.labels(old.name, old.runtime, old.dtype, old.device).set(0)
    telemetry.model_info.labels(model.name, model.runtime, model.dtype, model.device).set(1)


def _first_output(model: LoadedModel, device_index: int) -> np.ndarray | FinanciaError:
    engine = model.engine.on(device_index)
    ids = model.tokenizer.encode(["canary"])[0].ids
    output: np.ndarray | FinanciaError = engine.finish(engine.forward(engine.prepare([ids])))[0]
    return output


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
