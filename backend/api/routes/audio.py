"""``POST /v1/audio/transcriptions`` and ``/v1/audio/translations``: what is said in a recording, in OpenAI's shapes."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, Protocol, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from backend.abandoned import end_tasks
from backend.api.json_io import validate_fields, written_json
from backend.api.parameters import ID_PATTERN, check_id
from backend.api.problems import openai_error, problem_of
from backend.api.request_context import (
    Handle,
    call_service,
    call_within_limit,
    context_of,
    limits_of,
    owner_of,
    run_until_disconnect,
    time_limit_s,
)
from backend.api.request_fields import OrAbsent, TextOrAbsent, one_of
from backend.api.routes.audio_answers import (
    DiarizedTranscriptionAnswer,
    TranscriptionAnswer,
    VerboseTranscriptionAnswer,
    delta_event,
    diarized_answer,
    done_event,
    json_answer,
    verbose_answer,
)
from backend.api.routing import JSON, Endpoint, PlainRoute, described, name_parameter, upload_route
from backend.api.sse import HEARTBEAT_S, MEDIA_TYPE, EventStream, OpenStreams, ServerEvent
from backend.api.upload import Upload, receive_upload
from backend.callers.callers import Meter
from backend.errors import DeadlineExceeded, FinanciaError, InvalidField, UnknownModel
from backend.files.speech_records import Segment, SpeechTask, Transcript
from backend.lanes.inference import Urgency
from backend.search.vector_stores import VectorStoreService, names_in_stores
from backend.speech.languages import LANGUAGES, language_code
from backend.speech.records import Transcription, TranscriptionCallback, TranscriptionEvent, TranscriptionOptions
from backend.speech.subtitles import srt, webvtt
from backend.speech.transcription import TranscriptionService
from backend.text.written_numbers import with_written_numbers

_speech_of: Handle[TranscriptionService] = Handle("speech")
_vector_stores_of: Handle[VectorStoreService] = Handle("vector_stores")

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
Granularity = Literal["segment", "word"]
_DIARIZED = "diarized_json"
_FORMATS = tuple(name for name in get_args(ResponseFormat) if name != _DIARIZED)  # that every service answers
_WHOLE = ("srt", "vtt", _DIARIZED)
_SUBTITLES = ("srt", "vtt")
_PROMPT_CHARS = 10_000  # the model reads the last 223 tokens of it
_NOT_SERVED = {
    "known_speaker_names": "speakers are not known by their voices",
    "known_speaker_references": "speakers are not known by their voices",
}
_LANGUAGE = {"type": "string", "pattern": "^$|^ *(" + "|".join(LANGUAGES) + ") *$"}
_LISTS = ("timestamp_granularities", "include", "languages", "keywords", "vector_store_ids")
_MAX_KEYWORDS, _MAX_STORES = 1000, 4
_NAMES_CHARS = 400  # of names from stores: about half of what the model reads of a prompt


def audio_fields(fields: Mapping[str, str], repeated: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A form's fields; a list may come as ``name[]`` again and again, as ``name``, as JSON and with commas."""
    found: dict[str, Any] = dict(fields)
    for name in _LISTS:
        values = [*repeated.get(f"{name}[]", ()), *repeated.get(name, ())]
        found[f"{name}[]"] = [item for text in values for item in _items(text)] or None
    return found


def _items(text: str) -> Iterable[str]:
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except ValueError:
            listed = None
        if isinstance(listed, list) and all(isinstance(item, str) for item in listed):
            return listed
    return [item.strip() for item in text.split(",") if item.strip()]


def _list_of(names: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "array", "items": {"enum": list(names)}})


_STORE_IDS = WithJsonSchema(
    {"type": "array", "maxItems": _MAX_STORES, "items": {"type": "string", "pattern": ID_PATTERN}}
)


