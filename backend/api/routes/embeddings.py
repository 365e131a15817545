"""``POST /v1/embeddings``: vectors in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import AliasChoices, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import VECTOR_ENCODINGS, JsonBytes, parse_json, read_json, require_body_bytes
from backend.api.problems import openai_error, problem_of
from backend.api.request_context import ApiLimits, Handle, call_service_timed, context_of, limits_of
from backend.api.request_fields import (
    AnyTruncate,
    Count,
    InputsOrObjects,
    NotServed,
    WireRequest,
    check_limits,
    reads_unless_null,
)
from backend.api.routing import REQUEST_TIMEOUT, name_parameter, post
from backend.batches import LineAnswer
from backend.errors import BadInput, InferenceFailed, InvalidField
from backend.lanes.inference import Urgency
from backend.lanes.loop_turns import loop_turn
from backend.text.embeddings import EmbeddingResult, EmbeddingService, EmbedOptions

_embeddings_of: Handle[EmbeddingService] = Handle("embeddings")

Prompts = tuple[str, ...]  # names, best first

_QUERY: Prompts = ("query", "search_query", "retrieval.query")
_PASSAGE: Prompts = ("passage", "document", "search_document", "retrieval.passage")
_CLASSES: Prompts = ("classification", *_QUERY)
_CLUSTERS: Prompts = ("clustering", "separation", *_QUERY)
_CODE = ("code", "nl2code", "code2code", "code2nl", "code2completion", "qa")

INPUT_TYPES: Mapping[str, Prompts] = {  # Cohere's, NVIDIA's and Voyage's
    "search_query": _QUERY,
    "search_document": _PASSAGE,
    "query": _QUERY,
    "passage": _PASSAGE,
    "document": _PASSAGE,
    "classification": _CLASSES,
    "clustering": _CLUSTERS,
}
# Jina's. Those of one side only are plain, because both sides must then be read alike: measured, no prompt on either
# side finds more than the prompt of queries on both (docs/text.md).
TASKS: Mapping[str, Prompts] = {
    "retrieval.query": ("retrieval.query", *_QUERY),
    "retrieval.passage": ("retrieval.passage", *_PASSAGE),
    "retrieval": (),
    "text-matching": ("text-matching",),
    "classification": _CLASSES,
    "clustering": _CLUSTERS,
    "separation": ("separation", *_CLUSTERS),
    **{f"{kind}.query": (f"{kind}.query", *_QUERY) for kind in _CODE},
    **{f"{kind}.passage": (f"{kind}.passage", *_PASSAGE) for kind in _CODE},
    **dict.fromkeys(_CODE, ()),
}


def _read_word(words: Mapping[str, Prompts], value: Any, name: str) -> Prompts:
    if value == "image":
        raise InvalidField(f"{name}: images are not read, only texts")
    prompts = words.get(value) if type(value) is str else None
    if prompts is None:
        raise InvalidField(f"{name}: must be one of {', '.join(words)}; got {value!r:.60}")
    return prompts


InputType = Annotated[
    Any, reads_unless_null(partial(_read_word, INPUT_TYPES)), WithJsonSchema({"enum": [*INPUT_TYPES, None]})
]
Task = Annotated[Any, reads_unless_null(partial(_read_word, TASKS)), WithJsonSchema({"enum": [*TASKS, None]})]
EmbeddingType = Literal["float", "base64", "int8", "uint8", "binary", "ubinary"]  # of VECTOR_ENCODINGS
PROMPT_NAME = "One of the model's prompts, put before each text; GET /v1/models lists them."
TRUNCATE = "Which end of a text beyond the model's length is cut; none answers 413 instead."


class EmbeddingsRequest(WireRequest):
    """OpenAI's request, with fields of ours and of Jina's, NVIDIA's and Voyage's clients."""

    input: InputsOrObjects = Field(description="What to embed. Token ids must be this model's own.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="base64: little-endian float32, a third of the bytes."
    )
    dimensions: Count | None = Field(
        None,
        validation_alias=AliasChoices("dimensions", "output_dimension"),
        description="Leading dimensions to keep, at most the model's width; Voyage's output_dimension.",
    )
    user: Any = Field(None, description="Accepted and ignored.")
    truncate: AnyTruncate = Field("end", description=f"{TRUNCATE} Jina's true is end, its false none.")
    prompt_name: str | None = Field(None, description=PROMPT_NAME)
    task: Task = Field(
        None, description="Jina's word for what the texts are for; chooses the prompt, where there is one."
    )
    input_type: InputType = Field(None, description="The same in the words of Cohere, NVIDIA and Voyage.")
    normalize: bool | None = Field(
        None,
        validation_alias=AliasChoices("normalize", "normalized"),
        description="Scale vectors to length 1; unset: as the model was trained. Jina's normalized.",
    )
    embedding_type: EmbeddingType | None = Field(
        None,
        validation_alias=AliasChoices("embedding_type", "encoding_type"),
        description="Jina's word for the numbers of a vector; goes before encoding_format.",
    )
    late_chunking: NotServed = Field(None, description="Not served: each text is embedded by itself.")
    return_multivector: NotServed = Field(None, description="Not served: a text has one vector.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service.

        Raises: InvalidField where several fields ask for a prompt, or one does for token ids.
        """
        return EmbedOptions(
            truncate=self.truncate or "end",
            prompt_name=checked_prompt_name(self.prompt_name, self.input),
            prompts=self._prompts(),
            normalize=self.normalize,
            dimensions=self.dimensions,
        )

    @property
    def encoding(self) -> str:
        """How vectors are written; a name of VECTOR_ENCODINGS."""
        return self.embedding_type or self.encoding_format or "float"

    def _prompts(self) -> Prompts:
        if self.task is None and self.input_type is None:
            return ()
        name = "task" if self.task is not None else "input_type"
        if [self.prompt_name, self.task, self.input_type].count(None) < 2:
            raise InvalidField(f"{name}: send one of prompt_name, task and input_type; each chooses a prompt")
        require_texts_for_prompt(self.input, name)
        prompts: Prompts = self.task if self.task is not None else self.input_type
        return prompts


