"""Chooses what executes RapidOCR's networks on a CPU: measured once on a made page, kept in a file.

A candidate must read that page as ONNX Runtime does in float32. Until it is measured, while the service rests, what was
the fastest elsewhere serves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from backend.device.memory.device_memory import trim_heap
from backend.device.plan.precision import dtypes_for
from backend.device.records import MachineFacts
from backend.device.tuning_cache import TuningCache, fingerprint
from backend.models.encoder_benchmark import ALWAYS_QUIET, Quiet, probe_texts
from backend.models.resting_process import Work
from backend.models.runtimes import Candidate, has_openvino, versions
from backend.ocr.rapidocr_engines import DetectedPage, DetectionEngine, RecognitionEngine, RecognizedLine
from backend.ocr.rapidocr_models import RapidOcrModels, rapidocr_version
from backend.ocr.rapidocr_sessions import ONNX_FP32, LaneThreads
from backend.ocr.text_boxes import Pixels
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_LINES, _LETTER_PX, _LINE_STEP_PX = 4, 21, 120  # of the made page
_PAGE_PX = (736, 928)  # height and width
_CORNER_PX = 3.0  # by which a line's corners may move; words keep their letters
_CONFIDENCE = 0.02  # by which a line's confidence may differ; `auto` decides on steps of 0.01


@dataclass(frozen=True, slots=True)
class RuntimeResult:
    """One candidate's measurement, shown by GET /v1/system."""

    candidate: str
    page_s: float  # of one thread, for the made page; 0.0 where it failed
    fault: str  # why it was not eligible, or ""


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """What executes the networks, and why."""

    runtime: str
    dtype: str
    why: str
    measured: tuple[RuntimeResult, ...]

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.runtime, self.dtype)


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """What a candidate reads on the made page."""

    page: DetectedPage
    lines: tuple[RecognizedLine, ...]
    page_s: float  # of the calling thread, on which the networks run: what else the machine does changes it little


Reader = Callable[[Candidate, LaneThreads, DetectedPage | None], ProbeReading]


class RuntimeSelector:
    """Chooses for one machine. Only tests replace ``read``, which reads the made page on a candidate."""

    def __init__(
        self,
        facts: MachineFacts,
        cores: LaneThreads,
        kept: TuningCache,
        *,
        read: Reader | None = None,
        quiet: Quiet = ALWAYS_QUIET,
    ) -> None:
        self._facts, self._cores, self._kept, self._quiet = facts, cores, kept, quiet
        self._read = read or _read_on

    def kept(self) -> RuntimeChoice | None:
        """The choice of an earlier start, if nothing that it depends on has changed."""
        entry = self._kept.load(self._key())
        try:
            return None if entry is None else _choice_from(entry)
        except (KeyError, TypeError, ValueError) as error:
            log_event(_log, logging.WARNING, "the kept choice cannot be used; measuring again", reason=error)
            return None

    def known(self) -> RuntimeChoice:
        """What serves until something is measured: the first candidate was the fastest on all processors so far."""
        best = next(iter(candidates(self._facts)), ONNX_FP32)
        return RuntimeChoice(best.runtime, best.dtype, f"{best} on the CPU, not measured here yet", ())

    @property
    def work(self) -> Work:
        """Measures in a `resting_process`."""
        return partial(_measure, self._facts, self._cores, self._kept)

    def measure(self) -> RuntimeChoice:
        """The fastest candidate that reads as ONNX Runtime does in float32. Some seconds.

        Raises: ModelUnavailable when ONNX Runtime itself fails.
        """
        self._quiet.wait()
        reference = self._read(ONNX_FP32, self._cores, None)
        results = [RuntimeResult(str(ONNX_FP32), reference.page_s, "")]
        results += [self._measured(candidate, reference) for candidate in candidates(self._facts)]
        trim_heap()
        choice = _choice(results)
        self._kept.save(self._key(), asdict(choice))
        return choice

    def _measured(self, candidate: Candidate, reference: ProbeReading) -> RuntimeResult:
        self._quiet.wait()
        try:
            reading = self._read(candidate, self._cores, reference.page)
        except Exception as error:  # noqa: BLE001  # the border to a foreign runtime: a kernel broken here shows only now
            return RuntimeResult(str(candidate), 0.0, f"fails: {error}")
        return RuntimeResult(str(candidate), reading.page_s, difference(reading, reference))

    def _key(self) -> str:
        machine = (self._facts.cpu_name, self._facts.cpu_flags)
        return fingerprint(
            {
                "model": f"rapidocr {rapidocr_version()}",
                "machine": machine,
                "place": asdict(self._cores),
                "versions": versions(),
            }
        )


