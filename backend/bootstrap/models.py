"""From settings to loaded models: chooses the devices, sets their memory ceilings, loads models and classifiers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from backend.config import Settings
from backend.device import default_device
from backend.device.choice.saved_choice import CHOICE_FILE, ChoiceFile, SavedChoice
from backend.device.choice.selection import DeviceRequest, is_ambiguous, wants_gpu
from backend.device.facts.machine import probe
from backend.device.facts.torch_source import installed_build
from backend.device.memory.device_memory import apply_ceiling
from backend.device.plan.placement import EVENT, place_all, start_line, with_vectors
from backend.device.records import DeviceType, DriverSource, MachineFacts
from backend.device.tuning_cache import TuningCache
from backend.errors import HubUnreachable, ModelUnavailable
from backend.models.autotune import EncoderRequest
from backend.models.classifier_head import CONFIG as HEAD_CONFIG
from backend.models.model_files import BUNDLED, BUNDLED_SOURCES
from backend.replicas.rollout import Target
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.answers import LABEL_TASK
from backend.serving.engines.answers import TASK as ANSWERS
from backend.serving.engines.generation import TASK as SUMMARIES
from backend.serving.engines.heads import CLASSIFIER, EMBEDDINGS, NER, RERANKER
from backend.serving.loading import LoadContext, ModelRequest, load_model
from backend.serving.pending_models import PendingModel, PendingModels
from backend.telemetry import Telemetry, log_event
from backend.text.classifiers import ClassifierRegistry

_log = logging.getLogger(__name__)
# Source of each task's model; a task without one is served by the embedding model, or not at all.
PROFILES: Mapping[str, Mapping[str, str]] = {
    "bundled": {EMBEDDINGS: BUNDLED, NER: BUNDLED, ANSWERS: BUNDLED, LABEL_TASK: BUNDLED},
    "multilingual": {
        EMBEDDINGS: "sentence-transformers/paraphrase-multilingual-mpnet-base-v2",
        NER: "Davlan/xlm-roberta-base-ner-hrl",
        CLASSIFIER: "MoritzLaurer/multilingual-MiniLMv2-L6-mnli-xnli",
        ANSWERS: BUNDLED,
        LABEL_TASK: BUNDLED,
    },
}
NO_MODEL = "none"  # as a source: no model, not even the profile's
TUNING_FILE = "tuning.json"
MODELS_DIR = "models"  # bundled encoders, converted
AskForGpu = Callable[[MachineFacts, ChoiceFile], SavedChoice | None]


def choose_devices(
    settings: Settings,
    telemetry: Telemetry,
    driver: DriverSource,
    *,
    gpu: int | None = None,
    ask: AskForGpu | None = None,
) -> LoadContext:
    """Probe the machine, choose the devices, and set their memory ceilings.

    Raises: DeviceUnavailable when an explicitly requested device is not available.
    """
    request = device_request(settings, gpu=gpu)
    facts = probe(
        look_for_gpu=wants_gpu(request),
        driver=driver,
        visible=settings.cuda_visible_devices,
        order=settings.cuda_device_order,
    )
    file = ChoiceFile(settings.state_dir / CHOICE_FILE)
    saved = file.load()
    if ask is not None and saved is None and is_ambiguous(facts, request):
        saved = ask(facts, file)
    first, *others = place_all(facts, request, saved)
    if settings.search_url is None:  # vectors are searched here, not by a server
        first = with_vectors(first, settings.search_memory_bytes)
    placements = (first, *others)
    log_event(_log, logging.INFO, EVENT, **start_line(facts, placements, installed_build()))
    default_device.configure(facts, request, saved)  # gpu_toolkit and check-ups then resolve "auto" to the same device
    for placement in placements:
        _log_reasons("device chosen", placement.why, device=placement.device)
        if placement.type is not DeviceType.CPU:
            _log_reasons("memory ceiling", (apply_ceiling(placement.device, placement.process_bytes),))
    tuned = TuningCache(settings.state_dir / TUNING_FILE)
    return LoadContext(facts, placements, tuned, telemetry, settings.state_dir / MODELS_DIR)


def device_request(settings: Settings, *, gpu: int | None = None) -> DeviceRequest:
    """The settings that concern the device."""
    return DeviceRequest(
        settings.device, settings.use_gpu, settings.lanes, gpu=gpu, memory_fraction=settings.gpu_memory_fraction
    )


def model_requests(settings: Settings) -> dict[str, ModelRequest]:
    """The model to load for each task; one that is not configured has an empty source."""
    encoder_request = EncoderRequest(settings.precision, settings.runtime, settings.batch_tokens)
    sources = {
        EMBEDDINGS: settings.embedding_model,
        NER: settings.ner_model,
        CLASSIFIER: "" if _head_folder(settings) else settings.classifier_model,
        RERANKER: settings.reranker_model,
        ANSWERS: settings.answer_model,
        LABEL_TASK: settings.label_model,
        SUMMARIES: settings.summary_model,
    }
    profile = PROFILES[settings.model_profile]
    return {
        task: ModelRequest(
            profile.get(task, "") if source is None else _source(source),
            encoder_request,
            settings.model_aliases if task == EMBEDDINGS else (),
            task=task,
            is_optional=source is None and task != EMBEDDINGS,
        )
        for task, source in sources.items()
    }


def _source(source: str) -> str:
    return "" if source == NO_MODEL else source


def _head_folder(settings: Settings) -> Path | None:
    """CLASSIFIER_MODEL where it is a head on the embedding model's vectors, not a model."""
    folder = Path(settings.classifier_model or "").expanduser()
    return folder if settings.classifier_model and (folder / HEAD_CONFIG).is_file() else None


