"""The shapes of Hugging Face's text-embeddings-inference, so that its clients work unchanged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any, Literal, NotRequired, cast

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from backend.api.json_io import (
    CHARS_PER_ITEM,
    JsonBytes,
    float_array,
    index_headers,
    json_response,
    read_json,
    validate_query,
    written_json,
)
from backend.api.request_context import (
    Handle,
    call_service,
    call_service_timed,
    context_of,
    limits_of,
    run_until_disconnect,
    services_of,
    time_limit_s,
)
from backend.api.request_fields import (
    LIMIT_KEYWORD,
    TEXT,
    Count,
    FilledTexts,
    InfinityModel,
    Inputs,
    Sentence,
    TextInputs,
    TokenIdInputs,
    WireRequest,
    check_chars,
    check_count,
    check_limits,
    many,
    only,
    reads,
    require_not_empty,
    require_texts,
    wrong_type,
)
from backend.api.routes.classify import PredictionAnswer
from backend.api.routes.embeddings import (
    PROMPT_NAME,
    Usage,
    checked_prompt_name,
    embed,
    encoded_vectors,
    truncated_indices,
    usage,
)
from backend.api.routing import get, post, query_parameters
from backend.errors import BadInput, CallerGone, InvalidField, TokenIdsOutOfRange, TooLarge, param_of
from backend.models.encoder import Vectors
from backend.models.tokenizer import TokenizedText, Truncate
from backend.serving.catalog import Catalog, LoadedModel
from backend.text.classification import DEFAULT as DEFAULT_CLASSIFIER
from backend.text.classification import ClassificationService, Prediction
from backend.text.embeddings import EmbeddingResult, EmbeddingService, EmbedOptions
from backend.text.reranking import RerankResult, RerankService

_embeddings_of: Handle[EmbeddingService] = Handle("embeddings")
_classification_of: Handle[ClassificationService] = Handle("classification")
_reranking_of: Handle[RerankService] = Handle("reranking")
_catalog_of: Handle[Catalog] = Handle("catalog")


class TruncatingRequest(WireRequest):
    """The two fields by which text-embeddings-inference says how a long text is read."""

    truncate: bool | None = Field(None, description="false: 413 for a text beyond the model's length.")
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = Field(
        "right", description="The side that is cut."
    )

    def truncation(self) -> Truncate:
        """The two fields as the service's one option."""
        if self.truncate is False:
            return "none"
        return "start" if self.truncation_direction in ("left", "Left") else "end"


class _PromptedRequest(TruncatingRequest):
    prompt_name: str | None = Field(None, description=PROMPT_NAME)


class EmbedRequest(_PromptedRequest):
    """The request of text-embeddings-inference's ``/embed``."""

    inputs: Inputs = Field(description="What to embed. Token ids must be this model's own.")
    normalize: bool | None = Field(True, description="Scale vectors to length 1.")
    dimensions: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(
            truncate=self.truncation(),
            prompt_name=checked_prompt_name(self.prompt_name, self.inputs),
            normalize=self.normalize is not False,
            dimensions=self.dimensions,
        )


class EmbedAllRequest(_PromptedRequest):
    """The request of text-embeddings-inference's ``/embed_all``."""

    inputs: Inputs = Field(description="What to embed token by token. Token ids must be this model's own.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(truncate=self.truncation(), prompt_name=checked_prompt_name(self.prompt_name, self.inputs))


class SimilarityInput(WireRequest):
    """One sentence and those it is compared with."""

    source_sentence: Sentence
    sentences: Annotated[
        list[Sentence], Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT_KEYWORD: "LIMIT_INPUTS"})
    ]


class SimilarityParameters(_PromptedRequest):
    """How the sentences are read."""

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(truncate=self.truncation(), prompt_name=self.prompt_name, normalize=True)


class SimilarityRequest(WireRequest):
    """The request of text-embeddings-inference's ``/similarity``."""

    inputs: SimilarityInput
    parameters: SimilarityParameters | None = None


class TokenizeRequest(WireRequest):
    """The request of text-embeddings-inference's ``/tokenize``."""

    inputs: TextInputs = Field(description="What to cut into tokens.")
    add_special_tokens: bool = Field(True, description="Put the model's own marks around each text.")
    prompt_name: str | None = Field(None, description=PROMPT_NAME)


