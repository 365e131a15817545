"""The tokenizer that the pieces give."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from backend.models.bundled_encoders.conversion import tokenizer_json
from tests.models.bundled_encoders.packed_files import PIECES


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    scores = np.array([0.0 if piece.startswith("<") else -1 - len(piece) % 3 for piece in PIECES], np.float32)
    return Tokenizer.from_str(tokenizer_json(PIECES, scores))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("hola", ["<s>", "▁hola", "</s>"], id="a-word-gets-its-blank"),
        pytest.param("la  factura\tvence", ["<s>", "▁la", "▁factura", "▁vence", "</s>"], id="blanks-are-one"),
        pytest.param("ﬁn", ["<s>", "▁", "f", "i", "n", "</s>"], id="nfkc"),
        pytest.param("日本", ["<s>", "▁日", "本", "</s>"], id="other-scripts"),
        pytest.param("ж", ["<s>", "▁", "<unk>", "</s>"], id="a-letter-without-a-piece"),
        pytest.param("", ["<s>", "</s>"], id="nothing"),
        pytest.param("La Factura", ["<s>", "▁", "L", "a", "▁", "F", *"actura", "</s>"], id="capitals-stay"),
    ],
)
def test_tokens(tokenizer: Tokenizer, text: str, expected: list[str]):
    assert expected == [tokenizer.id_to_token(number) for number in tokenizer.encode(text).ids]


def test_a_pair(tokenizer: Tokenizer):
    """As XLM-RoBERTa joins two texts, all of the first type."""
    encoding = tokenizer.encode("hola", "la")

    assert ["<s>", "▁hola", "</s>", "</s>", "▁la", "</s>"] == encoding.tokens
    assert {0} == set(encoding.type_ids)


def test_the_library_writes_the_same(tokenizer: Tokenizer, tmp_path: Path):
    """Nothing is said that the library would say in another way, so digests of both agree."""
    scores = np.array([0.0 if piece.startswith("<") else -1 - len(piece) % 3 for piece in PIECES], np.float32)

    tokenizer.save(str(tmp_path / "tokenizer.json"), pretty=False)

    assert (tmp_path / "tokenizer.json").read_text(encoding="utf-8") == tokenizer_json(PIECES, scores)
