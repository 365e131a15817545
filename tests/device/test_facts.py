"""What the machine has, read from folders that tell of other machines."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pynvml
import pytest

from backend.device import facts
from backend.device.facts import DeviceType, memory_limit_bytes, probe, usable_cores

CORES = 8


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch):
    """A machine of eight cores, all of them ours, unless the control group says otherwise."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(CORES)), raising=False)


def write(folder: Path, **files: str) -> Path:
    """A control group: ``__`` in a name is a slash, ``_of_`` nothing at all."""
    for name, content in files.items():
        file = folder / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8, id="no-control-group"),
        pytest.param({"cpu_dot_max": "max 100000\n"}, 8, id="v2-without-a-quota"),
        pytest.param({"cpu_dot_max": "200000 100000\n"}, 2, id="v2-two-cores"),
        pytest.param({"cpu_dot_max": "150000 100000\n"}, 2, id="v2-one-and-a-half-are-two-lanes"),
        pytest.param({"cpu_dot_max": "50000 100000\n"}, 1, id="v2-half-a-core-is-one"),
        pytest.param({"cpu_dot_max": "1000 100000\n"}, 1, id="v2-hardly-anything-is-still-one"),
        pytest.param({"cpu_dot_max": "6400000 100000\n"}, 8, id="v2-more-than-there-are"),
        pytest.param({"cpu_dot_max": "nonsense\n"}, 8, id="v2-unreadable"),
        pytest.param(
            {"cpu__cpu_dot_cfs_quota_us": "300000\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}, 3, id="v1-three-cores"
        ),
        pytest.param(
            {"cpu__cpu_dot_cfs_quota_us": "-1\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}, 8, id="v1-without-a-quota"
        ),
        pytest.param({"cpu__cpu_dot_cfs_quota_us": "300000\n"}, 8, id="v1-half-written"),
    ],
)
def test_usable_cores(tmp_path, files, expected):
    """The smaller of affinity and quota, never less than one."""
    assert expected == usable_cores(write(tmp_path, **files))


def test_affinity_counts(tmp_path, monkeypatch):
    """taskset and cpusets are honoured."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7})

    assert usable_cores(tmp_path) == 3


def test_a_system_without_affinity(tmp_path, monkeypatch):
    """macOS and Windows count their cores."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)

    assert usable_cores(tmp_path) == 5


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        pytest.param({}, math.inf, id="no-control-group"),
        pytest.param({"memory_dot_max": "max\n"}, math.inf, id="v2-without-a-limit"),
        pytest.param({"memory_dot_max": "104857600\n"}, 104857600, id="v2"),
        pytest.param({"memory__memory_dot_limit_in_bytes": "52428800\n"}, 52428800, id="v1"),
        pytest.param({"memory__memory_dot_limit_in_bytes": "9223372036854771712\n"}, math.inf, id="v1-without-a-limit"),
        pytest.param({"memory_dot_max": "max", "memory__memory_dot_limit_in_bytes": "7\n"}, 7, id="hybrid"),
    ],
)
def test_memory_limit(tmp_path, files, limit):
    """The smaller of the machine's memory and the control group's."""
    assert min(limit, psutil.virtual_memory().total) == memory_limit_bytes(write(tmp_path, **files))


def test_probe_reads_all_of_it(tmp_path):
    """One record of the machine; looked for no GPU, so it says why there is none."""
    found = probe(look_for_gpu=False, cgroup=write(tmp_path, cpu_dot_max="100000 100000", memory_dot_max="1000000"))

    assert (1, 1_000_000, (), DeviceType.CPU) == (found.cores, found.memory_bytes, found.gpus, found.gpu_type)
    assert "USE_GPU=false or DEVICE=cpu" in found.why_no_gpu
    assert found.cpu_name


@pytest.mark.parametrize(
    ("content", "name", "flags"),
    [
        pytest.param(
            "processor\t: 0\nmodel name\t: A Xeon\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_int8 sse\n",
            "A Xeon",
            ("avx2", "avx512f", "avx512_bf16", "amx_int8"),
            id="x86",
        ),
        pytest.param(
            "processor\t: 0\nFeatures\t: fp asimddp i8mm bf16\n", "arm-like", ("asimddp", "i8mm", "bf16"), id="arm"
        ),
        pytest.param("", "arm-like", (), id="no-cpuinfo"),
    ],
)
def test_processor(monkeypatch, content, name, flags):
    """Only the flags that matter for arithmetic, in one fixed order whatever the kernel's."""
    monkeypatch.setattr(facts, "_read", lambda file: content if str(file) == "/proc/cpuinfo" else "")
    monkeypatch.setattr(facts.platform, "processor", lambda: "")
    monkeypatch.setattr(facts.platform, "machine", lambda: "arm-like")

    found = probe(look_for_gpu=False)

    assert (name, flags) == (found.cpu_name, found.cpu_flags)


def test_no_driver_no_torch(monkeypatch):
    """Without an NVIDIA driver nothing of torch is imported, and the reason is said."""

    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise

    found = probe()

    assert ((), DeviceType.CPU) == (found.gpus, found.gpu_type)
    assert found.why_no_gpu == "no NVIDIA driver answers and this is not Apple silicon"


def test_a_cpu_service_never_imports_torch():
    """Two seconds and 300 MiB that a CPU does not need."""
    script = (
        "import sys; from backend.device.facts import probe; probe(look_for_gpu=False); print('torch' in sys.modules)"
    )

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout.strip() == "False"
