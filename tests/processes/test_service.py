"""A service of several processes, through ``python -m backend.main``: what clients see is what one process answers."""

import http.client
import json
import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients import server
from tests.files.pdfs import pdf
from tests.test_main import LOSES_ITS_DEVICE, Process, ask, run, stopped_under_load

__all__ = ["run"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUICK = {"NER_MODEL": "none", "SPEECH_MODEL": "none", "OCR_ENGINE": "tesseract", **server.QUICK}
KEYS = {"ADMIN_KEYS": "ops=admin-secret"}
TWO = {"SERVER_PROCESSES": "2", **QUICK}
GATED = """
import os, sys
import backend.main
from backend.models.onnx_encoder import OnnxEncoder
forward = OnnxEncoder.forward
def gated(self, batch):
    if (batch.ids == 70).sum() > 100:  # the piece of "the"
        open(os.environ["GATE"]).read()  # until a test opens it for writing
    return forward(self, batch)
OnnxEncoder.forward = gated
sys.exit(backend.main.main())
"""
BLOCKING = "the " * 150  # tokens: about as many
TEXTS = [f"La factura {number} vence el {number % 28 + 1} de marzo. " * (1 + number % 9) for number in range(40)]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"input": TEXTS, "model": "bundled", "encoding_format": "base64"}),
    ("/v1/embeddings", {"input": [[5, 70, 9], [70]], "model": "bundled"}),
    ("/embed", {"inputs": TEXTS[:3], "normalize": False}),
    ("/rerank", {"query": TEXTS[0], "texts": TEXTS[1:9]}),
    ("/v1/rerank", {"query": TEXTS[0], "documents": TEXTS[1:9]}),
    ("/v1/similarity", {"source": TEXTS[0], "sentences": TEXTS[1:9]}),
    ("/tokenize", {"inputs": TEXTS[:3]}),
    ("/v1/entities", {"input": ["IBAN ES91 2100 0418 4502 0005 1332, ana@ejemplo.es"], "sources": ["pattern"]}),
    ("/v1/classify", {"input": TEXTS[:3], "labels": ["facturas", "deportes"]}),
    ("/v1/analyze", {"input": TEXTS[0]}),
    ("/v1/fields", {"input": "FACTURA N.º 2026/017  Total 1.284,50 €"}),
    ("/v1/embeddings", {"input": TEXTS[:1], "model": "unknown"}),
    ("/v1/embeddings", {"input": []}),
    ("/v1/nothing", {}),
]


PURPOSE = {"purpose": "assistants"}


@pytest.fixture(scope="module")
def two(state_dir: Path) -> Iterator[Process]:
    """A service of two HTTP workers."""
    process = Process(state_dir, **KEYS, **TWO)
    process.ready()
    yield process
    process.end()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe: batches with BLOCKING wait until it was opened for writing."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def connect(process: Process, key: str = "admin-secret") -> httpx.Client:
    """With a key, which a service without KEYS does not look at."""
    headers = {"Authorization": f"Bearer {key}"}
    # Without TLS, whose certificates take longer to read than the service to answer
    return httpx.Client(base_url=f"http://127.0.0.1:{process.port}", timeout=300, headers=headers, verify=False)


