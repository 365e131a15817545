"""Static models: weighted means of rows, read from the files that model2vec writes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from backend.device.records import MachineFacts
from backend.device.tuning_cache import TuningCache
from backend.errors import ModelUnavailable
from backend.models.autotune import EncoderRequest
from backend.models.encoder import Vectors
from backend.models.model_files import resolve
from backend.models.spec import Pooling
from backend.models.static_encoder import StaticEncoder
from backend.models.tokenizer import tokenizer_of
from backend.serving.catalog import LoadedModel
from backend.serving.engines.heads import NER
from backend.serving.loading import LoadContext, ModelRequest, load_model
from backend.telemetry import Telemetry
from tests.tiny_models import placement

WORDS = ["[CLS]", "[SEP]", "[UNK]", "factura", "invoice", "total"]
ROWS = np.array([[9, 9], [9, 9], [5, 0], [4, 0], [4, 1], [0, 2]], np.float32)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def folder_with(**tensors: np.ndarray) -> Path:
        words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        words.add_special_tokens(["[CLS]", "[SEP]"])
        words.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", pair=None, special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
        )
        words.save(str(tmp_path / "tokenizer.json"))
        save_file(tensors, tmp_path / "model.safetensors")
        config = {"model_type": "model2vec", "normalize": True, "seq_length": 1_000_000}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return folder_with


def vectors_of(folder: Path | str, texts: Sequence[str]) -> Vectors:
    """As the embedding task computes them, before the length becomes one."""
    spec = resolve(str(folder))
    encoder = StaticEncoder(spec)
    batch = encoder.prepare([tokens.ids for tokens in tokenizer_of(spec).encode(texts)])
    return encoder.pooled(encoder.forward(batch), batch, spec.pooling)


def directions(vectors: Vectors) -> Vectors:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_text_is_the_mean_of_its_words(write):
    """Special and unknown tokens count nothing beside them."""
    vectors = vectors_of(write(embeddings=ROWS), ["factura total", "total qué factura", "factura factura total"])

    expected = directions(np.array([[4, 2], [4, 2], [8, 2]], np.float32))
    assert directions(vectors) == pytest.approx(expected, abs=1e-5)


def test_words_may_have_weights_and_share_rows(write):
    """Rows of int8 keep their scale in the weights."""
    folder = write(
        embeddings=np.array([[0, 0], [100, 0], [0, 50]], np.int8),
        mapping=np.array([0, 0, 0, 1, 1, 2], np.int32),
        weights=np.array([1, 1, 1, 0.5, 0.25, 2], np.float32),
    )

    vectors = vectors_of(folder, ["factura total", "invoice total"])

    assert directions(vectors) == pytest.approx(directions(np.array([[50, 100], [25, 100]], np.float32)), abs=1e-5)


def test_a_text_of_which_nothing_is_known_has_a_direction(write):
    """Of a vector of zeros no cosine can be computed."""
    vectors = vectors_of(write(embeddings=ROWS), ["", "qué"])

    assert np.isfinite(directions(vectors)).all()


def test_a_batch_equals_each_alone(write):
    folder, texts = write(embeddings=ROWS), ["factura", "total invoice total", "", "factura total " * 40]

    assert np.array_equal(vectors_of(folder, texts), np.concatenate([vectors_of(folder, [text]) for text in texts]))


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        pytest.param({"vectors": ROWS}, "no model of model2vec with a table embeddings", id="no-table"),
        pytest.param({"embeddings": ROWS, "weights": np.ones(2)}, "do not fit", id="weights-of-another-model"),
        pytest.param({"embeddings": ROWS, "mapping": np.full(6, 6)}, "do not fit", id="a-row-that-is-not-there"),
    ],
)
def test_files_that_do_not_fit(write, tensors, reason):
    with pytest.raises(ModelUnavailable, match=reason):
        StaticEncoder(resolve(str(write(**tensors))))


def loaded(source: str, state: Path, *, device: str = "cpu", task: str = "embeddings", **wish: str) -> LoadedModel:
    facts = MachineFacts(cores=1, cpu_name="", cpu_flags=(), memory_bytes=2**33)
    place = replace(placement(), device=device)
    context = LoadContext(facts, [place, place], TuningCache(state / "tuning.json"), Telemetry(), state / "models")
    return load_model(context, ModelRequest(source, EncoderRequest(**wish), task=task))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_the_bundled_one_loads_like_the_others(tmp_path, device):
    """By its source and by "bundled", with prompts that add nothing, and on the CPU whatever has the others."""
    model = loaded("bundled-static", tmp_path, device=device)

    assert ("financia/multilingual-e5-small-static", "cpu") == (model.name, model.device)
    assert {"bundled-static", "bundled"} <= set(model.names)
    assert ("static", "fp32", None) == (model.runtime, model.dtype, model.after_start and model.after_start.measure)
    assert {"query": "", "passage": ""} == model.spec.prompts
    assert (256, 512, Pooling.MEAN, True) == (
        model.spec.width,
        model.spec.max_tokens,
        model.spec.pooling,
        model.spec.normalize,
    )


@pytest.mark.parametrize(
    ("text", "like", "unlike"),
    [
        ("The invoice must be paid in March.", "Payment of the bill is due in March.", "Rain on the coast tomorrow."),
        ("La factura vence en marzo.", "El pago de la factura es en marzo.", "Mañana llueve en la costa."),
    ],
)
def test_the_bundled_one_knows_likeness(text, like, unlike):
    vector, near, far = directions(vectors_of("bundled-static", [text, like, unlike]))

    assert vector @ near > vector @ far + 0.2


@pytest.mark.parametrize("wish", [{"runtime": "torch"}, {"precision": "int8"}])
def test_a_runtime_or_precision_that_is_set_is_not_ignored(tmp_path, wish):
    with pytest.raises(
        ModelUnavailable, match=r"a table of vectors without layers; set RUNTIME=auto and PRECISION=auto"
    ):
        loaded("bundled-static", tmp_path, **wish)


def test_it_serves_no_other_task(tmp_path):
    with pytest.raises(ModelUnavailable, match="is a StaticModel, not a token classifier"):
        loaded("bundled-static", tmp_path, task=NER)
