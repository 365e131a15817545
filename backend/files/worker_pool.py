"""A pool of worker processes, each used by one caller at a time. Knows no file formats."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from typing import Any

import psutil

from backend.errors import DeadlineExceeded, Unavailable
from backend.files import frames
from backend.files.limits import MAX_OPEN_FILES, MAX_OPEN_STREAMS, WALL_RATIO, FileLimits
from backend.own_modules import PYTHONPATH
from backend.telemetry import log_event

MODULE = "backend.files.worker"
_START_S = 60.0  # for a cold disk and a busy machine; usually 0.3
_AGAIN_S = 0.05  # at least so long between two looks at a worker's time
_END_S = 2.0  # for a worker whose socket was closed; it has nothing to finish
# No secrets (API keys, REDIS_URL), one thread per library, and large buffers returned to the system when freed.
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144",
}  # fmt: skip


class WorkerGone(Exception):
    """The process ended, or sent something that is no frame. ``how`` says which: "SIGSEGV", "exit 1"."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class WorkerNotStarted(Exception):
    """The process did not start: a library is missing, or the machine is out of memory. Its stderr says more."""


class WorkerLate(Exception):
    """No answer within the limits. The process is still running the call and must be killed."""

    def __init__(self, waited_s: float, worked_s: float) -> None:
        super().__init__(f"{waited_s:.1f} s, of which it worked {worked_s:.1f} s")
        self.waited_s, self.worked_s = waited_s, worked_s


class _CallTime:
    """What is left of the work and of the time of one call."""

    def __init__(self, worker: WorkerProcess, limit_s: float, wall_s: float) -> None:
        self._worker, self._limit_s, self._wall_s = worker, limit_s, wall_s
        self._began_s, self._began_work_s = worker.clock(), worker.work_s()

    @property
    def wall_left_s(self) -> float:
        return self._began_s + self._wall_s - self._worker.clock()

    def next_look_s(self) -> float:
        """How long to wait before a limit can have passed: a second of work takes a second or more.

        Raises: TimeoutError when one has passed.
        """
        left_s = min(self._limit_s - self._worked_s, self.wall_left_s)
        if left_s <= 0:
            raise TimeoutError
        return max(_AGAIN_S, left_s)

    def late(self) -> WorkerLate:
        return WorkerLate(self._worker.clock() - self._began_s, self._worked_s)

    @property
    def _worked_s(self) -> float:
        return max(0.0, self._worker.work_s() - self._began_work_s)


