"""Where the jobs that replicas share are kept, and what that may cost."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RedisJobOptions:
    """Where Redis is, and its bounds for jobs."""

    url: str = field(repr=False)  # may hold a password
    prefix: str = "financia"  # of every key
    limit_jobs: int = 1000  # that wait or run, over all replicas: LIMIT_JOBS
    result_bytes: int = 256 * 2**20  # of one result: LIMIT_JOB_BYTES
    lease_s: float = 30.0  # after which a silent replica's jobs are taken over; it renews three times as often
    settle_s: float = 5.0  # what one command may take
    watchers: int = 64  # clients of this process that may wait for events at once
