"""Three days in the life of a service, as loads over time: an office day, a sudden burst, a batch of jobs at night.

Loads are in replicas: 1.0 is what one saturated replica answers, so that a trace means the same on every machine.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

JOB_PAGES = 20
_STEP_S = 30.0  # of the noise


@dataclass(frozen=True, slots=True)
class Trace:
    """What callers ask for. Between two points the load changes on a straight line."""

    name: str
    title: str
    step_s: float
    loads: tuple[float, ...]  # of texts, every ``step_s``, in saturated replicas
    jobs: tuple[tuple[float, int], ...] = ()  # when how many come, of JOB_PAGES scanned pages each

    @property
    def duration_s(self) -> float:
        return self.step_s * (len(self.loads) - 1)

    def load(self, now_s: float) -> float:
        """Saturated replicas at this moment."""
        place = min(now_s / self.step_s, len(self.loads) - 1.0)
        index = min(int(place), len(self.loads) - 2)
        return self.loads[index] + (self.loads[index + 1] - self.loads[index]) * (place - index)


def office_day(seed: int = 7) -> Trace:
    """From 7 to 21 o'clock: up to the peak of eight replicas at eleven, a dip at noon, a second peak, the evening."""
    rng, noise, loads = random.Random(seed), 0.0, []
    for step in range(int(14 * 3600 / _STEP_S) + 1):
        hour = 7 + step * _STEP_S / 3600
        humps = 8.0 * math.exp(-(((hour - 11) / 1.7) ** 2)) + 6.5 * math.exp(-(((hour - 16) / 1.7) ** 2))
        noise = 0.95 * noise + rng.gauss(0.0, 0.02)  # 6 % of the load, for some minutes at a time
        loads.append((0.3 + humps * 0.96) * math.exp(noise))
    return Trace("office", "14 hours, 0.3 to 8 replicas' load and back, twice", _STEP_S, tuple(loads))


def sudden_burst(seed: int = 7) -> Trace:
    """Two hours with one that asks for six replicas within ten seconds, for forty minutes."""
    rng = random.Random(seed)
    loads = [(6.0 if 1800 <= step * 10 < 1800 + 2400 else 0.6) * math.exp(rng.gauss(0.0, 0.05)) for step in range(721)]
    return Trace("burst", "from 0.6 to 6 replicas' load in ten seconds, for 40 minutes of 2 hours", 10.0, tuple(loads))


def night_jobs(seed: int = 7) -> Trace:
    """Four quiet hours: a thousand scanned documents (LIMIT_JOBS) within two minutes, and two hours later forty."""
    rng = random.Random(seed)
    loads = tuple(0.3 * math.exp(rng.gauss(0.0, 0.1)) for _ in range(481))
    jobs = (*((3600.0 + 12 * batch, 100) for batch in range(10)), (3 * 3600.0, 40))
    title = f"0.3 replicas' load for 4 hours, and 1,000 and 40 jobs of {JOB_PAGES} scanned pages"
    return Trace("night", title, _STEP_S, loads, jobs)


TRACES = (office_day, sudden_burst, night_jobs)
