"""Whether a document can be recognised before its deadline, behind the pages that other documents still have."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.batching.policy import Throughput, retry_after_s
from backend.batching.work_item import Priority
from backend.errors import Overloaded

# Of the time left. Documents are recognised a few pages in turn, so one that is admitted later delays those before it,
# and pages differ.
_SAFE_RATIO = 2 / 3


class OcrBacklog:
    """Pages that admitted documents still have to be recognised, and the speed of the page lanes. Event loop only.

    The queue of the lanes cannot tell: a document puts a few of its pages there at a time. Background documents are not
    counted, as their pages let others go first.

    Args:
        lanes: how many of them work now.
    """

    def __init__(self, lanes: Callable[[], int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.pages = 0
        self._lanes, self._clock = lanes, clock
        self._speed = Throughput()

    @property
    def measured_pages(self) -> int:
        return self._speed.batches

    def measured(self, lane_s: float) -> None:
        """Count a recognised page, which took ``lane_s`` seconds of a lane."""
        self._speed = self._speed.after(1, lane_s)

    def admit(self, pages: int, priority: Priority, deadline_s: float) -> AdmittedPages:
        """Count the pages of a document until they are done or it is closed.

        Raises: Overloaded when they and those ahead would not be done in time. Never for background work, behind
            nobody, or before a speed is known.
        """
        if priority is Priority.BULK:
            return AdmittedPages(self, 0)
        rate_per_s, left_s = self._speed.settled_per_s * self._lanes(), deadline_s - self._clock()
        if self.pages and rate_per_s > 0 and self.pages + pages > rate_per_s * left_s * _SAFE_RATIO:
            again_s = retry_after_s(self.pages, rate_per_s)
            wait_s, of = self.pages / rate_per_s, "pages of other documents"
            raise Overloaded.too_late(self.pages, of=of, wait_s=wait_s, left_s=left_s, again_s=again_s)
        self.pages += pages
        return AdmittedPages(self, pages)


@dataclass(slots=True)
class AdmittedPages:
    """The part of the backlog that one document has."""

    backlog: OcrBacklog
    left: int

    def page_done(self) -> None:
        """One page has ended, with text or an error."""
        self._count_out(min(1, self.left))

    def close(self) -> None:
        """The document has ended; what it has left is given up. May be called again."""
        self._count_out(self.left)

    def _count_out(self, pages: int) -> None:
        self.left -= pages
        self.backlog.pages -= pages
