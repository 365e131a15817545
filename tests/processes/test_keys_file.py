"""Tenants of a keys file, through ``python -m backend.main``: alone, and with HTTP workers, which must all agree."""

import json
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from backend.callers.callers import key_digest
from tests.processes.test_service import QUICK, connect, metric, wait_until, worker_of
from tests.test_main import Process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TEXT = {"input": ["La factura vence el 3 de marzo."], "model": "bundled"}
OPEN = ("shop", "shop-secret-of-many-characters")
READER = "shop-reader-secret-of-many-characters"
BANK = ("bank", "bank-secret-of-many-characters")
ADMIN = ("ops", "ops-secret-of-many-characters")


def table(name: str, *keys: str, role: str = "user", quota: str = "") -> str:
    """A tenant; each of ``keys`` is a key, or a key with what else stands in its table."""
    lines = [f"[tenants.{name}]", f'role = "{role}"', f"quota = {{ {quota} }}"]
    for key in keys:
        secret, _, more = key.partition("\n")
        lines += [f"[[tenants.{name}.keys]]", f'sha256 = "{key_digest(secret.encode()).hex()}"', more]
    return "\n".join(lines) + "\n"


SHOP = table("shop", OPEN[1], f'{READER}\nrole = "read"', "gone-secret-of-many-characters\nexpires = 2020-01-31")
FILE = SHOP + table(BANK[0], BANK[1]) + table(ADMIN[0], ADMIN[1], role="admin")


class Tenants:
    """A service with a keys file."""

    def __init__(self, process: Process, path: Path) -> None:
        self.process, self.path = process, path

    def write(self, content: str) -> None:
        """As an operator should: whole."""
        new = self.path.with_name("new")
        new.write_text(content)
        new.replace(self.path)

    def change(self, content: str) -> None:
        """Write it, and wait until it was read."""
        told = self.process.log.count("keys file read")
        self.write(content)
        self.process.says("keys file read", told + 1)

    def status(self, key: str, method: str = "POST", path: str = "/v1/embeddings") -> int:
        with connect(self.process, key) as client:
            return client.request(method, path, json=TEXT if method == "POST" else None).status_code

    def settles(self, key: str, status: int) -> None:
        """Every process answers a key so; sixteen connections reach each of two workers."""
        wait_until(lambda: {self.status(key) for _ in range(16)} == {status}, f"{status} for all")


