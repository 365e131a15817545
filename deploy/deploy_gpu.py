r"""Builds and starts the service in containers: with the torch build that fits card and driver, or on the CPU.

``./deploy-gpu.sh`` and ``.\deploy-gpu.ps1`` start this file with whatever Python the machine has: Python 3.9, standard
library only. Which build runs where is decided in backend/device/facts/torch_wheels.py, which the service's own
check uses too.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Optional

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # started as a file, from a clone in which nothing is installed

from backend.device.facts.torch_wheels import (  # noqa: E402  # needs the line above
    INDEX,
    OLDEST_DRIVER,
    WHEELS,
    best_wheel,
    cuda_of_driver,
    cuda_version,
    kernels_run,
    machine_name,
    preference,
    published_archs,
    wheel_name,
)

USAGE = """\
Usage: ./deploy-gpu.sh [options]

Checks Docker, driver and container toolkit, picks the torch build for the card, then builds, starts and waits until
the service answers. Without a usable GPU it says why and takes the CPU.

  --cpu           serve from the CPU; no GPU is looked for
  --gpu N         serve from this GPU, numbered as by nvidia-smi; an error if it cannot be used
  --port N        port on this machine (default: PORT, or what the Compose file says)
  --monitoring    start Prometheus and Grafana too
  --wait S        seconds to wait until the service is ready (default 900: the first start may fetch models)
  --check         run the check-up inside the running container; the exit code is the check-up's
  --logs          follow the logs
  --down          stop and remove the containers; volumes stay
  --dry-run       say what would be decided and run, and change nothing
  --help          this text

Settings come from the environment, before the file .env, before backend/.env; options go before all of them.
USE_GPU=true (or DEVICE=cuda) makes a missing GPU an error, USE_GPU=false (or DEVICE=cpu) is --cpu; TORCH_INDEX_URL
names the index of another torch build; CUDA_VISIBLE_DEVICES, PORT and all other settings reach the container.

