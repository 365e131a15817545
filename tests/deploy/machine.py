"""A machine for the deployment scripts: every program they call is a stub that answers as told and notes the call."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BORROWED = (
    "bash",
    "cat",
    "dirname",
    "grep",
    "head",
    "sed",
    "sh",
    "tail",
)  # harmless; nothing else of this machine is in the PATH
_HEALTH = (
    '{"status":"ready","reasons":[],"models":[{"name":"all-MiniLM-L6-v2","task":"embeddings","runtime":"torch",'
    '"dtype":"bfloat16","is_loaded":true}],"device":{"device":"cuda:0","lanes":1,"reason":"automatic choice"},'
    '"lanes":{},"cache":{}}'
)
_GIVEN = "${TORCH_INDEX_URL-} ${USE_GPU-} ${CUDA_VISIBLE_DEVICES-} ${PORT-}"
INFO = "docker info *"
VERSION = "docker version *"
READY = "curl *health/ready"
STATE = "docker inspect *State.Status*"


@dataclass(frozen=True)
class Answer:
    """What a program does when called."""

    out: str = ""
    err: str = ""
    code: int = 0
    run: str = ""  # shell code that answers instead


@dataclass(frozen=True)
class Machine:
    """The facts that the scripts can see. A list of cards is "index, UUID, name, capability" a line."""

    kernel: str = "6.8.0-48-generic"
    system: str = "Linux"
    engine: str = "linux"
    machine: str = "x86_64"
    engine_kernel: str = ""  # as the machine's own unless Docker runs in another one
    engine_name: str = "Ubuntu 24.04.1 LTS"
    runtimes: tuple[str, ...] = ("io.containerd.runc.v2", "nvidia", "runc")
    driver: str = "580.95.05"
    cards: tuple[str, ...] = ()
    smi: str = "listed"  # absent, failed, listed, or old: a driver that does not know compute_cap
    environment: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Answer | Sequence[Answer]] = field(default_factory=dict)  # go before the ones below
    without: tuple[str, ...] = ()  # programs that are not installed

    def but(self, **changes: object) -> Machine:
        """The same machine with something else."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def facts(self) -> dict[str, object]:
        """What deploy-gpu.ps1 would have read of it, its cards still as lines."""
        failed = {"smi_says": self.driver, "driver": ""} if self.smi == "failed" else {}
        gone = {"driver": ""} if self.smi == "absent" else {}
        name = {"Darwin": "macos", "Windows": "windows"}.get(self.system, "linux")
        if "icrosoft" in self.kernel:
            name = "wsl2" if "standard" in self.kernel else "wsl1"
        return {
            "system": name,
            "machine": {"arm64": "aarch64", "amd64": "x86_64"}.get(self.machine, self.machine),
            "kernel": self.engine_kernel or self.kernel,
            "engine_name": self.engine_name,
            "runtimes": list(self.runtimes),
            "smi": "listed" if self.smi == "old" else self.smi,
            "smi_says": "",
            "driver": self.driver,
            **failed,
            **gone,
        }

    def lines(self) -> list[str]:
        """What nvidia-smi lists."""
        if self.smi == "old":
            return [f"{line.rpartition(',')[0]}, unknown" for line in self.cards]
        return list(self.cards) if self.smi == "listed" else []


@dataclass(frozen=True)
class Outcome:
    """What a script said and did."""

    code: int
    out: str
    err: str
    calls: tuple[str, ...]
    saw: tuple[str, ...]  # the variables for the Compose file as each call found them

    @property
    def given(self) -> dict[str, str]:
        """The variables for the Compose file."""
        lines = [line.strip() for line in self.out.splitlines() if line.startswith("  ") and "=" in line]
        return {name: value for name, _, value in (line.partition("=") for line in lines) if name.isupper()}

    @property
    def commands(self) -> list[str]:
        """What was run, or would be."""
        return [line[2:] for line in self.out.splitlines() if line.startswith("+ ")]


def play(machine: Machine, folder: Path, *command: str) -> Outcome:
    """Run the script on the machine. The calls are those of the stubs, in order."""
    stubs = folder / "bin"
    stubs.mkdir()
    usual = {pattern: answer for pattern, answer in _usual(machine).items() if pattern not in machine.answers}
    programs: dict[str, dict[str, Sequence[Answer]]] = {}
    for pattern, answer in {**machine.answers, **usual}.items():
        program, _, arguments = pattern.partition(" ")
        programs.setdefault(program, {})[arguments] = [answer] if isinstance(answer, Answer) else answer
    for number, (program, cases) in enumerate(programs.items()):
        if program not in machine.without:
            stub = stubs / program
            stub.write_text(_stub(program, cases, folder, number))
            stub.chmod(0o755)
    for program in _BORROWED:
        found = shutil.which(program)
        assert found is not None
        (stubs / program).symlink_to(found)
    environment = {"PATH": str(stubs), "HOME": str(folder), "TERM": "dumb", **machine.environment}
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout, done.stderr, _noted(folder / "calls"), _noted(folder / "saw"))


