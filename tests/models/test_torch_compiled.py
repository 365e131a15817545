"""The compiled encoder: what the packed one gives, or the reason why nothing can be compiled here."""

import pytest

from backend.device.facts.host import compiler_fault
from backend.device.records import DeviceType
from backend.errors import ModelUnavailable
from backend.models import torch_packed
from backend.models.readout import TokenVectors
from backend.models.torch_packed import CompiledEncoder
from tests.models.test_parity import assert_same
from tests.models.test_torch_packed import ids_of, packed, values
from tests.tiny_models import TinyModels, spec_of


def test_without_a_compiler_the_reason_is_told(tiny: TinyModels, monkeypatch):
    monkeypatch.setattr(torch_packed, "compiler_fault", lambda _kind: "neither gcc nor clang is installed")

    with pytest.raises(ModelUnavailable, match="neither gcc nor clang is installed; RUNTIME=torch-packed"):
        CompiledEncoder(spec_of(tiny.plain("bert")), dtype="fp32", device="cpu", threads=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # Inductor's own imports
def test_compiled_layers_give_the_same(tiny: TinyModels, device):
    """Also for numbers of rows that were not met while compiling."""
    if fault := compiler_fault(DeviceType(device.partition(":")[0])):
        pytest.skip(fault)
    spec = spec_of(tiny.plain("bert"))
    encoder, expected = CompiledEncoder(spec, dtype="fp32", device=device, threads=1), packed(spec, device)

    for lengths in ([5], [60, 9], [60] * 4, [3, 60, 60]):
        ids = ids_of(spec, lengths)
        assert_same(values(expected, ids, TokenVectors()), values(encoder, ids, TokenVectors()))
