"""Builds the classification of pages by their pictures from the settings: the image model, its lanes, the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

from backend.bootstrap.domains import Found, OwnModelDomain, Shared
from backend.bootstrap.models import NO_MODEL
from backend.config import Settings
from backend.device.records import DeviceType
from backend.errors import HubUnreachable, ModelUnavailable
from backend.images.classification import ImageClassificationService
from backend.images.engine import (
    TASK,
    ImageClassifier,
    ImageEngine,
    ImageEngines,
    LoadedImageModel,
    Logits,
    choose_arithmetic,
    load_again,
    load_classifier,
    no_fallback,
    page_cost,
)
from backend.images.model_files import ImageModelSpec, resolve_image_model
from backend.lanes.engine import Engine, Float32Encoder, Float32Fallback, Replicas, UnloadableEncoder
from backend.models.autotune import EncoderRequest
from backend.models.batch_limits import learnt_batch_limits
from backend.serving.loading import LoadContext
from backend.telemetry import FALLBACK_OUTCOMES, OOM_ACTIONS, Telemetry, log_event

ImageDomain = OwnModelDomain[ImageClassificationService, ImageModelSpec, LoadedImageModel]
_log = logging.getLogger(__name__)
_UNSET = "IMAGE_MODEL is not set"


def find_image_model(settings: Settings, context: LoadContext) -> Found[LoadedImageModel]:
    """The model that IMAGE_MODEL names, loaded. Where the hub cannot be reached the rest serves without it.

    Raises: ModelUnavailable for one that was set and cannot be had, or is of another kind.
    """
    source = settings.image_model
    if source in ("", NO_MODEL):
        return Found(None, _UNSET)
    try:
        return Found(load_image_model(settings, context, resolve_image_model(source)))
    except HubUnreachable as error:
        log_event(_log, logging.WARNING, "no image model yet", why=error)
        return Found(None, f"IMAGE_MODEL: {error}", comes_later=True)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"IMAGE_MODEL: {error}") from error


def load_image_model(settings: Settings, context: LoadContext, spec: ImageModelSpec) -> LoadedImageModel:
    """Load a model onto every device, and run a batch of it, so that no early request waits. Seconds; on a thread.

    Raises: ModelUnavailable.
    """
    request = EncoderRequest(settings.precision, settings.runtime, settings.batch_tokens)
    first = context.placements[0]
    dtype = choose_arithmetic(spec, first, request, page_cost=1).dtype
    classifiers = [load_classifier(spec, dtype, placement) for placement in context.placements]
    cost = page_cost(spec, classifiers[0].parameters)
    choice = choose_arithmetic(spec, first, request, page_cost=cost)
    engines, residents = [], []
    for classifier, placement in zip(classifiers, context.placements, strict=True):
        exact = None if dtype == "fp32" else Float32Encoder(partial(load_again, spec, "fp32", placement))
        resident = UnloadableEncoder(
            classifier,
            partial(load_again, spec, dtype, placement),
            name=spec.name,
            device=placement.device,
            companions=() if exact is None else (exact.drop,),
        )
        residents.append(resident)
        recompute = no_fallback if exact is None else _in_float32(exact, context.telemetry)
        engines.append(ImageEngine(resident, choice.budget, learnt_batch_limits(placement), recompute))
    for engine in engines:
        _warm_up(engine, spec, choice.budget // cost)
    for why in choice.why:
        log_event(_log, logging.INFO, "image model loaded", why=why)
    engine_of_all: Engine = engines[0] if len(engines) == 1 else Replicas(engines)
    created_s = datetime.now(UTC).timestamp()
    return LoadedImageModel(spec, choice, first, engine_of_all, cost, tuple(residents), created_s)


def build_images(shared: Shared, found: Found[LoadedImageModel]) -> ImageDomain:
    """Classification on lanes that run already."""
    telemetry, source = shared.context.telemetry, shared.settings.image_model
    repository = source.partition("@")[0]
    pending = found.pending(TASK, source, tuple(dict.fromkeys((source, repository, repository.rpartition("/")[2]))))
    service = ImageClassificationService(
        shared.readers,
        None,
        shared.cache,
        telemetry,
        why_none=found.why_none,
        pending=pending,
        threads=shared.context.facts.cores + 2,
        idle_trim=shared.idle_trim,
    )
    _open_series(telemetry)
    telemetry.model_pending.labels(TASK).set_function(lambda: float(pending.of(TASK) is not None))

    def serve(model: LoadedImageModel) -> None:
        on_cpu = model.placement.type is DeviceType.CPU
        lanes = shared.page_lanes if on_cpu else shared.model_lanes
        shared.unloader.add(asyncio.get_running_loop(), model.residents)
        telemetry.model_info.labels(model.name, model.choice.runtime, model.choice.dtype, model.placement.device).set(1)
        service.serve(ImageEngines(model, lanes, "page lanes" if on_cpu else "model lanes"))

    if found.model is not None:
        serve(found.model)
    return OwnModelDomain(
        service,
        found,
        pending,
        resolve=resolve_image_model,
        load=partial(load_image_model, shared.settings, shared.context),
        serve=serve,
        models=partial(_rows, service),
        supervisor=shared.supervisor,
    )


def _rows(service: ImageClassificationService) -> list[dict[str, object]]:
    if service.engines is None:
        return []
    model = service.engines.model
    runs = {"runtime": model.choice.runtime, "dtype": model.choice.dtype, "is_loaded": model.is_loaded}
    return [{"name": model.name, "task": TASK, **runs}]


def _in_float32(exact: Float32Encoder[ImageClassifier], telemetry: Telemetry) -> Callable[[NDArray[np.uint8]], Logits]:
    """Computes a page alone."""
    fallback = Float32Fallback(exact, TASK, telemetry)
    return lambda page: fallback.again(lambda classifier: classifier.numbers(classifier.forward(page[None]))[0])


def _warm_up(engine: ImageEngine, spec: ImageModelSpec, pages: int) -> None:
    """A lone page, and a full batch: kernels are chosen by shape."""
    page = np.full((*spec.preprocessing.framing.size, 3), 255, np.uint8)
    for count in dict.fromkeys((1, pages)):
        engine.finish(engine.forward(engine.prepare([page] * count)))


def _open_series(telemetry: Telemetry) -> None:
    tasks: Sequence[str] = (TASK,)
    for series in ("inputs_total", "batch_duration_seconds", "nonfinite_outputs_total"):
        telemetry.open_series(series, tasks)
    telemetry.open_series("oom_recoveries_total", tasks, OOM_ACTIONS)
    telemetry.open_series("precision_fallbacks_total", tasks, FALLBACK_OUTCOMES)
