"""Measures in a process of its own, while the service rests: what is measured there can neither slow it nor end it.

A kernel that a processor lacks ends that process alone, and the memory of all candidates goes with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from queue import Queue

from backend.abandoned import end_tasks
from backend.models.encoder_benchmark import Quiet
from backend.own_modules import PYTHONPATH
from backend.supervision import Supervisor
from backend.telemetry import log_event

Work = Callable[[Quiet], None]  # a module's function, or a partial of one: it is pickled
NICE = 19
_LOOK_S, REST_S = 0.5, 2.0  # between two looks at whether the service rests; for how long it must have rested
BUSY_RATIO = 0.1  # of a core: below, a health probe or a scrape
_WAIT, _WAS_DISTURBED = b"wait\n", b"was disturbed?\n"
_YES, _NO = b"yes\n", b"not\n"  # equally long: one read takes one
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Something that serves by what is known of processors like this one, and what measures it on this one."""

    name: str  # in GET /health
    measure: Work
    adopt: Callable[[], Awaitable[None]]  # what was measured; on the loop


class RestingMeasurements:
    """Runs measurements one after the other, each when the service has nothing to do. Belongs to the event loop.

    Args:
        is_idle: whether nothing runs or waits on any lane.
        is_on: otherwise nothing is measured.
        cpu_s: seconds of the processor that this process has used.
    """

    def __init__(
        self,
        is_idle: Callable[[], bool],
        supervisor: Supervisor,
        *,
        is_on: bool = True,
        cpu_s: Callable[[], float] = time.process_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._is_idle, self._supervisor, self._is_on = is_idle, supervisor, is_on
        self._cpu_s, self._sleep = cpu_s, sleep
        self._waiting: list[Measurement] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, measurement: Measurement) -> None:
        """Measure this too."""
        if not self._is_on:
            return
        self._waiting.append(measurement)
        if self._task is None or self._task.done():
            self._task = self._supervisor.keep("measure_runtimes", self._run)

    def names(self) -> tuple[str, ...]:
        """What is not measured yet."""
        return tuple(measurement.name for measurement in self._waiting)

    async def close(self) -> None:
        """End the process that measures, and wait for its end."""
        await end_tasks(self._task)

    async def _run(self) -> None:
        while self._waiting:
            measurement = self._waiting[0]
            try:
                await self._until_rested()
                log_event(_log, logging.INFO, "measuring beside the service", what=measurement.name)
                if not (status := await self._measure(measurement.measure)):
                    await measurement.adopt()
                else:
                    log_event(_log, logging.WARNING, "not measured", what=measurement.name, status=status)
            finally:  # what failed is not tried again before the next start
                self._waiting.remove(measurement)

    async def _measure(self, work: Work) -> int:
        """The exit status of the process that ran ``work``."""
        pipe = asyncio.subprocess.PIPE
        limits = os.environ  # noqa: TID251 - what limits the instructions here must limit them there
        environment = {**limits, "PYTHONPATH": PYTHONPATH}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", __name__, str(NICE), stdin=pipe, stdout=pipe, env=environment
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(pickle.dumps(work))
            rested_s = used_s = 0.0
            async for question in process.stdout:
                if question == _WAIT:
                    await self._until_rested()
                    rested_s, used_s = time.monotonic(), self._cpu_s()
                    process.stdin.write(_YES)
                elif question == _WAS_DISTURBED:
                    ran_s = time.monotonic() - rested_s
                    process.stdin.write(_YES if self._cpu_s() - used_s > BUSY_RATIO * ran_s else _NO)
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _until_rested(self) -> None:
        """Looks again and again: nothing tells that a process does nothing."""
        rested_s = 0.0
        while rested_s < REST_S:
            used_s = self._cpu_s()
            await self._sleep(_LOOK_S)
            rests = self._is_idle() and self._cpu_s() - used_s < BUSY_RATIO * _LOOK_S
            rested_s = rested_s + _LOOK_S if rests else 0.0


class _AskingQuiet:
    """Asks the service, which answers once it rests. Ends this process as soon as the service is gone."""

    def __init__(self, questions: int) -> None:
        self._questions = questions
        self._answers: Queue[bytes] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self) -> None:
        self._ask(_WAIT)

    def was_disturbed(self) -> bool:
        return self._ask(_WAS_DISTURBED) == _YES

    def _ask(self, question: bytes) -> bytes:
        os.write(self._questions, question)
        return self._answers.get()

    def _read(self) -> None:
        while answer := os.read(0, len(_YES)):  # not sys.stdin, whose lock the end of the interpreter would wait for
            self._answers.put(answer)
        os._exit(1)  # amid a measurement too: whoever started this process waits for the end of its output


def _main() -> None:
    os.nice(int(sys.argv[1]))
    questions = os.dup(1)
    os.dup2(2, 1)  # a library that prints must not ask
    work: Work = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
    work(_AskingQuiet(questions))


if __name__ == "__main__":
    _main()
