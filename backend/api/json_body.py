"""Reads a request's JSON body: within the size limit, of the right media type, straight into its schema."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaValidator, from_json
from starlette.requests import ClientDisconnect, Request

from backend.api.dependencies import context_of, limits_of
from backend.api.request_fields import WireRequest, meant_by_missing
from backend.api.service_call import read_within_limit
from backend.errors import BadInput, CallerGone, InvalidField, TooLarge, WrongMediaType
from backend.lanes.loop_turns import loop_turn

Schema = TypeVar("Schema", bound=BaseModel)
Result = TypeVar("Result")

_JSON = re.compile(rb"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
_UTF8 = (b"", b"utf-8", b"utf8")
# Where a browser sends a request it has one of these. Without them and without a Content-Type it is a program's JSON:
# Weaviate's clients and litellm's for Voyage leave the header out.
_OF_BROWSERS = (b"origin", b"sec-fetch-site", b"sec-fetch-mode")
_QUOTES = 'Names and texts have double quotes; around the whole a shell wants single ones, cmd.exe "{\\"input\\": …}"'
_ADVICE = {  # by media type
    b"application/x-www-form-urlencoded": "; curl sends it as -H 'Content-Type: application/json'",  # of -d by itself
    b"multipart/form-data": "; files go to POST /v1/documents",
}
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_EMPTY = ("too_short", "string_too_short")
_SHOWN_CHARS = 60  # of a faulty value in a message
# The parser makes every value at once, on the event loop, and holds Python's lock: no thread would help. A million
# numbers take it 0.15 s and more than LIMIT_QUEUE_TOKENS admits; 50,000 lists take 0.08 s; 5 million took 30 s.
_MAX_VALUES = 1_000_000
_MOST = (
    ("values", _MAX_VALUES),
    ("lists and objects", 50_000),
    ("keys of objects", 100_000),  # 900,000 of them took 1.4 s
)
_UNCOUNTED_BYTES = 100_000  # a shorter body cannot hold so many
# A longer body is joined, counted and parsed on a thread: of 100 MB each of these takes 50 to 150 ms. The event loop
# runs while Python code checks a million values.
_THREAD_BYTES = 2**19
_LARGE_BODIES = ThreadPoolExecutor(1, "json")  # one after the other: the parser holds the interpreter
_COUNTED_BYTES = 2**20  # at once
_SEQUENCES = ("list", "tuple", "set", "frozenset")  # of pydantic's core schemas


async def read_json(request: Request, schema: type[Schema], *, limit_bytes: int | None = None) -> Schema:
    """The request's body as ``schema``, parsed from its bytes in one pass. Raises: as `receive_json`, `parse_json`."""
    return await parse_json(await receive_json(request, limit_bytes=limit_bytes), schema)


async def receive_json(request: Request, *, limit_bytes: int | None = None) -> bytes:
    """The bytes of a body that says it is JSON.

    Args:
        limit_bytes: instead of LIMIT_BODY_BYTES, of a body that holds a file.

    Raises: WrongMediaType (415), TooLarge (413), CallerGone when the client disconnected while sending,
    DeadlineExceeded when it took too long to send, QuotaExceeded for a caller in debt of tokens, before anything is
    read.
    """
    context = context_of(request)
    context.meter.require("tokens")
    _require_json(context.headers)
    return await read_within_limit(request, read_body(request, limit_bytes or limits_of(request).body_bytes))


async def parse_json(body: bytes, schema: type[Schema]) -> Schema:
    """Bytes of JSON as ``schema``. Raises: TooLarge (413), BadInput (400) for what is not JSON, InvalidField (422)."""
    if len(body) > _UNCOUNTED_BYTES:
        await _require_few_values(body)
        await loop_turn()
    try:
        return cast("Schema", await _off_loop(len(body), partial(_validator(schema).validate_json, body)))
    except ValidationError as error:
        raise _bad_input(error, body, schema) from error


def is_json(request: Request) -> bool:
    """Whether a route that also takes files got JSON."""
    media_type = context_of(request).headers.get(b"content-type", b"").partition(b";")[0]
    return media_type.strip().lower().endswith(b"json")


def validate_fields(schema: type[Schema], fields: Mapping[str, Any]) -> Schema:
    """The fields of a form or a query as ``schema``.

    Raises: InvalidField (422), BadInput (400) for one that must not be empty.
    """
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise _bad_input(error) from error


def validate_query(schema: type[Schema], request: Request) -> Schema:
    """The query of an address as ``schema``. Raises: as `validate_fields`, and InvalidField for a name sent twice."""
    query = request.query_params
    for name in query:
        if name in schema.model_fields and len(query.getlist(name)) > 1:
            raise InvalidField(f"{name}: is {len(query.getlist(name))} times in the query; send it once", param=name)
    return validate_fields(schema, query)


