"""The OCR engines of this machine: which can be used, which the setting OCR_ENGINE chooses, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backend.errors import InvalidField, SetupError
from backend.lanes.engine import Engine
from backend.models.resting_process import Work
from backend.ocr.engine_choice import OcrEngineName
from backend.ocr.rapidocr_autotune import RuntimeSelector, TunedModels
from backend.ocr.rapidocr_engines import DetectionEngine, RecognitionEngine
from backend.ocr.rapidocr_models import LANGUAGES, RapidOcrModels, is_latin_print, rapidocr_version
from backend.ocr.tessdata import TESSERACT_CODES, Tessdata, find_tessdata, iso_codes
from backend.ocr.tesseract import PreparationEngine, TesseractEngine, start_tesseract, start_tesseract_program
from backend.speech.languages import language_code


@dataclass(frozen=True, slots=True)
class TesseractInfo:
    """Tesseract's three engines: two make pages ready, one recognises their parts."""

    prepare: Engine
    search: Engine  # prepares a page that may be upside down
    read: Engine
    where: str  # it runs, in a few words: "in the process"
    version: str  # "tesseract 5.5.1"
    languages: tuple[str, ...]  # ISO 639-1, of the installed data


@dataclass(frozen=True, slots=True)
class RapidOcrEngines:
    """RapidOCR's three engines: one detects lines, two recognise them."""

    version: str  # "rapidocr 3.10.0"
    detect: Engine
    latin: Engine  # recognises Latin print
    every_script: Engine
    languages: tuple[str, ...] = LANGUAGES
    on_device: bool = False  # its sessions run on the device of the models, not on the CPU beside it
    runs_on: Callable[[], str] = lambda: ""  # one sentence: what executes the networks, and why
    warm_up: Callable[[], None] = lambda: None  # loads the networks
    measure: Work | None = None  # the runtimes; None where they are measured, or there is nothing to choose
    adopt: Callable[[], None] = lambda: None  # what was measured; any thread
    release_memory: Callable[[], None] = lambda: None  # that past pages took; any thread
    unload: Callable[[], None] = lambda: None  # the networks, until the next page; any thread

    @property
    def why(self) -> str:
        """Where the networks run; one sentence."""
        return self.runs_on()

    def recognizer(self, languages: Sequence[str]) -> Engine:
        """The recogniser for a page in these languages."""
        return self.latin if is_latin_print(languages) else self.every_script


@dataclass(frozen=True, slots=True)
class RapidOcrPlacement:
    """Where RapidOCR's networks may run."""

    device: str = "cpu"  # torch device string of the placement
    device_bytes: int = 0  # that the networks may take of a GPU; 0 for no limit
    threads: int = 1  # of a page lane, for arithmetic on a CPU
    lanes: int = 1  # for pages
    selector: RuntimeSelector | None = None  # of the runtime on a CPU; None: ONNX Runtime