Pair = tuple[str, str]
_PREDICT_KINDS = 'a text, a pair of texts [a, b], or a batch of lists of one or two texts each: [["a"], ["b", "c"]]'


@dataclass(frozen=True, slots=True)
class PredictInputs:
    """The inputs of ``/predict``."""

    rows: tuple[str | Pair, ...]
    batch: bool  # the answer is then a list of lists

    @property
    def texts(self) -> list[str]:
        """Every text; both of a pair."""
        return [text for row in self.rows for text in ([row] if isinstance(row, str) else row)]


def _check_predict(value: Any, name: str) -> PredictInputs:
    """One text or one pair; or a batch, which differs from a pair by its inner lists."""
    if type(value) is str:
        value = [value]
    if type(value) is not list:
        raise wrong_type(name, value, _PREDICT_KINDS)
    require_not_empty(value, name)
    if type(value[0]) is str:
        return PredictInputs(rows=(_row(value, name),), batch=False)
    for index, row in enumerate(value):
        if type(row) is not list:
            raise wrong_type(f"{name}[{index}]", row, f"as {name} must be {_PREDICT_KINDS}")
    return PredictInputs(rows=tuple(_row(row, f"{name}[{index}]") for index, row in enumerate(value)), batch=True)


def _row(texts: list[Any], place: str) -> str | Pair:
    require_texts(texts, place)
    if len(texts) not in (1, 2):
        raise InvalidField(f"{place}: must be {_PREDICT_KINDS}; got {len(texts)} texts in one list")
    if not all(texts):
        raise BadInput(f"{place}: must not be empty; leave empty texts out of the request", param=param_of(place))
    return (texts[0], texts[1]) if len(texts) == 2 else texts[0]


_TEXT_LIST = {"type": "array", "minItems": 1, "maxItems": 2, "items": TEXT}


class PredictRequest(TruncatingRequest):
    """The request of text-embeddings-inference's ``/predict``."""

    inputs: Annotated[
        Any,
        reads(_check_predict),
        WithJsonSchema(
            {
                "oneOf": [
                    {**TEXT, "title": "a text"},
                    {**_TEXT_LIST, "title": "a text, or a pair of texts"},
                    {**many(_TEXT_LIST), "title": "a batch of texts and pairs"},
                ]
            }
        ),
    ] = Field(description="What to classify.")
    raw_scores: bool | None = Field(False, description="Logits instead of probabilities.")


class RankTextsRequest(TruncatingRequest):
    """The requests of text-embeddings-inference's ``/rerank`` and of infinity's, told by what they call the texts."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [only("texts", "documents"), only("documents", "texts")]})

    query: Sentence = Field(description="What the texts are to say something about.")
    texts: FilledTexts | None = Field(None, description="What is ranked, of text-embeddings-inference's clients.")
    documents: FilledTexts | None = Field(None, description="What is ranked, of infinity's clients.")
    raw_scores: bool | None = Field(False, description="The model's own scores instead of 0 to 1.")
    return_text: bool | None = Field(False, description="Whether results carry their texts, beside texts.")
    return_documents: bool | None = Field(False, description="Whether results carry their texts, beside documents.")
    top_n: Count | None = Field(None, description="How many results to answer with; beside documents.")
    model: InfinityModel = Field(None, description="A name that GET /models lists; beside documents.")

    @model_validator(mode="after")
    def _one_kind(self) -> RankTextsRequest:
        if (self.texts is None) == (self.documents is None):
            raise InvalidField("texts: send either texts (text-embeddings-inference) or documents (infinity)")
        return self

    def contents(self) -> list[str]:
        """What is ranked."""
        return cast("list[str]", self.texts if self.documents is None else self.documents)


class TokenAnswer(TypedDict):
    """One token of a text."""

    id: int
    text: str
    special: bool
    start: Annotated[
        int | None,
        Field(description="First code point in the caller's text; null for special tokens and those of a prompt."),
    ]
    stop: int | None


async def tei_embeddings(embedded: EmbeddingResult) -> JsonBytes:
    """A bare list of vectors, as text-embeddings-inference answers ``/embed``."""
    return JsonBytes(
        b"[" + b",".join(await encoded_vectors(embedded, "float")) + b"]",
        headers=tei_headers(sum(embedded.tokens), truncated_indices(embedded.truncated)),
    )


def tei_headers(tokens: int, truncated: Sequence[int]) -> dict[str, str]:
    """Headers for what a bare list cannot carry: the tokens read, and the indices of truncated inputs."""
    return {"X-Compute-Tokens": str(tokens), **index_headers("X-Truncated", truncated)}


TEI_HEADERS = ("X-Compute-Tokens", "X-Truncated", "X-Truncated-Count")
_PIECE_VECTORS = 128  # of width 384 about 2 ms of a thread, and 500 KB
_PIECE_TOKENS = 4_000  # about 10 ms of a thread, and 300 KB


def token_answer(texts: Sequence[TokenizedText], limit_s: float) -> Response:
    """The tokens of each text, as text-embeddings-inference answers ``/tokenize``; many of them as they are sent.

    Args:
        limit_s: for sending them.
    """
    if sum(map(len, texts)) <= _PIECE_TOKENS:
        return json_response([list(chain.from_iterable(text.pieces(_PIECE_TOKENS))) for text in texts])
    return _StreamedJson(_token_pieces(texts), limit_s)


class _StreamedJson(Response):
    """Writes an answer piece by piece on a thread while the client reads: a million tokens never exist at once."""

    media_type = "application/json"

    def __init__(self, pieces: Iterator[bytes], limit_s: float, headers: dict[str, str] | None = None) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._pieces, self._limit_s = pieces, limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send the pieces until the last or until the client has gone."""
        try:
            await run_until_disconnect(self._send(send), receive, self._limit_s)
        except CallerGone:
            return  # nobody is left to tell

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        while (piece := await asyncio.to_thread(next, self._pieces, None)) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _vector_pieces(texts: Sequence[Vectors]) -> Iterator[bytes]:
    """The JSON of token vectors: (tokens, width) a text."""
    for index, vectors in enumerate(texts):
        for first in range(0, len(vectors), _PIECE_VECTORS):
            opening = b"," if first else (b",[" if index else b"[[")
            yield opening + b",".join(map(float_array, vectors[first : first + _PIECE_VECTORS]))
        yield b"]"
    yield b"]"


