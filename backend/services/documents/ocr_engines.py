"""The engines that read pages here: which can be used, which were asked for, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from backend.engines.engine import Engine
from backend.engines.ocr.engine_choice import EngineWish
from backend.engines.ocr.rapidocr_charset import LANGUAGES, is_latin_print
from backend.engines.ocr.rapidocr_detector import DetectEngine
from backend.engines.ocr.rapidocr_models import RapidModels, rapid_version
from backend.engines.ocr.rapidocr_recognizer import RecognizeEngine
from backend.engines.ocr.tessdata import find_tessdata
from backend.engines.ocr.tesseract import TesseractEngine, start_tesseract, start_tesseract_program
from backend.errors import InvalidField, SetupError


@dataclass(frozen=True, slots=True)
class TesseractFacts:
    """Tesseract as a page engine."""

    engine: Engine  # payload OcrImage -> OcrResult
    version: str  # "tesseract 5.5.1"
    languages: tuple[str, ...]  # ISO 639-1, of the data that are there


@dataclass(frozen=True, slots=True)
class RapidEngines:
    """RapidOCR's three engines: one finds lines, two read them."""

    version: str  # "rapidocr 3.10.0"
    detect: Engine
    latin: Engine  # reads Latin print
    every_script: Engine
    languages: tuple[str, ...] = LANGUAGES
    on_device: bool = False  # its sessions run on the device that the models run on, not on the CPU beside it
    why: str = ""  # where they run; one sentence
    give_back: Callable[[], None] = lambda: None  # memory kept of past pages; any thread

    def recognizer(self, languages: Sequence[str]) -> Engine:
        """The reader for a page in these languages."""
        return self.latin if is_latin_print(languages) else self.every_script


@dataclass(frozen=True, slots=True)
class OcrEngines:
    """What there is; at least one, or OCR is refused with the reasons in ``absent``."""

    tesseract: TesseractFacts | None = None  # in the process
    pytesseract: TesseractFacts | None = None  # as a program
    rapid: RapidEngines | None = None
    wish: EngineWish = "auto"  # OCR_ENGINE: what a request gets that asks for none
    absent: tuple[str, ...] = ()  # why an engine cannot be used, one sentence each

    @property
    def first(self) -> TesseractFacts | None:
        """The Tesseract that ``auto`` begins with."""
        return self.tesseract or self.pytesseract

    @property
    def by_name(self) -> dict[str, TesseractFacts | RapidEngines]:
        """Those that can be asked for."""
        found = {"tesseract": self.tesseract, "pytesseract": self.pytesseract, "rapidocr": self.rapid}
        return {name: engine for name, engine in found.items() if engine is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.by_name)

    @property
    def why(self) -> str:
        """How a page is read that asks for no engine; one sentence."""
        if self.wish != "auto":
            return f"OCR_ENGINE={self.wish}"
        if self.first is None:
            return "RapidOCR reads every page: " + "; ".join(self.absent) if self.rapid else "; ".join(self.absent)
        if self.rapid is None:
            return "Tesseract reads every page: " + "; ".join(self.absent)
        return "Tesseract reads first, RapidOCR the pages on which it is not sure"

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 of what one engine or another can read, sorted."""
        return tuple(sorted({language for engine in self.by_name.values() for language in engine.languages}))


def unread(languages: Sequence[str], engine: TesseractFacts | RapidEngines) -> tuple[str, ...]:
    """Those of ``languages`` that the engine cannot read."""
    return tuple(one for one in languages if one not in engine.languages)


def cannot_read(languages: Sequence[str], who: str, known: Sequence[str]) -> InvalidField:
    """The error for languages that ``who`` cannot read; ``known`` are those it can."""
    return InvalidField(
        f"language: {who} cannot read {', '.join(languages)} here, only {', '.join(known)}. Leave it out, or install "
        "tesseract-ocr-<language>",
        param="language",
    )


def load_ocr_engines(
    wish: EngineWish, tessdata_folder: str | None = None, device: str = "cpu", threads: int = 1
) -> OcrEngines:
    """Find the engines; no network is read before the first page.

    Args:
        wish: OCR_ENGINE. An engine named here must be there; ``auto`` does with what it finds.
        tessdata_folder: TESSDATA_PREFIX; None searches the usual places.
        device: torch device string of the placement.
        threads: arithmetic threads of a lane.

    Raises: SetupError when the engine named is not there, or a TESSDATA_PREFIX holds nothing.
    """
    absent: list[str] = []
    data = find_tessdata(tessdata_folder)
    tesseract = program = None
    if data is None:
        absent.append("no language data of Tesseract were found (install tesseract-ocr, or set TESSDATA_PREFIX)")
    else:
        tesseract = _started(partial(start_tesseract, data), absent)
        program = _started(partial(start_tesseract_program, data), absent)
    rapid = _rapid(device, threads, absent)
    engines = OcrEngines(tesseract, program, rapid, wish, tuple(absent))
    if wish != "auto" and wish not in engines.names:
        raise SetupError(
            f"OCR_ENGINE={wish}: it cannot be used here: {'; '.join(absent)}. There are: "
            f"{', '.join(engines.names) or 'none'}; OCR_ENGINE=auto takes what there is"
        )
    return engines


def _started(start: partial[TesseractEngine], absent: list[str]) -> TesseractFacts | None:
    try:
        engine = start()
    except SetupError as error:
        absent.append(str(error))
        return None
    return TesseractFacts(engine, engine.version, engine.languages)


def _rapid(device: str, threads: int, absent: list[str]) -> RapidEngines | None:
    version = rapid_version()
    if not version:
        absent.append("rapidocr, or its models, OpenCV or ONNX Runtime, is not installed")
        return None
    models = RapidModels(device, threads)
    on_device = device.startswith("cuda") and models.provider.name == "CUDAExecutionProvider"
    why = models.provider.why if device.startswith("cuda") else "ONNX Runtime on the CPU"
    return RapidEngines(
        version=f"rapidocr {version}",
        detect=DetectEngine(models),
        latin=RecognizeEngine(models, latin=True, on_gpu=on_device),
        every_script=RecognizeEngine(models, latin=False, on_gpu=on_device),
        on_device=on_device,
        why=why,
        give_back=models.give_back,
    )
