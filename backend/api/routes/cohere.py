"""``POST /v1/embed`` and ``/v2/embed``: vectors for the clients of Cohere's two APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Any, Literal, NotRequired, cast

import orjson
from pydantic import ConfigDict, Field, WithJsonSchema, model_validator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import (
    CHARS_PER_ITEM,
    INLINE_ITEMS,
    JsonPieces,
    index_ranges,
    json_pieces,
    json_response,
    read_json,
    written_json,
)
from backend.api.request_context import Handle, call_service, context_of, limits_of
from backend.api.request_fields import (
    TEXT,
    AnyTruncate,
    Count,
    FilledTexts,
    Sentence,
    TokenIdInputs,
    WireRequest,
    check_limits,
    many,
    only,
    reads,
    require_no_empty_items,
    require_not_empty,
    wrong_type,
)
from backend.api.routes.cohere_classify import CohereApiVersion, CohereMeta
from backend.api.routes.embeddings import TRUNCATE, EmbeddingType, InputType, embed, encoded_vectors, truncated_indices
from backend.api.routes.tei import decoded
from backend.api.routing import post
from backend.errors import InvalidField
from backend.serving.catalog import Catalog
from backend.text.embeddings import EmbeddingResult, EmbeddingService, EmbedOptions

_catalog_of: Handle[Catalog] = Handle("catalog")
_embeddings_of: Handle[EmbeddingService] = Handle("embeddings")

_PART = {"type": "object", "properties": {"type": {"const": "text"}, "text": TEXT}, "required": ["type", "text"]}
_INPUT = {
    "type": "object",
    "properties": {"content": {"type": "array", "minItems": 1, "items": _PART}},
    "required": ["content"],
}


def _check_no_images(value: Any, name: str) -> None:
    if value is not None and not (type(value) is list and not value):
        raise InvalidField(f"{name}: images are not read, only texts")


def _check_inputs(value: Any, name: str) -> list[str]:
    """The text of each input: its parts, one a line."""
    if type(value) is not list:
        raise wrong_type(name, value, "a list of objects with the field content")
    require_not_empty(value, name)
    return [_text_of(item, f"{name}[{index}]") for index, item in enumerate(value)]


def _text_of(item: Any, place: str) -> str:
    parts = item.get("content") if isinstance(item, Mapping) else None
    if type(parts) is not list:
        raise InvalidField(f"{place}: must be an object with the field content, a list of parts")
    require_not_empty(parts, f"{place}.content")
    for index, part in enumerate(parts):
        if not (isinstance(part, Mapping) and part.get("type") == "text" and type(part.get("text")) is str):
            raise InvalidField(
                f'{place}.content[{index}]: must be {{"type": "text", "text": a text}}; images are not read'
            )
    texts = [part["text"] for part in parts]
    require_no_empty_items(texts, f"{place}.content")
    return "\n".join(texts)


_NoImages = Annotated[
    None,
    reads(_check_no_images),
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
    inputs: Annotated[Any, reads(_check_inputs), WithJsonSchema(many(_INPUT))] | None = Field(
        None, description="The same as objects, whose content is a list of texts; these are joined, one a line."
    )
    output_dimension: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")
    max_tokens: Count | None = Field(None, description="At least the model's own length: a shorter one is not served.")
    priority: Any = Field(None, description="Accepted and ignored.")

    @model_validator(mode="after")
    def _one_kind(self) -> CohereEmbedV2Request:
        if (self.texts is None) == (self.inputs is None):
            raise InvalidField("texts: send either texts or inputs")
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


class CohereVectors(TypedDict):
    """The vectors in each form that `embedding_types` asked for, and in no other."""

    float: NotRequired[list[list[float]] | None]
    int8: NotRequired[list[list[int]] | None]
    uint8: NotRequired[list[list[int]] | None]
    binary: NotRequired[list[list[int]] | None]
    ubinary: NotRequired[list[list[int]] | None]
    base64: NotRequired[list[str] | None]


class CohereFloats(TypedDict):
    """`POST /v1/embed` without `embedding_types`."""

    response_type: Literal["embeddings_floats"]
    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
    embeddings: list[list[float]]
    texts: list[str]
    meta: CohereMeta


class CohereByType(TypedDict):
    """`POST /v1/embed` with `embedding_types`, and `POST /v2/embed`."""

    response_type: Literal["embeddings_by_type"]
    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
    embeddings: CohereVectors
    texts: list[str]
    meta: CohereMeta


async def cohere_floats(embedded: EmbeddingResult, texts: Sequence[str], request_id: str) -> Response:
    """A ``CohereFloats``."""
    vectors = [b"[", b",".join(await encoded_vectors(embedded, "float")), b"]"]
    return await _answer("embeddings_floats", vectors, texts, request_id, _meta("1", embedded))


async def cohere_by_type(
    embedded: EmbeddingResult, encodings: Sequence[str], texts: Sequence[str], request_id: str, version: str
) -> Response:
    """A ``CohereByType`` with the vectors in each of ``encodings`` (of VECTOR_ENCODINGS)."""
    vectors: list[bytes] = []
    for encoding in encodings:
        rows = b",".join(await encoded_vectors(embedded, encoding))
        vectors += (b"," if vectors else b"{", orjson.dumps(encoding), b":[", rows, b"]")
    return await _answer("embeddings_by_type", [*vectors, b"}"], texts, request_id, _meta(version, embedded))


async def _answer(
    kind: str, vectors: Sequence[bytes], texts: Sequence[str], request_id: str, meta: CohereMeta
) -> Response:
    """The pieces of an answer. Many texts are written on a thread: requests hold up to 16 MB of them."""
    items = len(texts) + sum(map(len, texts)) // CHARS_PER_ITEM
    echoed: list[bytes] = (
        list(json_pieces(list(texts)))
        if items <= INLINE_ITEMS
        else await asyncio.to_thread(lambda: list(json_pieces(list(texts))))
    )
    head = orjson.dumps({"response_type": kind, "id": request_id})[:-1] + b',"embeddings":'
    return JsonPieces([head, *vectors, b',"texts":', *echoed, b',"meta":' + orjson.dumps(meta) + b"}"])


def _meta(version: str, embedded: EmbeddingResult) -> CohereMeta:
    meta: CohereMeta = {"api_version": {"version": version}, "billed_units": {"input_tokens": sum(embedded.tokens)}}
    if truncated := truncated_indices(embedded.truncated):
        limit = embedded.model.spec.max_tokens
        meta["warnings"] = [f"cut at the model's {limit} tokens: texts {index_ranges(truncated)}"]
    return meta


async def create_v1(request: Request) -> Response:
    """Vectors of length 1, bare or in each of the forms that `embedding_types` names.

    `input_type` chooses the prompt where the model has one: search_query, classification and clustering that of
    queries, search_document that of passages. Texts beyond the model's length are cut, and `meta.warnings` says which,
    unless `truncate` is NONE.
    """
    body = await read_json(request, CohereEmbedRequest)
    embedded = await embed(request, body.texts, body.options(), param="texts", model=body.model)
    request_id = context_of(request).request_id
    if not body.encodings:
        return await cohere_floats(embedded, body.texts, request_id)
    return await cohere_by_type(embedded, body.encodings, body.texts, request_id, version="1")


async def create_v2(request: Request) -> Response:
    """The same for Cohere's second API: by type always, `float` unless `embedding_types` names others."""
    body = await read_json(request, CohereEmbedV2Request)
    max_tokens = _catalog_of(request).embedding(body.model).spec.max_tokens
    if body.max_tokens is not None and body.max_tokens < max_tokens:
        raise InvalidField(
            f"max_tokens: texts are read to the model's {max_tokens} tokens, got {body.max_tokens}; leave it out, or "
            "send shorter texts"
        )
    contents = body.contents()
    embedded = await embed(request, contents, body.options(), param=body.kind, model=body.model)
    encodings = body.encodings or ("float",)
    return await cohere_by_type(embedded, encodings, contents, context_of(request).request_id, version="2")