def _token_pieces(texts: Sequence[TokenizedText]) -> Iterator[bytes]:
    """The tokens' JSON: lists of tokens in a list."""
    for index, text in enumerate(texts):
        opening = b",[" if index else b"[["
        for pieces in text.pieces(_PIECE_TOKENS):
            if pieces:
                yield opening + orjson.dumps(pieces)[1:-1]
                opening = b","
        yield b"]" if opening == b"," else opening + b"]"
    yield b"]"


AnswerId = Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
Created = Annotated[int, Field(description="Unix seconds.")]


class InfinityRank(TypedDict):
    """One document and how much it says about the query."""

    relevance_score: Annotated[float, Field(description="0 to 1, unless raw_scores.")]
    index: Annotated[int, Field(description="Place of the document in the request.")]
    document: NotRequired[Annotated[str | None, Field(default=None, description="Absent if not wanted.")]]


class InfinityRanks(TypedDict):
    """`POST /rerank` with `documents`."""

    object: Literal["rerank"]
    results: Annotated[list[InfinityRank], Field(description="Best first.")]
    model: str
    usage: Usage
    scores: NotRequired[
        Annotated[
            list[dict[str, Any]] | None,
            Field(default=None, description="Weaviate's: of every document, where no model was named."),
        ]
    ]
    id: AnswerId
    created: Created


def now_s() -> int:
    return int(time.time())  # noqa: TID251 - a date, as infinity's answers carry it


def infinity_ranks(
    reranked: RerankResult, texts: Sequence[str] | None, request_id: str, *, raw_scores: bool
) -> InfinityRanks:
    """The ranked documents, best first, each with its text unless ``texts`` is None."""
    results: list[InfinityRank] = [
        {"relevance_score": ranked.raw_score if raw_scores else ranked.score, "index": ranked.index}
        for ranked in reranked.results
    ]
    if texts is not None:
        for result in results:
            result["document"] = texts[result["index"]]
    return {
        "object": "rerank",
        "results": results,
        "model": reranked.model,
        "usage": usage(reranked.tokens),
        "id": request_id,
        "created": now_s(),
    }


def tei_predictions(predictions: Sequence[Prediction]) -> list[PredictionAnswer]:
    """Classes with their scores, in their order, as text-embeddings-inference answers ``/predict``."""
    return [{"score": prediction.score, "label": prediction.label} for prediction in predictions]


