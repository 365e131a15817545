"""Reads a tokenizer of many scripts in two parts: the pieces that Latin and Greek texts can have, and all on demand.

A Unigram model takes of its pieces only those that stand in the text, so one without the pieces of other scripts gives
a text of none of them the same tokens. The bundled encoder's 250,002 pieces take 280 MB, those 120,000 take 105 MB
(docs/engine.md).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from backend.device.memory.release import trim_heap
from backend.models.text_slices import is_unigram

_SMALLEST_BYTES = 4_000_000  # of a tokenizer.json that is worth it: some 100,000 pieces
# Any character that may come from, or become under NFKC, one of another script than Latin and Greek. Signs, emoji and
# the private characters of fonts are of no script; a few signs stand for Hebrew letters or Chinese brackets.
OTHER_SCRIPTS = re.compile(
    "[^\x00-\u03ff\u1d00-\u1d77\u1d79-\u2134\u2139-\u2328\u232b-\u2bff\ue000-\uf8ff\ufb00-\ufb06\ufe0f\ufeff\ufffd"
    "\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"
)


class LatinTokenizer:
    """The part of Latin and Greek script until a text needs another, then the whole; with the ids of the whole.

    Safe from any thread.

    Args:
        kept: the whole's id of each piece of ``part``, ascending.
    """

    def __init__(self, part: Tokenizer, kept: NDArray[np.int64], file: Path) -> None:
        self.part: Tokenizer | None = part  # None once the whole is read
        self._kept, self._file = kept, file
        self._whole: Tokenizer | None = None
        self._reading = threading.Lock()

    def encode_batch(self, texts: Sequence[Any], *, add_special_tokens: bool = True) -> list[Encoding]:
        """As of ``Tokenizer``, of texts or pairs of them."""
        return self._encoded("encode_batch", texts, add_special_tokens)

    def encode_batch_fast(self, texts: Sequence[Any], *, add_special_tokens: bool = True) -> list[Encoding]:
        """As of ``Tokenizer``: without offsets."""
        return self._encoded("encode_batch_fast", texts, add_special_tokens)

    def decode_batch(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool = True) -> list[str]:
        """As of ``Tokenizer``."""
        wanted = [np.asarray(ids, np.int64) for ids in sequences]
        indices = [np.searchsorted(self._kept, ids) for ids in wanted]
        last = len(self._kept) - 1
        is_kept = all(
            np.array_equal(self._kept[np.minimum(at, last)], ids) for at, ids in zip(indices, wanted, strict=True)
        )
        part = self.part if is_kept else None
        numbers = [ids.tolist() for ids in (indices if part else wanted)]
        texts: list[str] = (part or self._read_whole()).decode_batch(numbers, skip_special_tokens=skip_special_tokens)
        return texts

    def token_to_id(self, token: str) -> int | None:
        """As of ``Tokenizer``."""
        part = self.part
        if part is not None and not OTHER_SCRIPTS.search(token):
            index = part.token_to_id(token)
            return None if index is None else int(self._kept[index])
        return self._read_whole().token_to_id(token)

    def id_to_token(self, number: int) -> str | None:
        """As of ``Tokenizer``."""
        part, index = self.part, int(np.searchsorted(self._kept, number))
        if part is not None and index < len(self._kept) and self._kept[index] == number:
            return part.id_to_token(index)
        return self._read_whole().id_to_token(number)

    def _encoded(self, method: str, texts: Sequence[Any], specials: bool) -> list[Encoding]:
        part = None if any(map(_has_other_scripts, texts)) else self.part
        tokenizer = part or self._read_whole()
        encodings: list[Encoding] = getattr(tokenizer, method)(texts, add_special_tokens=specials)
        return encodings if part is None else [_renumbered(encoding, self._kept) for encoding in encodings]

    def _read_whole(self) -> Tokenizer:
        with self._reading:
            if self._whole is None:
                self._whole = _without_padding(Tokenizer.from_file(str(self._file)))
                self.part = None
                trim_heap()
        return self._whole


class _Renumbered:
    """An encoding whose ids are the whole tokenizer's."""

    def __init__(self, encoding: Encoding, kept: NDArray[np.int64]) -> None:
        self._encoding, self._kept = encoding, kept

    @property
    def ids(self) -> list[int]:
        numbers: list[int] = self._kept[self._encoding.ids].tolist()
        return numbers

    def __len__(self) -> int:
        return len(self._encoding)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoding, name)


def _renumbered(encoding: Encoding, kept: NDArray[np.int64]) -> Encoding:
    return cast("Encoding", _Renumbered(encoding, kept))  # the library's class cannot be made


def _has_other_scripts(text: str | tuple[str, str]) -> bool:
    return any(OTHER_SCRIPTS.search(part) for part in ([text] if isinstance(text, str) else text))


def read_tokenizer(file: Path) -> Tokenizer | LatinTokenizer:
    """The tokenizer without truncation and padding; in two parts where it is large and of the bundled one's kind.

    Raises: Exception of the library for a file that is no tokenizer; OSError.
    """
    in_parts = _in_parts(file) if file.stat().st_size >= _SMALLEST_BYTES else None
    return in_parts or _without_padding(Tokenizer.from_file(str(file)))


def _without_padding(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _in_parts(file: Path) -> LatinTokenizer | None:
    """None for a tokenizer of another kind."""
    content = json.loads(file.read_bytes())
    model, template = content["model"], content.get("post_processor") or {}
    if model.get("type") != "Unigram" or template.get("type") != "TemplateProcessing":
        return None
    vocabulary = model["vocab"]
    least = min(range(len(vocabulary)), key=lambda number: vocabulary[number][1])  # what unknown characters score by
    kept = [
        number for number, (piece, _) in enumerate(vocabulary) if number == least or not OTHER_SCRIPTS.search(piece)
    ]
    indices = {number: index for index, number in enumerate(kept)}
    try:
        model |= {"vocab": [vocabulary[number] for number in kept], "unk_id": indices[model["unk_id"]]}
        for token in content["added_tokens"]:
            token["id"] = indices[token["id"]]
        for token in template["special_tokens"].values():
            token["ids"] = [indices[number] for number in token["ids"]]
    except KeyError:  # a token that is no piece, or has letters of another script
        return None
    part = _without_padding(Tokenizer.from_str(json.dumps(content, ensure_ascii=False)))
    return LatinTokenizer(part, np.array(kept, np.int64), file) if is_unigram(part) else None
