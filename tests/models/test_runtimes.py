"""Which candidates each machine measures, loading them, and refusing those that do not fit the memory."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from backend.device.choice.selection import DeviceRequest
from backend.device.memory.device_memory import RESERVE_BYTES, MemoryUsage
from backend.device.plan.placement import Placement, place, place_all
from backend.device.records import AllocatorStats, DeviceType, GPUInfo, MachineFacts
from backend.errors import ModelUnavailable
from backend.models import runtimes
from backend.models.runtimes import (
    Candidate,
    candidates,
    check_fit,
    fallback,
    load_encoder,
    predict_memory,
    warm_up,
    why_none,
)
from tests.tiny_models import TinyModels, placement, spec_of

OLD = ("avx2",)
VNNI = ("avx2", "avx512f", "avx512_vnni")
BF16 = (*VNNI, "avx512_bf16")
ARM = ("asimddp", "i8mm", "bf16")

OV8, OVB, OV32 = (Candidate("openvino", dtype) for dtype in ("int8", "bf16", "fp32"))
OX8, OX7, OX32 = (Candidate("onnx", dtype) for dtype in ("int8", "int7", "fp32"))
TB, T16, T32 = (Candidate("torch", dtype) for dtype in ("bf16", "fp16", "fp32"))
PB, P16, P32 = (Candidate("torch-packed", dtype) for dtype in ("bf16", "fp16", "fp32"))
CB, C16, C32 = (Candidate("torch-compiled", dtype) for dtype in ("bf16", "fp16", "fp32"))


def machine(flags: tuple[str, ...], *gpus: GPUInfo, kind: DeviceType = DeviceType.CPU) -> MachineFacts:
    return MachineFacts(4, "a processor", flags, 2**33, gpus, kind)


def gpu(*, bf16: bool) -> GPUInfo:
    return GPUInfo(0, "a card", "GPU-1", 2**33, (8, 0) if bf16 else (7, 0), bf16=bf16)


@pytest.mark.parametrize(
    ("flags", "wish", "expected"),
    [
        pytest.param(BF16, ("auto", "auto"), {OV8, OVB, OX8, OV32, OX32}, id="everything"),
        pytest.param(VNNI, ("auto", "auto"), {OV8, OX8, OV32, OX32}, id="no-bf16-in-hardware"),
        pytest.param(OLD, ("auto", "auto"), {OV8, OX7, OV32, OX32}, id="7-bit-weights-without-vnni"),
        pytest.param(("avx2", "avx_vnni"), ("int8", "auto"), {OV8, OX8}, id="vnni-of-256-bits"),
        pytest.param(OLD, ("int8", "onnx"), {OX7}, id="int8-means-7-bit-weights-there"),
        pytest.param(ARM, ("auto", "auto"), {OV8, OVB, OX8, OV32, OX32}, id="arm-with-bf16"),
        pytest.param(BF16, ("exact", "auto"), {OV32, OX32}, id="exact-is-fp32"),
        pytest.param(BF16, ("fast", "auto"), {OV8, OVB, OX8, OV32, OX32}, id="fast-measures-the-same"),
        pytest.param(BF16, ("int8", "auto"), {OV8, OX8}, id="int8"),
        pytest.param(BF16, ("bf16", "auto"), {OVB}, id="bf16"),
        pytest.param(BF16, ("auto", "onnx"), {OX8, OX32}, id="onnx-asked-for"),
        pytest.param(BF16, ("auto", "openvino"), {OV8, OVB, OV32}, id="openvino-asked-for"),
        pytest.param(BF16, ("auto", "torch"), {TB, T32}, id="torch-asked-for"),
        pytest.param(OLD, ("auto", "torch"), {T32}, id="torch-asked-for-without-bf16"),
        pytest.param(BF16, ("int8", "torch"), set(), id="torch-has-no-int8"),
        pytest.param(BF16, ("auto", "torch-packed"), {PB, P32}, id="packed-asked-for"),
        pytest.param(OLD, ("auto", "torch-compiled"), {C32}, id="compiled-asked-for"),
        pytest.param(BF16, ("fp16", "auto"), set(), id="no-fp16-on-a-cpu"),
        pytest.param(BF16, ("bf16", "onnx"), set(), id="onnx-has-no-bf16"),
    ],
)
def test_candidates_on_a_cpu(flags, wish, expected):
    """Only what this processor computes natively, and what was asked for."""
    found = candidates(machine(flags), placement(), *wish)

    assert expected == set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("bf16", "precision", "runtime", "expected"),
    [
        pytest.param(True, "auto", "auto", {TB, T16, T32, PB, P16, P32}, id="ampere-and-later"),
        pytest.param(False, "auto", "auto", {T16, T32, P16, P32}, id="volta-has-no-bf16"),
        pytest.param(True, "auto", "torch", {TB, T16, T32}, id="as-transformers-runs-it"),
        pytest.param(True, "auto", "torch-packed", {PB, P16, P32}, id="packed-asked-for"),
        pytest.param(True, "auto", "torch-compiled", {CB, C16, C32}, id="compiled-only-when-asked-for"),
        pytest.param(False, "bf16", "auto", set(), id="bf16-asked-for-on-volta"),
        pytest.param(True, "exact", "auto", {T32, P32}, id="exact"),
        pytest.param(True, "int8", "auto", set(), id="no-int8-on-a-gpu"),
        pytest.param(True, "auto", "openvino", set(), id="openvino-asked-for-on-a-gpu"),
    ],
)
def test_candidates_on_a_gpu(bf16, precision, runtime, expected):
    """Half precision by what the card has in hardware."""
    facts = machine(BF16, gpu(bf16=bf16), kind=DeviceType.CUDA)

    assert expected == set(candidates(facts, place(facts, DeviceRequest()), precision, runtime))


def test_what_all_cards_have_decides():
    """One text must get one vector whichever card is free: bf16 only where every card has it."""
    facts = machine(BF16, gpu(bf16=True), replace(gpu(bf16=False), index=1, uuid="GPU-2"), kind=DeviceType.CUDA)

    found = [candidates(facts, each, "auto", "auto") for each in place_all(facts, DeviceRequest("cuda:all"))]

    assert [{T16, T32, P16, P32}] * 2 == [set(on_card) for on_card in found]


def test_nothing_for_a_gpu_says_why():
    """RUNTIME=onnx on a card is a wish that cannot be."""
    on_card = Placement("cuda:0", 1, 1, 2, ("asked for",), dtypes=("bf16", "fp32"))

    assert "on cuda:0 torch runs bf16, fp32; RUNTIME=onnx and openvino are for CPUs" in why_none(on_card)
    assert "no such runtime is installed" in why_none(placement())


@pytest.mark.parametrize(
    ("precision", "runtime", "expected"),
    [
        pytest.param("auto", "auto", {TB, T32}, id="auto"),
        pytest.param("exact", "auto", {T32}, id="exact"),
        pytest.param("int8", "auto", set(), id="int8-is-not-quietly-something-else"),
        pytest.param("auto", "onnx", set(), id="onnx-is-not-quietly-torch"),
        pytest.param("bf16", "auto", {TB}, id="bf16"),
    ],
)
def test_fallback(precision, runtime, expected):
    """torch serves what has no graph, but an explicit wish is never turned into another."""
    assert expected == set(fallback(precision, runtime))


@pytest.mark.parametrize("candidate", [OX8, OV32, T32], ids=str)
def test_what_building_an_encoder_took_is_returned(tiny: TinyModels, monkeypatch, candidate):
    """Once, after the encoder is there."""
    trims = []
    monkeypatch.setattr(runtimes, "trim_heap", lambda: trims.append("trimmed"))

    load_encoder(spec_of(tiny.folder("bert")), candidate, placement())

    assert ["trimmed"] == trims


@pytest.mark.parametrize("max_tokens", [3, 48, 512])
def test_warming_never_passes_the_models_length(max_tokens):
    """Lone texts of rising lengths, none longer than the position table."""
    lengths: list[int] = []
    encoder = SimpleNamespace(
        prepare=lambda ids: lengths.extend(map(len, ids)), forward=lambda batch: None, pooled=lambda *arguments: None
    )

    warm_up(encoder, max_tokens)

    assert sorted(set(lengths)) == lengths
    assert max(lengths, default=0) <= max_tokens
    assert bool(lengths) == (max_tokens >= 4)


def books(free_bytes: int) -> MemoryUsage:
    return MemoryUsage(AllocatorStats(), free_bytes)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bytes_each"), [("fp32", 4), ("bf16", 2), ("fp16", 2)])
def test_the_memory_of_weights_is_predicted_exactly(dtype, bytes_each):
    """22.7 million parameters of all-MiniLM-L6-v2 in the width of each dtype, from its configuration alone."""
    prediction = predict_memory(spec_of("minilm"), dtype)

    assert 22_713_216 * bytes_each == pytest.approx(prediction.weights_bytes, rel=0.001)


def test_a_model_that_fits():
    """With memory to spare nothing is raised."""
    check_fit(spec_of("minilm"), "fp32", placement(), books(4 << 30))


def test_a_model_that_does_not_fit():
    """What it needs, what is free, and four things to do."""
    with pytest.raises(ModelUnavailable) as caught:
        check_fit(spec_of("minilm"), "fp32", placement(), books(RESERVE_BYTES + (50 << 20)))

    message = str(caught.value)
    assert "does not fit cpu" in message
    assert "86.7 MiB" in message
    assert "50.0 MiB" in message
    for cure in ("other users", "GPU_MEMORY_FRACTION", "EMBEDDING_MODEL", "DEVICE=cpu"):
        assert cure in message


def test_half_precision_may_fit_where_float32_does_not():
    """The next candidate is tried: only the dtype that is too large is refused."""
    free = books(RESERVE_BYTES + (75 << 20))
    with pytest.raises(ModelUnavailable):
        check_fit(spec_of("minilm"), "fp32", placement(), free)

    check_fit(spec_of("minilm"), "bf16", placement(), free)


@pytest.mark.slow
def test_the_memory_of_every_family_can_be_predicted(tiny: TinyModels):
    """The dry run works for each architecture that is served."""
    for family in ("bert", "mpnet", "xlm-roberta", "distilbert", "roberta"):
        prediction = predict_memory(spec_of(tiny.folder(family)), "fp32")

        assert prediction is not None, family
        assert prediction.weights_bytes > 0
