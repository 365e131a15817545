"""Keeps vectors of a frozen encoder in a file, so that the next run embeds only the texts that are new."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Vectors
from backend.models.spec import ModelSpec
from backend.training.tasks.sentence_encoder import frozen_vectors

_KEY_BYTES = 16


def cached_vectors(
    spec: ModelSpec, texts: Sequence[str], *, device: str = "cpu", folder: Path | None = None
) -> tuple[Vectors, NDArray[np.bool_]]:
    """As ``frozen_vectors``; with a ``folder`` the vectors of texts seen before come from there, and new ones go there.

    The file is named by the encoder's fingerprint, so vectors of two encoders are never mixed.

    Raises: ModelUnavailable; OSError when the folder cannot be written.
    """
    if folder is None:
        return frozen_vectors(spec, texts, device=device)
    file = folder / f"{spec.fingerprint[:16]}.npz"
    kept = _read(file)
    keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest() for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in kept}
    if missing:
        vectors, truncated = frozen_vectors(spec, list(missing.values()), device=device)
        kept |= {key: (vectors[row], bool(truncated[row])) for row, key in enumerate(missing)}
        _write(file, kept)
    rows = [kept[key] for key in keys]
    return np.stack([vector for vector, _ in rows]), np.array([was_truncated for _, was_truncated in rows])


def _read(file: Path) -> dict[bytes, tuple[Vectors, bool]]:
    if not file.is_file():
        return {}
    with np.load(file) as stored:
        keys, vectors, truncated = stored["keys"], stored["vectors"], stored["truncated"]
    return {key.tobytes(): (vectors[row], bool(truncated[row])) for row, key in enumerate(keys)}


def _write(file: Path, kept: dict[bytes, tuple[Vectors, bool]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp.npz")
    np.savez(
        temporary,
        keys=np.array([np.frombuffer(key, np.uint8) for key in kept]),
        vectors=np.stack([vector for vector, _ in kept.values()]),
        truncated=np.array([was_truncated for _, was_truncated in kept.values()]),
    )
    temporary.replace(file)
