"""The effective batches of an epoch, this rank's micro-batches of each, and what is collated ahead of the thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from backend.training.data.micro_batch_loader import MicroBatchLoader
from backend.training.data.sampling import EffectiveBatchSampler, micro_batches, share
from backend.training.records import Batch


class Feed:
    """Walks through the epochs; ``restart`` it whenever the size of micro-batches or the place in the data changed.

    Args:
        splittable: False gives each rank its share of an effective batch in one piece.
    """

    def __init__(
        self, batches: EffectiveBatchSampler, loader: MicroBatchLoader, *, rank: int, ranks: int, splittable: bool
    ) -> None:
        self._batches, self._loader = batches, loader
        self._rank, self._ranks, self._splittable = rank, ranks, splittable
        self._waiting: deque[list[int]] = deque()
        self._ready: Iterator[Batch] = iter(())

    def restart(self, micro_batch: int) -> None:
        """Begin anew at the batch that is due; what was collated ahead is dropped."""
        self.stop()
        self._waiting = deque(self._batches.remaining())
        cuts = (cut for batch in tuple(self._waiting) for cut in self.cuts(batch, micro_batch))
        self._ready = self._loader.load(cuts, epoch=self._batches.epoch)

    @property
    def due(self) -> list[int]:
        """The effective batch to learn from next, all ranks' examples; empty where all of them are left out."""
        return self._waiting[0]

    @property
    def is_empty(self) -> bool:
        """Whether the epoch is through (or none has begun)."""
        return not self._waiting

    @property
    def batches(self) -> Iterator[Batch]:
        """This rank's micro-batches on the device, in the order of ``cuts``."""
        return self._ready

    def cuts(self, batch: Sequence[int], micro_batch: int) -> list[list[int]]:
        """This rank's micro-batches of an effective batch; none where it has fewer examples than there are ranks."""
        mine = share(batch, self._rank, self._ranks)
        if not mine:
            return []
        return micro_batches(mine, micro_batch) if self._splittable else [mine]

    def advance(self) -> None:
        """The batch that was due is done."""
        self._waiting.popleft()
        self._batches.advance()

    def stop(self) -> None:
        """Collate nothing more."""
        self._waiting.clear()
        close = getattr(self._ready, "close", None)
        if close is not None:
            close()
