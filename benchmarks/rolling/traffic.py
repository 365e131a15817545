"""Clients that load three replicas without a pause: texts, documents and background jobs, each accounted for."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.soak.caller import FILE, Patience
from benchmarks.soak.content import PAGES, Question, job_of, judged, known_files, known_texts, question_of, scan_of
from benchmarks.soak.http_client import HttpClient
from benchmarks.soak.job_client import DEADLINE_S, JobBook, JobClient
from benchmarks.soak.ledger import Ledger, Outcome, Request
from benchmarks.soak.schedule import LATE
from benchmarks.soak.traffic import quiet_answer, send

TEXT_KINDS = ("embeddings",) * 8 + ("entities", "zero-shot")
_FRESH_SHARE = 0.1  # of texts, never sent before: no cache has them
_TEXT = FILE  # a machine that others share may be later than LIMIT_REQUEST_S, and says so by then


@dataclass(frozen=True, slots=True)
class Clients:
    """How many clients of each kind send their next request when the last one is answered."""

    texts: int = 12
    documents: int = 1
    jobs: int = 2
    pages: int = max(PAGES.values())  # of a file, at most


class ClosedTraffic:
    """Sends until ``stop``; every request and job is entered into the ledger.

    Args:
        expected: right answers by the questions' ``answer_key``.
    """

    def __init__(self, port: int, ledger: Ledger, expected: Mapping[str, Any], *, seed: int, clients: Clients) -> None:
        self.book, self.answered = JobBook(), 0
        self.late = 0  # attempts answered 504: the machine's cores were others', nothing was lost; sent again
        self._client, self._ledger, self._expected, self._clients = HttpClient(port), ledger, expected, clients
        self._rng, self._texts = random.Random(f"rolling-{seed}"), known_texts()
        self._files = _files(clients.pages)
        self._running, self._tasks = True, list[asyncio.Task[None]]()
        self._progress = asyncio.Condition()

    def start(self) -> None:
        counts = self._clients
        loops: Iterator[Coroutine[None, None, None]] = itertools.chain(
            (self._repeat_texts() for _ in range(counts.texts)),
            (self._repeat_documents() for _ in range(counts.documents)),
            (self._repeat_jobs() for _ in range(counts.jobs)),
        )
        self._tasks = [asyncio.create_task(each) for each in loops]

    async def answered_more_than(self, count: int) -> None:
        """Wait until so many requests have ended. Raises: what ended a client."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.answered > count or any(task.done() for task in self._tasks))
        for task in self._tasks:
            if task.done():
                await task

    async def stop(self) -> None:
        """Send nothing more, and wait for answers and ends of jobs that are due. Raises: what ended a client."""
        self._running = False
        try:
            await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            self._client.close()

    async def _repeat_texts(self) -> None:
        while self._running:
            kind, text = self._rng.choice(TEXT_KINDS), self._rng.choice(self._texts)
            if self._rng.random() < _FRESH_SHARE:
                await self._ask(question_of(kind, f"{text} Ref. {self._rng.randrange(10**9)}.", "fresh"), _TEXT)
            else:
                await self._ask(question_of(kind, text), _TEXT)

    async def _repeat_documents(self) -> None:
        names = sorted(self._files)
        while self._running:
            name = self._rng.choice(names)
            await self._ask(scan_of(name, self._files[name], self._nonce()), FILE)

    async def _repeat_jobs(self) -> None:
        names = sorted(self._files)
        while self._running:
            name = self._rng.choice(names)
            question = job_of(name, self._files[name], self._nonce(), deadline_s=DEADLINE_S)
            rng = random.Random(self._rng.random())
            due_s = asyncio.get_running_loop().time()
            await JobClient(self._client, self._ledger, self.book, self._expected, rng).run(question, due_s)

    async def _ask(self, question: Question, patience: Patience) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        made = await send(self._client, question, patience)
        outcome, detail = self._judge(question, made.answer)
        failures = tuple(attempt for attempt in made.failures if attempt.failure != LATE)
        self.late += len(made.failures) - len(failures)
        entry = Request(question.kind, "proxy", outcome, due_s, loop.time(), failures, detail)
        self._ledger.requests.append(entry)
        async with self._progress:
            self.answered += 1
            self._progress.notify_all()

    def _judge(self, question: Question, answer: Any) -> tuple[Outcome, str]:
        if answer is None:
            return "lost", "no answer to any attempt"
        if answer.status != 200:
            return "wrong", f"{answer.status} {answer.body[:300]!r}"
        fault, _ = judged(question.kind, answer.body, self._expected.get(question.answer_key))
        return ("wrong", fault) if fault else ("right", "")

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"


def _files(pages: int) -> dict[str, bytes]:
    return {name: file for name, file in known_files().items() if PAGES[name] <= pages}


async def right_answers(port: int, pages: int) -> dict[str, Any]:
    """What a service that does nothing else answers to every known text and every file of so many pages at most."""
    client, answers = HttpClient(port), dict[str, Any]()
    questions = [question_of(kind, text) for kind in dict.fromkeys(TEXT_KINDS) for text in known_texts()]
    questions += [scan_of(name, file, "expected") for name, file in _files(pages).items()]
    try:
        for question in questions:
            answers[question.answer_key] = await quiet_answer(client, question)
    finally:
        client.close()
    return answers
