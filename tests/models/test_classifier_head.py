"""A head on the disk and in use: what is written is read, what does not fit is refused, and when it gives no answer."""

import stat
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from backend.errors import ModelUnavailable
from backend.models.classifier_head import NO_ANSWER, ClassifierHead, WideWeights, read_head, write_head
from backend.models.features import Gate
from tests.tiny_models import rewrite

VECTORS = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
TEXTS = ["una factura", "un contrato", "", "a receipt", "ñandú", "x"]


def head_of(labels: int = 3, *, rows: int | None = None, multiple: bool = False) -> ClassifierHead:
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(rows or labels, 8)), random.normal(size=rows or labels)
    return ClassifierHead(
        labels=tuple("abcdefgh"[:labels]),
        multiple=multiple,
        weight=weight.astype(np.float32),
        bias=bias.astype(np.float32),
        encoder="bundled",
        encoder_sha256="0" * 64,
        name="papers",
        threshold=0.4,
        info={"penalty": 3.0, "note": "año"},
    )


def wide_head() -> ClassifierHead:
    random = np.random.default_rng(2)
    gate = Gate(random.normal(size=8).astype(np.float32), float(np.float32(0.3)))
    table = random.normal(size=(3, 64)).astype(np.float16).astype(np.float32)
    return replace(head_of(), wide=WideWeights(gate, random.normal(size=(3, 8)).astype(np.float32), table))


HEADS = [
    pytest.param(head_of(), id="one-of-several"),
    pytest.param(head_of(multiple=True), id="any-number"),
    pytest.param(head_of(rows=4), id="with-a-background"),
    pytest.param(wide_head(), id="with-grams"),
]


@pytest.mark.parametrize("head", HEADS)
def test_what_is_written_is_read(tmp_path, head):
    """The same scores bit for bit, and everything that is said of it."""
    write_head(tmp_path, head)

    found = read_head(tmp_path)

    np.testing.assert_array_equal(found.probabilities(VECTORS, TEXTS), head.probabilities(VECTORS, TEXTS))
    for name in ("labels", "multiple", "encoder", "encoder_sha256", "name", "threshold", "info", "version"):
        assert getattr(head, name) == getattr(found, name)
    assert head.reads_text == found.reads_text
    assert head.has_background == found.has_background


@pytest.mark.skipif(sys.platform == "win32", reason="no such bits there")
def test_others_may_read_the_weights(tmp_path):
    """As every other file: a service runs as another user than whoever trained."""
    write_head(tmp_path, head_of())

    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert 1 == len(modes)


def test_logits_are_of_every_row():
    """The background's too; beside the vector's what the text says."""
    head, wide = head_of(rows=4), wide_head()

    np.testing.assert_allclose(head.logits(VECTORS), VECTORS @ head.weight.T + head.bias, atol=1e-6)
    own = wide.logits(VECTORS, TEXTS) - wide.wide.logits(VECTORS, TEXTS)
    np.testing.assert_allclose(own, VECTORS @ wide.weight.T + wide.bias, atol=1e-6)


def test_no_answer_below_the_threshold():
    scores = np.array([[0.1, 0.7, 0.2], [0.39, 0.35, 0.26], [0.4, 0.3, 0.3]])

    assert [1, NO_ANSWER, 0] == head_of().best(scores).tolist()


def test_a_version_is_of_the_content():
    """Another weight, threshold or label is another version; a note is not."""
    head = wide_head()
    changed = [
        replace(head, labels=("x", "y", "z")),
        replace(head, threshold=0.5),
        replace(head, bias=head.bias + 1),
        replace(head, wide=None),
        replace(head, encoder_sha256="1" * 64),
    ]

    assert len({head.version, *(other.version for other in changed)}) == 6
    assert head.version == replace(head, info={}, name="other").version


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"labels": ...}, "'labels'", id="a-field-is-missing"),
        pytest.param({"labels": ["a", "b"]}, "version", id="another-background"),
        pytest.param({"labels": ["a"]}, "rows", id="too-few-labels"),
        pytest.param({"labels": ["a", "a", "b"]}, "rows", id="a-label-twice"),
        pytest.param({"labels": []}, "rows", id="no-labels"),
        pytest.param({"version": "000000000000"}, "version", id="another-version"),
        pytest.param({"threshold": "high"}, "float", id="not-a-number"),
    ],
)
def test_a_folder_that_is_no_head(tmp_path, change, words):
    write_head(tmp_path, head_of())
    rewrite(tmp_path / "head.json", **change)

    with pytest.raises(ModelUnavailable, match=f"is no classifier head .*{words}"):
        read_head(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"weight": np.zeros((3, 7), np.float32)}, id="widths-differ"),
        pytest.param({"bias": np.zeros(2, np.float32)}, id="bias-too-short"),
        pytest.param({"weight": np.full((3, 8), np.nan, np.float32)}, id="not-finite"),
        pytest.param({"table": np.zeros((3, 60), np.float16)}, id="a-table-of-no-power-of-two"),
        pytest.param({"table": np.zeros((2, 64), np.float16)}, id="a-table-of-other-labels"),
        pytest.param({"gated": np.zeros((3, 7), np.float32)}, id="a-copy-of-another-width"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, change):
    """Refused before the first request meets them."""
    write_head(tmp_path, wide_head())
    file = tmp_path / "head.safetensors"
    save_file(load_file(file) | change, file)

    with pytest.raises(ModelUnavailable):
        read_head(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(ModelUnavailable, match="is no classifier head"):
        read_head(tmp_path)