def require_body_bytes(size_bytes: int, limit_bytes: int) -> None:
    """Raises: TooLarge (413) for a body over LIMIT_BODY_BYTES."""
    if size_bytes > limit_bytes:
        raise TooLarge(
            "body bytes", size_bytes, limit_bytes, "LIMIT_BODY_BYTES", advice="Send fewer inputs in one request."
        )


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Stops reading at the limit, whether or not the client sent a Content-Length.

    What a client sends after a refusal the server reads and drops, so that the client sees the answer.
    """
    _require_length_within(context_of(request).headers, limit_bytes)
    chunks: list[bytes] = []
    total_bytes = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise CallerGone("the client left before its body was whole") from ClientDisconnect()
        chunk: bytes = message.get("body", b"")
        total_bytes += len(chunk)
        require_body_bytes(total_bytes, limit_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else await _off_loop(total_bytes, partial(b"".join, chunks))


async def _require_few_values(body: bytes) -> None:
    """Raise TooLarge for JSON of so many values that parsing it would block every other request.

    Marks within texts count at first, as it is quick; only where they are many are texts told apart, on a thread.
    """
    counts = await _off_loop(len(body), partial(_count_marks, body))
    if any(count > most for count, (_, most) in zip(counts, _MOST, strict=True)):
        counts = await asyncio.get_running_loop().run_in_executor(_LARGE_BODIES, _count_values, body)
    for count, (what, most) in zip(counts, _MOST, strict=True):
        if count > most:
            raise TooLarge(f"{what} in the body", count, most, "fixed", advice="Send fewer inputs in one request.")


async def _off_loop(size_bytes: int, work: Callable[[], Result]) -> Result:
    if size_bytes <= _THREAD_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_LARGE_BODIES, work)


def _count_marks(body: bytes) -> tuple[int, int, int]:
    """Commas, opened lists and objects, and colons, in texts too. Other threads run in between."""
    starts = range(0, len(body), _COUNTED_BYTES)
    commas, lists, objects, keys = (
        sum(body.count(mark, start, start + _COUNTED_BYTES) for start in starts) for mark in (b",", b"[", b"{", b":")
    )
    return commas, lists + objects, keys


def _count_values(body: bytes) -> tuple[int, int, int]:
    """How many values of a JSON body follow a comma, how many of all are lists or objects, and how many keys it has."""
    texts = (body.count(b'"') - body.count(b'\\"')) // 2
    if texts > _MAX_VALUES:
        return texts, 0, 0
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    between_texts: list[bytes] = []
    is_text = False
    for start in range(0, len(unescaped), _COUNTED_BYTES):
        pieces = unescaped[start : start + _COUNTED_BYTES].split(b'"')
        between_texts += pieces[is_text::2]
        is_text ^= not len(pieces) % 2
    return _count_marks(b'"'.join(between_texts))


@cache
def _validator(schema: type[BaseModel]) -> SchemaValidator:
    """The schema's validator, which stops at the first wrong item of a list: of a million pydantic tells each."""
    return SchemaValidator(_failing_fast(schema.__pydantic_core_schema__))


def _failing_fast(part: Any) -> Any:
    if isinstance(part, list | tuple):
        return type(part)(map(_failing_fast, part))
    if not isinstance(part, dict):
        return part
    copy = {name: _failing_fast(value) for name, value in part.items()}
    return copy | {"fail_fast": True} if copy.get("type") in _SEQUENCES else copy


def _require_length_within(headers: dict[bytes, bytes], limit_bytes: int) -> None:
    length = headers.get(b"content-length", b"")
    if length.isdigit():
        require_body_bytes(int(length[:20]), limit_bytes)


def _require_json(headers: dict[bytes, bytes]) -> None:
    content_type = headers.get(b"content-type", b"")
    if content_type != b"application/json" and (content_type or any(name in headers for name in _OF_BROWSERS)):
        media_type, _, parameters = content_type.partition(b";")
        charset = parameters.partition(b"charset=")[2].strip(b' "').lower()
        if not _JSON.fullmatch(media_type.strip()) or charset not in _UTF8:
            got = content_type.decode("latin-1")[:_SHOWN_CHARS] or "no Content-Type"
            advice = _ADVICE.get(media_type, "")
            raise WrongMediaType(f"Content-Type: this route reads application/json in UTF-8, got {got}{advice}")
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding.lower() != b"identity":
        got = encoding.decode("latin-1")[:_SHOWN_CHARS]
        raise WrongMediaType(f"Content-Encoding: bodies are read uncompressed, got {got}")


def _bad_input(error: ValidationError, body: bytes = b"", schema: type[BaseModel] = BaseModel) -> BadInput:
    """The first error that pydantic found, as one of ours: 400 for what is not JSON, 422 for a bad request."""
    fault: Any = error.errors(include_url=False)[0]
    if fault["type"] == "json_invalid":
        advice = (
            ". The body holds \\ud800-\\udfff escapes: half a pair alone is no character"
            if "hex escape" in fault["msg"] and _SURROGATE_ESCAPE.search(body)
            else ""
        )
        if body[:2].startswith((b"'", b"{'")):
            advice = f". {_QUOTES}"
        return BadInput(f"the body is not valid JSON: {fault['ctx']['error']}{advice}")
    location = ".".join(str(part) for part in fault["loc"])
    if not location:
        return InvalidField("the body must be a JSON object")
    if fault["type"] in _EMPTY:  # as request_fields.py answers empty inputs
        return BadInput(f"{location}: must not be empty", param=location)
    got = _meant(location, body, schema) if fault["type"] == "missing" else f", got {_shortened(fault['input'])}"
    return InvalidField(f"{location}: {fault['msg'][:1].lower()}{fault['msg'][1:]}{got}", param=location)


def _meant(missing: str, body: bytes, schema: type[BaseModel]) -> str:
    """What of the body was likely meant by a field that is missing; empty where nothing was, or the body is long."""
    if not issubclass(schema, WireRequest) or not body or len(body) > _UNCOUNTED_BYTES:
        return ""
    sent = meant_by_missing(missing, from_json(body), schema.known_fields())
    return "" if sent is None else f"; '{sent[:_SHOWN_CHARS]}' is no field of this route, did you mean '{missing}'?"


def _shortened(value: Any) -> str:
    text = repr(value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
