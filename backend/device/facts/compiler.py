"""Whether torch.compile can build what it writes: looks for a compiler and Python's headers, and runs neither."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from backend.device.records import DeviceType

Which = Callable[[str], str | None]  # name of a program -> its path, as shutil.which


def compiler_fault(
    kind: DeviceType = DeviceType.CUDA,
    *,
    environ: Mapping[str, str] | None = None,
    which: Which = shutil.which,
    include: Path | None = None,
) -> str:
    """Why torch.compile cannot work on such a device, as one sentence; "" when nothing is missing.

    On a card Triton builds the launcher of its kernels in C, with ``CC``, gcc or clang and Python.h
    (triton/runtime/build.py); on a CPU Inductor builds C++, with ``CXX`` or g++ (torch/_inductor/cpp_builder.py).

    Args:
        environ, which, include: this process's, unless a test gives others.
    """
    environ = os.environ if environ is None else environ
    variable, names = ("CXX", ("g++", "clang++")) if kind is DeviceType.CPU else ("CC", ("gcc", "clang"))
    wanted = environ.get(variable, "")
    if not any(which(name) for name in ([wanted] if wanted else names)):
        found = f"{variable}={wanted} is not a program" if wanted else f"neither {' nor '.join(names)} is installed"
        return f"torch.compile builds its kernels with a compiler, and {found} (apt-get install {names[0]} libc6-dev)"
    headers = include or Path(sysconfig.get_paths()["include"])
    if kind is not DeviceType.CPU and not (headers / "Python.h").is_file():
        return f"torch.compile builds against Python's headers, and {headers.name} lacks Python.h (python3-dev)"
    return ""
