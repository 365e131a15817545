"""Cohere's requests for vectors: those of its first and of its second API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, WithJsonSchema, model_validator

from backend.api.requests.embeddings import TRUNCATE, EmbeddingType
from backend.api.requests.fields import TEXT, AnyTruncate, Count, FilledTexts, WireRequest, many, only
from backend.api.requests.prompts import InputType
from backend.api.requests.validation import require_no_empty_items, require_not_empty, wrong_type
from backend.errors import InvalidField
from backend.text.embeddings import EmbedOptions

_PART = {"type": "object", "properties": {"type": {"const": "text"}, "text": TEXT}, "required": ["type", "text"]}
_INPUT = {
    "type": "object",
    "properties": {"content": {"type": "array", "minItems": 1, "items": _PART}},
    "required": ["content"],
}


def _check_no_images(value: Any, info: ValidationInfo) -> None:
    if value is not None and not (type(value) is list and not value):
        raise InvalidField(f"{info.field_name}: images are not read, only texts", param=info.field_name)


def _check_inputs(value: Any, info: ValidationInfo) -> list[str]:
    """The text of each input: its parts, one a line."""
    name = info.field_name or "inputs"
    if type(value) is not list:
        raise wrong_type(name, value, "a list of objects with the field content")
    require_not_empty(value, name)
    return [_text_of(item, f"{name}[{index}]", name) for index, item in enumerate(value)]


def _text_of(item: Any, place: str, name: str) -> str:
    parts = item.get("content") if isinstance(item, Mapping) else None
    if type(parts) is not list:
        raise InvalidField(f"{place}: must be an object with the field content, a list of parts", param=name)
    require_not_empty(parts, f"{place}.content")
    for index, part in enumerate(parts):
        if not (isinstance(part, Mapping) and part.get("type") == "text" and type(part.get("text")) is str):
            raise InvalidField(
                f'{place}.content[{index}]: must be {{"type": "text", "text": a text}}; images are not read', param=name
            )
    texts = [part["text"] for part in parts]
    require_no_empty_items(texts, f"{place}.content")
    return "\n".join(texts)


_NoImages = Annotated[
    None,
    PlainValidator(_check_no_images),
    WithJsonSchema({"anyOf": [{"type": "array", "maxItems": 0}, {"type": "null"}]}),
]


class _EmbedRequest(WireRequest):
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    images: _NoImages = Field(None, description="Not read.")
    input_type: InputType = Field(
        None, description="What the texts are for; chooses the prompt, where the model has one that fits."
    )
    embedding_types: list[EmbeddingType] | None = Field(
        None, description="How vectors are written; base64 is of little-endian float32."
    )
    truncate: AnyTruncate = Field("end", description=TRUNCATE)

    @property
    def encodings(self) -> tuple[str, ...]:
        """The forms asked for, each once; names of VECTOR_ENCODINGS."""
        return tuple(dict.fromkeys(self.embedding_types or ()))

    def options(self) -> EmbedOptions:
        """The options of the embedding service; vectors have length 1, as Cohere's have."""
        return EmbedOptions(truncate=self.truncate or "end", prompts=self.input_type or (), normalize=True)


class CohereEmbedRequest(_EmbedRequest):
    """The request of `POST /v1/embed`."""

    texts: FilledTexts = Field(description="What to embed, at most LIMIT_INPUTS.")


class CohereEmbedV2Request(_EmbedRequest):
    """The request of `POST /v2/embed`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [only("texts", "inputs"), only("inputs", "texts")]})

    texts: FilledTexts | None = Field(None, description="What to embed, at most LIMIT_INPUTS.")
    inputs: Annotated[Any, PlainValidator(_check_inputs), WithJsonSchema(many(_INPUT))] | None = Field(
        None, description="The same as objects, whose content is a list of texts; these are joined, one a line."
    )
    output_dimension: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")
    max_tokens: Count | None = Field(None, description="At least the model's own length: a shorter one is not served.")
    priority: Any = Field(None, description="Accepted and ignored.")

    @model_validator(mode="after")
    def _one_kind(self) -> CohereEmbedV2Request:
        if (self.texts is None) == (self.inputs is None):
            raise InvalidField("texts: send either texts or inputs", param="texts")
        return self

    @property
    def kind(self) -> str:
        """The field in which the texts came."""
        return "texts" if self.texts is not None else "inputs"

    def contents(self) -> list[str]:
        """The texts to embed."""
        return cast("list[str]", self.texts if self.texts is not None else self.inputs)

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return super().options()._replace(dimensions=self.output_dimension)


REQUESTS: tuple[type[BaseModel], ...] = (CohereEmbedRequest, CohereEmbedV2Request)
