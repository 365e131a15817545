"""Which runtimes and dtypes can serve a model on this machine, and loading an encoder on one of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from backend.device.memory.device_memory import MemoryUsage, headroom_bytes, read_memory_usage, trim_heap
from backend.device.memory.probe import Prediction, predict, why_not_fit
from backend.device.plan.attention import installed_version, prefer_flash
from backend.device.plan.placement import Placement
from backend.device.plan.precision import CPU_BF16_FLAGS
from backend.device.records import DeviceType, MachineFacts
from backend.errors import ModelUnavailable
from backend.models.encoder import Encoder
from backend.models.readout import Readout
from backend.models.spec import ModelSpec, Pooling
from backend.models.static_encoder import StaticEncoder

Precision = Literal["auto", "exact", "fast", "fp32", "bf16", "fp16", "int8"]
Runtime = Literal["auto", "torch", "torch-packed", "torch-compiled", "onnx", "openvino"]


class ModelDoesNotFit(ModelUnavailable):
    """A model that needs more memory than its device has free."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to execute a model."""

    runtime: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.runtime} {self.dtype}"


GRAPH_RUNTIMES = ("openvino", "onnx")  # that execute models/onnx_graph
_CPU_GRAPH = (
    Candidate("openvino", "int8"), Candidate("openvino", "bf16"), Candidate("onnx", "int8"),
    Candidate("onnx", "int7"), Candidate("openvino", "fp32"), Candidate("onnx", "fp32"),
)  # fmt: skip
_CPU_TORCH = (Candidate("torch", "bf16"), Candidate("torch", "fp32"))
# By kind of processor what was the fastest faithful one for the bundled models, the next best after it: the first kind
# whose flags a processor has. Of others, ARM among them, nothing was measured: they begin with float32.
_FASTEST_KNOWN: tuple[tuple[str, frozenset[str], tuple[Candidate, ...]], ...] = (
    ("AMX", frozenset({"amx_int8", "amx_bf16"}), (Candidate("openvino", "bf16"), Candidate("openvino", "int8"))),
    ("AVX-512 and VNNI", frozenset({"avx512_vnni"}), (Candidate("openvino", "int8"), Candidate("onnx", "int8"))),
    ("AVX2", frozenset({"avx2"}), (Candidate("onnx", "int7"), Candidate("openvino", "fp32"))),
)
_WARM_STEP, _WARM_TOKENS = 4, 160  # lone texts up to this length are most of the traffic
_MEASURED = ("fp32", "bf16", "fp16", "int8", "int7")
_PRECISIONS = {"exact": ("fp32",), "auto": _MEASURED, "fast": _MEASURED, "int8": ("int8", "int7")}
_INT8_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})


def candidates(facts: MachineFacts, placement: Placement, precision: Precision, runtime: Runtime) -> list[Candidate]:
    """The runtimes and dtypes worth measuring on this machine. Loads nothing.

    torch is measured on a CPU only when asked for: its import costs seconds and 300 MiB, and it was the fastest on no
    machine measured (docs/engine.md).
    """
    possible = _on_gpu(placement, runtime) if placement.type is not DeviceType.CPU else _on_cpu(facts, runtime)
    dtypes = _PRECISIONS.get(precision, (precision,))
    return [
        candidate
        for candidate in possible
        if candidate.dtype in dtypes
        and runtime in ("auto", candidate.runtime)
        and (candidate.runtime != "openvino" or has_openvino())
    ]


def has_openvino() -> bool:
    """Whether OpenVINO is there, which machines lent for `make gpu-check` lack. It is not imported to find out."""
    return importlib.util.find_spec("openvino") is not None


def activations(candidate: Candidate, cpu_flags: Collection[str]) -> str:
    """How this processor computes the activations of an arithmetic that leaves it to the processor; "" of others.

    Under OpenVINO int8 is weights of 8 bits with activations in bfloat16 (AMX), in 8 bits (VNNI), or in float32: least
    cosine of the bundled encoders between the first two 0.9992, where replicas promise 0.9999 (docs/precision.md).
    """
    if candidate != Candidate("openvino", "int8"):
        return ""
    kinds = {"amx": "amx_bf16", "bf16": "avx512_bf16", "vnni": "avx512_vnni", "avx-vnni": "avx_vnni"}
    return next((kind for kind, flag in kinds.items() if flag in cpu_flags), "none")


