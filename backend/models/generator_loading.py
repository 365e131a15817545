"""Loads a model that writes, and chooses its arithmetic by the device and the model's family; measures nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from backend.device.plan.attention import prefer_flash
from backend.device.plan.placement import Placement
from backend.device.plan.precision import DtypeChoice, for_model
from backend.device.records import DeviceType
from backend.errors import ModelUnavailable
from backend.models.autotune import Choice, EncoderRequest
from backend.models.runtimes import installed
from backend.models.spec import ModelSpec

if TYPE_CHECKING:
    from backend.models.generation import Generator

_CPU_BUDGET, _GPU_BUDGET = 2048, 32_768  # padded tokens; a step of a CPU's lane costs as much for each row
_WISHES = {"exact": "fp32", "fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}


def choose_generator(spec: ModelSpec, placement: Placement, request: EncoderRequest) -> Choice:
    """What PRECISION asks for; else float32 on a CPU, and on a card what it computes best and the model can bear."""
    is_cpu = placement.type is DeviceType.CPU
    if request.precision in _WISHES:
        dtype, why = _WISHES[request.precision], f"PRECISION={request.precision}"
    elif is_cpu:
        dtype, why = "fp32", "fp32: a token at a time waits for memory, not for arithmetic"
    else:
        known = for_model(DtypeChoice(placement.dtypes, ""), spec.shape.family, spec.stored_dtype)
        dtype, why = known.dtypes[0], known.why or f"{known.dtypes[0]}: the card computes it best"
    reasons = [f"{spec.name} on {placement.device}: {why}"]
    if request.precision == "int8" or request.runtime not in ("auto", "torch"):
        reasons.append("texts are written by torch, in fp32, bf16 or fp16 alone, whatever RUNTIME and PRECISION say")
    budget = request.batch_tokens or (_CPU_BUDGET if is_cpu else _GPU_BUDGET)
    return Choice("torch", dtype, budget, 0.0, tuple(reasons))


def load_generator(spec: ModelSpec, choice: Choice, placement: Placement) -> Generator:
    """The model in the chosen arithmetic. Raises: ModelUnavailable."""
    if not installed("torch"):
        raise ModelUnavailable(f"{spec.name}: SUMMARY_MODEL needs torch, which is not installed")
    from backend.models.seq2seq import TorchSeq2Seq  # seconds and 300 MiB: only where a model is set

    if placement.type is DeviceType.CUDA:
        prefer_flash()
    return cast(
        "Generator",
        TorchSeq2Seq(spec, dtype=choice.dtype, device=placement.device, threads=placement.threads),
    )
