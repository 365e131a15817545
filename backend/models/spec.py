"""A model's description, read from its folder: shape, pooling, prompts, labels. Serving and training share it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from backend.errors import ModelUnavailable
from backend.models.fingerprint import EncoderIdentity, effective_config, fingerprint_of, tokenizer_digest

TYPES_FIELD = "financia_token_types"  # of config.json
_RELATIVE_POSITIONS = 512  # tokens that T5, mT5 and their kin are trained with, where config.json does not say
STATIC = "model2vec"  # model_type of a static model
STATIC_TABLE, STATIC_MAPPING = "embeddings", "mapping"  # its tensors
_STATIC_TOKENS = 512  # of a text, where model2vec stops reading
_OFFSET_FAMILIES = ("roberta", "xlm-roberta", "camembert", "mpnet")


class Pooling(StrEnum):
    """How token vectors become one vector."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    LAST = "lasttoken"


class TokenTypes(StrEnum):
    """What a model uses token types for (BERT's ``token_type_ids``, an embedding added to each token's)."""

    NONE = "none"  # always the first type
    SEGMENTS = "segments"  # which of two texts a token is of
    SPELLING = "spelling"  # the capitals of its word, for an uncased vocabulary: models/words.py


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The sizes in an encoder's ``config.json``."""

    family: str  # transformers' model_type: "bert", "xlm-roberta", "mpnet", …
    layers: int
    width: int
    heads: int
    hidden_width: int  # of the feed-forward part
    vocabulary_size: int
    positions: int  # rows of the position table
    position_offset: int  # row of the first token (RoBERTa's tables start after the padding row)
    epsilon: float
    activation: str


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model as served. ``sha256`` identifies its weights, ``fingerprint`` all that decides its output."""

    name: str  # in requests and answers
    source: str  # "bundled" or another of BUNDLED_SOURCES, a folder, or a hub id
    revision: str  # commit of the hub, or the first 12 digits of the weights' SHA-256
    sha256: str  # of model.safetensors
    folder: Path
    shape: EncoderShape
    max_tokens: int  # special tokens included
    pooling: Pooling
    normalize: bool
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    stored_dtype: str | None = None  # of the weights as config.json has it, e.g. "bfloat16"; None if absent
    token_types: TokenTypes = TokenTypes.NONE
    adapter: Path | None = None  # folder of the LoRA adapter that is merged into the weights as they are read
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)  # config.json, the adapter's over the base's
    tokenizer_sha256: str = ""  # of what tokenizer.json says about tokens
    adapter_scaling: Mapping[str, Any] = field(default_factory=dict)  # how much of the adapter is merged
    is_immutable: bool = False  # model.safetensors is never overwritten in place, so it may be mapped
    fingerprint: str = field(init=False)  # computed from the fields, so that no change of one is missed

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", _fingerprint(self))

    @property
    def identity(self) -> EncoderIdentity:
        """What a head that reads its vectors must have been trained on."""
        return EncoderIdentity(self.sha256, self.fingerprint)

    @property
    def is_seq2seq(self) -> bool:
        """Whether it reads a text and writes another."""
        return bool(self.config.get("is_encoder_decoder"))

    @property
    def is_static(self) -> bool:
        """Whether it is a table of token vectors without layers."""
        return self.shape.family == STATIC

    @property
    def width(self) -> int:
        """Width of a vector."""
        return self.shape.width


def _fingerprint(spec: ModelSpec) -> str:
    return fingerprint_of(
        {
            "weights": spec.sha256,
            "adapter": dict(spec.adapter_scaling),
            "tokenizer": spec.tokenizer_sha256,
            "shape": asdict(spec.shape),  # the base's, where an adapter's config.json differs
            "config": effective_config(spec.config),
            "max tokens": spec.max_tokens,
            "pooling": spec.pooling,
            "normalize": spec.normalize,
            "token types": spec.token_types,
            "prompt": spec.prompts.get(spec.default_prompt or "", ""),  # others are named by the request
        }
    )


def read_spec(
    folder: Path,
    *,
    name: str,
    source: str,
    revision: str,
    sha256: str,
    adapter: Path | None = None,
    is_immutable: bool = False,
) -> ModelSpec:
    """Read a sentence-transformers or plain transformers folder.

    A plain transformers encoder gets sentence-transformers' own defaults: mean pooling, no normalisation.

    Args:
        adapter: a peft folder whose task, labels and token types replace the base's.
        is_immutable: whether ``model.safetensors`` is only ever replaced as a whole, by another file.

    Raises: ModelUnavailable when the files describe a model that cannot be served.
    """
    shape = read_shape(folder)
    is_static = shape.family == STATIC
    config = {**read_json(folder / "config.json", {}), **(read_json(adapter / "config.json", {}) if adapter else {})}
    modules = [module["type"].rsplit(".", 1)[-1] for module in read_json(folder / "modules.json", [])]
    prompts = read_json(folder / "config_sentence_transformers.json", {})
    return ModelSpec(
        name=name,
        source=source,
        revision=revision,
        sha256=sha256,
        folder=folder,
        shape=shape,
        max_tokens=shape.positions if is_static else _max_tokens(folder, shape),
        pooling=Pooling.MEAN if is_static else _pooling(folder, modules),
        normalize=bool(config.get("normalize")) if is_static else "Normalize" in modules,
        prompts=prompts.get("prompts") or {},
        default_prompt=prompts.get("default_prompt_name"),
        stored_dtype=_stored_dtype(config),
        token_types=_token_types(config),
        adapter=adapter,
        config=config,
        tokenizer_sha256=tokenizer_digest(folder / "tokenizer.json"),
        adapter_scaling=_adapter_scaling(adapter),
        is_immutable=is_immutable,
    )


def _adapter_scaling(adapter: Path | None) -> dict[str, Any]:
    """The fields of peft's ``adapter_config.json`` that decide what its weights are multiplied by."""
    config = read_json(adapter / "adapter_config.json", {}) if adapter else {}
    return {name: config[name] for name in ("r", "lora_alpha", "use_rslora") if config.get(name)}


