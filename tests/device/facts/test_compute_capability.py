"""Architecture and native dtypes of each compute capability."""

import pytest

from backend.device.facts.compute_capability import Architecture, architecture, fp16_is_broken


@pytest.mark.parametrize(
    ("capability", "name", "computes"),
    [
        pytest.param((3, 7), "Kepler", "", id="K80"),
        pytest.param((5, 2), "Maxwell", "", id="GTX-980"),
        pytest.param((6, 1), "Pascal", "", id="GTX-1080"),
        pytest.param((7, 0), "Volta", "fp16", id="V100"),
        pytest.param((7, 5), "Turing", "fp16", id="T4"),
        pytest.param((8, 0), "Ampere", "bf16 fp16 tf32", id="A100"),
        pytest.param((8, 7), "Ampere", "bf16 fp16 tf32", id="Orin"),
        pytest.param((8, 9), "Ada Lovelace", "bf16 fp16 tf32 fp8", id="RTX-4090-and-RTX-6000-Ada"),
        pytest.param((9, 0), "Hopper", "bf16 fp16 tf32 fp8", id="H200"),
        pytest.param((10, 0), "Blackwell", "bf16 fp16 tf32 fp8", id="B200"),
        pytest.param((10, 3), "Blackwell Ultra", "bf16 fp16 tf32 fp8", id="B300"),
        pytest.param((11, 0), "Blackwell (Thor)", "bf16 fp16 tf32 fp8", id="Thor"),
        pytest.param((12, 0), "Blackwell workstation", "bf16 fp16 tf32 fp8", id="RTX-5090"),
        pytest.param((12, 1), "Blackwell (GB10)", "bf16 fp16 tf32 fp8", id="GB10"),
        pytest.param((13, 0), "sm_130 (newer than this table)", "bf16 fp16 tf32 fp8", id="unknown"),
    ],
)
def test_architecture(capability, name, computes):
    """An unknown capability is named as unknown."""
    sm = f"sm_{capability[0]}{capability[1]}"

    expected = Architecture(name, sm, *(dtype in computes.split() for dtype in ("bf16", "fp16", "tf32", "fp8")))
    assert expected == architecture(capability)


@pytest.mark.parametrize(
    ("name", "capability", "broken"),
    [
        pytest.param("NVIDIA GeForce GTX 1660 SUPER", (7, 5), True, id="GTX-1660"),
        pytest.param("NVIDIA GeForce GTX 1650 Ti with Max-Q Design", (7, 5), True, id="GTX-1650"),
        pytest.param("NVIDIA GeForce MX450", (7, 5), True, id="MX450"),
        pytest.param("Quadro T1000", (7, 5), True, id="T1000"),
        pytest.param("Tesla T4", (7, 5), False, id="T4-has-tensor-cores"),
        pytest.param("Quadro RTX 4000", (7, 5), False, id="Quadro-RTX-has-tensor-cores"),
        pytest.param("NVIDIA GeForce GTX 1060 6GB", (6, 1), False, id="Pascal-is-only-slow"),
        pytest.param("NVIDIA T1000 Next", (9, 0), False, id="never-by-name-alone"),
    ],
)
def test_fp16_is_broken(name, capability, broken):
    """Turing chips without tensor cores, which share capability 7.5 with others."""
    assert broken is fp16_is_broken(name, capability)
