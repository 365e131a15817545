"""Which torch build runs where, against torch's own tables."""

import sys
from types import SimpleNamespace

import pytest

from backend.device.facts import torch_wheels
from backend.device.facts.torch_builds import build_fault, install_line
from backend.device.facts.torch_wheels import kernels_run
from backend.device.records import Driver, Platform, TorchBuild

CAPABILITIES = [30, 35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121]
CU126 = tuple(f"sm_{code}" for code in (50, 60, 70, 75, 80, 86, 90))
CU130 = (*(f"sm_{code}" for code in (75, 80, 86, 90, 100, 120)), "compute_120")
INDEX = "--index-url https://download.pytorch.org/whl"
LINUX = Platform()


def pair(code: int) -> tuple[int, int]:
    """(8, 9) of 89."""
    return code // 10, code % 10


def test_our_table_is_torchs():
    """The copy that is used while torch is not imported says what the installed torch says."""
    from torch.cuda import PYTORCH_RELEASES_CODE_CC

    assert {cuda: dict(machines) for cuda, machines in torch_wheels.WHEELS.items()} == PYTORCH_RELEASES_CODE_CC


def test_our_rule_is_torchs():
    """Machine code runs on the same cards in our rule and in torch's, for every pair of the two."""
    from torch.cuda import DEVICE_REQUIREMENT, _code_compatible_with_device

    ours = {
        (code, card) for code in DEVICE_REQUIREMENT for card in CAPABILITIES if kernels_run(pair(card), [f"sm_{code}"])
    }
    theirs = {
        (code, card) for code in DEVICE_REQUIREMENT for card in CAPABILITIES if _code_compatible_with_device(card, code)
    }
    assert theirs == ours


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        pytest.param((8, 9), ["sm_86"], True, id="a-newer-minor"),
        pytest.param((8, 0), ["sm_86"], False, id="an-older-minor"),
        pytest.param((13, 0), ["sm_120"], False, id="machine-code-ends-with-its-major"),
        pytest.param((13, 0), ["sm_120", "compute_120"], True, id="intermediate-code-goes-on"),
        pytest.param((12, 0), ["compute_121"], False, id="but-not-back"),
        pytest.param((9, 0), ["sm_90a"], True, id="of-this-chip"),
        pytest.param((12, 0), ["sm_90a", "compute_90a"], False, id="of-another-chip-only"),
        pytest.param((10, 3), ["sm_100f"], True, id="of-this-family"),
        pytest.param((12, 0), ["gfx90a"], False, id="of-another-make"),
        pytest.param((12, 0), [], False, id="no-code-at-all"),
    ],
)
def test_kernels_run(capability, archs, runs):
    """What NVIDIA promises about machine code, intermediate code and code for one chip."""
    assert runs is kernels_run(capability, archs)


