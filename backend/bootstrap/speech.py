"""Builds transcription from the settings: the speech model's files, where it runs, its engines and the service.

Nothing is loaded at the start: Whisper base takes 0.6 s at its first use (measured), and 160 MB while it is in use.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backend.config import Settings
from backend.errors import HubUnreachable, ModelUnavailable
from backend.files.file_readers import FileReaders
from backend.lanes.batcher import Batcher
from backend.lanes.cache.blobs import BlobCache
from backend.lanes.idle_trim import IdleTrim
from backend.models.fingerprint import fingerprint_of
from backend.models.model_files import sha256_of
from backend.serving.loading import LoadContext
from backend.serving.model_retry import ModelRetry
from backend.serving.pending_models import PendingModel, PendingModels
from backend.speech.activity import SileroNetwork, SpeechActivityEngine, silero_file
from backend.speech.model_files import BUNDLED_SPEECH, SpeechModelFiles, resolve_speech_model
from backend.speech.records import SPEECH_TASKS, SpeechEngines
from backend.speech.transcribe import CPU_BUDGET, CUDA_BUDGET, SpeechEngine
from backend.speech.transcription import TranscriptionService
from backend.speech.whisper import WhisperSource, place_speech
from backend.supervision import Supervisor
from backend.telemetry import OOM_ACTIONS, log_event

NO_MODEL = "none"  # as SPEECH_MODEL
# OpenAI's names of models that transcribe, but the one that tells speakers apart.
OPENAI_NAMES = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15",
)
_MODULES = ("ctranslate2", "av", "faster_whisper")  # of the extra [speech], whatever the model
_NOT_INSTALLED = (
    "speech to text is not installed; install it with: pip install 'financia-inference[speech]', "
    "or make serve without SPEECH=0"
)
# Without recordings before the model leaves memory, where MODEL_KEEP_ALIVE_S is unset: reading 145 MB, hashing and
# converting them would delay every clip of callers who send one now and then, for 160 MB in between.
_REST_S = 300.0
_PIECES_A_LANE = 3  # of one recording: one on the lane, and others that its batch may be made of
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundSpeechModel:
    """The files of the speech model, or why there is none."""

    files: SpeechModelFiles | None
    why_none: str = ""
    is_missing: bool = False  # it should be there: /health tells
    comes_later: bool = False  # the hub could not be reached; it is asked again


@dataclass(frozen=True, slots=True)
class SpeechParts:
    """What speech shares with others."""

    readers: FileReaders
    page_lanes: Batcher  # on the CPU, at low priority: a piece takes a second, and no text should wait for it
    model_lanes: Batcher  # of the device
    cache: BlobCache
    idle_trim: IdleTrim
    supervisor: Supervisor


class _LateLoader:
    """Lets a model serve that the hub gave after the start. On the event loop."""

    def __init__(
        self,
        service: TranscriptionService,
        pending: PendingModels,
        *,
        engines_of: Callable[[SpeechModelFiles], SpeechEngines],
    ) -> None:
        self._service, self._pending, self._engines_of = service, pending, engines_of

    async def fulfil(self, pending: PendingModel) -> None:
        files = await asyncio.to_thread(resolve_speech_model, pending.source)
        self._service.serve(await asyncio.to_thread(self._engines_of, files))
        self._pending.settle(pending.task)
        log_event(_log, logging.INFO, "speech model fetched", model=files.name)


@dataclass(frozen=True, slots=True)
class SpeechRuntime:
    """The transcription service, what is wrong with it, and what mends it."""

    service: TranscriptionService
    found: FoundSpeechModel  # at the start
    pending: PendingModels
    retry: ModelRetry
    supervisor: Supervisor

    def report(self) -> dict[str, Any]:
        """For GET /v1/system."""
        return self.service.report()

    def degraded(self) -> tuple[str, ...]:
        """For GET /health."""
        if self.found.comes_later:
            return self.pending.sentences()
        return (self.found.why_none,) if self.found.is_missing else ()

    def models(self) -> list[dict[str, object]]:
        """For GET /health."""
        if not self.service.names:
            return []
        report = self.report()
        dtype = report["placement"]["precision"]
        return [
            {
                "name": report["model"],
                "task": "speech",
                "runtime": "ctranslate2",
                "dtype": dtype,
                "is_loaded": report["is_loaded"],
            }
        ]

    def start(self) -> None:
        """Ask the hub again for a model that it did not give."""
        self.retry.start(self.supervisor)

    def close(self) -> None:
        self.retry.stop()
        self.service.close()


async def find_speech_model(settings: Settings) -> FoundSpeechModel:
    """The model that SPEECH_MODEL names.

    Where the hub cannot be reached, or the bundled model is not installed, the rest serves without it.

    Raises: ModelUnavailable for one that was set and cannot be had: a folder that is not there, an id that the hub does
        not know, files of another kind, or the extra [speech] is absent.
    """
    found = await asyncio.to_thread(_find, settings.speech_model)
    if found.why_none:
        level = logging.WARNING if found.is_missing else logging.INFO
        log_event(_log, level, "no speech model", why=found.why_none)
    return found


def build_speech(settings: Settings, ground: LoadContext, found: FoundSpeechModel, parts: SpeechParts) -> SpeechRuntime:
    """Transcription on lanes that run already."""
    engines = None if found.files is None else _engines(settings, ground, found.files, parts)
    service = TranscriptionService(
        parts.readers,
        engines,
        parts.cache,
        ground.telemetry,
        why_none=f"{found.why_none}; the hub is asked again" if found.comes_later else found.why_none,
        pieces_at_once=_PIECES_A_LANE * ground.facts.cores,
        threads=ground.facts.cores + 2,
        idle_trim=parts.idle_trim,
    )
    ground.telemetry.open_series("batch_duration_seconds", SPEECH_TASKS)
    ground.telemetry.open_series("oom_recoveries_total", SPEECH_TASKS, OOM_ACTIONS)
    pending = PendingModels([_pending(settings, found)] if found.comes_later else ())
    loader = _LateLoader(service, pending, engines_of=lambda files: _engines(settings, ground, files, parts))
    retry = ModelRetry(pending, loader, fetch=lambda source, _task: resolve_speech_model(source))
    return SpeechRuntime(service, found, pending, retry, parts.supervisor)


def _pending(settings: Settings, found: FoundSpeechModel) -> PendingModel:
    """It is tried again after the first pause."""
    pending = PendingModel("speech", settings.speech_model, names=(), reason=found.why_none, serving=None)
    pending.failed(found.why_none, time.monotonic())
    return pending


def _find(source: str) -> FoundSpeechModel:
    if source == NO_MODEL:
        return FoundSpeechModel(None, "SPEECH_MODEL is none")
    absent = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if absent and source == BUNDLED_SPEECH:
        return FoundSpeechModel(None, _NOT_INSTALLED)
    if absent:
        raise ModelUnavailable(f"SPEECH_MODEL={source}: {_NOT_INSTALLED}")
    try:
        silero_file()
        return FoundSpeechModel(resolve_speech_model(source))
    except HubUnreachable as error:
        return FoundSpeechModel(None, str(error), is_missing=True, comes_later=True)
    except ModelUnavailable as error:
        why = str(error)
        why = why if why.startswith("SPEECH_MODEL") else f"SPEECH_MODEL: {why}"
        if source != BUNDLED_SPEECH:
            raise ModelUnavailable(why) from error
        return FoundSpeechModel(None, why, is_missing=True)


def _engines(settings: Settings, ground: LoadContext, files: SpeechModelFiles, parts: SpeechParts) -> SpeechEngines:
    place = place_speech(ground.placements[0], settings.speech_precision, lanes=ground.facts.cores)
    source, detector = WhisperSource(files, place), silero_file()
    network = SileroNetwork(detector)
    on_cpu = place.device == "cpu"

    def release() -> None:
        source.release()
        network.release()

    def report() -> dict[str, Any]:
        state = {"source": files.source, "revision": files.revision, "is_loaded": source.is_loaded}
        return {**state, "placement": asdict(place), "lanes": "page lanes" if on_cpu else "model lanes"}

    return SpeechEngines(
        speech=SpeechEngine(source, CPU_BUDGET if on_cpu else CUDA_BUDGET),
        lanes=parts.page_lanes if on_cpu else parts.model_lanes,
        activity=SpeechActivityEngine(network),
        activity_lanes=parts.page_lanes,
        names=_names(files, settings.speech_model_aliases),
        languages=frozenset(files.languages),
        fingerprint=fingerprint_of({"whisper": source.fingerprint, "detector": sha256_of(detector)}),
        encode_prompt=files.tokens.encode,
        beams=settings.speech_beams,
        release=release,
        report=report,
        rest_s=_REST_S if settings.model_keep_alive_s is None else settings.model_keep_alive_s,
    )


def _names(files: SpeechModelFiles, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """What a request may call the model: its own name, what is set, and what OpenAI's clients send unasked.

    Names of other models, such as whisper-large-v3, it has only where they are set: nobody should take its text for
    theirs.
    """
    bundled = (BUNDLED_SPEECH,) if files.source == BUNDLED_SPEECH else ()  # another source may be a folder: nobody's
    return tuple(dict.fromkeys((files.name, files.name.rpartition("/")[2], *bundled, *OPENAI_NAMES, *aliases)))
