"""RapidOCR's networks: files of its wheel, opened at first use on the chosen runtime, shared by all lanes."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import numpy as np

from backend.models.runtimes import Candidate
from backend.ocr.rapidocr_sessions import (
    ONNX_FP32,
    Graph,
    LaneThreads,
    Numbers,
    OnnxSession,
    Provider,
    Session,
    choose_provider,
    open_on_cpu,
    open_on_cuda,
)

Network = Literal["detect", "recognize", "upright"]
_FILES: Mapping[Network, str] = {
    "detect": "PP-OCRv6_det_small.onnx",
    "recognize": "PP-OCRv6_rec_small.onnx",
    "upright": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
}
_MODULES = ("rapidocr", "onnxruntime", "onnx", "cv2")
# Of the memory that RapidOCR may take of a GPU; the recogniser counts twice, for each of its character sets.
_DEVICE_SHARES: Mapping[Network, float] = {"detect": 0.5, "recognize": 0.2, "upright": 0.1}
# OpenVINO keeps kernels for each size that a network has seen. Lines have one of few sizes, pages any: over 160 small
# pages of random sizes the process grew from 347 to 735 MB with 5000 kernels kept, from 345 to 430 with 512 (7 % more
# time).
_KERNELS_KEPT: Mapping[Network, int] = {"detect": 512, "recognize": 5000, "upright": 512}
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


class RapidOcrModels:
    """The networks, each opened once by the lane that needs it first. Any thread."""

    def __init__(
        self, device: str, threads: int, *, lanes: int = 1, runtime: Candidate = ONNX_FP32, device_bytes: int = 0
    ) -> None:
        """Opens nothing yet.

        Args:
            device: torch device string.
            threads: of a lane, for arithmetic on a CPU.
            lanes: that run at the same time.
            runtime: what executes the networks on a CPU.
            device_bytes: that the networks together may take of a GPU; 0 for no limit.
        """
        self._device, self._device_bytes = device, device_bytes
        self.cores = LaneThreads(threads, lanes)
        self._runtime = runtime
        self._lock = threading.Lock()
        self._sessions: dict[tuple[Network, bool], Session] = {}
        self._characters: dict[bool, tuple[str, ...]] = {}

    @property
    def runtime(self) -> Candidate:
        """What executes the networks on a CPU."""
        return self._runtime

    @property
    def is_wanted_on_cuda(self) -> bool:
        """Whether the models' device is a GPU that ONNX Runtime may have code for."""
        return self._device.startswith("cuda")

    @cached_property
    def provider(self) -> Provider:
        """Where the networks run: on a GPU only if the smallest of them does. Seconds on CUDA; imports ONNX Runtime."""
        import onnxruntime  # lazily: a service without OCR does not need it

        provider = choose_provider(self._device, onnxruntime.get_available_providers())
        if not provider.is_cuda:
            return provider
        try:
            OnnxSession(str(_paths()["upright"]), provider, self.cores).run(np.zeros((1, 3, 48, 192), np.float32))
        except Exception as error:  # noqa: BLE001  # the border to a foreign runtime; whatever fails there, the CPU works
            why = f"RapidOCR runs on the CPU, for a network failed on {self._device}: {error}"
            return replace(choose_provider("cpu", ()), why=why)
        return provider

    def use(self, runtime: Candidate) -> None:
        """Execute the networks on another runtime from now on."""
        with self._lock:
            self._runtime = runtime
            self._sessions.clear()

    def run(self, network: Network, pixels: Numbers, *, latin: bool = False) -> Numbers:
        """The output of a network for (batch, 3, height, width_px). Runs on a lane. Raises: ModelUnavailable."""
        return self._session(network, latin).run(pixels)

    def release_memory(self) -> None:
        """Return the free memory of past pages, some hundred MB, to the system. Any thread, while no page is read."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.release_memory()

    def unload(self) -> None:
        """Drop the networks where they run on the CPU; the next page compiles them again, in two seconds. Any thread.

        With the kernels of past sizes they keep 200 MB and more, which `release_memory` cannot return.
        """
        if not self.is_wanted_on_cuda:
            with self._lock:
                self._sessions.clear()

    def characters(self, *, latin: bool) -> tuple[str, ...]:
        """The characters of the recogniser's classes; the first is CTC's blank, the last the space."""
        self._session("recognize", latin)
        return self._characters[latin]

    def _session(self, network: Network, latin: bool) -> Session:
        with self._lock:
            key = (network, latin)
            if key not in self._sessions:
                self._sessions[key] = self._open(network, latin)
            return self._sessions[key]

    def _open(self, network: Network, latin: bool) -> Session:
        import cv2  # lazily: only pages need it

        cv2.setNumThreads(self.cores.threads)  # more would take the other lanes' cores
        graph: Graph = str(_paths()[network])
        if network == "recognize":
            graph, self._characters[latin] = _recognizer(latin)
        if self.is_wanted_on_cuda and self.provider.is_cuda:
            return open_on_cuda(graph, self._limited(network), self.cores)
        return open_on_cpu(graph, self._runtime, self.cores, _KERNELS_KEPT[network])

    def _limited(self, network: Network) -> Provider:
        if not self._device_bytes:
            return self.provider
        limit = {"gpu_mem_limit": str(int(_DEVICE_SHARES[network] * self._device_bytes))}
        return replace(self.provider, options={**self.provider.options, **limit})


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
