"""Ways to run the service on one port: one process, HTTP workers, or replicas behind deploy/haproxy/haproxy.cfg."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.peers import ROOT, Peer, PeerError, ours, running
from benchmarks.soak.cluster import PLACES, free_ports

# Vectors alone: what else is loaded costs each process the same memory.
_SETTINGS = {"NER_MODEL": "none", "SPEECH_MODEL": "none", "OCR_ENGINE": "tesseract"}
_NO_ENGINE = {"RUNTIME": "onnx", "PRECISION": "exact"}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way to run the service."""

    name: str
    replicas: int = 1
    proxied: bool = False  # behind HAProxy, also where there is one replica
    settings: Mapping[str, str] | None = None  # of each replica


@dataclass(frozen=True, slots=True)
class Running:
    """An arrangement that answers on ``port``."""

    arrangement: Arrangement
    port: int
    pids: tuple[int, ...]  # of the replicas and the proxy

    def memory_bytes(self) -> int:
        """What all processes take: each page that several share is divided among them (PSS)."""
        return sum(process.memory_full_info().pss for process in self._processes())

    def cpu_s(self) -> float:
        """Processor time of all processes so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        roots = [psutil.Process(pid) for pid in self.pids]
        return [each for root in roots for each in (root, *root.children(recursive=True))]


@dataclass(frozen=True, slots=True)
class Engine:
    """What computes the vectors."""

    name: str
    module: str  # that is started
    settings: Mapping[str, str]


BUNDLED = Engine("the bundled encoder", "backend.main", {})
FREE = Engine("an encoder that costs nothing", "benchmarks.fast_engine_app", _NO_ENGINE)


@contextmanager
def run_arrangement(arrangement: Arrangement, engine: Engine, state: Path, logs: Path) -> Iterator[Running]:
    """Start it, and stop it at the end; each engine has a folder of its own in ``state``. Raises: PeerError."""
    own_state = state / engine.name.replace(" ", "-")  # what one engine's batches cost is no other's
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running(_peer(arrangement, engine, index, own_state), logs))
            for index in range(arrangement.replicas)
        ]
        pids = tuple(server.pid for server in servers)
        if not arrangement.proxied:
            yield Running(arrangement, servers[0].port, pids)
            return
        port, proxy_pid = stack.enter_context(_proxy([server.port for server in servers], logs))
        yield Running(arrangement, port, (*pids, proxy_pid))


def _peer(arrangement: Arrangement, engine: Engine, index: int, state: Path) -> Peer:
    settings = {**_SETTINGS, **engine.settings, **(arrangement.settings or {})}
    name = f"{engine.name}-{arrangement.name}-{index}".replace(" ", "-")
    peer = ours(state, name=name, **settings)
    return replace(peer, argv=(sys.executable, "-m", engine.module), settling=())


@contextmanager
def _proxy(ports: list[int], logs: Path) -> Iterator[tuple[int, int]]:
    """HAProxy before servers on these ports; its own port and its process id."""
    haproxy = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if haproxy is None:
        raise PeerError("haproxy is not installed (tools/system_packages.sh installs it)")
    port, *unused = free_ports(1 + PLACES - len(ports))
    addresses = {f"REPLICA_{place}": f"127.0.0.1:{each}" for place, each in enumerate([*ports, *unused], 1)}
    config = _quiet_config()
    with (logs / "haproxy.log").open("ab") as output:
        process = subprocess.Popen(
            [haproxy, "-db", "-f", str(config)],
            cwd=ROOT,
            env={**os.environ, **addresses, "PROXY_ADDRESS": f"127.0.0.1:{port}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield port, process.pid
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        config.unlink()


def _quiet_config() -> Path:
    """The project's configuration without its log of every request, as our own servers keep none here."""
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text(encoding="utf-8")
    with tempfile.NamedTemporaryFile("w", suffix=".cfg", delete=False) as stream:
        stream.write(text.replace("    option httplog\n", "    option dontlog-normal\n"))
    return Path(stream.name)
