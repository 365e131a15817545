"""A Whisper model on CTranslate2: where it runs and in which arithmetic, loaded at the first use, unloaded at rest."""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend.device.memory.device_memory import trim_heap
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType
from backend.errors import ModelUnavailable, SetupError, Unavailable
from backend.models.fingerprint import fingerprint_of
from backend.speech.model_files import SpeechModelFiles, SpeechTokens
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
SpeechPrecision = Literal["auto", "int8", "float16", "float32"]
_ON_CPU, _ON_CUDA = "int8", "float16"
# Of a card for a window of 30 s: scores of one layer's attention, and keys and values of every layer. By the shapes of
# Whisper tiny (40 MB) to large-v3 (340 MB) in float16, not measured on a card.
_WINDOW_BYTES, _WINDOW_RATIO = 48 * 2**20, 0.1
_DEVICE_RATIO = 0.25  # of this process's memory there, at most: a longer batch is split
# CTranslate2 is built for CUDA 12 and opens the first of these at its first multiplication; it needs no cuDNN.
_CUBLAS, _CUBLAS_LT = "libcublas.so.12", "libcublasLt.so.12"


@dataclass(frozen=True, slots=True)
class SpeechPlacement:
    """Where a speech model runs."""

    device: str  # CTranslate2's name: "cpu" or "cuda"
    device_index: int
    precision: str  # CTranslate2's compute type: "int8", "float16", "float32"
    workers: int  # calls that run at the same time, each on threads of its own
    threads: int  # of each call, for arithmetic; a CUDA device needs none
    why: str  # one sentence; shown by GET /v1/system


@dataclass(frozen=True, slots=True)
class LoadedWhisper:
    """A model in memory. Any number of threads may use it; ``workers`` calls run at once, others wait."""

    model: Any  # ctranslate2.models.Whisper
    tokens: SpeechTokens
    mels: int  # 80 or 128


def place_speech(
    placement: Placement,
    precision: SpeechPrecision = "auto",
    *,
    lanes: int,
    cuda_types: frozenset[str] | None = None,
    cpu_types: frozenset[str] | None = None,
) -> SpeechPlacement:
    """Where a speech model runs, and how: as the other models where CTranslate2 can, else on the CPU.

    Args:
        lanes: batches that run at the same time.
        cuda_types, cpu_types: arithmetic that CTranslate2 has on this card and CPU; by default it is asked.

    Raises: ModelUnavailable where it has nowhere what SPEECH_PRECISION asks for.
    """
    if placement.type is DeviceType.CUDA:
        index = int(placement.device.partition(":")[2] or 0)
        types, absent = _cuda_types(index) if cuda_types is None else (cuda_types, "no CUDA")
        chosen = precision if precision != "auto" else (_ON_CUDA if _ON_CUDA in types else "float32")
        if chosen in types:
            return SpeechPlacement("cuda", index, chosen, 1, 1, f"CTranslate2 on {placement.device} in {chosen}")
        why = f"CTranslate2 has no {chosen} on {placement.device} ({', '.join(sorted(types)) or absent})"
    else:
        why = f"the models are on {placement.device}"
    types = _cpu_types() if cpu_types is None else cpu_types
    chosen = precision if precision != "auto" else (_ON_CPU if _ON_CPU in types else "float32")
    if chosen not in types:
        raise ModelUnavailable(
            f"SPEECH_PRECISION: CTranslate2 has no {chosen} on this CPU ({', '.join(sorted(types))}; {why}); set auto, "
            "int8 or float32"
        )
    return SpeechPlacement("cpu", 0, chosen, lanes, 1, f"CTranslate2 on the CPU in {chosen}: {why}")


def device_bytes(weights_bytes: int, windows: int, placement: Placement) -> int:
    """What a model with a batch of so many windows may take of a card: CTranslate2 allocates beside torch."""
    foreseen_bytes = weights_bytes + windows * (_WINDOW_BYTES + int(_WINDOW_RATIO * weights_bytes))
    return min(foreseen_bytes, int(_DEVICE_RATIO * placement.memory_bytes))


def _cpu_types() -> frozenset[str]:
    """The arithmetic that CTranslate2 has on this CPU; float16, for one, is on some Arm processors only."""
    try:
        import ctranslate2  # of the extra [speech]; its libraries take 60 MB
    except ImportError:  # loading the model says so
        return frozenset({"int8", "float16", "float32"})
    return frozenset(ctranslate2.get_supported_compute_types("cpu"))


def _cuda_types(index: int) -> tuple[frozenset[str], str]:
    """The arithmetic that CTranslate2 has on a card; without any, why."""
    try:
        import ctranslate2  # of the extra [speech]; its libraries take 60 MB
    except ImportError as error:
        return frozenset(), str(error)
    if index >= ctranslate2.get_cuda_device_count():
        return frozenset(), "no CUDA"
    if absent := load_cublas():
        return frozenset(), absent
    return frozenset(ctranslate2.get_supported_compute_types("cuda", index)), ""


