"""Builds transcription from the settings: the speech model's files, where it runs, its engines and the service.

Nothing is loaded at the start: Whisper base takes 0.6 s at its first use (measured), and 160 MB while it is in use.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from backend.bootstrap.domains import Found, OwnModelDomain, Shared
from backend.config import Settings
from backend.device.memory.device_memory import lower_ceiling
from backend.errors import HubUnreachable, ModelUnavailable
from backend.lanes.cache.store import BlobCache
from backend.models.fingerprint import fingerprint_of
from backend.models.model_files import sha256_of
from backend.speech.model_files import BUNDLED_SPEECH, SpeechModelFiles, resolve_speech_model
from backend.speech.pieces import SileroNetwork, SpeechActivityEngine, silero_file
from backend.speech.records import SPEECH_TASKS, SpeechEngines
from backend.speech.speakers import SpeakerNetwork, VoiceEngine
from backend.speech.transcribe import CPU_BUDGET, CUDA_BUDGET, WINDOW_MS, SpeechEngine
from backend.speech.transcription import TranscriptionService
from backend.speech.whisper import WhisperSource, device_bytes, place_speech
from backend.telemetry import OOM_ACTIONS, log_event

NO_MODEL = "none"  # as SPEECH_MODEL
# OpenAI's names of models that transcribe, but the one that tells speakers apart.
OPENAI_NAMES = (
    "whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "gpt-4o-mini-transcribe-2025-12-15",
)  # fmt: skip
DIARIZING_NAME = "gpt-4o-transcribe-diarize"
# The hub's names of the bundled model: of the original, and of the form in which CTranslate2's servers know it.
HUB_NAMES = ("openai/whisper-base", "Systran/faster-whisper-base")
_MODULES = ("ctranslate2", "av", "faster_whisper")  # of the extra [speech], whatever the model
_NOT_INSTALLED = (
    "speech to text is not installed; install it with: pip install 'financia-inference[speech]', "
    "or make serve without SPEECH=0"
)
# Without recordings before the model leaves memory, where MODEL_KEEP_ALIVE_S is unset: reading 145 MB, hashing and
# converting them would delay every clip of callers who send one now and then, for 160 MB in between.
_REST_S = 300.0
_PIECES_A_LANE = 3  # of one recording: one on the lane, and others that its batch may be made of
SpeechDomain = OwnModelDomain[TranscriptionService, SpeechModelFiles, SpeechEngines]
_log = logging.getLogger(__name__)


async def find_speech_model(settings: Settings) -> Found[SpeechModelFiles]:
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


def build_speech(shared: Shared, found: Found[SpeechModelFiles]) -> SpeechDomain:
    """Transcription on lanes that run already."""
    telemetry, cores = shared.context.telemetry, shared.context.facts.cores
    load = partial(_engines, shared, _speakers(shared.settings.speaker_model, found))
    service = TranscriptionService(
        shared.readers,
        None if found.model is None else load(found.model),
        BlobCache(shared.cache),
        telemetry,
        why_none=f"{found.why_none}; the hub is asked again" if found.comes_later else found.why_none,
        pieces_at_once=_PIECES_A_LANE * cores,
        threads=cores + 2,
        idle_trim=shared.idle_trim,
    )
    telemetry.open_series("batch_duration_seconds", SPEECH_TASKS)
    telemetry.open_series("oom_recoveries_total", SPEECH_TASKS, OOM_ACTIONS)
    return OwnModelDomain(
        service,
        found,
        found.pending("speech", shared.settings.speech_model),
        resolve=resolve_speech_model,
        load=load,
        serve=service.serve,
        models=partial(_rows, service),
        supervisor=shared.supervisor,
    )


def _rows(service: TranscriptionService) -> list[dict[str, object]]:
    if not service.names:
        return []
    report = service.report()
    runs = {"runtime": "ctranslate2", "dtype": report["placement"]["precision"], "is_loaded": report["is_loaded"]}
    return [{"name": report["model"], "task": "speech", **runs}]


def _find(source: str) -> Found[SpeechModelFiles]:
    if source == NO_MODEL:
        return Found(None, "SPEECH_MODEL is none")
    absent = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if absent and source == BUNDLED_SPEECH:
        return Found(None, _NOT_INSTALLED)
    if absent:
        raise ModelUnavailable(f"SPEECH_MODEL={source}: {_NOT_INSTALLED}")
    try:
        silero_file()
        return Found(resolve_speech_model(source))
    except HubUnreachable as error:
        return Found(None, str(error), is_missing=True, comes_later=True)
    except ModelUnavailable as error:
        why = str(error)
        why = why if why.startswith("SPEECH_MODEL") else f"SPEECH_MODEL: {why}"
        if source != BUNDLED_SPEECH:
            raise ModelUnavailable(why) from error
        return Found(None, why, is_missing=True)


def _speakers(file: str, found: Found[SpeechModelFiles]) -> SpeakerNetwork | None:
    """The model that SPEAKER_MODEL names. Raises: ModelUnavailable for another, or where nothing is transcribed."""
    if not file:
        return None
    if found.model is None and not found.comes_later:
        raise ModelUnavailable(f"SPEAKER_MODEL is set, and nothing is transcribed: {found.why_none}")
    return SpeakerNetwork(Path(file))


def _engines(shared: Shared, speakers: SpeakerNetwork | None, files: SpeechModelFiles) -> SpeechEngines:
    settings, context = shared.settings, shared.context
    place = place_speech(context.placements[0], settings.speech_precision, lanes=context.facts.cores)
    source, detector = WhisperSource(files, place), silero_file()
    network = SileroNetwork(detector)
    on_cpu = place.device == "cpu"
    if not on_cpu:
        placement = context.placements[0]
        lower_ceiling(placement.device, device_bytes(files.weights_bytes, CUDA_BUDGET // WINDOW_MS, placement))
    parts = {"whisper": source.fingerprint, "detector": sha256_of(detector)}

    def release() -> None:
        source.release()
        network.release()

    def report() -> dict[str, Any]:
        state = {"source": files.source, "revision": files.revision, "is_loaded": source.is_loaded}
        return {**state, "placement": asdict(place), "lanes": "page lanes" if on_cpu else "model lanes"}

    return SpeechEngines(
        speech=SpeechEngine(source, CPU_BUDGET if on_cpu else CUDA_BUDGET),
        lanes=shared.page_lanes if on_cpu else shared.model_lanes,
        activity=SpeechActivityEngine(network),
        activity_lanes=shared.page_lanes,
        names=(*_names(files, settings.speech_model_aliases), *((DIARIZING_NAME,) if speakers else ())),
        languages=frozenset(files.languages),
        fingerprint=fingerprint_of(parts | ({"speakers": speakers.sha256} if speakers else {})),
        encode_prompt=files.tokens.encode,
        split_tokens=files.tokens.split,
        beams=settings.speech_beams,
        release=release,
        report=report,
        voices=VoiceEngine(speakers) if speakers else None,
        rest_s=_REST_S if settings.model_keep_alive_s is None else settings.model_keep_alive_s,
    )


def _names(files: SpeechModelFiles, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """What a request may call the model: its own name, what is set, and what OpenAI's clients send unasked.

    Names of other models, such as whisper-large-v3, it has only where they are set: nobody should take its text for
    theirs.
    """
    bundled = (
        (BUNDLED_SPEECH, *HUB_NAMES) if files.source == BUNDLED_SPEECH else ()
    )  # another source may be a folder: nobody's
    return tuple(dict.fromkeys((files.name, files.name.rpartition("/")[2], *bundled, *OPENAI_NAMES, *aliases)))
