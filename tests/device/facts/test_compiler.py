"""Whether torch.compile can build here, on machines made of names of programs and a folder of headers."""

import pytest

from backend.device.facts.host import compiler_fault
from backend.device.records import DeviceType

CPU, CUDA = DeviceType.CPU, DeviceType.CUDA


@pytest.mark.parametrize(
    ("kind", "programs", "environ", "expected"),
    [
        pytest.param(CUDA, {"gcc"}, {}, "", id="gcc"),
        pytest.param(CUDA, {"clang"}, {}, "", id="clang"),
        pytest.param(CUDA, {"mycc"}, {"CC": "mycc"}, "", id="named-by-the-environment"),
        pytest.param(CUDA, set(), {}, "neither gcc nor clang is installed", id="an-image-without"),
        pytest.param(CUDA, {"gcc"}, {"CC": "gone"}, "CC=gone is not a program", id="another-is-asked-for"),
        pytest.param(CUDA, {"cc"}, {}, "neither gcc nor clang", id="triton-does-not-look-for-cc"),
        pytest.param(CPU, {"gcc"}, {}, "neither g++ nor clang++ is installed", id="a-cpu-needs-cpp"),
        pytest.param(CPU, {"g++"}, {}, "", id="g++"),
    ],
)
def test_compiler(tmp_path, kind, programs, environ, expected):
    """Nothing where it can; otherwise what is missing, and what to install."""
    (tmp_path / "Python.h").touch()
    fault = compiler_fault(
        kind, environ=environ, which=lambda name: name if name in programs else None, include=tmp_path
    )

    assert expected in fault
    assert bool(expected) == ("apt-get install" in fault)


def test_without_pythons_headers(tmp_path):
    """Triton builds an extension of Python; Inductor's library on a CPU needs none."""
    options = {"environ": {}, "which": lambda name: name, "include": tmp_path}

    assert "Python.h" in compiler_fault(CUDA, **options)
    assert "" == compiler_fault(CPU, **options)
