"""What a run can return to: the last good snapshot in memory, its checkpoints on disk, and the best weights.

Random numbers are not kept: every step seeds its own (``train_step.seed_step``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from backend.training.trainer.checkpoints import (
    Checkpoint,
    CheckpointFolder,
    find_best,
    find_latest,
    load_checkpoint,
    require_fresh,
)
from backend.training.trainer.trainer_state import KEPT_ON_RESTORE, TrainerState

_SNAPSHOT = "snapshot"  # in a checkpoint's rest, where the run's snapshot was taken at an earlier step


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment, on the CPU and shared with nothing."""

    weights: Mapping[str, Tensor]  # trainable ones and buffers; frozen weights never change
    optimizer: Mapping[str, Any]
    rest: Mapping[str, Any]  # TrainerState.state_dict()


class Restorable(Protocol):
    """What snapshots are taken of: ``TrainerState``."""

    @property
    def model(self) -> nn.Module:
        """The model in training."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of its trainable weights."""

    def state_dict(self) -> dict[str, Any]:
        """Everything else that a later step depends on."""

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Restore those parts whose states are given."""


class CheckpointManager:
    """Saves and restores a run. Rank 0 alone writes; every rank reads.

    Args:
        output: folder of the run; None keeps nothing on disk.
    """

    def __init__(self, state: TrainerState, output: Path | None) -> None:
        self._state, self._output = state, output
        self._folder = CheckpointFolder(output, keep=state.config.keep_checkpoints) if output is not None else None
        self._snapshot: Snapshot | None = None
        self._best_weights: dict[str, Tensor] | None = None  # where there is no folder

    def start(self, *, resume: bool) -> int | None:
        """Go on from the newest checkpoint and its snapshot; its step, or None where the run starts from the beginning.

        Raises: BadCheckpoint for one of another model or run, or where a new run would mix with another's.
        """
        self._state.group.barrier()
        if self._output is None:
            return None
        if not resume:
            require_fresh(self._output)
            self._state.group.barrier()  # until all have checked: the first checkpoint would be taken for another run's
            return None
        if (latest := find_latest(self._output)) is None:
            return None
        checkpoint = self._load(latest)
        self._state.model.load_state_dict(checkpoint.weights)
        rest = dict(checkpoint.rest)
        kept = rest.pop(_SNAPSHOT, None)
        restore_snapshot(self._state, Snapshot({}, checkpoint.optimizer, rest))
        self._snapshot = take_snapshot(self._state) if kept is None else Snapshot(**kept)
        return checkpoint.step

    @property
    def snapshot_steps(self) -> int:
        """Optimizer steps done at the last snapshot."""
        return 0 if self._snapshot is None else int(self._snapshot.rest["standing"]["steps"])

    def take_snapshot(self) -> None:
        """Keep what ``restore_snapshot`` returns to. The weights must be finite."""
        self._snapshot = take_snapshot(self._state)

    def restore_snapshot(self) -> None:
        """Restore the last snapshot, but not what the run found out since about memory, precision and examples."""
        if self._snapshot is None:
            raise RuntimeError("no snapshot was taken before the first step")
        restore_snapshot(self._state, self._snapshot, keep=KEPT_ON_RESTORE)

    def save(self, score: float | None) -> Path | None:
        """Write a checkpoint; its folder, None on other ranks and without an output folder.

        Raises: TrainingError when it cannot be written, with those before it intact.
        """
        state, folder = self._state, None
        if self._folder is not None and state.group.is_main:
            rest = state.state_dict()
            if (snapshot := self._earlier_snapshot(rest)) is not None:
                rest[_SNAPSHOT] = {each.name: getattr(snapshot, each.name) for each in fields(snapshot)}
            folder = self._folder.save(
                Checkpoint(
                    state.progress.steps,
                    state.task.name,
                    state.model.state_dict(),
                    state.optimizer.state_dict(),
                    rest,
                    state.config.as_dict(),
                    score,
                )
            )
        state.group.barrier()
        return folder

    def _earlier_snapshot(self, now: Mapping[str, Any]) -> Snapshot | None:
        """The snapshot, where the run went on since: a run that is interrupted between two needs it to resume alike."""
        if self._snapshot is None:
            return None
        moment = [(rest["batches"], rest["standing"]["steps"]) for rest in (self._snapshot.rest, now)]
        return None if moment[0] == moment[1] else self._snapshot

    def keep_best_weights(self) -> None:
        """The weights are the best so far. With an output folder ``save`` with their score keeps them."""
        if self._folder is None:
            self._best_weights = _on_cpu(trainable_tensors(self._state.model))

    def load_best_weights(self) -> None:
        """Give the model the weights of the best evaluation, if the run went on since."""
        state = self._state
        if state.best.is_at(state.progress.steps):
            return
        if self._best_weights is not None:
            copy_weights(state.model, self._best_weights)
        elif self._output is not None and (folder := find_best(self._output)) is not None:
            state.model.load_state_dict(self._load(folder).weights)

    def _load(self, folder: Path) -> Checkpoint:
        return load_checkpoint(folder, task=self._state.task.name, model=self._state.model)


def take_snapshot(run: Restorable) -> Snapshot:
    """A copy of everything that the run goes on from."""
    return Snapshot(
        _on_cpu(trainable_tensors(run.model)), _on_cpu(run.optimizer.state_dict()), _on_cpu(run.state_dict())
    )


def restore_snapshot(run: Restorable, snapshot: Snapshot, *, keep: tuple[str, ...] = ()) -> None:
    """Make the run what it was, bit for bit; of the rest all but the states named in ``keep``."""
    copy_weights(run.model, snapshot.weights)
    run.optimizer.zero_grad(set_to_none=True)
    run.optimizer.load_state_dict(_on_cpu(snapshot.optimizer))  # load_state_dict may keep what it is given
    run.load_state_dict({name: _on_cpu(state) for name, state in snapshot.rest.items() if name not in keep})


def trainable_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What training changes, by name: trainable weights and buffers."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    return {**weights, **dict(model.named_buffers())}


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy ``weights`` into the model's tensors, wherever they are; names that it does not have are an error."""
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    for name, saved in weights.items():
        tensors[name].copy_(saved)


@torch.no_grad()
def non_finite_tensors(model: nn.Module) -> list[str]:
    """Names of trainable weights and buffers that are not finite; waits for the device once."""
    tensors = {
        name: tensor
        for name, tensor in trainable_tensors(model).items()
        if tensor.is_floating_point() and tensor.numel()
    }
    if bool(torch.isfinite(get_total_norm(tensors.values(), norm_type=float("inf")))):
        return []
    return [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]


def _on_cpu(tree: Any) -> Any:
    """A copy of nested state, with its tensors on the CPU."""
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, Mapping):
        return {key: _on_cpu(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_on_cpu(value) for value in tree)
    return tree
