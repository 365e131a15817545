"""The speech model in memory: where it runs, that it loads once, and that it gives its memory back."""

import sys
import threading
from pathlib import Path

import pytest

from backend.device.plan.placement import Placement
from backend.errors import ModelUnavailable, Unavailable
from backend.speech import whisper
from backend.speech.model_files import SpeechModelFiles
from backend.speech.whisper import LoadedWhisper, SpeechPlacement, WhisperSource, load_whisper, place_speech
from tests.tiny_whispers import ON_CPU, TinyWhispers

CPU = Placement("cpu", 2, 1, 1, ())
CUDA = Placement("cuda:1", 1, 1, 2, ())
CARD = frozenset({"float32", "float16", "int8_float16", "bfloat16", "int8"})


def test_placed_on_a_cpu() -> None:
    """One worker a lane, each with one thread, in int8."""
    assert ("cpu", 0, "int8", 4, 1) == _short(place_speech(CPU, lanes=4))
    assert ("cpu", 0, "float32", 4, 1) == _short(place_speech(CPU, "float32", lanes=4))


def test_precision_that_a_cpu_has_not() -> None:
    """Refused at the start, with the setting and what there is: it would fail at each request. auto takes another."""
    with pytest.raises(ModelUnavailable, match=r"SPEECH_PRECISION.*no float16 on this CPU \(float32, int8; "):
        place_speech(CPU, "float16", lanes=4, cpu_types=frozenset({"int8", "float32"}))
    with pytest.raises(ModelUnavailable, match=r"SPEECH_PRECISION.*cuda:1"):
        place_speech(CUDA, "float16", lanes=4, cuda_types=frozenset(), cpu_types=frozenset({"int8", "float32"}))

    assert "float32" == place_speech(CPU, lanes=4, cpu_types=frozenset({"float32"})).precision
    assert "float16" == place_speech(CPU, "float16", lanes=4, cpu_types=frozenset({"float16"})).precision


def test_placed_on_a_card() -> None:
    """float16 where the card has it, else float32; a CTranslate2 without CUDA runs on the CPU and says so."""
    old = place_speech(CUDA, lanes=4, cuda_types=frozenset({"float32"}))
    without = place_speech(CUDA, lanes=4, cuda_types=frozenset())

    assert ("cuda", 1, "float16", 1, 1) == _short(place_speech(CUDA, lanes=4, cuda_types=CARD))
    assert ("cuda", 1, "int8", 1, 1) == _short(place_speech(CUDA, "int8", lanes=4, cuda_types=CARD))
    assert ("cuda", 1, "float32", 1, 1) == _short(old)
    assert ("cpu", 0, "int8", 4, 1) == _short(without)
    assert "no CUDA" in without.why


def test_placed_where_a_library_of_cuda_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch for another CUDA has not the library that CTranslate2 needs: the model runs on the CPU, and says why."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda *_: {"float16", "float32"})
    monkeypatch.setattr(whisper, "_CUBLAS", "libno_such_library.so.12")

    absent = place_speech(CUDA, lanes=2)
    monkeypatch.setattr(whisper.ctypes, "CDLL", lambda _name: None)

    assert "cpu" == absent.device
    assert "libno_such_library.so.12 of CUDA 12 cannot be loaded" in absent.why
    assert "pip install nvidia-cublas-cu12" in absent.why
    assert ("cuda", 1, "float16", 1, 1) == _short(place_speech(CUDA, lanes=2))


@pytest.mark.parametrize("has_both", [True, False])
def test_cublas_of_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_both: bool) -> None:
    """Where no loader knows the name, nvidia-cublas-cu12's files are opened by path: the one it asks for first."""
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    opened: list[str] = []

    def open_library(name: str) -> None:
        if not name.startswith(str(folder)) or not has_both:
            raise OSError(f"{name}: cannot open shared object file")
        opened.append(Path(name).name)

    monkeypatch.setattr(whisper.ctypes, "CDLL", open_library)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder.mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    fault = whisper.load_cublas()

    assert (["libcublasLt.so.12", "libcublas.so.12"] if has_both else []) == opened
    assert has_both == (fault == "")


def _short(place: SpeechPlacement) -> tuple[str, int, str, int, int]:
    return place.device, place.device_index, place.precision, place.workers, place.threads


def test_arithmetic_that_a_device_has_not(tiny_whispers: TinyWhispers) -> None:
    """The error names the settings."""
    place = SpeechPlacement("cuda", 0, "float16", 1, 1, "")

    with pytest.raises(ModelUnavailable, match=r"cannot be loaded on cuda in float16.*SPEECH_PRECISION"):
        load_whisper(tiny_whispers.source().files, place)


@pytest.mark.parametrize("mels", [80, 128])
def test_loads(tiny_whispers: TinyWhispers, mels: int) -> None:
    """The number of mels comes from the weights."""
    assert mels == tiny_whispers.source(mels).get().mels


def test_loads_once_for_all_lanes(tiny_whispers: TinyWhispers) -> None:
    """Lanes that ask at the same time wait for one load."""
    files, loaded = tiny_whispers.source().files, []
    begin = threading.Barrier(4)

    def load(files: SpeechModelFiles, _place: SpeechPlacement) -> LoadedWhisper:
        loaded.append(files.name)
        return LoadedWhisper(None, files.tokens, 80)

    source = WhisperSource(files, ON_CPU, load=load)

    def ask() -> None:
        begin.wait()
        source.get()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [files.name] == loaded
    source.release()
    assert not source.is_loaded
    source.get()
    assert 2 == len(loaded)


def test_a_model_that_is_gone_is_unavailable(tiny_whispers: TinyWhispers) -> None:
    """A load that fails while serving is 503, not an end of the lane."""

    def load(_files: SpeechModelFiles, _place: SpeechPlacement) -> LoadedWhisper:
        raise ModelUnavailable("the files are gone")

    with pytest.raises(Unavailable, match="the files are gone"):
        WhisperSource(tiny_whispers.source().files, ON_CPU, load=load).get()


def test_the_fingerprint_names_the_arithmetic(tiny_whispers: TinyWhispers) -> None:
    """int8 and float32 write different texts: they share no cache."""
    files = tiny_whispers.source().files
    int8 = SpeechPlacement("cpu", 0, "int8", 1, 1, "")

    assert WhisperSource(files, ON_CPU).fingerprint != WhisperSource(files, int8).fingerprint