def _stored_dtype(config: Mapping[str, Any]) -> str | None:
    """``dtype``, or ``torch_dtype`` as older versions of transformers call it."""
    stored = config.get("dtype") or config.get("torch_dtype")
    return str(stored) if stored else None


def _token_types(config: Mapping[str, Any]) -> TokenTypes:
    """Embedding models and taggers read one text; a sequence classifier may read two."""
    if config.get(TYPES_FIELD) == TokenTypes.SPELLING:
        return TokenTypes.SPELLING
    pairs = any(str(name).endswith("ForSequenceClassification") for name in config.get("architectures") or [])
    return TokenTypes.SEGMENTS if pairs and int(config.get("type_vocab_size") or 0) > 1 else TokenTypes.NONE


def read_shape(folder: Path) -> EncoderShape:
    """The encoder's sizes. Raises: ModelUnavailable without a readable ``config.json``."""
    config = read_json(folder / "config.json", None)
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelUnavailable(f"{folder} has no readable config.json with a model_type; is it a transformers model?")
    family = str(config["model_type"])
    if family == STATIC:
        return _static_shape(folder, config)
    if config.get("is_encoder_decoder"):
        return _seq2seq_shape(config, family)
    # RoBERTa and its kin count positions from the row after the padding token's, whose own default is 1.
    padding = config.get("pad_token_id")
    offset = (1 if padding is None else int(padding)) + 1 if family in _OFFSET_FAMILIES else 0
    return EncoderShape(
        family=family,
        layers=_integer(config, "num_hidden_layers", "n_layers"),
        width=_integer(config, "hidden_size", "dim"),
        heads=_integer(config, "num_attention_heads", "n_heads"),
        hidden_width=_integer(config, "intermediate_size", "hidden_dim"),
        vocabulary_size=_integer(config, "vocab_size"),
        positions=_integer(config, "max_position_embeddings"),
        position_offset=offset,
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        activation=str(config.get("hidden_act", config.get("activation", "gelu"))),
    )


def _static_shape(folder: Path, config: Mapping[str, Any]) -> EncoderShape:
    """The sizes of the table, which ``config.json`` does not tell."""
    try:
        with safe_open(folder / "model.safetensors", framework="numpy") as stored:
            rows, width = stored.get_slice(STATIC_TABLE).get_shape()
            mapped = stored.get_slice(STATIC_MAPPING).get_shape() if STATIC_MAPPING in stored.keys() else [rows]  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelUnavailable(f"{folder} is no model of model2vec with a table {STATIC_TABLE}: {error}") from error
    positions = min(int(config.get("seq_length") or _STATIC_TOKENS), _STATIC_TOKENS)
    return EncoderShape(STATIC, 0, width, 1, 0, mapped[0], positions, 0, 0.0, "")


