"""The compared servers: how each is started with its best settings, polled until ready, and stopped."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from backend.errors import ModelUnavailable
from backend.models.model_files import BUNDLED, resolve
from benchmarks.machine import ROOT, program_of

MODEL = "bundled"  # the name every server answers to, so that all get the same request bytes
OURS = "ours"
# name -> EMBEDDING_MODEL: this service with another encoder of its own, for its speed beside the default's.
OTHER_ENCODERS = {
    "ours-fast": "bundled-fast",
    "ours-static": "bundled-static",
    "ours-minilm": "minilm",
}

_INFINITY = "infinity-emb[server,torch]==0.0.78"
_TORCH = "torch==2.13.0"  # first and alone: otherwise infinity's other requirements choose the version
# name -> dtype, maximum batch. The best one depends on the load, so all take part; what else was tried, and
# its results, is in README.md beside this file.
INFINITY_SETTINGS = {
    "infinity-fp32": ("float32", 32),
    "infinity-bf16": ("bfloat16", 32),
    "infinity-bf16-b8": ("bfloat16", 8),
    "infinity-int8": ("int8", 32),
}

_REST_S, _REST_PERCENT = 3.0, 10.0  # a process that used less of a core for so long rests
_READY_TIMEOUT_S = 600.0  # a first start may measure runtimes, and takes minutes where the machine is busy
_SETTLING = (
    ("/v1/classifiers", b'"pending"'),
    ("/v1/system", b'"is_provisional":true'),
    ("/v1/system", b"not measured here yet"),
)
_STOP_TIMEOUT_S = 20.0
_POLL_INTERVAL_S = 0.02


class PeerError(RuntimeError):
    """A server ended or did not become ready in time."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to compare. ``{port}`` in ``argv`` and ``env`` is replaced by its port."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ready_path: str = "/health/ready"
    # Where a service tells what it still learns or measures in the background, and in which words.
    settling: tuple[tuple[str, bytes], ...] = ()
    cwd: Path = ROOT  # another checkout: its package is the one that is imported


@dataclass(frozen=True, slots=True)
class Server:
    """A running peer that is ready."""

    peer: Peer
    port: int
    pid: int
    ready_s: float  # from the start of its process to its first ready response

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def model_folder(source: str = "") -> Path:
    """The sentence-transformers folder that this service reads its encoder from; the other servers get it as it is.

    Args:
        source: as EMBEDDING_MODEL; unset: what EMBEDDING_MODEL says, else the bundled encoder.
    """
    return resolve(source or os.environ.get("EMBEDDING_MODEL", BUNDLED)).folder


def other_encoders() -> list[str]:
    """The names of OTHER_ENCODERS that are installed and are not what EMBEDDING_MODEL serves anyway."""
    served = model_folder()
    return [name for name, source in OTHER_ENCODERS.items() if _folder_or_none(source) not in (None, served)]


def _folder_or_none(source: str) -> Path | None:
    try:
        return model_folder(source)
    except ModelUnavailable:
        return None


def ours(state: Path, *, name: str = OURS, **settings: str) -> Peer:
    """This service; ``state`` holds its tuning between starts, ``settings`` are its environment variables."""
    env = {
        "HOST": "127.0.0.1",
        "PORT": "{port}",
        "MODEL_PROFILE": "bundled",
        "STATE_DIR": str(state),
        "LOG_LEVEL": "WARNING",
        "CACHE_ENABLED": "false",
        "MODEL_ALIASES": MODEL,  # an EMBEDDING_MODEL of the environment answers to it too
    }
    return Peer(name, (sys.executable, "-m", "backend.main"), env | settings, settling=_SETTLING)


def bare_fastapi() -> Peer:
    """sentence-transformers behind a minimal FastAPI app; see bare_app.py."""
    return uvicorn("fastapi", "benchmarks.bare_app:app", {"BENCHMARK_MODEL": str(model_folder())})


def constant(kind: str, body: Path) -> Peer:
    """A route that returns the bytes of ``body``, in a ``bare`` FastAPI app or inside ``ours``; see constant_app.py."""
    return uvicorn(f"constant-{kind}", f"benchmarks.constant_app:{kind}", {"BENCHMARK_BODY": str(body)}, "--factory")