class TextRank(TypedDict):
    """text-embeddings-inference's ``Rank``."""

    index: int
    score: float
    text: NotRequired[Annotated[str | None, Field(default=None, description="Absent unless `return_text` is true.")]]


def tei_ranks(scores: Iterable[tuple[int, float]], texts: Sequence[str] | None) -> list[TextRank]:
    """Indices with their scores, in their order, each with its text unless ``texts`` is None."""
    if texts is None:
        return [{"index": index, "score": score} for index, score in scores]
    return [{"index": index, "score": score, "text": texts[index]} for index, score in scores]


class Info(TypedDict):
    """text-embeddings-inference's description of a server."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, Any]
    max_concurrent_requests: Annotated[int, Field(description="LIMIT_CONNECTIONS.")]
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    payload_limit: int
    auto_truncate: bool
    tokenization_workers: int
    version: str


class InfoQuery(BaseModel):
    """The query of `GET /info`."""

    model_type: Literal["embedding", "classifier", "reranker"] = Field(
        "embedding", description="Which of the models: the one behind /embed, /predict or /rerank."
    )


def tei_info(request: Request, model: LoadedModel, model_type: Mapping[str, object]) -> Info:
    """A model and the limits of requests."""
    limits = limits_of(request)
    return {
        "model_id": model.name,
        "model_sha": model.spec.revision,
        "model_dtype": model.dtype,
        "served_model_name": model.name,
        "model_type": dict(model_type),
        "max_concurrent_requests": limits.connections,
        "max_input_length": model.spec.max_tokens,
        "max_batch_tokens": model.engine.budget,
        "max_client_batch_size": limits.inputs,
        "payload_limit": limits.body_bytes,
        "auto_truncate": True,
        "tokenization_workers": services_of(request).text_work.threads,
        "version": request.app.version,
    }


def _labels(labels: Sequence[str]) -> dict[str, object]:
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


_VECTORS = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
_SCORES = {"type": "array", "items": {"type": "number"}}
_TOKENS: dict[str, Any] = {"type": "array", "items": {"type": "array", "items": TokenAnswer}}


async def create_vectors(request: Request) -> Response:
    """Vectors as a bare list, one for each input.

    `X-Compute-Tokens` counts the tokens; `X-Truncated` lists the inputs that were cut, where any was, as
    ranges (`0-4,7`), and `X-Truncated-Count` counts them.
    """
    body = await read_json(request, EmbedRequest)
    return await tei_embeddings(await embed(request, body.inputs, body.options(), param="inputs"))


async def create_token_vectors(request: Request) -> Response:
    """The vectors of each input's tokens, the model's own marks included: not pooled, not normalised.

    Headers as for `/embed`. At most 32,768 tokens a request.
    """
    body = await read_json(request, EmbedAllRequest)
    characters = check_limits(body.inputs, limits_of(request), "inputs")
    call = partial(_embeddings_of(request).token_vectors, body.inputs, body.options())
    embedded = await call_service_timed(request, call, characters=characters)
    headers = tei_headers(sum(embedded.tokens), truncated_indices(embedded.truncated))
    return _StreamedJson(_vector_pieces(embedded.rows), time_limit_s(request, limits_of(request)), headers)


async def compare(request: Request) -> Response:
    """Cosine similarity of one sentence with each of the others."""
    body = await read_json(request, SimilarityRequest)
    source, sentences = body.inputs.source_sentence, body.inputs.sentences
    check_count(sentences, limits_of(request), "inputs.sentences")
    characters = check_chars([source, *sentences], limits_of(request), "inputs.sentences")
    options = body.parameters.options() if body.parameters else EmbedOptions(normalize=True)
    call = partial(_embeddings_of(request).similarity, source, sentences, options)
    scores, embedded = await call_service(request, call, characters=characters)
    context, tokens = context_of(request), sum(embedded.tokens)
    context.timing = embedded.timing
    context.meter.charge("tokens", tokens)
    return json_response(scores, headers=tei_headers(tokens, truncated_indices(embedded.truncated)))


async def predict(request: Request) -> Response:
    """Classes of a text, of a pair of texts, or of a batch of both, all with their scores, the best first.

    One text or one pair is answered with a list, a batch with a list of lists. A list of two texts is a pair: a batch
    of two texts is `[["a"], ["b"]]`. The classifier is CLASSIFIER_MODEL's, else the bundled one for document types,
    which reads single texts only. `POST /v1/classify` can be asked for others.
    """
    body = await read_json(request, PredictRequest)
    check_count(body.inputs.rows, limits_of(request), "inputs")
    characters = check_chars(body.inputs.texts, limits_of(request), "inputs")
    call = partial(
        _classification_of(request).predict,
        body.inputs.rows,
        raw_scores=bool(body.raw_scores),
        truncate=body.truncation(),
    )
    classified = await call_service_timed(request, call, characters=characters)

    def answer() -> list[Any]:
        rows = [tei_predictions(row.predictions) for row in classified.rows]
        return rows if body.inputs.batch else rows[0]

    truncated = truncated_indices([row.truncated for row in classified.rows])
    headers = tei_headers(classified.tokens, truncated)
    return await written_json(answer, classified.prediction_count, headers=headers)


async def rank(request: Request) -> Response:
    """Texts in the order of what they say about the query, the best first.

    With `texts` it is text-embeddings-inference's route and answers a bare list, with `documents` infinity's and
    answers an object. Scores are 0 to 1 unless `raw_scores`.
    """
    body = await read_json(request, RankTextsRequest)
    characters = check_limits([body.query], limits_of(request), "query")
    if body.documents is not None:
        return await _rank_documents(request, body, characters)
    return await _rank_texts(request, body, body.query, body.contents(), characters)


async def _rank_texts(
    request: Request, body: RankTextsRequest | InvokeRequest, query: str, texts: Sequence[str], characters: int
) -> Response:
    """The same for text-embeddings-inference's clients."""
    characters += check_limits(list(texts), limits_of(request), "texts")
    call = partial(_reranking_of(request).rerank, query, texts, truncate=body.truncation())
    reranked = await call_service_timed(request, call, characters=characters)
    scores = [(ranked.index, ranked.raw_score if body.raw_scores else ranked.score) for ranked in reranked.results]
    ranks = partial(tei_ranks, scores, texts if body.return_text else None)
    items = characters // CHARS_PER_ITEM if body.return_text else len(scores)
    return await written_json(ranks, items, headers=tei_headers(reranked.tokens, reranked.truncated))