@dataclass(frozen=True, slots=True)
class OcrEngines:
    """The usable engines. Without any, OCR is refused with the reasons in ``absent``."""

    tesseract: TesseractInfo | None = None  # in the process
    pytesseract: TesseractInfo | None = None  # as a program
    rapidocr: RapidOcrEngines | None = None
    default: OcrEngineName = "auto"  # OCR_ENGINE, for requests that name no engine
    absent: tuple[str, ...] = ()  # why an engine cannot be used, one sentence each
    tessdata_digest: str = ""  # of Tesseract's language data: part of the keys of cached pages

    @property
    def any_tesseract(self) -> TesseractInfo | None:
        """The Tesseract that ``auto`` starts with: in the process where it can be, else the program."""
        return self.tesseract or self.pytesseract

    @property
    def by_name(self) -> dict[str, TesseractInfo | RapidOcrEngines]:
        """The usable engines by the names that requests choose them by."""
        engines = {"tesseract": self.tesseract, "pytesseract": self.pytesseract, "rapidocr": self.rapidocr}
        return {name: engine for name, engine in engines.items() if engine is not None}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    @property
    def why(self) -> str:
        """How pages are recognised when a request names no engine; one sentence."""
        if self.default != "auto":
            return f"OCR_ENGINE={self.default}"
        if self.any_tesseract is None:
            lost = "RapidOCR reads every page, clean print in twice the time: " if self.rapidocr else ""
            return lost + "; ".join(self.absent)
        if self.rapidocr is None:
            return "Tesseract reads every page: " + "; ".join(self.absent)
        return "Tesseract reads first, RapidOCR the pages on which it is not sure"

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 of the languages that any engine can read, sorted."""
        return tuple(sorted({language for engine in self.by_name.values() for language in engine.languages}))


def unsupported(languages: Sequence[str], engine: TesseractInfo | RapidOcrEngines) -> tuple[str, ...]:
    return tuple(language for language in languages if language not in engine.languages)


def print_languages(words: Iterable[str], param: str = "language") -> tuple[str, ...]:
    """ISO 639-1 of languages of print as clients write them: es, es-ES, spa, spanish, chi_sim.

    Raises: InvalidField, about ``param``, for a word that is no language; whether an engine is here that reads it, the
        first page without a text of its own will show.
    """
    codes: dict[str, None] = {}
    for word in words:
        spelling = word.strip().lower()
        known = spelling if spelling in TESSERACT_CODES else next(iter(iso_codes([spelling])), None)
        code = known or language_code(spelling)
        if code is None:
            raise InvalidField(
                f"{param}: '{word[:40]}' is no language that an engine reads; send a code such as es, or leave it out "
                "for OCR_LANGUAGES",
                param=param,
            )
        codes[code] = None
    return tuple(codes)


def cannot_read(languages: Sequence[str], engine: str, known: Sequence[str]) -> InvalidField:
    """The error for languages that ``engine`` cannot read; ``known`` are those it can."""
    return InvalidField(
        f"language: {engine} cannot read {', '.join(languages)} here, only {', '.join(known)}. Leave it out, or "
        "install tesseract-ocr-<language> and start the service again",
        param="language",
    )


def check_default_languages(languages: Sequence[str], engines: OcrEngines) -> None:
    """Raises: SetupError for OCR_LANGUAGES that no engine reads; without an engine nothing is checked."""
    unknown = [language for language in languages if language not in engines.languages]
    if unknown and engines.names:
        raise SetupError(
            f"OCR_LANGUAGES: {', '.join(unknown)} cannot be read here, only {', '.join(engines.languages)}. Leave it "
            "out, or install tesseract-ocr-<language>"
        )


def load_ocr_engines(
    default: OcrEngineName,
    tessdata_folder: str | None = None,
    placement: RapidOcrPlacement | None = None,
    *,
    keep_in: Path | None = None,
) -> OcrEngines:
    """Find the engines. RapidOCR's networks are loaded by its ``warm_up``, or with the first page.

    Args:
        default: OCR_ENGINE. An engine named here must be usable; ``auto`` takes what there is.
        tessdata_folder: TESSDATA_PREFIX; None uses the data that come with the service, and the machine's.
        placement: where RapidOCR may run; None: on the CPU.
        keep_in: where language data are unpacked that the installation has not; None for the installation itself.

    Raises: SetupError when the named engine cannot be used, or TESSDATA_PREFIX has no data.
    """
    absent: list[str] = []
    data = find_tessdata(tessdata_folder, keep_in)
    tesseract = program = None
    if data is None:
        absent.append("Tesseract's language data cannot be unpacked (the log says why), and this machine has none")
    else:
        tesseract = _start_tesseract(partial(start_tesseract, data), data, absent)
        program = _start_tesseract(partial(start_tesseract_program, data), data, absent)
    rapidocr = _start_rapidocr(placement or RapidOcrPlacement(), absent)
    digest = "" if data is None else data.digest()
    engines = OcrEngines(tesseract, program, rapidocr, default, tuple(absent), digest)
    if default != "auto" and default not in engines.names:
        raise SetupError(
            f"OCR_ENGINE={default}: it cannot be used here: {'; '.join(absent)}. There are: "
            f"{', '.join(engines.names) or 'none'}; OCR_ENGINE=auto takes what there is"
        )
    return engines


def _start_tesseract(start: partial[TesseractEngine], data: Tessdata, absent: list[str]) -> TesseractInfo | None:
    try:
        engine = start()
    except SetupError as error:
        absent.append(str(error))
        return None
    return TesseractInfo(
        prepare=PreparationEngine(engine, data),
        search=PreparationEngine(engine, data, searches=True),
        read=engine,
        where=engine.backend.why,
        version=engine.version,
        languages=data.languages,
    )


def _start_rapidocr(placement: RapidOcrPlacement, absent: list[str]) -> RapidOcrEngines | None:
    version = rapidocr_version()
    if not version:
        absent.append("rapidocr, or its models, OpenCV or ONNX Runtime, is not installed")
        return None
    models = RapidOcrModels(
        placement.device, placement.threads, lanes=placement.lanes, device_bytes=placement.device_bytes
    )
    on_device = placement.device.startswith("cuda") and models.provider.is_cuda
    tuned = TunedModels(models, None if on_device else placement.selector)
    return RapidOcrEngines(
        version=f"rapidocr {version}",
        detect=DetectionEngine(models),
        latin=RecognitionEngine(models, latin=True, on_gpu=on_device),
        every_script=RecognitionEngine(models, latin=False, on_gpu=on_device),
        on_device=on_device,
        runs_on=tuned.why,
        warm_up=tuned.warm_up,
        measure=tuned.measure,
        adopt=tuned.adopt,
        release_memory=models.release_memory,
        unload=models.unload,
    )
