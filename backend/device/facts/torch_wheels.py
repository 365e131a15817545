"""PURE: the published CUDA builds of torch, and which of them runs on which cards and driver.

deploy/deploy_gpu.py decides with this module before anything is installed: standard library only, Python 3.9, and no
import of the rest of the service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

INDEX = "https://download.pytorch.org/whl"  # the index of a build is INDEX/cu129 and the like

# CUDA of a published build -> machine -> what it carries code for; oldest first. torch 2.13, torch/cuda/__init__.py,
# PYTORCH_RELEASES_CODE_CC; a test compares it with the installed torch.
WHEELS: Mapping[str, Mapping[str, frozenset[int]]] = {
    "12.6": {"x86_64": frozenset({50, 60, 70, 75, 80, 86, 90}), "aarch64": frozenset({80, 90})},
    "12.9": {"x86_64": frozenset({75, 80, 86, 90, 100, 120}), "aarch64": frozenset({80, 90, 100, 120})},
    "13.0": {"x86_64": frozenset({75, 80, 86, 90, 100, 120}), "aarch64": frozenset({80, 90, 100, 110, 120})},
    "13.2": {"x86_64": frozenset({75, 80, 86, 90, 100, 120}), "aarch64": frozenset({80, 90, 100, 110, 120})},
}
# The oldest driver branch of each CUDA major: CUDA toolkit release notes, "CUDA Toolkit and Minimum Required Driver
# Version".
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
# The first driver branch that knows a CUDA version, for those that WHEELS were built with: same release notes.
_CUDA_OF_DRIVER = ((595, (13, 2)), (580, (13, 0)), (575, (12, 9)), (560, (12, 6)), (525, (12, 0)), (450, (11, 0)))
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
    return driver_cuda == (0, 0) or cuda_version(cuda)[0] <= driver_cuda[0]


def cuda_of_driver(branch: int) -> tuple[int, int]:
    """The newest CUDA version of WHEELS that a driver branch (580) knows; (0, 1) for one before CUDA 11."""
    return next((cuda for oldest, cuda in _CUDA_OF_DRIVER if branch >= oldest), (0, 1))


def best_wheel(
    capabilities: Sequence[tuple[int, int]],
    driver_cuda: tuple[int, int],
    machine: str,
    wheels: Mapping[str, Mapping[str, Iterable[int]]] = WHEELS,
) -> str:
    """The CUDA version of the build that runs on most of the cards; "" where none runs on any.

    Among equals the newest whose CUDA the driver knows; where it knows none, the oldest of its major, which it runs
    too (minor-version compatibility).

    Args:
        capabilities: one a card.
        driver_cuda: newest CUDA of the driver; (0, 0) when unknown: the oldest build, which most drivers run.
        machine: "x86_64", "AMD64", "aarch64" or "arm64"; another one has no builds.
    """
    best, most = "", 0
    for cuda in preference(driver_cuda, wheels):
        archs = published_archs(cuda, machine, wheels)
        count = sum(kernels_run(capability, archs) for capability in capabilities)
        if count > most:
            best, most = cuda, count
    return best


def preference(
    driver_cuda: tuple[int, int], wheels: Mapping[str, Mapping[str, Iterable[int]]] = WHEELS
) -> tuple[str, ...]:
    """The builds that the driver starts, best first: those whose CUDA it knows from the newest on, then the others."""
    started = sorted((cuda for cuda in wheels if driver_runs(driver_cuda, cuda)), key=cuda_version)
    known = [cuda for cuda in started if cuda_version(cuda) <= driver_cuda]
    return (*reversed(known), *(cuda for cuda in started if cuda not in known))


def published_archs(
    cuda: str, machine: str, wheels: Mapping[str, Mapping[str, Iterable[int]]] = WHEELS
) -> tuple[str, ...]:
    """What the build carries machine code for: ("sm_75", …); empty where there is no such build."""
    return tuple(f"sm_{code}" for code in sorted(wheels.get(cuda, {}).get(machine_name(machine), ())))


def machine_name(machine: str) -> str:
    """The machine as WHEELS names it."""
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(machine.lower(), machine.lower())


def wheel_name(cuda: str) -> str:
    """``cu129`` of "12.9"."""
    return f"cu{cuda.replace('.', '')}"


def cuda_version(cuda: str) -> tuple[int, int]:
    """(12, 9) of "12.9"."""
    major, _, minor = cuda.partition(".")
    return int(major), int(minor or 0)


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
