"""The requests on the wire, parsed straight from their bytes. The answers are in answer_schemas.py.

Unknown fields are ignored, as OpenAI does. Types are strict: ``true`` is no token id and ``"3"`` no number.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, WithJsonSchema

from backend.api.deps import ApiLimits
from backend.errors import BadInput, InvalidField, TooLarge
from backend.services.embedded import EmbedOptions

Texts = list[str]
TokenIds = list[list[int]]
_TYPE_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
_LARGEST_ID = 2**63 - 1
_TOKEN_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def _check_inputs(value: Any, info: ValidationInfo) -> Texts | TokenIds:
    """One text or one list of ids becomes a list of one; anything else must be a list of one kind.

    Empty inputs are refused with 400, as OpenAI and text-embeddings-inference both do: the vector of nothing is
    the same for every empty field of every document and only spoils the index it lands in.
    """
    name = info.field_name or "input"
    if type(value) is str:
        value = [value]
    elif type(value) is not list:
        raise _wrong(name, value, "a text, a list of texts, a list of token ids or a list of such lists")
    kinds = set(map(type, value))
    if kinds == {int}:
        value, kinds = [value], {list}
    if kinds == {str}:
        return cast("Texts", _check_filled(value, name))
    if kinds == {list}:
        return _check_ids(value, name)
    if not value:
        raise BadInput(f"{name}: must not be an empty list", param=name)
    raise _mixed(value, name)


def _check_filled(inputs: Any, name: str) -> Any:
    if not all(inputs):
        place = f"{name}[{next(index for index, one in enumerate(inputs) if not one)}]" if len(inputs) > 1 else name
        raise BadInput(f"{place}: must not be empty; leave empty texts out of the request", param=name)
    return inputs


def _check_ids(inputs: list[Any], name: str) -> TokenIds:
    for index, ids in enumerate(inputs):
        if not set(map(type, ids)) <= {int}:
            wrong = next(one for one in ids if type(one) is not int)
            raise _wrong(f"{name}[{index}]", wrong, "a list of whole numbers (token ids) only")
        if ids and (max(ids) > _LARGEST_ID or min(ids) < -_LARGEST_ID):
            raise InvalidField(f"{name}[{index}]: holds a number that no tokenizer has as a token id", param=name)
    return cast("TokenIds", _check_filled(inputs, name))


def _mixed(value: list[Any], name: str) -> InvalidField:
    first = type(value[0])
    if first not in (str, int, list):
        return _wrong(f"{name}[0]", value[0], "a text, a token id or a list of token ids")
    index = next(index for index, one in enumerate(value) if type(one) is not first)
    return _wrong(f"{name}[{index}]", value[index], f"{_TYPE_NAMES[first]} like {name}[0]")


def _wrong(place: str, value: Any, expected: str) -> InvalidField:
    got = _TYPE_NAMES.get(type(value), "null")
    return InvalidField(f"{place}: must be {expected}, got {got}", param=place.partition("[")[0])


def _check_texts(value: Any, info: ValidationInfo) -> Texts:
    """One text becomes a list of one; empty texts are fine where nothing is embedded."""
    name = info.field_name or "inputs"
    if type(value) is str:
        return [value]
    if type(value) is not list:
        raise _wrong(name, value, "a text or a list of texts")
    if not value:
        raise BadInput(f"{name}: must not be an empty list", param=name)
    if set(map(type, value)) != {str}:
        index = next(index for index, one in enumerate(value) if type(one) is not str)
        raise _wrong(f"{name}[{index}]", value[index], "a text")
    return value


def check_limits(inputs: Texts | TokenIds, limits: ApiLimits, param: str) -> None:
    """Raise TooLarge (413) for more inputs than LIMIT_INPUTS or a text longer than LIMIT_TEXT_CHARS."""
    if len(inputs) > limits.inputs:
        raise TooLarge(param, len(inputs), limits.inputs, "LIMIT_INPUTS", advice="Send several requests.", param=param)
    longest = max(map(len, inputs))
    if longest > limits.text_chars and type(inputs[0]) is str:
        index = next(index for index, text in enumerate(inputs) if len(text) > limits.text_chars)
        raise TooLarge(f"{param}[{index}] characters", longest, limits.text_chars, "LIMIT_TEXT_CHARS", param=param)


Inputs = Annotated[
    Any,
    PlainValidator(_check_inputs),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "string", "minLength": 1, "title": "a text"},
                {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}, "title": "texts"},
                {**_TOKEN_IDS, "minItems": 1, "title": "token ids"},
                {"type": "array", "minItems": 1, "items": {**_TOKEN_IDS, "minItems": 1}, "title": "lists of token ids"},
            ]
        }
    ),
]
TextInputs = Annotated[
    Any,
    PlainValidator(_check_texts),
    WithJsonSchema({"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]}),
]
Sentence = Annotated[str, Field(min_length=1)]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class EmbeddingsRequest(_Request):
    """OpenAI's request, with four fields more: ``truncate``, ``prompt_name``, ``normalize`` and the ids' meaning."""

    input: Inputs = Field(description="What to embed. Token ids must be this model's own.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="base64: little-endian float32, a third of the bytes."
    )
    dimensions: int | None = Field(None, ge=1, description="Leading dimensions to keep, at most the model's width.")
    user: Any = Field(None, description="Accepted and ignored.")
    truncate: Literal["end", "start", "none"] | None = Field(
        "end", description="Which end of a text beyond the model's length is cut; none answers 413 instead."
    )
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")
    normalize: bool | None = Field(None, description="Scale vectors to length 1; unset: as the model was trained.")

    def options(self) -> EmbedOptions:
        """How the service is to embed."""
        return EmbedOptions(
            truncate=self.truncate or "end",
            prompt_name=self.prompt_name,
            normalize=self.normalize,
            dimensions=self.dimensions,
        )


class _TruncatingRequest(_Request):
    """The three fields by which text-embeddings-inference says how to read a text."""

    truncate: bool | None = Field(None, description="false: 413 for a text beyond the model's length.")
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = Field(
        "right", description="The side that is cut."
    )
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")

    def truncation(self) -> Literal["end", "start", "none"]:
        """The same wish in the service's words."""
        if self.truncate is False:
            return "none"
        return "start" if self.truncation_direction in ("left", "Left") else "end"


