"""The service under Ray Serve, for real: two replicas on this machine behind HAProxy."""

import http.client
import importlib.util
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from PIL import Image

from backend.scaleout import EXIT_RAY_LOST
from tests.clients import server
from tests.conftest import absent
from tests.files.pdfs import pdf, picture
from tests.processes.test_service import CALLS, without_id
from tests.redis_server import RedisServer
from tests.test_main import Process

# Ray's processes take a core while they start, and give up where others take both.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.ray, pytest.mark.redis, pytest.mark.timeout(1800)]

SETTINGS = {
    "NER_MODEL": "none",
    "SPEECH_MODEL": "none",
    "OCR_ENGINE": "tesseract",
    "LIMIT_REQUEST_S": "600",
    **server.QUICK,
}
RUN = ("-m", "backend.scaleout", "--cpus", "1")
START_S = 600.0
WAIT_S = 600.0  # for what takes seconds on a quiet machine
INK = np.full((20, 30), 255, np.uint8)
PAGES = 12
LARGE_QUEUE = 100_000  # tokens: many seconds of a lane
_NUMBERS = itertools.count()
# Headers that Ray's server adds, and that count what happened before.
OTHERS = {"server", "connection", "date", "server-timing", "x-request-id"}


class Cluster(Process):
    """``python -m backend.scaleout`` with ports of its own: another cluster may run on this machine."""

    def __init__(self, state_dir: Path, *arguments: str, **settings: str) -> None:
        ports = free_ports(5)
        places = {
            "PORT": str(ports[0]),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(ports[1]),
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports[2]),
            "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(ports[3]),
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports[4]),
        }
        super().__init__(state_dir, *RUN, *arguments, **places, **SETTINGS, **settings)

    @property
    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=WAIT_S)

    def children(self) -> list[psutil.Process]:
        found = []
        for each in psutil.Process(self._process.pid).children(recursive=True):
            try:
                found.append(each) if each.status() != psutil.STATUS_ZOMBIE else None
            except psutil.NoSuchProcess:
                continue
        return found

    def end(self) -> None:
        """Kill it with all that Ray has started."""
        left = self.children() if self._process.poll() is None else []
        super().end()
        for each in left:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; held together, so that all differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module", autouse=True)
def _ray() -> None:
    if importlib.util.find_spec("ray") is None:
        absent("ray is not installed (make serve-ray, or make test-ray, installs it)")


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    redis = RedisServer(tmp_path_factory.mktemp("redis"))
    redis.start()
    yield redis
    redis.kill()


@pytest.fixture(scope="module")
def two(state_dir: Path, redis_server: RedisServer) -> Iterator[Cluster]:
    """Two replicas behind HAProxy, whose jobs are in Redis."""
    cluster = Cluster(state_dir, REDIS_URL=redis_server.url, JOB_WORKERS="1", CACHE_ENABLED="false")
    cluster.ready(START_S)
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def plain(state_dir: Path) -> Iterator[Process]:
    """The service without Ray."""
    process = Process(state_dir, CACHE_ENABLED="false", **SETTINGS)
    process.ready(START_S)
    yield process
    process.end()


def scans(pages: int = PAGES) -> bytes:
    """A file whose pages are read by OCR; no two are the same, as a job of the same file is the same job."""
    page = picture(300, 200)
    return pdf(*[page] * pages, image=Image.fromarray(INK)) + f"% {next(_NUMBERS)}".encode()


def send_job(client: httpx.Client, pages: int = PAGES) -> str:
    answer = client.post("/v1/jobs", files={"file": ("scan.pdf", scans(pages))})
    assert 202 == answer.status_code, answer.text
    return str(answer.json()["id"])


def ended(client: httpx.Client, job: str) -> dict[str, Any]:
    """Wait for the end of a job."""
    found: dict[str, Any] = {}

    def asked() -> bool:
        answer = client.get(f"/v1/jobs/{job}")  # an error of Ray while a replica dies
        found.update(answer.json() if answer.status_code == 200 else {})
        return found.get("status") in {"succeeded", "failed", "cancelled"}

    wait_until(asked, f"the end of {job}")
    return found


def all_replicas(client: httpx.Client, count: int, *, but: frozenset[str] = frozenset()) -> frozenset[str]:
    """Ask until so many replicas have answered, other than ``but``."""
    seen: set[str] = set()

    def asked() -> bool:
        answer = client.get("/v1/system")
        if answer.status_code == 200:
            seen.add(answer.json()["ray"]["replica"])
        return len(seen - but) >= count

    wait_until(asked, f"{count} replicas besides {sorted(but)}")
    return frozenset(seen - but)


