"""Silero's detector of speech: finds its network in faster-whisper's wheel, and runs it on ONNX Runtime."""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable

WINDOW = 512  # samples, 0.032 s: each gets one probability
_CONTEXT = 64  # samples before a window that it is heard with
_STATE = 128  # numbers of each of the two states of the network
_WINDOWS_AT_ONCE = 2048  # 65 s; the state goes on to the next run
_PACKAGE, _FILE = "faster_whisper", "assets/silero_vad_v6.onnx"


def silero_file() -> Path:
    """The network's file; nothing of the package that holds it is imported.

    Raises: ModelUnavailable when it is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (file := Path(folder) / _FILE).is_file():
            return file
    raise ModelUnavailable(
        f"the detector of speech ({_FILE} of faster-whisper) is not installed; pip install 'financia-inference[speech]'"
    )


class SileroNetwork:
    """The network, read at the first use. Any number of threads may run it at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        self._session: Any = None
        self._lock = threading.Lock()

    def probabilities(self, samples: NDArray[np.int16]) -> NDArray[np.float32]:
        """How likely somebody speaks in each window. Shapes: (n) -> (ceil(n / WINDOW)). 1.6 ms a second of audio."""
        count = -(-len(samples) // WINDOW)
        if not count:
            return np.zeros(0, np.float32)
        session = self._opened()
        audio = np.zeros(_CONTEXT + count * WINDOW, np.float32)
        audio[_CONTEXT : _CONTEXT + len(samples)] = samples
        audio /= 32768.0
        windows = np.lib.stride_tricks.sliding_window_view(audio, _CONTEXT + WINDOW)[::WINDOW]
        h = c = np.zeros((1, 1, _STATE), np.float32)
        parts = []
        for first in range(0, count, _WINDOWS_AT_ONCE):
            batch = np.ascontiguousarray(windows[first : first + _WINDOWS_AT_ONCE])
            output, h, c = session.run(None, {"input": batch, "h": h, "c": c})
            parts.append(output.reshape(-1))
        return np.concatenate(parts)

    def release(self) -> None:
        """Forget the network until its next use; a run that goes on keeps it to its end."""
        self._session = None

    def _opened(self) -> Any:
        session = self._session
        if session is not None:
            return session
        with self._lock:
            if self._session is None:
                self._session = _open(self._file)
            return self._session


def _open(file: Path) -> Any:
    import onnxruntime  # 60 MB that a service without speech or ONNX does not need

    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1  # a lane is one thread
    options.enable_cpu_mem_arena = False  # it would keep the most that a run ever took
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except RuntimeError as error:  # onnxruntime's own
        raise ModelUnavailable(f"ONNX Runtime refuses {file.name}: {error}") from error
