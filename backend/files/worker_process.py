"""A worker process as the service sees it: started, called with a deadline, killed."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import psutil

from backend.files import frames
from backend.files.limits import WALL_RATIO, FileLimits

MODULE = "backend.files.worker"
_ROOT = Path(__file__).resolve().parents[2]  # the folder that holds the package, for the worker to import it
# As it is now: while another thread imports OpenCV, that puts its own folder there, and a worker that begins then would
# take cv2/typing for the standard library's.
_PYTHONPATH = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
_START_S = 60.0  # for a cold disk and a busy machine; usually 0.3
_AGAIN_S = 0.05  # at least so long between two looks at a worker's time
_END_S = 2.0  # for a worker whose socket was closed; it has nothing to finish
# No secrets (API keys, REDIS_URL), one thread per library, and large buffers returned to the system when freed.
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "262144",
    "MALLOC_TRIM_THRESHOLD_": "262144",
}


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
                env={**_ENVIRONMENT, "PYTHONPATH": _PYTHONPATH},
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
            self._receive(start_time, 0)
            header = self._exchange({"call": "set_limits", "limits": asdict(self._limits)}, start_time, (), 0).header
        except (WorkerGone, WorkerLate) as error:
            raise WorkerNotStarted(str(error)) from error
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