def metric(client: httpx.Client, name: str) -> float:
    """The sum of all series of that name that ``name`` begins."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def worker_of(answer: httpx.Response) -> str:
    """Which process answered: each begins its requests' ids with words of its own."""
    return answer.headers["x-request-id"].rsplit("-", 1)[0]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Ask until it holds; each question is a request, so nothing here spins."""
    until_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until_s, f"never: {what}"


def system(client: httpx.Client) -> dict[str, Any]:
    processes: dict[str, Any] = client.get("/v1/system").json()["processes"]
    return processes


def lanes(client: httpx.Client) -> dict[str, Any]:
    """Not from /health, whose probe would wait for a lane."""
    found: dict[str, Any] = client.get("/v1/system").json()["lanes"]
    return found


# Answers


def test_answers_are_those_of_one_process(two, run):
    """Bit for bit, errors included; routes that the workers serve, and those that they forward."""
    one = run(**KEYS, **QUICK)
    one.ready()
    with connect(one) as alone, connect(two) as several:
        expected, actual = [[client.post(path, json=body) for path, body in CALLS] for client in (alone, several)]
    expected_bodies, actual_bodies = [[without_id(answer) for answer in answers] for answers in (expected, actual)]

    assert [answer.status_code for answer in expected] == [answer.status_code for answer in actual]
    assert expected_bodies == actual_bodies
    assert [sorted(answer.headers) for answer in expected] == [sorted(answer.headers) for answer in actual]


def without_id(answer: httpx.Response) -> Any:
    body = answer.json()
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in ("request_id", "id", "timings")}
    return body


def test_clients_on_all_workers_get_their_own_vectors(two):
    """Many connections at once: each answer is that of its own texts, and both workers answer some."""
    with connect(two) as client:
        before = metric(client, 'financia_requests_total{route="/v1/embeddings",status="200"}')
        expected = {text: vector_of(client, text) for text in TEXTS}

    def work(number: int) -> tuple[set[str], bool]:
        with connect(two) as client:
            answers = [
                client.post("/v1/embeddings", json={"input": [text], "model": "bundled"})
                for text in TEXTS[number:] + TEXTS[:number]
            ]
        vectors = [answer.json()["data"][0]["embedding"] for answer in answers]
        wanted = [expected[text] for text in TEXTS[number:] + TEXTS[:number]]
        return {worker_of(answer) for answer in answers}, wanted == vectors

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(work, range(16)))
    with connect(two) as client:
        after = metric(client, 'financia_requests_total{route="/v1/embeddings",status="200"}')

    assert all(is_right for _, is_right in results)
    assert 2 == len(set.union(*(workers for workers, _ in results)))
    assert len(TEXTS) * 17 == after - before


def vector_of(client: httpx.Client, text: str) -> list[float]:
    answer = client.post("/v1/embeddings", json={"input": [text], "model": "bundled"}).raise_for_status()
    vector: list[float] = answer.json()["data"][0]["embedding"]
    return vector


def test_state_is_one(two):
    """Files, jobs and their events are found on every connection, whichever worker accepted it."""
    with connect(two) as client:
        file = client.post("/v1/files", files={"file": ("a.txt", b"La factura vence en marzo.")}, data=PURPOSE)
        file = file.json()["id"]
        job = client.post("/v1/jobs", files={"file": ("a.pdf", pdf("Factura 2026/017"))}).json()["id"]
        with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
            events = "".join(stream.iter_text())
    found = []
    for _ in range(8):
        with connect(two) as client:
            found += [client.get(f"/v1/files/{file}").json()["id"], client.get(f"/v1/jobs/{job}").json()["status"]]

    assert "succeeded" in events
    assert [file, "succeeded"] * 8 == found


def test_a_large_body_is_forwarded_as_it_comes(two):
    """Megabytes in pieces of unknown length, both ways."""
    content = os.urandom(5_000_000).hex().encode()
    with connect(two) as client:
        purpose = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nassistants\r\n'
        boundary = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        pieces = [
            purpose,
            boundary,
            *(content[at : at + 65_536] for at in range(0, len(content), 65_536)),
            b"\r\n--b--\r\n",
        ]
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = client.post("/v1/files", content=iter(pieces), headers=headers)
        back = client.get(f"/v1/files/{answer.json()['id']}/content")

    assert 200 == answer.status_code
    assert content == back.content


def test_health_and_system_tell_of_all(two):
    """Readiness is the service's, and /v1/system names the workers."""
    with connect(two) as client:
        health, processes = client.get("/health"), system(client)

    assert ("ready", []) == (health.json()["status"], health.json()["degraded"])
    assert (2, 2, 2) == (processes["http_workers"], processes["ready"], len(processes["pids"]))


