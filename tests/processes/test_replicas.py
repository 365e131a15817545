"""Two replicas that share one Redis, through ``python -m backend.main``; one of them serves with two HTTP workers."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes.test_service import KEYS, QUICK, connect, wait_until, worker_of
from tests.redis_server import RedisServer
from tests.test_main import Process

# Learning the classifiers that ship for another embedding model takes minutes; services/test_bundled_heads.py does.
WITHOUT_BUNDLED = """
import sys
import backend.main
from backend.text.classifier_files import BundledHeads
BundledHeads.has_examples = lambda *_: False
sys.exit(backend.main.main())
"""
EXAMPLES = {"bill": ["la factura de marzo", "the invoice is due"], "letter": ["estimada señora", "dear madam"]}
pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.timeout(900)]


class Start:
    """Starts replicas, each with a STATE_DIR of its own."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder, self.server = folder, server
        self.processes: list[Process] = []

    def __call__(self, name: str, **settings: str) -> Process:
        own = {**KEYS, **QUICK, "EMBEDDING_MODEL": "minilm", "REDIS_URL": self.server.url, **settings}
        self.processes.append(Process(self.folder / name, "-c", WITHOUT_BUNDLED, **own))
        return self.processes[-1]


@pytest.fixture
def start(tmp_path: Path, redis_server: RedisServer) -> Iterator[Start]:
    start = Start(tmp_path, redis_server)
    yield start
    for process in start.processes:
        process.end()


@dataclass
class Traffic:
    """Requests to one replica, one after the other, each of a new text; what was not answered with 200."""

    process: Process
    answered: int = 0
    lost: list[str] = field(default_factory=list)
    workers: set[str] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with connect(self.process) as client:
                for _ in range(10):  # then a new connection, which any worker may accept
                    try:
                        answer = client.post("/embed", json={"inputs": f"La factura {self.answered}"})
                    except httpx.HTTPError as error:
                        self.lost.append(repr(error))
                        return
                    self.workers.add(worker_of(answer))
                    if answer.status_code != 200:
                        self.lost.append(answer.text)
                    self.answered += 1
                    stop.wait(0.02)  # what loads meanwhile needs a core


@contextmanager
def traffic(*processes: Process) -> Iterator[list[Traffic]]:
    """Requests to each until the end of the block."""
    stop, clients = threading.Event(), [Traffic(process) for process in processes]
    with ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(client.run, stop) for client in clients]
        try:
            yield clients
        finally:
            stop.set()
    for one in running:
        one.result()


def shared(process: Process) -> dict[str, Any]:
    with connect(process) as client:
        told: dict[str, Any] = client.get("/v1/system").json()["shared_state"]
        return told


def statuses(process: Process) -> list[str]:
    """Of the one wish, on every replica that this one hears."""
    return [wish["status"] for replica in shared(process)["replicas"] for wish in replica["wishes"]]


def names(process: Process) -> list[str]:
    """Of the embedding model as GET /v1/models has it, and the reasons for which it is degraded."""
    with connect(process) as client:
        models, health = client.get("/v1/models").json()["data"], client.get("/health").json()
    return [models[0]["id"], *health["degraded"]]


def test_a_model_wished_on_one_serves_on_all(start):
    """Both answer all through the swap, with workers or without; one that starts later begins with that model."""
    one, two = start("one"), start("two", SERVER_PROCESSES="2")
    one.ready()
    two.ready()
    wait_until(lambda: len(shared(one)["replicas"]) == 2, "they hear each other")
    before = [names(process) for process in (one, two)]
    with traffic(one, two) as clients, connect(one) as client:
        wished = client.post("/admin/models", json={"source": "bundled", "replicas": "all"}, timeout=600)
        wait_until(lambda: statuses(one) == ["serving"] * 2, "the other serves it")
        answered = [each.answered for each in clients]
        wait_until(lambda: all(each.answered > old + 20 for each, old in zip(clients, answered, strict=True)), "more")
    three = start("three")
    three.ready()

    assert 200 == wished.status_code, wished.text
    assert [[]] * 2 == [each.lost for each in clients]
    assert [1, 2] == [len(each.workers) for each in clients]
    assert all(answered), "nothing was asked during the swap"
    assert [["sentence-transformers/all-MiniLM-L6-v2"]] * 2 == before
    after = [names(process) for process in (one, two, three)]

    assert [after[0]] * 3 == after
    assert 1 == len(after[0]), "degraded"
    assert before[0] != after[0]
    wait_until(lambda: statuses(two) == ["serving"] * 3, "the third is heard")


def test_what_one_is_taught_all_workers_of_the_other_answer(start):
    """And what one forgets, none of them knows; without Redis they answer on, and teach nothing."""
    one, two = start("one"), start("two", SERVER_PROCESSES="2")
    one.ready()
    two.ready()
    with connect(one) as client:
        taught = [client.put(f"/v1/classifiers/{name}", json={"labels": EXAMPLES}) for name in ("post", "kept")]
    known = classified(two, "post", workers=2)
    with connect(two) as client:
        forgotten = client.delete("/v1/classifiers/post")
    unknown = classified(two, "post", workers=2)
    wait_until(lambda: classified(one, "post") == {(404, "")}, "one looks at the store and forgets it too")
    before = classified(one, "kept") | classified(two, "kept", workers=2)
    start.server.kill()
    wait_until(lambda: is_away(one) and is_away(two), "both know that Redis is away")
    with connect(one) as client:
        refused = client.put("/v1/classifiers/post", json={"labels": EXAMPLES})

    assert [200] * 3 == [answer.status_code for answer in (*taught, forgotten)], forgotten.text
    assert [{(200, "bill")}, {(404, "")}, {(200, "bill")}] == [known, unknown, before]
    assert {(200, "bill")} == classified(one, "kept") | classified(two, "kept", workers=2)
    # Not 404: a replica that still reaches Redis may be taught it meanwhile
    assert {(503, "")} == classified(one, "post") | classified(two, "post", workers=2)
    assert (503, "unavailable") == (refused.status_code, refused.json()["code"])


def is_away(process: Process) -> bool:
    """Whether this replica has noticed that the store of classifiers does not answer."""
    return any("none can be taught" in why for why in names(process))


def classified(process: Process, classifier: str, workers: int = 1) -> set[tuple[int, str]]:
    """Status and class of all answers, asked on new connections until so many workers have taken one."""
    answers, asked = set[tuple[int, str]](), set[str]()

    def ask() -> bool:
        with connect(process) as client:
            worker = worker_of(client.post("/embed", json={"inputs": "la factura"}))  # else it is the service's
            answer = client.post("/v1/classify", json={"input": "la factura de marzo", "model": classifier})
        label = answer.json()["data"][0]["prediction"] if answer.status_code == 200 else ""
        answers.add((answer.status_code, label))
        asked.add(worker)
        return len(asked) >= workers

    wait_until(ask, f"{workers} workers are asked")
    return answers