@pytest.mark.parametrize(
    ("capability", "driver", "torch", "says"),
    [
        pytest.param((8, 9), Driver("580.95", (13, 0)), TorchBuild("2.13.0+cu130", "13.0", archs=CU130), "", id="fine"),
        pytest.param(
            (7, 0), Driver("535.1", (12, 2)), TorchBuild("2.13.0+cu126", "12.6", archs=CU126), "", id="minor-compat"
        ),
        pytest.param(
            (8, 6), Driver("570", (12, 8)), TorchBuild("2.13.0+cpu"), "2.13.0+cpu is a build without CUDA", id="cpu"
        ),
        pytest.param((8, 6), Driver("570", (12, 8)), TorchBuild(), "not installed", id="no-torch"),
        pytest.param(
            (8, 0),
            Driver("470.256", (11, 4)),
            TorchBuild("2.13.0+cu130", "13.0", archs=CU130),
            "driver 470.256 runs CUDA 11.4 at most, torch 2.13.0+cu130 is built for 13.0; CUDA 13 needs driver 580",
            id="old-driver",
        ),
        pytest.param(
            (12, 0), Driver("570", (12, 8)), TorchBuild("2.13.0+cu126", "12.6", archs=CU126),
            "no kernels for sm_120 (Blackwell workstation); it carries sm_50, sm_60", id="new-card-old-build",
        ),
        pytest.param(
            (7, 0), Driver("580", (13, 0)), TorchBuild("2.13.0+cu130", "13.0"), "no kernels for sm_70 (Volta)",
            id="a-build-that-does-not-tell-is-looked-up",
        ),
        pytest.param(
            (13, 0), Driver("580", (13, 0)), TorchBuild("2.13.0+cu132", "13.2", archs=CU130),
            "only intermediate code of CUDA 13.2", id="a-driver-cannot-compile-what-is-newer-than-itself",
        ),
        pytest.param(
            (13, 0), Driver("600", (13, 2)), TorchBuild("2.13.0+cu132", "13.2", archs=CU130), "", id="but-this-one-can"
        ),
        pytest.param((9, 0), Driver(), TorchBuild("2.13.0+cu130", "13.0", archs=CU130), "", id="driver-unknown"),
        pytest.param(
            (9, 0), Driver("580", (13, 0)), TorchBuild("9.0", "19.0"), "runs CUDA 13.0 at most", id="build-unknown"
        ),
        pytest.param((11, 0), Driver("580", (13, 0)), TorchBuild("2.13.0", hip="7.0"), "", id="rocm"),
    ],
)  # fmt: skip
def test_build_fault(capability, driver, torch, says):
    """One sentence with what was found and what was needed; none where kernels run."""
    fault = build_fault(capability, driver, torch, LINUX)

    assert says in fault
    assert bool(says) == bool(fault)


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "machine", "version", "expected"),
    [
        pytest.param((7, 0), (13, 0), "x86_64", "2.13.0", f"pip install torch==2.13.0+cu126 {INDEX}/cu126", id="V100"),
        pytest.param(
            (12, 0), (12, 8), "x86_64", "2.13.0+cu126", f"pip install torch==2.13.0+cu129 {INDEX}/cu129", id="RTX-5090"
        ),
        pytest.param((9, 0), (13, 5), "AMD64", "2.13.0", f"pip install torch==2.13.0+cu132 {INDEX}/cu132", id="newest"),
        pytest.param(
            (12, 1), (13, 0), "aarch64", "2.13.0", f"pip install torch==2.13.0+cu130 {INDEX}/cu130", id="GB10"
        ),
        pytest.param(
            (7, 5), (0, 0), "x86_64", "2.13.0", f"pip install torch==2.13.0+cu126 {INDEX}/cu126", id="no-driver"
        ),
        pytest.param(
            (8, 0), (13, 0), "x86_64", "2.14.0.dev20260801+cu130",
            f"pip install torch==2.14.0.dev20260801+cu130 {INDEX}/nightly/cu130", id="nightly",
        ),
    ],
)  # fmt: skip
def test_install_line(capability, driver_cuda, machine, version, expected):
    """The newest build that card and driver both run, as a line to copy."""
    assert expected == install_line(capability, driver_cuda, machine, version)


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "machine", "says"),
    [
        pytest.param(
            (3, 5), (11, 4), "x86_64", "no published build of torch 2.13.0 for x86_64 has kernels for sm_35", id="K40"
        ),
        pytest.param((7, 0), (12, 8), "aarch64", "for aarch64 has kernels for sm_70", id="V100-on-arm"),
        pytest.param((8, 0), (11, 4), "x86_64", "first update it to 525 or newer (CUDA 12)", id="old-driver"),
        pytest.param(
            (11, 0), (12, 9), "aarch64", "first update it to 580 or newer (CUDA 13)", id="Thor-on-an-old-driver"
        ),
    ],
)
def test_no_line_to_copy(capability, driver_cuda, machine, says):
    """Where no build helps, it is said why, and whether a driver would."""
    line = install_line(capability, driver_cuda, machine, "2.13.0")

    assert says in line
    assert "pip install" not in line


def test_every_line_installs_something_that_runs():
    """What is advised has kernels for the card and starts on the driver, for every card and driver that gets a line."""
    for capability in map(pair, CAPABILITIES):
        for driver in [(11, 8), (12, 0), (12, 6), (12, 8), (13, 0), (13, 2)]:
            line = install_line(capability, driver, "x86_64", "2.13.0")
            if line.startswith("pip"):
                tag = line.rpartition("/cu")[2]
                cuda = f"{tag[:2]}.{tag[2:]}"
                archs = tuple(f"sm_{code}" for code in torch_wheels.WHEELS[cuda]["x86_64"])
                fault = build_fault(capability, Driver("1", driver), TorchBuild("2", cuda, archs=archs), LINUX)

                assert "" == fault


def test_torchs_own_table_wins(monkeypatch):
    """A torch that is imported anyway knows its own builds better than our copy of another release."""
    later = SimpleNamespace(PYTORCH_RELEASES_CODE_CC={"14.0": {"x86_64": {75, 130}}})
    monkeypatch.setitem(sys.modules, "torch.cuda", later)

    assert install_line((13, 0), (14, 0), "x86_64", "3.0").endswith("/cu140")


def test_without_torch(monkeypatch):
    """A service that never imports torch gets the same line from our copy."""
    monkeypatch.setitem(sys.modules, "torch.cuda", None)

    assert install_line((7, 0), (13, 0), "x86_64", "2.13.0").endswith("/cu126")
