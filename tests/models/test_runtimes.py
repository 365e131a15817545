"""What is worth measuring on which machine, as a table."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from backend.device.facts.machine import DeviceType, GPUInfo, MachineFacts
from backend.device.plan.placement import Placement, Wishes, place, place_all
from backend.errors import ModelUnavailable
from backend.models import runtimes
from backend.models.runtimes import Candidate, candidates, fallback, load_encoder, why_none
from tests.tiny_models import TinyModels, placement, spec_of

OLD = ("avx2",)
VNNI = ("avx2", "avx512f", "avx512_vnni")
BF16 = (*VNNI, "avx512_bf16")
ARM = ("asimddp", "i8mm", "bf16")
ALL = frozenset({"torch", "onnx", "openvino"})

OV8, OVB, OV32 = (Candidate("openvino", dtype) for dtype in ("int8", "bf16", "fp32"))
OX8, OX32 = (Candidate("onnx", dtype) for dtype in ("int8", "fp32"))
TB, T16, T32 = (Candidate("torch", dtype) for dtype in ("bf16", "fp16", "fp32"))


def machine(flags: tuple[str, ...], *gpus: GPUInfo, kind: DeviceType = DeviceType.CPU) -> MachineFacts:
    return MachineFacts(4, "a processor", flags, 2**33, gpus, kind)


def gpu(*, bf16: bool) -> GPUInfo:
    return GPUInfo(0, "a card", "GPU-1", 2**33, (8, 0) if bf16 else (7, 0), bf16=bf16)


@pytest.fixture
def have(monkeypatch):
    """Say which runtimes are installed."""

    def only(names: frozenset[str]) -> None:
        monkeypatch.setattr(runtimes, "installed", lambda runtime: runtime in names)

    return only


@pytest.mark.parametrize(
    ("flags", "installed", "wish", "expected"),
    [
        pytest.param(BF16, ALL, ("auto", "auto"), {OV8, OVB, OX8, OV32, OX32}, id="everything"),
        pytest.param(OLD, ALL, ("auto", "auto"), {OV8, OX8, OV32, OX32}, id="no-bf16-in-hardware"),
        pytest.param(ARM, ALL, ("auto", "auto"), {OV8, OVB, OX8, OV32, OX32}, id="arm-with-bf16"),
        pytest.param(BF16, ALL, ("exact", "auto"), {OV32, OX32}, id="exact-is-fp32"),
        pytest.param(BF16, ALL, ("fast", "auto"), {OV8, OVB, OX8, OV32, OX32}, id="fast-measures-the-same"),
        pytest.param(BF16, ALL, ("int8", "auto"), {OV8, OX8}, id="int8"),
        pytest.param(BF16, ALL, ("bf16", "auto"), {OVB}, id="bf16"),
        pytest.param(BF16, ALL, ("auto", "onnx"), {OX8, OX32}, id="onnx-asked-for"),
        pytest.param(BF16, ALL, ("auto", "openvino"), {OV8, OVB, OV32}, id="openvino-asked-for"),
        pytest.param(BF16, ALL, ("auto", "torch"), {TB, T32}, id="torch-asked-for"),
        pytest.param(OLD, ALL, ("auto", "torch"), {T32}, id="torch-asked-for-without-bf16"),
        pytest.param(BF16, ALL, ("int8", "torch"), set(), id="torch-has-no-int8"),
        pytest.param(BF16, ALL, ("fp16", "auto"), set(), id="no-fp16-on-a-cpu"),
        pytest.param(BF16, ALL, ("bf16", "onnx"), set(), id="onnx-has-no-bf16"),
        pytest.param(BF16, ALL - {"openvino"}, ("auto", "auto"), {OX8, OX32}, id="without-openvino"),
        pytest.param(BF16, ALL - {"onnx"}, ("auto", "auto"), {OV8, OVB, OV32}, id="without-onnx-runtime"),
        pytest.param(BF16, frozenset({"torch"}), ("auto", "auto"), {TB, T32}, id="torch-alone"),
        pytest.param(OLD, frozenset({"torch"}), ("auto", "auto"), {T32}, id="torch-alone-on-an-old-processor"),
        pytest.param(BF16, frozenset({"onnx"}), ("auto", "openvino"), set(), id="asked-for-but-not-installed"),
        pytest.param(BF16, frozenset(), ("auto", "auto"), set(), id="nothing-installed"),
    ],
)
def test_candidates_on_a_cpu(have, flags, installed, wish, expected):
    """Only what this processor computes natively, what is installed, and what was asked for."""
    have(installed)

    found = candidates(machine(flags), placement(), *wish)

    assert expected == set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("bf16", "precision", "runtime", "expected"),
    [
        pytest.param(True, "auto", "auto", {TB, T16, T32}, id="ampere-and-later"),
        pytest.param(False, "auto", "auto", {T16, T32}, id="volta-has-no-bf16"),
        pytest.param(False, "bf16", "auto", set(), id="bf16-asked-for-on-volta"),
        pytest.param(True, "exact", "auto", {T32}, id="exact"),
        pytest.param(True, "int8", "auto", set(), id="no-int8-on-a-gpu"),
        pytest.param(True, "auto", "openvino", set(), id="openvino-asked-for-on-a-gpu"),
    ],
)
def test_candidates_on_a_gpu(have, bf16, precision, runtime, expected):
    """Half precision by what the card has in hardware."""
    have(ALL)
    facts = machine(BF16, gpu(bf16=bf16), kind=DeviceType.CUDA)

    assert expected == set(candidates(facts, place(facts, Wishes()), precision, runtime))


def test_what_all_cards_have_decides(have):
    """One text must get one vector whichever card is free: bf16 only where every card has it."""
    have(ALL)
    facts = machine(BF16, gpu(bf16=True), replace(gpu(bf16=False), index=1, uuid="GPU-2"), kind=DeviceType.CUDA)

    found = [candidates(facts, each, "auto", "auto") for each in place_all(facts, Wishes("cuda:all"))]

    assert [{T16, T32}] * 2 == [set(one) for one in found]


def test_nothing_for_a_gpu_says_why():
    """RUNTIME=onnx on a card is a wish that cannot be, not a package that is absent."""
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
def test_fallback(have, precision, runtime, expected):
    """torch serves what has no graph, but an explicit wish is never turned into another."""
    have(ALL)

    assert expected == set(fallback(precision, runtime))


def test_no_fallback_without_torch(have):
    """Nothing is promised that is not installed."""
    have(ALL - {"torch"})

    assert [] == fallback("auto", "auto")


@pytest.mark.parametrize(("runtime", "module"), [("onnx", "onnxruntime"), ("openvino", "openvino"), ("torch", "torch")])
def test_a_runtime_that_is_not_installed_is_named(tiny: TinyModels, have, runtime, module):
    """The message is the package's name, not an ImportError."""
    have(frozenset())

    with pytest.raises(ModelUnavailable, match=f"{module} is not installed"):
        load_encoder(spec_of(tiny.folder("bert")), Candidate(runtime, "fp32"), placement())


@pytest.mark.parametrize("candidate", [OX8, OV32, T32], ids=str)
def test_an_encoder_says_what_it_is(tiny: TinyModels, candidate):
    """Runtime and dtype, as /v1/system shows them."""
    encoder = load_encoder(spec_of(tiny.folder("bert")), candidate, placement())

    assert (candidate.runtime, candidate.dtype) == (encoder.runtime, encoder.dtype)


def test_asking_what_is_installed_imports_nothing():
    """A runtime costs seconds and 300 MiB: only the chosen one is imported."""
    script = (
        "import sys; from backend.models import runtimes; "
        "assert all(runtimes.installed(name) for name in ('torch', 'onnx', 'openvino')); "
        "assert all(runtimes.versions().values()); "
        "print(sorted({'torch', 'onnxruntime', 'openvino', 'transformers'} & set(sys.modules)))"
    )

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout.strip() == "[]"