class EmbedRequest(_TruncatingRequest):
    """The request of text-embeddings-inference's ``/embed``."""

    inputs: Inputs = Field(description="What to embed. Token ids must be this model's own.")
    normalize: bool | None = Field(True, description="Scale vectors to length 1.")
    dimensions: int | None = Field(None, ge=1, description="Leading dimensions to keep, at most the model's width.")

    def options(self) -> EmbedOptions:
        """How the service is to embed."""
        return EmbedOptions(
            truncate=self.truncation(),
            prompt_name=self.prompt_name,
            normalize=self.normalize is not False,
            dimensions=self.dimensions,
        )


class SimilarityInput(_Request):
    """One sentence and those it is compared with."""

    source_sentence: Sentence
    sentences: Annotated[list[Sentence], Field(min_length=1, fail_fast=True)]


class SimilarityParameters(_TruncatingRequest):
    """How the sentences are read."""

    def options(self) -> EmbedOptions:
        """How the service is to embed."""
        return EmbedOptions(truncate=self.truncation(), prompt_name=self.prompt_name, normalize=True)


class SimilarityRequest(_Request):
    """The request of text-embeddings-inference's ``/similarity``."""

    inputs: SimilarityInput
    parameters: SimilarityParameters | None = None


class TokenizeRequest(_Request):
    """The request of text-embeddings-inference's ``/tokenize``."""

    inputs: TextInputs = Field(description="What to cut into tokens.")
    add_special_tokens: bool = Field(True, description="Put the model's own marks around each text.")
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")


class LoadModelRequest(BaseModel):
    """`POST /admin/models`."""

    task: Literal["embeddings", "ner"] = Field("embeddings", description="Which of the served models to replace.")
    source: str = Field(min_length=1, max_length=1000, description="A folder on the server, a hub id, or bundled.")


class EntitiesRequest(_Request):
    """`POST /v1/entities`."""

    input: TextInputs = Field(description="Texts of any length up to LIMIT_TEXT_CHARS; nothing is cut.")
    types: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Kinds of entities to answer with, as the model names them; unset: all."
    )
    min_score: float = Field(0.0, ge=0.0, le=1.0, description="Least score of an entity.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")


REQUESTS: tuple[type[BaseModel], ...] = (
    EmbeddingsRequest,
    EmbedRequest,
    SimilarityRequest,
    TokenizeRequest,
    LoadModelRequest,
    EntitiesRequest,
)
