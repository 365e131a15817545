"""The circumstances of a benchmark: machine, versions, commit, command."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from backend.device.facts.amx import LIMIT_VARIABLE

ROOT = Path(__file__).resolve().parents[1]

# Instruction sets that decide how fast an encoder runs on a CPU.
_FLAGS = frozenset(
    {"avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16"}
    | {"amx_tile", "amx_bf16", "amx_int8", "asimddp", "i8mm", "bf16", "sve"}
)
_PACKAGES = (
    "torch", "transformers", "sentence-transformers", "onnxruntime", "tokenizers", "numpy", "fastapi", "uvicorn",
    "uvloop", "httptools", "orjson",
)  # fmt: skip


def facts(argv: list[str] | None = None) -> dict[str, object]:
    """Everything needed to interpret or repeat a result."""
    return {
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "command": " ".join(["python", "-m", *(argv or _command())]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average_1min": round(os.getloadavg()[0], 2),  # at the start; above 0.5: the machine was shared
    }


def machine() -> dict[str, object]:
    """CPU model and relevant flags, cores, memory, system and GPU."""
    cpuinfo = _cpuinfo()
    flags = set((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split())
    return {
        "cpu": cpuinfo.get("model name") or platform.processor() or platform.machine(),
        "cpu_family_model": f"{cpuinfo.get('cpu family', '?')}/{cpuinfo.get('model', '?')}",
        "cpu_flags": sorted(flags & _FLAGS),
        "cpu_limit": os.environ.get(LIMIT_VARIABLE, ""),  # a smaller processor is simulated
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "gpu": _gpu(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and the relevant packages in the environment of the benchmark."""
    installed = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            installed[package] = "absent"
    return installed


def program_of(venv: Path, name: str, *steps: Sequence[str]) -> Path:
    """A peer's program in an environment of its own, whose requirements are not ours; installed once, in minutes.

    Args:
        steps: requirements, installed one group after the other.

    Raises: subprocess.CalledProcessError.
    """
    program = venv / "bin" / name
    if not program.exists():
        print(f"creating {venv} for {', '.join(steps[-1])}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        for requirements in steps:
            subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", *requirements], check=True)
    return program


def commit(checkout: Path = ROOT) -> str:
    """The commit measured, with ``+changes`` when the tree differs from it."""
    git = ("git", "-C", str(checkout))
    head = _output(*git, "rev-parse", "--short=12", "HEAD") or "none"
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if changed else head


def _command() -> list[str]:
    """What was called, without the file for the result: that is a path of this machine."""
    words = [word for word in sys.argv[1:] if not word.startswith("--out=")]
    if "--out" in words:
        place = words.index("--out")
        del words[place : place + 2]
    return [f"benchmarks.{Path(sys.argv[0]).stem}", *words]


def _cpuinfo() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text(encoding="utf-8").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _gpu() -> str:
    return _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def _output(*argv: str) -> str:
    if shutil.which(argv[0]) is None:  # a lent machine, or an image, without git
        return ""
    completed = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    return completed.stdout.strip() if completed.returncode == 0 else ""
