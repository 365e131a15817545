"""Tesseract as an engine of the lanes: look at the page, prepare it, read it, give its words their places back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backend.engines.engine import BatchLimits, UnlimitedBatches
from backend.engines.ocr.languages import tesseract_code
from backend.engines.ocr.records import Gray, OcrImage, OcrResult, too_long
from backend.engines.ocr.tasks import PROGRAM, TESSERACT
from backend.engines.ocr.tessdata import Tessdata
from backend.engines.ocr.tesseract_library import LibraryReader
from backend.engines.ocr.tesseract_program import ProgramReader
from backend.engines.ocr.tesseract_words import Reading, TesseractReader
from backend.errors import InvalidField, TooLarge

DEFAULT_DPI = 200.0  # what pages are drawn with where nobody says otherwise; Tesseract only sizes its layout by it

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Page:
    """A payload with the time by which it must be read."""

    image: OcrImage
    codes: tuple[str, ...]
    until: float  # on the engine's clock


@dataclass(frozen=True, slots=True)
class TesseractEngine:
    """Pages to words by Tesseract, one page a batch. Every lane may run it at once."""

    reader: TesseractReader
    data: Tessdata
    clock: Clock = time.monotonic
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    name: str = TESSERACT
    budget: int = 1  # one page a batch: pages share no arithmetic
    padding_cost: float = 1.0

    @property
    def version(self) -> str:
        """Of Tesseract: "tesseract 5.5.4"."""
        return f"tesseract {self.reader.version}"

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 of what it can read."""
        return self.data.languages

    def on(self, device_index: int) -> TesseractEngine:  # noqa: ARG002 - the protocol's arguments
        """Itself: it runs on the CPU, whatever the device of the lane."""
        return self

    def prepare(self, payloads: Sequence[OcrImage]) -> list[Page]:
        """Begin the payloads' time.

        Raises:
            InvalidField: a language whose data are not there.
        """
        now = self.clock()
        return [Page(image, self.codes_of(image.languages), now + image.limit_s) for image in payloads]

    def forward(self, prepared: list[Page]) -> list[OcrResult]:
        """Read the pages, each within its time."""
        return [self._read(page) for page in prepared]

    def finish(self, output: list[OcrResult]) -> list[OcrResult]:
        """Nothing is left to do."""
        return output

    def codes_of(self, languages: Sequence[str]) -> tuple[str, ...]:
        """Tesseract's names of languages.

        Raises:
            InvalidField: one whose data are not there, or none.
        """
        codes = tuple(dict.fromkeys(code for one in languages if (code := tesseract_code(one))))
        missing = [one for one in languages if tesseract_code(one) not in self.data.codes]
        if missing or not codes:
            raise InvalidField(
                f"language: Tesseract has no data for '{','.join(missing)}' in {self.data.folder}, only for "
                f"{', '.join(self.languages)}; install them there, or ask for another language or engine",
                param="language",
            )
        return codes

    def _read(self, page: Page) -> OcrResult:
        from backend.engines.ocr.orientation import read_upright  # OpenCV is loaded by the first page, not by the start

        def read(gray: Gray, dpi: float) -> Reading:
            left_s = page.until - self.clock()
            if left_s <= 0:
                raise TimeoutError
            return self.reader.read(gray, page.codes, dpi, left_s)

        try:
            read_page = read_upright(page.image.pixels, page.image.dpi or DEFAULT_DPI, read)
        except TimeoutError as error:
            raise self._too_long(page) from error
        return OcrResult(
            blocks=read_page.blocks,
            rotation=read_page.rotation,
            confidence=read_page.confidence,
            engine=self.version,
            why=_why(self.reader.why, read_page.steps, read_page.confidence),
            steps=read_page.steps,
        )

    def _too_long(self, page: Page) -> TooLarge:
        limit_s = page.image.limit_s
        spent_s = self.clock() - page.until + limit_s
        return too_long(spent_s, limit_s, "Send it at a lower resolution, or ask for one language only")


def _why(where: str, steps: Sequence[str], confidence: float | None) -> str:
    if confidence is None:
        return f"Tesseract, {where}, found no words"
    return f"Tesseract, {where}, after {', '.join(steps)}" if steps else f"Tesseract, {where}, on the page as it is"


def start_tesseract(data: Tessdata) -> TesseractEngine:
    """Tesseract in the process.

    Raises:
        SetupError: tesserocr is absent.
    """
    return TesseractEngine(LibraryReader(data), data)


def start_tesseract_program(data: Tessdata, program: str = "tesseract") -> TesseractEngine:
    """Tesseract as a program.

    Raises:
        SetupError: the program or pytesseract is absent.
    """
    return TesseractEngine(ProgramReader(data, program), data, name=PROGRAM)
