"""The mixed traffic of the soak: streams of requests that arrive by a Poisson process, whatever the service does."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from benchmarks.soak.caller import FILE, TEXT, Call, Patience, call
from benchmarks.soak.content import (
    BYTES,
    TAUGHT,
    Question,
    difference,
    essence,
    hostile_files,
    job_of,
    judged,
    known_files,
    known_texts,
    lesson,
    question_of,
    recording_of,
    scan_of,
)
from benchmarks.soak.http_client import HttpClient
from benchmarks.soak.job_client import DEADLINE_S, JobBook, JobClient
from benchmarks.soak.ledger import Ledger, Outcome, Request
from benchmarks.soak.schedule import Route

TEXT_KINDS = ("embeddings", "embeddings", "entities", "classify", "zero-shot")
_CLEAR_REFUSALS = frozenset({200, 400, 413, 415, 422})  # to a hostile file; some can be repaired and read
_LESSON = Patience(15.0, 20.0)
# Requests a second; together about a third of two cores.
_TEXTS, _SCANS, _JOBS, _LESSONS, _HOSTILE, _RECORDINGS = 6.0, 0.3, 0.25, 0.1, 0.2, 0.08
_SAMPLED = 120  # fresh texts whose answers are computed again at the end


@dataclass(frozen=True, slots=True)
class Sample:
    """A fresh text and the answer it got, to be compared at the end with a quiet computation."""

    kind: str
    text: str
    essence: Any
    at_s: float


class Streams:
    """Begins requests as they arrive, whatever becomes of those before, and waits for them at the end."""

    def __init__(self, ledger: Ledger, rng: random.Random) -> None:
        self.lags_s: list[float] = []  # how late this process itself began requests
        self._ledger, self._rng = ledger, rng
        self._streams: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Future[None]] = set()

    def start(self, rate: Callable[[], float], begin: Callable[[float], Awaitable[None]]) -> None:
        """Begin one stream of ``rate()`` requests a second."""
        self._streams.append(asyncio.create_task(self._arrivals(rate, begin)))

    def spawn(self, work: Awaitable[None]) -> None:
        """Do this besides the streams."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    async def stop(self) -> None:
        """Begin nothing more; wait for everything under way."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _arrivals(self, rate: Callable[[], float], begin: Callable[[float], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            due_s += self._rng.expovariate(rate())
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            self.lags_s.append(loop.time() - due_s)
            self.spawn(begin(due_s))

    def _on_task_done(self, task: asyncio.Future[None]) -> None:
        """A fault of the soak itself must not hide a request."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            now_s = asyncio.get_running_loop().time()
            self._ledger.report("unaccounted", f"the soak's own client failed: {error!r}", now_s, now_s)


