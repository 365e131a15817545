"""``/v1/audio``: OpenAI's forms and answers, streams, and who pays for what."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.audio import VERBOSE_EXAMPLE
from backend.api.routes.audio_answers import (
    DiarizedTranscriptionAnswer,
    TranscriptionAnswer,
    VerboseTranscriptionAnswer,
)
from backend.callers.callers import ANYBODY, Quotas
from backend.errors import DeadlineExceeded, NotInstalled, Overloaded, UnreadableFile
from backend.files.limits import FileLimits
from backend.files.speech_records import Segment, SpokenLanguage, SpokenWord
from tests.api.asgi import Call
from tests.api.checks import problem, require_schema
from tests.api.conftest import connect
from tests.api.fakes import FakeServices
from tests.api.speech_fakes import segment, transcript
from tests.search.samples import add_indexed

FILE = {"file": ("clip.wav", b"RIFF of a test", "audio/wav")}
TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
BOTH = pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
TEXT = "La factura vence <hoy>. Thank you."


async def ask(client: httpx.AsyncClient, path: str = TRANSCRIPTIONS, **fields: Any) -> httpx.Response:
    """A form with a recording; ``a__`` stands for ``a[]``."""
    return await client.post(path, files=FILE, data={name.replace("__", "[]"): value for name, value in fields.items()})


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, each of which must be its type, where it has one, and one line of data."""
    found = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        *name, line = block.split("\n")
        found.append(json.loads(line.removeprefix("data: ")))
        assert ([f"event: {found[-1]['type']}"] if "type" in found[-1] else []) == name
    return found


