"""The real service in a process of its own, for tests that need a socket."""

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

import httpx
import pytest

# The first test waits for the service to start. Connections that the clients leave open are their fault.
MARKS = [pytest.mark.clients, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::ResourceWarning")]
# Nothing to measure; tests/bootstrap/test_services.py starts with the defaults.
QUICK = {"RUNTIME": "onnx", "PRECISION": "exact", "MEASURE_WHEN_IDLE": "false"}
ROOT = Path(__file__).resolve().parents[2]
START_S = 240.0  # the first start measures the machine, which may be busy; below the timeout of these tests
STOP_S = 60.0
LOG_S = 60.0  # for a line about what has happened
_LISTENING = re.compile(r"running on (http://[\d.]+:\d+)")


@dataclass
class LiveServer:
    """A running service. ``log`` grows while it runs."""

    url: str
    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_logged(self, text: str) -> str:
        """The first line with this text, once it is there."""
        with self.changed:
            found = self.changed.wait_for(lambda: next((line for line in self.log if text in line), ""), LOG_S)
        assert found, f"not logged within {LOG_S:g} s: {text}\n{''.join(self.log)}"
        return found

    def client(self, **options: object) -> httpx.Client:
        """An HTTP client whose paths are relative to the service."""
        return httpx.Client(base_url=self.url, timeout=60.0, **options)  # type: ignore[arg-type]


@contextmanager
def run_server(state_dir: Path, **settings: str) -> Iterator[LiveServer]:
    """``python -m backend.main`` with the bundled model on a free port, ready; stopped with SIGTERM afterwards.

    The service's log says when and where it listens. ``settings`` are environment variables. Its state folder is a new
    one in ``state_dir``: another test file must not find the collections that this one leaves.
    """
    own = Path(tempfile.mkdtemp(dir=state_dir))
    environment = {**os.environ, "HOST": "127.0.0.1", "PORT": "0", "STATE_DIR": str(own), "LOG_LEVEL": "INFO"}
    process = subprocess.Popen(
        [sys.executable, "-m", "backend.main"],
        cwd=ROOT,
        env={**environment, "HF_HUB_OFFLINE": "1", **settings},
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: Queue[str | None] = Queue()
    server = LiveServer("", process)
    reader = threading.Thread(target=_read, args=(server, lines), daemon=True)
    reader.start()
    try:
        server.url = _wait_for_address(server, lines)
        with server.client() as client:
            client.get("/health/ready").raise_for_status()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()


def _read(server: LiveServer, lines: Queue[str | None]) -> None:
    stderr = server.process.stderr
    assert stderr is not None
    with stderr:
        for line in stderr:
            with server.changed:
                server.log.append(line)
                server.changed.notify_all()
            lines.put(line)
    lines.put(None)


def _wait_for_address(server: LiveServer, lines: Queue[str | None]) -> str:
    while True:
        try:
            line = lines.get(timeout=START_S)
        except Empty:
            line = None
        if line is None:
            raise RuntimeError("the service did not start:\n" + "".join(server.log))
        if match := _LISTENING.search(line):
            return match[1]
