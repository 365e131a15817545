"""The server process: start, failing start, shutdown and exit codes."""

import asyncio
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image

from backend import main as main_module
from backend.api.traffic import Traffic
from backend.config import Settings
from backend.processes.http_server import OTHER_FILES, DrainingServer, connections_within, server_config
from backend.telemetry import Telemetry
from tests.clients import server
from tests.files.pdfs import pdf, picture

ROOT = Path(__file__).resolve().parents[1]
RUN = ("-m", "backend.main")
QUICK = {"NER_MODEL": "none", **server.QUICK}
READY = re.compile(r"running on http://127\.0\.0\.1:(\d+)")
MEASURING = "measuring beside the service"
pytestmark = pytest.mark.timeout(600)  # the machine may be busy
PRINTS_ITS_CLOSE = """
import sys
import backend.main, backend.bootstrap.services
close = backend.bootstrap.services.Services.close
async def printing(self):
    await close(self)
    print("services closed", file=sys.stderr, flush=True)
backend.bootstrap.services.Services.close = printing
sys.exit(backend.main.main())
"""
INK = np.full((20, 30), 255, np.uint8)  # 1200 x 800 with a diagonal of forty
LOSES_ITS_DEVICE = """
import sys
import backend.main
from backend.models.onnx_encoder import OnnxEncoder
forward = OnnxEncoder.forward
def lose(self, batch):
    if (batch.ids == 70).sum() > 100:  # the piece of "the"
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return forward(self, batch)
OnnxEncoder.forward = lose
sys.exit(backend.main.main())
"""


