"""Every query of the dashboard and every alert, asked of a real Prometheus that scraped a loaded real service."""

import json
import math
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from backend.jobs.records import ENDED
from tests.clients.server import QUICK, LiveServer, run_server
from tests.conftest import absent
from tests.deploy.test_alerts import ALERTS
from tests.deploy.test_dashboard import CHARTS, PANELS
from tests.end_to_end.invoices import SPANISH
from tests.files.recordings import KINDS, recording
from tests.redis_server import RedisServer

pytestmark = [
    pytest.mark.slow, pytest.mark.alone, pytest.mark.redis, pytest.mark.tesseract, pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]  # fmt: skip

KEYS = {"API_KEYS": "billing=first-secret", "ADMIN_KEYS": "scrapes=root-secret", "QUOTA_REQUESTS_PER_MINUTE": "100000"}
SETTINGS = {**QUICK, **KEYS, "OCR_ENGINE": "tesseract"}
JOBS = {"financia": "/metrics", "financia-gpu": "/metrics/gpu"}  # as in deploy/prometheus
ROUNDS = 2  # of load: a series that the first one begins grows in the second
WINDOW = "30m"  # for $__rate_interval: the load is in it however slow the machine is
WAIT_S = 120.0  # for what takes a second or two
# Panels that need what this machine has not, or what a healthy service never has.
EMPTY_ROWS = {"GPU": "a card"}
EMPTY_PANELS: dict[str, str] = {}


@pytest.fixture(scope="module")
def served(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The service with everything that it can measure."""
    redis = RedisServer(tmp_path_factory.mktemp("redis"))
    redis.start()
    try:
        with run_server(state_dir, REDIS_URL=redis.url, **SETTINGS) as server:
            yield server
    finally:
        redis.kill()


@pytest.fixture(scope="module")
def prometheus(served: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A Prometheus that scrapes it every second, as deploy/prometheus has it: two jobs, by their names."""
    program = shutil.which("prometheus")
    if program is None:
        absent("prometheus is not installed (tools/system_packages.sh installs it)")
    folder = tmp_path_factory.mktemp("prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    target = served.url.removeprefix("http://")
    jobs: list[dict[str, Any]] = [
        {"job_name": name, "metrics_path": path, "static_configs": [{"targets": [target]}]}
        for name, path in JOBS.items()
    ]
    for job in jobs:  # or callers are not told apart
        job["authorization"] = {"credentials": "root-secret"}
    config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    log = (folder / "log").open("w")
    process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=60.0) as client:
            with served.client(headers={"Authorization": "Bearer first-secret"}) as service:
                _load(service, client)
            yield client
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def _ask(client: httpx.Client, expression: str) -> list[dict[str, Any]]:
    answer = client.post("/api/v1/query", data={"query": expression})
    result: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
    return result


def _is_ready(client: httpx.Client) -> bool:
    """It listens before it answers queries: with 503 until its storage is open."""
    try:
        return client.get("/-/ready").is_success
    except httpx.ConnectError:
        return False


def _scrapes(client: httpx.Client) -> float:
    """Of the target that is scraped last, so far."""
    counts = [float(one["value"][1]) for one in _ask(client, f"count_over_time(up[{WINDOW}])")]
    return min(counts) if len(counts) == len(JOBS) else 0.0


def _load(service: httpx.Client, prometheus: httpx.Client) -> None:
    """Requests of every kind, with whole scrapes before, between and after."""
    _await(service, lambda: _is_ready(prometheus), "Prometheus")
    _await_scrape(service, prometheus)
    store = _search_store(service)
    for number in range(ROUNDS):
        _everything(service, store, number)
        _await_scrape(service, prometheus)


def _await_scrape(service: httpx.Client, prometheus: httpx.Client) -> None:
    """Until each target has been scraped from beginning to end: the first of two may be under way."""
    seen = _scrapes(prometheus)
    _await(service, lambda: _scrapes(prometheus) >= seen + 2, "two scrapes")


def _await(service: httpx.Client, done: Callable[[], bool], what: str) -> None:
    """Small requests until it is."""
    until_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < until_s, f"{what}: not within {WAIT_S:g} s"
        service.post("/v1/embeddings", json={"input": what, "model": "bundled"})


def _search_store(client: httpx.Client) -> str:
    file = client.post("/v1/files", files={"file": ("a.pdf", SPANISH.digital)}, data={"purpose": "assistants"}).json()
    store: str = client.post("/v1/vector_stores", json={"name": "all", "file_ids": [file["id"]]}).json()["id"]
    return store


def _everything(client: httpx.Client, store: str, number: int) -> None:
    """One request of each kind, of which no cache knows the answer; and some that fail."""
    text = f"La factura {number} vence el 3 de marzo y asciende a {number}.284,50 EUR"
    body = {"input": [text, f"{text}, IVA incluido"], "model": "bundled"}
    for _ in range(2):  # the second time from the cache
        client.post("/v1/embeddings", json=body)
    client.post("/v1/classify", json={"input": text, "labels": ["facturas", "deportes"]})
    client.post("/v1/entities", json={"input": [text]})
    client.post("/v1/analyze", json={"input": text})
    client.post("/v1/embeddings", json={"input": [], "model": "bundled"})
    client.post("/v1/embeddings", json={**body, "input": f"{text} tarde"}, headers={"X-Request-Timeout-S": "0.000001"})
    client.post(f"/v1/vector_stores/{store}/search", json={"query": f"factura {number}"})
    client.post("/v1/documents", files={"file": ("a.pdf", _scan(number))}, data={"features": "language"})
    job = client.post("/v1/jobs", files={"file": ("a.pdf", SPANISH.digital + b"\n%" + str(number).encode())}).json()
    sound = np.random.default_rng(number).normal(0, 0.05, 16_000).astype(np.float32)
    client.post("/v1/audio/transcriptions", files={"file": ("a.wav", recording(KINDS["wav"], sound))})
    _await(client, lambda: client.get(f"/v1/jobs/{job['id']}").json()["status"] in ENDED, "the job's end")


def _scan(number: int) -> bytes:
    return SPANISH.scanned_pdf + b"\n%" + str(number).encode()  # another file with the same page


def _has_data(result: list[dict[str, Any]]) -> bool:
    return any(not math.isnan(float(one["value"][1])) for one in result)


def test_no_panel_is_empty(prometheus: httpx.Client):
    """Every query of every panel has numbers, but for what is listed above with its reason."""
    empty, row = [], ""
    for panel in PANELS:
        row = panel["title"] if panel["type"] == "row" else row
        for target in panel.get("targets", ()):
            asked = target["expr"].replace("$__rate_interval", WINDOW).replace("$instance", ".*")
            if not _has_data(_ask(prometheus, asked)) and row not in EMPTY_ROWS:
                empty.append(f"{row}: {panel['title']}: {asked}")

    assert sorted(EMPTY_PANELS) == sorted(empty)
    assert CHARTS


def test_callers_are_told_apart(prometheus: httpx.Client):
    """Prometheus' own way to send a key, as docs/operations.md has it."""
    callers = {one["metric"].get("key") for one in _ask(prometheus, "sum by (key) (financia_key_requests_total)")}

    assert {"billing", "scrapes"} == callers


def test_what_alerts_watch_is_there(prometheus: httpx.Client):
    """No alert of a healthy service fires, and each can be evaluated: nothing it compares is ambiguous."""
    firing = {rule["alert"] for rule in ALERTS if "for" not in rule and _ask(prometheus, rule["expr"])}

    assert set() == firing