# Answers


def test_answers_are_those_of_the_plain_service(two, plain):
    """Bit for bit, errors included; and nothing but Ray's own headers is added."""
    with httpx.Client(base_url=f"http://127.0.0.1:{plain.port}", timeout=WAIT_S) as alone, two.client as ray:
        calls = CALLS * 2  # HAProxy takes turns
        expected = [alone.post(path, json=body) for path, body in calls]
        actual = [ray.post(path, json=body) for path, body in calls]

    assert [answer.status_code for answer in expected] == [answer.status_code for answer in actual]
    assert [without_id(answer) for answer in expected] == [without_id(answer) for answer in actual]
    assert [set(answer.headers) - OTHERS for answer in expected] == [set(answer.headers) - OTHERS for answer in actual]


def test_every_route_answers(two):
    """Whatever it says of a request without a body: the service says it, and not Ray."""
    with two.client as client:
        paths = client.get("/openapi.json").json()["paths"]
        answers = {
            (method, path): client.request(method, path.replace("{", "").replace("}", ""))
            for path, methods in paths.items()
            for method in methods
        }
        health = client.get("/-/healthz")

    assert [] == [
        (method, path, answer.status_code, answer.text[:80])
        for (method, path), answer in answers.items()
        if "server-timing" not in answer.headers or (answer.status_code >= 500 and not writes_files(path, answer))
    ]
    assert "success" == health.text


def writes_files(path: str, answer: httpx.Response) -> bool:
    """Whether it is refused because files lie in a folder, without SEARCH_URL, that one replica writes."""
    return path.startswith(("/v1/files", "/v1/vector_stores")) and 503 == answer.status_code


def test_one_request_id(two):
    """Ray and the service both write one; an answer has one."""
    with two.client as client:
        own = client.get("/v1/models", headers={"X-Request-Id": "mine-1"})
        given = client.post("/v1/embeddings", json={"input": []})

    assert ["mine-1"] == own.headers.get_list("x-request-id")
    assert [given.json()["request_id"]] == given.headers.get_list("x-request-id")


def test_two_replicas_take_part(two):
    with two.client as client:
        assert 2 == len(all_replicas(client, 2))


# What goes through the proxy


def test_uploads_and_their_limits(two):
    """Bodies in chunks, far larger than a buffer of the proxy, and refused before all of it was sent."""

    def chunks() -> Iterator[bytes]:
        yield b'{"input": "texto", '
        yield b'"model": "bundled"}'

    with two.client as client:
        json_type = {"content-type": "application/json"}
        chunked = client.post("/v1/embeddings", content=chunks(), headers=json_type)
        large = client.post("/v1/documents", files={"file": ("scan.pdf", scans(1) + b"%" * 30_000_000)})
        over = client.post("/v1/embeddings", content=b'{"input": "' + b"a" * 17 * 2**20, headers=json_type)

    assert 200 == chunked.status_code
    assert 200 == large.status_code, large.text
    assert (413, "too_large") == (over.status_code, over.json()["code"])


def test_deadline_of_the_request(two):
    """X-Request-Timeout-S is the service's own, and passes through."""
    texts = [f"palabra{number} " * 500 for number in range(600)]
    with two.client as client:
        answer = client.post("/v1/embeddings", json={"input": texts}, headers={"X-Request-Timeout-S": "0.2"})

    assert (504, "deadline_exceeded") == (answer.status_code, answer.json()["code"])


def test_events_arrive_as_they_happen(two):
    """The first event of a job is there before its end."""
    with two.client as client:
        job = send_job(client, pages=60)
        with client.stream("GET", f"/v1/jobs/{job}/events") as events:
            lines = (line for line in events.iter_lines() if line.startswith("event:"))
            first, seen_s = next(lines), time.time()
            last = [*lines][-1]
        result = ended(client, job)

    assert "event: progress" == first
    assert "event: end" == last
    assert seen_s < result["ended_at"]


