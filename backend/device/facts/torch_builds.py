"""PURE: why the installed torch does not run on a card, and the pip line that installs a build that does."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from backend.device.facts.compute_capability import architecture
from backend.device.facts.torch_wheels import (
    INDEX,
    OLDEST_DRIVER,
    WHEELS,
    best_wheel,
    cuda_version,
    driver_runs,
    kernels_run,
    machine_name,
    published_archs,
    wheel_name,
)
from backend.device.records import Driver, Platform, TorchBuild


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
        major = cuda_version(torch.cuda)[0]
        oldest = f"; CUDA {major} needs driver {OLDEST_DRIVER[major]} or newer" if major in OLDEST_DRIVER else ""
        built = f"torch {torch.version} is built for {torch.cuda}"
        return f"driver {driver.version} runs CUDA {_dotted(driver.cuda)} at most, {built}{oldest}"
    archs = torch.archs or published_archs(torch.cuda, platform.machine, _wheels())
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
    wheels = _wheels()
    if best := best_wheel([capability], driver_cuda, machine, wheels):
        index = f"{INDEX}/nightly" if "dev" in torch_version else INDEX
        # with the build in the version: pip takes an installed 2.13.0+cpu for 2.13.0 and would do nothing
        build = wheel_name(best)
        return f"pip install torch=={_release(torch_version)}+{build} --index-url {index}/{build}"
    runs = [cuda for cuda in wheels if kernels_run(capability, published_archs(cuda, machine, wheels))]
    if not runs:
        sm, name = architecture(capability).sm, machine_name(machine)
        return f"no published build of torch {_release(torch_version)} for {name} has kernels for {sm}"
    major = min(cuda_version(cuda)[0] for cuda in runs)
    needed = f"to {OLDEST_DRIVER[major]} or newer " if major in OLDEST_DRIVER else ""
    return f"the driver runs CUDA {_dotted(driver_cuda)} at most: first update it {needed}(CUDA {major})"


def _arch_fault(capability: tuple[int, int], driver: Driver, torch: TorchBuild, archs: tuple[str, ...]) -> str:
    if not kernels_run(capability, archs):
        carried = ", ".join(arch for arch in archs if arch.startswith("sm_"))
        found = architecture(capability)
        return f"torch {torch.version} has no kernels for {found.sm} ({found.name}); it carries {carried}"
    compiled = [arch for arch in archs if arch.startswith("sm_")]
    if not kernels_run(capability, compiled) and (0, 0) != driver.cuda < cuda_version(torch.cuda):
        return (
            f"torch {torch.version} carries only intermediate code of CUDA {torch.cuda} for this card, "
            f"which driver {driver.version} (CUDA {_dotted(driver.cuda)}) cannot compile"
        )
    return ""


def _wheels() -> Mapping[str, Mapping[str, Iterable[int]]]:
    """torch's own table where torch is imported anyway: it is of the installed release."""
    of_torch = getattr(sys.modules.get("torch.cuda"), "PYTORCH_RELEASES_CODE_CC", None)
    return of_torch if isinstance(of_torch, dict) and of_torch else WHEELS


def _release(torch_version: str) -> str:
    return torch_version.partition("+")[0]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
