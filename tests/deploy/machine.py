"""Machines to deploy on: every program that deploy_gpu.py calls answers as the test says, and the call is noted."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def _load() -> ModuleType:
    """deploy/deploy_gpu.py, which is a file of its own and in no package."""
    spec = importlib.util.spec_from_file_location("deploy_gpu", ROOT / "deploy" / "deploy_gpu.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


deploy_gpu = _load()
_HEALTH = (
    '{"status":"ready","reasons":[],"models":[{"name":"all-MiniLM-L6-v2","task":"embeddings","runtime":"torch",'
    '"dtype":"bfloat16","is_loaded":true}],"device":{"device":"cuda:0","lanes":1,"reason":"automatic choice"},'
    '"lanes":{},"cache":{}}'
)
_PASSED = ("TORCH_INDEX_URL", "USE_GPU", "CUDA_VISIBLE_DEVICES", "PORT", "DEVICE")
INFO = "docker info *"
CDI = "docker info *DiscoveredDevices*"
VERSION = "docker version *"
READY = "GET *health/ready"
STATE = "docker inspect *State.Status*"


@dataclass(frozen=True)
class Answer:
    """What a program does when called, or a server: then ``code`` is the HTTP status, 0 for silence."""

    out: str = ""
    err: str = ""
    code: int = 0


@dataclass(frozen=True)
class Machine:
    """What the script can see. A list of cards is "index, UUID, name, capability" a line."""

    kernel: str = "6.8.0-48-generic"
    system: str = "Linux"
    engine: str = "linux"
    machine: str = "x86_64"
    engine_kernel: str = ""  # as the machine's own unless Docker runs in another one
    engine_name: str = "Ubuntu 24.04.1 LTS"
    runtimes: tuple[str, ...] = ("io.containerd.runc.v2", "nvidia", "runc")
    docker: str = "27.3.1"
    cdi: str = ""  # devices that Docker knows by CDI; it has to be 28.2 or newer to be asked
    driver: str = "580.95.05"
    cards: tuple[str, ...] = ()
    smi: str = "listed"  # absent, failed, listed, or old: a driver that does not know compute_cap
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # backend/.env and .env, with their text
    answers: Mapping[str, Answer | Sequence[Answer]] = field(default_factory=dict)  # go before the ones below
    without: tuple[str, ...] = ()  # programs that are not installed

    def but(self, **changes: object) -> Machine:
        """The same machine with something else."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Outcome:
    """What the script said and did."""

    code: int
    out: str
    err: str
    calls: tuple[str, ...]
    saw: tuple[str, ...]  # the variables for the Compose file as each call saw them

    @property
    def given(self) -> dict[str, str]:
        """The variables for the Compose file."""
        lines = [line.strip() for line in self.out.splitlines() if line.startswith("  ") and "=" in line]
        return {name: value for name, _, value in (line.partition("=") for line in lines) if name.isupper()}

    @property
    def commands(self) -> list[str]:
        """What was run, or would be."""
        return [line[2:] for line in self.out.splitlines() if line.startswith("+ ")]


class FakeHost(deploy_gpu.Host):  # type: ignore[name-defined,misc]
    """The n-th call that matches a pattern gets its n-th answer, later ones the last. Time passes in sleep() alone."""

    def __init__(self, machine: Machine) -> None:
        self.environ = dict(machine.environment)
        self.system, self.release = machine.system, machine.kernel
        self._files = machine.files
        self._answers = {**machine.answers}
        for pattern, answer in _usual(machine).items():
            self._answers.setdefault(pattern, answer)
        self._programs = {pattern.partition(" ")[0] for pattern in self._answers} - set(machine.without)
        self._counts: dict[str, int] = {}
        self._now = 0.0
        self.calls: list[str] = []
        self.saw: list[str] = []

    def has(self, program: str) -> bool:
        return program in self._programs

    def ask(self, *command: str) -> tuple[int, str, str]:
        if not self.has(command[0]):
            return 127, "", "no such program"
        answer = self._answer(" ".join(command))
        return answer.code, answer.out, answer.err

    def run(self, *command: str) -> int:
        code, out, err = self.ask(*command)
        sys.stdout.write(out)
        sys.stderr.write(err)
        return code

    def read(self, file: str) -> str:
        return self._files.get(file, "")

    def fetch(self, url: str) -> tuple[int, str]:
        answer = self._answer(f"GET {url}")
        return answer.code, answer.out

    def sleep(self, seconds: float) -> None:
        self.calls.append(f"sleep {seconds}")
        self._now += seconds

    def clock(self) -> float:
        return self._now

    def _answer(self, call: str) -> Answer:
        self.calls.append(call)
        self.saw.append(" ".join(self.environ.get(name, "") for name in _PASSED))
        for pattern, answers in self._answers.items():
            if fnmatchcase(call, pattern):
                if isinstance(answers, Answer):
                    return answers
                turn = self._counts[pattern] = self._counts.get(pattern, -1) + 1
                return answers[min(turn, len(answers) - 1)]
        raise AssertionError(f"{call}: the machine knows no answer")


def deploy(machine: Machine, *options: str) -> Outcome:
    """Run the script on the machine."""
    host, out, err = FakeHost(machine), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = deploy_gpu.main(options, host)
    return Outcome(code, out.getvalue(), err.getvalue(), tuple(host.calls), tuple(host.saw))


def _usual(machine: Machine) -> dict[str, Answer | Sequence[Answer]]:
    """A well machine: Docker with the Compose plugin, nothing running, everything that is started becomes ready."""
    kernel = machine.engine_kernel or machine.kernel
    info = f"{machine.engine}|{machine.machine}|{kernel}|{machine.engine_name}|{' '.join(machine.runtimes)} \n"
    return {
        VERSION: Answer(f"{machine.docker}\n"),
        CDI: Answer(f"{machine.cdi} \n")
        if machine.cdi
        else Answer(err="can't evaluate field DiscoveredDevices", code=1),
        INFO: Answer(info),
        "docker compose version --short": Answer("2.29.7\n"),
        "docker container inspect *": Answer(err="No such container\n", code=1),
        "docker compose * build": Answer("built\n"),
        "docker compose * up --detach": Answer("started\n"),
        "docker compose * down": Answer(),
        "docker compose * ps": Answer("NAME financia\n"),
        "docker port *": Answer("127.0.0.1:8000\n"),
        STATE: Answer("running 0 0 false\n"),
        "docker inspect *RestartCount}} *": Answer("0\n"),
        "docker logs *": Answer("the service's log\n"),
        READY: Answer('{"status":"ready"}', code=200),
        "GET *health": Answer(_HEALTH, code=200),
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
