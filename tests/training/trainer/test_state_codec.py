"""Trees come apart into JSON and tensors and back together, or say what they hold that has no place."""

from __future__ import annotations

import json
import random
from collections import OrderedDict

import numpy as np
import pytest
import torch

from backend.errors import BadCheckpoint
from backend.training.trainer.state_codec import Packer, unpack


def there_and_back(tree: object) -> object:
    """Packed, through JSON, and unpacked."""
    packer = Packer()
    layout = json.loads(json.dumps(packer.pack(tree)))
    return unpack(layout, packer.tensors)


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param({"a": [1, 2.5, "ñ", None, True], "b": {}}, id="json-itself"),
        pytest.param({0: {"step": 1}, None: 2, (1, "x"): 3}, id="keys-that-json-lacks"),
        pytest.param(((), [()], {"t": (1, (2,))}), id="tuples"),
        pytest.param({"$tensor": "x", "$items": []}, id="our-own-marks-as-keys"),
        pytest.param(float("inf"), id="infinity"),
        pytest.param(2**80, id="a-long-integer"),
    ],
)
def test_plain_trees(tree):
    """Equal, and of the same types."""
    assert tree == there_and_back(tree)
    assert repr(tree) == repr(there_and_back(tree))


def test_numpy():
    """Arrays keep dtype and shape and can be written to; single numbers become Python's."""
    arrays = [np.arange(6, dtype=np.uint32).reshape(2, 3).T, np.zeros((0, 2)), np.array(1.5), np.array([True])]

    back = there_and_back(arrays)

    for one, other in zip(arrays, back, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    back[0][0, 0] = 9
    assert there_and_back(np.float32(0.5)) == 0.5


def test_tensors_keep_their_names_and_what_they_share():
    """Names are the paths; one tensor under two names is kept once; parts of a storage stand alone."""
    whole = torch.arange(24.0).reshape(2, 3, 2, 2)
    last = whole.clone().to(memory_format=torch.channels_last)
    tree = OrderedDict([("a.b", whole), ("tied", whole), ("a", {"b": last}), ("view", whole[1]), ("t", whole.mT)])
    packer = Packer()
    layout = packer.pack(tree)

    back = unpack(layout, packer.tensors)

    assert ["a.b", "a.b'", "view", "t"] == list(packer.tensors)
    assert back["tied"] is back["a.b"]
    assert torch.equal(last, back["a"]["b"])
    assert torch.equal(whole[1], back["view"])
    assert torch.equal(whole.mT, back["t"])
    assert packer.tensors["view"].untyped_storage().nbytes() == 12 * 4


def test_empty_tensors_are_not_one():
    """Tensors without elements share no memory, whatever their address says."""
    back = there_and_back({"a": torch.zeros(0), "b": torch.zeros(0, 3, dtype=torch.long)})

    assert back["a"].shape == (0,)
    assert back["b"].shape == (0, 3)


@pytest.mark.parametrize("thing", [object(), random.Random(), {1, 2}, b"raw", torch.float32])
def test_what_has_no_place_is_named(thing):
    """The path tells which part of the caller's state it is."""
    with pytest.raises(TypeError, match=rf"sampler\.1: .* {type(thing).__name__}"):
        Packer().pack({"sampler": [0, thing]})


def test_kinds_of_tensors_are_refused():
    """A subclass holds more than its values (an 8-bit optimizer's state): saving the values alone would lose it."""

    class Scaled(torch.Tensor):
        pass

    with pytest.raises(TypeError, match=r"state: .* Scaled, a kind of tensor"):
        Packer().pack({"state": torch.zeros(2).as_subclass(Scaled)})


def test_a_missing_tensor():
    """A layout whose tensor is gone is a broken checkpoint."""
    with pytest.raises(BadCheckpoint, match="tensor w is missing"):
        unpack({"$tensor": "w"}, {})