def test_a_swap_reaches_all_workers(two):
    """After the answer to POST /admin/models no worker names an engine of the old model: none answers 503."""
    with connect(two) as client:
        expected = vector_of(client, "El pago vence hoy.")
        swaps = [client.post("/admin/models", json={"source": "bundled"}) for _ in range(2)]
        pids = system(client)["pids"]
    answers = []
    for number in range(100):
        with connect(two) as client:
            body = {"input": [f"After the swap, {number}"], "model": "bundled"}
            answers.append(client.post("/v1/embeddings", json=body))
        if number >= 8 and len(set(map(worker_of, answers))) == 2:
            break
    with connect(two) as client:
        actual, processes = vector_of(client, "El pago vence hoy."), system(client)

    assert [200, 200] == [swap.status_code for swap in swaps], swaps[0].text
    assert {200} == {answer.status_code for answer in answers}
    assert 2 == len(set(map(worker_of, answers)))
    assert expected == actual
    assert pids == processes["pids"]


# Faults


def test_a_killed_worker_costs_its_own_connections_only(run):
    """Under load: clients of the other worker lose nothing, the killed one is started again."""
    process = run(**TWO, LIMIT_REQUEST_S="300")
    process.ready()
    stop = threading.Event()
    faults: list[str] = []
    answered: set[str] = set()
    both = threading.Event()

    def work(number: int) -> None:
        while not stop.is_set():
            with connect(process) as client:
                worker = ""
                try:
                    for _ in range(20):  # then a new connection, which any worker may accept
                        body = {"input": [f"{number} {len(faults)}"], "model": "bundled"}
                        answer = client.post("/v1/embeddings", json=body)
                        worker = worker_of(answer)
                        answered.add(worker)
                        if len(answered) == 2:
                            both.set()
                        if answer.status_code != 200:
                            faults.append(f"{worker}: {answer.status_code} {answer.text}")
                        stop.wait(0.01)  # the new worker needs a core to start
                except httpx.HTTPError as error:
                    faults.append(f"{worker}: {type(error).__name__}")

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(work, number) for number in range(4)]
        with connect(process) as client:
            victim = system(client)["pids"][0]
        wait_until(lambda: both.wait(1), "both workers answer")
        os.kill(victim, signal.SIGKILL)
        process.says("an HTTP worker listens", 3)
        with connect(process) as client:
            processes, degraded = system(client), client.get("/health").json()["degraded"]
            restarts = metric(client, "financia_http_worker_restarts_total")
        stop.set()
        for one in clients:
            one.result()

    named = {fault.split(":")[0] for fault in faults} - {""}  # without a name: killed before its first answer
    assert 1 >= len(named), faults
    assert len(faults) <= len(clients), faults  # each client had one connection when the worker died
    assert not any(" " in fault.split(":")[1].strip() for fault in faults), faults
    assert (1.0, 2) == (restarts, processes["ready"]), process.log
    assert not [sentence for sentence in degraded if "HTTP worker" in sentence]
    assert victim not in processes["pids"]


def test_a_stopped_worker_is_replaced(run):
    """Its process lives and answers nobody: it is killed after ten seconds, another one listens, and metrics tell."""
    process = run(**TWO)
    process.ready()
    with connect(process) as client:
        victim = system(client)["pids"][0]
    os.kill(victim, signal.SIGSTOP)
    process.says("an HTTP worker listens", 3)
    with connect(process) as client:
        processes, restarts = system(client), metric(client, "financia_http_worker_restarts_total")

    assert (2, 1.0) == (processes["ready"], restarts)
    assert victim not in processes["pids"]
    assert "does not answer" in process.log


def test_a_lost_device_ends_all_processes(run):
    """The caller gets 503 device_lost, and the service ends by itself with 3."""
    process = run("-c", LOSES_ITS_DEVICE, **TWO)
    connection = http.client.HTTPConnection("127.0.0.1", process.ready(), timeout=60)
    answer = ask(connection, [BLOCKING])
    problem = json.loads(answer.read())
    connection.close()

    assert (503, "device_lost") == (answer.status, problem["code"])
    assert 3 == process.ended()


