"""Attention kernels are believed only after they computed what the reference computes."""

import pytest
import torch

from backend.errors import ModelUnavailable
from backend.models.torch_attention import KERNELS, choose_varlen, text_by_text

CPU = torch.device("cpu")


def right(queries, keys, values, bounds, longest):
    return text_by_text(queries, keys, values, bounds, longest)


def across_texts(queries, keys, values, bounds, longest):
    """Forgets where one text ends."""
    return right(queries, keys, values, bounds[[0, -1]], longest)


def scaled_again(queries, keys, values, bounds, longest):
    """Divides the scores by the square root of the head width, as kernels do unless they are told otherwise."""
    return right(queries * queries.shape[-1] ** -0.5, keys, values, bounds, longest)


def nothing(queries, keys, values, bounds, longest):
    return torch.full_like(queries, torch.nan)


def reads_beyond(queries, keys, values, bounds, longest):
    """Gives rows of no text the weight 0, as kernels do whose last tile reaches over the end."""
    return right(queries, keys, values, bounds, longest) + 0 * values[bounds[-1] :].sum()


def refuses(queries, keys, values, bounds, longest):
    raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nmore of it")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_first_kernel_that_is_right_is_taken(dtype):
    wrong = (refuses, across_texts, scaled_again, nothing, reads_beyond)
    kernels = {**{kernel.__name__: kernel for kernel in wrong}, "right": right, "another": right}

    assert "right" == choose_varlen(CPU, dtype, heads=4, head_width=32, kernels=kernels).name


def test_every_fault_is_told():
    with pytest.raises(ModelUnavailable) as refused:
        choose_varlen(CPU, torch.float32, heads=4, head_width=32, kernels={"a": refuses, "b": across_texts})

    assert "a: RuntimeError: FlashAttention only supports Ampere GPUs or newer.; b: differs from" in str(refused.value)


def test_a_cpu_has_none_of_the_kernels():
    """They are CUDA's; a card that lacks one goes on to the next in the same way."""
    with pytest.raises(ModelUnavailable) as refused:
        choose_varlen(CPU, torch.bfloat16, heads=4, head_width=32)

    assert all(name in str(refused.value) for name in KERNELS)


def test_a_card_has_one(device):
    if not device.startswith("cuda"):
        pytest.skip("the kernels are CUDA's")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert choose_varlen(torch.device(device), dtype, heads=12, head_width=64).name in KERNELS
