"""Docker or podman, and the service that the Compose file starts on it."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from backend.config import Settings
from tests.conftest import absent

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(Path(__file__).with_name("containers.sh"))
PROJECT = "financia-test"
BACKEND, REDIS = "financia_backend", "financia_redis"
ENV_FILE = ROOT / "backend" / ".env"
SERVICES = ("redis", "backend", "prometheus")  # Grafana's image has no stand-in
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
FULL_DISK = ("no space left on device", "io: read/write on closed pipe")
T = TypeVar("T")
_READY_S = 300.0  # a first start measures; two busy cores


@dataclass(frozen=True)
class Engine:
    """The commands of one engine."""

    name: str
    plain: tuple[str, ...]
    build: tuple[str, ...]
    compose: tuple[str, ...]


def find_engine() -> Engine:
    """Docker where its daemon answers, else podman through the script beside this file."""
    if _works("docker", "version") and _works("docker", "compose", "version"):
        return Engine("docker", ("docker",), ("docker", "build"), ("docker", "compose"))
    if shutil.which("podman") is None or os.geteuid() != 0:
        absent("neither a Docker daemon nor podman as root (tests/containers/containers.sh setup installs it)")
    return Engine("podman", (SCRIPT, "podman"), (SCRIPT, "build"), (SCRIPT, "compose"))


def _works(*command: str) -> bool:
    return shutil.which(command[0]) is not None and run(*command).returncode == 0


def run(*command: str, timeout_s: float = 120, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command's end, with what it said; the repository is its folder."""
    return subprocess.run(
        command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s, errors="replace"
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(ask: Callable[[], T], *, within_s: float, what: str) -> T:
    """The first true answer. Containers have no event to wait for that both engines know."""
    end = time.monotonic() + within_s
    while True:
        if answer := ask():
            return answer
        if time.monotonic() > end:
            pytest.fail(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.5)


@dataclass
class Stack:
    """The containers of docker-compose.yml as a project of its own, on free ports."""

    engine: Engine
    port: int = field(default_factory=free_port)
    prometheus_port: int = field(default_factory=free_port)

    def compose(
        self, *arguments: str, timeout_s: float = 300, outside: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A Compose command that must not fail, whatever settings and .env file the developer has.

        Args:
            outside: set for it.
        """
        done = self._compose(*arguments, timeout_s=timeout_s, outside=outside)
        if done.returncode != 0:
            pytest.fail(f"compose {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def _compose(
        self, *arguments: str, timeout_s: float, outside: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        settings = {name.upper() for name in Settings.model_fields}
        env = {name: value for name, value in os.environ.items() if name not in settings}
        env |= {"PORT": str(self.port), "PROMETHEUS_PORT": str(self.prometheus_port), **(outside or {})}
        project = ("--project-name", PROJECT, "--env-file", os.devnull, "--file", "docker-compose.yml")
        return run(*self.engine.compose, *project, "--profile", "monitoring", *arguments, timeout_s=timeout_s, env=env)

    def plain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(*self.engine.plain, *arguments)

    def inside(self, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        return self.plain("exec", container, *command)

    def said(self, *arguments: str) -> str:
        """The output of a command that must not fail."""
        done = self.plain(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refuse_strangers(self) -> None:
        """Names are fixed in the Compose file: a service that is in use is not replaced by a test."""
        found = self.plain("container", "inspect", "--format", "{{json .Config.Labels}}", BACKEND)
        if found.returncode == 0:
            if json.loads(found.stdout).get("com.docker.compose.project") != PROJECT:
                pytest.fail(f"a container {BACKEND} exists; ./deploy-gpu.sh --down removes it")
            self.remove()  # of a test run that was killed
        if ENV_FILE.exists():
            pytest.fail(f"the containers would read {ENV_FILE}: move it away for these tests")

    def build(self) -> None:
        """Build the image; once more where the disk was full for a moment, from the layers that are there.

        A build needs 17 GB for a while, which podman keeps three times. It tells a full disk as a closed pipe.
        """
        done = self._compose("build", "backend", timeout_s=1500)
        if done.returncode != 0 and any(words in done.stdout + done.stderr for words in FULL_DISK):
            done = self._compose("build", "backend", timeout_s=1500)
        if done.returncode != 0:
            free_gib = shutil.disk_usage("/").free / 2**30
            said = f"{done.stdout}\n{done.stderr}"
            pytest.fail(f"the build ended with {done.returncode}, {free_gib:.0f} GiB are free:\n{said}")

    def start(self) -> None:
        self.compose("up", "--detach", *SERVICES)
        self.wait_until_ready()

    def remove(self) -> None:
        self.compose("down", "--volumes")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON answer to a request that must succeed."""
        answer = httpx.post(f"{self.url}{path}", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def upload(self, path: str, page: bytes) -> dict[str, Any]:
        """The JSON answer to a PNG that must be taken."""
        answer = httpx.post(f"{self.url}{path}", files={"file": ("page.png", page, "image/png")}, timeout=120)
        assert answer.status_code in {200, 202}, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def get(self, path: str) -> dict[str, Any]:
        """The JSON answer to a question that must succeed."""
        answer = httpx.get(f"{self.url}{path}", timeout=30)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def vector(self, text: str) -> list[float]:
        told: list[float] = self.post("/v1/embeddings", {"input": text})["data"][0]["embedding"]
        return told

    def keeps_ending(self) -> bool:
        """A start that fails is tried again and again; three times tell enough."""
        return int(self.said("inspect", "--format", "{{.RestartCount}}", BACKEND)) > 3

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/ready", timeout=10).status_code == 200
        except httpx.HTTPError:
            return False

    def wait_until_ready(self) -> None:
        until(lambda: self.is_ready() or self.keeps_ending(), within_s=_READY_S, what=f"{self.url} is ready")
        if not self.is_ready():
            logs = self.plain("logs", "--tail", "40", BACKEND)
            pytest.fail(f"{BACKEND} keeps ending:\n{logs.stdout}{logs.stderr}")

    def metric(self, line: str) -> float:
        """The value of one line of /metrics, named with its labels; 0 where it is not there."""
        for told in httpx.get(f"{self.url}/metrics", timeout=10).text.splitlines():
            if told.startswith(f"{line} "):
                return float(told.rpartition(" ")[2])
        return 0.0

    def redis(self, *command: str) -> str:
        return self.said("exec", REDIS, "redis-cli", *command)

    def kept_vectors(self) -> list[str]:
        """Their keys in Redis; a page that was read is kept like one."""
        return self.redis("--scan", "--pattern", "financia:vector:*").split()

    def is_healthy(self, container: str) -> bool:
        """By the container's own health check; podman runs it when asked, Docker by itself."""
        if self.engine.name == "podman":
            return self.plain("healthcheck", "run", container).returncode == 0
        return self.said("inspect", "--format", "{{.State.Health.Status}}", container) == "healthy"

    def prometheus(self, path: str) -> dict[str, Any]:
        answer = httpx.get(f"http://127.0.0.1:{self.prometheus_port}/api/v1/{path}", timeout=10)
        told: dict[str, Any] = answer.json()["data"]
        return told
