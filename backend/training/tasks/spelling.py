"""Token types that say how a word is written, for encoders whose tokenizer lowers every letter."""

from __future__ import annotations

import json
from typing import Any, Literal

from torch import nn

from backend.errors import BadSettings, ModelUnavailable
from backend.models.spec import TYPES_FIELD, ModelSpec, TokenTypes
from backend.models.spelling import KINDS

Wish = Literal["auto", "on", "off"]
TABLE = "token_type_embeddings"  # BERT's name for it, and that of those who took it over


def learns_spelling(model: nn.Module, base: ModelSpec, wish: Wish) -> bool:
    """Whether the token types shall say how words are written; "auto": where the tokenizer hides it.

    Raises: BadSettings for "on" with a model that has no table of token types; ModelUnavailable.
    """
    table = type_table(model)
    if wish == "on" and table is None:
        raise BadSettings([f"--spelling on: {base.name} ({base.shape.family}) has no table of token types"])
    if base.token_types is TokenTypes.SPELLING and wish == "off":
        raise BadSettings([f"--spelling off: {base.name} was taught with it and reads it"])
    return table is not None and (wish == "on" or (wish == "auto" and lowers(base)))


def type_table(model: nn.Module) -> nn.Embedding | None:
    """The vectors of the token types; None in a family without them, and where they are too few to mean anything.

    RoBERTa's kind carries a table of one row that it took over and never uses.
    """
    found = [one for name, one in model.named_modules() if name.rpartition(".")[2] == TABLE]
    table = found[0] if found else None
    return table if isinstance(table, nn.Embedding) and table.num_embeddings > 1 else None


def grow_types(model: Any) -> None:
    """A row for each way to write a word, each beginning as row 0: at first the model answers as before."""
    table = type_table(model)
    if table is None:
        raise BadSettings(["this model has no table of token types to grow"])
    if table.num_embeddings != KINDS or getattr(model.config, TYPES_FIELD, None) != TokenTypes.SPELLING.value:
        rows = table.weight.detach()[:1].repeat(KINDS, 1)
        table.weight = nn.Parameter(rows)
        table.num_embeddings = KINDS
    model.config.type_vocab_size = KINDS
    setattr(model.config, TYPES_FIELD, TokenTypes.SPELLING.value)


def lowers(base: ModelSpec) -> bool:
    """Whether the tokenizer makes every letter small. Raises: ModelUnavailable."""
    file = base.folder / "tokenizer.json"
    try:
        normalizer = json.loads(file.read_text(encoding="utf-8")).get("normalizer") or {}
    except (OSError, ValueError, AttributeError) as error:
        raise ModelUnavailable(f"{file} cannot be read: {error}") from error
    steps = normalizer.get("normalizers", [normalizer])
    return any(
        one.get("type") == "Lowercase" or (one.get("type") == "BertNormalizer" and one.get("lowercase"))
        for one in steps
    )