class CohereTokenizeRequest(WireRequest):
    """`POST /v1/tokenize`."""

    text: Sentence = Field(description="What to cut into tokens.")
    model: str | None = Field(None, description="Any name: the tokens are those of the embedding model.")


class CohereTokens(TypedDict):
    """`POST /v1/tokenize`: ids, and the stretches of the text that they stand for."""

    tokens: list[int]
    token_strings: list[str]
    meta: dict[str, CohereApiVersion]


class CohereDetokenizeRequest(WireRequest):
    """`POST /v1/detokenize`."""

    tokens: TokenIdInputs = Field(description="Token ids.")
    model: str | None = Field(None, description="Any name: the tokens are those of the embedding model.")


class CohereText(TypedDict):
    """`POST /v1/detokenize`."""

    text: str
    meta: dict[str, CohereApiVersion]


async def tokenize(request: Request) -> Response:
    """The embedding model's tokens of a text, without its own marks."""
    body = await read_json(request, CohereTokenizeRequest)
    characters = check_limits([body.text], limits_of(request), "text")
    most = limits_of(request).tokenize_tokens
    call = partial(_embeddings_of(request).tokenize, [body.text], add_special_tokens=False, max_tokens=most)
    [read] = await call_service(request, call, characters=characters)

    def answer() -> CohereTokens:
        pieces = list(chain.from_iterable(read.pieces(most)))
        return {
            "tokens": [piece.id for piece in pieces],
            "token_strings": [piece.text for piece in pieces],
            "meta": {"api_version": {"version": "1"}},
        }

    return await written_json(answer, len(read))


