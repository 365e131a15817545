"""A model's description from its folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec, Pooling, named_labels, read_shape, read_spec

BERT = {
    "model_type": "bert", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
    "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 128, "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}  # fmt: skip
DISTILBERT = {
    "model_type": "distilbert", "n_layers": 2, "dim": 32, "n_heads": 4, "hidden_dim": 64, "vocab_size": 100,
    "max_position_embeddings": 128, "activation": "relu",
}  # fmt: skip
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
NORMALIZE = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}


def write(folder: Path, **files: Any) -> Path:
    """Write JSON files by their names without ``.json``; ``pooling`` goes where sentence-transformers puts it."""
    for name, content in files.items():
        file = folder / ("1_Pooling/config.json" if name == "pooling" else f"{name}.json")
        file.parent.mkdir(exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def spec_of(folder: Path) -> ModelSpec:
    return read_spec(folder, name="name", source="source", revision="revision", sha256="sha")


def test_a_plain_folder_gets_sentence_transformers_defaults(tmp_path):
    """Mean pooling, no normalisation, no prompts, the whole position table."""
    spec = spec_of(write(tmp_path, config=BERT))

    assert (Pooling.MEAN, False, {}, None, 128) == (
        spec.pooling,
        spec.normalize,
        spec.prompts,
        spec.default_prompt,
        spec.max_tokens,
    )
    assert ("name", "source", "revision", "sha", 32) == (
        spec.name,
        spec.source,
        spec.revision,
        spec.sha256,
        spec.width,
    )


def test_families_name_their_numbers_differently(tmp_path):
    """DistilBERT's dim, n_layers, n_heads, hidden_dim and activation are read as the same shape."""
    shape = read_shape(write(tmp_path, config=DISTILBERT))

    assert (2, 32, 4, 64, 0, "relu", 1e-12) == (
        shape.layers,
        shape.width,
        shape.heads,
        shape.hidden_width,
        shape.position_offset,
        shape.activation,
        shape.epsilon,
    )


@pytest.mark.parametrize(
    ("family", "padding", "offset"),
    [
        pytest.param("bert", 0, 0, id="bert-starts-at-zero"),
        pytest.param("bert", 1, 0, id="bert-whatever-its-padding"),
        pytest.param("roberta", 1, 2, id="roberta"),
        pytest.param("xlm-roberta", 1, 2, id="xlm-roberta"),
        pytest.param("camembert", 1, 2, id="camembert"),
        pytest.param("mpnet", 1, 2, id="mpnet"),
        pytest.param("roberta", 0, 1, id="roberta-padded-with-zero"),
        *(pytest.param(name, None, 2, id=f"{name}-by-its-class") for name in ("roberta", "camembert", "mpnet")),
    ],
)
def test_position_offset(tmp_path, family, padding, offset):
    """RoBERTa's tables begin after the padding row, and max_tokens counts only what is left."""
    config = {**BERT, "model_type": family} | ({} if padding is None else {"pad_token_id": padding})
    spec = spec_of(write(tmp_path, config=config))

    assert offset == spec.shape.position_offset
    assert 128 - offset == spec.max_tokens


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 128, id="the-table"),
        pytest.param({"sentence_bert_config": {"max_seq_length": 40}}, 40, id="sentence-transformers-own"),
        pytest.param({"sentence_bert_config": {"max_seq_length": 4000}}, 128, id="never-over-the-table"),
        pytest.param({"sentence_bert_config": {"max_seq_length": None}}, 128, id="null-means-unset"),
        pytest.param({"tokenizer_config": {"model_max_length": 64}}, 64, id="the-tokenizers"),
        pytest.param({"tokenizer_config": {"model_max_length": 1e30}}, 128, id="transformers-very-large-integer"),
        pytest.param(
            {"tokenizer_config": {"model_max_length": 64}, "sentence_bert_config": {"max_seq_length": 40}},
            40,
            id="sentence-transformers-first",
        ),
    ],
)
def test_max_tokens(tmp_path, files, expected):
    """The smallest of what the position table holds and what the files ask for."""
    assert expected == spec_of(write(tmp_path, config=BERT, **files)).max_tokens


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({"pooling_mode_mean_tokens": True}, Pooling.MEAN, id="mean"),
        pytest.param({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, Pooling.CLS, id="cls"),
        pytest.param({"pooling_mode_max_tokens": True}, Pooling.MAX, id="max"),
        pytest.param({"pooling_mode_lasttoken": True}, Pooling.LAST, id="last"),
        pytest.param({"pooling_mode": "cls"}, Pooling.CLS, id="named-cls"),
        pytest.param({"pooling_mode": "lasttoken"}, Pooling.LAST, id="named-last"),
        pytest.param({"word_embedding_dimension": 32}, Pooling.MEAN, id="nothing-said"),
    ],
)
def test_pooling(tmp_path, config, expected):
    """Both ways in which sentence-transformers has written it."""
    assert expected == spec_of(write(tmp_path, config=BERT, modules=MODULES, pooling=config)).pooling


