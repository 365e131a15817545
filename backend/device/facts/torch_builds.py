"""PURE: which torch build runs on which card and driver, why one does not, and the line that installs one that does."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

from backend.device.facts.compute_capability import architecture
from backend.device.records import Driver, Platform, TorchBuild

_INDEX = "https://download.pytorch.org/whl"
# CUDA of a published build -> machine -> what it carries code for. torch 2.13, torch/cuda/__init__.py,
# PYTORCH_RELEASES_CODE_CC; read from torch itself where it is imported, and compared with it by a test.
BUILDS: Mapping[str, Mapping[str, frozenset[int]]] = {
    "12.6": {"x86_64": frozenset({50, 60, 70, 75, 80, 86, 90}), "aarch64": frozenset({80, 90})},
    "12.9": {"x86_64": frozenset({75, 80, 86, 90, 100, 120}), "aarch64": frozenset({80, 90, 100, 120})},
    "13.0": {"x86_64": frozenset({75, 80, 86, 90, 100, 120}), "aarch64": frozenset({80, 90, 100, 110, 120})},
    "13.2": {"x86_64": frozenset({75, 80, 86, 90, 100, 120}), "aarch64": frozenset({80, 90, 100, 110, 120})},
}
# The oldest driver of each CUDA major: CUDA toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version".
_OLDEST_DRIVER = {11: "450", 12: "525", 13: "580"}
# Integrated chips run only code made for them, and nobody else runs theirs: torch 2.13, DEVICE_REQUIREMENT.
_INTEGRATED = frozenset({(5, 3), (6, 2), (7, 2), (8, 7)})
_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def kernels_run(capability: tuple[int, int], archs: Iterable[str]) -> bool:
    """Whether code for one of ``archs`` ("sm_75", …, "compute_120") runs on the card.

    Machine code runs on its own major and the same minor or a newer one; intermediate code ("compute_…") on
    everything newer; code for one chip ("sm_90a") there only.

    Source: CUDA programming guide, "Binary Compatibility" and "PTX Compatibility"; torch 2.13, DEVICE_REQUIREMENT.
    """
    return any(_runs(capability, arch) for arch in archs)


def driver_runs(driver_cuda: tuple[int, int], cuda: str) -> bool:
    """Whether a driver whose newest CUDA is ``driver_cuda`` starts a build for ``cuda``; an unknown (0, 0) may.

    A driver runs every CUDA of its own major and of older ones: NVIDIA, "CUDA Compatibility", minor-version
    compatibility.
    """
    return driver_cuda == (0, 0) or _pair(cuda)[0] <= driver_cuda[0]


def build_fault(capability: tuple[int, int], driver: Driver, torch: TorchBuild, platform: Platform) -> str:
    """Why no kernel of this torch runs on the card, as one sentence; "" when kernels run.

    Intermediate code is another matter than ``driver_runs``: a driver compiles that of its own CUDA or older ones only.
    """
    if not torch.version:
        return "torch is not installed or cannot be imported"
    if torch.hip:
        return ""  # ROCm numbers its chips differently; what torch lists there, it runs
    if not torch.cuda:
        return f"torch {torch.version} is a build without CUDA"
    if not driver_runs(driver.cuda, torch.cuda):
        major = _pair(torch.cuda)[0]
        oldest = f"; CUDA {major} needs driver {_OLDEST_DRIVER[major]} or newer" if major in _OLDEST_DRIVER else ""
        built = f"torch {torch.version} is built for {torch.cuda}"
        return f"driver {driver.version} runs CUDA {_dotted(driver.cuda)} at most, {built}{oldest}"
    archs = torch.archs or _published(torch.cuda, platform.machine)
    if not archs or capability == (0, 0):  # nothing known against it; a first kernel will tell
        return ""
    return _arch_fault(capability, driver, torch, archs)


def install_line(capability: tuple[int, int], driver_cuda: tuple[int, int], machine: str, torch_version: str) -> str:
    """The pip command of the best published build for card and driver, or a sentence why there is none.

    Best is the newest that the driver knows; where it knows none, the oldest of its major, which it runs too
    (minor-version compatibility). An unknown driver gets the oldest build, which most drivers run.

    Args:
        driver_cuda: newest CUDA of the driver; (0, 0) when unknown.
        machine: "x86_64", "AMD64" or "aarch64".
        torch_version: of the release to reinstall, a local part such as "+cpu" is dropped.
    """
    sm = architecture(capability).sm
    runs = [cuda for cuda in _builds() if kernels_run(capability, _published(cuda, machine))]
    if not runs:
        return f"no published build of torch {_release(torch_version)} for {_key(machine)} has kernels for {sm}"
    fits = [cuda for cuda in runs if driver_runs(driver_cuda, cuda)]
    if not fits:
        major = min(_pair(cuda)[0] for cuda in runs)
        needed = f"to {_OLDEST_DRIVER[major]} or newer " if major in _OLDEST_DRIVER else ""
        return f"the driver runs CUDA {_dotted(driver_cuda)} at most: first update it {needed}(CUDA {major})"
    known = [cuda for cuda in fits if _pair(cuda) <= driver_cuda]
    best = max(known, key=_pair) if known else min(fits, key=_pair)
    index = f"{_INDEX}/nightly" if "dev" in torch_version else _INDEX
    build = f"cu{best.replace('.', '')}"
    # with the build in the version: pip takes an installed 2.13.0+cpu for 2.13.0 and would do nothing
    return f"pip install torch=={_release(torch_version)}+{build} --index-url {index}/{build}"


def _runs(capability: tuple[int, int], arch: str) -> bool:
    match = _ARCH.fullmatch(arch)
    if match is None:
        return False
    kind, code, only = match[1], (int(match[2]), int(match[3])), match[4]
    if only == "a":
        return capability == code
    if kind == "compute" and not only:
        return capability >= code
    if code == (10, 1):  # Thor before CUDA 13 and after it
        return capability in {(10, 1), (11, 0)}
    if capability != code and (code in _INTEGRATED or capability in _INTEGRATED or capability == (10, 1)):
        return False
    return capability[0] == code[0] and capability[1] >= code[1]


def _arch_fault(capability: tuple[int, int], driver: Driver, torch: TorchBuild, archs: tuple[str, ...]) -> str:
    if not kernels_run(capability, archs):
        carried = ", ".join(arch for arch in archs if arch.startswith("sm_"))
        found = architecture(capability)
        return f"torch {torch.version} has no kernels for {found.sm} ({found.name}); it carries {carried}"
    compiled = [arch for arch in archs if arch.startswith("sm_")]
    if not kernels_run(capability, compiled) and (0, 0) != driver.cuda < _pair(torch.cuda):
        return (
            f"torch {torch.version} carries only intermediate code of CUDA {torch.cuda} for this card, "
            f"which driver {driver.version} (CUDA {_dotted(driver.cuda)}) cannot compile"
        )
    return ""


def _builds() -> Mapping[str, Mapping[str, Iterable[int]]]:
    """torch's own table where torch is imported anyway: it is of the installed release."""
    theirs = getattr(sys.modules.get("torch.cuda"), "PYTORCH_RELEASES_CODE_CC", None)
    return theirs if isinstance(theirs, dict) and theirs else BUILDS


def _published(cuda: str, machine: str) -> tuple[str, ...]:
    return tuple(f"sm_{code}" for code in sorted(_builds().get(cuda, {}).get(_key(machine), ())))


def _key(machine: str) -> str:
    return "aarch64" if machine.lower() in ("aarch64", "arm64") else "x86_64"


def _release(torch_version: str) -> str:
    return torch_version.partition("+")[0]


def _pair(cuda: str) -> tuple[int, int]:
    major, _, minor = cuda.partition(".")
    return int(major), int(minor or 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
