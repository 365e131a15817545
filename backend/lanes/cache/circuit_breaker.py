"""A circuit breaker: decides when to stop calling a failing server and when to probe it. Pure but for its clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from backend.retry import Backoff

_BACKOFF = Backoff(0.5, 30.0)


class State(StrEnum):
    """Closed: in use. Open: not called. Half open: one probe is running."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When the circuit opens, and for how long."""

    failures: int = 3  # in a row
    backoff: Backoff = _BACKOFF  # by openings in a row


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one call, which must be reported by succeed, fail or abandon."""

    epoch: int  # number of state changes before it; outcomes from before the latest change are ignored
    probe: bool  # this call decides whether the circuit closes


class CircuitBreaker:
    """Opens after failures in a row, half opens after a back-off that doubles up to a cap, one probe at a time.

    After it closes, it is not trusted until a real call succeeds: one failure opens it again and the back-off keeps
    growing. So a server that answers probes but fails real calls costs little, as does one that never existed: a new
    circuit is closed and not trusted.
    """

    def __init__(self, policy: BreakerPolicy, clock: Callable[[], float]) -> None:
        self.state = State.CLOSED
        self._policy = policy
        self._clock = clock
        self._permit = Permit(epoch=0, probe=False)
        self._failures = 0
        self._trusted = False
        self._openings = 0  # since a real call succeeded
        self._reopens_at_s = 0.0

    def acquire(self) -> Permit | None:
        """A permit for one call, or None: do not call. Every permit must be reported."""
        if self.state is State.CLOSED:
            return self._permit
        if self.state is State.OPEN and self._clock() >= self._reopens_at_s:
            return self._move(State.HALF_OPEN)
        return None

    def succeed(self, permit: Permit) -> None:
        """Report that the call succeeded."""
        if permit.epoch != self._permit.epoch:
            return
        self._failures = 0
        if permit.probe:
            self._move(State.CLOSED)
        else:
            self._trusted = True
            self._openings = 0

    def fail(self, permit: Permit) -> None:
        """Report that the call failed or was late."""
        if permit.epoch != self._permit.epoch:
            return
        self._failures += 1
        if permit.probe or not self._trusted or self._failures >= self._policy.failures:
            self._open()

    def abandon(self, permit: Permit) -> None:
        """Report that the call was cancelled, which says nothing about the server."""
        if permit.probe and permit.epoch == self._permit.epoch:
            self._move(State.OPEN)  # the back-off is over already, so the next call probes

    def retry_in_s(self) -> float:
        """Seconds until an open circuit lets a probe through; 0 when it is not open."""
        return max(0.0, self._reopens_at_s - self._clock()) if self.state is State.OPEN else 0.0

    def _open(self) -> None:
        self._move(State.OPEN)
        self._openings += 1
        self._reopens_at_s = self._clock() + self._policy.backoff.wait_s(self._openings)
        self._failures = 0
        self._trusted = False

    def _move(self, state: State) -> Permit:
        self.state = state
        self._permit = Permit(self._permit.epoch + 1, probe=state is State.HALF_OPEN)
        return self._permit
