"""deploy-gpu.sh and deploy-gpu.ps1 start deploy_gpu.py, wherever they are called from and whatever Python is there."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.deploy.machine import deploy_gpu

ROOT = Path(__file__).resolve().parents[2]
POWERSHELL = (ROOT / "deploy-gpu.ps1").read_text(encoding="utf-8")
PWSH = shutil.which("pwsh")


def run(
    folder: Path, *arguments: str, programs: tuple[str, ...], uname: str = "Linux"
) -> subprocess.CompletedProcess[str]:
    """deploy-gpu.sh from another folder, with these programs and no others in its PATH."""
    commands = folder / "bin"
    commands.mkdir()
    for name in ("bash", "dirname", *programs):
        target = sys.executable if name.startswith("python") else shutil.which(name)
        (commands / name).write_text(f'#!/bin/sh\nexec {target} "$@"\n')
        (commands / name).chmod(0o755)
    (commands / "uname").write_text(f"#!/bin/sh\necho {uname}\n")
    (commands / "uname").chmod(0o755)
    return subprocess.run(
        [shutil.which("bash") or "bash", ROOT / "deploy-gpu.sh", *arguments],
        check=False,
        cwd=folder,
        env={"PATH": os.fspath(commands), "HOME": os.fspath(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("python", ["python3", "python"])
def test_bash_starts_python(tmp_path: Path, python: str):
    """By either name, with its options, and its exit code comes back."""
    helped = run(tmp_path, "--help", programs=(python,))

    assert (0, deploy_gpu.USAGE) == (helped.returncode, helped.stdout), helped.stderr


def test_the_exit_code_comes_back(tmp_path: Path):
    """And the message, from a machine that has no Docker."""
    outcome = run(tmp_path, "--dry-run", programs=("python3",))

    assert 3 == outcome.returncode
    assert outcome.stderr.startswith("==> ERROR: Docker is not installed")


@pytest.mark.parametrize(
    ("programs", "uname", "says"),
    [
        pytest.param((), "Linux", "Python 3.9 or newer is not installed", id="no-python"),
        pytest.param(("python3",), "MINGW64_NT-10.0", "does not run in a shell of Windows", id="git-bash"),
    ],
)
def test_what_stops_the_launcher(tmp_path: Path, programs: tuple[str, ...], uname: str, says: str):
    """Exit code 3, and what to do."""
    outcome = run(tmp_path, "--dry-run", programs=programs, uname=uname)

    assert 3 == outcome.returncode
    assert says in outcome.stderr


@pytest.mark.skipif(PWSH is None, reason="pwsh is in no registry that CI has")
def test_powershell_starts_python():
    """Where PowerShell is installed (GitHub's runners)."""
    helped = subprocess.run(
        [PWSH or "", "-NoProfile", "-File", ROOT / "deploy-gpu.ps1", "-Help"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert 0 == helped.returncode, helped.stderr
    assert "-DryRun" in helped.stdout


def test_powershell_5_1_reads_the_script():
    """Plain ASCII (Windows PowerShell reads the machine's code page), and nothing that came with PowerShell 7."""
    assert POWERSHELL.isascii()
    assert not re.search(r" \?\? |\) \? .* : |\) (&&|\|\|) ", POWERSHELL)


@pytest.mark.parametrize(
    "file", ["deploy/deploy_gpu.py", "backend/device/facts/torch_wheels.py", "backend/lazy_exports.py"]
)
def test_an_old_python_reads_it(file: str):
    """Python 3.9 and its standard library are all that the deployment needs."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    foreign = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}

    assert foreign <= {"backend.device.facts.torch_wheels"}


def test_it_starts_without_any_package(tmp_path: Path):
    """No site-packages: what a fresh machine has."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "deploy" / "deploy_gpu.py", "--help"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert (0, deploy_gpu.USAGE) == (done.returncode, done.stdout), done.stderr


def test_bash_is_sound():
    """shellcheck finds nothing."""
    if shutil.which("shellcheck") is None:
        absent("shellcheck is not installed (tools/system_packages.sh installs it)")
    done = subprocess.run(["shellcheck", "deploy-gpu.sh"], check=False, cwd=ROOT, capture_output=True, text=True)

    assert "" == done.stdout
    assert (ROOT / "deploy-gpu.sh").stat().st_mode & 0o111  # ./deploy-gpu.sh works from a clone


@pytest.mark.parametrize(
    ("file", "container"),
    [(deploy_gpu.CPU_FILE, deploy_gpu.CPU_CONTAINER), (deploy_gpu.GPU_FILE, deploy_gpu.GPU_CONTAINER)],
)
def test_the_compose_files_know_the_names(file: str, container: str):
    """The container is called so, listens on the port that is asked for, and every variable given to it is read."""
    compose = (ROOT / file).read_text(encoding="utf-8")
    passed_on = (ROOT / "deploy/compose/settings.env").read_text(encoding="utf-8").splitlines()
    names = {"TORCH_INDEX_URL", "PORT"} | ({"USE_GPU", "CUDA_VISIBLE_DEVICES", "DEVICE"} if "gpu" in file else set())
    unread = [name for name in sorted(names) if name not in passed_on and f"${{{name}" not in compose]

    assert re.search(rf"^    container_name: {container}$", compose, re.MULTILINE)
    assert "monitoring" in compose
    assert f":{deploy_gpu.CONTAINER_PORT}" in compose
    assert "path: deploy/compose/settings.env" in compose
    assert [] == unread, file
