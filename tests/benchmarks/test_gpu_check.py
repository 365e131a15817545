"""The check of a card, rehearsed without one: its commands run on a CPU with what a lent machine has, and no more."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import machine, training
from benchmarks.gpu_check import targets
from benchmarks.gpu_check.context import Effort
from benchmarks.gpu_check.part_process import DONE, NOT_POSSIBLE, run_part
from benchmarks.gpu_check.parts import GROUPS, PARTS, chosen_parts
from benchmarks.machine import ROOT

CHECK = ROOT / "benchmarks" / "gpu_check"
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
MOST_BYTES = 52 * 2**20  # that may travel to such a machine at once
WHEELS_BYTES = 15_000_000  # of one folder that carry.sh makes
FULL_ONLY = ("speech",)  # whose packages no such machine has


def test_a_group_takes_nine_minutes():
    """Machines with a card are lent for ten minutes a command."""
    limits = {group: sum(part.limit_s for part in PARTS if part.group == group) for group in GROUPS}
    commands = dict(re.findall(r"--parts (\w+) --limit-s (\d+) ", PAGE))

    assert set(GROUPS) == set(commands)
    assert max(limits.values()) <= int(commands["compute"]) <= 540
    assert 1 == len(set(commands.values()))


def test_a_machine_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "none" == machine.commit()
    assert "" == machine.machine()["gpu"]


def test_training_has_the_options_that_are_named():
    """A target reads two of its rows."""
    assert {targets.NONE, targets.TOGETHER, *training.COMPILED} <= training.OPTIONS.keys()


@pytest.fixture(scope="session")
def bare_checkout(tmp_path_factory) -> Path:
    """The files that travel: those of the repository without what docs/gpu.md leaves out."""
    folder = tmp_path_factory.mktemp("checkout")
    left_out = re.findall(r"'!\*?([^']+)'", PAGE)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in (name for name in listed.split("\0") if name and not name.endswith(tuple(left_out))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def bare_packages(tmp_path_factory) -> Path:
    """Links to the packages that such a machine has, and to those that are taken along."""
    folder = tmp_path_factory.mktemp("packages")
    listed = re.search(r"packages=\((.*?)\)", (CHECK / "carry.sh").read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    there = {*(CHECK / "bare_packages.txt").read_text(encoding="utf-8").split(), *listed[1].split(), "seqeval"}
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in there}
    for distribution in importlib.metadata.distributions():
        if re.sub(r"[-_.]+", "-", distribution.name).lower() in names:
            for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(distribution.locate_file(top))
    return folder


@pytest.mark.slow
def test_what_travels_is_small(bare_checkout):
    files_bytes = sum(file.stat().st_size for file in bare_checkout.rglob("*") if file.is_file())

    assert files_bytes + WHEELS_BYTES <= MOST_BYTES


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", GROUPS)
def test_every_command_runs_small_on_a_cpu(group, tmp_path, bare_checkout, bare_packages):
    """Each part has something to tell or names what it lacks, with no hub, no git and no packages but those."""
    environment = {
        "HF_HUB_OFFLINE": "1",
        "HOME": str(tmp_path),
        "PATH": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(bare_packages), str(bare_checkout)]),
        "STATE_DIR": str(tmp_path / "state"),
    }
    command = [sys._base_executable, "-m", "benchmarks.gpu_check", "--parts", group, f"--results={tmp_path}"]
    ended = subprocess.run(
        [*command, "--allow-cpu"], cwd=bare_checkout, env=environment, check=False, capture_output=True, text=True
    )

    assert 0 == ended.returncode, ended.stdout + ended.stderr
    content = json.loads((tmp_path / "cpu.json").read_text(encoding="utf-8"))
    assert "none" == content["commit"]
    for part in chosen_parts([group]):
        record = content["parts"][part.name]
        told = (
            record["result"] if record["status"] == DONE else re.search("not installed|on a card alone", record["why"])
        )
        assert told, (part.name, record)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FULL_ONLY)
def test_what_only_a_whole_installation_has(name, tmp_path):
    [part] = chosen_parts([name])
    ended = run_part(part, device="cpu", effort=Effort.SMALL, limit_s=840.0, log=tmp_path / "part.log")

    assert ended.status in (DONE, NOT_POSSIBLE), ended.why
    assert ended.result if ended.status == DONE else "not installed" in ended.why