def _noted(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text().split("\0")[:-1]) if file.exists() else ()


def bash(machine: Machine, folder: Path, *options: str) -> Outcome:
    """Run deploy-gpu.sh."""
    shell = shutil.which("bash")
    assert shell is not None
    return play(machine, folder, shell, os.fspath(ROOT / "deploy-gpu.sh"), *options)


def _usual(machine: Machine) -> dict[str, Answer | Sequence[Answer]]:
    """A well machine: Docker with the Compose plugin, nothing running, everything that is started becomes ready."""
    kernel = machine.engine_kernel or machine.kernel
    info = f"{machine.engine}|{machine.machine}|{kernel}|{machine.engine_name}|{' '.join(machine.runtimes)} \n"
    return {
        "uname -s": Answer(f"{machine.system}\n"),
        "uname -r": Answer(f"{machine.kernel}\n"),
        VERSION: Answer("27.3.1\n"),
        INFO: Answer(info),
        "docker compose version --short": Answer("2.29.7\n"),
        "docker container inspect *": Answer(err="No such container\n", code=1),
        "docker compose * build": Answer("built\n"),
        "docker compose * up --detach": Answer("started\n"),
        "docker compose * down": Answer(),
        "docker compose * ps": Answer("NAME financia\n"),
        "docker port *": Answer("127.0.0.1:8000\n"),
        "docker inspect *RestartCount}} *": Answer("0\n"),
        STATE: Answer("running 0 0 false\n"),
        "docker logs *": Answer("the service's log\n"),
        READY: Answer('{"status":"ready"}\n200'),
        "curl *health": Answer(_HEALTH),
        "docker exec -i *": Answer(run=f'shift 4; exec {shlex.quote(sys.executable)} "$@"'),
        "sleep *": Answer(),
        **_driver(machine),
    }


def _driver(machine: Machine) -> dict[str, Answer | Sequence[Answer]]:
    if machine.smi == "absent":
        return {}
    if machine.smi == "failed":
        return {"nvidia-smi *": Answer(machine.driver + "\n", code=9)}
    listed = "".join(f"{line}\n" for line in machine.cards)
    old = "".join(f"{line.rpartition(',')[0]}\n" for line in machine.cards)
    knows = machine.smi == "listed"
    return {
        "nvidia-smi --query-gpu=driver_version *": Answer(f"{machine.driver}\n" * max(1, len(machine.cards))),
        "nvidia-smi *compute_cap *": Answer(listed) if knows else Answer('Field "compute_cap" is not valid\n', code=2),
        "nvidia-smi --query-gpu=index,uuid,name *": Answer(old),
    }


def _stub(program: str, cases: Mapping[str, Sequence[Answer]], folder: Path, number: int) -> str:
    """A shell script: the n-th call that fits a pattern gets its n-th answer, later ones the last."""
    lines = [
        "#!/bin/sh",
        f'printf "%s\\0" "{program} $*" >>{shlex.quote(str(folder / "calls"))}',
        f'printf "%s\\0" "{_GIVEN}" >>{shlex.quote(str(folder / "saw"))}',
        'case "$*" in',
    ]
    for index, (pattern, answers) in enumerate(cases.items()):
        count = shlex.quote(str(folder / f"count.{number}.{index}"))
        lines.append(f"{'*'.join(shlex.quote(part) if part else '' for part in pattern.split('*'))})")
        lines.append(f"n=$(cat {count} 2>/dev/null || echo 0); echo $((n + 1)) >{count}")
        lines.append("case $n in")
        for turn, answer in enumerate(answers):
            label = "*" if turn == len(answers) - 1 else str(turn)
            said = f"printf %s {shlex.quote(answer.out)}; printf %s {shlex.quote(answer.err)} >&2; exit {answer.code}"
            lines.append(f"{label}) {answer.run or said};;")
        lines.append("esac;;")
    return "\n".join([*lines, "esac", f'echo "{program} $*: nothing is known of this" >&2', "exit 99", ""])
