"""Attention kernels: reported by torch on a device, and by its rules for other machines."""

import json
import sys
import types
from dataclasses import asdict

import pytest

from backend.device.facts import simulated
from backend.device.plan import attention
from backend.device.plan.attention import (
    KernelUse,
    Package,
    advise,
    attention_report,
    check_flash_attention,
    expected_kernels,
    expected_report,
    flash_preferred,
    prefer_flash,
    try_flash,
)
from backend.device.plan.precision import torch_dtype
from backend.device.records import DeviceType

CUDA = DeviceType.CUDA


def install(monkeypatch, **installed):
    """Have these distributions alone; underscores stand for hyphens."""
    monkeypatch.setattr(attention, "installed_version", lambda name: installed.get(name.replace("-", "_"), ""))


def fields(uses):
    """The kernels as plain tuples, by dtype."""
    return {use.dtype: (use.unpadded, use.padded) for use in uses}


@pytest.mark.parametrize(
    ("kind", "capability", "system", "expected"),
    [
        pytest.param(
            CUDA,
            (8, 9),
            "Linux",
            {"bf16": ("flash", "efficient"), "fp16": ("flash", "efficient"), "fp32": ("efficient", "efficient")},
            id="ada",
        ),
        pytest.param(
            CUDA, (7, 5), "Linux", {"fp16": ("efficient", "efficient"), "fp32": ("efficient", "efficient")}, id="turing"
        ),
        pytest.param(
            CUDA,
            (8, 9),
            "Windows",
            {
                "bf16": ("efficient", "efficient"),
                "fp16": ("efficient", "efficient"),
                "fp32": ("efficient", "efficient"),
            },
            id="windows-wheels-have-no-flash",
        ),
        pytest.param(
            DeviceType.CPU, (0, 0), "Linux",
            {"bf16": ("flash", "flash"), "fp16": ("flash", "flash"), "fp32": ("flash", "flash")}, id="cpu",
        ),
        pytest.param(
            DeviceType.MPS, (0, 0), "Darwin",
            {"bf16": ("metal", "metal"), "fp16": ("metal", "metal"), "fp32": ("metal", "metal")}, id="apple",
        ),
    ],
)  # fmt: skip
def test_expected_kernels(kind, capability, system, expected):
    """torch's rules: flash needs Ampere, half precision and no mask."""
    assert expected == fields(expected_kernels(kind, capability, system))


def test_report_of_this_device(device):
    """torch's dispatcher reports the kernels; on a card they agree with the rules, once cuDNN's is off."""
    import torch

    with flash_preferred():
        report = attention_report(device)
    kind = DeviceType(device.partition(":")[0])
    capability = torch.cuda.get_device_capability(device) if kind is CUDA else (0, 0)

    assert report.asked
    assert device == report.device
    assert fields(expected_kernels(kind, capability)) == fields(report.kernels)
    assert json.loads(json.dumps(asdict(report))), "check_gpu --json writes it as it is"


