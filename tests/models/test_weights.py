"""Checkpoints of every family under one set of names, and checkpoints that lack something."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from backend.errors import ModelUnavailable
from backend.models.model_files import resolve
from backend.models.spec import ModelSpec
from backend.models.weights import EncoderWeights, load_weights
from tests.tiny_models import TinyModels, spec_of


def rewritten(folder: Path, change) -> ModelSpec:
    """The folder's spec after ``change`` on its tensors."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    return resolve(str(folder))


def flat(weights: EncoderWeights) -> list[np.ndarray]:
    found = [weights.words, weights.positions, weights.norm.gain, weights.norm.bias]
    for layer in weights.layers:
        for part in (layer.qkv, layer.attended, layer.up, layer.down):
            found += [part.weight, part.bias]
        for norm in (layer.attended_norm, layer.down_norm):
            found += [norm.gain, norm.bias]
    return found


@pytest.mark.parametrize(
    ("family", "prefix"),
    [
        ("bert", "bert."), ("roberta", "roberta."), ("xlm-roberta", "roberta."), ("mpnet", "mpnet."),
        ("distilbert", "distilbert."),
    ],
)  # fmt: skip
def test_a_checkpoint_saved_with_its_head_is_the_same_model(tiny: TinyModels, copy_of, family, prefix):
    """Names with the family's prefix, as a masked-language checkpoint has them."""
    plain = tiny.folder(family)
    spec = rewritten(copy_of(plain), lambda tensors: {prefix + name: value for name, value in tensors.items()})

    for expected, found in zip(flat(load_weights(spec_of(plain))), flat(load_weights(spec)), strict=True):
        np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize(("dtype", "step"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
def test_half_precision_weights_are_read_as_float32(tiny: TinyModels, copy_of, dtype, step):
    """A checkpoint in 11 or 8 bits is served like any other; two such tables are added for the positions.

    The word table stays as it is stored.
    """
    plain = tiny.folder("bert")
    spec = rewritten(copy_of(plain), lambda tensors: {name: value.to(dtype) for name, value in tensors.items()})

    expected, found = load_weights(spec_of(plain)), load_weights(spec)
    for exact, rounded in zip(flat(expected), flat(found), strict=True):
        assert rounded is found.words or rounded.dtype == np.float32
        np.testing.assert_allclose(rounded.astype(np.float32), exact, atol=step)


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.word_embeddings.weight",
        "embeddings.LayerNorm.bias",
        "encoder.layer.1.attention.self.key.bias",
        "encoder.layer.0.output.dense.weight",
    ],
)
def test_an_absent_tensor_is_named(tiny: TinyModels, copy_of, name):
    """A checkpoint that lacks a tensor of its encoder is refused."""
    spec = rewritten(
        copy_of(tiny.folder("bert")), lambda tensors: {key: value for key, value in tensors.items() if key != name}
    )

    with pytest.raises(ModelUnavailable, match=f"no tensor {name.removesuffix('.weight').removesuffix('.bias')}"):
        load_weights(spec)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x08" + b"\0" * 40, id="broken"),
        pytest.param(b"\xff" * 64, id="foreign"),
        pytest.param(None, id="cut-short"),
    ],
)
def test_a_file_that_is_no_safetensors(tiny: TinyModels, copy_of, content):
    folder = copy_of(tiny.folder("bert"))
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)

    with pytest.raises(ModelUnavailable, match=r"model\.safetensors cannot be read"):
        load_weights(resolve(str(folder)))


def test_a_family_without_a_table_is_refused_with_advice(tiny: TinyModels):
    """The message names the family and the runtime that serves it."""
    spec = spec_of(tiny.folder("bert"))
    other = replace(spec, shape=replace(spec.shape, family="electra"))

    with pytest.raises(ModelUnavailable, match=r"family 'electra'; RUNTIME=torch serves it"):
        load_weights(other)
