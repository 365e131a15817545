"""What a run can return to: the last good snapshot, its checkpoints, and the best weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from backend.training.records import Task, TrainingConfig
from backend.training.trainer.checkpoints import (
    Checkpoint,
    CheckpointFolder,
    find_best,
    find_latest,
    load_checkpoint,
    require_fresh,
)
from backend.training.trainer.distributed import Ranks
from backend.training.trainer.snapshot import Keeper, Snapshot, changing, put_weights
from backend.training.trainer.trainer_state import Best

LEARNT = ("micro_batches", "ladder", "best")  # stays when the run goes back: what was learnt about it, not its state


class Shelf:
    """Keeps and gives back. Rank 0 alone writes; every rank reads.

    Args:
        keeper: of the model, the optimizer and all other parts.
    """

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        *,
        output: Path | None,
        ranks: Ranks,
        keeper: Keeper,
        optimizer: Optimizer,
    ) -> None:
        self._task, self._config, self._output, self._ranks = task, config, output, ranks
        self._keeper, self._optimizer = keeper, optimizer
        self._folder = CheckpointFolder(output, keep=config.keep_checkpoints) if output is not None else None
        self._snapshot: Snapshot | None = None
        self._best: dict[str, Any] | None = None  # weights, where there is no folder

    @property
    def model(self) -> nn.Module:
        """The one that is trained."""
        return self._task.model

    def begin(self, *, resume: bool) -> int | None:
        """Go on from the newest checkpoint; its step, or None where the run starts from the beginning.

        Raises: BadCheckpoint for one of another model or run, or where a new run would mix with another's.
        """
        self._ranks.wait()
        if self._output is None:
            return None
        if not resume:
            require_fresh(self._output)
            self._ranks.wait()  # until all have looked: the first checkpoint would be taken for another run's
            return None
        if (latest := find_latest(self._output)) is None:
            return None
        checkpoint = load_checkpoint(latest, task=self._task.name, model=self.model)
        self.model.load_state_dict(checkpoint.weights)
        self._keeper.put_back(Snapshot({}, checkpoint.optimizer, checkpoint.rest))
        return checkpoint.step

    def remember(self) -> None:
        """Take the snapshot that ``go_back`` returns to. The weights must be finite."""
        self._snapshot = self._keeper.take()

    def go_back(self) -> None:
        """Put the last snapshot back, but not what was learnt since about memory, precision and examples."""
        if self._snapshot is None:
            raise RuntimeError("no snapshot was taken before the first step")
        self._keeper.put_back(self._snapshot, keep=LEARNT)

    def save(self, step: int, score: float | None) -> Path | None:
        """Write a checkpoint; its folder, None on other ranks and without an output folder.

        Raises: TrainingError when it cannot be written, with those before it intact.
        """
        made = None
        if self._folder is not None and self._ranks.main:
            made = self._folder.save(
                Checkpoint(
                    step,
                    self._task.name,
                    self.model.state_dict(),
                    self._optimizer.state_dict(),
                    self._keeper.rest(),
                    self._config.as_dict(),
                    score,
                )
            )
        self._ranks.wait()
        return made

    def keep_best(self) -> None:
        """The weights are the best so far. With an output folder ``save`` with their score does it."""
        if self._folder is None:
            self._best = {name: one.detach().to("cpu", copy=True) for name, one in changing(self.model).items()}

    def bring_best(self, best: Best, step: int) -> bool:
        """Give the model the weights of the best evaluation, if the run went on since; whether they are others now."""
        if best.is_at(step):
            return False
        if self._best is not None:
            put_weights(self.model, self._best)
            return True
        folder = find_best(self._output) if self._output is not None else None
        if folder is None:
            return False
        self.model.load_state_dict(load_checkpoint(folder, task=self._task.name, model=self.model).weights)
        return True