class WorkerProcess:
    """A fresh interpreter, not a fork: it has none of the service's threads, locks, models or sockets.

    One caller at a time; `kill` is safe on any thread and wakes the caller.
    """

    def __init__(
        self,
        limits: FileLimits,
        *,
        command: Sequence[str] = (sys.executable, "-P", "-m", MODULE),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Open in it, the least recently used first, and whether they are read as streams; maintained by the pool
        self.files: dict[int, bool] = {}
        self.stale: set[int] = set()  # of these, the ones to close
        self.served: set[int] = set()  # every file it ever opened: an earlier one may have caused a crash
        self.confined: dict[str, str] = {}  # what bounds it, from `sandbox.confine`; set by the first call
        self.calls = 0  # on pages; text and image of one page count twice
        self.rss_bytes = self.rss_at_start_bytes = 0
        self.clock = clock
        self._limits = limits
        self._is_ready = False
        self._connection, worker_end = socket.socketpair()
        try:
            frames.enlarge_buffers(self._connection)
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter, our own module
                [*command, str(worker_end.fileno())],
                env={**_ENVIRONMENT, "PYTHONPATH": PYTHONPATH},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[worker_end.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C is for the service, which then ends its workers
            )
        except OSError:
            self._connection.close()
            raise
        finally:
            worker_end.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def work_s(self) -> float:
        """Seconds that the process has been on a core; 0 when it has ended."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def call(
        self,
        request: Mapping[str, Any],
        *,
        limit_s: float,
        most_wait_s: float = math.inf,
        fds: Sequence[int] = (),
        most_payload_bytes: int = 0,
    ) -> frames.Frame:
        """Send a request and wait for its answer. The first call also waits for the start, outside its limits.

        Args:
            limit_s: of work: seconds of the process on a core. On a busy machine they take longer, at most
                `WALL_RATIO` times as long: a worker that waits for something else hangs.
            most_wait_s: of the caller, on the clock.

        Raises:
            WorkerNotStarted: the process did not start.
            WorkerGone: the process ended.
            WorkerLate: a limit passed. The worker cannot be used any more.
        """
        if not self._is_ready:
            self._finish_start()
        wall_s = min(WALL_RATIO * limit_s, most_wait_s)
        return self._exchange(request, _CallTime(self, limit_s, wall_s), fds, most_payload_bytes)

    def kill(self) -> None:
        """Kill the process at once; a caller that waits in `call` gets WorkerGone."""
        self._process.kill()

    def end(self) -> None:
        """Close the connection and reap the process: at once where it was killed, else within two seconds."""
        self._connection.close()  # the worker exits on this
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _finish_start(self) -> None:
        try:
            start_time = _CallTime(self, _START_S, WALL_RATIO * _START_S)
            ready = self._receive(start_time, 0).header
            header = self._exchange({"call": "set_limits", "limits": asdict(self._limits)}, start_time, (), 0).header
        except (WorkerGone, WorkerLate) as error:
            raise WorkerNotStarted(str(error)) from error
        self.confined = {str(what): str(how) for what, how in ready["confined"].items()}
        self.rss_at_start_bytes = self.rss_bytes = int(header["rss_bytes"])
        self._is_ready = True

    def _exchange(
        self, request: Mapping[str, Any], time_left: _CallTime, fds: Sequence[int], most_payload_bytes: int
    ) -> frames.Frame:
        self._connection.settimeout(max(_AGAIN_S, time_left.wall_left_s))
        try:
            frames.send(self._connection, request, fds=fds)
        except TimeoutError as error:
            raise time_left.late() from error
        except OSError as error:
            raise WorkerGone(self._how_it_ended()) from error
        answer = self._receive(time_left, most_payload_bytes)
        self.rss_bytes = int(answer.header.get("rss_bytes", 0))
        return answer

    def _receive(self, time_left: _CallTime, most_payload_bytes: int) -> frames.Frame:
        def set_timeout() -> None:
            left_s = time_left.wall_left_s
            if left_s <= 0:
                raise TimeoutError
            self._connection.settimeout(left_s)

        try:
            self._await_answer(time_left)
            return frames.receive(self._connection, max_payload_bytes=most_payload_bytes, before_read=set_timeout)
        except TimeoutError as error:
            raise time_left.late() from error
        except (EOFError, OSError) as error:
            raise WorkerGone(self._how_it_ended()) from error
        except frames.BadFrame as error:
            self.kill()
            raise WorkerGone(f"nonsense on its wire: {error}") from error

    def _await_answer(self, time_left: _CallTime) -> None:
        """Wait for the answer's first byte: it is sent when the work is done. Raises: TimeoutError."""
        while not wait([self._connection], time_left.next_look_s()):
            continue

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        code = self._process.returncode
        if code is None:
            return "closed its wire"
        if code >= 0:
            return f"exit {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"


_log = logging.getLogger(__name__)

MAX_CALLS = 2000  # of one worker, then it is replaced: this bounds what libraries leak
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
        self.confined: dict[str, str] = {}  # what bounds its workers; empty before the first file
        self._count, self._start_worker, self._clock = count, start_worker, clock
        self._changed = threading.Condition()
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, int] = {}  # with the file it is used for
        self._starting = self._started = self._late = self._died = self._recycled = 0
        self._is_closed = False

    def warm_up(self) -> None:
        """Start one worker, so that the first file need not wait for it."""
        self._refill()

    def acquire(self, file: int, deadline_s: float | None) -> WorkerProcess:
        """A worker for the caller alone, preferably one that has the file open. Blocks while all are busy.

        Args:
            deadline_s: on the clock; None waits until a worker is free.

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
                left_s = None if deadline_s is None else deadline_s - self._clock()
                if left_s is not None and (left_s <= 0 or not self._changed.wait(left_s)):
                    raise DeadlineExceeded(round(self._clock() - waited_from, 3))
                if left_s is None:
                    self._changed.wait()
        return self._new(file)

    def release(self, worker: WorkerProcess) -> None:
        """Return a worker after a call that it answered."""
        self._note_confinement(worker.confined)
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

    def _note_confinement(self, confined: dict[str, str]) -> None:
        if confined != self.confined:
            self.confined = confined
            log_event(_log, logging.INFO, "readers are confined", **confined)

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
        if worker.calls < MAX_CALLS and grown_bytes <= _MAX_GROWTH_BYTES:
            return True
        log_event(_log, logging.INFO, "reader renewed", calls=worker.calls, grown_bytes=grown_bytes)
        self._remove(worker, "_recycled")
        return False


def _surplus(worker: WorkerProcess, most: int, *, streams: bool) -> list[int]:
    """The least recently used files, or streams, over so many."""
    files = [number for number, is_stream in worker.files.items() if is_stream is streams]
    return files[: max(0, len(files) - most)]
