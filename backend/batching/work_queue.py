"""The jobs that wait, in rows by engine and priority. No lock and no clock: the batcher has both."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.batching.policy import Head, next_batch, next_row, share, window_jobs
from backend.batching.work_item import Job, Priority

Row = deque[Job]


@dataclass(slots=True)
class Taken:
    """What one look at the waiting jobs gave."""

    jobs: list[Job] = field(default_factory=list)  # to run together now; empty when none is wanted any more
    dropped: list[Job] = field(default_factory=list)  # met on the way: abandoned or late


class WaitingJobs:
    """Rows of jobs in arrival order; ``take`` cuts the next batch out of one of them.

    A job that is no longer wanted stays until a look meets it. Looks start at the oldest jobs, where those
    are, and pass over more jobs than they take, so dead ones leave faster than they would have run.
    """

    def __init__(self, ageing_s: float) -> None:
        self.jobs = 0
        self.tokens = 0
        self._ageing_s = ageing_s
        self._bulk_went_last = False
        self._rows: dict[tuple[int, Priority], Row] = {}

    def add(self, jobs: Sequence[Job], tokens: int) -> None:
        """Put jobs of one engine and one priority at the end of their row."""
        key = (id(jobs[0].engine), jobs[0].priority)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = deque()
        row.extend(jobs)
        self.jobs += len(jobs)
        self.tokens += tokens

    def promote(self, job: Job, priority: Priority) -> None:
        """Move a job to a more urgent row, at its end; one that has left its row is on its way already."""
        row = self._rows.get((id(job.engine), job.priority), Row())
        if job not in row:
            return
        row.remove(job)
        if not row:
            del self._rows[id(job.engine), job.priority]
        self.jobs, self.tokens = self.jobs - 1, self.tokens - job.cost
        job.priority = priority
        self.add([job], job.cost)

    def take(self, now_s: float, idle_lanes: int, device_index: int = 0) -> Taken:
        """Remove the jobs that a free lane of that device should run now, and the unwanted ones met on the way."""
        taken = Taken()
        for key in list(self._rows):
            self._drop_unwanted_heads(key, now_s, taken)
        if self._rows:
            self._cut(self._next_key(now_s), now_s, idle_lanes, device_index, taken)
        for job in (*taken.jobs, *taken.dropped):
            self.jobs -= 1
            self.tokens -= job.cost
        return taken

    def clear(self) -> None:
        """Forget all; their futures are the batcher's business."""
        self._rows.clear()
        self.jobs = self.tokens = 0

    def oldest_s(self, now_s: float) -> float:
        """Seconds the oldest job has waited; 0 without one."""
        return max((now_s - row[0].enqueued_s for row in self._rows.values()), default=0.0)

    def _drop_unwanted_heads(self, key: tuple[int, Priority], now_s: float, taken: Taken) -> None:
        row = self._rows[key]
        while row and not row[0].is_wanted(now_s):
            taken.dropped.append(row.popleft())
        if not row:
            del self._rows[key]

    def _next_key(self, now_s: float) -> tuple[int, Priority]:
        keys = list(self._rows)
        heads = [Head(key[1], self._rows[key][0].enqueued_s) for key in keys]
        key = keys[next_row(heads, now_s, ageing_s=self._ageing_s, bulk_went_last=self._bulk_went_last)]
        self._bulk_went_last = key[1] is Priority.BULK
        return key

    def _cut(self, key: tuple[int, Priority], now_s: float, idle_lanes: int, device_index: int, taken: Taken) -> None:
        row = self._rows[key]
        head = row[0]
        engine = head.engine.on(device_index)
        budget = share(engine.budget, self.tokens, idle_lanes)
        looked_at = [row.popleft() for _ in range(min(len(row), window_jobs(head.cost, budget)))]
        wanted = [job for job in looked_at if job.is_wanted(now_s)]
        if len(wanted) < len(looked_at):
            taken.dropped += set(looked_at).difference(wanted)
        if wanted:  # the head's caller may leave while we look
            costs = [job.cost for job in wanted]
            taken.jobs = [
                wanted[index]
                for index in next_batch(costs, budget, engine.padding_cost, engine.batch_limits.capacity())
            ]
        if len(taken.jobs) < len(wanted):
            going = set(taken.jobs)
            row.extendleft(job for job in reversed(wanted) if job not in going)
        if not row:
            del self._rows[key]