def fastest_known(cpu_flags: Collection[str]) -> tuple[str, tuple[Candidate, ...]]:
    """The kind of a processor, and what was fastest on its kind, the best first; nothing for a kind never measured."""
    kinds = ((kind, known) for kind, flags, known in _FASTEST_KNOWN if not flags.isdisjoint(cpu_flags))
    return next(kinds, ("", ()))


def why_none(placement: Placement) -> str:
    """Why no candidate was left, for the error that stops the start."""
    if placement.type is not DeviceType.CPU:
        served = f"on {placement.device} torch runs {', '.join(placement.dtypes)}"
        return f"{served}; RUNTIME=onnx and openvino are for CPUs: set DEVICE=cpu, or RUNTIME=auto and PRECISION=auto"
    return "no such runtime is installed, or this processor lacks the arithmetic"


def fallback(precision: Precision, runtime: Runtime) -> list[Candidate]:
    """The candidates when no graph could be built: torch, if PRECISION and RUNTIME allow it."""
    dtypes = _PRECISIONS.get(precision, (precision,))
    return [each for each in _CPU_TORCH if runtime == "auto" and each.dtype in dtypes]


def load_encoder(spec: ModelSpec, candidate: Candidate, placement: Placement) -> Encoder:
    """Load the model on one runtime. Raises: ModelUnavailable when this runtime cannot.

    Each runtime is imported here and not at the top: an import costs up to 300 MiB and seconds, and one is enough.
    """
    if spec.is_static:
        return StaticEncoder(spec)
    encoder = _load(spec, candidate, placement)
    trim_heap()  # of what building it took, glibc keeps 180 MB of 380 for twelve layers in int8
    return encoder


def _load(spec: ModelSpec, candidate: Candidate, placement: Placement) -> Encoder:
    if candidate.runtime == "openvino":
        from backend.models.openvino_encoder import OpenVinoEncoder

        return OpenVinoEncoder(spec, dtype=candidate.dtype, lanes=placement.lanes, threads=placement.threads)
    if candidate.runtime == "onnx":
        from backend.models.onnx_encoder import OnnxEncoder

        return OnnxEncoder(spec, dtype=candidate.dtype, threads=placement.threads)
    if placement.type is not DeviceType.CPU:
        check_fit(spec, candidate.dtype, placement)
    if placement.type is DeviceType.CUDA:
        prefer_flash()
    options: dict[str, Any] = {"dtype": candidate.dtype, "device": placement.device, "threads": placement.threads}
    if candidate.runtime == "torch":
        from backend.models.torch_encoder import TorchEncoder

        return TorchEncoder(spec, **options)
    from backend.models.torch_packed import CompiledEncoder, PackedEncoder

    return (CompiledEncoder if candidate.runtime == "torch-compiled" else PackedEncoder)(spec, **options)


def in_float32_of(runtime: str) -> Candidate:
    """What computes a text again in float32 that overflowed on this runtime: no kernel for a card, nothing compiled."""
    return Candidate("torch" if runtime.startswith("torch") else runtime, "fp32")


def warm_up(encoder: Encoder, max_tokens: int, readout: Readout | None = None) -> None:
    """Run lone texts of every usual length, so that no early request waits for a kernel to be compiled.

    Args:
        readout: what will be asked of the encoder, for those that capture graphs.
    """
    if readout is not None:
        capture_graphs(encoder, readout)
    for length in range(_WARM_STEP, min(_WARM_TOKENS, max_tokens) + 1, _WARM_STEP):
        batch = encoder.prepare([np.ones(length, np.int64)])
        encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN)


def capture_graphs(encoder: Encoder, readout: Readout) -> None:
    """Have an encoder that captures graphs do so now: amid requests a capture makes other lanes of the card wait."""
    capture = getattr(encoder, "capture_graphs", None)
    if capture is not None:
        capture(readout)


