"""RapidOCR's networks as ONNX Runtime sessions: files of its wheel, opened at first use, shared by all lanes."""

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
    "max_dead_bytes_per_chunk": 2**20,  # larger remainders are split off for other requests
}
_LOGITS = "MatMul"  # operator; the recogniser ends in MatMul (hidden, characters), Add, Softmax

_TYPOGRAPHY = range(0x2010, 0x2040)  # dashes, typographic quotes, daggers, bullets, per mille
_SYMBOLS = frozenset("€™№")  # beyond Latin letters
_LATIN_END = 0x250  # Latin Extended-B ends before it
_LATIN_LANGUAGES = (
    *("af", "az", "bs", "ca", "cs", "cy", "da", "de", "en", "eo", "es", "et", "eu", "fi", "fr", "ga", "gl", "hr", "hu"),
    *("id", "is", "it", "la", "lb", "lt", "lv", "ms", "mt", "nl", "no", "oc", "pl", "pt", "ro", "sk", "sl", "sq", "sv"),
    *("sw", "tr"),
)
# Beyond Latin print: Vietnamese, whose letters stand in a block of their own, Chinese and Japanese.
LANGUAGES = tuple(sorted([*_LATIN_LANGUAGES, "ja", "vi", "zh"]))  # ISO 639-1, as PP-OCRv6 lists them

Numbers = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Provider:
    name: str  # "CPUExecutionProvider" or "CUDAExecutionProvider"
    options: Mapping[str, str]
    why: str  # one sentence; shown by GET /v1/system


def rapidocr_version() -> str:
    """Version of the installed package; "" where it, a model or a dependency is absent. Imports none of them."""
    try:
        installed = version("rapidocr")
    except PackageNotFoundError:
        return ""
    usable = all(importlib.util.find_spec(module) is not None for module in _MODULES)
    return installed if usable and all(path.is_file() for path in _paths().values()) else ""


def is_latin_print(languages: Sequence[str]) -> bool:
    """Whether the recogniser cut to Latin characters is enough for these languages."""
    return all(language in _LATIN_LANGUAGES for language in languages)


def is_latin(character: str) -> bool:
    """Whether Latin print uses the character. True for CTC's blank, which is ""."""
    return all(ord(point) < _LATIN_END or ord(point) in _TYPOGRAPHY or point in _SYMBOLS for point in character)


def choose_provider(device: str, available: Sequence[str]) -> Provider:
    """The provider for a torch device string: CUDA's where the device is CUDA and this ONNX Runtime has it.

    cuDNN's algorithm search is set to its heuristic: by default it searches anew for every new shape, which made a GPU
    4.4 times slower than a CPU (docling PR #4168).
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


class RapidOcrModels:
    """The sessions, each opened once by the lane that needs it first. Any thread."""

    def __init__(self, device: str, threads: int) -> None:
        """Opens nothing yet. ``device``: torch device string; ``threads``: of a lane, for arithmetic on a CPU."""
        self._device, self._threads = device, threads
        self._lock = threading.Lock()
        self._sessions: dict[tuple[Network, bool], Any] = {}
        self._characters: dict[bool, tuple[str, ...]] = {}

    @property
    def provider(self) -> Provider:
        """Where the sessions run. Imports ONNX Runtime."""
        import onnxruntime  # lazily: a service without OCR does not need it

        return choose_provider(self._device, onnxruntime.get_available_providers())

    def run(self, network: Network, pixels: Numbers, *, latin: bool = False) -> Numbers:
        """The output of a network for (batch, 3, height, width_px). Runs on a lane. Raises: ModelUnavailable."""
        return _run(self._session(network, latin), pixels)

    def release_memory(self) -> None:
        """Return the arena's free memory, some hundred MB after past pages, to the system. Any thread, 20 ms.

        ONNX Runtime does so only at the end of a run, hence one with the smallest image. Doing so after every run would
        cost 6 % of the time (measured on business papers), so this is called when no page is recognised.
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
        """The characters of the recogniser's classes; the first is CTC's blank, the last the space."""
        self._session("recognize", latin)
        return self._characters[latin]

    def _session(self, network: Network, latin: bool) -> Any:
        with self._lock:
            key = (network, latin)
            if key not in self._sessions:
                self._sessions[key] = self._open(network, latin)
            return self._sessions[key]

    def _open(self, network: Network, latin: bool) -> Any:
        import cv2  # lazily: only pages need it
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
        if session.get_providers()[0] != provider.name:  # it falls back silently
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
    """The recogniser's graph, cut to the classes of Latin print if ``latin``, and the characters of its classes.

    It knows 18,708 characters, of which Latin print needs some 500: the rest would cost memory and time for nothing.
    """
    import onnx  # lazily: used once a process, for the first page
    from onnx import numpy_helper

    model = onnx.load(str(_paths()["recognize"]))
    names = next(entry.value for entry in model.metadata_props if entry.key == "character").split("\n")
    characters = ["", *names, " "]
    classes = [index for index, character in enumerate(characters) if not latin or is_latin(character)]
    last = next(node for node in reversed(model.graph.node) if node.op_type == _LOGITS)
    bias = next(node for node in model.graph.node if last.output[0] in node.input)
    names = {*last.input, *bias.input}
    for tensor in model.graph.initializer:
        if tensor.name in names and tensor.dims[-1] == len(characters):
            cut = numpy_helper.to_array(tensor)[..., classes]
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(cut), tensor.name))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString(), tuple(characters[index] for index in classes)


@cache
def _share_arena() -> None:
    """Register one arena for all sessions of this process.

    With one each, every session keeps its own peak: 1.43 GB instead of 0.95 on business papers, for 4 % of the time.
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
    options.enable_mem_pattern = False  # shapes change with every page: memory patterns would be kept for nothing
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning would take cores of other lanes
    return options