def test_the_reported_kernel_runs(device):
    """The kernel that the dispatcher names computes these shapes, with and without a mask."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH,
    }
    mask = torch.ones(2, 1, 64, 64, dtype=torch.bool, device=device)
    for use in attention_report(device).kernels:
        query = torch.rand(2, 12, 64, 64, device=device, dtype=torch_dtype(use.dtype))
        for name, hidden in ((use.unpadded, None), (use.padded, mask)):
            with sdpa_kernel([backends[name]]):
                output = torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=hidden)
            assert torch.isfinite(output).all()


def test_a_torch_without_its_private_dispatcher(monkeypatch):
    """Another release may have moved it: then the rules are reported."""
    monkeypatch.setattr(attention, "_DISPATCHER", "_no_such_name")

    report = attention_report("cpu")

    assert not report.asked
    assert expected_kernels(DeviceType.CPU, (0, 0)) == report.kernels


@pytest.mark.parametrize(("masked", "expected"), [(2, "efficient"), (3, "cudnn"), (0, "math"), (4, "other")])
def test_padding_is_a_mask(monkeypatch, masked, expected):
    """The dispatcher gets a mask that hides some tokens; its result is translated to a name."""
    import torch

    def dispatcher(query, key, value, mask, *others):
        assert (0.0, False) == others, "no dropout, not causal: an encoder"
        return 1 if mask is None or bool(mask.all()) else masked

    monkeypatch.setattr(torch, "_our_dispatcher", dispatcher, raising=False)
    monkeypatch.setattr(attention, "_DISPATCHER", "_our_dispatcher")

    assert {("flash", expected)} == set(fields(attention_report("cpu").kernels).values())


@pytest.mark.parametrize("name", sorted(simulated.MACHINES))
def test_expected_report_of_simulated_machines(name):
    """Every dtype worth trying on the machine is in the report."""
    from backend.device.plan.precision import dtypes_for

    facts = simulated.facts(name)
    for gpu in facts.usable:
        string = "mps" if facts.gpu_type is DeviceType.MPS else f"cuda:{gpu.index}"
        report = expected_report(string, gpu.capability, facts.platform.system)
        assert not report.asked
        assert set(dtypes_for(gpu).dtypes) <= {use.dtype for use in report.kernels}
        assert "source" not in " ".join(report.advice)


@pytest.mark.parametrize(
    ("capability", "words"),
    [
        pytest.param((7, 5), ["needs an Ampere card"], id="turing"),
        pytest.param((8, 9), ["a mask rules flash out", "float32 never runs flash"], id="ada"),
    ],
)
def test_advice(capability, words):
    """Sentences about speed; never to build something."""
    sentence = advise(CUDA, capability, expected_kernels(CUDA, capability), ())

    assert len(words) == len(sentence)
    assert all(word in sentence for word, sentence in zip(words, sentence, strict=True))
    assert not any("build" in sentence or "source" in sentence for sentence in sentence)


def test_no_advice_on_masks_for_cudnn():
    """cuDNN's kernel takes a mask, so there is no advice against padding; there is none for a CPU."""
    fast = (KernelUse("bf16", "cudnn", "cudnn"),)

    assert not any("mask" in sentence for sentence in advise(CUDA, (9, 0), fast, ()))
    assert "enable_cudnn_sdp(False)" in advise(CUDA, (9, 0), fast, ())[0], "but against a plan for each new shape"
    assert () == advise(DeviceType.CPU, (0, 0), expected_kernels(DeviceType.CPU, (0, 0)), ())


def test_advice_on_a_broken_package():
    """It is mentioned with its reason; a package that is not installed is not."""
    broken = Package("flash-attn", "2.8.3", False, "ImportError: undefined symbol")
    absent = Package("flash-attn-4", "", False, "")

    (sentence,) = [text for text in advise(CUDA, (7, 5), (), (broken, absent)) if "flash-attn" in text]

    assert "flash-attn 2.8.3 is installed but does not work: ImportError: undefined symbol" == sentence


def test_packages_are_known_by_their_distribution(monkeypatch):
    """flash-attn and flash-attn-4 share an import name."""
    install(monkeypatch, flash_attn_4="4.0.0")
    report = attention_report("cpu")
    result = {package.name: package for package in report.packages}

    assert ["flash-attn", "flash-attn-3", "flash-attn-4", "kernels"] == list(result)
    assert ("4.0.0", False) == (result["flash-attn-4"].version, result["flash-attn-4"].usable)
    assert "NVIDIA cards only, not on cpu" in result["flash-attn-4"].why
    assert Package("flash-attn", "", False, "") == result["flash-attn"]