async def _rank_documents(request: Request, body: RankTextsRequest, characters: int) -> Response:
    """The same for infinity's clients."""
    documents = body.contents()
    characters += check_limits(documents, limits_of(request), "documents")
    truncate = body.truncation()
    call = partial(
        _reranking_of(request).rerank, body.query, documents, top_n=body.top_n, model=body.model, truncate=truncate
    )
    reranked = await call_service_timed(request, call, characters=characters)
    texts = documents if body.return_documents else None
    request_id, raw_scores = context_of(request).request_id, bool(body.raw_scores)
    of_weaviate = body.model is None and body.top_n is None

    def answer() -> InfinityRanks:
        ranks = infinity_ranks(reranked, texts, request_id, raw_scores=raw_scores)
        if of_weaviate:
            scores = {ranked.index: ranked.score for ranked in reranked.results}
            ranks["scores"] = [
                {"document": text, "score": scores[index]} for index, text in enumerate(documents) if index in scores
            ]
        return ranks

    items = characters // CHARS_PER_ITEM if texts or of_weaviate else len(reranked.results)
    return await written_json(answer, items, headers=tei_headers(reranked.tokens, reranked.truncated))


async def tokenize(request: Request) -> Response:
    """The model's tokens of each text; `start` and `stop` count Unicode code points of the caller's own text."""
    body = await read_json(request, TokenizeRequest)
    characters = check_limits(body.inputs, limits_of(request), "inputs")
    call = partial(
        _embeddings_of(request).tokenize,
        body.inputs,
        add_special_tokens=body.add_special_tokens,
        prompt_name=body.prompt_name,
        max_tokens=limits_of(request).tokenize_tokens,
    )
    return token_answer(
        await call_service(request, call, characters=characters), time_limit_s(request, limits_of(request))
    )


class DecodeRequest(WireRequest):
    """The request of text-embeddings-inference's ``/decode``."""

    ids: TokenIdInputs = Field(description="Token ids of the model, of one text or of several.")
    skip_special_tokens: bool | None = Field(True, description="Leave the model's own marks out.")


