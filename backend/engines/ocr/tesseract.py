"""Tesseract as an engine of the lanes: preprocesses pages, recognises them, and maps boxes back to the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.engines.engine import BatchLimits, UnlimitedBatches
from backend.engines.ocr.languages import tesseract_code
from backend.engines.ocr.page_time import LaneShares, PageTime
from backend.engines.ocr.records import PROGRAM, TESSERACT, Gray, OcrImage, OcrResult
from backend.engines.ocr.tessdata import Tessdata
from backend.engines.ocr.tesseract_library import TesseractLibrary
from backend.engines.ocr.tesseract_program import TesseractProgram
from backend.engines.ocr.tesseract_words import TesseractBackend, TesseractResult
from backend.errors import InvalidField

DEFAULT_DPI = 200.0  # of images without a resolution; Tesseract uses it for its layout analysis only


@dataclass(frozen=True, slots=True)
class TesseractPage:
    """A page, and Tesseract's names of its languages."""

    image: OcrImage
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TesseractEngine:
    """An `Engine`: OcrImage -> OcrResult by Tesseract, one page a batch. All lanes may run it at once."""

    backend: TesseractBackend
    data: Tessdata
    shares: LaneShares = field(default_factory=LaneShares, compare=False)
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    name: str = TESSERACT
    budget: int = 1  # one page a batch: pages share no arithmetic
    padding_cost: float = 1.0

    @property
    def version(self) -> str:
        """Name and version: "tesseract 5.5.4"."""
        return f"tesseract {self.backend.version}"

    @property
    def languages(self) -> tuple[str, ...]:
        return self.data.languages

    def on(self, device_index: int) -> TesseractEngine:  # noqa: ARG002 - the protocol's arguments
        """The same engine: it runs on the CPU, whatever the device of the lane."""
        return self

    def prepare(self, payloads: Sequence[OcrImage]) -> list[TesseractPage]:
        """Check the languages of the payloads.

        Raises:
            InvalidField: a language without data.
        """
        return [TesseractPage(image, self.codes_of(image.languages)) for image in payloads]

    def forward(self, prepared: list[TesseractPage]) -> list[OcrResult]:
        return [self._recognize(page) for page in prepared]

    def finish(self, output: list[OcrResult]) -> list[OcrResult]:
        """The results as they are: nothing is left to do."""
        return output

    def codes_of(self, languages: Sequence[str]) -> tuple[str, ...]:
        """Tesseract's names of languages.

        Raises:
            InvalidField: one without data, or no language at all.
        """
        codes = tuple(dict.fromkeys(code for language in languages if (code := tesseract_code(language))))
        missing = [language for language in languages if tesseract_code(language) not in self.data.codes]
        if missing or not codes:
            raise InvalidField(
                f"language: Tesseract has no data for '{','.join(missing)}' in {self.data.folder}, only for "
                f"{', '.join(self.languages)}; install tesseract-ocr-<language> and start again, or ask for another "
                "language or engine",
                param="language",
            )
        return codes

    def _recognize(self, page: TesseractPage) -> OcrResult:
        page_time = self.shares.begin(page.image.limit_s, self.backend.work_clock)
        try:
            return self._recognize_within(page, page_time)
        except TimeoutError as error:
            advice = "Send it at a lower resolution, or ask for one language only"
            raise page_time.error(advice) from error
        finally:
            self.shares.end(page_time)

    def _recognize_within(self, page: TesseractPage, page_time: PageTime) -> OcrResult:
        from backend.engines.ocr.orientation import recognize_upright  # lazily: loads OpenCV

        def recognize(gray: Gray, dpi: float) -> TesseractResult:
            return self.backend.recognize(gray, page.codes, dpi, page_time.timeout_s())

        upright = recognize_upright(page.image.pixels, page.image.dpi or DEFAULT_DPI, recognize)
        return OcrResult(
            blocks=upright.blocks,
            rotation=upright.rotation,
            confidence=upright.confidence,
            engine=self.version,
            why=_why(self.backend.why, upright.steps, upright.confidence),
            steps=upright.steps,
        )


def _why(where: str, steps: Sequence[str], confidence: float | None) -> str:
    if confidence is None:
        return f"Tesseract, {where}, found no words"
    return f"Tesseract, {where}, after {', '.join(steps)}" if steps else f"Tesseract, {where}, on the page as it is"


def start_tesseract(data: Tessdata) -> TesseractEngine:
    """Tesseract in the process.

    Raises:
        SetupError: tesserocr is absent.
    """
    return TesseractEngine(TesseractLibrary(data), data)


def start_tesseract_program(data: Tessdata, program: str = "tesseract") -> TesseractEngine:
    """Tesseract as a program.

    Raises:
        SetupError: the program or pytesseract is absent.
    """
    return TesseractEngine(TesseractProgram(data, program), data, name=PROGRAM)
