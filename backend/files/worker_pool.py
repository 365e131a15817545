"""A pool of worker processes, each used by one caller at a time. Knows no file formats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.errors import DeadlineExceeded, Unavailable
from backend.files.worker_process import WorkerGone, WorkerLate, WorkerProcess
from backend.telemetry import log_event

_log = logging.getLogger(__name__)

MAX_OPEN_FILES = 4  # in one worker: pages of one request find their file open, and files of many do not pile up
MAX_OPEN_STREAMS = 64  # of these, beside them: one that is closed has to be decoded from its beginning again
_MAX_CALLS = 2000  # of one worker, then it is replaced: this bounds what libraries leak
_MAX_GROWTH_BYTES = 256 * 2**20  # of one worker over its size at start, measured between calls; for the same reason
_CLOSE_S = 5.0  # for closing files; a worker that takes longer is killed


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Current workers by state, and totals since the start."""

    idle: int
    busy: int
    started: int
    late: int  # killed at a deadline, or because the caller had gone
    died: int  # without being killed by us
    recycled: int  # replaced after many calls or too much growth


class WorkerPool:
    """At most ``count`` workers, started on demand.

    Safe on any thread. The lock protects the pool's state only; it is never held during a call to a worker.
    """

    def __init__(
        self, count: int, start_worker: Callable[[], WorkerProcess], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._start_worker, self._clock = count, start_worker, clock
        self._changed = threading.Condition()
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, int] = {}  # with the file it is used for
        self._starting = self._started = self._late = self._died = self._recycled = 0
        self._is_closed = False

    def warm_up(self) -> None:
        """Start one worker, so that the first file need not wait for it."""
        self._refill()

    def acquire(self, file: int, until: float | None) -> WorkerProcess:
        """A worker for the caller alone, preferably one that has the file open. Blocks while all are busy.

        Args:
            until: deadline on the clock; None waits until a worker is free.

        Raises:
            DeadlineExceeded: no worker became free in time.
            Unavailable: the pool is closed, or no process can be started.
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

    def release(self, worker: WorkerProcess) -> None:
        """Return a worker after a call that it answered."""
        while self._clean_up(worker):
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
        """Kill a worker that died or must die, and start another in its place."""
        worker.kill()
        self._remove(worker, "_late" if late else "_died")

    def close_file(self, file: int) -> None:
        """Close a file in every worker that has it open: idle ones now, busy ones after their call."""
        with self._changed:
            holders = [worker for worker in self._idle if file in worker.files]
            for worker in holders:
                self._idle.remove(worker)
                self._busy[worker] = file
            for worker in (*holders, *self._busy):
                worker.stale.add(file)
        for worker in holders:
            self.release(worker)

    def kill_after(self, grace_s: float, file: int) -> None:
        """Kill the workers that still run a call for this file after the grace; the caller starts no further one."""
        with self._changed:
            is_busy = file in self._busy.values()
        if not is_busy:
            return
        timer = threading.Timer(grace_s, self._kill, (file,))
        timer.daemon = True  # a service that ends kills its workers itself
        timer.start()

    def _kill(self, file: int) -> None:
        with self._changed:
            for worker in [worker for worker, used_for in self._busy.items() if used_for == file]:
                worker.kill()

    def counts(self) -> PoolCounts:
        """Numbers for metrics."""
        with self._changed:
            return PoolCounts(len(self._idle), len(self._busy), self._started, self._late, self._died, self._recycled)

    def check_open(self) -> None:
        """Raises: Unavailable after `close`."""
        if self._is_closed:
            raise Unavailable("the service is stopping; files are no longer read", kind="for_good")

    def close(self) -> None:
        """End all workers; callers that wait or are in a call get Unavailable or WorkerGone."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.kill()  # its caller discards it
            self._changed.notify_all()
        for worker in idle:
            worker.end()

    def _size(self) -> int:
        return len(self._idle) + len(self._busy) + self._starting

    def _best_idle(self, file: int) -> WorkerProcess | None:
        """The worker that has the file open, else the one with the fewest open, of equals the last used (caches)."""
        for worker in [worker for worker in self._idle if not worker.is_alive]:  # killed from outside
            self._idle.remove(worker)
            self._died += 1
            worker.end()
        ranked = [(file in worker.files, -len(worker.files), index) for index, worker in enumerate(self._idle)]
        return self._idle[max(ranked)[2]] if ranked else None

    def _new(self, file: int | None) -> WorkerProcess:
        """Start the worker that `_starting` already counts; it becomes busy with the file, or idle for None."""
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
        except Unavailable as error:  # the next caller tries again and gets the error
            log_event(_log, logging.WARNING, "reader not started", error=str(error))

    def _remove(self, worker: WorkerProcess, counter: str) -> None:
        worker.end()
        with self._changed:
            self._busy.pop(worker, None)
            setattr(self, counter, getattr(self, counter) + 1)
            self._changed.notify()
        self._refill()

    def _clean_up(self, worker: WorkerProcess) -> bool:
        """Close files that nobody uses or that are too many; False when the worker was replaced instead."""
        surplus = _surplus(worker, MAX_OPEN_FILES, streams=False) + _surplus(worker, MAX_OPEN_STREAMS, streams=True)
        stale = sorted((worker.stale & worker.files.keys()).union(surplus))
        try:
            if stale:
                worker.call({"call": "close", "files": stale}, limit_s=_CLOSE_S)
        except (WorkerGone, WorkerLate):
            self.discard(worker, late=True)
            return False
        for file in stale:
            del worker.files[file]
        grown_bytes = worker.rss_bytes - worker.rss_at_start_bytes
        if worker.calls < _MAX_CALLS and grown_bytes <= _MAX_GROWTH_BYTES:
            return True
        log_event(_log, logging.INFO, "reader renewed", calls=worker.calls, grown_bytes=grown_bytes)
        self._remove(worker, "_recycled")
        return False


def _surplus(worker: WorkerProcess, most: int, *, streams: bool) -> list[int]:
    """The least recently used files, or streams, over so many."""
    files = [number for number, is_stream in worker.files.items() if is_stream is streams]
    return files[: max(0, len(files) - most)]
