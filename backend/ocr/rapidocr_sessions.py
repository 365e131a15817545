"""Opens RapidOCR's networks on a runtime: ONNX Runtime or OpenVINO on the CPU, ONNX Runtime on a CUDA device.

A runtime is imported by the first session that needs it: one is enough, and each takes up to 300 MB.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from backend.device.faults import FaultKind, classify
from backend.errors import ModelUnavailable
from backend.models.runtimes import Candidate
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_ARENA = {
    "max_mem": 0,  # no limit
    "arena_extend_strategy": 0,  # each extent twice the last
    "initial_chunk_size_bytes": 2**20,
    "max_dead_bytes_per_chunk": 2**20,  # larger remainders are split off for other requests
}
_STEP_PX = 32  # sides of images are multiples of it

ONNX_FP32 = Candidate("onnx", "fp32")  # runs wherever RapidOCR does, and is what the others are compared with
Numbers = NDArray[np.float32]
Graph = str | bytes  # path or content of an ONNX file


@dataclass(frozen=True, slots=True)
class LaneThreads:
    """The threads that sessions on a CPU are made for."""

    threads: int  # of a lane, for arithmetic
    lanes: int = 1  # that run at the same time


@dataclass(frozen=True, slots=True)
class Provider:
    """Where ONNX Runtime runs the networks."""

    name: str  # "CPUExecutionProvider" or "CUDAExecutionProvider"
    options: Mapping[str, str]
    why: str  # one sentence; shown by GET /v1/system

    @property
    def is_cuda(self) -> bool:
        return self.name == _CUDA


class Session(Protocol):
    """A network that is ready to run. Any number of threads."""

    def run(self, pixels: Numbers) -> Numbers:
        """The output for (batch, 3, height, width_px)."""

    def release_memory(self) -> None:
        """Return what past runs took and no run needs now to the system."""


def choose_provider(device: str, available: Sequence[str]) -> Provider:
    """The provider for a torch device string: CUDA's where the device is CUDA and this ONNX Runtime has it.

    cuDNN's algorithm search is set to its heuristic: by default it searches anew for every new shape, which made a GPU
    4.4 times slower than a CPU (docling PR #4168). An arena grows by what is asked for, not to twice its size: torch
    needs the rest of the card.
    """
    if not device.startswith("cuda"):
        return Provider(_CPU, {}, f"ONNX Runtime on the CPU, as the models are ({device})")
    if _CUDA not in available:
        why = (
            f"this onnxruntime has no CUDA ({', '.join(available)}): RapidOCR runs on the CPU. onnxruntime-gpu of "
            "torch's CUDA in its place would use the GPU (docs/gpu.md#pages-on-the-gpu)"
        )
        return Provider(_CPU, {}, why)
    options = {
        "device_id": device.partition(":")[2] or "0",
        "cudnn_conv_algo_search": "HEURISTIC",
        "arena_extend_strategy": "kSameAsRequested",
    }
    return Provider(_CUDA, options, f"ONNX Runtime on {device}, cuDNN's search by its heuristic")


def open_on_cpu(graph: Graph, runtime: Candidate, cores: LaneThreads, kernels_kept: int = 512) -> Session:
    """The network on ONNX Runtime or OpenVINO, which keeps that many kernels for sizes. Raises: ModelUnavailable."""
    try:
        if runtime.runtime == "openvino":
            return OpenVinoSession(graph, runtime.dtype, cores, kernels_kept)
        return OnnxSession(graph, Provider(_CPU, {}, ""), cores)
    except (RuntimeError, ImportError) as error:  # RuntimeError: both runtimes' own
        raise ModelUnavailable(f"{runtime} refuses a network of RapidOCR: {error}") from error


def open_on_cuda(graph: Graph, provider: Provider, cores: LaneThreads) -> Session:
    """The network on CUDA, and on the CPU for a page that CUDA fails at. Raises: ModelUnavailable."""
    return CpuFallback(OnnxSession(graph, provider, cores), lambda: open_on_cpu(graph, ONNX_FP32, cores))


class OnnxSession:
    """One session shared by all lanes: a run executes on its caller's thread."""

    def __init__(self, graph: Graph, provider: Provider, cores: LaneThreads) -> None:
        """Open the network. Raises: ModelUnavailable."""
        import onnxruntime  # lazily: see the module's first sentence

        options = _onnx_options(cores.threads)
        if provider.is_cuda:
            onnxruntime.preload_dlls()  # CUDA and cuDNN come in torch's wheels, where no loader looks
        else:
            _share_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
        try:
            self._session = onnxruntime.InferenceSession(
                graph, options, providers=[(provider.name, dict(provider.options))]
            )
        except Exception as error:  # its errors share no other base
            raise ModelUnavailable(f"ONNX Runtime refuses a network of RapidOCR: {error}") from error
        if self._session.get_providers()[0] != provider.name:  # it falls back silently
            raise ModelUnavailable(f"ONNX Runtime offers {provider.name} but could not start it; see its log")
        taken = self._session.get_inputs()[0]
        height = taken.shape[2] if isinstance(taken.shape[2], int) else _STEP_PX
        self._input, self._smallest = taken.name, np.zeros((1, 3, height, _STEP_PX), np.float32)
        self._is_on_cpu = not provider.is_cuda

    def run(self, pixels: Numbers) -> Numbers:
        output: Numbers = self._session.run(None, {self._input: pixels})[0]
        return output

    def release_memory(self) -> None:
        """Free the arena, some hundred MB after past pages, in 20 ms.

        ONNX Runtime does so only at the end of a run, hence one with the smallest image. Doing so after every run would
        cost 6 % of the time (measured on business papers), so this is called when no page is recognised.
        """
        if not self._is_on_cpu:
            return
        import onnxruntime  # imported already

        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._session.run(None, {self._input: self._smallest}, options)


class OpenVinoSession:
    """A network, compiled as many times as it has run at once; a run executes on its caller's thread.

    One compiled network with a stream a lane would run on threads of its own: the time of the lane's thread, by which
    pages are limited and runtimes compared, would then miss nine tenths of the work.
    """

    def __init__(self, graph: Graph, dtype: str, cores: LaneThreads, kernels_kept: int) -> None:
        """Compile the network for any size; ``dtype`` is "fp32" or "bf16". Raises: RuntimeError."""
        import openvino  # lazily: see the module's first sentence

        from backend.models.openvino_encoder import kept_signal_stack  # imports openvino

        with kept_signal_stack():
            core = openvino.Core()
            model = core.read_model(io.BytesIO(graph) if isinstance(graph, bytes) else graph)
        options = {
            "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bf16" else "f32",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": cores.threads,
            "CPU_RUNTIME_CACHE_CAPACITY": kernels_kept,
            "ENABLE_CPU_PINNING": False,  # texts and the event loop share these cores
        }
        self._compile = partial(core.compile_model, model, "CPU", options)
        self._lock = threading.Lock()
        self._idle = [self._compiled()]

    def run(self, pixels: Numbers) -> Numbers:
        with self._lock:
            compiled = self._idle.pop() if self._idle else None
        compiled = compiled or self._compiled()
        try:
            output: Numbers = compiled.request.infer([pixels], share_inputs=True)[0]
        finally:
            with self._lock:
                self._idle.append(compiled)
        return output

    def release_memory(self) -> None:
        """Free the buffers of past sizes, of what does not run just now.

        A run that begins meanwhile waits: finding none idle it would compile another network, which stays.
        """
        with self._lock:
            for compiled in self._idle:
                compiled.release_memory()

    def _compiled(self) -> _Compiled:
        from backend.models.openvino_encoder import kept_signal_stack  # imported already

        with kept_signal_stack():
            return _Compiled(self._compile())


class _Compiled:
    """A compiled network and its one request."""

    def __init__(self, network: Any) -> None:
        self._network, self.request = network, network.create_infer_request()

    def release_memory(self) -> None:
        self.request = None
        try:
            self._network.release_memory()
        finally:
            self.request = self._network.create_infer_request()


class CpuFallback:
    """Runs on CUDA, and on the CPU what CUDA fails at.

    Two failures go to the lane: a lost device, which ends the process, and a batch that does not fit, which it halves.
    """

    def __init__(self, cuda: Session, open_cpu: Callable[[], Session]) -> None:
        self._cuda, self._open_cpu = cuda, cache(open_cpu)

    def run(self, pixels: Numbers) -> Numbers:
        try:
            return self._cuda.run(pixels)
        except Exception as error:  # the border to a foreign runtime, whose errors share no other base
            fault = classify(error)
            if fault.kind is FaultKind.CONTEXT_LOST or (fault.kind is FaultKind.OUT_OF_MEMORY and len(pixels) > 1):
                raise
            log_event(
                _log, logging.WARNING, "a network of RapidOCR failed on CUDA and runs on the CPU", reason=fault.message
            )
            return self._open_cpu().run(pixels)

    def release_memory(self) -> None:
        self._cuda.release_memory()


@cache
def _share_arena() -> None:
    """Register one arena for all sessions of this process.

    With one each, every session keeps its own peak: 1.43 GB instead of 0.95 on business papers, for 4 % of the time.
    """
    import onnxruntime  # see ``OnnxSession``

    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(_ARENA))


def _onnx_options(threads: int) -> Any:
    import onnxruntime  # see ``OnnxSession``

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # shapes change with every page: memory patterns would be kept for nothing
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning would take cores of other lanes
    return options
