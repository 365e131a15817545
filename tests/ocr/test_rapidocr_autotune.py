"""Which runtime executes RapidOCR's networks: the fastest that reads alike, measured once."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from backend.device.facts.machine import probe
from backend.device.records import MachineFacts
from backend.device.tuning_cache import TuningCache
from backend.models.runtimes import Candidate
from backend.ocr import rapidocr_autotune
from backend.ocr.rapidocr_autotune import (
    ProbeReading,
    RuntimeSelector,
    TunedModels,
    candidates,
    difference,
    probe_page,
    read_page,
)
from backend.ocr.rapidocr_engines import CropWord, DetectedPage, RecognizedLine
from backend.ocr.rapidocr_models import RapidOcrModels
from backend.ocr.rapidocr_sessions import ONNX_FP32, LaneThreads
from backend.ocr.text_boxes import Crop, LineShape

FP32, BF16 = Candidate("openvino", "fp32"), Candidate("openvino", "bf16")
QUAD = np.array([[0, 0], [90, 0], [90, 10], [0, 10]], np.float32)
CORES = LaneThreads(1, 2)


def reading(
    page_s: float = 1.0, *, text: str = "hola", confidence: float = 0.95, moved_px: float = 0.0
) -> ProbeReading:
    page = DetectedPage(0, (Crop(LineShape(QUAD + moved_px), np.zeros((48, 320, 3), np.uint8)),))
    return ProbeReading(page, (RecognizedLine((CropWord(text, 0, 90, confidence),), confidence),), page_s)


@pytest.fixture(scope="module")
def facts() -> MachineFacts:
    return dataclasses.replace(probe(look_for_gpu=False), cpu_flags=("avx512_bf16",))


class Reader:
    """Reads the made page as scripted, and counts."""

    def __init__(self, readings: dict[Candidate, ProbeReading | Exception]) -> None:
        self.readings, self.asked = readings, list[Candidate]()

    def __call__(self, candidate, cores, lines_of):
        self.asked.append(candidate)
        answer = self.readings[candidate]
        if isinstance(answer, Exception):
            raise answer
        return answer


def selector(facts: MachineFacts, folder: Path, reader: Reader) -> RuntimeSelector:
    return RuntimeSelector(facts, CORES, TuningCache(folder / "tuning.json"), read=reader)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param({FP32: reading(0.6), BF16: reading(0.4)}, BF16, id="the-fastest"),
        pytest.param({FP32: reading(0.6), BF16: reading(0.4, text="bola")}, FP32, id="other-text"),
        pytest.param({FP32: reading(0.6), BF16: RuntimeError("no kernel")}, FP32, id="one-that-fails"),
        pytest.param({FP32: reading(1.2), BF16: reading(1.1)}, ONNX_FP32, id="onnx-runtime-is-the-fastest"),
    ],
)
def test_the_fastest_that_reads_alike(facts, tmp_path, readings, expected):
    """A candidate is compared with ONNX Runtime's float32; what it fails at is kept beside its time."""
    choice = selector(facts, tmp_path, Reader({ONNX_FP32: reading(1.0), **readings})).measure()

    assert expected == choice.candidate
    assert [str(each) for each in (ONNX_FP32, BF16, FP32)] == [row.candidate for row in choice.measured]
    assert str(expected) in choice.why


def test_a_choice_is_kept_for_the_same_machine(facts, tmp_path):
    """Another processor, or other lanes, measure anew."""
    reader = Reader({ONNX_FP32: reading(1.0), FP32: reading(0.6), BF16: reading(0.4)})
    chosen = selector(facts, tmp_path, reader)
    assert chosen.kept() is None
    choice = chosen.measure()

    assert choice == selector(facts, tmp_path, reader).kept()
    assert selector(dataclasses.replace(facts, cpu_name="another"), tmp_path, reader).kept() is None
    assert RuntimeSelector(facts, LaneThreads(1, 4), TuningCache(tmp_path / "tuning.json")).kept() is None


def test_a_kept_choice_of_another_form_is_measured_again(facts, tmp_path):
    """A file that another release wrote stops nothing."""
    kept = TuningCache(tmp_path / "tuning.json")
    chosen = RuntimeSelector(facts, CORES, kept)
    kept.save(chosen._key(), {"runtime": "openvino"})

    assert chosen.kept() is None


def test_bf16_only_where_the_processor_has_it(facts):
    """Emulated, it is slower than float32."""
    assert [BF16, FP32] == candidates(facts)
    assert [FP32] == candidates(dataclasses.replace(facts, cpu_flags=("avx2",)))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({}, "", id="equal"),
        pytest.param({"confidence": 0.94, "moved_px": 1.0}, "", id="rounding"),
        pytest.param({"text": "bola"}, "reads 'bola', float32 'hola'", id="text"),
        pytest.param({"confidence": 0.8}, "has a confidence of 0.800", id="confidence"),
        pytest.param({"confidence": float("nan")}, "has a confidence of nan", id="not-a-number"),
        pytest.param({"moved_px": 9.0}, "by 9.0 pixels", id="boxes"),
    ],
)
def test_difference(changed, expected):
    """Rounding is none; another letter, place or certainty is, and is named."""
    found = difference(reading(**changed), reading())

    assert found.startswith(expected) if not expected.startswith("by") else expected in found
    assert bool(expected) == bool(found)


def test_another_number_of_lines_is_a_difference():
    """Also none at all."""
    nothing = ProbeReading(DetectedPage(0, ()), reading().lines, 1.0)

    assert "detects 0 lines" in difference(nothing, reading())


def test_networks_serve_before_they_are_measured(facts, tmp_path, monkeypatch):
    """The first process takes what is known and switches to what was measured; a later one takes that at once."""
    pages: list[Candidate] = []
    monkeypatch.setattr(rapidocr_autotune, "read_page", lambda models, _: pages.append(models.runtime))
    chosen = selector(facts, tmp_path, Reader({ONNX_FP32: reading(1.0), FP32: reading(0.4), BF16: reading(0.6)}))
    models = RapidOcrModels("cpu", 1, lanes=2)
    tuned = TunedModels(models, chosen)
    tuned.warm_up()
    tuned.adopt()

    assert [BF16] == pages, "nothing was measured yet"
    assert "not measured here yet" in tuned.why()
    assert tuned.measure is not None

    chosen.measure()
    tuned.adopt()

    assert FP32 == models.runtime
    assert "openvino fp32" in tuned.why()

    later = RapidOcrModels("cpu", 1, lanes=2)
    assert TunedModels(later, chosen).measure is None
    assert FP32 == later.runtime


@pytest.mark.slow
def test_the_made_page_is_read():
    """Every line of it, with its accents."""
    page = probe_page()
    detected, lines = read_page(RapidOcrModels("cpu", 1), page)
    text = [" ".join(word.text for word in line.words) for line in lines]

    assert 4 == len(detected.lines)
    assert any("vencimiento a treinta días." in line for line in text)
    assert min(line.confidence for line in lines) > 0.9
