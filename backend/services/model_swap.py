"""Another model in place of the one that serves, without a request that notices: loaded beside it, proved, swapped."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from backend.device.memory.release import release
from backend.errors import FinanciaError, InvalidField, SetupError
from backend.services.catalog import Catalog, LoadedModel
from backend.services.idle_unload import KeepAlive
from backend.services.loading import Ground, ModelWish, load_model
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger(__name__)
Load = Callable[[Ground, ModelWish], LoadedModel]


def _nobody(_model: LoadedModel) -> None:
    """Told nobody."""


class HotLoader:
    """Loads and swaps models while the service runs. Belongs to the loop; the loading is done on a thread.

    The old model answers until the new one has computed a vector. Requests under way keep the model they began with;
    it leaves memory when the last of them has ended. Both are in memory for a while.

    Args:
        wished: how each task's model is asked for; a new one inherits precision, runtime and aliases.
        swapped: told of the new model once it serves.
    """

    def __init__(
        self,
        ground: Ground,
        catalog: Catalog,
        keep_alive: KeepAlive,
        wished: Mapping[str, ModelWish],
        *,
        load: Load = load_model,
        swapped: Callable[[LoadedModel], None] = _nobody,
    ) -> None:
        self._ground, self._catalog, self._keep_alive = ground, catalog, keep_alive
        self._wished, self._load, self._swapped = wished, load, swapped
        self._turn = asyncio.Lock()

    async def load(self, source: str, task: str) -> LoadedModel:
        """Serve the model at ``source`` ("bundled", a folder or a hub id) for ``task`` until the next start.

        Raises: InvalidField with the reason when it cannot be loaded or its first output is not finite; then the old
            model goes on.
        """
        async with self._turn:  # one at a time: each may need seconds of every core and room for two models
            model = await asyncio.to_thread(self._prove, source, task)
            self._swap(model)
            return model

    def _prove(self, source: str, task: str) -> LoadedModel:
        try:
            model = self._load(self._ground, replace(self._wished[task], source=source))
        except SetupError as error:
            raise InvalidField(f"source: {error}", param="source") from error
        outputs = [_output(model, device_index) for device_index in range(len(self._ground.placements))]
        faults = [one for one in outputs if isinstance(one, FinanciaError) or not np.isfinite(one).all()]
        if faults:
            raise InvalidField(f"source: {model.name} was loaded, but its first output is not finite", param="source")
        return model

    def _swap(self, model: LoadedModel) -> None:
        old = self._catalog.replace(model)
        residents = old.residents if old else ()
        self._keep_alive.forget(residents)
        self._keep_alive.watch(asyncio.get_running_loop(), model.residents)
        for resident in residents:  # once nobody holds it any more, on whichever thread lets go last
            weakref.finalize(resident, release, model.device)
        show_model(self._ground.telemetry, model, old)
        former = old.name if old else "none"
        self._swapped(model)
        log_event(_log, logging.INFO, "model swapped", task=model.task, old=former, new=model.name)


def show_model(telemetry: Telemetry, model: LoadedModel, old: LoadedModel | None = None) -> None:
    """Let the metrics say which model serves, and no longer which did."""
    if old is not None:
        telemetry.model_info.labels(old.name, old.runtime, old.dtype, old.device).set(0)
    telemetry.model_info.labels(model.name, model.runtime, model.dtype, model.device).set(1)


def _output(model: LoadedModel, device_index: int) -> np.ndarray | FinanciaError:
    engine = model.engine.on(device_index)
    ids = model.tokenizer.encode(["canary"])[0].ids
    output: np.ndarray | FinanciaError = engine.finish(engine.forward(engine.prepare([ids])))[0]
    return output