def require_texts_for_prompt(inputs: Any, name: str) -> None:
    """Raise InvalidField (422) for token ids: a prompt goes before texts. ``name`` is the field that asks for one."""
    if type(inputs[0]) is list:
        raise InvalidField(f"{name}: goes before texts; token ids are read as they are, put the prompt's own first")


def checked_prompt_name(name: str | None, inputs: Any) -> str | None:
    if name:
        require_texts_for_prompt(inputs, "prompt_name")
    return name


TruncatedInputs = Annotated[
    list[int] | None, Field(default=None, description="Indices of inputs that were cut; absent when none was.")
]

_SLICE_FLOATS = 65_536  # about 1.5 ms of one core; between slices the event loop serves other requests


class EmbeddingItem(TypedDict):
    """One vector."""

    object: Literal["embedding"]
    index: Annotated[int, Field(description="Place of its input in the request.")]
    embedding: Annotated[
        list[float] | str,
        Field(
            description="Numbers, whole ones where embedding_type asks for them, or base64 of little-endian float32."
        ),
    ]


class Usage(TypedDict):
    """Tokens read, special tokens included, after cutting."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(TypedDict):
    """OpenAI's list of embeddings."""

    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: Usage
    truncated: NotRequired[TruncatedInputs]
    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]


def usage(tokens: int) -> Usage:
    """OpenAI's count of the tokens read."""
    return {"prompt_tokens": tokens, "total_tokens": tokens}