async def decode(request: Request) -> Response:
    """The text behind each list of token ids."""
    body = await read_json(request, DecodeRequest)
    return json_response(
        await decoded(request, body.ids, "ids", skip_special_tokens=body.skip_special_tokens is not False)
    )


async def decoded(request: Request, ids: Any, param: str, *, skip_special_tokens: bool = True) -> list[str]:
    """The text of each list of token ids. Raises: InvalidField for texts, TokenIdsOutOfRange, TooLarge."""
    if type(ids[0]) is str:
        raise wrong_type(f"{param}[0]", ids[0], "a token id or a list of token ids")
    check_count(ids, limits_of(request), param)
    count, most = sum(map(len, ids)), limits_of(request).tokenize_tokens
    if count > most:
        raise TooLarge(param, count, most, "LIMIT_TOKENIZE_TOKENS", param=param)
    tokenizer = _catalog_of(request).embedding(None).tokenizer
    for one in ids:
        for outside in (max(one), min(one)):
            if not 0 <= outside < tokenizer.vocabulary_size:
                raise TokenIdsOutOfRange(outside, tokenizer.vocabulary_size, param=param)

    def work() -> list[str]:
        return [tokenizer.decode(np.array(one), skip_special_tokens=skip_special_tokens) for one in ids]

    return await asyncio.to_thread(work)


class InvokeRequest(EmbedRequest):
    """What clients send to the bare address of a server: texts to embed, or a query with texts to rank."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [only("inputs", "query"), only("query", "inputs")]})

    inputs: Inputs = Field(None, description="What to embed, as for /embed.")
    query: Sentence | None = Field(None, description="With texts: as for /rerank.")
    texts: FilledTexts | None = Field(None, description="Beside query: what is ranked.")
    raw_scores: bool | None = Field(False, description="Beside query: the model's own scores instead of 0 to 1.")
    return_text: bool | None = Field(False, description="Beside query: whether results carry their texts.")

    @model_validator(mode="after")
    def _one_kind(self) -> InvokeRequest:
        if "parameters" in (self.model_extra or ()):
            raise InvalidField(
                "parameters: are a task's of Hugging Face, and this address embeds or ranks; tasks are at "
                "/hf/token-classification, /hf/zero-shot-classification, /hf/question-answering, /hf/summarization "
                "and /predict"
            )
        if (self.inputs is None) == (self.query is None) or (self.query is None) != (self.texts is None):
            raise InvalidField("inputs: send inputs to embed, or query and texts to rank")
        return self


async def invoke(request: Request) -> Response:
    """`POST /embed`, or with `query` and `texts` `POST /rerank`, at the bare address of the service."""
    body = await read_json(request, InvokeRequest)
    if body.query is None or body.texts is None:
        return await tei_embeddings(await embed(request, body.inputs, body.options(), param="inputs"))
    characters = check_limits([body.query], limits_of(request), "query")
    return await _rank_texts(request, body, body.query, body.texts, characters)


async def info(request: Request) -> Response:
    """What is served, in text-embeddings-inference's words, whose server has one model of one type.

    Here are several: `model_type` asks for the one that classifies or the one that ranks, which without
    CLASSIFIER_MODEL and RERANKER_MODEL is the embedding model.
    """
    wanted, catalog = validate_query(InfoQuery, request).model_type, _catalog_of(request)
    embedding = catalog.embedding(None)
    if wanted == "embedding":
        return json_response(tei_info(request, embedding, {wanted: {"pooling": embedding.spec.pooling}}))
    model = catalog.of(wanted) or embedding
    labels = _labels(_default_labels(request, model) if wanted == "classifier" else ("LABEL_0",))
    return json_response(tei_info(request, model, {wanted: labels}))


def _default_labels(request: Request, model: LoadedModel) -> Sequence[str]:
    """The labels that `POST /predict` answers with: the model's, else those of the classifier that needs no name."""
    infos = sorted(_classification_of(request).classifiers(), key=lambda info: info.kind != "configured")
    unnamed = (info.labels for info in infos if info.kind == "configured" or info.name == DEFAULT_CLASSIFIER)
    return model.labels or next(unnamed, ())