def test_workers_end_with_their_service(run):
    """A killed service process leaves no worker behind, and the port is free."""
    process = run(**TWO)
    port = process.ready()
    with connect(process) as client:
        workers = [os.pidfd_open(pid) for pid in system(client)["pids"]]
    process.signal(signal.SIGKILL)
    ended = [bool(select.select([worker], [], [], 60)[0]) for worker in workers]
    for worker in workers:
        os.close(worker)

    assert [True, True] == ended
    with socket.create_server(("127.0.0.1", port)):
        pass


# The one queue


def test_a_full_queue_a_late_and_a_cancelled_request(run, gate):
    """429 with Retry-After, 504, and nothing computed for a client that left."""
    process = run("-c", GATED, GATE=str(gate), LIMIT_QUEUE_TOKENS="600", LANES="1", **TWO)
    process.ready()
    with connect(process) as client:
        blocked = start(process, BLOCKING)
        wait_until(lambda: lanes(client)["busy"] == 1, "the lane is busy")
        late = client.post(
            "/v1/embeddings", json={"input": ["late"], "model": "bundled"}, headers={"X-Request-Timeout-S": "0.3"}
        )
        waiting = [start(process, f"{number} " + "uno " * 200) for number in range(3)]
        wait_until(lambda: lanes(client)["queued_jobs"] >= 2, "two wait")
        full = client.post("/v1/embeddings", json={"input": ["dos " * 400], "model": "bundled"})
        for left in waiting:
            left.close()
        gate.write_bytes(b"")
        blocked_answer = answer_of(blocked)
        wait_until(lambda: lanes(client)["queued_jobs"] == 0, "nothing waits")
        # The late one, and two whose clients left; the third was refused.
        wait_until(lambda: metric(client, "financia_jobs_dropped_total") == 3, "three were dropped")

    assert (504, "deadline_exceeded") == (late.status_code, late.json()["code"])
    assert (429, "overloaded") == (full.status_code, full.json()["code"])
    assert 0 < float(full.headers["retry-after"]) <= 60
    assert b"200 OK" in blocked_answer


def start(process: Process, text: str) -> socket.socket:
    """Send a request; its answer is not read yet."""
    connection = socket.create_connection(("127.0.0.1", process.port))
    body = json.dumps({"input": [text], "model": "bundled"}).encode()
    head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\n" + head.encode() + body)
    return connection


def answer_of(connection: socket.socket) -> bytes:
    connection.settimeout(60)
    with connection:
        return connection.recv(65_536)


def test_quotas_are_those_of_all_workers(run):
    """A key's requests are counted together, whichever worker answers, and also those that are forwarded."""
    keys = {"API_KEYS": "shop=shop-secret", "QUOTA_REQUESTS_PER_MINUTE": "12"}
    process = run(**keys, **TWO)
    process.ready()
    statuses = []
    for number in range(16):
        with connect(process, "shop-secret") as client:
            body = {"input": [str(number)], "model": "bundled"}
            answer = client.get("/v1/models") if number % 4 == 0 else client.post("/v1/embeddings", json=body)
        statuses.append(answer.status_code)

    assert [200] * 12 == statuses[:12]
    assert {429} == set(statuses[-2:])  # one may be refilled meanwhile


# Ends


@pytest.mark.parametrize(("count", "texts"), [(8, 1), (4, 24)], ids=["many-small", "few-large"])
def test_sigterm_under_load_loses_no_request(run, count, texts):
    """As with one process: the last answer of each connection says that it closes."""
    process = run(**TWO)
    clients = stopped_under_load(process, count, texts)

    assert 0 == process.ended()
    assert [[]] * count == [client.lost for client in clients]
    assert all(client.told_to_close for client in clients)
    assert not re.search("Traceback|were killed", process.log), process.log


def test_a_worker_that_cannot_start_stops_the_start(run, tmp_path):
    """One line says why, and the exit code is that of wrong settings."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = run(PORT=str(taken.getsockname()[1]), **TWO)

        assert 2 == process.ended()
        assert "address already in use" in process.log
        assert "Traceback" not in process.log
