"""A sequence classifier's last layers: read from every family's folder, refused where they do not fit, and scores."""

import json

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from backend.errors import ModelUnavailable
from backend.models.sequence_head import read_sequence_head
from backend.models.spec import read_spec
from tests.tiny_models import WIDTH, TinyModels, encoder_of, rewrite, spec_of, tokenizer_of
from tests.tiny_scorers import EVERY, LABELS, TinyScorers, reference_scores

TEXTS = ("la factura de zürich is due", "", "the invoice total is 12,50 € de la zürich", "de la " * 60)
CLOSE = 1e-4  # float32 summed in another order, over two layers of random weights


def logits_of(folder, runtime: str, texts) -> np.ndarray:
    """One batch, by our encoder and our head."""
    head, encoder = read_sequence_head(spec_of(folder)), encoder_of(folder, runtime, "fp32")
    batch = encoder.prepare([tokens.ids for tokens in tokenizer_of(folder).encode(texts)])
    return head.logits(encoder.pooled(encoder.forward(batch), batch, head.pooling))


def scores_of(folder, runtime: str, texts) -> np.ndarray:
    return read_sequence_head(spec_of(folder)).apply(logits_of(folder, runtime, texts))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "runtime"), EVERY)
def test_scores_are_the_text_classification_pipelines(scorers: TinyScorers, family, runtime):
    """For every family on every runtime that has it, texts of different lengths in one batch."""
    folder = scorers.folder(family)

    found = scores_of(folder, runtime, TEXTS)

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference_scores(folder, TEXTS), atol=CLOSE)
    assert LABELS == read_sequence_head(spec_of(folder)).labels


@pytest.mark.parametrize(
    ("labels", "problem", "activation"),
    [
        pytest.param(LABELS, "single_label_classification", "softmax", id="one-of-several"),
        pytest.param(LABELS, "multi_label_classification", "sigmoid", id="several-of-several"),
        pytest.param(LABELS, "regression", "identity", id="several-numbers"),
        pytest.param(("relevance",), None, "sigmoid", id="one-label"),
        pytest.param(("stars",), "regression", "identity", id="one-number"),
        pytest.param(("LABEL_0", "LABEL_1"), None, "softmax", id="two-that-transformers-leaves-unnamed"),
    ],
)
def test_scores_are_the_pipelines_for_every_kind_of_problem(scorers: TinyScorers, labels, problem, activation):
    """Softmax, sigmoid or nothing, as config.json has it."""
    folder = scorers.folder("bert", labels, problem_type=problem)

    head = read_sequence_head(spec_of(folder))

    assert (labels, activation) == (head.labels, head.activation)
    np.testing.assert_allclose(scores_of(folder, "onnx", TEXTS), reference_scores(folder, TEXTS), atol=CLOSE)


@pytest.mark.parametrize(
    ("family", "config"),
    [
        pytest.param("modernbert", {"classifier_pooling": "mean"}, id="the-mean-of-all-tokens"),
        pytest.param("modernbert", {"classifier_bias": True, "norm_bias": True}, id="with-biases"),
        pytest.param("modernbert", {"classifier_activation": "silu"}, id="silu"),
        pytest.param("modernbert", {"norm_eps": 0.5}, id="the-norms-own-epsilon"),
        pytest.param("deberta-v2", {"pooler_hidden_act": "tanh"}, id="tanh"),
        pytest.param("deberta-v2", {"pooler_hidden_act": "gelu_new"}, id="gelu-by-tanh"),
    ],
)
def test_settings_of_the_head_are_honoured(scorers: TinyScorers, family, config):
    folder = scorers.folder(family, **config)

    np.testing.assert_allclose(scores_of(folder, "torch", TEXTS), reference_scores(folder, TEXTS), atol=CLOSE)


def test_what_is_not_finite_stays_so_in_its_own_row(scorers: TinyScorers):
    """Without a warning, and without a neighbour noticing."""
    head = read_sequence_head(spec_of(scorers.folder("modernbert")))
    vectors = np.ones((3, WIDTH), np.float32)
    vectors[1, 0] = np.nan

    found = head.apply(head.logits(vectors))

    assert [True, False, True] == np.isfinite(found).all(axis=1).tolist()


def test_half_precision_weights_become_float32(scorers: TinyScorers):
    """A checkpoint kept in bfloat16 is computed in float32, as the pipeline computes it in float32."""
    folder = scorers.folder("bert", dtype=torch.bfloat16)
    head = read_sequence_head(spec_of(folder))

    assert head.inner.weight.dtype == head.outer.bias.dtype == np.float32
    np.testing.assert_allclose(scores_of(folder, "onnx", TEXTS), reference_scores(folder, TEXTS), atol=CLOSE)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks for it
