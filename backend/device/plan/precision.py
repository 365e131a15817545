"""Which dtypes are worth trying on a device and for a model, and how torch computes float32 matrix products.

These rules only rule out candidates; models/autotune.py measures the rest on real text and decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from backend.device.facts.compute_capability import architecture, fp16_is_broken
from backend.device.records import GPUInfo

if TYPE_CHECKING:
    import torch

TORCH_NAMES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
CPU_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one is ARM's

# Architectures whose activations exceed float16's largest number, 65504, with the reports of it.
_NOT_IN_FP16: Mapping[str, str] = {
    **dict.fromkeys(
        ("gemma3", "gemma3_text", "gemma3n", "gemma3n_text"), "unsloth#4014 saw 800,000; transformers#36822"
    ),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5", "udop"), "transformers#5651, #9295"),
    "mobilebert": "transformers#11327",
}

Fp32Mode = Literal["ieee", "tf32"]


@dataclass(frozen=True, slots=True)
class DtypeChoice:
    """The dtypes worth trying, best first; "fp32" is always one of them."""

    dtypes: tuple[str, ...]  # of "bf16", "fp16", "fp32"
    why: str  # one sentence


def dtypes_for(gpu: GPUInfo | None, cpu_flags: Collection[str] = ()) -> DtypeChoice:
    """The dtypes that the hardware computes natively. ``gpu=None`` means the CPU with these flags.

    torch's own ``is_bf16_supported()`` counts emulation and says yes on a T4, where bf16 is slower than
    float32 (pytorch#148322).
    """
    if gpu is None:
        flags = sorted(CPU_BF16_FLAGS & set(cpu_flags))
        if flags:
            return DtypeChoice(("bf16", "fp32"), f"bf16: the processor multiplies it itself ({', '.join(flags)})")
        return DtypeChoice(("fp32",), "fp32: the processor would only emulate bf16")
    if gpu.capability == (0, 0):
        halves = ("fp16", "bf16") if gpu.bf16 else ("fp16",)  # every Apple GPU has fp16; the M1 emulates bf16
        return DtypeChoice((*halves, "fp32"), "fp16 first: native on every Apple GPU")
    return _on_cuda(gpu)


def _on_cuda(gpu: GPUInfo) -> DtypeChoice:
    generation = architecture(gpu.capability)
    where = f"{generation.name}, {generation.sm}"
    if gpu.bf16:
        return DtypeChoice(("bf16", "fp16", "fp32"), f"bf16: native here ({where}) and has float32's range")
    if fp16_is_broken(gpu.name, gpu.capability):
        return DtypeChoice(("fp32",), f"fp32: this card ({where}, no tensor cores) gives wrong numbers in fp16")
    if generation.fp16:
        return DtypeChoice(("fp16", "fp32"), f"fp16: native here ({where}); bf16 would be emulated")
    if gpu.capability == (6, 0):  # P100: twice the rate of float32; other Pascals 1/64 (CUDA guide, arithmetic)
        return DtypeChoice(("fp16", "fp32"), f"fp16: twice the rate of float32 here ({where}), without tensor cores")
    return DtypeChoice(("fp32",), f"fp32: half precision is slower than it here ({where})")


def for_model(choice: DtypeChoice, model_type: str, checkpoint_dtype: str | None) -> DtypeChoice:
    """``choice`` without the dtypes in which this model would overflow.

    Args:
        model_type: as in config.json, e.g. "gemma3_text".
        checkpoint_dtype: of the stored weights: "torch.bfloat16", "bfloat16" or "bf16".
    """
    stored = _short(checkpoint_dtype)
    fault = ""
    if model_type in _NOT_IN_FP16:
        fault = f"{model_type} overflows fp16 ({_NOT_IN_FP16[model_type]})"
    elif stored == "bf16":  # in fp16 on a Turing card such a model returned NaN with status 200 (vllm#48231)
        fault = "the weights are stored as bf16, whose range fp16 does not have"
    if fault and "fp16" in choice.dtypes:
        remaining = tuple(dtype for dtype in choice.dtypes if dtype != "fp16")
        return DtypeChoice(remaining, f"{remaining[0]}, not fp16: {fault}")
    if stored == "fp16" and {"bf16", "fp16"} <= set(choice.dtypes):
        order = ("fp16", *(dtype for dtype in choice.dtypes if dtype != "fp16"))
        return DtypeChoice(order, "fp16 first: the weights are stored so, and bf16 would drop three of their bits")
    return choice


def common(choices: Sequence[DtypeChoice]) -> DtypeChoice:
    """The dtypes that all devices have: a text must get the same vector whichever device computes it."""
    first, *others = choices
    shared = tuple(dtype for dtype in first.dtypes if all(dtype in other.dtypes for other in others))
    lost = [dtype for choice in choices for dtype in choice.dtypes if dtype not in shared]
    if not lost:
        return first
    return DtypeChoice(shared, f"{shared[0]}: the best that all {len(choices)} devices have, so that vectors agree")


def amp_dtype(dtypes: Sequence[str]) -> str | None:
    """The half-precision dtype for automatic mixed precision; None when no half precision is native."""
    return next((dtype for dtype in dtypes if dtype in ("bf16", "fp16")), None)


def torch_dtype(dtype: str) -> torch.dtype:
    """The torch dtype of "bf16", "fp16" or "fp32". Raises: ValueError for another name."""
    import torch  # seconds and 300 MiB that a CPU service on another runtime must not pay

    if dtype not in TORCH_NAMES:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(TORCH_NAMES)}")
    result: torch.dtype = getattr(torch, TORCH_NAMES[dtype])
    return result


def set_fp32_precision(mode: Fp32Mode) -> None:
    """Set how GPUs multiply float32: "ieee" in full, or "tf32" with 10 bits of mantissa on tensor cores.

    Call it once, at the start. torch has an old and a new interface for this, and reading the old one raises after
    only the new one was set; torch.compile itself reads it (pytorch#179445). So both are set here, the old one first.

    Raises: ValueError for another mode.
    """
    import torch  # as in torch_dtype

    if mode not in ("ieee", "tf32"):
        raise ValueError(f"float32 precision {mode!r} is neither 'ieee' nor 'tf32'")
    torch.set_float32_matmul_precision("high" if mode == "tf32" else "highest")
    cudnn: Any = torch.backends.cudnn  # its settings are properties of a replaced module, which mypy cannot see
    cudnn.allow_tf32 = mode == "tf32"
    torch.backends.cuda.matmul.fp32_precision = mode
    cudnn.conv.fp32_precision = mode
    cudnn.rnn.fp32_precision = mode


def fp32_precision() -> Fp32Mode:
    """How GPUs multiply float32 matrices now; torch's default is "ieee"."""
    import torch  # as in torch_dtype

    matmul: Any = torch.backends.cuda.matmul  # as above
    return "tf32" if matmul.fp32_precision == "tf32" else "ieee"


def _short(dtype: str | None) -> str:
    name = (dtype or "").removeprefix("torch.")
    return {long: short for short, long in TORCH_NAMES.items()}.get(name, name)