def read_classifiers(settings: Settings, catalog: Catalog) -> ClassifierRegistry:
    """The bundled heads and the configured one. Raises: ModelUnavailable."""
    configured = _head_folder(settings)
    registry = ClassifierRegistry(
        settings.state_dir,
        catalog.embedding().spec.identity,
        configured=() if configured is None else (configured,),
        is_encoder_pending=catalog.pending.of(EMBEDDINGS) is not None,
    )
    registry.start()
    return registry


def load_models(
    context: LoadContext, requests: Mapping[str, ModelRequest], targets: Mapping[str, Target] | None = None
) -> Catalog:
    """Load every configured model, one after the other: on an accelerator each may measure, and needs it to itself.

    One that the hub does not give for now is pending, and the bundled model of its task serves. An optional model, one
    that only the profile names, is left out with a warning where it cannot be loaded.

    Args:
        targets: models that all replicas shall serve, by task. One that cannot be loaded is left to `ModelRollout`, and
            the one that is set serves.

    Raises: ModelUnavailable.
    """
    models, pending = [], []
    for request in requests.values():
        wished = _load_wished(context, request, (targets or {}).get(request.task))
        if wished is not None:
            models.append(wished)
            continue
        if not request.source:
            continue
        try:
            later = request.task != EMBEDDINGS and request.source in BUNDLED_SOURCES  # whose files are sound
            models.append(load_model(context, request, later=later))
        except HubUnreachable as error:
            stand_in = _stand_in(context, request)
            models += [] if stand_in is None else [stand_in]
            pending.append(_pending(request, str(error), stand_in))
        except ModelUnavailable as error:
            if not request.is_optional:
                raise
            log_event(_log, logging.WARNING, "a model of the profile is left out", task=request.task, reason=error)
    for model in models:
        _log_reasons("model loaded", model.choice.why, model=model.name, task=model.task)
    return Catalog(*models, pending=PendingModels(pending))


def _load_wished(context: LoadContext, request: ModelRequest, target: Target | None) -> LoadedModel | None:
    """None where nothing else is wished than what is set, or it cannot be loaded."""
    if target is None or target.source == request.source or not target.applies_to(request.source):
        return None
    try:
        model = load_model(context, replace(request, source=target.source))
        target.check(model)
    except ModelUnavailable as error:
        log_event(_log, logging.WARNING, "a wished model could not be loaded", task=request.task, reason=error)
        return None
    log_event(_log, logging.INFO, "wished model loaded", task=request.task, source=target.source, set=request.source)
    return model


def _stand_in(context: LoadContext, request: ModelRequest) -> LoadedModel | None:
    """The bundled model of the task, under its own names only; None where there is none.

    Raises: ModelUnavailable where there must be one, as for embeddings.
    """
    source = PROFILES["bundled"].get(request.task)
    if source is None:
        return None
    try:
        return load_model(context, replace(request, source=source, aliases=()))
    except ModelUnavailable as error:
        if request.task == EMBEDDINGS:
            raise
        log_event(_log, logging.WARNING, "no bundled model in its place", task=request.task, reason=error)
        return None


def _pending(request: ModelRequest, reason: str, stand_in: LoadedModel | None) -> PendingModel:
    """Also its aliases are of the model that is set: who names one never gets a vector of another model."""
    repository = request.source.partition("@")[0]
    names = dict.fromkeys([request.source, repository, repository.rsplit("/", 1)[-1], *request.aliases])
    serving = None if stand_in is None else stand_in.name
    model = PendingModel(request.task, request.source, tuple(names), reason, serving)
    model.failed(reason, now_s := time.monotonic())
    log_event(_log, logging.WARNING, "a model could not be fetched; trying again", why=model.sentence(now_s))
    return model


def _log_reasons(event: str, reasons: tuple[str, ...], **fields: str) -> None:
    log_event(_log, logging.INFO, event, **fields, why="; ".join(reasons))
