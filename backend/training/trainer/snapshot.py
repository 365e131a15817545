"""Everything that a run goes on from, kept in memory or on disk; what is put back continues bit for bit.

Random numbers are not kept: every step seeds its own from the run's seed, its place in the data and its rank, so that a
step gives the same numbers after a resume, after a return to a snapshot, and when it is run again for want of memory.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

Part = tuple[
    Callable[[], dict[str, Any]], Callable[[dict[str, Any]], None]
]  # reads a state of plain values; puts it back


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment, on the CPU and shared with nothing."""

    weights: Mapping[str, Tensor]  # trainable ones and buffers; frozen weights never change
    optimizer: Mapping[str, Any]
    rest: Mapping[str, Any]


class Keeper:
    """Takes snapshots of a run and puts them back.

    Args:
        rest: named parts of the loop with a state of their own.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, rest: Mapping[str, Part]) -> None:
        self._model, self._optimizer, self._rest = model, optimizer, rest

    def take(self) -> Snapshot:
        """A copy of everything."""
        return Snapshot(
            {name: one.detach().to("cpu", copy=True) for name, one in changing(self._model).items()},
            _copied(self._optimizer.state_dict()),
            self.rest(),
        )

    def put_back(self, snapshot: Snapshot, *, keep: tuple[str, ...] = ()) -> None:
        """Make the run what it was; of the rest all but the parts named in ``keep``."""
        put_weights(self._model, snapshot.weights)
        self._optimizer.zero_grad(set_to_none=True)
        self._optimizer.load_state_dict(_copied(snapshot.optimizer))  # load_state_dict may keep what it is given
        self.put_rest({name: state for name, state in snapshot.rest.items() if name not in keep})

    def rest(self) -> dict[str, Any]:
        """The states of the other parts, ready for a checkpoint."""
        return {name: _copied(read()) for name, (read, _) in self._rest.items()}

    def put_rest(self, states: Mapping[str, Any]) -> None:
        """Put those parts back that are named."""
        for name, (_, put) in self._rest.items():
            if name in states:
                put(_copied(states[name]))


def changing(model: nn.Module) -> dict[str, Tensor]:
    """What training changes, by name: trainable weights and buffers."""
    weights = {name: one for name, one in model.named_parameters() if one.requires_grad}
    return {**weights, **dict(model.named_buffers())}


@torch.no_grad()
def put_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy ``weights`` into the model's own tensors, wherever they are; names that it does not have are an error."""
    own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    for name, saved in weights.items():
        own[name].copy_(saved)


@torch.no_grad()
def broken_tensors(model: nn.Module) -> list[str]:
    """Names of trainable weights and buffers that are not finite; waits for the device once."""
    tensors = {name: one for name, one in changing(model).items() if one.is_floating_point() and one.numel()}
    if bool(torch.isfinite(get_total_norm(tensors.values(), norm_type=float("inf")))):
        return []
    return [name for name, one in tensors.items() if not bool(torch.isfinite(one).all())]


def seed_step(seed: int, position: int, rank: int, device: torch.device) -> None:
    """The random numbers of one step on one rank: dropout's, and those of Python and NumPy for a task's own use."""
    text = f"{seed}:{position}:{rank}".encode()
    mixed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1  # torch takes 63 bits
    random.seed(mixed)
    np.random.seed(mixed % 2**32)  # the global generator is what foreign code draws from
    torch.default_generator.manual_seed(mixed)  # torch.manual_seed also queues work for cards that are not there
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(mixed)
    elif device.type == "mps":
        torch.mps.manual_seed(mixed)


def _copied(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, Mapping):
        return {key: _copied(one) for key, one in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_copied(one) for one in tree)
    return tree
