"""The processes of a run that train one model together: agreement on decisions, and the sum of their gradients.

Gradients are summed after all micro-batches, not inside the backward pass as DistributedDataParallel does it: a rank
that runs out of memory midway would leave the others waiting in a collective for ever. So every rank first reports
whether it got through, and no gradient is sent before all did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from backend.device.default_device import local_rank, rank_placement, tell_accelerate
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType

_BUCKET_BYTES = 25 << 20  # gradients that travel together; DistributedDataParallel's own size


class ProcessGroup:
    """This process among those that torchrun started; alone without it."""

    def __init__(self, accelerator: Accelerator, placement: Placement) -> None:
        self._accelerator = accelerator
        self.placement = placement  # of this rank
        self.device = torch.device(placement.device)
        self.rank = int(accelerator.process_index)
        self.size = int(accelerator.num_processes)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and calls observers."""
        return self.rank == 0

    def gather(self, *values: float) -> list[tuple[float, ...]]:
        """The values of every rank, by rank; each must give as many."""
        if self.size == 1:
            return [values]
        row = torch.tensor([values], dtype=torch.float64, device=self.device)
        return [tuple(row) for row in self._accelerator.gather(row).tolist()]

    def gather_objects(self, value: Any) -> list[Any]:
        """Any small object of every rank, by rank; slow, for rare moments."""
        return [value] if self.size == 1 else list(gather_object([value]))

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.size > 1 and self.device.type == "cuda":
            torch.distributed.barrier(device_ids=[self.device.index])  # accelerate would name the rank's number
        elif self.size > 1:
            self._accelerator.wait_for_everyone()

    def shutdown(self) -> None:
        """End the group after a run that got through, once every rank is done with it."""
        if self.size > 1:
            self.barrier()
            torch.distributed.destroy_process_group()

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make each gradient the sum of all ranks'; one that is missing on every rank stays missing."""
        if self.size == 1:
            return
        present = self.gather(*(float(parameter.grad is not None) for parameter in parameters))
        shared = [parameter for parameter, has in zip(parameters, zip(*present, strict=True), strict=True) if any(has)]
        for parameter in shared:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for bucket in _buckets([parameter.grad for parameter in shared if parameter.grad is not None]):
            total = self._accelerator.reduce(torch.cat([grad.reshape(-1) for grad in bucket]), reduction="sum")
            for grad, part in zip(bucket, total.split([grad.numel() for grad in bucket]), strict=True):
                grad.copy_(part.view_as(grad))

    @torch.no_grad()
    def broadcast(self, model: nn.Module, *, weights: bool = False) -> None:
        """Give all ranks rank 0's buffers (the statistics of batch norm), and its weights too with ``weights``."""
        if self.size == 1:
            return
        tensors: list[Tensor] = [*model.buffers(), *(model.parameters() if weights else ())]
        for tensor in tensors:
            torch.distributed.broadcast(tensor.data, src=0)


def init_process_group(device: str) -> ProcessGroup:
    """This process's place in the run, and its device: ``device`` alone, its own card of these under torchrun.

    Opens no context on another rank's card.

    Raises: DeviceUnavailable as ``rank_placement``.
    """
    rank = local_rank()
    placement = rank_placement(device, rank)
    on_cpu = placement.type is DeviceType.CPU
    if rank.by_torchrun and placement.type is DeviceType.CUDA:
        torch.cuda.set_device(placement.device)  # NCCL's objects and barriers are made on the current card
        tell_accelerate(placement.device)
    # Without accelerate's mixed precision: the fallback changes it midway, and a prepared model cannot.
    accelerator = Accelerator(cpu=on_cpu, mixed_precision="no", device_placement=False)
    return ProcessGroup(accelerator, placement)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one dtype, some megabytes together."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (tensor.dtype != bucket[0].dtype or sum(each.nbytes for each in bucket) >= _BUCKET_BYTES):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