@pytest.fixture(scope="module", params=["1", "2"])
def tenants(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.write_text(FILE)
    own = tmp_path_factory.mktemp("state")
    process = Process(own, API_KEYS=str(path), CACHE_SCOPE="key", SERVER_PROCESSES=request.param, **QUICK)
    process.ready()
    yield Tenants(process, path)
    process.end()


@pytest.fixture(autouse=True)
def as_before(tenants: Tenants) -> Iterator[None]:
    yield
    if tenants.path.read_text() != FILE:
        tenants.change(FILE)
        with connect(tenants.process, ADMIN[1]) as client:
            wait_until(lambda: tenants.status(OPEN[1]) == 200 and not degraded(client), "the first file again")


def degraded(client: httpx.Client) -> list[str]:
    sentences: list[str] = client.get("/health/ready").json()["degraded"]
    return sentences


def used(client: httpx.Client, **query: str) -> dict[str, dict[str, int]]:
    """Today's counts by tenant."""
    answer = client.get("/v1/usage", params=query).raise_for_status().json()
    names = ("requests", "tokens", "pages", "refused")
    return {one["tenant"]: {name: one["today"][name] for name in names} for one in answer["data"]}


def test_roles(tenants: Tenants) -> None:
    """A reader infers and gets, on workers and on what they forward; it neither keeps nor deletes."""
    calls = [("POST", "/v1/embeddings"), ("GET", "/v1/files"), ("POST", "/v1/files"), ("DELETE", "/v1/files/file-1")]

    assert [200, 200, 403, 403] == [tenants.status(READER, *call) for call in calls]
    assert 401 == tenants.status("no-secret-of-many-characters")


def test_an_expired_key_is_told_so(tenants: Tenants) -> None:
    """With the time; a stranger's is not told more than that it is none."""
    with connect(tenants.process, "gone-secret-of-many-characters") as client:
        answers = [client.post("/v1/embeddings", json=TEXT), client.get("/v1/files")]

    assert [(401, "key_expired")] * 2 == [(answer.status_code, answer.json()["code"]) for answer in answers]
    assert all("shop" in answer.text and "2020-01-31T00:00:00Z" in answer.text for answer in answers)


def test_a_changed_file_holds_without_a_restart(tenants: Tenants) -> None:
    """A key withdrawn, a tenant added, both with their quotas, in every process."""
    added = "new-secret-of-many-characters"
    tenants.change(FILE.replace(key_digest(BANK[1].encode()).hex(), key_digest(added.encode()).hex()))
    tenants.settles(added, 200)
    tenants.settles(BANK[1], 401)

    tenants.change(FILE + table("late", added, quota="requests_per_minute = 5"))
    wait_until(lambda: tenants.status(added) == 429, "the quota of the late one")
    with connect(tenants.process, added) as client:
        answers = [client.post("/v1/embeddings", json=TEXT) for _ in range(3)]

    assert [429] * 3 == [answer.status_code for answer in answers]
    detail = answers[0].json()["detail"]
    assert "its quota is 5 (requests_per_minute in the keys file); try again in" in detail


def test_a_broken_file_changes_nothing(tenants: Tenants) -> None:
    """The old keys hold; log, probes, metrics and the report say so, and no longer once it is mended."""
    before = tenants.process.log.count("the keys file has a fault")
    tenants.write(FILE + "[tenants.new]\nkeys = [{ sha256 = 'hush' }]\nquotas = 5\n")
    tenants.process.says("the keys file has a fault, the keys read before hold", before + 1)
    with connect(tenants.process, ADMIN[1]) as client:
        sentences, faults = degraded(client), metric(client, "financia_key_file_faults")
        report = client.get("/v1/system").json()["quotas"]["keys_file"]
        statuses = [tenants.status(OPEN[1]), tenants.status(BANK[1])]

    assert [200, 200] == statuses
    assert 1 == len(sentences)
    assert "keys file has 2 fault(s)" in sentences[0]
    assert (2.0, 2) == (faults, report["faults"])
    assert "tenants.new.quotas: no such field" in tenants.process.log
    assert "hush" not in tenants.process.log


def test_a_removed_file_changes_nothing(tenants: Tenants) -> None:
    """Nor does an empty one: a service never opens by accident."""
    before = tenants.process.log.count("the keys file has a fault")
    tenants.path.unlink()
    tenants.process.says("the keys file has a fault", before + 1)
    tenants.path.write_text("")
    tenants.process.says("the keys file has a fault", before + 2)

    assert [200, 401] == [tenants.status(OPEN[1]), tenants.status("no-secret-of-many-characters")]


def test_sighup(tenants: Tenants) -> None:
    """Reads the file at once; nothing ends."""
    before = tenants.process.log.count("SIGHUP: the keys file was looked at")
    tenants.process.signal(signal.SIGHUP)
    tenants.process.says("SIGHUP: the keys file was looked at", before + 1)

    assert 200 == tenants.status(OPEN[1])


def test_usage(tenants: Tenants) -> None:
    """Every request of every process is in it, once; others' are not told, but to an admin."""
    with connect(tenants.process, ADMIN[1]) as admin:
        before = used(admin, tenant="bank").get("bank", {"requests": 0, "tokens": 0})
        clients = [connect(tenants.process, BANK[1]) for _ in range(12)]
        answers = [client.post("/v1/embeddings", json=TEXT) for client in clients for _ in range(3)]
        for client in clients:
            client.close()
        tokens = sum(answer.json()["usage"]["total_tokens"] for answer in answers)
        wanted = {"requests": before["requests"] + 36, "tokens": before["tokens"] + tokens, "pages": 0, "refused": 0}
        wait_until(lambda: used(admin)["bank"]["tokens"] >= wanted["tokens"], "all of it told")
        found, everybody = used(admin)["bank"], used(admin)
    with connect(tenants.process, OPEN[1]) as client:
        own, others = used(client), client.get("/v1/usage", params={"tenant": "bank"})

    assert wanted == found
    assert {"shop", "bank", "ops"} == set(everybody)
    assert (["shop"], 404) == (list(own), others.status_code)
    assert 1 <= len({worker_of(answer) for answer in answers})


def test_caches_are_apart(tenants: Tenants) -> None:
    """What one tenant embedded makes nothing of another's faster: the first time is a miss for each."""
    text = {"input": ["Un texto que nadie más ha mandado nunca."], "model": "bundled"}
    with connect(tenants.process, OPEN[1]) as shop, connect(tenants.process, BANK[1]) as bank:
        misses = [metric(shop, "financia_cache_misses_total")]
        vectors = []
        for client in (shop, bank, shop, bank):  # each on its own connection, so on one worker
            vectors.append(client.post("/v1/embeddings", json=text).json()["data"])
            misses.append(metric(shop, "financia_cache_misses_total"))

    assert [1, 1, 0, 0] == [after - before for before, after in pairwise(misses)]
    assert len({json.dumps(vector) for vector in vectors}) == 1
