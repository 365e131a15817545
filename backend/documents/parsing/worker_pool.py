"""A few workers, lent to one caller each: which one, when a new one, when one is put away. Knows no file formats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.documents.parsing.worker_process import WorkerGone, WorkerLate, WorkerProcess
from backend.errors import DeadlineExceeded, Unavailable
from backend.telemetry import log_event

_log = logging.getLogger(__name__)

OPEN_FILES = 4  # held open by one worker; a request's pages find their file open, many requests do not pile up
_CALLS_OF_A_LIFE = 2000  # then a new one: what libraries leak stays bounded
_GROWTH_BYTES = 256 * 2**20  # over its size at the start, between calls; the same
_DROP_S = 5.0  # to close a file; a worker that cannot do that is put away


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """What happened to workers since the start, and where they are now."""

    idle: int
    busy: int
    started: int
    late: int  # killed at a deadline, or because nobody waited any more
    died: int  # by themselves
    recycled: int  # after many calls, or because they had grown


class WorkerPool:
    """At most ``count`` workers. Safe on any thread; the lock is held for decisions only, never while one is asked."""

    def __init__(
        self, count: int, start_worker: Callable[[], WorkerProcess], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._start_worker, self._clock = count, start_worker, clock
        self._changed = threading.Condition()
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, int] = {}  # with the file it is lent for
        self._starting = self._started = self._late = self._died = self._recycled = 0
        self._is_closed = False

    def warm_up(self) -> None:
        """Start one worker, so that the first file need not wait for it."""
        self._refill()

    def take(self, file: int, until: float | None) -> WorkerProcess:
        """A worker of one's own, one that holds the file open if there is one. Waits while all are busy.

        Args:
            until: on the clock; None waits for as long as others' deadlines last.

        Raises:
            DeadlineExceeded: none came free in time.
            Unavailable: the pool was closed, or no process can be started.
        """
        waited_from = self._clock()
        with self._changed:
            while True:
                self.check_open()
                if worker := self._best_idle(file):
                    self._idle.remove(worker)
                    self._busy[worker] = file
                    return worker
                if self._size() < self._count:
                    self._starting += 1
                    break
                left_s = None if until is None else until - self._clock()
                if left_s is not None and (left_s <= 0 or not self._changed.wait(left_s)):
                    raise DeadlineExceeded(round(self._clock() - waited_from, 3))
                if left_s is None:
                    self._changed.wait()
        return self._new(file)

    def give(self, worker: WorkerProcess) -> None:
        """Back after a call that was answered."""
        while self._make_clean(worker):
            with self._changed:
                worker.stale &= worker.files.keys()
                if worker.stale:  # a file was closed just now
                    continue
                if not self._is_closed:
                    self._busy.pop(worker)
                    self._idle.append(worker)
                    self._changed.notify()
                    return
            self.discard(worker, late=True)
            return

    def discard(self, worker: WorkerProcess, *, late: bool) -> None:
        """Put away a worker that died or must die, and start another in its place."""
        worker.kill()
        self._put_away(worker, "_late" if late else "_died")

    def forget(self, file: int) -> None:
        """Close a file wherever it is open: at once in idle workers, after their call in others."""
        with self._changed:
            holders = [worker for worker in self._idle if file in worker.files]
            for worker in holders:
                self._idle.remove(worker)
                self._busy[worker] = file
            for worker in (*holders, *self._busy):
                worker.stale.add(file)
        for worker in holders:
            self.give(worker)

    def kill(self, file: int) -> None:
        """End the calls that are made for a file now."""
        with self._changed:
            for worker in [worker for worker, lent_for in self._busy.items() if lent_for == file]:
                worker.kill()

    def counts(self) -> PoolCounts:
        """For metrics."""
        with self._changed:
            return PoolCounts(len(self._idle), len(self._busy), self._started, self._late, self._died, self._recycled)

    def check_open(self) -> None:
        """Raises: Unavailable after `close`."""
        if self._is_closed:
            raise Unavailable("the service is stopping; files are no longer read")

    def close(self) -> None:
        """End all workers; those who wait or are in a call get Unavailable or WorkerGone."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.kill()  # its caller puts it away
            self._changed.notify_all()
        for worker in idle:
            worker.end()

    def _size(self) -> int:
        return len(self._idle) + len(self._busy) + self._starting

    def _best_idle(self, file: int) -> WorkerProcess | None:
        """One that has the file open, else the one with the fewest open, the last used among equals: it is warm."""
        for worker in [worker for worker in self._idle if not worker.is_alive]:  # ended from outside
            self._idle.remove(worker)
            self._died += 1
            worker.end()
        ranked = [(file in worker.files, -len(worker.files), index) for index, worker in enumerate(self._idle)]
        return self._idle[max(ranked)[2]] if ranked else None

    def _new(self, file: int | None) -> WorkerProcess:
        """Start a worker in the place that was kept for it; lent for a file, or idle."""
        try:
            worker = self._start_worker()
        except OSError as error:
            with self._changed:
                self._starting -= 1
                self._changed.notify()
            raise Unavailable(f"no process can be started to read files: {error.strerror}") from error
        with self._changed:
            self._starting -= 1
            self._started += 1
            is_closed = self._is_closed
            if file is not None and not is_closed:
                self._busy[worker] = file
            elif not is_closed:
                self._idle.append(worker)
                self._changed.notify()
        if is_closed:
            worker.end()
            self.check_open()
        return worker

    def _refill(self) -> None:
        with self._changed:
            if self._is_closed or self._size() >= self._count:
                return
            self._starting += 1
        try:
            self._new(None)
        except Unavailable as error:  # whoever needs it next is told
            log_event(_log, logging.WARNING, "reader not started", error=str(error))

    def _put_away(self, worker: WorkerProcess, counter: str) -> None:
        worker.end()
        with self._changed:
            self._busy.pop(worker, None)
            setattr(self, counter, getattr(self, counter) + 1)
            self._changed.notify()
        self._refill()

    def _make_clean(self, worker: WorkerProcess) -> bool:
        """Close what nobody needs in it, and what is too much; False when it was put away instead."""
        surplus = list(worker.files)[: max(0, len(worker.files) - OPEN_FILES)]  # the least recently used
        stale = sorted((worker.stale & worker.files.keys()).union(surplus))
        try:
            if stale:
                worker.call({"call": "drop", "files": stale}, limit_s=_DROP_S)
        except (WorkerGone, WorkerLate):
            self.discard(worker, late=True)
            return False
        for file in stale:
            del worker.files[file]
        grown_bytes = worker.rss_bytes - worker.rss_at_start_bytes
        if worker.calls < _CALLS_OF_A_LIFE and grown_bytes <= _GROWTH_BYTES:
            return True
        log_event(_log, logging.INFO, "reader renewed", calls=worker.calls, grown_bytes=grown_bytes)
        self._put_away(worker, "_recycled")
        return False