def _seq2seq_shape(config: dict[str, Any], family: str) -> EncoderShape:
    """The sizes of the part that reads. T5 and its kin have no table of positions: what they were trained with."""
    relative = int(config.get("n_positions") or _RELATIVE_POSITIONS)
    return EncoderShape(
        family=family,
        layers=_integer(config, "encoder_layers", "num_layers", "num_hidden_layers"),
        width=_integer(config, "d_model", "hidden_size"),
        heads=_integer(config, "encoder_attention_heads", "num_heads"),
        hidden_width=_integer(config, "encoder_ffn_dim", "d_ff"),
        vocabulary_size=_integer(config, "vocab_size"),
        positions=int(
            config.get("max_position_embeddings") or config.get("max_encoder_position_embeddings") or relative
        ),
        position_offset=0,
        epsilon=float(config.get("layer_norm_epsilon", 1e-5)),
        activation=str(config.get("activation_function", config.get("feed_forward_proj", "relu"))),
    )


def _integer(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    raise ModelUnavailable(f"config.json has no {' or '.join(names)}; is it a text encoder?")


def _max_tokens(folder: Path, shape: EncoderShape) -> int:
    table = shape.positions - shape.position_offset
    settings = read_json(folder / "sentence_bert_config.json", {})
    if settings.get("do_lower_case"):
        raise ModelUnavailable(
            f"{folder}: do_lower_case before the tokenizer is not served; put it into tokenizer.json"
        )
    configured = settings.get("max_seq_length")
    if configured is None:
        configured = read_json(folder / "tokenizer_config.json", {}).get("model_max_length", table)
    return int(min(configured, table))


def _pooling(folder: Path, modules: list[str]) -> Pooling:
    unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise ModelUnavailable(
            f"{folder}: the modules {sorted(unknown)} are not served; only Transformer, Pooling, Normalize are"
        )
    config: dict[str, Any] = read_json(folder / "1_Pooling" / "config.json", {})
    if config.get("include_prompt") is False:
        raise ModelUnavailable(f"{folder}: include_prompt=false (prompts left out of the pooling) is not served")
    mode = config.get("pooling_mode")
    flags = [key.removeprefix("pooling_mode_") for key, on in config.items() if on is True and "pooling_mode_" in key]
    chosen = [mode] if isinstance(mode, str) else mode or flags or ["mean"]
    if len(chosen) > 1:
        raise ModelUnavailable(f"{folder}: joined pooling modes {chosen} are not served; export the model with one")
    return _pooling_named(folder, str(chosen[0]).removesuffix("_tokens").removesuffix("_token"))


def _pooling_named(folder: Path, name: str) -> Pooling:
    try:
        return Pooling({"last": "lasttoken"}.get(name, name))
    except ValueError:
        raise ModelUnavailable(
            f"{folder}: pooling mode {name!r} is not served; served are {[str(mode) for mode in Pooling]}"
        ) from None


def check_architecture(spec: ModelSpec, ending: str, kind: str) -> None:
    """Refuse a model of another task; one whose config.json names no architecture is accepted.

    Args:
        ending: of transformers' classes for the task, e.g. "ForTokenClassification".
        kind: what such a model is, for messages.

    Raises: ModelUnavailable.
    """
    architectures = [str(name) for name in spec.config.get("architectures") or []]
    if architectures and not any(name.endswith(ending) for name in architectures):
        raise ModelUnavailable(f"{spec.name} is a {architectures[0]}, not a {kind} (…{ending})")


def named_labels(config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """``id2label`` by number. Raises: ModelUnavailable unless it names 0, 1, 2 and so on.

    Args:
        name: the model's, for messages.
    """
    id2label = config.get("id2label")
    try:
        by_number = (
            {int(number): str(label) for number, label in id2label.items()} if isinstance(id2label, dict) else {}
        )
    except ValueError:
        by_number = {}
    if not by_number or sorted(by_number) != list(range(len(by_number))):
        raise ModelUnavailable(f"{name}: config.json has no id2label that names every label from 0 on")
    return tuple(by_number[number] for number in range(len(by_number)))


def read_json(file: Path, default: Any) -> Any:
    """The content of a model's file, ``default`` where there is none. Raises: ModelUnavailable when it is no JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{file} cannot be read: {error}") from error
