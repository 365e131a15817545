"""Which runtimes and dtypes can serve a model here, and how each is loaded."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from backend.device.facts.machine import DeviceType, MachineFacts
from backend.device.plan.placement import Placement
from backend.errors import ModelUnavailable
from backend.models.encoder import Encoder
from backend.models.memory_check import check_fit
from backend.models.spec import ModelSpec

Precision = Literal["auto", "exact", "fast", "fp32", "bf16", "fp16", "int8"]
Runtime = Literal["auto", "torch", "onnx", "openvino"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to execute a model."""

    runtime: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.runtime} {self.dtype}"


_CPU_GRAPH = (
    Candidate("openvino", "int8"),
    Candidate("openvino", "bf16"),
    Candidate("onnx", "int8"),
    Candidate("openvino", "fp32"),
    Candidate("onnx", "fp32"),
)
_CPU_TORCH = (Candidate("torch", "bf16"), Candidate("torch", "fp32"))
_MODULES = {"torch": "torch", "onnx": "onnxruntime", "openvino": "openvino"}
_PRECISIONS = {"exact": ("fp32",), "auto": ("fp32", "bf16", "fp16", "int8"), "fast": ("fp32", "bf16", "fp16", "int8")}


def candidates(facts: MachineFacts, placement: Placement, precision: Precision, runtime: Runtime) -> list[Candidate]:
    """What is worth measuring here, without loading anything.

    torch is measured on a CPU only when asked for, or when nothing else is installed: its import costs
    seconds and 300 MiB, and it won on no machine measured (DESIGN §5, docs/engine.md).
    """
    everything = _on_gpu(placement) if placement.type is not DeviceType.CPU else _on_cpu(facts, runtime)
    dtypes = _PRECISIONS.get(precision, (precision,))
    return [
        one for one in everything if one.dtype in dtypes and runtime in ("auto", one.runtime) and installed(one.runtime)
    ]


def why_none(placement: Placement) -> str:
    """Why no candidate was left, for the error that stops the start."""
    if placement.type is not DeviceType.CPU:
        kept = f"on {placement.device} torch runs {', '.join(placement.dtypes)}"
        return f"{kept}; RUNTIME=onnx and openvino are for CPUs: set DEVICE=cpu, or RUNTIME=auto and PRECISION=auto"
    return "no such runtime is installed, or this processor lacks the arithmetic"


def fallback(precision: Precision, runtime: Runtime) -> list[Candidate]:
    """What is left when no graph could be built: torch, if the wishes allow it."""
    dtypes = _PRECISIONS.get(precision, (precision,))
    return [one for one in _CPU_TORCH if runtime == "auto" and one.dtype in dtypes and installed("torch")]


def load_encoder(spec: ModelSpec, candidate: Candidate, placement: Placement) -> Encoder:
    """Load the model. Raises: ModelUnavailable when this runtime cannot.

    Each runtime is imported here and not above: it costs up to 300 MiB and seconds, and one is enough.
    """
    if not installed(candidate.runtime):
        raise ModelUnavailable(f"{_MODULES[candidate.runtime]} is not installed")
    if candidate.runtime == "openvino":
        from backend.models.openvino_encoder import OpenVinoEncoder

        return OpenVinoEncoder(spec, dtype=candidate.dtype, lanes=placement.lanes, threads=placement.threads)
    if candidate.runtime == "onnx":
        from backend.models.onnx_encoder import OnnxEncoder

        return OnnxEncoder(spec, dtype=candidate.dtype, threads=placement.threads)
    from backend.models.torch_encoder import TorchEncoder

    if placement.type is not DeviceType.CPU:
        check_fit(spec, candidate.dtype, placement)
    return TorchEncoder(spec, dtype=candidate.dtype, device=placement.device, threads=placement.threads)


def installed(runtime: str) -> bool:
    """Whether the runtime's package can be imported; it is not imported to find out."""
    return importlib.util.find_spec(_MODULES[runtime]) is not None


def versions() -> dict[str, str]:
    """Versions of the runtimes, for the fingerprint of a measurement."""
    found: dict[str, str] = {}
    for package in _MODULES.values():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    return found


def _on_cpu(facts: MachineFacts, runtime: Runtime) -> list[Candidate]:
    graph_runtimes = installed("onnx") or installed("openvino")
    everything = _CPU_TORCH if runtime == "torch" or not graph_runtimes else _CPU_GRAPH
    native_bf16 = any(flag in facts.cpu_flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return [one for one in everything if one.dtype != "bf16" or native_bf16]  # emulated bf16 is slower than fp32


def _on_gpu(placement: Placement) -> list[Candidate]:
    return [Candidate("torch", dtype) for dtype in placement.dtypes]
