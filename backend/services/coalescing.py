"""Equal inputs under way at the same time share one job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.batching.work_item import Job
from backend.models.encoder import Ids, Vectors
from backend.models.tokenizer import Tokens
from backend.telemetry import Telemetry

Submit = Callable[[Sequence[Ids], Sequence[int]], list[Job]]


@dataclass(frozen=True, slots=True)
class Flight:
    """One request's seat on a job."""

    key: bytes
    job: Job

    async def landing(self) -> Vectors:
        """The job's result. Leaving early does not end the job for others."""
        vector: Vectors = await asyncio.shield(self.job.future)
        return vector

    def stages(self) -> tuple[float, float]:
        """Seconds in the queue and on the lane."""
        return self.job.queue_s, self.job.inference_s


class Flights:
    """The jobs under way, by cache key. Belongs to the loop's thread: nothing here waits."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._jobs: dict[bytes, Job] = {}
        self._coalesced = telemetry.jobs_coalesced_total

    def board(self, keys: Sequence[bytes], tokens: Sequence[Tokens], submit: Submit) -> list[Flight]:
        """A seat for each key: on the job that computes it already, else on a new one.

        A job's deadline stays its first caller's: who joins and has more time computes anew if that passes.
        Raises: what ``submit`` raises; then no seat is taken.
        """
        joined = {key: job for key in keys if (job := self._jobs.get(key)) is not None and job.join()}
        new = [(key, one) for key, one in zip(keys, tokens, strict=True) if key not in joined]
        try:
            jobs = submit([one.payload for _, one in new], [len(one.ids) for _, one in new]) if new else []
        except BaseException:
            for job in joined.values():
                job.abandon()
            raise
        if joined:
            self._coalesced.inc(len(joined))
        fresh = {key: job for (key, _), job in zip(new, jobs, strict=True)}
        self._jobs |= fresh
        return [Flight(key, joined.get(key) or fresh[key]) for key in keys]

    def leave(self, flights: Sequence[Flight]) -> None:
        """Give the seats back; a job nobody waits for any more is dropped before the device."""
        for flight in flights:
            flight.job.abandon()
            if flight.job.future.done() and self._jobs.get(flight.key) is flight.job:
                del self._jobs[flight.key]
