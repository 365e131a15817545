"""A converted folder holds the packed numbers, and both transformers and the service's own encoders read it."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

from backend.models.bundled_encoders.conversion import convert, layers_of
from backend.models.bundled_encoders.packed_weights import read_packed
from backend.models.bundled_encoders.recipes import read_layers
from backend.models.encoder import normalized
from backend.models.model_files import resolve
from backend.models.runtimes import Candidate, load_encoder
from backend.models.spec import Pooling
from backend.models.tokenizer import tokenizer_of
from tests.models.bundled_encoders import packed_files
from tests.models.bundled_encoders.packed_files import HIDDEN_WIDTH, LAYERS, PIECES, WIDTH
from tests.tiny_models import placement

TEXTS = ["la factura vence", "hola 日本", "F 0123, ж", ""]


@pytest.fixture
def made(tmp_path: Path) -> packed_files.PackedFile:
    return packed_files.packed_file(tmp_path)


@pytest.fixture
def folder(made: packed_files.PackedFile, tmp_path: Path) -> Path:
    (tmp_path / "converted").mkdir()
    convert(read_packed(made.file), tmp_path / "converted")
    return tmp_path / "converted"


def test_the_numbers_are_the_packed_ones(made: packed_files.PackedFile, folder: Path):
    """Under transformers' names; a block's 4-bit values rounded to float16."""
    tensors = load_file(folder / "model.safetensors")

    expected = {
        "embeddings.word_embeddings.weight": "emb.word",
        "embeddings.LayerNorm.bias": "emb.ln.b",
        "encoder.layer.0.attention.self.value.weight": "l0.v.w",
        "encoder.layer.1.attention.output.dense.bias": "l1.ao.b",
        "encoder.layer.1.output.dense.weight": "l1.fo.w",
        "encoder.layer.1.output.LayerNorm.weight": "l1.oln.w",
    }
    for name, packed_name in expected.items():
        assert np.array_equal(made.tensors[packed_name].astype(tensors[name].dtype), tensors[name]), name
    assert (WIDTH, HIDDEN_WIDTH) == tensors["encoder.layer.0.output.dense.weight"].shape
    assert len(PIECES) + 3 == len(tensors["embeddings.word_embeddings.weight"])


@pytest.mark.parametrize("runtime", ["onnx", "openvino", "torch"])
def test_every_runtime_gives_the_vectors_of_sentence_transformers(folder: Path, runtime: str):
    """Of all scripts; unknown letters and the empty text too."""
    spec = resolve(str(folder))
    encoder = load_encoder(spec, Candidate(runtime, "fp32"), placement())

    batch = encoder.prepare([tokens.ids for tokens in tokenizer_of(spec).encode(TEXTS)])
    vectors = normalized(encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN))

    reference = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert (vectors * reference.encode(TEXTS)).sum(axis=1).min() >= 0.99999
    assert ({"query": "query: ", "passage": "passage: "}, None) == (spec.prompts, spec.default_prompt)


def test_a_student_has_its_own_layers(made: packed_files.PackedFile, tmp_path: Path):
    """The word table and the tokenizer stay; config.json counts the layers."""
    (tmp_path / "whole").mkdir()
    convert(read_packed(made.file), tmp_path / "whole")
    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    first = {name: value for name, value in tensors.items() if name.startswith("encoder.layer.0.")}
    packed_files.write_layers(tmp_path / "layers", first)
    student = read_layers(tmp_path / "layers")

    (tmp_path / "student").mkdir()
    convert(read_packed(made.file), tmp_path / "student", student)

    spec = resolve(str(tmp_path / "student"))
    converted = load_file(tmp_path / "student" / "model.safetensors")
    assert (1, 1, LAYERS) == (layers_of(student), spec.shape.layers, resolve(str(tmp_path / "whole")).shape.layers)
    assert {name for name in tensors if not name.startswith("encoder.layer.1.")} == set(converted)
    assert np.array_equal(tensors["embeddings.word_embeddings.weight"], converted["embeddings.word_embeddings.weight"])


def test_converting_twice_gives_the_same_bytes(made: packed_files.PackedFile, folder: Path, tmp_path: Path):
    """Which is what makes checksums of the result possible."""
    (tmp_path / "again").mkdir()

    convert(read_packed(made.file), tmp_path / "again")

    for file in filter(Path.is_file, folder.rglob("*")):
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(folder)).read_bytes(), file.name