def test_prompts(tmp_path):
    """Prompts and the default one come from sentence-transformers' file."""
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    spec = spec_of(write(tmp_path, config=BERT, config_sentence_transformers=prompts))

    assert {"query": "query: ", "document": ""} == spec.prompts
    assert spec.default_prompt == "query"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({}, "config.json with a model_type", id="no-config"),
        pytest.param({"config": "{"}, "config.json cannot be read", id="broken-config"),
        pytest.param({"config": "[]"}, "config.json with a model_type", id="not-an-object"),
        pytest.param({"config": {"hidden_size": 3}}, "model_type", id="no-model-type"),
        pytest.param({"config": {"model_type": "gpt2", "n_embd": 64}}, "is it a text encoder", id="a-decoder"),
        pytest.param({"config": {**BERT, "hidden_size": "wide"}}, "hidden_size", id="a-word-for-a-number"),
        pytest.param({"config": BERT, "modules": "nonsense"}, "modules.json cannot be read", id="broken-modules"),
        pytest.param(
            {"config": BERT, "modules": [*MODULES, {"type": "sentence_transformers.models.Dense"}]},
            "['Dense'] are not served",
            id="a-dense-module",
        ),
        pytest.param(
            {"config": BERT, "modules": MODULES, "pooling": {"pooling_mode": "weightedmean"}},
            "'weightedmean' is not served; served are",
            id="unserved-pooling",
        ),
        pytest.param(
            {"config": BERT, "modules": MODULES, "pooling": {"pooling_mode_mean_sqrt_len_tokens": True}},
            "mean_sqrt_len",
            id="unserved-pooling-by-flag",
        ),
        pytest.param(
            {
                "config": BERT,
                "modules": MODULES,
                "pooling": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
            },
            "joined pooling modes",
            id="joined-pooling",
        ),
        pytest.param(
            {"config": BERT, "modules": MODULES, "pooling": {"pooling_mode": ["mean", "max"]}},
            "pooling mode",
            id="joined-pooling-as-a-list",
        ),
        pytest.param(
            {
                "config": BERT,
                "modules": MODULES,
                "pooling": {"pooling_mode_mean_tokens": True, "include_prompt": False},
                "config_sentence_transformers": {"prompts": {"query": "query: "}},
            },
            "include_prompt",
            id="prompts-left-out-of-the-mean",
        ),
        pytest.param(
            {"config": BERT, "sentence_bert_config": {"max_seq_length": 40, "do_lower_case": True}},
            "do_lower_case",
            id="lower-casing-before-the-tokenizer",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path, files, words):
    """Rather no start than vectors that differ from the model's own; the message names the fault."""
    with pytest.raises(ModelUnavailable) as caught:
        spec_of(write(tmp_path, **files))

    assert words in str(caught.value)


def test_labels_are_in_the_order_of_their_numbers():
    """JSON's keys are strings: "10" comes after "9"."""
    config = {"id2label": {str(number): f"label {number}" for number in (10, 2, 1, 0, 9, 8, 7, 6, 5, 4, 3)}}

    assert tuple(f"label {number}" for number in range(11)) == named_labels(config, "tiny")


@pytest.mark.parametrize("id2label", [None, {}, [], "O", {"1": "a"}, {"0": "a", "2": "b"}, {"zero": "a"}])
def test_labels_that_are_not_numbered_from_0(id2label):
    """The error names the model and the file's field."""
    with pytest.raises(ModelUnavailable, match=r"tiny: config\.json has no id2label that names every label from 0 on"):
        named_labels({"id2label": id2label}, "tiny")
