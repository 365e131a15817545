"""The use case behind ``/v1/audio/transcriptions``: decode, find speech, cut it, transcribe the pieces, join them."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from backend.errors import DeadlineExceeded, InvalidField, NotInstalled, WrongMediaType
from backend.files.file_readers import FileReaders, OpenFile
from backend.files.file_types import FileType, sniff
from backend.files.limits import FileLimits
from backend.files.speech_records import AudioSlice, DroppedSpeech, Segment, SpokenLanguage, SpokenWord, Transcript
from backend.files.stored_file import StoredFile
from backend.lanes.backlog import Backlog
from backend.lanes.cache.store import BlobCache, CacheNamespace
from backend.lanes.file_threads import FileThreads
from backend.lanes.inference import Urgency, retry_bulk
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.shared_calls import SharedCalls
from backend.speech.pages import KIND
from backend.speech.piece_runs import LanguageTally, PieceRuns
from backend.speech.recording_run import RecordingRun
from backend.speech.records import (
    DecodingOptions,
    SpeechEngines,
    Transcription,
    TranscriptionCallback,
    TranscriptionEvent,
    TranscriptionOptions,
    ignore_event,
)
from backend.telemetry import Telemetry
from backend.tracing.spans import span

_ROUNDED_S = 0.001  # what rounding takes off a segment's times


@dataclass(slots=True, eq=False)
class Listener:
    """A caller, who may decode of several runs of the same recording, one after the other, and of each second once."""

    on_event: TranscriptionCallback
    told_s: float = -1.0

    def tell(self, event: TranscriptionEvent) -> None:
        """Pass on what is new in an event."""
        if event.done_s < self.told_s:
            return
        least_s = self.told_s - _ROUNDED_S
        new = tuple(part for part in event.segments if (part.start_s + part.end_s) / 2 > least_s)
        self.told_s = event.done_s
        self.on_event(event._replace(segments=new))


_BYTES_PER_S = 4000.0  # of a file that does not say how long it is: 32 kbit/s


def audio_backlog(lanes: Callable[[], int], *, clock: Callable[[], float] = time.monotonic) -> Backlog:
    """Counts seconds of audio. ``measured`` gets what the model decoded on a lane: no silence, nothing cached."""
    return Backlog(lanes, of="seconds of other recordings", ignored=1.0, parts=1000, clock=clock)


def expected_s(declared_s: float | None, size_bytes: int, limit_s: float) -> float:
    """Seconds that a file will have, as far as one can tell before it is decoded: what it declares may be a lie."""
    plausible_s = size_bytes / _BYTES_PER_S
    if declared_s is None or declared_s <= 0:
        return min(plausible_s, limit_s)
    return min(declared_s, 8 * plausible_s, limit_s)  # Opus and Codec 2 go down to a few kbit/s


class AudioFiles:
    """Used on the event loop only.

    Args:
        threads: slices that are decoded at once.
    """

    def __init__(self, readers: FileReaders, *, threads: int) -> None:
        self._readers = readers
        self._threads = FileThreads(readers, threads, name="hear")

    @property
    def limits(self) -> FileLimits:
        return self._readers.limits

    async def open(self, upload: StoredFile, urgency: Urgency) -> AudioFile:
        """A recording to be decoded; the caller closes it. Raises: what `FileReaders.open` raises."""
        started_s = time.perf_counter()
        with span("open"):
            opened = await self._threads.open(upload, urgency)
        file = AudioFile(opened, self._threads, self._readers, urgency)
        file.decode_s = time.perf_counter() - started_s
        return file

    def close(self) -> None:
        self._threads.close()


class AudioFile:
    """A recording that is decoded. Used on the event loop only."""

    def __init__(self, file: OpenFile, threads: FileThreads, readers: FileReaders, urgency: Urgency) -> None:
        self._file, self._threads, self._readers, self._urgency = file, threads, readers, urgency
        self.decode_s = 0.0  # so far, opening it included; of workers, or waiting for one

    @property
    def declared_s(self) -> float | None:
        """What the file says it lasts."""
        return self._file.info.audio.declared_s if self._file.info.audio is not None else None

    async def read(self, start: int, seconds: float) -> AudioSlice:
        """The slice from a sample on. Raises: what `FileReaders.audio` raises."""
        started_s = time.perf_counter()
        decode = partial(self._readers.audio, self._file, start, seconds, deadline_s=self._urgency.worker_deadline_s)
        with span("decode"):
            part = await retry_bulk(self._urgency, partial(self._threads.run, decode))
        self.decode_s += time.perf_counter() - started_s
        return part

    def cancel(self) -> None:
        """End its work in a worker process at once."""
        self._file.cancel()

    async def close(self) -> None:
        """On a thread: the worker is told, and megabytes are freed."""
        with suppress(RuntimeError):  # stopping: the readers end anyway
            await self._threads.run(self._file.close)


_FAST = 1  # zlib's level: an hour of speech in a few milliseconds
_SEGMENT = (
    "start_s", "end_s", "text", "language", "avg_logprob", "compression_ratio", "no_speech_prob", "temperature",
    "is_cut", "speaker",
)  # fmt: skip
_TRANSCRIPT = ("duration_s", "speech_s", "why", "model")


def pack_transcript(transcript: Transcript) -> bytes:
    """Encode a transcript; numbers are restored exactly."""
    fields: dict[str, Any] = {name: getattr(transcript, name) for name in _TRANSCRIPT}
    fields["language"] = list(transcript.language)
    fields["segments"] = [_segment_fields(segment) for segment in transcript.segments]
    fields["dropped"] = [[part.start_s, part.end_s, part.text, part.why] for part in transcript.dropped]
    return zlib.compress(orjson.dumps(fields), _FAST)


def unpack_transcript(blob: bytes) -> Transcript | None:
    """Decode a transcript; None for bytes that are none."""
    try:
        fields = orjson.loads(zlib.decompress(blob))
        return Transcript(
            language=SpokenLanguage(*fields["language"]),
            segments=tuple(_segment(values) for values in fields["segments"]),
            dropped=tuple(DroppedSpeech(*values) for values in fields["dropped"]),
            **{name: fields[name] for name in _TRANSCRIPT},
        )
    except (zlib.error, ValueError, TypeError, AttributeError, KeyError):
        return None


def _segment_fields(segment: Segment) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(segment, name) for name in _SEGMENT}
    return fields | {"words": [list(word) for word in segment.words], "tokens": segment.tokens}


def _segment(fields: dict[str, Any]) -> Segment:
    words = tuple(SpokenWord(*values) for values in fields["words"])
    return Segment(words=words, tokens=tuple(fields["tokens"]), **{name: fields[name] for name in _SEGMENT})


# To be raised when the same engines give another transcript: cached ones are then made again.
_JOINING_VERSION = 7


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
        self._shared = SharedCalls[Transcription, TranscriptionEvent](telemetry)
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

    @property
    def tells_speakers(self) -> bool:
        """Whether speakers can be told apart."""
        return self._engines is not None and self._engines.voices is not None

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
                listener = Listener(on_event)
                transcription = await self._shared.run(key, urgency, partial(self._begin, request), listener.tell)
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
        return Transcription(transcript, 0.0, 0.0, time.perf_counter() - started_s)

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
        self.backlog.measured(spent.decoded_s, spent.decoding_s)
        self._telemetry.audio_speed_ratio.observe(transcript.duration_s / max(total_s, 1e-3))
        if not run.has_failed_pieces:
            self._cache.put(request.key, await asyncio.to_thread(pack_transcript, transcript))
        return Transcription(transcript, file.decode_s, spent.lane_s, total_s)

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
            with_speakers=request.options.with_speakers,
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
