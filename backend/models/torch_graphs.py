"""CUDA graphs of small batches: which sizes have one, when it is captured, what a failure leads to.

A batch of few rows takes longer to queue, kernel by kernel, than to compute; a captured graph is queued in one call.
It holds the layers alone, which all readouts share: one graph a size, captured when the model is loaded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from backend.device.faults import FaultKind, classify
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
# At least 64 rows: below the height of one tile a matrix product takes no less time, and other kernels sum otherwise.
ROW_BUCKETS = (64, 128, 256, 512, 1024, 2048)  # each has its graphs
ROW_MULTIPLE = 128  # of larger batches, which run kernel by kernel
_ROWS_A_TEXT = 4  # a bucket's graph takes a text for every so many rows; more and shorter ones run without a graph
# A capture waits for all work of the card and empties torch's cache, so one that lacked memory is not tried at once.
_ATTEMPTS = 3  # for lack of memory; then the size has no graph
_PAUSE = 256  # batches of the size until the next attempt

Outputs = tuple[Tensor, Tensor]  # token vectors (rows, width), and the first row of each text and one past the last


@dataclass(frozen=True, slots=True)
class GraphKey:
    """What one graph computes."""

    rows: int
    texts: int  # the most it takes; those that a batch lacks are empty


class Graph(Protocol):
    """A captured graph. One caller at a time."""

    def replay(self, inputs: Tensor) -> Outputs:
        """Queue it for these inputs; the outputs are overwritten by the next replay."""


def rows_of(tokens: int) -> int:
    """Rows of a batch of so many tokens: a bucket, or the next multiple above the largest."""
    for rows in ROW_BUCKETS:
        if tokens <= rows:
            return rows
    return -(-tokens // ROW_MULTIPLE) * ROW_MULTIPLE


def key_of(rows: int, texts: int) -> GraphKey | None:
    """The graph for a batch; None where it is too large for one, or has too many texts for its rows."""
    texts_max = rows // _ROWS_A_TEXT
    return GraphKey(rows, texts_max) if rows in ROW_BUCKETS and texts <= texts_max else None


@dataclass(slots=True)
class _Size:
    """What became of one key so far."""

    graph: Graph | None = None
    lacked: str = ""  # why the last capture lacked memory
    pause: int = 1  # batches without a graph until the next capture; the first loads the kernels, which it must not
    attempts: int = 0


class GraphCache:
    """The graphs of one encoder, captured when a key is asked for the second time. Any thread.

    The first batch of a key runs kernel by kernel: it loads the kernels, which must not happen while a graph is
    captured. A key whose capture lacked memory is tried a few times more, long after. After a capture that failed
    otherwise there are no graphs any more, and ``fault`` says why.
    """

    def __init__(self, capture: Callable[[GraphKey], Graph], *, pause: int = _PAUSE) -> None:
        self._capture, self._pause = capture, pause
        self._sizes: dict[GraphKey, _Size] = {}
        self._lock = threading.Lock()
        self.fault = ""

    def __len__(self) -> int:
        return sum(size.graph is not None for size in tuple(self._sizes.values()))

    def report(self) -> dict[str, object]:
        """How many graphs there are, and why batches run without one, as ``GET /v1/system`` tells it."""
        without = [
            {"rows": key.rows, "reason": size.lacked, "attempts_left": _ATTEMPTS - size.attempts}
            for key, size in tuple(self._sizes.items())
            if size.graph is None and size.lacked
        ]
        return {"captured": len(self), "without_memory": without, "fault": self.fault}

    def replay(self, key: GraphKey, inputs: Tensor, take: Callable[[Outputs], None]) -> bool:
        """Replay the key's graph and let ``take`` queue what reads its outputs, before anybody replays it again.

        Returns: False where the batch must run without a graph.
        """
        with self._lock:
            graph = self._get(key)
            if graph is None:
                return False
            take(graph.replay(inputs))
            return True

    def _get(self, key: GraphKey) -> Graph | None:
        if self.fault:
            return None
        size = self._sizes.setdefault(key, _Size())
        if size.graph is not None or size.attempts >= _ATTEMPTS:
            return size.graph
        if size.pause > 0:
            size.pause -= 1
            return None
        try:
            size.graph = self._capture(key)
        except RuntimeError as error:
            self._failed(key, size, error)
        return size.graph

    def _failed(self, key: GraphKey, size: _Size, error: RuntimeError) -> None:
        """Raises: the error of a device that is lost."""
        kind, reason = classify(error).kind, str(error).splitlines()[0] if str(error) else type(error).__name__
        if kind is FaultKind.CONTEXT_LOST:
            raise error
        if kind is FaultKind.OUT_OF_MEMORY:
            size.attempts, size.pause, size.lacked = size.attempts + 1, self._pause, reason
            event = "too little memory to capture a CUDA graph; batches of that size run without"
            log_event(
                _log, logging.WARNING, event, reason=reason, rows=key.rows, attempts_left=_ATTEMPTS - size.attempts
            )
            return
        self.fault = reason
        self._sizes.clear()
        log_event(_log, logging.WARNING, "no CUDA graph can be captured; small batches run without", reason=reason)


class CudaGraph:
    """A graph of torch's on one card."""

    def __init__(self, run: Callable[[Tensor], Outputs], size: int, device: torch.device) -> None:
        """Capture ``run`` on an int32 buffer of ``size`` numbers. Raises: RuntimeError when CUDA cannot."""
        self._device = device
        with torch.cuda.device(device):
            self._inputs = torch.zeros(size, dtype=torch.int32, device=device)
            current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(current)
            try:
                with torch.cuda.stream(aside):  # workspaces of that stream are made before the capture
                    run(self._inputs)
                self._graph = torch.cuda.CUDAGraph()
                # Other lanes may allocate meanwhile: only this thread's calls are watched.
                with torch.cuda.graph(self._graph, stream=aside, capture_error_mode="thread_local"):
                    self._outputs = run(self._inputs)
            finally:
                torch.cuda.set_stream(current)  # a capture that fails at its end leaves the other one behind
            current.wait_stream(aside)

    def replay(self, inputs: Tensor) -> Outputs:
        with torch.cuda.device(self._device):
            self._inputs.copy_(inputs, non_blocking=True)
            self._graph.replay()
        return self._outputs
