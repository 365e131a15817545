"""What only torch can get wrong: half-empty checkpoints, unreadable files, the device that was asked for."""

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ElectraConfig, ElectraModel

from backend.errors import ModelUnavailable
from backend.models.model_files import resolve
from backend.models.spec import Pooling
from backend.models.torch_encoder import TorchEncoder
from tests.models.test_parity import assert_same, batch_single, random_ids, run
from tests.tiny_models import FAMILIES, TinyModels, encoder_of, rewrite, spec_of


def load(folder, dtype: str = "fp32") -> TorchEncoder:
    return TorchEncoder(resolve(str(folder)), dtype=dtype, device="cpu", threads=1)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_asked_device_gives_the_same_vectors(tiny: TinyModels, device, dtype):
    """CPU and GPU agree, for every family (--device cuda:0 proves it there)."""
    if device == "cpu" and dtype == "fp16":
        pytest.skip("fp16 is for GPUs")
    for family in FAMILIES:
        folder = tiny.folder(family)
        ids = random_ids([3, 20, 1, 7], spec_of(folder).shape.vocabulary_size - 1)
        expected = run(encoder_of(folder, "onnx", "fp32"), ids, Pooling.MEAN)
        found = run(encoder_of(folder, "torch", dtype, device), ids, Pooling.MEAN)
        if dtype == "fp32":
            assert_same(expected, found)
        assert (expected * found).sum(axis=1).min() >= 0.995


def test_the_asked_device_keeps_batch_equal_to_single(device):
    if device == "cpu":
        pytest.skip("test_parity does this on the CPU")
    for dtype in ("fp32", "bf16", "fp16"):
        encoder_of("minilm", "torch", dtype, device)
        assert batch_single("minilm", [1, 50, 7, 8, 9, 128], "torch", dtype) >= 0.9999


def test_a_family_without_a_weight_table_is_served(tiny: TinyModels, copy_of):
    """Any encoder that transformers loads: ELECTRA as an example."""
    folder = copy_of(tiny.plain("bert"))
    config = ElectraConfig(
        vocab_size=120, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=66,
    )  # fmt: skip
    torch.manual_seed(3)
    model = ElectraModel(config).eval()
    model.save_pretrained(folder)
    ids = random_ids([4, 9], 119)
    with torch.inference_mode():
        expected = [model(input_ids=torch.from_numpy(text)[None]).last_hidden_state[0].mean(0).numpy() for text in ids]

    assert_same(np.stack(expected), run(load(folder), ids, Pooling.MEAN, normalize=False))


def test_a_checkpoint_with_absent_tensors_is_refused(tiny: TinyModels, copy_of):
    """transformers fills what is absent with random numbers; serving those would be silent garbage."""
    folder = copy_of(tiny.plain("bert"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.attention.self.key.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelUnavailable, match="key"):
        load(folder)


def test_an_absent_pooler_does_not_matter(tiny: TinyModels, copy_of):
    """Sentence models are often saved without BERT's pooler, whose output nobody reads."""
    folder = copy_of(tiny.plain("bert"))
    ids = random_ids([4, 9], 60)
    expected = run(load(folder), ids, Pooling.MEAN)
    tensors = {name: value for name, value in load_file(folder / "model.safetensors").items() if "pooler" not in name}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    np.testing.assert_array_equal(expected, run(load(folder), ids, Pooling.MEAN))


def test_weights_of_another_shape_are_refused(tiny: TinyModels, copy_of):
    """A config that does not fit its weights is told as such."""
    folder = copy_of(tiny.plain("bert"))
    rewrite(folder / "config.json", intermediate_size=128)

    with pytest.raises(ModelUnavailable, match="transformers cannot load"):
        load(folder)


def test_an_architecture_that_transformers_does_not_know_is_refused(tiny: TinyModels, copy_of):
    """No remote code is run to find out."""
    folder = copy_of(tiny.plain("bert"))
    rewrite(folder / "config.json", model_type="no-such-type", auto_map={"AutoModel": "evil.Evil"})
    (folder / "evil.py").write_text("raise SystemExit('remote code ran')")

    with pytest.raises(ModelUnavailable, match="transformers cannot load"):
        load(folder)


# The mask


class Recorder:
    """A model that records the mask it is given and runs another."""

    def __init__(self, model: Any) -> None:
        self._model, self.masks = model, list[Any]()

    def __call__(self, *, attention_mask: Any, **inputs: Any) -> Any:
        self.masks.append(attention_mask)
        return self._model(attention_mask=attention_mask, **inputs)


def recorded(folder) -> tuple[TorchEncoder, list[Any]]:
    encoder = load(folder)
    recorder = Recorder(encoder._model)
    encoder._model = recorder
    return encoder, recorder.masks


@pytest.mark.parametrize("family", FAMILIES)
def test_a_ready_mask_hides_the_padding(tiny: TinyModels, family):
    """transformers would make one by asking the device, and wait. Each text's vector is that of the text alone."""
    encoder, masks = recorded(tiny.plain(family))
    ids = random_ids([3, 20, 1, 60], spec_of(tiny.plain(family)).shape.vocabulary_size - 1)

    alone = np.concatenate([run(encoder, [text], Pooling.MEAN) for text in ids])
    assert_same(alone, run(encoder, ids, Pooling.MEAN))
    assert [None] * 4 == masks[:4]
    assert (4, 1, 1, 60) == tuple(masks[4].shape)
    assert encoder._model._model.dtype == masks[4].dtype


def test_an_unknown_family_gets_a_mask_of_two_dimensions(tiny: TinyModels):
    """What every model of transformers takes."""
    encoder, masks = recorded(tiny.plain("bert"))
    expected = run(encoder, ids := random_ids([3, 9], 60), Pooling.MEAN)
    encoder._takes_ready_mask = False

    assert_same(expected, run(encoder, ids, Pooling.MEAN))
    assert [[1] * 3 + [0] * 6, [1] * 9] == masks[1].tolist()
