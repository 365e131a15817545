"""Answers with vectors or tokens: OpenAI's and text-embeddings-inference's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Literal, NotRequired

import orjson
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from backend.api.responses.index_headers import index_headers
from backend.api.responses.json_bytes import VECTOR_ENCODINGS, JsonBytes, json_response
from backend.api.service_call import run_until_disconnect
from backend.errors import CallerGone
from backend.models.tokenizer import TokenizedText
from backend.text.embeddings import EmbeddingResult

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


def truncated_indices(flags: Sequence[bool]) -> list[int]:
    """The indices of the inputs that were truncated."""
    return [index for index, truncated in enumerate(flags) if truncated]


async def encoded_vectors(embedded: EmbeddingResult, encoding: str) -> list[bytes]:
    """Each vector in ``encoding``. Large answers are written in slices, because writing blocks the event loop."""
    encode, count = VECTOR_ENCODINGS[encoding], len(embedded.rows)
    step = max(1, _SLICE_FLOATS // max(1, len(embedded.rows[0].vector)))
    vectors = [embedded.written(index, encoding, encode) for index in range(min(step, count))]
    for start in range(step, count, step):
        await asyncio.sleep(0)
        vectors += [embedded.written(index, encoding, encode) for index in range(start, min(start + step, count))]
    return vectors


_PIECE_TOKENS = 4_000  # about 10 ms of a thread, and 300 KB


def token_answer(texts: Sequence[TokenizedText], limit_s: float) -> Response:
    """The tokens of each text, as text-embeddings-inference answers ``/tokenize``; many of them as they are sent.

    Args:
        limit_s: for sending them.
    """
    if sum(map(len, texts)) <= _PIECE_TOKENS:
        return json_response([list(chain.from_iterable(text.pieces(_PIECE_TOKENS))) for text in texts])
    return _StreamedTokens(texts, limit_s)


class _StreamedTokens(Response):
    """Writes tokens piece by piece on a thread while the client reads: a million of them never exist at once."""

    media_type = "application/json"

    def __init__(self, texts: Sequence[TokenizedText], limit_s: float) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._pieces, self._limit_s = _token_pieces(texts), limit_s

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


SCHEMAS: tuple[type, ...] = (EmbeddingsAnswer, TokenAnswer)