async def openai_embeddings(
    embedded: EmbeddingResult, encoding: str, more: Mapping[str, object] | None = None
) -> JsonBytes:
    """An ``EmbeddingsAnswer``, each vector in ``encoding`` (of VECTOR_ENCODINGS).

    Args:
        more: fields of a service whose answer has more of them.
    """
    vectors = await encoded_vectors(embedded, encoding)
    tokens = sum(embedded.tokens)
    item = b'},{"object":"embedding","index":%d,"embedding":'
    chunks = [b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":', vectors[0]]
    for index in range(1, len(vectors)):
        chunks += (item % index, vectors[index])
    chunks.append(
        b'}],"model":%b,"usage":{"prompt_tokens":%d,"total_tokens":%d}'
        % (orjson.dumps(embedded.model.name), tokens, tokens)
    )
    if any(embedded.truncated):
        chunks.append(b',"truncated":' + orjson.dumps(truncated_indices(embedded.truncated)))
    chunks.append(b"," + orjson.dumps(more)[1:] if more else b"}")
    return JsonBytes(b"".join(chunks))


def truncated_indices(flags: Sequence[bool]) -> list[int]:
    """The indices of the inputs that were truncated."""
    return [index for index, truncated in enumerate(flags) if truncated]


async def encoded_vectors(embedded: EmbeddingResult, encoding: str) -> list[bytes]:
    """Each vector in ``encoding``. Large answers are written in slices, because writing blocks the event loop."""
    count = len(embedded.rows)
    step = max(1, _SLICE_FLOATS // max(1, len(embedded.rows[0].vector)))
    vectors: list[bytes] = []
    for start in range(0, count, step):
        if count > step:
            await loop_turn()
        vectors += [_written(embedded, index, encoding) for index in range(start, min(start + step, count))]
    return vectors


def _written(embedded: EmbeddingResult, index: int, encoding: str) -> bytes:
    row = embedded.rows[index]
    fragment = row.fragment(encoding)
    if fragment is None:
        fragment = VECTOR_ENCODINGS[encoding](row.vector)
        embedded.keep_fragment(index, encoding, fragment)
    return fragment


async def create_embeddings(request: Request) -> Response:
    """Vectors of texts or token ids.

    Order is kept; equal texts are computed once. Without `truncate: none` a text beyond the model's length is cut
    and its index listed in `truncated`. A text is read as it is, unless `prompt_name`, `task` or `input_type` chooses
    one of the model's prompts. The `Server-Timing` header tells where the time went.
    """
    body = await read_json(request, EmbeddingsRequest)
    embedded = await embed(request, body.input, body.options(), param="input", model=body.model)
    return await openai_embeddings(embedded, body.encoding, {"id": context_of(request).request_id})


async def create_deployed(request: Request) -> Response:
    """The same under the paths of Azure OpenAI; the deployment's name counts where the body names no model."""
    body = await read_json(request, EmbeddingsRequest)
    model = body.model or request.path_params["name"]
    embedded = await embed(request, body.input, body.options(), param="input", model=model)
    return await openai_embeddings(embedded, body.encoding, {"id": context_of(request).request_id})


async def embed(
    request: Request, inputs: Any, options: EmbedOptions, *, param: str, model: str | None = None
) -> EmbeddingResult:
    """Embed checked ``inputs`` for as long as the client waits; ``param`` is the field they came in.

    Raises: TooLarge, CallerGone, DeadlineExceeded, and whatever the service raises.
    """
    characters = check_limits(inputs, limits_of(request), param)
    call = partial(_embeddings_of(request).embed, inputs, options, model=model)
    return await call_service_timed(request, call, characters=characters)


async def answer_in_batch(
    embeddings: EmbeddingService, limits: ApiLimits, body: bytes, *, request_id: str, urgency: Urgency
) -> LineAnswer:
    """A request of a batch, answered as `create_embeddings` does. Raises: what is no fault of this request."""
    try:
        require_body_bytes(len(body), limits.body_bytes)
        asked = await parse_json(body, EmbeddingsRequest)
        check_limits(asked.input, limits, "input")
        embedded = await embeddings.embed(asked.input, asked.options(), model=asked.model, urgency=urgency)
        answer = await openai_embeddings(embedded, asked.encoding, {"id": request_id})
    except (BadInput, InferenceFailed) as error:
        problem = problem_of(error, BATCH_ENDPOINT)
        return LineAnswer(problem.status, orjson.dumps({"error": openai_error(problem)}))
    return LineAnswer(200, bytes(answer.body), sum(embedded.tokens))


BATCH_ENDPOINT = "/v1/embeddings"
EMBEDDINGS_EXAMPLE = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.0123, -0.0456, 0.0789]}],
    "model": "intfloat/multilingual-e5-small",
    "usage": {"prompt_tokens": 12, "total_tokens": 12},
    "id": "8f3a1c2b9d4e-17",
}
ROUTES = (
    post(
        "/v1/embeddings",
        create_embeddings,
        tag="OpenAI",
        request=EmbeddingsRequest,
        examples={
            "one text": {"input": "La factura vence el 31 de marzo."},
            "several texts, base64": {
                "input": ["Invoice 2024-017, due in 30 days", "Recibo de alquiler, enero"],
                "model": "bundled",
                "encoding_format": "base64",
            },
            "never cut, 128 dimensions": {"input": ["a long contract …"], "truncate": "none", "dimensions": 128},
            "a question, in Jina's words": {"input": [{"text": "¿Cuándo vence?"}], "task": "retrieval.query"},
            "token ids": {"input": [[0, 35378, 2], [0, 33600, 31, 8999, 2]]},
        },
        schema=EmbeddingsAnswer,
        example=EMBEDDINGS_EXAMPLE,
    ),
)
AZURE_ROUTES = (
    post(
        "/openai/deployments/{name}/embeddings",
        create_deployed,
        tag="OpenAI",
        request=EmbeddingsRequest,
        examples={"as AzureOpenAI sends it": {"input": "La factura vence el 31 de marzo.", "model": "bundled"}},
        schema=EmbeddingsAnswer,
        example=EMBEDDINGS_EXAMPLE,
        parameters=(name_parameter("bundled"), REQUEST_TIMEOUT),
    ),
)
