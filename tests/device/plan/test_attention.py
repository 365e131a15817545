"""Which kernel runs, told by torch where there is a device and by its rules where there is none."""

from __future__ import annotations

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
    installed_version,
    try_flash,
)
from backend.device.plan.precision import torch_dtype
from backend.device.records import DeviceType

CUDA = DeviceType.CUDA


def versions(**found):
    """Distributions installed in a world of our own; underscores stand for hyphens."""
    return lambda name: found.get(name.replace("-", "_"), "")


def fields(uses):
    """The rows as plain tuples, by dtype."""
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
            CUDA,
            (12, 0),
            "Linux",
            {"bf16": ("flash", "efficient"), "fp16": ("flash", "efficient"), "fp32": ("efficient", "efficient")},
            id="blackwell",
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
            DeviceType.CPU,
            (0, 0),
            "Linux",
            {"bf16": ("flash", "flash"), "fp16": ("flash", "flash"), "fp32": ("flash", "flash")},
            id="cpu",
        ),
        pytest.param(
            DeviceType.MPS,
            (0, 0),
            "Darwin",
            {"bf16": ("metal", "metal"), "fp16": ("metal", "metal"), "fp32": ("metal", "metal")},
            id="apple",
        ),
    ],
)
def test_expected_kernels(kind, capability, system, expected):
    """torch's rules: flash wants Ampere, half precision and no mask."""
    assert expected == fields(expected_kernels(kind, capability, system))


def test_report_of_this_device(device):
    """torch's own dispatcher answers, and a card agrees with the rules that we tell where there is none."""
    import torch

    report = attention_report(device)
    kind = DeviceType(device.partition(":")[0])
    capability = torch.cuda.get_device_capability(device) if kind is CUDA else (0, 0)

    assert report.asked
    assert device == report.device
    assert fields(expected_kernels(kind, capability)) == fields(report.kernels)
    assert json.loads(json.dumps(asdict(report))), "check_gpu --json writes it as it is"


def test_what_is_told_really_runs(device):
    """The kernel that the dispatcher names computes the shapes we asked about, alone and with a mask."""
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
                found = torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=hidden)
            assert torch.isfinite(found).all()


def test_a_torch_without_its_private_dispatcher(monkeypatch):
    """Another release may have moved it: then the rules stand in, and the report says so."""
    monkeypatch.setattr(attention, "_DISPATCHER", "_no_such_name")

    report = attention_report("cpu")

    assert not report.asked
    assert expected_kernels(DeviceType.CPU, (0, 0)) == report.kernels


@pytest.mark.parametrize(("masked", "expected"), [(2, "efficient"), (3, "cudnn"), (0, "math"), (4, "other")])
def test_a_mask_is_asked_about(monkeypatch, masked, expected):
    """Padding goes to the dispatcher as a mask that hides some tokens; its answer is given in words."""
    import torch

    def dispatcher(query, key, value, mask, *others):
        assert (0.0, False) == others, "no dropout, not causal: an encoder"
        return 1 if mask is None or bool(mask.all()) else masked

    monkeypatch.setattr(torch, "_our_dispatcher", dispatcher, raising=False)
    monkeypatch.setattr(attention, "_DISPATCHER", "_our_dispatcher")

    assert {("flash", expected)} == set(fields(attention_report("cpu").kernels).values())


def test_a_switched_off_kernel_is_told():
    """The report follows the process: who forbids flash sees math."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.MATH]):
        kernels = fields(attention_report("cpu").kernels)

    assert {("math", "math")} == set(kernels.values())


@pytest.mark.parametrize("name", sorted(simulated.MACHINES))
def test_expected_report_of_simulated_machines(name):
    """A machine that is not here has a report, too, and every dtype worth trying has its row."""
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
        pytest.param((12, 0), ["a mask rules flash out", "float32 never runs flash"], id="blackwell"),
    ],
)
def test_advice(capability, words):
    """What to know for speed, in sentences; never to build something."""
    said = advise(CUDA, capability, expected_kernels(CUDA, capability), ())

    assert len(words) == len(said)
    assert all(word in sentence for word, sentence in zip(words, said, strict=True))
    assert not any("build" in sentence or "source" in sentence for sentence in said)


def test_advice_where_masks_cost_nothing():
    """cuDNN's kernel takes a mask: nothing is said against padding then. A CPU needs no advice."""
    fast = (KernelUse("bf16", "cudnn", "cudnn"),)

    assert not any("mask" in sentence for sentence in advise(CUDA, (9, 0), fast, ()))
    assert () == advise(DeviceType.CPU, (0, 0), expected_kernels(DeviceType.CPU, (0, 0)), ())


def test_advice_on_a_broken_package():
    """An installed package that does not work is said with its reason; an absent one is not."""
    broken = Package("flash-attn", "2.8.3", False, "ImportError: undefined symbol")
    absent = Package("flash-attn-4", "", False, "")

    (said,) = [one for one in advise(CUDA, (7, 5), (), (broken, absent)) if "flash-attn" in one]

    assert "flash-attn 2.8.3 is installed but does not work: ImportError: undefined symbol" == said


def test_packages_are_known_by_their_distribution():
    """flash-attn and flash-attn-4 share an import name; each is told apart, with its version."""
    found = {one.name: one for one in attention_report("cpu", version_of=versions(flash_attn_4="4.0.0")).packages}

    assert ["flash-attn", "flash-attn-3", "flash-attn-4", "kernels"] == list(found)
    assert ("4.0.0", False) == (found["flash-attn-4"].version, found["flash-attn-4"].usable)
    assert "NVIDIA cards only, not on cpu" in found["flash-attn-4"].why
    assert Package("flash-attn", "", False, "") == found["flash-attn"]


def test_the_kernels_package():
    """It fetches prebuilt kernels: the one that we would advise."""
    found = attention_report("cpu", version_of=versions(kernels="0.11")).packages[-1]

    assert ("kernels", "0.11", True) == (found.name, found.version, found.usable)


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
    """A package counts when its kernel ran once on this card, whatever its import says."""
    flash = next(one for one in attention._FLASH if one.name == name)
    found = attention._examine(flash, "1.0", "cuda:0", capability, lambda module, device: fault)

    assert usable is found.usable
    assert words in found.why


def flash_module(monkeypatch, function):
    """A foreign package in the place of flash-attn."""
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
    """One real call decides, and what goes wrong is one line."""
    assert expected == try_flash(flash_module(monkeypatch, function), device)


def test_try_flash_that_cannot_be_imported(device):
    """A wheel of another torch fails at its import; so does none at all."""
    assert try_flash("no_such_flash_attn", device).startswith("ModuleNotFoundError")


def test_check_flash_attention_without_any(monkeypatch):
    """Nothing installed, nothing needed: and no torch imported to say so."""
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    found = check_flash_attention(version_of=versions())

    assert (False, "", False) == (found["installed"], found["version"], found["usable"])
    assert "torch has flash kernels of its own" in found["why"]


def test_check_flash_attention_on_a_cpu():
    """Installed and of no use here, with the reason."""
    found = check_flash_attention("cpu", version_of=versions(flash_attn="2.8.3"))

    assert (True, "2.8.3", "flash-attn", False) == tuple(
        found[key] for key in ("installed", "version", "package", "usable")
    )
    assert "NVIDIA cards only" in found["why"]


def test_installed_version():
    """Read from the metadata of the distribution."""
    assert installed_version("pytest") == pytest.__version__
    assert "" == installed_version("no-such-distribution")
