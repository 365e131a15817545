"""The packed encoder with its layers compiled by torch, where a C compiler is."""

from __future__ import annotations

import torch

from backend.device.facts.compiler import compiler_fault
from backend.device.records import DeviceType
from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec
from backend.models.torch_packed import PackedEncoder
from backend.models.torch_packed_layers import rest_of_layer


class CompiledEncoder(PackedEncoder):
    """What follows attention is compiled, which fuses biases, activations and norms.

    Attention stays as it is, so that one compiled function serves all layers. It is compiled again for the second
    number of rows that it meets, and then for any.
    """

    runtime = "torch-compiled"

    def __init__(self, spec: ModelSpec, *, dtype: str, device: str, threads: int) -> None:
        """As PackedEncoder; the first batches compile. Raises: ModelUnavailable also without a C compiler."""
        if fault := compiler_fault(DeviceType(device.partition(":")[0])):
            raise ModelUnavailable(f"{fault}; RUNTIME=torch-packed runs the same uncompiled")
        super().__init__(spec, dtype=dtype, device=device, threads=threads, rest=torch.compile(rest_of_layer))
