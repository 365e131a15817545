"""The processes of a run that train one model together: what they must agree on, and how their gradients become one.

Gradients are added up after all micro-batches, not inside the backward pass as DistributedDataParallel does it: a rank
that runs out of memory midway would leave the others waiting in a collective for ever. So every rank says first whether
it got through, and no gradient travels before all did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from backend.device.default_device import placement
from backend.device.records import DeviceType

_BUCKET_BYTES = 25 << 20  # gradients that travel together; DistributedDataParallel's own size


class Ranks:
    """This process among those that torchrun started; alone without it."""

    def __init__(self, accelerator: Accelerator, device: torch.device) -> None:
        self._accelerator = accelerator
        self.device = device  # of this rank
        self.rank = int(accelerator.process_index)
        self.count = int(accelerator.num_processes)

    @property
    def main(self) -> bool:
        """Whether this one writes files and talks to observers."""
        return self.rank == 0

    def rows(self, *values: float) -> list[tuple[float, ...]]:
        """The values of every rank, by rank; each must give as many."""
        if self.count == 1:
            return [values]
        mine = torch.tensor([values], dtype=torch.float64, device=self.device)
        return [tuple(row) for row in self._accelerator.gather(mine).tolist()]

    def objects(self, mine: Any) -> list[Any]:
        """Any small object of every rank, by rank; slow, for rare moments."""
        return [mine] if self.count == 1 else list(gather_object([mine]))

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.count > 1:
            self._accelerator.wait_for_everyone()

    def leave(self) -> None:
        """Part in order, at the end of a run that got through: nobody hangs up while another still talks."""
        if self.count > 1:
            self.wait()
            torch.distributed.destroy_process_group()

    @torch.no_grad()
    def add_up(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make each gradient the sum of all ranks'; one that is missing on every rank stays missing."""
        if self.count == 1:
            return
        present = self.rows(*(float(one.grad is not None) for one in parameters))
        wanted = [one for one, had in zip(parameters, zip(*present, strict=True), strict=True) if any(had)]
        for one in wanted:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        for bucket in _buckets([one.grad for one in wanted if one.grad is not None]):
            summed = self._accelerator.reduce(torch.cat([one.reshape(-1) for one in bucket]), reduction="sum")
            for grad, part in zip(bucket, summed.split([grad.numel() for grad in bucket]), strict=True):
                grad.copy_(part.view_as(grad))

    @torch.no_grad()
    def align(self, model: nn.Module, *, weights: bool = False) -> None:
        """Give all ranks rank 0's buffers (the statistics of batch norm), and its weights too where asked."""
        if self.count == 1:
            return
        tensors: list[Tensor] = [*model.buffers(), *(model.parameters() if weights else ())]
        for one in tensors:
            torch.distributed.broadcast(one.data, src=0)


def join(device: str) -> Ranks:
    """This process's place in the run, and its device: ``device`` alone, its own card under torchrun.

    Raises: DeviceUnavailable as ``placement``.
    """
    where = placement(device)
    on_cpu = where.type is DeviceType.CPU
    # No mixed precision of accelerate's: the ladder changes it midway, and a prepared model cannot.
    accelerator = Accelerator(cpu=on_cpu, mixed_precision="no", device_placement=False)
    together = accelerator.num_processes > 1 and not on_cpu
    return Ranks(accelerator, accelerator.device if together else torch.device(where.device))


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one dtype, some megabytes together."""
    bucket: list[Tensor] = []
    for one in tensors:
        if bucket and (one.dtype != bucket[0].dtype or sum(each.nbytes for each in bucket) >= _BUCKET_BYTES):
            yield bucket
            bucket = []
        bucket.append(one)
    if bucket:
        yield bucket
