"""The use case behind ``/v1/audio/transcriptions``: decode, find speech, cut it, transcribe the pieces, join them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from backend.errors import DeadlineExceeded, InvalidField, NotInstalled, WrongMediaType
from backend.files.file_readers import FileReaders
from backend.files.file_types import FileType, sniff
from backend.files.speech_records import Transcript
from backend.files.stored_file import StoredFile
from backend.lanes.cache.blobs import BlobCache
from backend.lanes.cache.keys import CacheNamespace
from backend.lanes.idle_trim import IdleTrim
from backend.lanes.inference import Urgency
from backend.speech.audio_files import AudioFile, AudioFiles
from backend.speech.backlog import audio_backlog, expected_s
from backend.speech.engine_records import DecodingOptions
from backend.speech.engines import SpeechEngines
from backend.speech.file_language import LanguageTally
from backend.speech.pages import KIND
from backend.speech.piece_runs import PieceRuns
from backend.speech.recording_run import RecordingRun
from backend.speech.shared_runs import SharedRuns
from backend.speech.transcript_codec import pack_transcript, unpack_transcript
from backend.speech.transcription_records import (
    Transcription,
    TranscriptionCallback,
    TranscriptionEvent,
    TranscriptionOptions,
    ignore_event,
)
from backend.telemetry import Telemetry
from backend.tracing.spans import span

# To be raised when the same engines give another transcript: cached ones are then made again.
_JOINING_VERSION = 4


@dataclass(frozen=True, slots=True)
class _Request:
    """A file to be transcribed, and by what."""

    engines: SpeechEngines
    upload: StoredFile
    options: TranscriptionOptions
    urgency: Urgency
    key: bytes  # of its transcript in the cache


class TranscriptionService:
    """Used on the event loop only. Cancelling a call also ends its work in reader processes and on lanes.

    Args:
        engines: None where no speech model is installed or set.
        why_none: one sentence, where there is none.
        pieces_at_once: of one recording; while some wait for a lane others are decoded.
        threads: recordings that are decoded at once.
    """

    def __init__(
        self,
        readers: FileReaders,
        engines: SpeechEngines | None,
        cache: BlobCache,
        telemetry: Telemetry,
        *,
        why_none: str = "",
        pieces_at_once: int = 4,
        threads: int = 4,
        idle_trim: IdleTrim | None = None,
    ) -> None:
        self._engines, self._cache, self._telemetry = engines, cache, telemetry
        self._why_none, self._pieces_at_once = why_none, pieces_at_once
        self._idle_trim = idle_trim or IdleTrim()
        self._shared = SharedRuns(telemetry)
        self._files = AudioFiles(readers, threads=threads)
        self.backlog = audio_backlog(lambda: self._engines.lanes.status().lanes_alive if self._engines else 0)
        if engines is not None:
            self.serve(engines)

    def serve(self, engines: SpeechEngines) -> None:
        """Transcribe by these from now on; there were none before, as the hub could not be reached."""
        self._engines = engines
        self._idle_trim.add(engines.release, engines.rest_s)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a request may call the model by, the served one first; none where there is no model."""
        return self._engines.names if self._engines is not None else ()

    @property
    def languages(self) -> frozenset[str]:
        """Codes that a request may name."""
        return self._engines.languages if self._engines is not None else frozenset()

    def report(self) -> dict[str, Any]:
        """The model with its reasons, for GET /v1/system."""
        if self._engines is None:
            return {"model": None, "why": self._why_none}
        return {"model": self._engines.name, "beams": self._engines.beams, **self._engines.report()}

    def check_kind(self, kind: FileType) -> None:
        """For files that are to be read later. Raises: NotInstalled for a recording, where there is no model."""
        if kind is FileType.AUDIO:
            self._installed()

    async def transcribe(
        self,
        upload: StoredFile,
        options: TranscriptionOptions,
        urgency: Urgency | None = None,
        on_event: TranscriptionCallback = ignore_event,
    ) -> Transcription:
        """What is said in a file.

        Args:
            upload: stays the caller's to close.

        Raises: UnreadableFile, WrongMediaType, TooLarge, InvalidField for the upload; NotInstalled where there is no
            speech model, Overloaded, DeadlineExceeded, InferenceFailed for the service.
        """
        started_s, engines = time.perf_counter(), self._checked(upload, options)
        urgency = urgency or Urgency()
        key = self._key(engines, upload, options)
        request = _Request(engines, upload, options, urgency, key)
        with self._idle_trim.busy():
            transcription = await self._cached(key, started_s)
            if transcription is None:
                transcription = await self._shared.run(key, urgency, on_event, partial(self._begin, request))
            else:
                on_event(_event_of(transcription.transcript))
        self._telemetry.audio_seconds_total.inc(transcription.transcript.duration_s)
        self._telemetry.audio_speech_seconds_total.inc(transcription.transcript.speech_s)
        return transcription

    def close(self) -> None:
        self._files.close()

    def _checked(self, upload: StoredFile, options: TranscriptionOptions) -> SpeechEngines:
        """The engines for a request. Raises: WrongMediaType, InvalidField, NotInstalled; before any work."""
        kind = sniff(upload.head)
        if kind != KIND:
            raise WrongMediaType(f"file: it is of the type {kind}, and has no sound; send it to /v1/documents")
        engines = self._installed()
        known = engines.languages
        if options.language is not None and options.language not in known:
            listed = ", ".join(sorted(known))
            raise InvalidField(f"language: '{options.language}' is not one of {listed}", param="language")
        return engines

    def _installed(self) -> SpeechEngines:
        if self._engines is None:
            raise NotInstalled(f"no speech can be transcribed here: {self._why_none}")
        return self._engines

    def _key(self, engines: SpeechEngines, upload: StoredFile, options: TranscriptionOptions) -> bytes:
        limits = repr((self._files.limits.audio_s, self._files.limits.audio_channels))
        keys = CacheNamespace("transcript", str(_JOINING_VERSION), engines.fingerprint, str(engines.beams), limits)
        return keys.narrow(options.key()).key("file", upload.sha256.encode())

    async def _cached(self, key: bytes, started_s: float) -> Transcription | None:
        if (packed := await self._cache.get(key)) is None:
            return None
        transcript = await asyncio.to_thread(unpack_transcript, packed)
        if transcript is None:
            return None
        return Transcription(transcript, True, 0.0, 0.0, time.perf_counter() - started_s)

    def _begin(self, request: _Request, on_event: TranscriptionCallback) -> Coroutine[Any, Any, Transcription]:
        """`_run` with a file of its own: its first caller may leave and close theirs while others wait for it."""
        return self._run(replace(request, upload=request.upload.shared()), on_event)

    async def _run(self, request: _Request, on_event: TranscriptionCallback) -> Transcription:
        """Transcribe a file that nobody transcribes yet, and close it."""
        try:
            return await self._transcribed(request, on_event)
        finally:
            request.upload.close()

    async def _transcribed(self, request: _Request, on_event: TranscriptionCallback) -> Transcription:
        started_s = time.perf_counter()
        file = await self._files.open(request.upload, request.urgency)
        try:
            run = self._admitted(request, file, await _decoding(request), on_event)
            try:
                with span("transcribe"):
                    transcript = await run.transcript(request.engines.name)
            except DeadlineExceeded as error:
                raise _too_long(error, run) from error
            finally:
                run.admitted.close()
        except BaseException:
            file.cancel()
            raise
        finally:
            await file.close()
        total_s, spent = time.perf_counter() - started_s, run.runs.time
        self.backlog.measured(spent.heard_s, spent.hearing_s)
        self._telemetry.audio_speed_ratio.observe(transcript.duration_s / max(total_s, 1e-3))
        if not run.has_failed_pieces:
            self._cache.put(request.key, await asyncio.to_thread(pack_transcript, transcript))
        return Transcription(transcript, False, file.decode_s, spent.lane_s, total_s)

    def _admitted(
        self, request: _Request, file: AudioFile, decoding: DecodingOptions, on_event: TranscriptionCallback
    ) -> RecordingRun:
        """A run that has its place in the backlog. Raises: Overloaded."""
        expected = expected_s(file.declared_s, request.upload.size_bytes, self._files.limits.audio_s)
        admitted, tally = self.backlog.admit(expected, *request.urgency), LanguageTally()
        runs = PieceRuns(
            request.engines,
            self._cache,
            self._telemetry,
            request.urgency,
            decoding,
            likely=lambda: tally.likely if tally.is_settled else None,
        )
        return RecordingRun(
            file.read,
            runs,
            admitted,
            on_event,
            asked=decoding.language,
            pieces_at_once=self._pieces_at_once,
            expected_s=None if file.declared_s is None else expected,
            tally=tally,
        )


async def _decoding(request: _Request) -> DecodingOptions:
    """How its pieces are decoded. The prompt is for all of them: names to expect may come anywhere."""
    engines, options = request.engines, request.options
    prompt = await asyncio.to_thread(engines.encode_prompt, options.prompt) if options.prompt else ()
    return DecodingOptions(
        task=options.task,
        language=options.language,
        prompt=prompt,
        beams=engines.beams,
        temperature=options.temperature,
        with_words=options.with_words,
    )


def _event_of(transcript: Transcript) -> TranscriptionEvent:
    """Everything at once."""
    duration_s = transcript.duration_s
    return TranscriptionEvent(duration_s, duration_s, transcript.segments, transcript.language)


def _too_long(error: DeadlineExceeded, run: RecordingRun) -> DeadlineExceeded:
    of = "" if run.total_s is None else f" of {run.total_s:.0f}"
    return DeadlineExceeded(
        error.limit_s,
        f"{run.done_s:.0f}{of} seconds of the recording were transcribed when its time was over; send it as a job "
        "(POST /v1/jobs), or again: pieces that were heard are kept in the cache",
    )