def test_texts_of_a_client_that_left_leave_the_queue(two):
    """All at once, behind the proxy too: nobody computes for it."""
    body = json.dumps({"input": [f"palabra{number} " * 500 for number in range(600)], "model": "bundled"})
    caller = http.client.HTTPConnection("127.0.0.1", two.port)
    caller.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    seen = [0]

    def asked(enough: Callable[[int], bool]) -> bool:
        seen.append(max(queued_tokens(two)))
        return enough(seen[-1])

    wait_until(lambda: asked(lambda tokens: tokens > LARGE_QUEUE), "a long queue")
    caller.close()
    wait_until(lambda: asked(lambda tokens: tokens == 0), "an empty queue")

    assert seen[-2] > LARGE_QUEUE / 2, "it became empty little by little"


def queued_tokens(cluster: Cluster) -> list[int]:
    """Of each replica, past the proxy."""
    replicas = [child for child in cluster.children() if child.name().startswith("ray::ServeReplica")]
    ports = [each.laddr.port for replica in replicas for each in replica.net_connections("tcp") if own_port(each)]
    return [int(httpx.get(f"http://127.0.0.1:{port}/health").json()["lanes"]["queued_tokens"]) for port in ports]


def own_port(connection: Any) -> bool:
    """Whether a replica takes requests there: Ray gives these the ports from 30,000 to 31,000."""
    return connection.status == psutil.CONN_LISTEN and 30_000 <= connection.laddr.port <= 31_000


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Ask until it holds; each question is a request, so nothing here spins. A connection may break meanwhile."""
    until_s = time.monotonic() + WAIT_S
    while True:
        with suppress(httpx.TransportError):
            if condition():
                return
        assert time.monotonic() < until_s, f"never: {what}"


# A replica dies


def test_a_killed_replica_loses_no_request_that_is_sent_again(two):
    """What was on its way there is answered when it is sent again, jobs are carried on, and another replica comes."""
    stop = threading.Event()
    with two.client as client, ThreadPoolExecutor(4) as pool:
        before = all_replicas(client, 2)
        jobs = [send_job(client, pages=30) for _ in range(2)]
        callers = [pool.submit(answers_of, two, stop) for _ in range(4)]
        try:
            victim = next(child for child in two.children() if child.name().startswith("ray::ServeReplica"))
            victim.kill()
            fresh = all_replicas(client, 1, but=before)
            results = [ended(client, job)["status"] for job in jobs]
        finally:
            stop.set()
        widths = [each.result() for each in callers]

    assert 1 == len(fresh)
    assert ["succeeded"] * 2 == results
    assert all(found and set(found) == {384} for found in widths), "lost or wrong"


def answers_of(cluster: Cluster, stop: threading.Event) -> list[int]:
    """The width of each answer to texts that are sent one after another, each again until it is answered."""
    widths: list[int] = []

    def asked() -> bool:
        with cluster.client as client:
            answer = client.post("/v1/embeddings", json={"input": f"La factura {next(_NUMBERS)}", "model": "bundled"})
        if answer.status_code == 200:
            widths.append(len(answer.json()["data"][0]["embedding"]))
        return answer.status_code == 200

    while not stop.is_set():
        wait_until(asked, "an answer to a text")
    return widths


# The other proxy, and the end of Ray


def test_answers_behind_the_python_proxy(state_dir, plain):
    """The same bits, and events that arrive as they happen."""
    cluster = Cluster(state_dir, "--replicas", "1", "--proxy", "python", CACHE_ENABLED="false")
    try:
        cluster.ready(START_S)
        with httpx.Client(base_url=f"http://127.0.0.1:{plain.port}", timeout=WAIT_S) as alone, cluster.client as ray:
            expected = [without_id(alone.post(path, json=body)) for path, body in CALLS]
            actual = [without_id(ray.post(path, json=body)) for path, body in CALLS]
            job = send_job(ray)
            with ray.stream("GET", f"/v1/jobs/{job}/events") as events:
                kinds = [line for line in events.iter_lines() if line.startswith("event:")]
    finally:
        cluster.end()

    assert expected == actual
    assert ("event: progress", "event: end") == (kinds[0], kinds[-1])


def test_everything_ends_with_rays_head(state_dir):
    """With the code that has a supervisor start it again; and nothing stays behind on its ports."""
    cluster = Cluster(state_dir, "--replicas", "1")
    try:
        cluster.ready(START_S)
        children = cluster.children()
        next(child for child in children if child.name() == "gcs_server").kill()
        code = cluster.ended(WAIT_S)
        left = [child.name() for child in children if child.is_running()]
    finally:
        cluster.end()

    assert EXIT_RAY_LOST == code
    assert [] == left