async def test_json(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Without any field: the text, its languages, what was heard, and why it is not whole."""
    answer = await ask(client)

    assert 200 == answer.status_code
    assert {
        "text": TEXT,
        "languages": [{"code": "es"}, {"code": "en"}],
        "usage": {"type": "duration", "seconds": 90.5},
        "model": "whisper-base",
        "language": "es",
        "why": "from 88 s on the file is damaged",
        "reasons": [{"code": "other", "params": {"text": "from 88 s on the file is damaged"}}],
    } == answer.json()
    require_schema(TranscriptionAnswer, answer.json())
    [(content, options, urgency)] = services.speech.calls
    assert b"RIFF of a test" == content
    assert ("transcribe", None, "", 0.0, False) == (
        options.task, options.language, options.prompt, options.temperature, options.with_words,
    )  # fmt: skip
    assert urgency is not None
    assert "decode;dur=250.000, transcribe;dur=500.000" in answer.headers["server-timing"]


async def test_every_field(client: httpx.AsyncClient, services: FakeServices) -> None:
    """As the official client sends them; unknown ones are ignored."""
    answer = await ask(
        client, model="whisper-1", language="Spanish", prompt="Aceros", temperature="0.4", response_format="json",
        include__="logprobs", keywords__=["IBAN", "NIF"], chunking_strategy="auto", stream="false", user="me",
    )  # fmt: skip

    assert 200 == answer.status_code
    [(_, options, _)] = services.speech.calls
    assert ("es", "IBAN, NIF Aceros", 0.4, True) == (
        options.language, options.prompt, options.temperature, options.with_words,
    )  # fmt: skip
    [first, second, *_] = answer.json()["logprobs"]
    assert {"token": "La", "bytes": [76, 97], "logprob": -0.6931} == first
    assert " factura" == second["token"]
    require_schema(TranscriptionAnswer, answer.json())


async def test_the_body_may_be_the_file(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Its fields are then in the query, lists too."""
    query = "response_format=verbose_json&timestamp_granularities[]=word&timestamp_granularities[]=segment"
    answer = await client.post(f"{TRANSCRIPTIONS}?{query}", content=b"RIFF", headers={"content-type": "audio/wav"})

    assert {"words", "segments"} <= answer.json().keys()
    assert b"RIFF" == services.speech.calls[0][0]


async def test_granularities_without_a_format(client: httpx.AsyncClient) -> None:
    """Mistral's client sends them alone; with another format than verbose_json they change nothing."""
    alone = (await ask(client, timestamp_granularities__="segment")).json()
    with_json = (await ask(client, timestamp_granularities__="segment", response_format="json")).json()

    assert ("segments" in alone, "segments" in with_json) == (True, False)


@pytest.mark.parametrize(
    ("granularities", "words", "segments"),
    [
        pytest.param({}, False, True, id="unset"),
        pytest.param({"timestamp_granularities__": "word"}, True, False, id="word"),
        pytest.param({"timestamp_granularities__": ["word", "segment"]}, True, True, id="repeated"),
        pytest.param({"timestamp_granularities__": '["word", "segment"]'}, True, True, id="json"),
        pytest.param({"timestamp_granularities": "segment,word"}, True, True, id="commas"),
        pytest.param({"timestamp_granularities__": ""}, False, True, id="empty"),
    ],
)
async def test_verbose_json(
    client: httpx.AsyncClient, granularities: dict[str, Any], words: bool, segments: bool
) -> None:
    """OpenAI's members and ours; words and segments as they were asked for."""
    body = (await ask(client, response_format="verbose_json", **granularities)).json()

    require_schema(VerboseTranscriptionAnswer, body)
    assert (words, segments) == ("words" in body, "segments" in body)
    assert ("transcribe", "spanish", 90.5, TEXT, 0.75, 5.0) == (
        body["task"], body["language"], body["duration"], body["text"], body["language_score"], body["speech_s"],
    )  # fmt: skip
    reasons = [{"code": "other", "params": {"text": "nobody speaks there"}}]
    dropped = {"start": 80.0, "end": 82.0, "text": "Thanks for watching!", "why": "nobody speaks there"}
    assert [{**dropped, "reasons": reasons}] == body["dropped"]
    if words:
        assert {"word": "La", "start": 1.0, "end": 2.0, "confidence": 0.5} == body["words"][0]
    if segments:
        assert TEXT == "".join(segment["text"] for segment in body["segments"]).strip()
        assert {
            "id": 1, "seek": 7000, "start": 70.0, "end": 71.0, "text": " Thank you.", "tokens": [50364, 7],
            "temperature": 0.0, "avg_logprob": -0.25, "compression_ratio": 1.5, "no_speech_prob": 0.125,
            "language": "en", "cut": False,
        } == body["segments"][1]  # fmt: skip


async def test_translation(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The answer's language is English, whatever was spoken."""
    body = (await ask(client, TRANSLATIONS, response_format="verbose_json", language="es")).json()

    assert ("translate", "english") == (body["task"], body["language"])
    assert "translate" == services.speech.calls[0][1].task


async def test_unknown_language(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A recording in which nobody speaks has none."""
    services.speech.heard = replace(transcript(), language=SpokenLanguage(None, 0.0), segments=(), why="nobody speaks")

    body = (await ask(client, response_format="verbose_json")).json()

    assert ("unknown", "", [], "nobody speaks") == (body["language"], body["text"], body["languages"], body["why"])


@pytest.mark.parametrize(
    ("name", "media_type", "begins"),
    [
        ("text", "text/plain; charset=utf-8", f"{TEXT}\n"),
        ("srt", "text/plain; charset=utf-8", "1\n00:00:01,000 --> 00:00:05,000\nLa factura vence <hoy>.\n\n"),
        (
            "vtt",
            "text/vtt; charset=utf-8",
            "WEBVTT\n\n00:00:01.000 --> 00:00:05.000\nLa factura vence &lt;hoy&gt;.\n\n",
        ),
    ],
)
@BOTH
async def test_formats(client: httpx.AsyncClient, path: str, name: str, media_type: str, begins: str) -> None:
    """Text and subtitles."""
    answer = await ask(client, path, response_format=name)

    assert (200, media_type) == (answer.status_code, answer.headers["content-type"])
    assert answer.text.startswith(begins)


@pytest.mark.parametrize(("granularity", "with_words"), [({}, True), ({"timestamp_granularities__": "segment"}, False)])
async def test_subtitles_are_cut_at_words(
    client: httpx.AsyncClient, services: FakeServices, granularity: dict[str, str], with_words: bool
) -> None:
    """Unless segments alone are asked for, which takes less time."""
    await ask(client, response_format="srt", **granularity)

    assert with_words == services.speech.calls[0][1].with_words


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"model": "whisper-9"}, "model_not_found", ("whisper-9", "whisper-base", "whisper-1", "SPEECH_MODEL_ALIASES")),
        ({"language": "klingon"}, "invalid_field", ("klingon", "ISO 639-1", "es")),
        ({"languages__": ["es", "klingon"]}, "invalid_field", ("klingon",)),
        ({"response_format": "xml"}, "invalid_field", ("response_format", "verbose_json")),
        ({"response_format": "diarized_json"}, "invalid_field", ("SPEAKER_MODEL", "speakers are not told apart")),
        ({"temperature": "nan"}, "invalid_field", ("temperature",)),
        ({"timestamp_granularities__": "line"}, "invalid_field", ("timestamp_granularities", "segment", "line")),
        ({"include__": "tokens"}, "invalid_field", ("include", "logprobs")),
        ({"chunking_strategy": '{"type": "server_vad"}'}, "invalid_field", ("chunking_strategy", "auto")),
        ({"chunking_strategy[type]": "server_vad"}, "invalid_field", ("chunking_strategy", "auto")),
        ({"known_speaker_names__": "Ana"}, "invalid_field", ("known_speaker_names", "voices")),
        ({"stream": "true", "response_format": "srt"}, "invalid_field", ("stream", "verbose_json")),
        ({"prompt": "x" * 10_001}, "invalid_field", ("prompt", "10000")),
    ],
)
async def test_refusals(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], code: str, words: tuple[str, ...]
) -> None:
    """Each names what was got and what there is; nothing is transcribed."""
    answer = await ask(client, **fields)

    problem(answer, 404 if code == "model_not_found" else 422, code, *words)
    assert not services.speech.calls


@pytest.mark.parametrize(
    ("languages", "language"), [(["es"], "es"), (["spanish"], "es"), (["es", "en"], None), ([], None)]
)
async def test_languages(
    client: httpx.AsyncClient, services: FakeServices, languages: list[str], language: str | None
) -> None:
    """One alone is the language; of several each piece's own is found."""
    await ask(client, languages__=languages)

    assert language == services.speech.calls[0][1].language


@pytest.mark.parametrize("name", [None, "", "whisper-1", "whisper-base"])
async def test_models(client: httpx.AsyncClient, name: str | None) -> None:
    """OpenAI's name is always one of the model's."""
    answer = await ask(client, **({} if name is None else {"model": name}))

    assert 200 == answer.status_code


async def test_without_a_model(services: FakeServices, client: httpx.AsyncClient) -> None:
    """Whatever name is asked for, the service says what is missing."""
    services.speech.names = ()
    services.speech.error = NotInstalled("speech to text is not installed")

    problem(await ask(client, model="whisper-1"), 503, None, "not installed")


ERRORS = (
    (UnreadableFile("file: broken"), 422, "unreadable_file"),
    (Overloaded(9, 8, 2.0), 429, "overloaded"),
    (DeadlineExceeded(600.0), 504, "deadline_exceeded"),
    (RuntimeError("secret"), 500, "internal_error"),
)


@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
@pytest.mark.parametrize("stream", ["false", "true"])
async def test_errors(services: FakeServices, error: Exception, status: int, code: str, stream: str) -> None:
    """The service's are answered with their status, in a stream too as long as nothing was sent."""
    services.speech.error = error
    async with connect(services) as client:
        answer = await ask(client, stream=stream)

    problem(answer, status, code)
    assert "secret" not in answer.text


async def test_too_late_names_jobs(client: httpx.AsyncClient, services: FakeServices) -> None:
    """And the setting of these routes, not that of the others."""
    services.speech.error = DeadlineExceeded(600.0)
    answer = await ask(client)

    problem(answer, 504, "deadline_exceeded", "LIMIT_TRANSCRIPTION_S", "/v1/jobs", "600 s")


@BOTH
async def test_time_limit(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """Longer than that of other routes; a request may ask for less."""
    await ask(client, path)
    headers = {"X-Request-Timeout-S": "5"}
    await client.post(path, files=FILE, headers=headers)
    await client.post(path, files=FILE, data={"stream": "true"}, headers=headers)

    [long, short, streamed] = [urgency.deadline_s for *_, urgency in services.speech.calls]
    assert long - short > 500
    assert abs(streamed - short) < 100


async def test_file_limit(services: FakeServices) -> None:
    """413 at the first byte over it."""
    services.file_limits = FileLimits(file_bytes=10)
    async with connect(services) as client:
        problem(await ask(client), 413, "too_large", "LIMIT_FILE_BYTES")

    assert not services.speech.calls


@BOTH
async def test_no_file(client: httpx.AsyncClient, path: str) -> None:
    """As the other routes with a file say it."""
    problem(await client.post(path, data={"model": "whisper-1"}, files={"x": (None, "y")}), 422, None, "file")
    problem(await client.post(path, json={"model": "whisper-1"}), 415, None, "application/json")


async def test_stream(client: httpx.AsyncClient) -> None:
    """A delta for each segment, which joined are the text; then all of it with OpenAI's usage."""
    answer = await ask(client, stream="true")

    assert (200, "text/event-stream; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    [first, second, done] = events(answer)
    assert {
        "type": "transcript.text.delta", "delta": "La factura vence <hoy>.", "start": 1.0, "end": 5.0,
        "language": "es", "duration": 90.5,
    } == first  # fmt: skip
    assert TEXT == first["delta"] + second["delta"] == done["text"]
    assert {
        "type": "tokens", "input_tokens": 4525, "output_tokens": 4, "total_tokens": 4529,
        "input_token_details": {"audio_tokens": 4525, "text_tokens": 0}, "seconds": 90.5,
    } == done["usage"]  # fmt: skip
    assert ("transcript.text.done", "from 88 s on the file is damaged") == (done["type"], done["why"])


async def test_stream_with_words(client: httpx.AsyncClient) -> None:
    """Logprobs as OpenAI's, words as those of verbose_json; the last event has what the answer would have had."""
    answer = await ask(
        client, stream="true", response_format="verbose_json", timestamp_granularities__="word", include__="logprobs"
    )

    [_, second, done] = events(answer)
    assert ["Thank", "you."] == [word["word"] for word in second["words"]]
    assert ["Thank", " you."] == [logprob["token"] for logprob in second["logprobs"]]
    assert {"words", "dropped", "language_score"} <= done.keys()


async def test_an_empty_stream(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Only the last event."""
    services.speech.heard = replace(transcript(), segments=(), why="nobody speaks")
    [done] = events(await ask(client, stream="true"))

    assert ("", "nobody speaks") == (done["text"], done["why"])


async def test_a_stream_that_fails(client: httpx.AsyncClient, services: FakeServices) -> None:
    """What was sent stays; the last event is the error in OpenAI's shape, which its clients raise."""
    services.speech.failure, services.speech.fails_after = DeadlineExceeded(600.0), 1
    [first, last] = events(await ask(client, stream="true"))

    assert "transcript.text.delta" == first["type"]
    assert ("deadline_exceeded", 504, True) == (
        last["error"]["code"], last["error"]["status"], last["error"]["retryable"],
    )  # fmt: skip
    assert "LIMIT_TRANSCRIPTION_S" in last["error"]["message"]


def form(**fields: str) -> tuple[bytes, dict[str, str]]:
    """The body of a form with a recording, and its headers."""
    request = httpx.Request("POST", "http://test", files=FILE, data=fields)
    return request.read(), {"content-type": request.headers["content-type"]}


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_a_client_that_leaves(services: FakeServices, stream: str) -> None:
    """Its work is cancelled, before the first segment and in the middle of a stream."""
    services.speech.gate = asyncio.Event()
    body, headers = form(stream=stream)
    call = Call(services, TRANSCRIPTIONS, [body], headers=headers)
    running = asyncio.create_task(call.run())
    await services.speech.entered.wait()
    call.disconnect()
    await running

    assert 1 == services.speech.cancelled


async def test_a_client_that_leaves_a_stream(services: FakeServices) -> None:
    """After the first segment was sent, the transcription ends as well."""
    services.speech.step = asyncio.Event()
    body, headers = form(stream="true")
    call = Call(services, TRANSCRIPTIONS, [body], headers=headers)
    running = asyncio.create_task(call.run())
    await call.answering.wait()
    call.disconnect()
    answer = await running

    assert 1 == services.speech.cancelled
    assert answer.content.startswith(b'event: transcript.text.delta\ndata: {"type":"transcript.text.delta"')


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_a_begun_minute_is_a_page(services: FakeServices, stream: str) -> None:
    """90.5 seconds are two; a caller in debt is refused before the upload is read."""
    options = ApiOptions(api_keys=("team=mine",), quotas=Quotas(pages_per_minute=1))
    headers = {"authorization": "Bearer mine"}
    async with connect(services, options) as client:
        first = await client.post(TRANSCRIPTIONS, files=FILE, data={"stream": stream}, headers=headers)
        second = await client.post(TRANSCRIPTIONS, files=FILE, headers=headers)

    assert 200 == first.status_code
    problem(second, 429, "quota_exceeded", "used 2", "QUOTA_PAGES_PER_MINUTE")


async def test_what_was_transcribed_is_charged(services: FakeServices) -> None:
    """Also where it failed in the end."""
    services.speech.failure, services.speech.fails_after = UnreadableFile("file: broken"), 1
    options = ApiOptions(api_keys=("team=mine",), quotas=Quotas(pages_per_minute=10))
    async with connect(services, options) as client:
        answer = await client.post(TRANSCRIPTIONS, files=FILE, headers={"authorization": "Bearer mine"})

    assert 422 == answer.status_code
    assert 'financia_key_pages_total{key="team"} 1.0' in services.telemetry.render().decode()


async def test_the_model_is_listed(client: httpx.AsyncClient, services: FakeServices) -> None:
    """With its names; found by OpenAI's; absent where there is none."""
    listed = (await client.get("/v1/models")).json()["data"]
    found = await client.get("/v1/models/whisper-1")
    services.speech.names = ()
    without = (await client.get("/v1/models")).json()["data"]

    assert listed[-1] | {"id": "whisper-1"} == found.json()
    assert ("bundled", "speech", "int8") == tuple(found.json()[name] for name in ("source", "task", "dtype"))
    assert listed[:-1] == without
    problem(await client.get("/v1/models/whisper-1"), 404, "model_not_found")


async def test_a_language_without_spaces(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Chinese sentences are not parted by spaces: in the text, in segments, in a stream, and in logprobs."""
    words = tuple(SpokenWord(sign, at, at + 1.0, 0.5, is_joined=at > 0) for at, sign in enumerate("你好。"))
    parts = (Segment(0.0, 3.0, "你好。", words, language="zh"), Segment(3.0, 4.0, "再见。", language="zh"))
    services.speech.heard = replace(services.speech.heard, segments=parts)
    verbose = (await ask(client, response_format="verbose_json")).json()
    logprobs = (await ask(client, include__="logprobs")).json()["logprobs"]
    streamed = [event["delta"] for event in events(await ask(client, stream="true")) if "delta" in event]
    subtitles = (await ask(client, response_format="srt")).text

    assert "你好。再见。" == verbose["text"] == "".join(streamed)
    assert [" 你好。", "再见。"] == [part["text"] for part in verbose["segments"]]
    assert ["你", "好", "。"] == [one["token"] for one in logprobs]
    assert "你好。" in subtitles


def test_the_example() -> None:
    """The documented answer has the members of its schema."""
    require_schema(VerboseTranscriptionAnswer, VERBOSE_EXAMPLE)


@BOTH
async def test_smart_format_writes_numbers(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """In texts, segments and words; a translation is read as English; without the field all is as it was heard."""
    is_english = path == TRANSLATIONS
    heard = "It costs twenty dollars." if is_english else "Son veinte euros."
    services.speech.heard = replace(transcript(), segments=(segment(heard, 1.0),))
    expected = "It costs $20." if is_english else "Son 20\u00a0€."

    plain = (await ask(client, path)).json()
    body = (await ask(client, path, smart_format="true", response_format="verbose_json",
                      timestamp_granularities__="segment,word")).json()  # fmt: skip

    assert heard == plain["text"]
    assert (expected, expected) == (body["text"], body["segments"][0]["text"].strip())
    assert expected.split(" ") == [word["word"] for word in body["words"]]
    assert body["words"][-1]["end"] == body["segments"][0]["end"]


async def test_smart_format_of_a_stream(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The events and the last one's text agree."""
    services.speech.heard = replace(transcript(), segments=(segment("Son veinte euros.", 1.0),))

    *deltas, done = events(await ask(client, stream="true", smart_format="true"))

    assert ["Son 20\u00a0€."] == [delta["delta"] for delta in deltas]
    assert "Son 20\u00a0€." == done["text"]


async def _store_of(services: FakeServices, owner: str, *found: dict[str, tuple[str, ...]]) -> str:
    """A vector store whose files hold these names."""
    store = await services.vector_stores.create(owner)
    services.storage.indexes = False
    for index, names in enumerate(found):
        await add_indexed(services.storage, f"file-{index}", ["text"], store_id=store.id, found=names, owner=owner)
    return store.id


async def test_names_of_vector_stores_are_expected(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Those of most files stand nearest to what is said, before the caller's own words; other attributes are none."""
    store = await _store_of(
        services,
        ANYBODY.owner,
        {"person": ("Ana Ruiz",), "iban": ("ES12",)},
        {"organization": ("Acme, S.L.",), "person": ("Ana Ruiz",)},
    )

    answer = await ask(client, vector_store_ids__=store, keywords__="NIF", prompt="Hola.")

    assert 200 == answer.status_code
    [(_, options, _)] = services.speech.calls
    assert "Acme, S.L., Ana Ruiz, NIF Hola." == options.prompt


async def test_names_of_vector_stores_are_bounded(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Hundreds of names leave room for the caller's own words."""
    names = tuple(f"Nombre {index}" for index in range(300))
    store = await _store_of(services, ANYBODY.owner, {"person": names})

    await ask(client, vector_store_ids__=store, prompt="Hola.")

    [(_, options, _)] = services.speech.calls
    assert options.prompt.endswith("Nombre 1, Nombre 0 Hola.")
    assert len(options.prompt) < 500


async def test_names_of_other_tenants_are_not_found(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A store of somebody else is as one that is not there, and nothing is heard."""
    store = await _store_of(services, "somebody else", {"person": ("Ana Ruiz",)})

    answers = [await ask(client, vector_store_ids__=asked) for asked in (store, "vs_9", "no id")]

    assert [404, 404, 422] == [answer.status_code for answer in answers]
    assert not services.speech.calls


async def test_diarized_json(client: httpx.AsyncClient, services: FakeServices) -> None:
    """OpenAI's shape, with a letter for each speaker as they first speak."""
    services.speech.tells_speakers = True
    spoken = zip(transcript().segments, (0, 1), strict=True)
    services.speech.heard = replace(transcript(), segments=tuple(replace(one, speaker=who) for one, who in spoken))

    body = (await ask(client, response_format="diarized_json")).json()

    require_schema(DiarizedTranscriptionAnswer, body)
    assert [("A", 1.0, "La factura vence <hoy>."), ("B", 70.0, "Thank you.")] == [
        (segment["speaker"], segment["start"], segment["text"]) for segment in body["segments"]
    ]
    assert TEXT == body["text"]
    [(_, options, _)] = services.speech.calls
    assert options.with_speakers


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        pytest.param(TRANSLATIONS, {}, "of transcriptions alone", id="translation"),
        pytest.param(TRANSCRIPTIONS, {"stream": "true"}, "comes whole", id="stream"),
    ],
)
async def test_diarized_json_is_refused(
    client: httpx.AsyncClient, services: FakeServices, path: str, fields: dict[str, str], words: str
) -> None:
    """Where it cannot be had, with the reason, whatever the model."""
    services.speech.tells_speakers = True

    answer = await ask(client, path, response_format="diarized_json", **fields)

    assert 422 == answer.status_code
    assert words in answer.text
    assert not services.speech.calls
