"""Transcription from the settings: a hub that is away, wrong settings, and what requests may call the model."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import httpx2
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from backend.bootstrap import speech
from backend.bootstrap.speech import HUB_NAMES, OPENAI_NAMES, SpeechDomain, _names, build_speech, find_speech_model
from backend.config import Settings, load_settings
from backend.device.plan.placement import Placement
from backend.errors import ModelUnavailable
from backend.files.limits import FileLimits
from backend.lanes.memory_keeper import IdleTrim
from backend.models import model_files as hub_module
from backend.retry import Backoff
from backend.serving import pending_models
from backend.speech.whisper import SpeechPlacement
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from tests.bootstrap.test_models import until
from tests.tiny_voices import voices
from tests.tiny_whispers import TinyWhispers

WANTED = "owner/wanted"


class _Hub:
    """Away until it has a folder or an error."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.error: Exception = LocalEntryNotFoundError("not in the cache")
        self.error.__cause__ = httpx2.ConnectError("no name")
        self.asked = 0

    def __call__(self, repository: str, **_: Any) -> str:
        assert repository == WANTED
        self.asked += 1
        if self.folder is None:
            raise self.error
        return str(self.folder)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tiny_whispers: TinyWhispers) -> _Hub:
    """In place of the real one; tried again at once."""
    made = _Hub()
    monkeypatch.setattr(hub_module, "snapshot_download", made)
    monkeypatch.setattr(pending_models, "PAUSE", Backoff(0.02, 0.02))
    return made


CPU = Placement("cpu", 1, 1, 1, ())
CARD = Placement("cuda:1", 1, 1, 2, (), memory_bytes=40 * 2**30)


async def _built(settings: Settings, placement: Placement = CPU) -> SpeechDomain:
    telemetry, facts = Telemetry(), SimpleNamespace(cores=1)
    shared = SimpleNamespace(
        settings=settings, context=SimpleNamespace(placements=[placement], facts=facts, telemetry=telemetry),
        readers=SimpleNamespace(limits=FileLimits()), model_lanes=None, page_lanes=None, cache=None,
        idle_trim=IdleTrim(trim=lambda: None, after_s=0.0), supervisor=Supervisor(telemetry),
    )  # fmt: skip
    return build_speech(shared, await find_speech_model(settings))  # type: ignore[arg-type]


@pytest.mark.slow
async def test_a_model_that_comes_later_serves(hub: _Hub, tiny_whispers: TinyWhispers) -> None:
    """Until then /health and GET /v1/system tell why there is none."""
    runtime = await _built(load_settings(speech_model=WANTED))
    runtime.start()
    await until(lambda: hub.asked >= 3)
    [told], [pending], missing = runtime.degraded(), runtime.pending.report(), runtime.report()
    hub.folder = tiny_whispers.folder()
    await until(lambda: runtime.service.names)
    runtime.close()

    assert WANTED in told
    assert ("speech", WANTED) == (pending["task"], pending["source"])
    assert "the hub is asked again" in str(missing["why"])
    assert WANTED == runtime.service.names[0] == runtime.report()["model"]
    assert "es" in runtime.service.languages
    assert [(WANTED, "speech", "ctranslate2", False)] == [
        (model["name"], model["task"], model["runtime"], model["is_loaded"]) for model in runtime.models()
    ]
    assert () == runtime.degraded()
    assert [] == runtime.pending.report()


async def test_closing_ends_the_tries(hub: _Hub) -> None:
    runtime = await _built(load_settings(speech_model=WANTED))
    runtime.start()
    await until(lambda: hub.asked >= 2)

    runtime.close()

    await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "fetch_models"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("/nowhere", "the folder /nowhere does not exist", id="no-folder"),
        pytest.param("", "no Whisper model in CTranslate2's format", id="empty-folder"),
        pytest.param(WANTED, "is not on the hub", id="unknown"),
    ],
)
async def test_a_wrong_setting_stops_the_start(hub: _Hub, tmp_path: Path, source: str, words: str) -> None:
    """The setting is named once."""
    hub.error = RepositoryNotFoundError(
        "404", response=httpx2.Response(404, request=httpx2.Request("GET", "https://hub.test"))
    )

    with pytest.raises(ModelUnavailable, match=words) as raised:
        await find_speech_model(load_settings(speech_model=source or str(tmp_path)))

    assert str(raised.value).startswith("SPEECH_MODEL")
    assert 1 == str(raised.value).count("SPEECH_MODEL:")


