"""Reading the host, from folders that imitate other machines."""

import math
import os
from pathlib import Path

import psutil
import pytest

from backend.device.facts import host
from backend.device.facts.amx import LIMIT_VARIABLE
from backend.device.facts.host import (
    container_share_bytes,
    cpu,
    free_memory_bytes,
    memory_limit_bytes,
    platform,
    read_host,
    usable_cores,
)

CORES = 8
GIB = 1 << 30


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch):
    """An affinity of eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(CORES)), raising=False)


def write(folder: Path, **files: str) -> Path:
    """Write files below a folder: ``__`` in a name is a slash, ``_dot_`` a dot."""
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


@pytest.mark.parametrize(
    ("groups", "files", "cores", "memory"),
    [
        pytest.param(
            "0::/system.slice/financia.service\n",
            {
                "system_dot_slice__financia_dot_service__cpu_dot_max": "300000 100000",
                "system_dot_slice__financia_dot_service__memory_dot_max": "3000",
            },
            3,
            3000,
            id="a-service-of-systemd",
        ),
        pytest.param(
            "0::/user/inner\n",
            {
                "user__cpu_dot_max": "200000 100000",
                "user__memory_dot_max": "2000",
                "user__inner__cpu_dot_max": "max 100000",
                "user__inner__memory_dot_max": "9000",
            },
            2,
            2000,
            id="the-parent-is-tighter",
        ),
        pytest.param(
            "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
            {
                "memory__docker__abc__memory_dot_limit_in_bytes": "4000",
                "cpu__docker__abc__cpu_dot_cfs_quota_us": "100000",
                "cpu__docker__abc__cpu_dot_cfs_period_us": "100000",
            },
            1,
            4000,
            id="v1-seen-from-the-host",
        ),
        pytest.param(
            "0::/../../elsewhere\n", {"cpu_dot_max": "400000 100000"}, 4, math.inf, id="outside-our-namespace"
        ),
    ],
)
def test_a_group_below_the_mount(tmp_path, groups, files, cores, memory):
    """The limits of this process's group and of its parents apply."""
    file = tmp_path / "self-cgroup"
    file.write_text(groups)
    write(tmp_path / "fs", **files)

    assert cores == usable_cores(tmp_path / "fs", file)
    assert min(memory, psutil.virtual_memory().total) == memory_limit_bytes(tmp_path / "fs", file)


def test_a_system_without_affinity(tmp_path, monkeypatch):
    """macOS and Windows: all cores."""
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
    """The smaller of the machine's memory and the control group's, which alone leaves the service a share."""
    assert min(limit, psutil.virtual_memory().total) == memory_limit_bytes(write(tmp_path, **files))
    assert (None if limit == math.inf else limit * 4 // 5) == container_share_bytes(tmp_path)


@pytest.mark.parametrize(
    ("files", "free"),
    [
        pytest.param({}, 10 * GIB, id="the-machine's"),
        pytest.param({"memory_dot_max": "max", "memory_dot_current": "5"}, 10 * GIB, id="v2-without-a-limit"),
        pytest.param({"memory_dot_max": "4000", "memory_dot_current": "1500"}, 2500, id="v2-what-is-left"),
        pytest.param(
            {
                "memory_dot_max": "4000",
                "memory_dot_current": "1500",
                "memory_dot_stat": "anon 500\ninactive_file 900\nactive_file 100\n",
            },
            3400,
            id="v2-cache-that-can-go-is-free",
        ),
        pytest.param(
            {
                "memory__memory_dot_limit_in_bytes": "4000",
                "memory__memory_dot_usage_in_bytes": "3900",
                "memory__memory_dot_stat": "inactive_file 1\ntotal_inactive_file 300\n",
            },
            400,
            id="v1-children-counted",
        ),
        pytest.param({"memory_dot_max": "4000", "memory_dot_current": "4100"}, 0, id="over-the-limit"),
        pytest.param(
            {"memory_dot_max": str(99 * GIB), "memory_dot_current": "0"}, 10 * GIB, id="the-machine-is-fuller"
        ),
    ],
)
def test_free_memory(tmp_path, monkeypatch, files, free):
    """The least of the machine's and the control group's free memory."""
    machine = psutil.virtual_memory()._replace(available=10 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine)

    assert free == free_memory_bytes(write(tmp_path, **files))


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
def test_processor(tmp_path, monkeypatch, content, name, flags):
    """Only the flags that matter for arithmetic, in a fixed order."""
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr(host.standard, "processor", lambda: "")
    monkeypatch.setattr(host.standard, "machine", lambda: "arm-like")

    assert (name, flags) == cpu(write(tmp_path, proc__cpuinfo=content))


@pytest.mark.parametrize(
    ("files", "wsl", "container"),
    [
        pytest.param({"proc__version": "Linux version 6.8.0-45-generic"}, False, "", id="bare-linux"),
        pytest.param({"proc__version": "Linux version 5.15.153.1-microsoft-standard-WSL2"}, True, "", id="wsl2-kernel"),
        pytest.param({"proc__sys__fs__binfmt_misc__WSLInterop": "enabled"}, True, "", id="wsl2-own-kernel"),
        pytest.param(
            {"proc__version": "5.15-Microsoft-standard-WSL2", "_dot_dockerenv": ""}, True, "docker", id="docker-on-wsl2"
        ),
        pytest.param({"run___dot_containerenv": 'engine="podman-5"'}, False, "podman", id="podman"),
        pytest.param(
            {"_dot_dockerenv": "", "var__run__secrets__kubernetes.io__serviceaccount__token": "x"},
            False,
            "kubernetes",
            id="kubernetes-wins",
        ),
        pytest.param({"proc__1__cgroup": "0::/kubepods/besteffort/pod1"}, False, "kubernetes", id="by-its-group"),
        pytest.param({"proc__self__cgroup": "4:memory:/docker/3f\n"}, False, "docker", id="docker-v1"),
        pytest.param({"run__systemd__container": "lxc"}, False, "lxc", id="systemd-tells"),
        pytest.param({"run__systemd__container": "wsl"}, False, "", id="wsl-is-no-container"),
    ],
)
def test_platform(tmp_path, files, wsl, container):
    """WSL2 and containers are recognised by their files."""
    result = platform(write(tmp_path, **files))

    assert (wsl, container) == (result.wsl, result.container)


def test_shared_memory(tmp_path):
    assert platform(tmp_path).shm_bytes is None
    (tmp_path / "dev/shm").mkdir(parents=True)

    assert platform(tmp_path).shm_bytes > 0


def test_device_files_of_gpus(tmp_path):
    """Device files of GPUs that NVML may not know; WSL2's does not count, since it exists for every vendor."""
    write(tmp_path, dev__nvidiactl="", dev__dxg="")

    assert ("/dev/nvidiactl",) == read_host(tmp_path / "sys/fs/cgroup", tmp_path).gpu_nodes
