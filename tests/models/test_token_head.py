"""A token classifier's last layer: what is refused, and what labels mean; test_entities.py has its numbers."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from backend.errors import ModelUnavailable
from backend.models.model_files import resolve
from backend.models.token_head import Tag, TagPrefix, read_tags, read_token_head, types_of
from tests.tiny_models import rewrite, spec_of
from tests.tiny_taggers import TinyTaggers

TEXTS = ["la factura de zürich is due", "total", "the invoice total is 12,50 € de la zürich"]


def test_what_is_not_finite_stays_so_in_its_own_rows(taggers: TinyTaggers):
    """Without a warning, and without a neighbour noticing."""
    head = read_token_head(spec_of(taggers.folder("bert")))
    hidden = np.zeros((3, 32), np.float32)
    hidden[1, 0] = np.nan

    found = head.probabilities(hidden)

    assert [True, False, True] == np.isfinite(found).all(axis=1).tolist()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"id2label": ...}, "no id2label", id="no-labels"),
        pytest.param({"id2label": {"0": "O", "2": "B-PER"}}, "every label from 0 on", id="a-gap"),
        pytest.param({"id2label": {"zero": "O"}}, "no id2label", id="no-numbers"),
        pytest.param({"id2label": {"0": "O", "1": "B-PER"}}, r"2 labels of a model of width 32 need", id="too-few"),
        pytest.param({"id2label": {str(n): f"LABEL_{n}" for n in range(7)}}, "lack O", id="unnamed"),
        pytest.param({"architectures": ["BertForSequenceClassification"]}, "not a token classifier", id="another-task"),
        pytest.param({"architectures": ["BertModel"]}, "is a BertModel", id="a-plain-encoder"),
    ],
)
def test_a_folder_that_is_no_entity_model(taggers: TinyTaggers, copy_of, changes, reason):
    """The start stops with what is wrong and where."""
    folder = copy_of(taggers.folder("bert"))
    rewrite(folder / "config.json", **changes)

    with pytest.raises(ModelUnavailable, match=reason):
        read_token_head(spec_of(folder))


def test_a_folder_without_the_layer(taggers: TinyTaggers, copy_of):
    folder = copy_of(taggers.folder("bert"))
    tensors = load_file(folder / "model.safetensors")
    save_file({name: one for name, one in tensors.items() if "classifier" not in name}, folder / "model.safetensors")

    with pytest.raises(ModelUnavailable, match=r"has no classifier\.weight"):
        read_token_head(spec_of(folder))


def test_a_broken_file(taggers: TinyTaggers, copy_of):
    """Weights that end too early, and a config that is no JSON."""
    folder = copy_of(taggers.folder("bert"))
    spec = spec_of(folder)
    (folder / "model.safetensors").write_bytes(b"\x08")

    with pytest.raises(ModelUnavailable, match="cannot be read"):
        read_token_head(spec)

    (folder / "config.json").write_text("{")
    with pytest.raises(ModelUnavailable, match=r"config\.json cannot be read"):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(["O", "B-PER", "I-PER"], ["O", "B PER", "I PER"], id="bio"),
        pytest.param(["B_ORG", "O", "E_ORG", "S_ORG"], ["B ORG", "O", "E ORG", "S ORG"], id="bioes-underlined"),
        pytest.param(["O", "L-LOC", "U-LOC"], ["O", "E LOC", "S LOC"], id="bilou"),
        pytest.param(["PER", "O", "LOC"], ["I PER", "O", "I LOC"], id="io"),
        pytest.param(["O", "I-PER"], ["O", "I PER"], id="io-with-prefixes"),
        pytest.param(["O", "B-PER", "X", "[CLS]"], ["O", "B PER", "O", "O"], id="marks-that-name-nothing"),
        pytest.param(["O", "B-Date-Of-Birth"], ["O", "B Date-Of-Birth"], id="a-type-with-hyphens"),
    ],
)
def test_what_labels_mean(labels, expected):
    tags = read_tags(labels)

    assert expected == [f"{tag.prefix.value} {tag.type}".strip() for tag in tags]


@pytest.mark.parametrize("labels", [["O"], ["NOUN", "VERB"], [], ["LABEL_0", "LABEL_1"]])
def test_labels_that_name_no_entities(labels):
    with pytest.raises(ModelUnavailable, match="lack O or any entity"):
        read_tags(labels)


def test_types_are_named_once():
    """In alphabetical order, without O."""
    tags = [
        Tag(TagPrefix.OUTSIDE, ""),
        Tag(TagPrefix.BEGIN, "PER"),
        Tag(TagPrefix.INSIDE, "PER"),
        Tag(TagPrefix.BEGIN, "LOC"),
    ]

    assert types_of(tags) == ("LOC", "PER")
