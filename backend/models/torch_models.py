"""Models of transformers from a folder, and torch's types of numbers by the names that settings have for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from backend.errors import ModelUnavailable

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# What transformers raises on folders that it cannot load; ImportError for architectures that need another package.
LOAD_ERRORS = (OSError, ValueError, KeyError, RuntimeError, TypeError, ImportError, SafetensorError)


def load_pretrained(
    auto_class: Any, folder: Path, dtype: torch.dtype, purpose: str = "", **options: Any
) -> tuple[Any, Mapping[str, Any]]:
    """The model, and transformers' report on its checkpoint: from this folder alone, no pickle, no foreign code.

    Args:
        auto_class: one of transformers' Auto classes.
        purpose: for the message, e.g. " for training".

    Raises: ModelUnavailable when transformers cannot.
    """
    try:
        model, report = auto_class.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    except LOAD_ERRORS as error:
        raise ModelUnavailable(f"transformers cannot load {folder}{purpose}: {error}") from error
    return model, report


def require_tensors(what: object, absent: Iterable[str]) -> None:
    """Refuse a checkpoint that lacks tensors: transformers has filled them with random numbers."""
    if names := sorted(absent):
        raise ModelUnavailable(f"{what} lacks the tensors {', '.join(names[:5])}")
