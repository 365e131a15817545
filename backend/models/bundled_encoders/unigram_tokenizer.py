"""XLM-RoBERTa's tokenizer as a ``tokenizer.json``, from its pieces and their scores.

The normaliser is SentencePiece's ``nmt_nfkc`` out of the parts that ``tokenizers`` has: of all code points, two differ
from the published character map (U+FF5E and U+1F23B).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.bundled_encoders.packed_weights import SPECIAL_PIECES

BLANK = "\u2581"  # what SentencePiece writes for a blank


def tokenizer_json(pieces: Sequence[str], scores: NDArray[np.float32]) -> str:
    """The file's content. Written here and not by ``tokenizers``, so that its bytes are the same with every version."""
    ids = {special: pieces.index(special) for special in SPECIAL_PIECES}
    metaspace = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(ids[special], special) for special in SPECIAL_PIECES],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Nmt"},
                {"type": "NFKC"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": metaspace,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special("<s>"), _text("A"), _special("</s>")],
            "pair": [_special("<s>"), _text("A"), _special("</s>"), _special("</s>"), _text("B"), _special("</s>")],
            "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("</s>", "<s>")},
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": ids["<unk>"],
            "vocab": [list(entry) for entry in zip(pieces, scores.tolist(), strict=True)],
            "byte_fallback": False,
        },
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _added_token(number: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": content == "<mask>", "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **flags}


def _special(name: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def _text(name: str) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": 0}}