@pytest.mark.parametrize(("source", "stops"), [("bundled", False), ("/nowhere", True), ("none", False)])
async def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, source: str, stops: bool) -> None:
    """Only a model that was set is missed."""
    monkeypatch.setattr(speech, "_MODULES", ("absent_module",))
    finding = find_speech_model(load_settings(speech_model=source))

    if stops:
        with pytest.raises(ModelUnavailable, match="not installed"):
            await finding
    else:
        assert (None, False) == ((found := await finding).model, found.is_missing)


async def test_a_bundled_model_that_is_damaged_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest serves."""
    pytest.importorskip("ctranslate2", reason="the extra [speech] is not installed")

    def damaged(_source: str) -> None:
        raise ModelUnavailable("model.bin of the bundled speech model has another SHA-256")

    monkeypatch.setattr(speech, "resolve_speech_model", damaged)
    runtime = await _built(load_settings())

    assert ("SPEECH_MODEL: model.bin of the bundled speech model has another SHA-256",) == runtime.degraded()
    assert [] == runtime.models() == runtime.pending.report()


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        pytest.param("small", "/srv/models/small", ("small",), id="folder"),
        pytest.param("org/whisper-x", "org/whisper-x", ("org/whisper-x", "whisper-x"), id="hub"),
        pytest.param("whisper-base", "bundled", ("whisper-base", "bundled", *HUB_NAMES), id="bundled"),
    ],
)
def test_names_tell_no_folder(name: str, source: str, expected: tuple[str, ...]) -> None:
    """An error lists them to callers; and "bundled" is the bundled model alone. OpenAI's and those set come after."""
    files: Any = SimpleNamespace(name=name, source=source)

    assert (*expected, *OPENAI_NAMES) == _names(files)
    assert (*expected, *OPENAI_NAMES, "whisper-large-v3") == _names(files, ("whisper-large-v3", "whisper-1"))


def test_openai_s_names() -> None:
    """The official client's own list, but for the model that tells speakers apart."""
    audio_model = pytest.importorskip("openai.types.audio_model")

    assert set(get_args(audio_model.AudioModel)) - {"gpt-4o-transcribe-diarize"} == set(OPENAI_NAMES)


async def test_what_a_card_keeps_for_speech(monkeypatch: pytest.MonkeyPatch, tiny_whispers: TinyWhispers) -> None:
    """Its library allocates beside torch, whose ceiling leaves room for the weights and 16 windows; on a CPU none."""
    lowered: list[tuple[str, int]] = []
    monkeypatch.setattr(speech, "lower_ceiling", lambda *asked: lowered.append(asked))
    folder = tiny_whispers.folder()
    weights_bytes = (folder / "model.bin").stat().st_size
    await _built(load_settings(speech_model=str(folder)))
    monkeypatch.setattr(speech, "place_speech", lambda *_, **__: SpeechPlacement("cuda", 1, "float16", 1, 1, ""))
    await _built(load_settings(speech_model=str(folder)), CARD)
    await _built(load_settings(speech_model=str(folder)), replace(CARD, memory_bytes=2**20))

    [(device, kept_bytes), (_, kept_of_little_bytes)] = lowered
    assert "cuda:1" == device
    assert weights_bytes + 16 * 40 * 2**20 < kept_bytes < 1.2 * 2**30
    assert 2**18 == kept_of_little_bytes


async def test_a_model_of_voices_tells_speakers_apart(tmp_path: Path) -> None:
    """Its transcripts are not those of a service without it, and OpenAI's name of such a model is its own, too."""
    pytest.importorskip("ctranslate2", reason="the extra [speech] is not installed")
    plain = await _built(load_settings())
    telling = await _built(load_settings(speaker_model=str(voices(tmp_path))))

    assert (False, True) == (plain.service.tells_speakers, telling.service.tells_speakers)
    assert {"gpt-4o-transcribe-diarize"} == set(telling.service.names) - set(plain.service.names)


@pytest.mark.parametrize(
    ("speech_model", "speaker_model", "words"),
    [
        pytest.param("bundled", "/nowhere.onnx", "SPEAKER_MODEL: /nowhere.onnx cannot be read", id="no-file"),
        pytest.param("none", "/nowhere.onnx", "SPEAKER_MODEL is set, and nothing is transcribed", id="no-speech"),
    ],
)
async def test_a_model_of_voices_that_cannot_serve_stops_the_start(
    speech_model: str, speaker_model: str, words: str
) -> None:
    """A wish is not ignored."""
    pytest.importorskip("ctranslate2", reason="the extra [speech] is not installed")

    with pytest.raises(ModelUnavailable, match=words):
        await _built(load_settings(speech_model=speech_model, speaker_model=speaker_model))
