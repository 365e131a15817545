"""The service as most run it: one process without Redis. Jobs are in its memory, files and their index on its disk.

Files are indexed, searched and deleted, jobs sent and followed. What was answered must still be true after each kill:
an indexed file is found, a deleted one is not; jobs alone may be gone.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.soak.caller import FILE, TEXT, call
from benchmarks.soak.cluster import Replica, free_ports, start_service, stop_service
from benchmarks.soak.content import BYTES, JSON, job_of, known_files, known_texts
from benchmarks.soak.http_client import HttpClient
from benchmarks.soak.job_client import DEADLINE_S, JobBook, JobClient
from benchmarks.soak.ledger import Attempt, Ledger, Outcome, Request
from benchmarks.soak.traffic import Streams

_FILES_A_SECOND, _SEARCHES_A_SECOND, _JOBS_A_SECOND = 0.2, 0.5, 0.05
_MAX_FILES = 20  # then the oldest is deleted
_INDEXED_S = 120.0  # after which a file that is not indexed counts as stuck
_HITS = 5
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class _File:
    """One that was indexed, and the words that no other has."""

    id: str
    words: str


class _Wrong(Exception):
    """An answer that must not be."""


class _Lost(Exception):
    """No answer within the client's patience."""


class Alone:
    """The service and its traffic. ``work`` holds its log and its STATE_DIR."""

    def __init__(self, work: Path, ledger: Ledger, expected: Mapping[str, Any], *, seed: int) -> None:
        self._work, self._ledger, self._expected = work, ledger, expected
        [self._port] = free_ports(1)
        self._client, self._book = HttpClient(self._port), JobBook()
        self._rng = random.Random(f"alone-{seed}")
        self.streams = Streams(ledger, self._rng)
        self._texts, self._documents = known_texts(), known_files()
        self._files: list[_File] = []
        self._deleted: list[_File] = []
        self._gone = set[str]()  # ids of those that are being deleted, or were
        self._store = ""
        self.service: Replica | None = None

    @property
    def running(self) -> Replica:
        assert self.service is not None, "it was started"
        return self.service

    async def open(self) -> None:
        """Start the service with an empty store. Raises: ClusterError."""
        await self._start()
        made = await call(self._client, "POST", "/v1/vector_stores", b"{}", JSON)
        assert made.answer is not None, "nothing is wrong yet"
        self._store = f"/v1/vector_stores/{orjson.loads(made.answer.body)['id']}"
        await self._index(asyncio.get_running_loop().time())  # once before its memory is measured

    async def kill(self) -> None:
        """SIGKILL, and a new start on the same disk. Raises: ClusterError."""
        self.running.process.kill()
        await self.running.process.wait()
        await self._start()

    def send(self) -> None:
        """Begin the traffic, until ``streams`` are stopped."""
        self.streams.start(lambda: _FILES_A_SECOND, self._index)
        self.streams.start(lambda: _SEARCHES_A_SECOND, self._search)
        self.streams.start(lambda: _JOBS_A_SECOND, self._job)

    async def check(self) -> None:
        """At rest: all that was indexed is found and has its bytes; nothing that was deleted."""
        now_s = asyncio.get_running_loop().time()
        for file in self._files:
            await self._enter("search", now_s, partial(self._require_found, file))
            await self._enter("file", now_s, partial(self._require_bytes, file))
        for file in self._deleted:
            await self._enter("search", now_s, partial(self._require_gone, file))

    async def close(self) -> list[int]:
        """Stop the service with SIGTERM; its exit status."""
        await self._client.close()
        return [] if self.service is None else [await stop_service(self.service)]

    async def _start(self) -> None:
        settings = {"STATE_DIR": str(self._work / "alone-state"), "SERVER_PROCESSES": "1", "JOB_WORKERS": "1"}
        self.service = await start_service(self._port, self._work / "alone.log", settings, name="alone")

    async def _index(self, due_s: float) -> None:
        words = f"{self._rng.choice(self._texts)} Expediente {self._rng.getrandbits(40)}."
        await self._enter("index", due_s, partial(self._add, words))
        if len(self._files) > _MAX_FILES:
            await self._enter("delete", asyncio.get_running_loop().time(), self._delete_oldest)

    async def _search(self, due_s: float) -> None:
        if self._files:
            await self._enter("search", due_s, partial(self._require_found, self._rng.choice(self._files)))

    async def _job(self, due_s: float) -> None:
        name = self._rng.choice(sorted(self._documents))
        question = job_of(name, self._documents[name], f"{self._rng.getrandbits(64):016x}", deadline_s=DEADLINE_S)
        rng = random.Random(self._rng.random())
        await JobClient(self._client, self._ledger, self._book, self._expected, rng, "alone").run(question, due_s)

    async def _enter(self, kind: str, due_s: float, steps: Callable[[list[Attempt]], Awaitable[None]]) -> None:
        """Make the calls of one request, and enter what became of it."""
        failures: list[Attempt] = []
        outcome: Outcome = "right"
        detail = ""
        try:
            await steps(failures)
        except _Wrong as error:
            outcome, detail = "wrong", str(error)
        except _Lost as error:
            outcome, detail = "lost", f"{error}; last: {failures[-1] if failures else 'no attempt failed'}"
        now_s = asyncio.get_running_loop().time()
        self._ledger.requests.append(Request(kind, "alone", outcome, due_s, now_s, tuple(failures), detail))

    async def _add(self, words: str, failures: list[Attempt]) -> None:
        """Upload and index a file. It is known once the service said that it is indexed, and not before."""
        stored = await self._ask(failures, "POST", "/v1/files?purpose=assistants", words.encode(), BYTES)
        file = _File(stored["id"], words)
        place = f"{self._store}/files"
        await self._ask(failures, "POST", place, orjson.dumps({"file_id": file.id}), JSON)
        end_s = asyncio.get_running_loop().time() + _INDEXED_S
        while (record := await self._ask(failures, "GET", f"{place}/{file.id}"))["status"] == "in_progress":
            if asyncio.get_running_loop().time() > end_s:
                raise _Lost(f"not indexed {_INDEXED_S:g} s after it was added: {record}")
            await asyncio.sleep(_POLL_S)
        if record["status"] != "completed":
            raise _Wrong(f"{record}")
        await self._require_found(file, failures)
        self._files.append(file)

    async def _delete_oldest(self, failures: list[Attempt]) -> None:
        file = self._files.pop(0)
        self._gone.add(file.id)
        await self._ask(failures, "DELETE", f"/v1/files/{file.id}")
        await self._require_gone(file, failures)
        self._deleted.append(file)

    async def _require_found(self, file: _File, failures: list[Attempt]) -> None:
        """Unless it is deleted meanwhile."""
        hits = await self._hits(file, failures)
        if file.id not in hits and file.id not in self._gone:
            raise _Wrong(f"{file} is not among {hits}")

    async def _require_gone(self, file: _File, failures: list[Attempt]) -> None:
        if file.id in (hits := await self._hits(file, failures)):
            raise _Wrong(f"{file} was deleted and is among {hits}")

    async def _require_bytes(self, file: _File, failures: list[Attempt]) -> None:
        made = await call(self._client, "GET", f"/v1/files/{file.id}/content", patience=TEXT)
        failures += made.failures
        if made.answer is None or made.answer.body != file.words.encode():
            raise _Wrong(f"{file} has other bytes: {made.answer}")

    async def _hits(self, file: _File, failures: list[Attempt]) -> list[str]:
        body = orjson.dumps({"query": file.words, "max_num_results": _HITS})
        found = await self._ask(failures, "POST", f"{self._store}/search", body, JSON)
        return [hit["file_id"] for hit in found["data"]]

    async def _ask(
        self,
        failures: list[Attempt],
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer's JSON. Raises: _Lost, _Wrong for what is not a 200 or, to a deletion sent again, a 404."""
        made = await call(self._client, method, path, body, headers, patience=FILE)
        failures += made.failures
        if made.answer is None:
            raise _Lost(f"{method} {path} has no answer")
        is_sent_again = method == "DELETE" and made.failures
        if made.answer.status != 200 and not (is_sent_again and made.answer.status == 404):
            raise _Wrong(f"{method} {path}: {made.answer.status} {made.answer.body[:300]!r}")
        return orjson.loads(made.answer.body)