class Traffic:
    """Sends every kind of request until it is told to stop, and then waits for what is under way.

    Args:
        expected: right answers by the questions' ``answer_key``.
        replica_ports: of the replicas that run now, for requests past the proxy.
    """

    def __init__(
        self,
        port: int,
        ledger: Ledger,
        expected: Mapping[str, Any],
        *,
        seed: int,
        replica_ports: Callable[[], list[int]],
    ) -> None:
        self.client, self.ledger, self.expected = HttpClient(port), ledger, expected
        self.book, self.samples = JobBook(), list[Sample]()
        self.boost = 1.0  # of texts and scans, while the overload lasts
        self._rng, self._replica_ports = random.Random(f"traffic-{seed}"), replica_ports
        self.streams = Streams(ledger, self._rng)
        self._texts, self._files, self._hostile = known_texts(), known_files(), itertools.cycle(hostile_files())
        self._numbers, self._fresh = itertools.count(), 0

    def start(self) -> None:
        streams: tuple[tuple[Callable[[], float], Callable[[float], Awaitable[None]]], ...] = (
            (lambda: _TEXTS * self.boost, self._text),
            (lambda: _SCANS * self.boost, self._scan),
            (lambda: _JOBS, self._job),
            (lambda: _LESSONS, self._lesson),
            (lambda: _HOSTILE, self.hostile),
            (lambda: _RECORDINGS, self._recording),
        )
        for rate, begin in streams:
            self.streams.start(rate, begin)

    def send_jobs(self, count: int) -> None:
        """Submit jobs now, besides those of the stream: a fault should meet some that run and some that wait."""
        for _ in range(count):
            self.streams.spawn(self._job(asyncio.get_running_loop().time()))

    async def stop(self) -> None:
        """Send nothing more; wait for every request and job under way."""
        await self.streams.stop()
        await self.client.close()

    async def _text(self, due_s: float) -> None:
        """A known text, or one that was never sent, in equal parts."""
        kind, text = self._rng.choice(TEXT_KINDS), self._rng.choice(self._texts)
        if self._rng.random() < 0.5:
            await self._ask(question_of(kind, text), due_s, TEXT)
            return
        fresh = f"{text} Ref. {self._rng.randrange(10**9)}."
        answer = await self._ask(question_of(kind, fresh, "fresh"), due_s, TEXT)
        if answer is not None:
            self._keep_sample(Sample(kind, fresh, answer, due_s))

    async def _scan(self, due_s: float) -> None:
        name = f"slip-{self._rng.randrange(4)}"
        await self._ask(scan_of(name, self._files[name], self._nonce()), due_s, FILE)

    async def _recording(self, due_s: float) -> None:
        await self._ask(recording_of(self._nonce()), due_s, FILE)

    async def _job(self, due_s: float) -> None:
        name = self._rng.choice(sorted(self._files))
        question = job_of(name, self._files[name], self._nonce(), deadline_s=DEADLINE_S)
        rng = random.Random(self._rng.random())
        await JobClient(self.client, self.ledger, self.book, self.expected, rng).run(question, due_s)

    async def _ask(self, question: Question, due_s: float, patience: Patience) -> Any:
        """Send, check, enter into the ledger; the essence of a right answer."""
        made = await send(self.client, question, patience)
        outcome, detail, got = self._judge(question, made, due_s)
        self._enter(question.kind, outcome, due_s, made, detail=detail)
        return got if outcome == "right" else None

    def _judge(self, question: Question, made: Call, due_s: float) -> tuple[Outcome, str, Any]:
        if made.answer is None:
            return "lost", f"{len(made.failures)} attempts; last: {made.failures[-1]}", None
        faults = self.ledger.kinds(due_s, asyncio.get_running_loop().time())
        if question.kind == "classify" and made.answer.status == 404 and "redis_emptied" in faults:
            return "refused", "", None  # until it is taught again (docs/reliability.md)
        if made.answer.status != 200:
            return "wrong", f"{made.answer.status} {made.answer.body[:300]!r}", None
        fault, got = judged(question.kind, made.answer.body, self.expected.get(question.answer_key))
        return ("wrong", fault, got) if fault else ("right", "", got)

    async def hostile(self, due_s: float) -> None:
        """A file that must get a clear refusal."""
        path, file = "/v1/documents?features=text", next(self._hostile)
        made = await call(self.client, "POST", path, file, BYTES, patience=FILE)
        if made.answer is None:
            self._enter("hostile", "lost", due_s, made, detail=f"{file[:20]!r}")
        elif made.answer.status in _CLEAR_REFUSALS:
            self._enter("hostile", "refused", due_s, made)
        else:
            detail = f"{made.answer.status} to {file[:20]!r}: {made.answer.body[:300]!r}"
            self._enter("hostile", "wrong", due_s, made, detail=detail)

    async def _lesson(self, due_s: float) -> None:
        """Teach one replica a classifier, which all get from Redis, and have it forgotten again."""
        port = self._rng.choice(self._replica_ports())
        question = lesson(f"soak-{next(self._numbers) % 4}")

        def is_gone() -> bool:
            return port not in self._replica_ports()

        async with HttpClient(port) as client:
            made = await send(client, question, _LESSON, is_gone)
            outcome, detail = _lesson_outcome(made, is_gone=is_gone())
            self._enter("learn", outcome, due_s, made, detail=detail, route="replica")
            if outcome == "right":
                await call(client, "DELETE", question.path, patience=_LESSON, is_gone=is_gone)

    def _enter(
        self, kind: str, outcome: Outcome, due_s: float, made: Call, *, detail: str = "", route: Route = "proxy"
    ) -> None:
        now_s = asyncio.get_running_loop().time()
        self.ledger.requests.append(Request(kind, route, outcome, due_s, now_s, tuple(made.failures), detail))

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def _keep_sample(self, sample: Sample) -> None:
        """A uniform sample of all fresh texts (reservoir)."""
        self._fresh += 1
        if len(self.samples) < _SAMPLED:
            self.samples.append(sample)
        elif (place := self._rng.randrange(self._fresh)) < _SAMPLED:
            self.samples[place] = sample


async def send(
    client: HttpClient, question: Question, patience: Patience, is_gone: Callable[[], bool] = lambda: False
) -> Call:
    return await call(
        client, question.method, question.path, question.body, question.headers, patience=patience, is_gone=is_gone
    )


def _lesson_outcome(made: Call, *, is_gone: bool) -> tuple[Outcome, str]:
    """A replica that has ended refuses everybody: whoever taught it knows, and teaches another."""
    if made.answer is None:
        return ("refused", "") if is_gone else ("lost", f"last: {made.failures[-1]}")
    if made.answer.status != 200:
        return "wrong", f"{made.answer.status} {made.answer.body[:300]!r}"
    return "right", ""


async def quiet_answers(port: int) -> dict[str, Any]:
    """The right answers of every known text and file, one after the other from a service that does nothing else."""
    questions = [question_of(kind, text) for kind in dict.fromkeys(TEXT_KINDS) for text in known_texts()]
    questions += [scan_of(name, file, "expected") for name, file in known_files().items()]
    questions.append(recording_of("expected"))
    async with HttpClient(port) as client:
        return {question.answer_key: await quiet_answer(client, question) for question in questions}


async def quiet_answer(client: HttpClient, question: Question) -> Any:
    """The essence of one answer. Raises: RuntimeError for an error, as nothing is wrong yet."""
    made = await send(client, question, FILE)
    if made.answer is None or made.answer.status != 200:
        raise RuntimeError(f"{question.method} {question.path}: {made.answer or made.failures[-1]}")
    return essence(question.kind, orjson.loads(made.answer.body))


async def teach(port: int) -> None:
    """Teach the classifier that the traffic asks."""
    async with HttpClient(port) as client:
        made = await send(client, lesson(TAUGHT), FILE)
    if made.answer is None or made.answer.status != 200:
        raise RuntimeError(f"the classifier was not learnt: {made.answer or made.failures[-1]}")


async def wrong_samples(port: int, samples: list[Sample], ledger: Ledger) -> int:
    """Compute sampled fresh texts again, alone and without a cache; enters what differs; how many were compared."""
    async with HttpClient(port) as client:
        for sample in samples:
            right = await quiet_answer(client, question_of(sample.kind, sample.text, "fresh"))
            if fault := difference(right, sample.essence):
                ledger.report("wrong", f"{sample.kind} of a fresh text: {fault}", sample.at_s, sample.at_s)
    return len(samples)
