"""What requests hold of this process while they are under way, in all and of each caller: bytes, and places.

The limits of one request hold thousands of times over: 2,000 connections may each send 100 MB, and leave as much
unread.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from backend.errors import Overloaded
from backend.lanes.memory_keeper import MemoryKeeper

_AGAIN_S = 1.0  # Retry-After: bodies are worked on and answers read within it
_SLACK_BYTES = 2 * 2**20  # of a request, beside its file or body: fields and boundaries of a form


class Reader(Protocol):
    """A connection whose client has not read all of an answer yet."""

    owner: str

    def drop(self) -> None:
        """Disconnect it, and let go of the answer."""


class Traffic:
    """The requests under way, the bytes of their bodies, and those of answers that wait to be read.

    A caller is a key; without keys a client's address. One may have half of everything: a caller alone is served as if
    there were no shares, and a greedy one leaves room. Over Unix sockets HTTP workers forward the requests of many
    callers, whose addresses are not known here: without keys they are bounded together only. Belongs to the loop's
    thread.

    Args:
        most_bytes: LIMIT_IN_FLIGHT_BYTES; never less than two of the largest request.
        largest_bytes: of one request's body.
        most_requests: connections that the process accepts.
        memory: of the process that does the work, which takes no bodies while it is full; None: always room.
    """

    def __init__(
        self,
        most_bytes: int = 2**40,
        largest_bytes: int = 0,
        most_requests: int = 2**20,
        memory: MemoryKeeper | None = None,
    ) -> None:
        self._memory = memory
        self.most_bytes = max(most_bytes, 2 * (largest_bytes + _SLACK_BYTES))
        self.most_requests = most_requests
        self.total_bytes = 0
        self._bytes: Counter[str] = Counter()  # by owner
        self._requests: Counter[str] = Counter()
        self._unread: dict[Reader, tuple[str, int]] = {}  # owner and bytes; first who has waited longest

    def begin(self, owner: str, body_bytes: int) -> None:
        """Count a request that will send so many bytes, as far as is known. Raises: Overloaded."""
        share = max(1, self.most_requests // 2)
        if owner and self._requests[owner] >= share:
            raise Overloaded(
                share,
                share,
                _AGAIN_S,
                f"requests: {share} of this key or address are being answered, which is its share (half of "
                f"LIMIT_CONNECTIONS); try again in {_AGAIN_S:.0f} s",
            )
        self._require_room(owner, min(body_bytes, self.most_bytes // 2))
        self._requests[owner] += 1

    def hold(self, owner: str, more_bytes: int) -> None:
        """Count bytes of a body that have arrived. Raises: Overloaded."""
        self._require_room(owner, more_bytes)
        self._add(owner, more_bytes)

    def end(self, owner: str, body_bytes: int) -> None:
        """A request has been answered, and its body is gone."""
        self._add(owner, -body_bytes)
        self._requests[owner] -= 1
        if not self._requests[owner]:
            del self._requests[owner]

    def wait_for(self, reader: Reader, unread_bytes: int) -> None:
        """Count what a client has to read before more is sent; where that is too much, the slowest is dropped.

        The slowest is who has waited longest, of the caller who has too much; never ``reader`` itself.
        """
        self.was_read(reader)
        self._unread[reader] = reader.owner, unread_bytes
        self._add(reader.owner, unread_bytes)
        while not self._has_room(reader.owner, 0) and (slowest := self._slowest(reader.owner)) is not reader:
            self.was_read(slowest)
            slowest.drop()

    def was_read(self, reader: Reader) -> None:
        """Its client reads again, or is gone."""
        owner, unread_bytes = self._unread.pop(reader, ("", 0))
        self._add(owner, -unread_bytes)

    def _slowest(self, owner: str) -> Reader:
        """Of this caller, where it has more than its share; else of the one who leaves the most unread."""
        unread: Counter[str] = Counter()
        for other, unread_bytes in self._unread.values():
            unread[other] += unread_bytes
        heaviest = owner if self.total_bytes <= self.most_bytes else max(unread, key=unread.__getitem__)
        return next(reader for reader, (other, _) in self._unread.items() if other == heaviest)

    def _has_room(self, owner: str, more_bytes: int) -> bool:
        is_within_share = not owner or self._bytes[owner] + more_bytes <= self.most_bytes // 2
        return is_within_share and self.total_bytes + more_bytes <= self.most_bytes

    def _require_room(self, owner: str, more_bytes: int) -> None:
        if more_bytes and self._memory is not None:
            self._memory.require_room()
        if not self._has_room(owner, more_bytes):
            raise Overloaded(
                self.total_bytes,
                self.most_bytes,
                _AGAIN_S,
                f"bytes in flight: {self._bytes[owner]} of this key or address, whose share is half, and "
                f"{self.total_bytes} of all are bodies being worked on and answers nobody has read yet; the limit is "
                f"{self.most_bytes} (LIMIT_IN_FLIGHT_BYTES); try again in {_AGAIN_S:.0f} s",
            )

    def _add(self, owner: str, more_bytes: int) -> None:
        if more_bytes:
            self.total_bytes += more_bytes
            self._bytes[owner] += more_bytes
            if not self._bytes[owner]:
                del self._bytes[owner]
