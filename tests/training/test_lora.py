"""LoRA adapters: zero at first, trained alone, merged into a plain model with the same outputs."""

import copy

import pytest
import torch
import transformers
from torch import nn

from backend.errors import TrainingError
from backend.training.lora import add_lora, merged

FAMILIES = ("bert", "mpnet", "xlm-roberta", "distilbert", "roberta")


def batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 40, (3, 9), generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def classifier(tiny, family: str) -> nn.Module:
    torch.manual_seed(0)
    return transformers.AutoModelForTokenClassification.from_pretrained(tiny.plain(family), num_labels=5)


def train(model: nn.Module, steps: int = 3) -> None:
    """A few large steps on whatever learns."""
    model.train()
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch())[0].square().mean().backward()
        optimizer.step()
    model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_from_adapters_to_a_plain_model(tiny, family):
    """Any encoder: outputs are unchanged at first, only adapters and head learn, and the merged copy answers alike."""
    model = classifier(tiny, family).eval()
    names, before = list(model.state_dict()), copy.deepcopy(model.state_dict())
    expected = model(**batch()).logits

    wrapped = add_lora(model, 4).eval()
    torch.testing.assert_close(wrapped(**batch()).logits, expected)
    train(wrapped)
    plain = merged(wrapped).eval()

    assert type(plain) is type(model)
    assert names == list(plain.state_dict())
    assert not torch.allclose(plain(**batch()).logits, expected, atol=1e-3)
    torch.testing.assert_close(plain(**batch()).logits, wrapped(**batch()).logits, rtol=1e-4, atol=1e-5)
    changed = {name for name, tensor in plain.state_dict().items() if not torch.equal(tensor, before[name])}
    assert {"classifier.weight", "classifier.bias"} <= changed
    assert all(name.endswith("weight") for name in changed - {"classifier.bias"})
    assert not any("embeddings" in name or "norm" in name.lower() for name in changed)
    assert len(changed) == 2 + 2 * 6  # four attention and two feed-forward matrices in each of two layers


def test_every_adapter_gets_a_gradient(tiny):
    """Nothing that learns is left without a gradient, which DDP would refuse; also in a bare encoder with a pooler."""
    for model in (classifier(tiny, "bert"), transformers.AutoModel.from_pretrained(tiny.plain("bert"))):
        wrapped = add_lora(model, 4)
        wrapped(**batch())[0].square().mean().backward()
        learning = {name: parameter for name, parameter in wrapped.named_parameters() if parameter.requires_grad}

        assert learning
        assert [name for name, parameter in learning.items() if parameter.grad is None] == []
        assert not any("pooler" in name for name in learning)


def test_merging_leaves_the_model_to_train_on(tiny):
    """A model can be published in the middle of its training."""
    wrapped = add_lora(classifier(tiny, "bert"), 4)
    train(wrapped)
    before = copy.deepcopy(wrapped.state_dict())

    plain = merged(wrapped)

    assert all(torch.equal(parameter, before[name]) for name, parameter in wrapped.state_dict().items())
    assert any("lora_A" in name for name, parameter in wrapped.named_parameters() if parameter.requires_grad)
    owned = {parameter.data_ptr() for parameter in wrapped.parameters()}
    assert owned.isdisjoint(parameter.data_ptr() for parameter in plain.parameters())
    assert all(parameter.requires_grad for parameter in plain.parameters())


def test_scale_and_targets_can_be_chosen(tiny):
    """Names of layers narrow the adapters; the scale is alpha / rank, 2 unless told."""
    wrapped = add_lora(classifier(tiny, "bert"), 4, 4.0, 0.0, ["query", "value"])
    adapted = {name for name, module in wrapped.named_modules() if hasattr(module, "lora_A")}

    assert len(adapted) == 4
    assert all(name.endswith(("query", "value")) for name in adapted)
    assert {module.scaling["default"] for module in wrapped.modules() if hasattr(module, "lora_A")} == {1.0}
    doubled = add_lora(classifier(tiny, "bert"), 4)
    assert {module.scaling["default"] for module in doubled.modules() if hasattr(module, "lora_A")} == {2.0}


def test_a_users_own_module():
    """Any module with linear layers is adapted; a head is named by its owner."""
    model = nn.Sequential()
    model.add_module("body", nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8)))
    model.add_module("head", nn.Linear(8, 2))
    expected = model(torch.ones(1, 4))

    wrapped = add_lora(model, 2, heads=["head"])

    torch.testing.assert_close(wrapped(torch.ones(1, 4)), expected)
    learning = {name for name, parameter in wrapped.named_parameters() if parameter.requires_grad}
    assert {"head" in name or "lora" in name for name in learning} == {True}
    assert [nn.Linear, nn.ReLU, nn.Linear] == [type(layer) for layer in merged(wrapped).body]


def test_nothing_to_adapt():
    """A model of convolutions, and layers that do not exist, are refused with the reason."""
    with pytest.raises(TrainingError, match="Sequential has no linear layer for LoRA"):
        add_lora(nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU()), 4)
    with pytest.raises(TrainingError, match="LoRA cannot adapt Sequential"):
        add_lora(nn.Sequential(nn.Linear(3, 3)), 4, targets="query")


def test_non_finite_adapters_are_not_merged(tiny):
    """A model with NaN is never published."""
    wrapped = add_lora(classifier(tiny, "bert"), 4)
    with torch.no_grad():
        next(parameter for name, parameter in wrapped.named_parameters() if "lora_B" in name).fill_(float("nan"))

    with pytest.raises(TrainingError, match="cannot be merged"):
        merged(wrapped)
