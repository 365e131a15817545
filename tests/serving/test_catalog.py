"""The names of a loaded model, and its report."""

import json
from dataclasses import replace

import pytest

from backend.errors import UnknownModel
from backend.models import fingerprint
from backend.serving.catalog import Catalog, served_names
from tests.text.service_stack import VectorEngine, loaded_model
from tests.tiny_models import spec_of


@pytest.mark.parametrize(
    ("name", "source", "aliases", "expected"),
    [
        pytest.param("org/e5", "bundled", (), ("org/e5", "e5", "bundled", "bundled-full"), id="bundled"),
        pytest.param(
            "org/e5", "bundled-full", (), ("org/e5", "e5", "bundled-full", "bundled"), id="bundled-by-its-name"
        ),
        pytest.param("org/mini", "minilm", (), ("org/mini", "mini", "minilm", "bundled"), id="another-bundled-one"),
        pytest.param("owner/model", "owner/model", (), ("owner/model", "model"), id="from-the-hub"),
        pytest.param("tuned", "/models/tuned", (), ("tuned", "/models/tuned"), id="a-folder"),
        pytest.param(
            "owner/model", "owner/model", ("text-embedding-3-small", "model"),
            ("owner/model", "model", "text-embedding-3-small"), id="aliases-each-once",
        ),
    ],
)  # fmt: skip
def test_served_names(name, source, aliases, expected):
    """The served name first, then its last part, its source and the aliases; "bundled" is each encoder that ships."""
    assert expected == served_names(replace(spec_of("minilm"), name=name, source=source), aliases)


def test_a_model_is_found_by_each_of_its_names_or_none():
    """A request without a model name gets the embedding model."""
    model = loaded_model(VectorEngine())
    catalog = Catalog(model)

    assert all(catalog.embedding(name) is model for name in (None, *model.names))
    assert [model] == list(catalog.models())


@pytest.mark.parametrize("name", ["", "gpt-4", "Bundled", "all-MiniLM"])
def test_an_unknown_name_lists_the_known_ones(name):
    """Only exact names match; the error lists them, and names the setting that adds one."""
    model = loaded_model(VectorEngine())

    with pytest.raises(UnknownModel) as caught:
        Catalog(model).embedding(name)

    assert model.names == caught.value.known
    assert all(known in str(caught.value) for known in (*model.names, "MODEL_ALIASES"))


def test_a_report_is_ready_for_json():
    """Every choice with its reasons, as /v1/system shows it."""
    found = json.loads(json.dumps(loaded_model(VectorEngine()).report()))

    assert ("embeddings", "minilm", 384, 256, "mean", True) == tuple(
        found[field] for field in ("task", "source", "width", "max_tokens", "pooling", "normalize")
    )
    assert found["choice"]["why"] == ["chosen by the test"]
    assert found["sha256"].startswith(found["revision"])
    assert [] == found["cuda_graphs"]


def test_an_arithmetic_with_other_numbers_has_other_keys(monkeypatch):
    """Results that an older release cached under the same dtype are computed again; other dtypes keep theirs."""
    model = loaded_model(VectorEngine())
    models = [replace(model, choice=replace(model.choice, dtype=dtype)) for dtype in ("int8", "fp32")]
    before = [each.namespace("embed").key("text", "a") for each in models]

    monkeypatch.setattr(fingerprint, "ARITHMETIC_VERSIONS", {"int8": 99})
    after = [each.namespace("embed").key("text", "a") for each in models]

    assert [True, False] == [old != new for old, new in zip(before, after, strict=True)]


def test_keys_are_of_one_fingerprint_and_one_arithmetic():
    """int8 and float32, two runtimes, two fingerprints and two tasks share no key; a name is no part of one."""
    model = loaded_model(VectorEngine())
    others = [
        replace(model, choice=replace(model.choice, dtype="int8")),
        replace(model, choice=replace(model.choice, runtime="onnx")),
        replace(model, activations="vnni"),
        replace(model, spec=replace(model.spec, max_tokens=9)),
    ]

    keys = {each.namespace("embed").key("text", "a") for each in (model, *others)} | {
        model.namespace("score").key("text", "a")
    }

    assert 6 == len(keys)
    renamed = replace(model, spec=replace(model.spec, name="other", revision="other", source="other"))
    assert model.namespace("embed").key("text", "a") == renamed.namespace("embed").key("text", "a")