class TunedModels:
    """Loads the networks on the runtime that is chosen for them. Any thread."""

    def __init__(self, models: RapidOcrModels, selector: RuntimeSelector | None) -> None:
        """Take the choice of an earlier start. ``selector``: None where there is nothing to choose."""
        self._models, self._selector = models, selector
        kept = selector.kept() if selector else None
        self.measure = selector.work if selector and kept is None else None
        self._choice = kept or (selector.known() if selector else None)
        if self._choice:
            models.use(self._choice.candidate)

    def why(self) -> str:
        """What executes the networks, and why; one sentence."""
        chosen = self._choice.why if self._choice else f"{self._models.runtime} on the CPU, not measured"
        if self._models.is_wanted_on_cuda:
            return self._models.provider.why if self._selector is None else f"{self._models.provider.why}; {chosen}"
        return chosen

    def adopt(self) -> None:
        """Take what was measured meanwhile. Pages that are being read keep the networks that they began with."""
        measured = self._selector.kept() if self._selector else None
        if measured and self._choice:
            if measured.candidate != self._choice.candidate:
                self._models.use(measured.candidate)
            self._choice = measured

    def warm_up(self) -> None:
        """Load the networks and run a page, on one lane: each lane takes 48 MB on OpenVINO.

        Seconds; blocks. Raises: ModelUnavailable.
        """
        read_page(self._models, probe_page())
        self._models.release_memory()
        trim_heap()


def candidates(facts: MachineFacts) -> list[Candidate]:
    """The alternatives to ONNX Runtime that are worth measuring on this processor. Loads nothing."""
    dtypes = dtypes_for(None, facts.cpu_flags).dtypes if has_openvino() else ()
    return [Candidate("openvino", dtype) for dtype in dtypes]


def probe_page() -> Pixels:
    """Printed Spanish and English sentences: (height, width_px) uint8."""
    import cv2  # lazily: only pages need it

    page = np.full((*_PAGE_PX, 3), 255, np.uint8)
    font = cv2.FontFace("sans")
    for number, text in enumerate(probe_texts()[:_LINES]):
        cv2.putText(page, text, (48, _LINE_STEP_PX * (number + 2)), (0, 0, 0), font, _LETTER_PX)
    return np.asarray(page[..., 0], np.uint8)


def read_page(
    models: RapidOcrModels, page: Pixels, lines_of: DetectedPage | None = None
) -> tuple[DetectedPage, tuple[RecognizedLine, ...]]:
    """Detect and recognise the lines of a page, one by one.

    Args:
        lines_of: whose lines are recognised, so that detection and recognition are compared apart; None: the detected.
    """
    detect, recognize = DetectionEngine(models), RecognitionEngine(models, latin=True, on_gpu=False)
    [detected] = detect.finish(detect.forward(detect.prepare([page])))
    crops = [crop.pixels for crop in (lines_of or detected).lines]
    lines = [recognize.finish(recognize.forward(recognize.prepare([crop])))[0] for crop in crops]
    return detected, tuple(lines)


def read_probe(models: RapidOcrModels, page: Pixels, lines_of: DetectedPage | None = None) -> ProbeReading:
    """Read the page twice, as the first time compiles the shapes, and release the memory that it took."""
    detected, lines = read_page(models, page, lines_of)
    started_s = time.thread_time()
    read_page(models, page, lines_of)
    page_s = time.thread_time() - started_s
    models.release_memory()
    return ProbeReading(detected, lines, page_s)


def difference(reading: ProbeReading, reference: ProbeReading) -> str:
    """How a reading differs from the reference's beyond rounding, or ""."""
    ours, theirs = reading.page, reference.page
    if ours.rotation != theirs.rotation or len(ours.lines) != len(theirs.lines):
        return f"detects {len(ours.lines)} lines at {ours.rotation}°, float32 {len(theirs.lines)} at {theirs.rotation}°"
    pairs = zip(ours.lines, theirs.lines, strict=True)
    moved = max((float(np.abs(one.line.quad - other.line.quad).max()) for one, other in pairs), default=0.0)
    if not moved <= _CORNER_PX:
        return f"moves the corner of a line by {moved:.1f} pixels"
    for line, expected in zip(reading.lines, reference.lines, strict=True):
        texts = [" ".join(word.text for word in one.words) for one in (line, expected)]
        if texts[0] != texts[1]:
            return f"reads {texts[0]!r}, float32 {texts[1]!r}"
        if not abs(line.confidence - expected.confidence) <= _CONFIDENCE:
            return f"has a confidence of {line.confidence:.3f} for {texts[0]!r}, float32 {expected.confidence:.3f}"
    return ""


def _measure(facts: MachineFacts, cores: LaneThreads, kept: TuningCache, quiet: Quiet) -> None:
    RuntimeSelector(facts, cores, kept, quiet=quiet).measure()


def _read_on(candidate: Candidate, cores: LaneThreads, lines_of: DetectedPage | None) -> ProbeReading:
    models = RapidOcrModels("cpu", cores.threads, lanes=cores.lanes, runtime=candidate)
    return read_probe(models, probe_page(), lines_of)


def _choice(results: list[RuntimeResult]) -> RuntimeChoice:
    eligible = [result for result in results if not result.fault]
    best = min(eligible, key=lambda result: result.page_s)
    runtime, dtype = best.candidate.split()
    rank = f"the fastest of {len(eligible)} that read a page alike"
    why = f"{best.candidate} on the CPU: {best.page_s:.2f} s for a made page, {rank}"
    return RuntimeChoice(runtime, dtype, why, tuple(results))


def _choice_from(entry: Mapping[str, Any]) -> RuntimeChoice:
    """Raises: KeyError, TypeError or ValueError for an entry of another shape."""
    measured = tuple(RuntimeResult(**row) for row in entry["measured"])
    return RuntimeChoice(**{**entry, "measured": measured})
