"""A client of background jobs: sends a file, follows or cancels the job, and checks what came of it."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from benchmarks.soak import events
from benchmarks.soak.caller import FILE, Call, call
from benchmarks.soak.content import PAGES, Question, judged
from benchmarks.soak.http_client import HttpClient
from benchmarks.soak.ledger import Ledger, Outcome, Request
from benchmarks.soak.schedule import Route

DEADLINE_S = 150.0  # of a job: deadline_s
STUCK_S = 300.0  # after which a job that has not ended counts as stuck: its deadline, a lease, three starts, a queue
_POLL_S = 1.0
_RESTORE_S = 45.0  # a running job that Redis forgot is written again at its end
_RETRYABLE_CODES = frozenset({"unavailable", "overloaded", "deadline_exceeded", "device_lost"})
_CANCELLED_SHARE, _WATCHED_SHARE, _DELETED_SHARE = 0.15, 0.6, 0.4


@dataclass(slots=True)
class Known:
    """A job that was accepted, and how it stands as far as its client knows."""

    id: str
    answer_key: str
    accepted_s: float
    state: str = "live"  # live, succeeded, failed, cancelled, deleted, gone
    ended_s: float = 0.0
    outlives_redis: bool = False  # it ran when Redis was emptied: its replica finishes it and writes it again


@dataclass(slots=True)
class JobBook:
    """All jobs that were accepted."""

    jobs: dict[str, Known] = field(default_factory=dict)
    lost_answers: int = 0  # submissions that never got an answer: their job may exist, unknown to us
    connections: int = 0  # to streams of events
    watched: int = 0

    def live(self) -> list[Known]:
        """Jobs whose end nobody has seen yet."""
        return [job for job in self.jobs.values() if not job.ended_s]


@dataclass(slots=True)
class JobClient:
    """One job from its submission to its end. Use once."""

    client: HttpClient
    ledger: Ledger
    book: JobBook
    expected: Mapping[str, Any]
    rng: random.Random
    route: Route = "jobs"
    calls: list[Call] = field(default_factory=list)

    async def run(self, question: Question, due_s: float) -> None:
        """Submit, follow to the end, check, and enter the outcome into the ledger."""
        outcome, detail = await self._outcome(question)
        failures = tuple(failure for made in self.calls for failure in made.failures)
        now_s = asyncio.get_running_loop().time()
        self.ledger.requests.append(Request("job", self.route, outcome, due_s, now_s, failures, detail))

    async def _outcome(self, question: Question) -> tuple[Outcome, str]:
        job, outcome, detail = await self._submit(question)
        if job is None:
            return outcome, detail
        self.book.jobs[job.id] = job
        if self.rng.random() < _CANCELLED_SHARE:
            outcome, detail = await self._cancel(job)
        else:
            outcome, detail = await self._follow(job)
        job.ended_s = asyncio.get_running_loop().time()
        return outcome, f"{job.id}: {detail}" if detail else ""

    async def _submit(self, question: Question) -> tuple[Known | None, Outcome, str]:
        made = await self._call("POST", question.path, question.body, question.headers)
        if made is None:
            self.book.lost_answers += 1
            return None, "lost", f"no answer to the submission; {self._last_failure()}"
        if made.status not in (200, 202):
            return None, "wrong", f"{made.status} {_text(made.body)}"
        now_s = asyncio.get_running_loop().time()
        return Known(orjson.loads(made.body)["id"], question.answer_key, now_s), "right", ""

    async def _follow(self, job: Known) -> tuple[Outcome, str]:
        watched = None
        if self.rng.random() < _WATCHED_SHARE:
            watched = await events.watch(self.client, job.id, patience_s=STUCK_S)
            self.book.watched += 1
            self.book.connections += watched.connections
            self.calls.append(Call(None, watched.failures))
        record = await self._until_ended(job)
        if isinstance(record, tuple):
            return record
        job.state = record["status"]
        outcome, detail = self._judge(job, record)
        if outcome == "right" and watched is not None:
            self._check_events(job, watched, record)
        if job.state == "succeeded" and self.rng.random() < _DELETED_SHARE:
            await self._delete(job)
        return outcome, detail

    async def _until_ended(self, job: Known) -> dict[str, Any] | tuple[Outcome, str]:
        """The record of the ended job, with its result; or why there is none."""
        loop = asyncio.get_running_loop()
        missed_s: float | None = None  # since when the answer is 404
        while loop.time() < job.accepted_s + STUCK_S:
            made = await self._call("GET", f"/v1/jobs/{job.id}")
            if made is None:
                return "lost", f"no answer about the job; {self._last_failure()}"
            if made.status == 404:
                missed_s = missed_s or loop.time()
                if outcome := self._missing(job, missed_s):
                    return outcome
            elif made.status != 200:
                return "wrong", f"{made.status} {_text(made.body)}"
            else:
                missed_s = None
                record: dict[str, Any] = orjson.loads(made.body)
                if record["status"] not in ("queued", "running"):
                    return record
            await asyncio.sleep(_POLL_S)
        return "lost", f"stuck: not ended {STUCK_S:g} s after it was accepted"

    def _missing(self, job: Known, missed_s: float) -> tuple[Outcome, str] | None:
        """What a 404 means; None while the job may still be written again by the replica that runs it."""
        now_s = asyncio.get_running_loop().time()
        if not self._may_have_forgotten(job):
            return "wrong", f"404 for a job that was accepted {now_s - job.accepted_s:.1f} s ago"
        restored_s = DEADLINE_S if job.outlives_redis else _RESTORE_S
        if self.route == "jobs" and now_s - missed_s <= restored_s:
            return None
        if job.outlives_redis and "replica_killed" not in self.ledger.kinds(missed_s, now_s):
            return "lost", "it ran when Redis was emptied, and was never written again"
        job.state = "gone"
        return "gone", ""

    def _judge(self, job: Known, record: Mapping[str, Any]) -> tuple[Outcome, str]:
        if record["status"] == "failed":
            error = record["error"]
            if error["code"] in _RETRYABLE_CODES:
                return "failed", f"{error['code']}: {error['message']}"
            return "wrong", f"failed with {error['status']} {error['code']}: {error['message']}"
        if record["status"] != "succeeded":
            return "wrong", f"status {record['status']}, which nobody asked for"
        if record["result"] is None:
            return "wrong", "succeeded without a result"
        fault, _ = judged("job", orjson.dumps(record["result"]), self.expected[job.answer_key])
        return ("wrong", fault) if fault else ("right", "")

    def _check_events(self, job: Known, watched: events.Watched, record: Mapping[str, Any]) -> None:
        if watched.missing or self._may_have_forgotten(job):
            return
        now_s = asyncio.get_running_loop().time()
        pages = PAGES[job.answer_key.removeprefix("file:")]
        for fault in events.faults(watched.events, pages, record["attempts"]):
            self.ledger.report("events", f"job {job.id}: {fault}", job.accepted_s, now_s)

    async def _cancel(self, job: Known) -> tuple[Outcome, str]:
        await asyncio.sleep(self.rng.uniform(0, 3))
        made = await self._call("DELETE", f"/v1/jobs/{job.id}")
        if made is None:
            return "lost", f"no answer to the cancellation; {self._last_failure()}"
        if made.status in (200, 204):  # 204: it had ended already, and is forgotten
            job.state = "cancelled" if made.status == 200 else "deleted"
            return "cancelled", ""
        if made.status == 404 and self._may_have_forgotten(job):
            job.state = "gone"
            return "gone", ""
        if made.status == 404 and len(self.calls[-1].failures) > 0:  # the answer to the first attempt was lost
            job.state = "deleted"
            return "cancelled", ""
        return "wrong", f"DELETE answered {made.status} {_text(made.body)}"

    async def _delete(self, job: Known) -> None:
        made = await self._call("DELETE", f"/v1/jobs/{job.id}")
        if made is not None and made.status in (204, 404):
            job.state = "deleted"

    def _may_have_forgotten(self, job: Known) -> bool:
        return self.ledger.may_have_forgotten(job.accepted_s, asyncio.get_running_loop().time(), route=self.route)

    async def _call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Any:
        """The answer; None after all patience. Its attempts are kept."""
        made = await call(self.client, method, path, body, headers, patience=FILE)
        self.calls.append(made)
        return made.answer

    def _last_failure(self) -> str:
        failures = [failure for made in self.calls for failure in made.failures]
        return f"last: {failures[-1].failure} {failures[-1].detail}" if failures else ""


def _text(body: bytes) -> str:
    return body[:300].decode("utf-8", "replace")