def load_cublas() -> str:
    """Load CUDA 12's cuBLAS into the process, where CTranslate2 finds it by its name; "", or why it cannot be.

    torch for CUDA 12 has loaded it already. Beside torch for another CUDA the package nvidia-cublas-cu12 has it, in a
    folder that no loader looks into; both versions get along in one process.
    """
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder, "cublas", "lib") for folder in (spec.submodule_search_locations or ())] if spec else []
    fault = ""
    for folder in (None, *folders):
        try:
            if folder is not None:
                ctypes.CDLL(str(folder / _CUBLAS_LT))  # the other asks for it by name
            ctypes.CDLL(_CUBLAS if folder is None else str(folder / _CUBLAS))
        except OSError as error:
            fault = fault or str(error)
        else:
            return ""
    return f"{_CUBLAS} of CUDA 12 cannot be loaded ({fault}); pip install nvidia-cublas-cu12 brings it"


def load_whisper(files: SpeechModelFiles, placement: SpeechPlacement) -> LoadedWhisper:
    """The model in memory: 0.6 s for Whisper base in int8. Its threads get the niceness of the calling thread.

    Raises: ModelUnavailable where it cannot be read, or the device has not that arithmetic.
    """
    try:
        import ctranslate2  # of the extra [speech]; its libraries take 60 MB
    except ImportError as error:
        raise ModelUnavailable(
            f"speech needs CTranslate2, which cannot be imported ({error}); pip install 'financia-inference[speech]'"
        ) from error
    folder = files.folder
    if folder is None:
        contents = files.contents()  # checked as they are read
    else:
        files.check_unchanged()
        contents = None
    try:
        model = ctranslate2.models.Whisper(
            str(folder or files.name),
            device=placement.device,
            device_index=placement.device_index,
            compute_type=placement.precision,
            inter_threads=placement.workers,
            intra_threads=placement.threads,
            files=contents,
        )
    except (RuntimeError, ValueError) as error:  # the library's own
        raise ModelUnavailable(
            f"{files.name} cannot be loaded on {placement.device} in {placement.precision}: {error} "
            "(SPEECH_MODEL, SPEECH_PRECISION)"
        ) from error
    trim_heap()  # the files as they were read: as much as the model again
    return LoadedWhisper(model, files.tokens, int(model.n_mels))


def on_host(encoded: Any) -> NDArray[Any]:
    """The encoder's output as an array, fetched from the device where it is there. Shape: (pieces, rows, width)."""
    import ctranslate2  # loaded with the model

    return np.asarray(encoded if encoded.device == "cpu" else encoded.to_device(ctranslate2.Device.cpu))


class WhisperSource:
    """Gives the engine its model, once a batch; loaded by the first that asks, and again after ``release``.

    Users are not counted: a batch holds the model that it began with, which is freed when the last such batch ends.
    Safe on any thread.

    Args:
        load: runs on the lane that asks first, so that the model's threads get the lane's niceness.
    """

    def __init__(
        self,
        files: SpeechModelFiles,
        placement: SpeechPlacement,
        *,
        load: Callable[[SpeechModelFiles, SpeechPlacement], LoadedWhisper] = load_whisper,
    ) -> None:
        self.files, self.placement = files, placement
        self._load = load
        self._model: LoadedWhisper | None = None
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """What a transcript depends on beside the request: the files and the arithmetic."""
        return fingerprint_of({"files": self.files.fingerprint, "arithmetic": self.placement.precision})

    @property
    def is_loaded(self) -> bool:
        return self._model is not None

    def get(self) -> LoadedWhisper:
        """The model, loaded first where it is not. Raises: Unavailable when it cannot be."""
        model = self._model
        return model if model is not None else self._loaded()

    def release(self) -> None:
        """Forget the model until its next use; for `IdleTrim`, which returns the memory afterwards."""
        with self._lock:
            was_loaded, self._model = self._model is not None, None
        if was_loaded:
            log_event(_log, logging.INFO, "idle speech model unloaded", model=self.files.name)

    def _loaded(self) -> LoadedWhisper:
        with self._lock:
            if self._model is not None:  # another lane was faster
                return self._model
            started_s = time.monotonic()
            try:
                model = self._model = self._load(self.files, self.placement)
            except SetupError as error:
                raise Unavailable(f"the speech model could not be loaded: {error}") from error
        seconds = round(time.monotonic() - started_s, 2)
        log_event(_log, logging.INFO, "speech model loaded", model=self.files.name, s=seconds, why=self.placement.why)
        return model
