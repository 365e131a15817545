"""Writing answers: bytes straight from arrays, never by way of lists or schemas."""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.responses import Response

from backend.services.embedding_options import Embedded

Vectors = NDArray[np.float32]

_JSON_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_SLICE_FLOATS = 65_536  # about 1.5 ms of one core; between slices the loop serves others


class JsonBytes(Response):
    """JSON that is already written."""

    media_type = "application/json"

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Most answers have these two headers only; the general way takes 3 us."""
        if headers:
            super().init_headers(headers)
        else:
            length = str(len(self.body)).encode("ascii")
            self.raw_headers = [(b"content-length", length), (b"content-type", b"application/json")]


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> JsonBytes:
    """Anything of plain values as JSON; what JSON does not know is written as text."""
    return JsonBytes(orjson.dumps(content, default=str, option=_JSON_OPTIONS), status, headers)


def written(row: Vectors, form: str) -> orjson.Fragment:
    """A vector (width) in ``form`` (of FORMS), for a place within an answer."""
    return orjson.Fragment(FORMS[form](row))


def as_json(row: Vectors) -> bytes:
    """A vector (width) as a JSON array of its shortest exact decimals."""
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)


def as_base64(row: Vectors) -> bytes:
    """A vector (width) as a JSON string of the base64 of its little-endian float32 bytes, OpenAI's format."""
    return b'"' + binascii.b2a_base64(row.astype("<f4", copy=False).data, newline=False) + b'"'


FORMS: Mapping[str, Callable[[Vectors], bytes]] = {"float": as_json, "base64": as_base64}


async def openai_embeddings(embedded: Embedded, form: str) -> JsonBytes:
    """OpenAI's embeddings list, each vector in ``form`` (of FORMS); ``truncated`` lists the inputs that were cut."""
    rows = await _rows(embedded, form)
    tokens = sum(embedded.tokens)
    data = b'},{"object":"embedding","index":%d,"embedding":'
    parts = [b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":', rows[0]]
    for index in range(1, len(rows)):
        parts += (data % index, rows[index])
    parts.append(
        b'}],"model":%b,"usage":{"prompt_tokens":%d,"total_tokens":%d}'
        % (orjson.dumps(embedded.model.name), tokens, tokens)
    )
    if any(embedded.truncated):
        parts.append(b',"truncated":' + orjson.dumps(cut_inputs(embedded.truncated)))
    parts.append(b"}")
    return JsonBytes(b"".join(parts))


async def tei_embeddings(embedded: Embedded) -> JsonBytes:
    """A bare list of vectors, as text-embeddings-inference answers ``/embed``."""
    return JsonBytes(
        b"[" + b",".join(await _rows(embedded, "float")) + b"]",
        headers=tei_headers(sum(embedded.tokens), cut_inputs(embedded.truncated)),
    )


def tei_headers(tokens: int, cut: Sequence[int]) -> dict[str, str]:
    """What a bare list cannot carry: the tokens read, and the places of the inputs that were cut."""
    headers = {"X-Compute-Tokens": str(tokens)}
    if cut:
        headers["X-Truncated"] = ",".join(map(str, cut))
    return headers


def cut_inputs(truncated: Sequence[bool]) -> list[int]:
    """The places of the inputs that were cut."""
    return [index for index, cut in enumerate(truncated) if cut]


async def _rows(embedded: Embedded, form: str) -> list[bytes]:
    """Each vector in ``form``; a large answer is written in slices, for writing holds the loop."""
    write, count = FORMS[form], len(embedded.rows)
    step = max(1, _SLICE_FLOATS // max(1, len(embedded.rows[0].vector)))
    rows = [embedded.written(index, form, write) for index in range(min(step, count))]
    for start in range(step, count, step):
        await asyncio.sleep(0)
        rows += [embedded.written(index, form, write) for index in range(start, min(start + step, count))]
    return rows
