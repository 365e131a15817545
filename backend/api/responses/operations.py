"""Answers about the service itself: its models and its probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.dependencies import ApiLimits
from backend.api.problems import ProblemDetails
from backend.images.loaded_engines import LoadedImageModel
from backend.serving.catalog import LoadedModel
from backend.speech.transcription import TranscriptionService


class Info(TypedDict):
    """text-embeddings-inference's description of a server."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    payload_limit: int
    auto_truncate: bool
    version: str


class _Card(TypedDict):
    """What every model tells: OpenAI's four fields, its names, and what runs it."""

    id: str
    object: Literal["model"]
    created: Annotated[int, Field(description="Unix seconds at which it was ready.")]
    owned_by: str
    names: Annotated[list[str], Field(description="Every name a request may give it.")]
    source: str
    revision: str
    device: str
    dtype: str
    runtime: str


class ModelCard(_Card):
    """One loaded model: OpenAI's four fields and what runs it."""

    task: str
    max_tokens: Annotated[int, Field(description="Longest text, special tokens included.")]
    width: Annotated[int, Field(description="Numbers in a vector.")]
    pooling: str
    normalize: bool
    prompts: Annotated[list[str], Field(description="Names that `prompt_name` may take.")]
    labels: Annotated[
        list[str], Field(description="Of a classifier, in the order of its probabilities; empty for others.")
    ]


class SpeechModelCard(_Card):
    """The model that transcribes: OpenAI's four fields and what runs it."""

    task: Literal["speech"]


class ImageModelCard(_Card):
    """The model that classifies pages by their pictures: OpenAI's four fields and what runs it."""

    task: Literal["images"]
    height: Annotated[int, Field(description="Of a page as the model sees it, in pixels.")]
    width_px: int
    labels: Annotated[list[str], Field(description="In the order of its probabilities.")]


class ModelList(TypedDict):
    """OpenAI's list of models."""

    object: Literal["list"]
    data: list[ModelCard | SpeechModelCard | ImageModelCard]


class Live(TypedDict):
    """The process answers."""

    status: Literal["alive"]


class Ready(TypedDict):
    """Requests are answered; when not, a problem with ``reasons`` is sent instead."""

    status: Literal["ready"]
    reasons: list[str]
    degraded: list[str]  # what fails beside the requests


class NotReady(ProblemDetails):
    """A problem that says why requests are not answered."""

    reasons: list[str]


class HealthModel(TypedDict):
    """A loaded model."""

    name: str
    task: str
    runtime: str
    dtype: str
    is_loaded: Annotated[bool, Field(description="false while it is idle and its memory is given back.")]


class HealthDevice(TypedDict):
    """What computes."""

    device: str
    lanes: int
    reason: str


class HealthLanes(TypedDict):
    """The queue and those who work on it."""

    lanes: int
    lanes_alive: int
    busy: int
    queued_jobs: int
    queued_tokens: int
    oldest_s: Annotated[float, Field(description="Age of the oldest queued item.")]
    running_s: Annotated[float, Field(description="Age of the oldest batch on a lane.")]
    last_batch_age_s: Annotated[float | None, Field(description="null before the first batch.")]
    rate_tokens_per_s: float
    device_fault: Annotated[str, Field(description="Why a device is lost for good; empty otherwise.")]


class HealthRedis(TypedDict):
    """The tier of the cache that replicas share."""

    address: str
    state: Literal["closed", "open", "half_open"]
    retry_in_s: float
    pending_bytes: int
    last_error: str | None


class HealthCache(TypedDict):
    """The cache of vectors."""

    enabled: bool
    memory_entries: int
    memory_bytes: int
    memory_limit_bytes: int
    redis: Annotated[HealthRedis | None, Field(description="null without REDIS_URL.")]


class Health(TypedDict):
    """`GET /health`, with 200 and, while unavailable, with 503."""

    status: Literal["ready", "unavailable"]
    reasons: list[str]
    degraded: list[str]  # what fails beside the requests, as a background task that does not stay up
    models: list[HealthModel]
    device: HealthDevice
    lanes: HealthLanes
    cache: HealthCache


def tei_info(model: LoadedModel, limits: ApiLimits, version: str) -> Info:
    """The embedding model and the limits of requests."""
    return {
        "model_id": model.name,
        "model_sha": model.spec.revision,
        "model_dtype": model.dtype,
        "model_type": {"embedding": {"pooling": model.spec.pooling}},
        "max_input_length": model.spec.max_tokens,
        "max_batch_tokens": model.engine.budget,
        "max_client_batch_size": limits.inputs,
        "payload_limit": limits.body_bytes,
        "auto_truncate": True,
        "version": version,
    }


def model_card(model: LoadedModel) -> ModelCard:
    """A model as OpenAI's clients and ours read it."""
    spec = model.spec
    runs = {"device": model.device, "dtype": model.dtype, "runtime": model.runtime}
    return {
        **_card(model.names, model.created_s, spec.source, spec.revision, **runs),
        "task": model.task,
        "max_tokens": spec.max_tokens,
        "width": spec.width,
        "pooling": spec.pooling,
        "normalize": spec.normalize,
        "prompts": sorted(spec.prompts),
        "labels": list(model.labels),
    }


def speech_model_card(speech: TranscriptionService, created_s: float) -> SpeechModelCard:
    """The model of ``speech``, which has one."""
    report = speech.report()
    device, dtype = report["placement"]["device"], report["placement"]["precision"]
    runs = {"device": device, "dtype": dtype, "runtime": "ctranslate2"}
    return {**_card(speech.names, created_s, report["source"], report["revision"], **runs), "task": "speech"}


def image_model_card(model: LoadedImageModel) -> ImageModelCard:
    """The image model as OpenAI's clients and ours read it."""
    spec = model.spec
    height, width_px = spec.preprocessing.framing.size
    runs = {"device": model.placement.device, "dtype": model.choice.dtype, "runtime": model.choice.runtime}
    return {
        **_card(model.names, model.created_s, spec.source, spec.revision, **runs),
        "task": "images",
        "height": height,
        "width_px": width_px,
        "labels": list(spec.labels),
    }


def _card(
    names: Sequence[str], created_s: float, source: str, revision: str, *, device: str, dtype: str, runtime: str
) -> _Card:
    return {
        "id": names[0],
        "object": "model",
        "created": int(created_s),
        "owned_by": "financia",
        "names": list(names),
        "source": source,
        "revision": revision,
        "device": device,
        "dtype": dtype,
        "runtime": runtime,
    }


SCHEMAS: tuple[type, ...] = (Info, ModelCard, SpeechModelCard, ImageModelCard, ModelList, Live, Ready, NotReady, Health)
