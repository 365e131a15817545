"""RapidOCR's networks as sessions of ONNX Runtime: files of its wheel, opened at first use, shared by all lanes."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend.engines.ocr.rapidocr_charset import is_latin
from backend.errors import ModelUnavailable

Network = Literal["detect", "recognize", "upright"]
_FILES: Mapping[Network, str] = {
    "detect": "PP-OCRv6_det_small.onnx",
    "recognize": "PP-OCRv6_rec_small.onnx",
    "upright": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
}
_MODULES = ("rapidocr", "onnxruntime", "onnx", "cv2")
_CPU = "CPUExecutionProvider"
_ARENA = {
    "max_mem": 0,  # no limit
    "arena_extend_strategy": 0,  # each extent twice the last
    "initial_chunk_size_bytes": 2**20,
    "max_dead_bytes_per_chunk": 2**20,  # what is larger than that is split off for others
}
_LOGITS = "MatMul"  # the recogniser ends in MatMul (hidden, characters), Add, Softmax

Numbers = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Provider:
    """Where the sessions run."""

    name: str  # "CPUExecutionProvider" or "CUDAExecutionProvider"
    options: Mapping[str, str]
    why: str  # one sentence; shown by GET /v1/system


def rapid_version() -> str:
    """Of the installed package; "" where one of what it needs is absent. Nothing is imported to find out."""
    try:
        found = version("rapidocr")
    except PackageNotFoundError:
        return ""
    usable = all(importlib.util.find_spec(module) is not None for module in _MODULES)
    return found if usable and all(path.is_file() for path in _paths().values()) else ""


def choose_provider(device: str, available: Sequence[str]) -> Provider:
    """The provider for a torch device string: CUDA's where the device is CUDA and this ONNX Runtime has it.

    cuDNN's search is pinned to its heuristic: by default every new shape is searched for anew, which made a GPU 4.4
    times slower than a CPU (docling PR #4168).
    """
    if not device.startswith("cuda"):
        return Provider(_CPU, {}, f"ONNX Runtime on the CPU, as the models are ({device})")
    if "CUDAExecutionProvider" not in available:
        why = (
            f"this onnxruntime has no CUDA ({', '.join(available)}): RapidOCR runs on the CPU; install onnxruntime-gpu"
        )
        return Provider(_CPU, {}, why)
    options = {"device_id": device.partition(":")[2] or "0", "cudnn_conv_algo_search": "HEURISTIC"}
    return Provider("CUDAExecutionProvider", options, f"ONNX Runtime on {device}, cuDNN's search by its heuristic")


class RapidModels:
    """The sessions, each opened once, by the lane that needs it first."""

    def __init__(self, device: str, threads: int) -> None:
        """Nothing is opened yet. ``device``: torch device string; ``threads``: of a lane's arithmetic on a CPU."""
        self._device, self._threads = device, threads
        self._lock = threading.Lock()
        self._sessions: dict[tuple[Network, bool], Any] = {}
        self._characters: dict[bool, tuple[str, ...]] = {}

    @property
    def provider(self) -> Provider:
        """Where the sessions run, or will. Imports ONNX Runtime."""
        import onnxruntime  # not before it is asked for: a service that reads no pages may do without

        return choose_provider(self._device, onnxruntime.get_available_providers())

    def run(self, network: Network, pixels: Numbers, *, latin: bool = False) -> Numbers:
        """The network's one output for (batch, 3, height, width_px). On a lane. Raises: ModelUnavailable."""
        return _run(self._session(network, latin), pixels)

    def give_back(self) -> None:
        """Return to the system what the arena keeps of past pages: some hundred MB. Any thread, 20 ms.

        ONNX Runtime does so only at the end of a run, hence one of the smallest picture. After every run it would
        cost 6 % of the time (measured on business papers): ask when nothing is read.
        """
        with self._lock:
            session = self._sessions.get(("detect", False))
        if session is None or session.get_providers()[0] != _CPU:
            return
        import onnxruntime  # see ``provider``

        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        _run(session, np.zeros((1, 3, 32, 32), np.float32), options)

    def characters(self, *, latin: bool) -> tuple[str, ...]:
        """What the recogniser's classes mean; the first is CTC's blank, the last the space."""
        self._session("recognize", latin)
        return self._characters[latin]

    def _session(self, network: Network, latin: bool) -> Any:
        with self._lock:
            key = (network, latin)
            if key not in self._sessions:
                self._sessions[key] = self._open(network, latin)
            return self._sessions[key]

    def _open(self, network: Network, latin: bool) -> Any:
        import cv2  # of the pages that these networks read
        import onnxruntime  # see ``provider``

        cv2.setNumThreads(self._threads)  # more would take the other lanes' cores
        graph: bytes | str = str(_paths()[network])
        if network == "recognize":
            graph, self._characters[latin] = _recognizer(latin)
        provider = self.provider
        options = _options(self._threads)
        if provider.name == _CPU:
            _share_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
        try:
            session = onnxruntime.InferenceSession(graph, options, providers=[(provider.name, dict(provider.options))])
        except Exception as error:  # its errors share no other base
            raise ModelUnavailable(f"ONNX Runtime refuses RapidOCR's {_FILES[network]}: {error}") from error
        if session.get_providers()[0] != provider.name:  # it falls back without a word
            raise ModelUnavailable(f"ONNX Runtime offers {provider.name} but could not start it; see its log")
        return session


def _run(session: Any, pixels: Numbers, options: Any = None) -> Numbers:
    output: Numbers = session.run(None, {session.get_inputs()[0].name: pixels}, options)[0]
    return output


@cache
def _paths() -> Mapping[Network, Path]:
    spec = importlib.util.find_spec("rapidocr")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    return {network: folder / "models" / name for network, name in _FILES.items()}


def _recognizer(latin: bool) -> tuple[bytes, tuple[str, ...]]:
    """The recogniser's graph, with the classes of Latin print alone where that is asked for, and their meaning.

    It knows 18,708 characters, of which Latin print needs some 500: the rest is memory and time for what no page of
    these languages says.
    """
    import onnx  # the graph is cut once a process, when the first page is read
    from onnx import numpy_helper

    model = onnx.load(str(_paths()["recognize"]))
    listed = next(entry.value for entry in model.metadata_props if entry.key == "character").split("\n")
    characters = ["", *listed, " "]
    kept = [index for index, one in enumerate(characters) if not latin or is_latin(one)]
    last = next(node for node in reversed(model.graph.node) if node.op_type == _LOGITS)
    bias = next(node for node in model.graph.node if last.output[0] in node.input)
    names = {*last.input, *bias.input}
    for tensor in model.graph.initializer:
        if tensor.name in names and tensor.dims[-1] == len(characters):
            cut = numpy_helper.to_array(tensor)[..., kept]
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(cut), tensor.name))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString(), tuple(characters[index] for index in kept)


@cache
def _share_arena() -> None:
    """Let all sessions of this process use one arena.

    One each keeps its own peak: 1.43 GB instead of 0.95 on business papers, for 4 % of the time.
    """
    import onnxruntime  # see ``provider``

    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(_ARENA))


def _options(threads: int) -> Any:
    import onnxruntime  # see ``provider``

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # shapes change with every page: a pattern for each is memory for nothing
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # a spinning thread starves the other lane
    return options
