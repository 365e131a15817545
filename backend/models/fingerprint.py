"""One digest of everything that decides a model's output: its weights, its tokenizer, and every setting that counts.

Cached results are kept under it, and a classifier head names the encoder of its vectors by it. Names, paths, versions
of the programs that wrote the files, and files that serving does not read are left out: they change no number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.errors import ModelUnavailable

# Raise it when this code computes other numbers from the same files. Cached results are then computed again, learnt
# classifiers are learnt again, and the bundled heads must be evaluated again (tests/models/test_bundled_heads.py).
OUTPUT_VERSION = 1
# Raise one when the arithmetic of that name computes other numbers: cached results are then computed again. Heads are
# not concerned, for they read the vectors of every arithmetic.
ARITHMETIC_VERSIONS = {"int8": 2}  # 2: OpenVINO's scales are of 128 input channels
# Of config.json: names, what wrote the file, the dtype of the stored weights (serving chooses its own, which is part of
# a cache key beside the fingerprint), and what concerns training only.
_WITHOUT_EFFECT = frozenset(
    {"_name_or_path", "name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
    | {"gradient_checkpointing", "initializer_range", "initializer_factor"}
)
_TRAINING_ONLY = "dropout"  # in the name of a field: "hidden_dropout_prob", "attention_dropout", "classifier_dropout"
_NOT_OF_A_TOKENIZER = frozenset({"version", "truncation", "padding"})  # TextTokenizer turns the last two off
# Of files read before, by their SHA-256: the models of a service share a tokenizer. The bundled encoders' is known, for
# parsing its 250,000 pieces takes a start half a second and 30 MB.
_DIGESTS = {
    "234a318f7f95358b7ea91c47e606eade34e7c385230e965a51ade4a10b5dce34": (
        "bd3586d5ec37a8cfe7760e14344394ab0ee040fec206188f6a03dc1fc006581c"
    )
}


def arithmetic_key(dtype: str, activations: str = "") -> str:
    """What stands for an arithmetic in cache keys; ``dtype`` as encoders name theirs.

    Args:
        activations: how the processor computes them, where that depends on it (`runtimes.activations`).
    """
    version = ARITHMETIC_VERSIONS.get(dtype)
    return "-".join([dtype, *([] if version is None else [str(version)]), *([activations] if activations else [])])


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """Which encoder made a vector."""

    sha256: str  # of its weights
    fingerprint: str  # of all that decides its vectors; "" in heads older than fingerprints

    def accepts(self, trained_on: EncoderIdentity) -> bool:
        """Whether a head that was trained on the vectors of ``trained_on`` may read those of this encoder.

        A head without a fingerprint is known by the weights alone, as it was when it was published.
        """
        if trained_on.fingerprint:
            return trained_on.fingerprint == self.fingerprint
        return trained_on.sha256 == self.sha256


def fingerprint_of(parts: Mapping[str, Any]) -> str:
    """Hexadecimal SHA-256 of named values that JSON can express; the order of names does not count."""
    return hashlib.sha256(_canonical({"output version": OUTPUT_VERSION, **parts})).hexdigest()


def effective_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """``config.json`` without the fields that change no output; a field of null is one that is absent."""
    return {
        name: value
        for name, value in config.items()
        if value is not None and name not in _WITHOUT_EFFECT and _TRAINING_ONLY not in name
    }


def file_digest(file: Path) -> str:
    """Hexadecimal SHA-256 of a file. Raises: OSError."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tokenizer_digest(file: Path) -> str:
    """Hexadecimal SHA-256 of what ``tokenizer.json`` says about tokens, "" where there is none.

    Its layout, and the truncation and padding that it asks for, do not count. 0.4 s for a vocabulary of 250,000.

    Raises: ModelUnavailable when the file cannot be read.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ModelUnavailable(f"{file} cannot be read: {error}") from error
    key = hashlib.sha256(content).hexdigest()
    if key not in _DIGESTS:
        _DIGESTS[key] = hashlib.sha256(_without_layout(content)).hexdigest()
    return _DIGESTS[key]


def _without_layout(content: bytes) -> bytes:
    try:
        parsed = json.loads(content)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):  # no tokenizer, as TextTokenizer will say
        return content
    return _canonical({name: value for name, value in parsed.items() if name not in _NOT_OF_A_TOKENIZER})


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