class TranslationForm(BaseModel):
    """`POST /v1/audio/translations`: what is said in a file, in English."""

    model_config = ConfigDict(extra="ignore")

    model: TextOrAbsent = Field(
        None, description="whisper-1, gpt-4o-transcribe, or a name that GET /v1/models lists; unset: the one loaded."
    )
    prompt: str = Field("", max_length=_PROMPT_CHARS, description="Names and words to expect, or what was said before.")
    response_format: Annotated[OrAbsent[ResponseFormat], one_of(_FORMATS)] = Field(
        None, description="json (unset), text, srt, verbose_json or vtt; diarized_json where SPEAKER_MODEL is set."
    )
    temperature: Annotated[
        OrAbsent[float],
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"const": ""}]}),
    ] = Field(None, ge=0, le=1, description="0 (unset): the most likely text, sampled only where that is doubtful.")
    language: Annotated[OrAbsent[str], WithJsonSchema(_LANGUAGE)] = Field(
        None, description="Of the recording: es, spa, es-MX or Spanish; unset: it is found, piece by piece."
    )
    timestamp_granularities: Annotated[list[Granularity] | None, _list_of(get_args(Granularity))] = Field(
        None,
        alias="timestamp_granularities[]",
        description="What verbose_json has times of: segment (unset), word, or both; without response_format they ask "
        "for it, as Mistral's client does. Subtitles without word are cut at segments.",
    )
    stream: Annotated[OrAbsent[bool], WithJsonSchema({"enum": ["", "true", "false"]})] = Field(
        None, description="true: server-sent events, as soon as each segment is final."
    )
    smart_format: Annotated[OrAbsent[bool], WithJsonSchema({"enum": ["", "true", "false"]})] = Field(
        None, description="Ours, by Deepgram's name; true: numbers in Spanish and English in digits (1.200,50 €)."
    )

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str | None) -> str | None:
        if language is None or not language.strip():
            return None
        code = language_code(language)
        if code is None:
            raise InvalidField(
                f"language: '{language.strip()[:40]}' is not one that the model knows; send its ISO 639-1 code, one of "
                f"{', '.join(sorted(LANGUAGES))}, or leave it out to have it found"
            )
        return code

    @model_validator(mode="before")
    @classmethod
    def _refuses_what_is_not_served(cls, fields: Any) -> Any:
        for name, why in _NOT_SERVED.items():
            if fields.get(name) or fields.get(f"{name}[]"):
                raise InvalidField(f"{name}: is not served: {why}; leave it out")
        return fields

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> TranslationForm:
        if self.stream and self.response_format in _WHOLE:
            raise InvalidField(
                f"stream: {self.response_format} comes whole; send response_format json, text or verbose_json with "
                "stream, or stream=false"
            )
        return self

    @property
    def with_logprobs(self) -> bool:
        return False

    @property
    def format(self) -> ResponseFormat:
        return self.response_format or ("verbose_json" if self.timestamp_granularities else "json")

    @property
    def granularities(self) -> frozenset[Granularity]:
        """What the answer has times of."""
        return frozenset(self.timestamp_granularities or ("segment",))

    def written(self, segment: Segment, before: str, goes_on: bool = True) -> Segment:
        """A segment with its numbers in digits; ``before``: the text before it, ``goes_on``: another may follow."""
        language = "en" if self.options().task == "translate" else None
        return with_written_numbers(segment, language, before=before, goes_on=goes_on)

    def options(self) -> TranscriptionOptions:
        """The options of the transcription service."""
        return self._options("translate", self.prompt)

    def _options(self, task: SpeechTask, prompt: str, *, with_words: bool = False) -> TranscriptionOptions:
        cuts_at_words = self.format in _SUBTITLES and self.timestamp_granularities is None
        return TranscriptionOptions(
            task=task,
            language=self.language,
            prompt=prompt,
            temperature=self.temperature or 0.0,
            with_words=with_words or cuts_at_words or "word" in self.granularities,
            with_speakers=self.format == _DIARIZED,
        )