class Process:
    """A service in a process; a thread reads its log until the process ends."""

    def __init__(self, state_dir: Path, *arguments: str, **settings: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
        self._process = subprocess.Popen(
            [sys.executable, *(arguments or RUN)],
            cwd=ROOT,
            env={**environment, "HF_HUB_OFFLINE": "1", "STATE_DIR": str(state_dir), "PORT": "0", **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._more = threading.Condition()
        self.port = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def log(self) -> str:
        """Its output so far."""
        return "".join(self._lines)

    def ready(self, timeout_s: float = 400.0) -> int:
        """Wait until it listens; returns its port."""
        assert self._ready.wait(timeout_s), f"never ready:\n{self.log}"
        assert self.port, f"ended instead of listening:\n{self.log}"
        return self.port

    def says(self, words: str, times: int = 1) -> None:
        """Wait until so many lines of its log have these words."""
        with self._more:
            assert self._more.wait_for(lambda: sum(words in line for line in self._lines) >= times, 300), self.log

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self, timeout_s: float = 300.0) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        code = self._process.wait(timeout_s)
        self._reader.join(10)
        return code

    def end(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self.ended()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()
            if (match := READY.search(line)) is not None:
                self.port = int(match[1])
                self._ready.set()
        self._ready.set()


@pytest.fixture
def run(state_dir: Path) -> Iterator[Callable[..., Process]]:
    """Start the service with settings: ``run(PRECISION="exact")``."""
    processes: list[Process] = []

    def start(*arguments: str, **settings: str) -> Process:
        processes.append(Process(state_dir, *arguments, **settings))
        return processes[-1]

    yield start
    for process in processes:
        process.end()


def ask(connection: http.client.HTTPConnection, texts: list[str]) -> http.client.HTTPResponse:
    """Send one request; returns the response, its body not yet read."""
    body = json.dumps({"input": texts, "model": "bundled"})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    return connection.getresponse()


@dataclass
class Client:
    """Sends requests one after another on a kept connection, until the server closes it."""

    port: int
    number: int
    texts: int
    answered: int = 0
    told_to_close: bool = False
    lost: list[str] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.connect()
        while not self.told_to_close and not self.lost:
            texts = [f"factura {self.number} {self.answered} {index}" for index in range(self.texts)]
            try:
                answer = ask(connection, texts)
                vectors = json.loads(answer.read())["data"]
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.lost.append(f"request {self.answered}: {error!r}")
                break
            if answer.status != 200 or len(vectors) != self.texts:
                self.lost.append(f"request {self.answered}: {answer.status} with {len(vectors)} vectors")
            self.answered += 1
            self.told_to_close = (answer.getheader("connection") or "").lower() == "close"
            if self.answered == 2:
                self.started.set()
        self.started.set()
        connection.close()


def stopped_under_load(process: Process, count: int, texts: int) -> list[Client]:
    """What so many clients saw of a service that was told to stop while each sent requests."""
    port = process.ready()
    clients = [Client(port, number, texts) for number in range(count)]
    threads = [threading.Thread(target=client.work) for client in clients]
    for thread in threads:
        thread.start()
    for client in clients:
        assert client.started.wait(300)
    process.signal(signal.SIGTERM)
    for thread in threads:
        thread.join(300)
    return clients


# The server's limits


@pytest.mark.parametrize(
    ("files", "allowed", "raised_to"),
    [
        pytest.param((20_000, 20_000), 2000, None, id="enough"),
        pytest.param((1024, 8192), 2000, 2 * 2000 + OTHER_FILES, id="raised-for-connections-and-uploads"),
        pytest.param((1024, resource.RLIM_INFINITY), 2000, 2 * 2000 + OTHER_FILES, id="no-hard-limit"),
        pytest.param((1024, 2512), 1000, 2512, id="as-far-as-it-goes"),
        pytest.param((256, 256), 1, 256, id="hardly-any"),
        pytest.param((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 2000, None, id="no-limit"),
    ],
)
def test_connections_fit_the_open_files(monkeypatch, caplog, files, allowed, raised_to):
    """Without a free descriptor nobody is answered: the limit of files is raised, or that of connections falls."""
    changes = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: files)
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: changes.append(limits))

    assert allowed == connections_within(2000)
    assert changes == ([] if raised_to is None else [(raised_to, files[1])])
    assert (allowed < 2000) == ("fewer connections" in caplog.text)


def test_connections_are_kept_as_set():
    """For 75 s unless set: longer than the 60 s of most balancers, which otherwise use a connection just closed."""
    app: Any = object()
    kept_s = [
        server_config(app, settings, Telemetry(), Traffic()).timeout_keep_alive
        for settings in (Settings(_env_file=None), Settings(_env_file=None, keep_alive_s=619.5))
    ]

    assert [75, 620] == kept_s


# Starts


@pytest.mark.slow
def test_sigterm_ends_a_start_cleanly_also_while_it_measures(run, tmp_path):
    """Requests are answered before anything is measured; SIGTERM ends it with 0 after the services are closed."""
    logs, codes = [], []
    for measures in (True, False):
        process = run("-c", PRINTS_ITS_CLOSE, STATE_DIR=str(tmp_path), **QUICK | {"MEASURE_WHEN_IDLE": "true"})
        connection = http.client.HTTPConnection("127.0.0.1", process.ready(), timeout=300)
        answer = ask(connection, ["la factura"])
        assert 200 == answer.status
        assert 384 == len(json.loads(answer.read())["data"][0]["embedding"])
        connection.close()
        if measures:
            process.says(MEASURING)
        process.signal(signal.SIGTERM)
        codes.append(process.ended())
        logs.append(process.log)

    assert [0, 0] == codes
    assert not any(word in log for log in logs for word in ("Traceback", "never awaited", "WARNING"))
    assert all("draining" in log for log in logs)
    assert all("services closed" in log for log in logs), "Services.close never ran: pending writes to Redis are lost"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            {"PORT": "eighty", "PRECISION": "fp8", "LIMIT_INPUTS": "0", "CACHE_TTL_S": "-1"},
            ["PORT", "'eighty'", "PRECISION", "'fp8'", "LIMIT_INPUTS", "CACHE_TTL_S"],
            id="every-bad-setting",
        ),
        pytest.param({"DEVICE": "cuda:63"}, ["DEVICE=cuda:63, but"], id="no-such-device"),
        pytest.param({"DEVICE": "cpu", "EMBEDDING_MODEL": "/no/such/model"}, ["/no/such/model"], id="no-such-model"),
        pytest.param({"DEVICE": "cpu", "PRECISION": "fp16"}, ["PRECISION=fp16"], id="unsupported-precision"),
    ],
)
def test_a_start_that_fails_says_why_in_one_line(run, settings, words):
    """Exit code 2, every fault at once, no traceback."""
    process = run(**settings)

    assert 2 == process.ended()
    [reason] = [line for line in process.log.splitlines() if line.startswith("financia: ")]
    assert all(word in reason for word in words)
    assert "Traceback" not in process.log