def test_a_head_whose_adapter_is_merged(tiny: TinyModels, tmp_path):
    """Of a base without a classifier: LoRA over all linear layers, the pooler's among them, and its own classifier."""
    base = tiny.plain("bert")
    config = transformers.AutoConfig.from_pretrained(base, num_labels=3)
    model = transformers.BertForSequenceClassification.from_pretrained(base, config=config)
    options = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(model, options).eval()
    adapted.save_pretrained(tmp_path)
    config.architectures = ["BertForSequenceClassification"]
    config.save_pretrained(tmp_path)

    spec = read_spec(base, name="adapted", source="here", revision="1", sha256="0", adapter=tmp_path)
    vectors = np.random.default_rng(5).standard_normal((4, WIDTH), np.float32)
    found = read_sequence_head(spec).logits(vectors)

    inside = adapted.base_model.model
    with torch.inference_mode():
        expected = inside.classifier(inside.bert.pooler(torch.from_numpy(vectors)[:, None]))
    np.testing.assert_allclose(found, expected.numpy(), atol=CLOSE)


# How relevant: sentence-transformers' choice


@pytest.mark.parametrize(
    ("labels", "settings", "expected"),
    [
        pytest.param(("one",), ({}, {}), "sigmoid", id="one-label"),
        pytest.param(LABELS, ({}, {}), "identity", id="several"),
        pytest.param(("one",), ({"sentence_transformers": {"version": "5.0"}}, {}), "sigmoid", id="says-nothing"),
        pytest.param(
            ("one",),
            ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, {}),
            "identity",
            id="in-config",
        ),
        pytest.param(
            LABELS,
            ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, {}),
            "sigmoid",
            id="as-before-version-4",
        ),
        pytest.param(
            ("one",),
            (
                {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
                {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
            ),
            "sigmoid",
            id="the-newest-file-first",
        ),
        pytest.param(("one",), ({}, {"activation_fn": "my.own.Function"}), "sigmoid", id="code-that-is-not-run"),
    ],
)
def test_the_function_of_a_cross_encoder(scorers: TinyScorers, copy_of, labels, settings, expected):
    """From the places where versions of sentence-transformers keep it."""
    folder = copy_of(scorers.folder("bert", labels))
    config, own = settings
    rewrite(folder / "config.json", **config)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(own))

    assert expected == read_sequence_head(spec_of(folder)).relevance


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(
            '{"activation_fn": "torch.nn.modules.activation.Tanh"}',
            r"Tanh is not served; served are softmax, sigmoid, identity", id="on-another-scale",
        ),
        pytest.param("{", r"config_sentence_transformers\.json cannot be read", id="broken"),
    ],
)  # fmt: skip
def test_settings_that_are_not_served(scorers: TinyScorers, copy_of, content, reason):
    """Better no start than scores on another scale."""
    folder = copy_of(scorers.folder("bert"))
    spec = spec_of(folder)
    (folder / "config_sentence_transformers.json").write_text(content)

    with pytest.raises(ModelUnavailable, match=reason):
        read_sequence_head(spec)


# Folders that are none


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"id2label": {"0": "a", "2": "b"}}, "every label from 0 on", id="a-gap"),
        pytest.param({"id2label": {"zero": "a"}}, "no id2label", id="no-numbers"),
        pytest.param(
            {"id2label": {"0": "a"}}, r"classifier\.weight has the shape \(3, 32\).* need \(1, 32\)", id="few"
        ),
        pytest.param({"id2label": ...}, r"need \(2, 32\)", id="three-that-nobody-named"),
        pytest.param({"architectures": ["BertForTokenClassification"]}, "not a sequence classifier", id="a-tagger"),
        pytest.param({"architectures": ["BertModel"]}, "is a BertModel", id="a-plain-encoder"),
        pytest.param({"model_type": "xlnet"}, "'xlnet' are not served; served are albert, bert", id="a-strange-family"),
        pytest.param({"model_type": "electra"}, r"no classifier\.dense\.weight", id="another-familys-names"),
        pytest.param(
            {"model_type": "deberta-v2", "pooler_hidden_act": "mish"},
            r"pooler_hidden_act 'mish' is not served|no pooler\.dense\.weight",
            id="a-strange-function",
        ),
    ],
)
def test_a_folder_that_is_no_sequence_classifier(scorers: TinyScorers, copy_of, changes, reason):
    """The start stops with what is wrong and where."""
    folder = copy_of(scorers.folder("bert"))
    rewrite(folder / "config.json", **changes)

    with pytest.raises(ModelUnavailable, match=reason):
        read_sequence_head(spec_of(folder))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"classifier_pooling": "max"}, "classifier_pooling 'max' is not served", id="pooling"),
        pytest.param({"classifier_activation": "mish"}, "classifier_activation 'mish' is not served", id="function"),
    ],
)
def test_a_setting_that_is_not_served(scorers: TinyScorers, copy_of, changes, reason):
    folder = copy_of(scorers.folder("modernbert"))
    rewrite(folder / "config.json", **changes)

    with pytest.raises(ModelUnavailable, match=f"{reason}; served are"):
        read_sequence_head(spec_of(folder))


@pytest.mark.parametrize("layer", ["bert.pooler.dense.weight", "classifier.weight"])
def test_a_folder_without_a_layer(scorers: TinyScorers, copy_of, layer):
    """Random numbers in its place would be served as certainties."""
    folder = copy_of(scorers.folder("bert"))
    tensors = load_file(folder / "model.safetensors")
    save_file({name: one for name, one in tensors.items() if name != layer}, folder / "model.safetensors")

    with pytest.raises(ModelUnavailable, match=f"no {layer}"):
        read_sequence_head(spec_of(folder))