def predict_memory(spec: ModelSpec, dtype: str) -> Prediction | None:
    """The model's memory in ``dtype`` by a dry run of its configuration; None where the dry run fails."""
    return _predicted(spec.folder, spec.sha256, spec.max_tokens, dtype)


@lru_cache(maxsize=32)  # a model that is loaded again after idling was predicted at the start
def _predicted(folder: Path, _sha256: str, max_tokens: int, dtype: str) -> Prediction | None:
    import torch  # this module is imported at every start, the dry run belongs to devices that torch serves
    from transformers import AutoConfig, AutoModel

    from backend.models.torch_models import DTYPES

    def make_model() -> torch.nn.Module:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model: torch.nn.Module = AutoModel.from_config(config, dtype=DTYPES[dtype])  # type: ignore[no-untyped-call]
        return model.eval()

    def make_inputs(count: int, length: int) -> dict[str, Any]:
        ids = torch.ones(count, length, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return predict(make_model, make_inputs, [max_tokens])


def check_fit(spec: ModelSpec, dtype: str, placement: Placement, books: MemoryUsage | None = None) -> None:
    """Refuse a model before loading it when its weights and one text of full length exceed the device's free memory.

    Where nothing can be predicted loading decides. Raises: ModelDoesNotFit.
    """
    prediction = predict_memory(spec, dtype)
    if prediction is not None:
        choices = "choose a smaller model (EMBEDDING_MODEL), or set DEVICE=cpu"
        model = f"{spec.name} in {dtype}"
        require_memory(model, prediction, placement, length=spec.max_tokens, choices=choices, books=books)


def require_memory(
    model: str,
    prediction: Prediction,
    placement: Placement,
    *,
    length: int,
    choices: str,
    books: MemoryUsage | None = None,
) -> None:
    """Raise ModelDoesNotFit, with the numbers and what to change, for weights and one item of a length.

    Args:
        choices: what else may be changed than what else is on the device.
    """
    books = books or read_memory_usage(placement.device)
    free_bytes = headroom_bytes(books.stats, books.free_bytes, placement.process_bytes or books.ceiling_bytes)
    if why := why_not_fit(prediction, free_bytes, length, 1):
        raise ModelDoesNotFit(
            f"{model} does not fit {placement.device}: {why}. Free the device of its other users, raise "
            f"GPU_MEMORY_FRACTION, {choices}"
        )


def versions() -> dict[str, str]:
    """Versions of the runtimes, for the fingerprint of a measurement; "" where another package brings the runtime."""
    return {package: installed_version(package) for package in ("torch", "onnxruntime", "openvino")}


def adds_int8_exactly(cpu_flags: Collection[str]) -> bool:
    """Whether ONNX Runtime's products of 8-bit rows and weights are exact: not on x86 processors without VNNI.

    Those add pairs of products in 16 bits that saturate; weights of 7 bits ("int7") avoid it.
    """
    return not _INT8_FLAGS.isdisjoint(cpu_flags)


def _on_cpu(facts: MachineFacts, runtime: Runtime) -> list[Candidate]:
    possible: tuple[Candidate, ...] = _CPU_TORCH if runtime == "torch" else _CPU_GRAPH
    if runtime in ("torch-packed", "torch-compiled"):
        possible = tuple(Candidate(runtime, each.dtype) for each in _CPU_TORCH)
    exact_int8 = adds_int8_exactly(facts.cpu_flags)
    possible = tuple(each for each in possible if each != Candidate("onnx", "int7" if exact_int8 else "int8"))
    native_bf16 = not CPU_BF16_FLAGS.isdisjoint(facts.cpu_flags)
    return [each for each in possible if each.dtype != "bf16" or native_bf16]  # emulated bf16 is slower than fp32


def _on_gpu(placement: Placement, runtime: Runtime) -> list[Candidate]:
    """transformers first: in float32 it is the reference that the others are compared with.

    Compiled layers are measured only when asked for: compiling takes a minute at each start, and no card has measured
    what it gains.
    """
    runtimes = ["torch", *(["torch-packed"] if placement.type is DeviceType.CUDA else [])]
    if runtime == "torch-compiled" and placement.type is DeviceType.CUDA:
        runtimes = [runtime]
    return [Candidate(name, dtype) for name in runtimes for dtype in placement.dtypes]
