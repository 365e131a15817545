"""The network that reads fields: its layers, and where its words come from."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor
from torch.nn import functional

from backend.models import fields_network
from backend.models.fields_network import FILE, LABELS, bundled_network, page_arrays, relations

TEXTS = ["Factura", "N.º", "2019", "P", "8371", "Base", "1.000,00", "IVA", "21", "%", "210,00", "Total", "1.210,00"]
BOXES = np.array(
    [[40.0 * (i % 5), 12.0 * (i // 5), 40.0 * (i % 5) + 30, 12.0 * (i // 5) + 9] for i in range(len(TEXTS))]
)


def _expected(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The same network in torch, as it is taught."""
    weights = {name: torch.from_numpy(value).float() for name, value in load_file(FILE).items()}
    page = page_arrays(TEXTS, BOXES)

    def apply(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))

    def normal(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"])

    ends = weights["ends.weight"]
    spelt = torch.cat([weights["shape.weight"][page.shapes], ends[page.starts], ends[page.stops]], 1)
    x = apply(vectors * 20, "vector") + apply(torch.from_numpy(page.facts), "fact") + apply(spelt, "small")
    bias = weights["places"][torch.from_numpy(relations(page.places)).int()].view(len(x), len(x), -1, 8)
    for layer in range(bias.shape[2]):
        name = f"blocks.{layer}."
        q, k, v = apply(normal(x, name + "first"), name + "qkv").view(len(x), 3, 8, -1).permute(1, 2, 0, 3)
        near = bias[:, :, layer].permute(2, 0, 1)
        mixed = functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=near[None])[0]
        x = x + apply(mixed.transpose(0, 1).reshape(len(x), -1), name + "out")
        x = x + apply(functional.relu(apply(normal(x, name + "second"), name + "up")), name + "down")
    x = normal(x, "norm")
    return apply(x, "label").softmax(-1), apply(x, "word").sigmoid()[:, 0]


def test_numpy_reads_as_torch_does() -> None:
    """Probabilities are those of the network as it was taught, up to the rounding of float32."""
    network = bundled_network()
    labels, begins = _expected(torch.from_numpy(np.stack([network._words.of(text) for text in TEXTS])))

    reading = network.read(TEXTS, BOXES)

    assert reading.labels.shape == (len(TEXTS), len(LABELS))
    np.testing.assert_allclose(reading.labels, labels.numpy(), atol=1e-4)
    np.testing.assert_allclose(reading.begins, begins.numpy(), atol=1e-4)


def test_there_is_none_without_the_bundled_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words are the bundled encoder's: where that is not installed, rules read alone."""
    monkeypatch.setattr(fields_network, "INSTALLED", tmp_path)

    assert bundled_network.__wrapped__() is None