Exit codes: 0 done; 1 a command failed; 2 wrong options; 3 Docker or Compose is missing, too old or out of reach;
4 the GPU that was demanded cannot be used; 5 the service did not become ready.
"""
CPU_FILE, CPU_CONTAINER = "docker-compose.yml", "financia_backend"
GPU_FILE, GPU_CONTAINER = "docker-compose.gpu.yml", "financia_backend_gpu"
CONTAINER_PORT = 8000
ENV_FILES = ("backend/.env", ".env")  # a later one goes before an earlier one, as in the Compose files
OLDEST_COMPOSE = (2, 24)  # the first that knows an env_file which need not be there
OLDEST_WITH_CDI = (29, 2)  # the first Docker whose driver "nvidia" of the Compose file takes CDI (moby#50228)
POLL_S = 2
FETCH_TIMEOUT_S = 10.0
WSL_NVIDIA_SMI = "/usr/lib/wsl/lib/nvidia-smi"  # where Windows puts it; not in the PATH of every shell
_OPTIONS = ("cpu", "gpu", "port", "monitoring", "wait", "check", "logs", "down", "dry-run", "help")
_INFO = (
    "{{.OSType}}|{{.Architecture}}|{{.KernelVersion}}|{{.OperatingSystem}}|"
    "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}"
)
_CDI = "{{range .DiscoveredDevices}}{{.ID}} {{end}}"  # asked apart: Docker before 28.2 fails on it
_CDI_KIND = "nvidia.com/gpu="
_STATE = "{{.State.Status}} {{.RestartCount}} {{.State.ExitCode}} {{.State.OOMKilled}}"
_UPDATE = "Update the NVIDIA driver to {} or newer (under WSL in Windows)."
_TOOLKIT_FIX = (
    "Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && "
    "sudo systemctl restart docker"
)
_WSL2_ENGINE_FIX = (
    "Windows: Settings > General > Use the WSL 2 based engine. Linux: use Docker Engine instead of Docker Desktop."
)
_START_DOCKER = {
    "linux": "Start it: sudo systemctl start docker",
    "macos": "Start Docker Desktop and wait until it says that it runs.",
    "windows": "Start Docker Desktop and wait until it says that it runs.",
}
_START_DOCKER_WSL = (
    "Start Docker Desktop and turn on Settings > Resources > WSL integration for this distribution; or, with Docker "
    "installed in WSL: sudo service docker start"
)


class Failed(Exception):  # named for what happened, as in backend/errors.py
    """Ends the deployment: exit code, what is wrong, and what to do about it."""

    def __init__(self, code: int, fault: str, fix: str = "") -> None:
        super().__init__(fault)
        self.code, self.fault, self.fix = code, fault, fix


class Host:
    """The machine that deploys: its programs, its environment and its clock. Tests hand in another one."""

    environ: MutableMapping[str, str] = os.environ
    system = platform.system()  # Linux, Darwin, Windows
    release = platform.release()

    def has(self, program: str) -> bool:
        """Whether the program can be called."""
        return shutil.which(program) is not None

    def ask(self, *command: str) -> tuple[int, str, str]:
        """Run a program quietly: exit code, standard output, standard error. 127 where there is no such program."""
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
        except OSError as error:
            return 127, "", str(error)
        return done.returncode, done.stdout, done.stderr

    def run(self, *command: str) -> int:
        """Run a program that talks to the terminal; its exit code."""
        return subprocess.run(command, check=False).returncode

    def read(self, file: str) -> str:
        """The text of a file of this folder; "" where there is none, or nobody but its owner may read it."""
        try:
            return (ROOT / file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def fetch(self, url: str) -> tuple[int, str]:
        """HTTP status and body; (0, "") where nobody answers."""
        try:
            with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")
        except (OSError, ValueError):
            return 0, ""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def clock(self) -> float:
        return time.monotonic()


@dataclass
class Request:
    """What the command line and the environment ask for."""

    action: str = "deploy"  # deploy, check, logs or down
    device: str = "auto"  # auto, cpu, or demand: no GPU is an error
    gpu: str = ""  # number of the one card to use
    is_chosen: bool = False  # by --cpu or --gpu, which go before DEVICE too
    port: str = ""
    index_url: str = ""  # TORCH_INDEX_URL
    visible: str = ""  # CUDA_VISIBLE_DEVICES
    named: str = ""  # DEVICE
    wait_s: int = 900
    monitoring: bool = False
    dry_run: bool = False


@dataclass
class Card:
    """One line of nvidia-smi."""

    number: str
    uuid: str
    name: str
    shown: str  # compute capability as nvidia-smi writes it; "unknown" from drivers before the 510 branch

    @property
    def capability(self) -> tuple[int, int]:
        """(0, 0), on which nothing runs, where the driver gives no number."""
        major, _, minor = self.shown.partition(".")
        return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


@dataclass
class Facts:
    """What was found on the machine."""

    system: str  # linux, wsl1, wsl2, macos or windows
    machine: str = ""  # of the Docker engine: x86_64, aarch64, ...
    kernel: str = ""  # of the Docker engine
    engine: str = ""  # "Docker Desktop", "Ubuntu 24.04 LTS", ...
    docker_version: str = ""  # of the engine
    runtimes: tuple[str, ...] = ()
    has_cdi: bool = False  # whether Docker knows NVIDIA's cards by CDI; asked where there is no runtime for them
    compose: tuple[str, ...] = ("docker", "compose")
    compose_version: str = ""
    smi: str = "absent"  # absent, failed or listed
    smi_answer: str = ""  # what nvidia-smi said when it failed
    driver: str = ""
    cards: list[Card] = field(default_factory=list)

    @property
    def branch(self) -> int:
        """580 of driver 580.95.05."""
        return int(self.driver.partition(".")[0])


@dataclass
class Decision:
    """Where to serve from, with which torch, and why."""

    mode: str = "cpu"  # cpu or gpu
    index: str = f"{INDEX}/cpu"
    why: str = ""
    visible: str = ""  # UUID of the one card that was asked for
    left_out: str = ""  # the cards that the build has no kernels for
    obstacle: str = ""  # why a GPU that was wanted cannot be used
    fix: str = ""


# ---------------------------------------------------------------------------------------------------------- request


def read_settings(host: Host) -> dict[str, str]:
    """What is set outside: the environment goes before .env, and that before backend/.env."""
    settings: dict[str, str] = {}
    for file in ENV_FILES:
        settings.update(read_env_file(host.read(file)))
    return {**settings, **host.environ}


def read_env_file(text: str) -> dict[str, str]:
    """NAME=value lines, as the service reads them: comments, ``export`` and quotes are known, nothing is replaced."""
    found = {}
    for name, value in re.findall(r"^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*(.*)$", text, re.MULTILINE):
        quoted = re.match(r"""(['"])(.*?)\1""", value)
        found[name] = quoted[2] if quoted else re.sub(r"(^|\s)#.*", "", value).strip()
    return found


def replaced_in(text: str) -> list[str]:
    """Names of the values in which Compose, or the service started without containers, replaces a ``$``.

    Compose replaces $NAME and ${NAME} but for single quotes; the service ${NAME} alone, in quotes too.
    """
    found = []
    for name, value in re.findall(r"^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*(.*)$", text, re.MULTILINE):
        is_literal = re.match(r"'[^']*'", value) and "${" not in value
        if "$" in re.sub(r"(^|\s)#.*", "", value) and not is_literal:
            found.append(name)
    return found


def parse(arguments: Sequence[str], settings: Mapping[str, str]) -> Request:
    """The request. Raises: Failed with exit code 2 for wrong options."""
    wanted, named = settings.get("USE_GPU", "").lower(), settings.get("DEVICE", "").lower()
    device = {"true": "demand", "1": "demand", "false": "cpu", "0": "cpu"}.get(wanted, "auto")
    if device == "auto" and named.partition(":")[0] in ("cpu", "cuda"):
        device = "cpu" if named == "cpu" else "demand"
    request = Request(
        device=device,
        port=settings.get("PORT", ""),
        index_url=settings.get("TORCH_INDEX_URL", ""),
        visible=settings.get("CUDA_VISIBLE_DEVICES", ""),
        named=named,
    )
    rest = list(arguments)
    while rest and request.action != "help":
        _take(rest.pop(0), rest, request)
    if request.gpu and request.action != "help":
        if request.device == "cpu":
            raise Failed(2, f"--gpu {request.gpu} contradicts --cpu or USE_GPU=false", "Leave one of them out.")
        request.device, request.is_chosen = "demand", True
    return request


def _take(given: str, rest: list[str], request: Request) -> None:
    """One option, with its value from ``rest`` where it has one."""
    option = _option(given)
    if option in ("check", "logs", "down", "help"):
        request.action = option
    elif option == "cpu":
        request.device, request.is_chosen = "cpu", True
    elif option in ("monitoring", "dry-run"):
        setattr(request, option.replace("-", "_"), True)
    elif option in ("gpu", "port"):
        setattr(request, option, _number(f"--{option}", rest))
    elif option == "wait":
        request.wait_s = int(_number("--wait", rest))
    else:
        raise Failed(2, f"unknown option {given}", "See: ./deploy-gpu.sh --help")


def _option(given: str) -> str:
    """``dry-run`` of --dry-run, and of -DryRun as PowerShell spells it; "" for anything else."""
    if given in ("-h", "-?"):
        return "help"
    if given.startswith("--"):
        return given[2:] if given[2:] in _OPTIONS else ""
    folded = given[1:].lower() if given.startswith("-") else ""
    return next((option for option in _OPTIONS if option.replace("-", "") == folded), "")


def _number(option: str, rest: list[str]) -> str:
    value = rest.pop(0) if rest else ""
    if not (value.isascii() and value.isdigit()):
        raise Failed(2, f"{option} needs a whole number, got '{value}'", "See: ./deploy-gpu.sh --help")
    return value


# ------------------------------------------------------------------------------------------------------------ facts


def system_of(host: Host) -> str:
    """linux, wsl1, wsl2, macos or windows."""
    if host.system == "Darwin":
        return "macos"
    if host.system != "Linux":
        return "windows"
    if re.search(r"[Mm]icrosoft.*WSL2|[Mm]icrosoft-standard", host.release):
        return "wsl2"
    return "wsl1" if "Microsoft" in host.release else "linux"


def read_docker(host: Host) -> Facts:
    """Docker's engine and Compose. Raises: Failed with exit code 3 when they cannot be used."""
    facts = Facts(system_of(host))
    if not host.has("docker"):
        where = (
            "Install Docker Engine with the Compose plugin: https://docs.docker.com/engine/install"
            if facts.system == "linux"
            else "Install Docker Desktop: https://docs.docker.com/desktop"
        )
        raise Failed(3, "Docker is not installed: there is no command docker", where)
    # Asks the daemon in every version; "docker info" may end well without one.
    code, out, err = host.ask("docker", "version", "--format", "{{.Server.Version}}")
    if code:
        raise _daemon_failed(out + err, facts.system)
    facts.docker_version = out.strip()
    code, out, err = host.ask("docker", "info", "--format", _INFO)
    if code:
        fix = "Docker's own daemon is needed; a stand-in for it may lack this."
        raise Failed(3, f"docker info fails: {_first_line(out + err)}", fix)
    line = [line for line in out.splitlines() if "|" in line][-1]
    kind, machine, facts.kernel, facts.engine, runtimes = line.split("|", 4)
    facts.machine, facts.runtimes = machine_name(machine), tuple(runtimes.split())
    if "nvidia" not in facts.runtimes:
        code, out, _ = host.ask("docker", "info", "--format", _CDI)
        facts.has_cdi = code == 0 and _CDI_KIND in out
    if kind == "windows":
        raise Failed(
            3,
            "Docker runs Windows containers; the images are Linux ones",
            'Switch over: right-click the Docker icon, "Switch to Linux containers".',
        )
    _read_compose(host, facts)
    return facts


def _daemon_failed(output: str, system: str) -> Failed:
    if "permission denied" in output:
        fix = "Run: sudo usermod -aG docker $USER, then log in again."
        return Failed(3, "the Docker daemon is there, but you may not use it", fix)
    fault = f"the Docker daemon cannot be reached: {_first_line(output)}"
    return Failed(3, fault, _START_DOCKER.get(system, _START_DOCKER_WSL))


def _read_compose(host: Host, facts: Facts) -> None:
    """The plugin goes before the program. Raises: Failed where neither is there, or it is too old."""
    code, version, _ = host.ask("docker", "compose", "version", "--short")
    if code:
        code, version, _ = host.ask("docker-compose", "version", "--short")
        facts.compose = ("docker-compose",)
    if code:
        raise Failed(
            3,
            "Docker Compose is not installed",
            "Install the plugin (Debian, Ubuntu: sudo apt install docker-compose-plugin), or Docker Desktop, which "
            "brings it.",
        )
    facts.compose_version = version.strip().lstrip("v")
    if _is_older(facts.compose_version, OLDEST_COMPOSE):
        oldest = ".".join(map(str, OLDEST_COMPOSE))
        fault = f"Docker Compose {facts.compose_version} is too old: the Compose files need {oldest} or newer"
        fix = (
            "Install Docker's own plugin: https://docs.docker.com/compose/install/linux"
            " (a newer Docker Desktop has it)."
        )
        raise Failed(3, fault, fix)


def _is_older(version: str, oldest: tuple[int, int]) -> bool:
    """Not where the version is no number."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < oldest


def read_cards(host: Host, facts: Facts) -> None:
    """Driver and cards, by nvidia-smi."""
    program = "nvidia-smi" if host.has("nvidia-smi") else WSL_NVIDIA_SMI
    if not host.has(program):
        return
    _, out, err = host.ask(program, "--query-gpu=driver_version", "--format=csv,noheader")
    first = _first_line(out + err)
    if not re.match(r"\d.*\.\d", first):
        facts.smi, facts.smi_answer = "failed", first
        return
    facts.smi, facts.driver = "listed", first
    code, out, _ = host.ask(program, "--query-gpu=index,uuid,name,compute_cap", "--format=csv,noheader")
    if code:  # drivers before the 510 branch do not know compute_cap; they are too old for every build anyway
        _, out, _ = host.ask(program, "--query-gpu=index,uuid,name", "--format=csv,noheader")
        out = "\n".join(f"{line}, unknown" for line in out.splitlines())
    for line in out.splitlines():
        parts = [part.strip() for part in line.split(",", 3)]
        if len(parts) == 4:
            facts.cards.append(Card(*parts))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()


# -------------------------------------------------------------------------------------------------------- decisions


def decide(request: Request, facts: Facts) -> Decision:
    """Where to serve from, from request and facts alone."""
    decision = Decision(index=request.index_url or f"{INDEX}/cpu")
    if request.device == "cpu":
        decision.why = "CPU, as asked for"
        return decision
    _find_obstacle(facts, decision)
    cards = [] if decision.obstacle else _pick_cards(request, facts, decision)
    if not decision.obstacle:
        _pick_build(request, facts, cards, decision)
    if decision.obstacle:
        decision.why = f"CPU: {decision.obstacle}"
    else:
        decision.mode = "gpu"
    return decision


def _find_obstacle(facts: Facts, decision: Decision) -> None:
    """What stands between a container and any GPU of this machine."""
    if facts.system == "macos":
        decision.obstacle = "containers on a Mac have no access to its GPU"
        decision.fix = "To use it, run outside Docker: make serve"
    elif facts.system == "wsl1":
        decision.obstacle = "this is WSL 1, which has no access to the GPU"
        decision.fix = "In Windows: wsl --set-version <distribution> 2"
    elif facts.smi == "absent":
        decision.obstacle = "no NVIDIA driver is installed: there is no command nvidia-smi"
        decision.fix = (
            "With an NVIDIA card: install the driver of your distribution (Ubuntu: sudo ubuntu-drivers install) and "
            "restart."
            if facts.system == "linux"
            else "With an NVIDIA card: install its driver in Windows, never inside WSL, then: wsl --shutdown"
        )
    elif facts.smi == "failed":
        decision.obstacle = f"the NVIDIA driver does not answer: {facts.smi_answer}"
        decision.fix = (
            "Driver and library of different versions: restart the machine. Otherwise install the driver anew."
        )
    elif "Docker Desktop" in facts.engine:
        if "microsoft" not in facts.kernel:  # on its WSL 2 engine Docker Desktop brings the toolkit along
            decision.obstacle = "Docker Desktop hands no GPU to containers without its WSL 2 engine"
            decision.fix = _WSL2_ENGINE_FIX
    elif "nvidia" not in facts.runtimes and not facts.has_cdi:
        decision.obstacle = "the NVIDIA Container Toolkit is not installed, or Docker does not know it"
        decision.fix = _TOOLKIT_FIX
    elif facts.has_cdi and _is_older(facts.docker_version, OLDEST_WITH_CDI):
        newer = ".".join(map(str, OLDEST_WITH_CDI))
        decision.obstacle = (
            f"Docker {facts.docker_version} knows the GPU by CDI alone, which --gpus takes from {newer} on"
        )
        decision.fix = f"Update Docker to {newer} or newer. Or: {_TOOLKIT_FIX}"


def _pick_cards(request: Request, facts: Facts, decision: Decision) -> list[Card]:
    """The cards that count: the one of --gpu N, or all."""
    cards = [card for card in facts.cards if request.gpu in ("", card.number)]
    if not cards:
        decision.obstacle = f"there is no GPU {request.gpu}"
        decision.fix = f"The driver lists: {', '.join(card.number for card in facts.cards)}"
    elif request.gpu:
        decision.visible = cards[-1].uuid
    return cards


def _pick_build(request: Request, facts: Facts, cards: Sequence[Card], decision: Decision) -> None:
    """The torch build for the cards (torch_wheels.best_wheel), or why there is none."""
    if request.index_url:
        decision.why = f"GPU, torch from {request.index_url}, as TORCH_INDEX_URL says"
        return
    shown = ", ".join(dict.fromkeys(card.shown for card in cards))
    driver_cuda = cuda_of_driver(facts.branch)
    best = best_wheel([card.capability for card in cards], driver_cuda, facts.machine)
    if not best:
        _no_build(facts, cards, shown, decision)
        return
    decision.index = f"{INDEX}/{wheel_name(best)}"
    known = [cuda for cuda in preference(driver_cuda) if cuda_version(cuda) <= driver_cuda]
    known = [cuda for cuda in known if published_archs(cuda, facts.machine)]
    choice, verb = ("newest", "knows") if best in known else ("oldest", "starts")
    decision.why = (
        f"GPU, torch build {wheel_name(best)}: the {choice} that driver {facts.driver} {verb} with kernels for "
    )
    decision.why += f"compute capability {shown}"
    passed = known[: known.index(best)] if best in known else known
    if passed:
        decision.why += f" (kernels missing in {', '.join(map(wheel_name, passed))})"
    archs = published_archs(best, facts.machine)
    missing = [card for card in cards if not kernels_run(card.capability, archs)]
    decision.left_out = ", ".join(
        f"GPU {card.number} ({card.name}, compute capability {card.shown})" for card in missing
    )


def _no_build(facts: Facts, cards: Sequence[Card], shown: str, decision: Decision) -> None:
    """No build starts with this driver, or none has kernels for the cards."""
    published = [cuda for cuda in WHEELS if published_archs(cuda, facts.machine)]
    fitting = [
        cuda
        for cuda in published
        if any(kernels_run(card.capability, published_archs(cuda, facts.machine)) for card in cards)
    ]
    first, needed = _oldest_driver(published), _oldest_driver(fitting)
    if first is not None and facts.branch < first:
        decision.obstacle = f"driver {facts.driver} is too old: no torch build starts before driver {first}"
        decision.fix = _UPDATE.format(needed or first)
    elif needed is not None:
        decision.obstacle = (
            f"driver {facts.driver} is too old: the oldest torch build for compute capability {shown} needs driver "
            f"{needed}"
        )
        decision.fix = _UPDATE.format(needed)
    else:
        decision.obstacle = f"no published torch build for {facts.machine} has kernels for compute capability {shown}"
        decision.fix = "If you know one, set TORCH_INDEX_URL to its index."


def _oldest_driver(cudas: Sequence[str]) -> Optional[int]:
    return min((OLDEST_DRIVER[cuda_version(cuda)[0]] for cuda in cudas), default=None)


# ---------------------------------------------------------------------------------------------------------- actions


class Deployment:
    """Runs one action of the command line: deploy, check, logs or down."""

    def __init__(self, host: Host, request: Request, facts: Facts) -> None:
        self._host, self._request, self._facts = host, request, facts
        self._file, self._container = CPU_FILE, CPU_CONTAINER

    def deploy(self) -> int:
        """Decide, build, start, wait until the service is ready, and say how to use it."""
        host, request, facts = self._host, self._request, self._facts
        if request.device != "cpu":
            read_cards(host, facts)
        decision = decide(request, facts)
        self._tell(decision)
        other_file, other = GPU_FILE, GPU_CONTAINER
        if decision.mode == "gpu":
            other_file, other = self._file, self._container
            self._file, self._container = GPU_FILE, GPU_CONTAINER
        if self._exists(other):  # both listen on the same port
            down = (*self._compose(other_file), "--profile", "monitoring", "down")
            self._run(down, f"the other service ({other}) could not be stopped", "")
        self._pass_to_compose(decision)
        self._build_and_start()
        if not request.dry_run:
            self._wait_until_ready()
            self._tell_result()
        return 0

    def check(self) -> int:
        """The check-up of the running service; its exit code."""
        self._find_service()
        return self._call("docker", "exec", self._container, "python", "-m", "backend.check_gpu")

    def logs(self) -> int:
        """Follow the logs."""
        self._find_service()
        return self._call("docker", "logs", "--follow", "--tail", "200", self._container)

    def down(self) -> int:
        """Stop both services, with their monitoring."""
        for file in (GPU_FILE, CPU_FILE):
            command = (*self._compose(file), "--profile", "monitoring", "down")
            self._run(command, "the containers could not be stopped", "The last lines above say why.")
        return 0

    def _tell(self, decision: Decision) -> None:
        request, facts = self._request, self._facts
        say(f"{facts.system}, Docker on {facts.engine} ({facts.machine}), Compose {facts.compose_version}")
        if request.device != "cpu" and facts.smi == "listed":
            say(f"NVIDIA driver {facts.driver}")
        for card in facts.cards if request.device != "cpu" else ():
            say(f"GPU {card.number}: {card.name}, compute capability {card.shown}")
        if not decision.obstacle:
            say(decision.why)
        elif request.device == "demand":
            raise Failed(4, f"the GPU cannot be used: {decision.obstacle}", decision.fix)
        else:
            warn(f"serving from the CPU: {decision.obstacle}", decision.fix)
        if decision.left_out:
            warn(f"this build has no kernels for {decision.left_out}", "To serve from such a card alone: --gpu N")
        for file in ENV_FILES:
            if names := replaced_in(self._host.read(file)):
                fault = f"{file}: Compose may replace the $ in {', '.join(names)}: not the value of make serve"
                warn(
                    fault,
                    "Write a value with a $ in single quotes; ${ cannot stand in one: take another key or password.",
                )
        if request.visible and not request.gpu and decision.mode == "gpu":
            say(f"CUDA_VISIBLE_DEVICES={request.visible}, as the environment or {ENV_FILES[0]} says")

    def _pass_to_compose(self, decision: Decision) -> None:
        self._give("TORCH_INDEX_URL", decision.index)
        self._give("USE_GPU", "true" if decision.mode == "gpu" else "false")
        if decision.visible:
            self._give("CUDA_VISIBLE_DEVICES", decision.visible)
        if self._request.is_chosen and self._request.named:  # a number of DEVICE would be of another count of cards
            self._give("DEVICE", "cuda" if decision.mode == "gpu" else "cpu")
        if self._request.port:
            self._give("PORT", self._request.port)

    def _build_and_start(self) -> None:
        self._run(
            (*self._compose(self._file), "build"),
            "the image could not be built",
            "The last lines above say why. If a download failed, run this again: what is done is kept.",
        )
        self._run(
            (*self._service(), "up", "--detach"),
            "the containers could not be started",
            "The last lines above say why. Port taken: --port N. No GPU in containers (could not select device "
            "driver): --cpu, or the toolkit of docs/gpu.md#container.",
        )

    def _service(self) -> tuple[str, ...]:
        profile = ("--profile", "monitoring") if self._request.monitoring else ()
        return (*self._compose(self._file), *profile)

    def _compose(self, file: str) -> tuple[str, ...]:
        """The command for a Compose file. It reads .env by itself, but not where it is told to read another file."""
        files = [one for one in ENV_FILES if self._host.read(one)]
        told = files if ENV_FILES[0] in files else []
        return (*self._facts.compose, *(word for one in told for word in ("--env-file", one)), "-f", file)

    def _wait_until_ready(self) -> None:
        host, started, told = self._host, self._host.clock(), ""
        url = self._url()
        code, out, _ = host.ask("docker", "inspect", "--format", "{{.RestartCount}}", self._container)
        restarts = int(out) if code == 0 and out.strip().isdigit() else 0
        say(f"waiting until {url}/health/ready says 200 (at most {self._request.wait_s} s)")
        while True:
            status, body = host.fetch(f"{url}/health/ready")
            if status == 200:
                return
            self._stop_if_ended(restarts)
            found = re.search(r'"detail":"([^"]*)"', body)
            reason = found[1] if found else "starting: loading models, and on the first start measuring"
            waited = host.clock() - started
            if reason != told:
                print(f"    {waited:4.0f} s  {reason}", flush=True)
            told = reason
            if waited >= self._request.wait_s:
                self._show_last_logs()
                fix = "It may still get there: --logs follows it, --wait S waits longer."
                raise Failed(5, f"not ready after {self._request.wait_s} s: {reason}", fix)
            host.sleep(POLL_S)

    def _stop_if_ended(self, restarts: int) -> None:
        """Raises: Failed when the process has ended since the start."""
        code, out, _ = self._host.ask("docker", "inspect", "--format", _STATE, self._container)
        status, count, exit_code, oom = out.split() if code == 0 else ("gone", "0", "0", "false")
        if status not in ("exited", "dead", "gone", "restarting") and int(count) <= restarts:
            return
        self._show_last_logs()
        if oom == "true" or exit_code == "137":
            fix = "Raise its memory limit in the Compose file."
            raise Failed(5, "the container was killed, most likely for want of memory", fix)
        if exit_code == "2":
            fault = "the service refused to start (exit code 2): a setting, the device or a model is wrong"
            raise Failed(5, fault, "The log above says which; docs/settings.md has every setting.")
        if exit_code == "3":
            raise Failed(5, "the device was lost (exit code 3)", "See docs/gpu.md#gpu-lost.")
        raise Failed(5, f"the container ended (exit code {exit_code})", "The log above says why.")

    def _show_last_logs(self) -> None:
        say(f"the last lines of docker logs {self._container}")
        _, out, err = self._host.ask("docker", "logs", "--tail", "60", self._container)
        print(out + err, end="", flush=True)

    def _tell_result(self) -> None:
        url = self._url()
        say(f"ready: {url}")
        try:
            health = json.loads(self._host.fetch(f"{url}/health")[1])
            lines = [f"    device    {health['device']['device']}: {health['device']['reason']}"]
            for model in health["models"]:
                kind = f"{model['name']} ({model['task']})"
                lines.append(f"    model     {kind}: {model['runtime']} {model['dtype']}")
            print("\n".join(lines), flush=True)
        except (ValueError, KeyError, TypeError):
            warn("the report of /health could not be read", f"See {url}/health")
        self._host.run(*self._service(), "ps")
        say("a first request:")
        body = '{"input": "The invoice is due on Friday."}'
        print(f"    curl {url}/v1/embeddings -H 'Content-Type: application/json' -d '{body}'", flush=True)
        say("then: --check, --logs, --down")

    def _url(self) -> str:
        """Where the container's port is on this machine: whatever chose it, Docker knows."""
        _, out, _ = self._host.ask("docker", "port", self._container, f"{CONTAINER_PORT}/tcp")
        port = _first_line(out).rpartition(":")[2] or self._request.port or CONTAINER_PORT
        return f"http://127.0.0.1:{port}"

    def _find_service(self) -> None:
        """Take the service that is there, the GPU's first."""
        for self._file, self._container in ((GPU_FILE, GPU_CONTAINER), (CPU_FILE, CPU_CONTAINER)):
            if self._exists(self._container):
                return
        raise Failed(1, "the service is not there", "Start it: ./deploy-gpu.sh")

    def _exists(self, container: str) -> bool:
        return self._host.ask("docker", "container", "inspect", container)[0] == 0

    def _give(self, name: str, value: str) -> None:
        """A variable for the Compose file."""
        print(f"  {name}={value}", flush=True)
        self._host.environ[name] = value

    def _run(self, command: Sequence[str], fault: str, fix: str) -> None:
        if self._call(*command):
            raise Failed(1, fault, fix)

    def _call(self, *command: str) -> int:
        """The one way to anything that changes something; shown, and left out of a dry run."""
        print("+", *command, flush=True)
        return 0 if self._request.dry_run else self._host.run(*command)


# ----------------------------------------------------------------------------------------------------------- output


class _Spelling:
    """Options and script as the shell that was used spells them."""

    powershell = False

    def __call__(self, text: str) -> str:
        if not self.powershell:
            return text
        for option in _OPTIONS:
            spelled = "-" + "".join(word.capitalize() for word in option.split("-"))
            text = re.sub(rf"(?<![\w-])--{option}(?![\w-])", spelled, text)
        return text.replace("./deploy-gpu.sh", r".\deploy-gpu.ps1")


spelling = _Spelling()


def say(text: str) -> None:
    print(f"==> {spelling(text)}", flush=True)


def warn(text: str, fix: str) -> None:
    _complain("WARNING", text, fix)


def _complain(kind: str, text: str, fix: str) -> None:
    lines = [f"==> {kind}: {text}", *([f"    {fix}"] if fix else ())]
    print(spelling("\n".join(lines)), file=sys.stderr, flush=True)


def main(arguments: Sequence[str], host: Optional[Host] = None) -> int:
    """The exit code. A first argument ``--powershell`` says which script was called."""
    host = host or Host()
    spelling.powershell = list(arguments[:1]) == ["--powershell"]
    try:
        request = parse(arguments[1:] if spelling.powershell else arguments, read_settings(host))
        if request.action == "help":
            print(spelling(USAGE), end="")
            return 0
        deployment = Deployment(host, request, read_docker(host))
        return int(getattr(deployment, request.action)())
    except Failed as failed:
        _complain("ERROR", failed.fault, failed.fix)
        return failed.code


def start() -> NoReturn:
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    start()