_PREDICTIONS: dict[str, Any] = {"type": "array", "items": PredictionAnswer}
_RANKS: dict[str, Any] = {"type": "array", "items": TextRank}
_EMBED_EXAMPLES = {
    "one text": {"inputs": "What is Deep Learning?"},
    "several texts, never cut": {"inputs": ["first text", "segundo texto"], "truncate": False, "normalize": True},
}
_SIMILARITY_EXAMPLE = {
    "inputs": {"source_sentence": "What is Deep Learning?", "sentences": ["What is Machine Learning?", "Una receta"]}
}
ROUTES = (
    post(
        "/embed", create_vectors, tag="text-embeddings-inference", request=EmbedRequest, examples=_EMBED_EXAMPLES,
        schema=_VECTORS, example=[[0.0123, -0.0456, 0.0789]], headers=TEI_HEADERS,
    ),
    post(
        "/embed_all",
        create_token_vectors,
        tag="text-embeddings-inference",
        request=EmbedAllRequest,
        examples={"one text": {"inputs": "What is Deep Learning?"}},
        schema={"type": "array", "items": _VECTORS},
        example=[[[0.0123, -0.0456, 0.0789], [0.0456, 0.0123, -0.0789]]],
        headers=TEI_HEADERS,
    ),
    post(
        "/similarity", compare, tag="text-embeddings-inference", request=SimilarityRequest,
        examples={"one against two": _SIMILARITY_EXAMPLE}, schema=_SCORES, example=[0.731, 0.052],
        headers=TEI_HEADERS,
    ),
    post(
        "/predict",
        predict,
        tag="text-embeddings-inference",
        request=PredictRequest,
        examples={
            "one text": {"inputs": "Factura n.º 2024-017. Total a pagar: 1.284,50 €."},
            "a batch": {"inputs": [["Invoice 2024-017, due in 30 days"], ["Recibo de alquiler, enero"]]},
        },
        schema={"oneOf": [_PREDICTIONS, {"type": "array", "items": _PREDICTIONS}]},
        example=[{"score": 0.9734, "label": "invoice"}, {"score": 0.0181, "label": "receipt"}],
        headers=TEI_HEADERS,
    ),
    post(
        "/rerank",
        rank,
        tag="text-embeddings-inference",
        request=RankTextsRequest,
        examples={
            "two texts": {"query": "What is Deep Learning?", "texts": ["Una receta.", "Deep Learning is …"]},
            "as infinity's clients send it": {
                "query": "What is Deep Learning?",
                "documents": ["Una receta.", "Deep Learning is …"],
                "top_n": 1,
                "return_documents": True,
            },
        },
        schema={"oneOf": [_RANKS, InfinityRanks]},
        example=[{"index": 1, "score": 0.9871}, {"index": 0, "score": 0.0112}],
        headers=TEI_HEADERS,
    ),
    post(
        "/tokenize",
        tokenize,
        tag="text-embeddings-inference",
        request=TokenizeRequest,
        examples={"one text": {"inputs": "Deep Learning", "add_special_tokens": False}},
        schema=_TOKENS,
        example=[[{"id": 62723, "text": "Deep", "special": False, "start": 0, "stop": 4}]],
    ),
    post(
        "/decode", decode, tag="text-embeddings-inference", request=DecodeRequest,
        examples={"one text": {"ids": [62723, 9]}}, schema={"type": "array", "items": {"type": "string"}},
        example=["Deep Learning"],
    ),
    *(
        post(
            path,
            invoke,
            tag="text-embeddings-inference",
            request=InvokeRequest,
            examples={
                "to embed": {"inputs": ["What is Deep Learning?"]},
                "to rank": {"query": "What is Deep Learning?", "texts": ["Una receta.", "Deep Learning is …"]},
            },
            schema={"oneOf": [_VECTORS, _RANKS]},
            example=[[0.0123, -0.0456, 0.0789]],
            headers=TEI_HEADERS,
        )
        for path in ("/", "/invocations")
    ),
    get(
        "/info",
        info,
        tag="text-embeddings-inference",
        parameters=query_parameters(InfoQuery),
        errors=(422,),
        schema=Info,
        example={
            "model_id": "intfloat/multilingual-e5-small", "model_sha": "817557b1a417", "model_dtype": "int8",
            "served_model_name": "intfloat/multilingual-e5-small", "model_type": {"embedding": {"pooling": "mean"}},
            "max_concurrent_requests": 2000, "max_input_length": 512, "max_batch_tokens": 512,
            "max_client_batch_size": 2048, "payload_limit": 16777216, "auto_truncate": True,
            "tokenization_workers": 2, "version": "0.1.0",
        },
    ),
)  # fmt: skip