class TranscriptionForm(TranslationForm):
    """`POST /v1/audio/transcriptions`: what is said in a file."""

    include: Annotated[list[Literal["logprobs"]] | None, _list_of(("logprobs",))] = Field(
        None, alias="include[]", description="logprobs: of each word, with json and in the events of a stream."
    )
    languages: Annotated[list[str] | None, WithJsonSchema({"type": "array", "items": _LANGUAGE})] = Field(
        None,
        alias="languages[]",
        description="Languages that it may be; one alone counts as `language`, of several each piece's own is found.",
    )
    keywords: Annotated[list[str] | None, WithJsonSchema({"type": "array", "items": {"type": "string"}})] = Field(
        None, max_length=_MAX_KEYWORDS, alias="keywords[]", description="Words to expect; they go before the prompt."
    )
    vector_store_ids: Annotated[list[str] | None, _STORE_IDS] = Field(
        None,
        max_length=_MAX_STORES,
        alias="vector_store_ids[]",
        description="Ours: vector stores whose names of people, companies and places are words to expect.",
    )
    chunking_strategy: Annotated[OrAbsent[Literal["auto"]], one_of(("auto",))] = Field(
        None, description="auto, which it always is: cut where nobody speaks."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuses_own_chunking(cls, fields: Any) -> Any:
        chunking = fields.get("chunking_strategy")
        if chunking not in (None, "", "auto") or any(name.startswith("chunking_strategy[") for name in fields):
            raise InvalidField(
                "chunking_strategy: only auto is served: recordings are cut where nobody speaks; send auto or leave it "
                "out"
            )
        return fields

    @field_validator("vector_store_ids")
    @classmethod
    def _are_ids(cls, store_ids: list[str] | None) -> list[str] | None:
        return [check_id(store_id, "vector_store_ids") for store_id in dict.fromkeys(store_ids or ())]

    def expect(self, names: Sequence[str]) -> None:
        """Add names to the words to expect: as many as the prompt has room for, the first nearest to what is said."""
        room, taken = _NAMES_CHARS, list[str]()
        for name in names:
            room -= len(name) + len(", ")
            if room < 0:
                break
            taken.append(name)
        self.keywords = [*reversed(taken), *(self.keywords or ())]

    @property
    def with_logprobs(self) -> bool:
        return bool(self.include)

    def options(self) -> TranscriptionOptions:
        """The options of the transcription service."""
        prompt = " ".join(part for part in (", ".join(self.keywords or ()), self.prompt) if part)
        return self._options("transcribe", prompt, with_words=self.with_logprobs)

    @model_validator(mode="after")
    def _one_language_alone(self) -> TranscriptionForm:
        codes = [self._is_known(language) for language in self.languages or ()]
        if self.language is None and len(codes) == 1:
            self.language = codes[0]
        return self


class WriteDelta(Protocol):
    """Writes the event of a segment; ``before`` is the text of the one before it."""

    def __call__(self, segment: Segment, *, before: str, total_s: float | None) -> dict[str, Any]: ...


class TranscriptStream:
    """Runs a transcription in a task of its own and makes an event of each segment. Used on the event loop only.

    Args:
        work: the transcription; takes the callback.
        delta, done: write the events.
        on_progress: called with the seconds that are done.
        late: the error for a stream that is not done in time.
    """

    def __init__(
        self,
        work: Callable[[TranscriptionCallback], Coroutine[Any, Any, Transcription]],
        delta: WriteDelta,
        done: Callable[[Transcript], dict[str, Any]],
        *,
        on_progress: Callable[[float], None],
        late: Callable[[], DeadlineExceeded],
    ) -> None:
        self._work, self._delta, self._done = work, delta, done
        self._on_progress, self._late = on_progress, late
        self._waiting: deque[tuple[Segment, float | None]] = deque()
        self._changed = asyncio.Event()
        self._told = ""  # the text of the last segment
        self._task: asyncio.Task[Transcription] | None = None

    def start(self, limit_s: float, deadline_s: float) -> None:
        """Begin; at ``deadline_s`` on the monotonic clock it is cancelled."""
        run = run_until_disconnect(self._work(self._on_event), None, limit_s, deadline_s)
        self._task = asyncio.create_task(run)
        self._task.add_done_callback(lambda _task: self._changed.set())

    async def wait_for_first(self, receive: Receive) -> None:
        """Until there is something to send, or for as long as a client waits without a sign of life.

        Raises: CallerGone, and whatever the transcription raised before its first segment.
        """
        task = self._running()
        with suppress(DeadlineExceeded):
            until_s = time.monotonic() + HEARTBEAT_S
            await run_until_disconnect(self._changed.wait(), receive, HEARTBEAT_S, until_s)
        if task.done() and not self._waiting:
            self._result(task)

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        """The events up to the last, which has the whole text or, where the transcription failed, its error."""
        task = self._running()
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                segment, total_s = self._waiting.popleft()
                yield _event(self._delta(segment, before=self._told, total_s=total_s))
                self._told = segment.text
            if task.done():
                break
        try:
            last = self._done(self._result(task).transcript)
        except FinanciaError as error:
            problem = problem_of(error, "")
            last = {"error": {**openai_error(problem), "status": problem.status, "retryable": problem.retryable}}
        yield _event(last)

    async def close(self) -> None:
        """End the work, done or not."""
        await end_tasks(self._running())

    def _on_event(self, event: TranscriptionEvent) -> None:
        self._on_progress(event.done_s)
        self._waiting.extend((segment, event.total_s) for segment in event.segments if segment.text)
        if self._waiting:
            self._changed.set()

    def _result(self, task: asyncio.Task[Transcription]) -> Transcription:
        try:
            return task.result()
        except DeadlineExceeded as error:
            raise self._late() from error

    def _running(self) -> asyncio.Task[Transcription]:
        assert self._task is not None, "start() comes first"
        return self._task


def _event(data: dict[str, Any]) -> ServerEvent:
    """Named as its type; the event of an error has none."""
    return ServerEvent("", data.get("type", ""), orjson.dumps(data))


_MINUTE_S = 60.0
_SRT, _VTT = "text/plain; charset=utf-8", "text/vtt; charset=utf-8"  # srt as OpenAI and speaches answer it
_FILES = (
    "A recording: wav, mp3, m4a, mp4, ogg, opus, flac, webm, aac, wma or aiff; of a video its sound. Alone as the "
    "body, the fields go into the query."
)


async def create_transcription(request: Request) -> Response:
    """What is said in a recording, with the seconds of segments and words.

    Silence, noise and music give an empty text, and `why` says so. What the model made up is left out and listed in
    `dropped`. For recordings of hours see `POST /v1/jobs`.
    """
    return await _transcribe(request, TranscriptionForm)


async def create_translation(request: Request) -> Response:
    """What is said in a recording, in English, whatever language is spoken."""
    return await _transcribe(request, TranslationForm)


@dataclass(slots=True)
class MinuteCharge:
    """Charges a caller a page for each minute that was begun, as they are transcribed."""

    meter: Meter
    charged: int = 0

    def add(self, done_s: float) -> None:
        """Charge what was transcribed since the last time; ``done_s`` counts from the beginning."""
        minutes = math.ceil(done_s / _MINUTE_S)
        if minutes > self.charged:
            self.meter.charge("pages", minutes - self.charged)
            self.charged = minutes


async def _transcribe(request: Request, schema: type[TranslationForm]) -> Response:
    async with receive_upload(request, most_s=limits_of(request).transcription_s) as upload:
        form = validate_fields(schema, audio_fields(upload.fields, upload.repeated))
        _require_model(form.model, _speech_of(request).names)
        if form.format == _DIARIZED:
            _require_speakers(form, _speech_of(request))
        if isinstance(form, TranscriptionForm) and form.vector_store_ids:
            names = names_in_stores(_vector_stores_of(request), owner_of(request), form.vector_store_ids)
            form.expect(await call_within_limit(request, names))
        if form.stream:
            return await _streamed(request, upload, form)
        transcript = await transcribed(request, upload, form)
    if form.smart_format:
        transcript = await asyncio.to_thread(_written, transcript, form)
    return await _answer(transcript, form)


def _written(transcript: Transcript, form: TranslationForm) -> Transcript:
    more = [True] * (len(transcript.segments) - 1) + [False]
    return replace(transcript, segments=tuple(map(form.written, transcript.segments, _before(transcript), more)))


def _before(transcript: Transcript) -> list[str]:
    """The text before each segment."""
    return ["", *(segment.text for segment in transcript.segments[:-1])]


def _require_speakers(form: TranslationForm, speech: TranscriptionService) -> None:
    """Raise InvalidField where speakers cannot be told apart."""
    if speech.tells_speakers and isinstance(form, TranscriptionForm):
        return
    why = "set SPEAKER_MODEL to an ONNX model of voices" if not speech.tells_speakers else "of transcriptions alone"
    raise InvalidField(
        f"response_format: diarized_json is not served, speakers are not told apart ({why}); there are "
        f"{', '.join(_FORMATS)}"
    )


def _require_model(name: str | None, known: tuple[str, ...]) -> None:
    """Raise UnknownModel for another name; where there is no model the service says so."""
    if name is not None and known and name not in known:
        raise UnknownModel(name, known, aliases="SPEECH_MODEL_ALIASES")


async def transcribed(request: Request, upload: Upload, form: TranslationForm) -> Transcript:
    """The transcript of an upload; the caller is charged for its minutes."""
    context = context_of(request)
    charge, options, most_s = MinuteCharge(context.meter), form.options(), limits_of(request).transcription_s

    async def call(*, urgency: Urgency) -> Transcription:
        return await _speech_of(request).transcribe(
            upload.stored, options, urgency, lambda event: charge.add(event.done_s)
        )

    try:
        result = await call_service(request, call, most_s=most_s)
    except DeadlineExceeded as error:
        raise too_late(error.limit_s) from error
    charge.add(result.transcript.duration_s)
    context.stages = (("decode", result.decode_s), ("transcribe", result.lane_s))
    return result.transcript


def too_late(limit_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        limit_s,
        f"not transcribed within {limit_s:g} s (LIMIT_TRANSCRIPTION_S, or the request's own X-Request-Timeout-S); "
        "send a shorter recording, raise the limit, or use POST /v1/jobs, which works in the background. What was "
        "heard is kept: the same request again goes on from there",
    )


async def _answer(transcript: Transcript, form: TranslationForm) -> Response:
    match form.format:
        case "text":
            return Response(f"{transcript.text}\n", media_type="text/plain")
        case "srt":
            return Response(srt(transcript.segments), media_type=_SRT)
        case "vtt":
            return Response(webvtt(transcript.segments), media_type=_VTT)
    words = sum(len(segment.words) for segment in transcript.segments)
    return await written_json(partial(_fields, transcript, form), len(transcript.segments) + words)


def _fields(
    transcript: Transcript, form: TranslationForm
) -> TranscriptionAnswer | VerboseTranscriptionAnswer | DiarizedTranscriptionAnswer:
    if form.format == _DIARIZED:
        return diarized_answer(transcript)
    return _streamable_fields(transcript, form)


def _streamable_fields(
    transcript: Transcript, form: TranslationForm
) -> TranscriptionAnswer | VerboseTranscriptionAnswer:
    if form.format == "verbose_json":
        return verbose_answer(transcript, form.options().task, form.granularities)
    return json_answer(transcript, with_logprobs=form.with_logprobs)


async def _streamed(request: Request, upload: Upload, form: TranslationForm) -> Response:
    """Server-sent events, once there is a segment or the end: what fails before is answered with its status."""
    context = context_of(request)
    limit_s = time_limit_s(request, limits_of(request), limits_of(request).transcription_s)
    deadline_s, charge, options = context.arrived_s + limit_s, MinuteCharge(context.meter), form.options()
    stored = upload.stored.shared()  # the upload is freed when this returns
    # Each segment once, as it is told: all those of an hour would hold the event loop for a third of a second.
    written = lru_cache(maxsize=None)(form.written)

    async def work(on_event: Callable[[TranscriptionEvent], None]) -> Transcription:
        try:
            result = await _speech_of(request).transcribe(stored, options, Urgency(deadline_s=deadline_s), on_event)
        finally:
            stored.close()
        charge.add(result.transcript.duration_s)
        return result

    def delta(segment: Segment, *, before: str, total_s: float | None) -> dict[str, Any]:
        return delta_event(
            written(segment, before) if form.smart_format else segment,
            before=before,
            total_s=total_s,
            with_logprobs=form.with_logprobs,
            with_words="word" in form.granularities,
        )

    def done(transcript: Transcript) -> dict[str, Any]:
        if form.smart_format:
            transcript = replace(transcript, segments=tuple(map(written, transcript.segments, _before(transcript))))
        return done_event(transcript, _streamable_fields(transcript, form))

    stream = TranscriptStream(work, delta, done, on_progress=charge.add, late=partial(too_late, limit_s))
    stream.start(limit_s, deadline_s)
    try:
        await stream.wait_for_first(request.receive)
    except BaseException:
        await stream.close()
        raise
    # Not among the app's streams, which end as soon as the process stops: this one ends by itself, and may do so.
    return EventStream(stream.events(), OpenStreams(), resumes=False, on_end=stream.close)


_SEGMENT = {
    "id": 0, "seek": 32, "start": 0.32, "end": 3.46, "text": " La factura vence el 31 de marzo.",
    "tokens": [50364, 2369, 1108, 2991, 371, 655, 384, 806, 10217, 368, 26766, 13, 50521], "temperature": 0.0,
    "avg_logprob": -0.2147, "compression_ratio": 0.9, "no_speech_prob": 0.0112, "language": "es", "cut": False,
}  # fmt: skip
VERBOSE_EXAMPLE = {
    "task": "transcribe", "language": "spanish", "duration": 3.9, "text": "La factura vence el 31 de marzo.",
    "usage": {"type": "duration", "seconds": 3.9}, "languages": [{"code": "es"}], "language_score": 0.9871,
    "speech_s": 3.1, "dropped": [], "why": "", "reasons": [], "model": "whisper-base", "segments": [_SEGMENT],
    "words": [{"word": "La", "start": 0.32, "end": 0.48, "confidence": 0.9712}],
}  # fmt: skip
_EVENTS = (
    'data: {"type":"transcript.text.delta","delta":"La factura vence el 31 de marzo.","start":0.32,"end":3.46,'
    '"language":"es","duration":3.9}\n\n'
    'data: {"type":"transcript.text.done","text":"La factura vence el 31 de marzo.","languages":[{"code":"es"}],'
    '"usage":{"type":"tokens","input_tokens":195,"output_tokens":13,"total_tokens":208,'
    '"input_token_details":{"audio_tokens":195,"text_tokens":0},"seconds":3.9},"why":"","reasons":[]}\n\n'
)


_TEXT = {"schema": {"type": "string"}}
_CONTENT = {
    JSON: {
        "schema": {"anyOf": [VerboseTranscriptionAnswer, TranscriptionAnswer, DiarizedTranscriptionAnswer]},
        "example": VERBOSE_EXAMPLE,
    },
    "text/plain": _TEXT,
    "text/vtt": _TEXT,
    MEDIA_TYPE: {**_TEXT, "example": _EVENTS},
}
_ERRORS = (400, 404, 413, 415, 422, 429, 504, 507)
_DEPLOYED = "/openai/deployments/{name}"  # Azure OpenAI's; its clients name the model in the form as well


def _route(path: str, endpoint: Endpoint, request: type[TranslationForm]) -> PlainRoute:
    return upload_route(
        path,
        endpoint,
        tag="OpenAI",
        request=request,
        answers={200: described(_CONTENT)},
        file=_FILES,
        errors=_ERRORS,
        parameters=(name_parameter("whisper-1"),) if path.startswith(_DEPLOYED) else (),
    )


ROUTES = (
    _route("/v1/audio/transcriptions", create_transcription, TranscriptionForm),
    _route("/v1/audio/translations", create_translation, TranslationForm),
    _route("/v2/audio/transcriptions", create_transcription, TranscriptionForm),  # Cohere's
    _route(f"{_DEPLOYED}/audio/transcriptions", create_transcription, TranscriptionForm),
    _route(f"{_DEPLOYED}/audio/translations", create_translation, TranslationForm),
)
