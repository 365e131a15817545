"""``POST /v1/audio/transcriptions`` and ``/v1/audio/translations``: what is said in a recording, in OpenAI's shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.audio import TranscriptionForm, TranslationForm, audio_fields
from backend.api.requests.json_body import validate_fields
from backend.api.requests.upload import Upload, receive_upload
from backend.api.responses.audio import (
    TranscriptionAnswer,
    VerboseTranscriptionAnswer,
    delta_event,
    done_event,
    json_answer,
    verbose_answer,
)
from backend.api.responses.json_bytes import written_json
from backend.api.routing import JSON, described, upload_route
from backend.api.service_call import call_service, time_limit_s
from backend.api.sse import MEDIA_TYPE, EventStream, OpenStreams
from backend.api.transcript_stream import TranscriptStream
from backend.callers.quotas import Meter
from backend.errors import DeadlineExceeded, UnknownModel
from backend.files.speech_records import Segment, Transcript
from backend.lanes.inference import Urgency
from backend.speech.subtitles import srt, webvtt
from backend.speech.transcription_records import Transcription, TranscriptionEvent

_MINUTE_S = 60.0
_SRT, _VTT = "application/x-subrip; charset=utf-8", "text/vtt; charset=utf-8"
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
    services = services_of(request)
    async with receive_upload(request, most_s=services.limits.transcription_s) as upload:
        form = validate_fields(schema, audio_fields(upload.fields, upload.repeated))
        _require_model(form.model, services.speech.names)
        if form.stream:
            return await _streamed(request, upload, form)
        transcript = await _whole(request, upload, form)
    return await _answer(transcript, form)


def _require_model(name: str | None, known: tuple[str, ...]) -> None:
    """Raise UnknownModel for another name; where there is no model the service says so."""
    if name is not None and known and name not in known:
        raise UnknownModel(name, known)


async def _whole(request: Request, upload: Upload, form: TranslationForm) -> Transcript:
    """The transcript of an upload; the caller is charged for its minutes."""
    services, context = services_of(request), context_of(request)
    charge, options, most_s = MinuteCharge(context.meter), form.options(), services.limits.transcription_s

    async def call(*, deadline_s: float) -> Transcription:
        return await services.speech.transcribe(
            upload.stored, options, Urgency(deadline_s=deadline_s), lambda event: charge.add(event.done_s)
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


def _fields(transcript: Transcript, form: TranslationForm) -> TranscriptionAnswer | VerboseTranscriptionAnswer:
    if form.format == "verbose_json":
        return verbose_answer(transcript, form.options().task, form.granularities)
    return json_answer(transcript, with_logprobs=form.with_logprobs)


async def _streamed(request: Request, upload: Upload, form: TranslationForm) -> Response:
    """Server-sent events, once there is a segment or the end: what fails before is answered with its status."""
    services, context = services_of(request), context_of(request)
    limit_s = time_limit_s(request, services.limits, services.limits.transcription_s)
    deadline_s, charge, options = context.arrived_s + limit_s, MinuteCharge(context.meter), form.options()
    stored = upload.stored.shared()  # the upload is freed when this returns

    async def work(on_event: Callable[[TranscriptionEvent], None]) -> Transcription:
        try:
            result = await services.speech.transcribe(stored, options, Urgency(deadline_s=deadline_s), on_event)
        finally:
            stored.close()
        charge.add(result.transcript.duration_s)
        return result

    def delta(segment: Segment, *, before: str, total_s: float | None) -> dict[str, Any]:
        return delta_event(
            segment,
            before=before,
            total_s=total_s,
            with_logprobs=form.with_logprobs,
            with_words="word" in form.granularities,
        )

    def done(transcript: Transcript) -> dict[str, Any]:
        return done_event(transcript, _fields(transcript, form))

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
    "id": 0,
    "seek": 32,
    "start": 0.32,
    "end": 3.46,
    "text": " La factura vence el 31 de marzo.",
    "tokens": [50364, 2369, 1108, 2991, 371, 655, 384, 806, 10217, 368, 26766, 13, 50521],
    "temperature": 0.0,
    "avg_logprob": -0.2147,
    "compression_ratio": 0.9,
    "no_speech_prob": 0.0112,
    "language": "es",
    "cut": False,
}
VERBOSE_EXAMPLE = {
    "task": "transcribe",
    "language": "spanish",
    "duration": 3.9,
    "text": "La factura vence el 31 de marzo.",
    "usage": {"type": "duration", "seconds": 3.9},
    "languages": [{"code": "es"}],
    "language_score": 0.9871,
    "speech_s": 3.1,
    "dropped": [],
    "why": "",
    "model": "whisper-base",
    "segments": [_SEGMENT],
    "words": [{"word": "La", "start": 0.32, "end": 0.48, "confidence": 0.9712}],
}
_EVENTS = (
    'data: {"type":"transcript.text.delta","delta":"La factura vence el 31 de marzo.","start":0.32,"end":3.46,'
    '"language":"es","duration":3.9}\n\n'
    'data: {"type":"transcript.text.done","text":"La factura vence el 31 de marzo.","languages":[{"code":"es"}],'
    '"usage":{"type":"tokens","input_tokens":195,"output_tokens":13,"total_tokens":208,'
    '"input_token_details":{"audio_tokens":195,"text_tokens":0},"seconds":3.9},"why":""}\n\n'
)


def _answers() -> dict[int, dict[str, Any]]:
    """What OpenAPI says of both routes' answers."""
    schemas = [
        {"$ref": f"#/components/schemas/{name.__name__}"} for name in (VerboseTranscriptionAnswer, TranscriptionAnswer)
    ]
    text = {"schema": {"type": "string"}}
    content = {
        JSON: {
            "schema": {"anyOf": schemas},
            "example": VERBOSE_EXAMPLE,
        },
        "text/plain": text,
        "application/x-subrip": text,
        "text/vtt": text,
        MEDIA_TYPE: {"schema": {"type": "string"}, "example": _EVENTS},
    }
    return {200: described(content)}


_ERRORS = (400, 404, 413, 415, 422, 429, 504, 507)
ROUTES = (
    upload_route(
        "/v1/audio/transcriptions",
        create_transcription,
        tag="OpenAI",
        request=TranscriptionForm,
        answers=_answers(),
        file=_FILES,
        errors=_ERRORS,
    ),
    upload_route(
        "/v1/audio/translations",
        create_translation,
        tag="OpenAI",
        request=TranslationForm,
        answers=_answers(),
        file=_FILES,
        errors=_ERRORS,
    ),
)