@pytest.mark.parametrize(
    ("name", "capability", "fault", "usable", "words"),
    [
        pytest.param("flash-attn", (8, 9), "", True, "one call ran on cuda:0", id="it-ran"),
        pytest.param("flash-attn", (12, 0), "RuntimeError: no kernel image", False, "no kernel image", id="it-did-not"),
        pytest.param(
            "flash-attn", (7, 5), "never tried", False, "needs compute capability 8.0, this card has 7.5", id="old"
        ),
        pytest.param("flash-attn-4", (8, 0), "never tried", False, "needs compute capability 9.0", id="fa4-on-ampere"),
    ],
)
def test_a_package_on_a_card(name, capability, fault, usable, words):
    """A package is usable if its kernel ran once on this card."""
    flash = next(flash for flash in attention._FLASH if flash.name == name)
    result = attention._check_flash(flash, "1.0", "cuda:0", capability, lambda module, device: fault)

    assert usable is result.usable
    assert words in result.why


def flash_module(monkeypatch, function):
    """A fake flash-attn module."""
    module = types.ModuleType("a_flash_attn")
    module.flash_attn_func = function
    monkeypatch.setitem(sys.modules, "a_flash_attn", module)
    return "a_flash_attn"


def _broken(*_):
    raise RuntimeError("CUDA error: no kernel image is available\nCompile with TORCH_USE_CUDA_DSA")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda query, key, value: query, "", id="one-tensor"),
        pytest.param(lambda query, key, value: (query, "lse"), "", id="a-tuple-as-flash-attn-3-gives"),
        pytest.param(lambda query, key, value: query / 0.0, "its output is not finite", id="infinite"),
        pytest.param(_broken, "RuntimeError: CUDA error: no kernel image is available", id="no-code-for-this-card"),
    ],
)
def test_try_flash(monkeypatch, device, function, expected):
    """The result of one call; an error is one line."""
    assert expected == try_flash(flash_module(monkeypatch, function), device)


def test_check_flash_attention_without_any(monkeypatch):
    """torch is not imported."""
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    install(monkeypatch)
    result = check_flash_attention()

    assert (False, "", False) == (result["installed"], result["version"], result["usable"])
    assert "torch has flash kernels of its own" in result["why"]


def test_check_flash_attention_on_a_cpu(monkeypatch):
    """Installed but not usable, with the reason."""
    install(monkeypatch, flash_attn="2.8.3")
    result = check_flash_attention("cpu")

    assert (True, "2.8.3", "flash-attn", False) == tuple(
        result[key] for key in ("installed", "version", "package", "usable")
    )
    assert "NVIDIA cards only" in result["why"]


@pytest.fixture
def cudnn_attention():
    """torch's switch for cuDNN's attention, on as torch has it; restored after the test."""
    import torch

    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield torch.backends.cuda.cudnn_sdp_enabled
    torch.backends.cuda.enable_cudnn_sdp(before)


def test_flash_is_preferred(cudnn_attention):
    """cuDNN's attention, which plans a kernel for each new shape, is off for good, or while a block runs."""
    with flash_preferred():
        assert not cudnn_attention()
    assert cudnn_attention()
    sentence = prefer_flash()

    assert not cudnn_attention()
    assert "cuDNN" in sentence


@pytest.mark.slow
@pytest.mark.parametrize(("device", "expected"), [("cuda:0", False), ("cpu", True)])
def test_an_encoder_on_a_card_is_served_without_cudnn(cudnn_attention, monkeypatch, device, expected):
    """Loading one turns it off before its first batch."""
    from backend.models import runtimes, torch_encoder
    from tests.tiny_models import placement, spec_of

    monkeypatch.setattr(torch_encoder, "TorchEncoder", lambda spec, **_: cudnn_attention())
    monkeypatch.setattr(runtimes, "check_fit", lambda *_: None)
    candidate = runtimes.Candidate("torch", "fp32")

    assert expected is runtimes.load_encoder(spec_of("minilm"), candidate, placement(device=device))


def test_training_runs_without_cudnn(cudnn_attention):
    """While a run on a card lasts; then as it was."""
    import torch

    from backend.training.records import TrainingConfig
    from backend.training.trainer.precision import torch_settings

    with torch_settings(TrainingConfig(), torch.device("cuda")):
        assert not cudnn_attention()

    assert cudnn_attention()