async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    body = await read_json(request, CohereDetokenizeRequest)
    texts = await decoded(request, body.tokens, "tokens")
    return json_response(CohereText(text=" ".join(texts), meta={"api_version": {"version": "1"}}))


_TEXTS = ["La factura vence el 31 de marzo.", "Payment is due in 30 days."]
_BILLED = {"billed_units": {"input_tokens": 22}}
_BY_TYPE_EXAMPLE = {
    "response_type": "embeddings_by_type",
    "id": "8f3a1c2b9d4e-17",
    "embeddings": {"float": [[0.0123, -0.0456, 0.0789]], "int8": [[6, -23, 39]]},
    "texts": _TEXTS[:1],
    "meta": {"api_version": {"version": "2"}, **_BILLED},
}
_FLOATS_EXAMPLE = {
    "response_type": "embeddings_floats", "id": "8f3a1c2b9d4e-17", "embeddings": [[0.0123, -0.0456, 0.0789]],
    "texts": _TEXTS[:1], "meta": {"api_version": {"version": "1"}, **_BILLED},
}  # fmt: skip
ROUTES = (
    post(
        "/v1/embed",
        create_v1,
        tag="texts",
        request=CohereEmbedRequest,
        examples={
            "documents": {"texts": _TEXTS, "input_type": "search_document", "truncate": "END"},
            "a query, by type": {
                "texts": ["¿Cuándo vence?"],
                "input_type": "search_query",
                "embedding_types": ["float", "int8"],
            },
        },
        schema={"oneOf": [CohereFloats, CohereByType]},
        example=_FLOATS_EXAMPLE,
    ),
    post(
        "/v2/embed",
        create_v2,
        tag="texts",
        request=CohereEmbedV2Request,
        examples={
            "as Cohere's ClientV2 sends it": {
                "model": "bundled",
                "texts": _TEXTS,
                "input_type": "search_document",
                "embedding_types": ["float"],
            },
            "inputs": {
                "inputs": [{"content": [{"type": "text", "text": "¿Cuándo vence?"}]}],
                "input_type": "search_query",
                "embedding_types": ["ubinary", "base64"],
                "output_dimension": 256,
            },
        },
        schema=CohereByType,
        example=_BY_TYPE_EXAMPLE,
    ),
    post(
        "/v1/tokenize",
        tokenize,
        tag="texts",
        request=CohereTokenizeRequest,
        examples={"a text": {"text": "Deep Learning", "model": "bundled"}},
        schema=CohereTokens,
        example={
            "tokens": [62723, 9],
            "token_strings": ["Deep", " Learning"],
            "meta": {"api_version": {"version": "1"}},
        },
    ),
    post(
        "/v1/detokenize",
        detokenize,
        tag="texts",
        request=CohereDetokenizeRequest,
        examples={"two tokens": {"tokens": [62723, 9], "model": "bundled"}},
        schema=CohereText,
        example={"text": "Deep Learning", "meta": {"api_version": {"version": "1"}}},
    ),
)