@pytest.mark.slow
def test_a_port_that_is_taken(run):
    """The log has the address, the exit code is not 0, and there is no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = run(PORT=str(taken.getsockname()[1]), **QUICK)

        assert process.ended() not in (0, -9)
        assert "address already in use" in process.log.lower()
        assert str(taken.getsockname()[1]) in process.log
        assert "Traceback" not in process.log


# Ends


@pytest.mark.slow
@pytest.mark.parametrize(("count", "texts"), [(8, 1), (4, 24)], ids=["many-small", "few-large"])
def test_sigterm_under_load_loses_no_request(run, count, texts):
    """Every request on a kept connection gets its whole answer; the last one has "Connection: close"."""
    process = run(**QUICK)
    clients = stopped_under_load(process, count, texts)
    process.ended()

    assert [[]] * count == [client.lost for client in clients]
    assert all(client.told_to_close for client in clients)
    assert all(client.answered >= 2 for client in clients)
    assert "Traceback" not in process.log


@pytest.mark.slow
def test_sigterm_with_a_running_request(run):
    """A request that takes longer than the grace period is finished before the process ends."""
    process = run(**QUICK)
    connection = http.client.HTTPConnection("127.0.0.1", process.ready(), timeout=300)
    body = json.dumps({"input": [f"{number} la factura de marzo " * 12 for number in range(300)], "model": "bundled"})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    other = http.client.HTTPConnection("127.0.0.1", process.port, timeout=300)
    other.request("GET", "/metrics")
    other.getresponse().read()  # the large request was sent before this one was answered
    process.signal(signal.SIGTERM)
    answer = connection.getresponse()

    assert 200 == answer.status
    assert 300 == len(json.loads(answer.read())["data"])
    connection.close()
    other.close()
    process.ended()


@pytest.mark.slow
def test_a_lost_device_ends_the_process(run):
    """The caller gets 503 device_lost, and the process ends by itself with 3."""
    process = run("-c", LOSES_ITS_DEVICE, **QUICK)
    connection = http.client.HTTPConnection("127.0.0.1", process.ready(), timeout=300)
    answer = ask(connection, ["the " * 150])
    problem = json.loads(answer.read())
    connection.close()

    assert (503, "device_lost") == (answer.status, problem["code"])
    assert "illegal memory access" in problem["detail"]
    assert 3 == process.ended()
    assert "device lost" in process.log
    assert "services closed" in process.log


@pytest.mark.slow
def test_a_card_that_is_not_there(run):
    """Exit code 2 with the option that asked for it."""
    process = run(*RUN, "--gpu", "63")

    assert 2 == process.ended()
    [reason] = [line for line in process.log.splitlines() if line.startswith("financia: ")]
    assert "--gpu 63" in reason
    assert "Traceback" not in process.log


@pytest.mark.slow
def test_foreign_state_files_do_not_stop_the_start(run, tmp_path):
    """They are ignored, and the log says so; their contents are tested in tests/device."""
    (tmp_path / "gpu.json").write_text('{"version": 99}')
    (tmp_path / "tuning.json").write_text("{")
    process = run(STATE_DIR=str(tmp_path), **QUICK)
    process.ready()
    process.signal(signal.SIGTERM)

    assert 0 == process.ended()
    assert "Traceback" not in process.log
    assert "the tuning file cannot be read; measuring again" in process.log
    assert "gpu.json" in process.log


async def test_jobs_are_handed_over_while_requests_are_still_answered(monkeypatch):
    """Before the port closes: another replica begins at once. Event streams end when no client can come back here."""
    steps: list[str] = []

    class Services:
        async def hand_over(self) -> None:
            steps.append("jobs")

    class Streams:
        def end(self) -> None:
            steps.append("streams")

    async def close_sockets(_server, sockets=None):
        steps.append(f"sockets {sockets}")

    async def grace(seconds):
        await turn()
        steps.append(f"grace {seconds:g}")

    state = SimpleNamespace(draining=False, streams=Streams(), services=Services())
    turn = partial(asyncio.sleep, 0)
    monkeypatch.setattr(uvicorn.Server, "shutdown", close_sockets)
    monkeypatch.setattr("backend.processes.http_server.asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": grace}))
    server = DrainingServer(uvicorn.Config(lambda: None, log_config=None), SimpleNamespace(state=state))
    await server.shutdown()

    assert ["jobs", "grace 1", "streams", "sockets None"] == steps
    assert state.draining


@pytest.mark.slow
@pytest.mark.redis
def test_sigterm_hands_a_running_job_to_another_replica(run, redis_server):
    """At once, while the replica that was told to stop still finishes a request; the job loses no attempt."""
    stopping = run(**QUICK, REDIS_URL=redis_server.url)
    stopping.ready()
    other = run(**QUICK, REDIS_URL=redis_server.url)
    file = pdf(*[picture(1200, 800)] * 20, image=Image.fromarray(np.kron(np.eye(40, dtype=np.uint8), INK)))
    url, other_url = (f"http://127.0.0.1:{process.ready()}/v1/jobs" for process in (stopping, other))
    job = httpx.post(f"{url}?features=text", content=file, headers={"Content-Type": "application/pdf"}).json()
    with httpx.stream("GET", f"{other_url}/{job['id']}/events", timeout=300) as events:
        lines = events.iter_lines()
        while "event: page" not in next(lines):
            pass
        stopping.signal(signal.SIGTERM)
        assert 0 == stopping.ended()
        for _ in lines:  # to the job's end
            pass
    ended = httpx.get(f"{other_url}/{job['id']}?result=false").json()

    assert ("succeeded", 1, None) == (ended["status"], ended["attempts"], ended["error"])
    assert 20 == ended["progress"]["pages_done"]
    assert "Traceback" not in stopping.log + other.log


@pytest.mark.parametrize(("options", "level"), [([], "WARNING"), (["--verbose"], "DEBUG")])
def test_verbose_logs_everything(options, level, monkeypatch):
    levels = []
    monkeypatch.setenv("LOG_LEVEL", "WARNING")
    monkeypatch.setattr(main_module, "configure_logging", lambda found, _format: levels.append(found))
    monkeypatch.setattr(main_module.uvloop, "run", lambda served: served.close() or 0)

    assert 0 == main_module.main(options)
    assert [level] == levels