def uvicorn(name: str, app: str, env: Mapping[str, str], *flags: str) -> Peer:
    """An app of this folder behind uvicorn, quiet as our own server is."""
    quiet = ("--log-level=warning", "--no-access-log", "--no-server-header")
    argv = (sys.executable, "-m", "uvicorn", app, "--host=127.0.0.1", "--port={port}", *quiet, *flags)
    return Peer(name, argv, env, "/health/ready")


def infinity(name: str, venv: Path, home: Path) -> Peer:
    """A server of infinity with one of the fastest settings; ``venv`` is made for it, ``home`` holds its caches."""
    dtype, batch_size = INFINITY_SETTINGS[name]
    engine_flags = (
        f"--engine=torch --device=cpu --dtype={dtype} --batch-size={batch_size} --no-compile --no-bettertransformer"
    )
    server_flags = f"--host=127.0.0.1 --port={{port}} --url-prefix=/v1 --served-model-name={MODEL} --log-level=error"
    argv = (
        str(program_of(venv, "infinity_emb", [_TORCH], [_INFINITY])),
        "v2",
        f"--model-id={model_folder()}",
        *engine_flags.split(),
        *server_flags.split(),
    )
    env = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "INFINITY_HOME": str(home)}
    return Peer(name, argv, env, "/health")


@contextlib.contextmanager
def running(peer: Peer, logs: Path) -> Iterator[Server]:
    """Start ``peer`` on a free port, wait until it is ready and at rest, and stop it with its children at the end.

    Its output goes to ``logs/<name>.log``. Raises PeerError.
    """
    port = _free_port()
    argv = [part.replace("{port}", str(port)) for part in peer.argv]
    env = os.environ | {key: value.replace("{port}", str(port)) for key, value in peer.env.items()}
    with log_of(peer, logs).open("ab") as output:
        started_s = time.monotonic()
        process = subprocess.Popen(
            argv, cwd=peer.cwd, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        _wait_ready(process, f"http://127.0.0.1:{port}{peer.ready_path}")
        server = Server(peer, port, process.pid, time.monotonic() - started_s)
        for path, sign in peer.settling:
            _wait_settled(process, server.url(path), sign)
        _wait_rested(process.pid)
        yield server
    except (OSError, subprocess.CalledProcessError) as error:
        if process.poll() is None:
            raise
        raise PeerError(f"ended with status {process.returncode} while it was measured") from error
    finally:
        _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    """Poll the readiness URL. Raises: PeerError."""
    deadline_s = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise PeerError(f"ended with status {process.returncode} before it was ready")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:
            if response.status == 200:
                return
        time.sleep(_POLL_INTERVAL_S)
    raise PeerError(f"not ready after {_READY_TIMEOUT_S:.0f} s")


def _wait_settled(process: subprocess.Popen[bytes], url: str, sign: bytes) -> None:
    """Wait until no classifier is learnt and no runtime is measured any more: minutes, once a state folder."""
    deadline_s = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with urllib.request.urlopen(url, timeout=30) as response:
            if sign not in response.read():
                return
        time.sleep(60)  # an answer is work, and what is measured waits, or is measured anew, when there is some
    raise PeerError(f"still learning or measuring after {_READY_TIMEOUT_S:.0f} s, or ended")


def _wait_rested(pid: int) -> None:
    """Wait until the process does nothing: after it is ready ours loads and compiles for some seconds more."""
    process, deadline_s = psutil.Process(pid), time.monotonic() + _READY_TIMEOUT_S
    with contextlib.suppress(psutil.NoSuchProcess):  # whoever measures it finds out
        while process.cpu_percent(_REST_S) > _REST_PERCENT and time.monotonic() < deadline_s:
            pass


def log_of(peer: Peer, logs: Path) -> Path:
    """The file for the output of a peer started by ``running``."""
    return logs / f"{peer.name}.log"


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.terminate()
        process.wait(_STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):  # the server ended with all its children
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and all its descendants; shared memory counts in each."""
    process = psutil.Process(pid)
    total = 0
    for member in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a child may end meanwhile
            total += member.memory_info().rss
    return total
