"""JSON in and out: a request's body as its schema, and answers as bytes.

A body is read within the size limit, of the right media type, straight into its schema. Answers are written in pieces
where they are large, with vectors in the encoding that was asked for, and with headers that list numbers.
"""

from __future__ import annotations

import asyncio
import binascii
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import islice
from typing import Any, Literal, NotRequired, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.api.request_context import context_of, limits_of, read_within_limit
from backend.api.request_fields import WireRequest, meant_by_missing
from backend.errors import BadInput, CallerGone, InvalidField, TooLarge, WrongMediaType
from backend.files.page_ranges import written_ranges
from backend.lanes.loop_turns import loop_turn
from backend.models.encoder import Vectors, normalized

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

CHARS_PER_ITEM = 100  # of an answer: a text of so many characters counts as one of the objects of ``written_json``
INLINE_ITEMS = 2_000  # objects of an answer that are written on the event loop: about two milliseconds
PIECE_ITEMS = 1_000  # written without a pause, during which no other thread runs
_PIECE_BYTES = 256 * 1024  # of an answer that are given to the transport at once
_INT8_LARGEST, _INT8_OFFSET = 127, 128
# What 127 stands for, in standard deviations of a unit vector's numbers. None of 396 texts of STS-B had a number beyond
# 4.2, with multilingual-e5-small or all-MiniLM-L6-v2; cosines are off by .0005 on average.
_INT8_REACH = 5.0
_JSON_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
# orjson writes no integer beyond 64 bits, and null for what is not finite.
_CALLERS_JSON: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))
_NOT_FINITE = (b"NaN", b"Infinity")  # as the adapter writes them; texts may hold the words too
_LIST_CHARS = 512  # nginx takes 4 KB of an answer's headers, all of them together; balancers less
_REST = "..."


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


def answer_of(schema: type[Result], record: object, **others: Any) -> Result:
    """An answer with the names of its schema, in their order: of ``others``, a literal's only value, or of ``record``.

    What is not required is there only where ``others`` have it.
    """
    answer = {}
    for name, is_required, constant in _names_of(schema):  # type: ignore[arg-type]  # classes are hashable
        if name in others:
            answer[name] = others[name]
        elif is_required:
            answer[name] = getattr(record, name) if constant is None else constant
    return cast("Result", answer)


@cache
def _names_of(schema: type) -> tuple[tuple[str, bool, str | None], ...]:
    """Each name, whether it is required, and the only value that it can have, where that is so."""
    hints = get_type_hints(schema, include_extras=True)
    values = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    constants = {name: texts[0] for name, texts in values.items() if len(texts) == 1}
    return tuple((name, get_origin(hint) is not NotRequired, constants.get(name)) for name, hint in hints.items())


class JsonBytes(Response):
    """JSON that is already serialized."""

    media_type = "application/json"

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Set the two headers that most answers have; Starlette's general way takes 3 us."""
        if headers:
            super().init_headers(headers)
        else:
            length = str(len(self.body)).encode("ascii")
            self.raw_headers = [(b"content-length", length), (b"content-type", b"application/json")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a large one piece by piece, so that what a slow client has read is let go."""
        if len(self.body) <= _PIECE_BYTES:
            await super().__call__(scope, receive, send)
            return
        pieces = [bytes(self.body[start : start + _PIECE_BYTES]) for start in range(0, len(self.body), _PIECE_BYTES)]
        self.body = b""
        await _send_pieces(pieces, self, send)


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> JsonBytes:
    """Plain values as JSON; values that JSON does not know are written as text."""
    return JsonBytes(_dumps(content), status, headers)


class JsonPieces(Response):
    """JSON in pieces that are never put together: an answer of megabytes would then exist twice."""

    media_type = "application/json"

    def __init__(self, pieces: list[bytes], headers: Mapping[str, str] | None = None) -> None:
        """``pieces``: of some size, as `joined_pieces` makes them; they are let go as they are sent."""
        super().__init__(headers={**(headers or {}), "Content-Length": str(sum(map(len, pieces)))})
        self.pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send one piece after the other, no faster than the client reads."""
        await _send_pieces(self.pieces, self, send)


async def _send_pieces(pieces: list[bytes], response: Response, send: Send) -> None:
    """Send ``pieces``, which are let go one by one: an answer that nobody reads costs what is still to be sent."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    pieces.reverse()
    while pieces:
        piece = pieces.pop()
        await send({"type": "http.response.body", "body": piece, "more_body": bool(pieces)})


async def written_json(make: Callable[[], Any], items: int, headers: Mapping[str, str] | None = None) -> Response:
    """The answer of ``make`` as JSON; a large one is made and written on a thread, piece by piece.

    Args:
        items: objects that the answer holds, about.
    """
    if items <= INLINE_ITEMS:
        return json_response(make(), headers=headers)
    return JsonPieces(await asyncio.to_thread(lambda: joined_pieces(json_pieces(make()))), headers)


class WrittenJson:
    """JSON that somebody else writes, in pieces, as a value within content for `json_pieces`."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = pieces


def joined_pieces(pieces: Iterable[bytes]) -> list[bytes]:
    """The same bytes in few pieces, of at least ``_PIECE_BYTES`` but for the last."""
    joined, part, size = list[bytes](), list[bytes](), 0
    for piece in pieces:
        part.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            joined.append(b"".join(part))
            part, size = [], 0
    return [*joined, b"".join(part)] if part or not joined else joined


def json_pieces(content: Any) -> Iterator[bytes]:
    """``content`` as JSON in pieces: a list in it that is longer than ``PIECE_ITEMS`` is written part by part.

    An iterator is a list whose items are made as they are written: a million words are no objects at once.
    """
    if isinstance(content, WrittenJson):
        yield from content.pieces
    elif isinstance(content, dict) and _has_long_list(content):
        for index, (name, value) in enumerate(content.items()):
            yield (b"," if index else b"{") + _dumps(str(name)) + b":"
            yield from json_pieces(value)
        yield b"}"
    elif isinstance(content, list | Iterator) and _has_long_list(content):
        yield from _list_pieces(iter(content))
    else:
        yield _dumps(content)


def _list_pieces(items: Iterator[Any]) -> Iterator[bytes]:
    yield b"["
    for number, part in enumerate(iter(lambda: list(islice(items, PIECE_ITEMS)), [])):
        if number:
            yield b","
        if _has_long_list(part):
            for index, value in enumerate(part):
                yield from json_pieces(value) if not index else _after_comma(value)
        else:
            yield _dumps(part)[1:-1]
    yield b"]"


def _after_comma(value: Any) -> Iterator[bytes]:
    yield b","
    yield from json_pieces(value)


def _has_long_list(content: Any) -> bool:
    if isinstance(content, list):
        return len(content) > PIECE_ITEMS or any(map(_has_long_list, content))
    if isinstance(content, dict):
        return any(map(_has_long_list, content.values()))
    return isinstance(content, WrittenJson | Iterator)


def _dumps(content: Any) -> bytes:
    return orjson.dumps(content, default=str, option=_JSON_OPTIONS)


def echoed_json(value: Any, place: str) -> Any:
    """A value from a caller's JSON as a fragment for ``json_response``, with integers of any size.

    Args:
        place: of the value in the request, such as "documents[3]", for messages.

    Raises: InvalidField for a number that JSON cannot say: NaN, infinite, or so large that it was read as infinite.
    """
    written = _CALLERS_JSON.dump_json(value)
    if any(word in written for word in _NOT_FINITE):
        _require_finite(value, place)
    return orjson.Fragment(written)


def _require_finite(value: Any, place: str) -> None:
    """Recurses at most as deep as the parser of requests does, 200 levels."""
    if isinstance(value, float) and not math.isfinite(value):
        param = place.partition("[")[0]
        raise InvalidField(
            f"{place[:100]}: must be a number that JSON can write, got {value} "
            "(NaN and Infinity are no JSON, and numbers end at 1.8e308); leave it out, or send it as a text",
            param=param,
        )
    if isinstance(value, dict):
        for key, item in value.items():
            _require_finite(item, f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _require_finite(item, f"{place}[{index}]")


def float_array(vector: NDArray[Any]) -> bytes:
    """A vector (width) as a JSON array of its shortest exact decimals; of whole numbers as these."""
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)


def base64_string(vector: Vectors) -> bytes:
    """A vector (width) as a JSON string of the base64 of its little-endian float32 bytes, OpenAI's format."""
    return b'"' + binascii.b2a_base64(vector.astype("<f4", copy=False).data, newline=False) + b'"'


def int8_array(vector: Vectors) -> bytes:
    """The direction of a vector (width) as whole numbers from -127 to 127."""
    return float_array(_int8(vector))


def uint8_array(vector: Vectors) -> bytes:
    """The numbers of ``int8_array``, each 128 more."""
    return float_array((_int8(vector).astype(np.int16) + _INT8_OFFSET).astype(np.uint8))


def binary_array(vector: Vectors) -> bytes:
    """The signs of a vector (width), eight a number from -128 to 127: those of ``ubinary_array``, each 128 less."""
    return float_array((_bits(vector).astype(np.int16) - _INT8_OFFSET).astype(np.int8))


def ubinary_array(vector: Vectors) -> bytes:
    """The signs of a vector (width), eight a number from 0 to 255; the last is filled with zeros."""
    return float_array(_bits(vector))


def _int8(vector: Vectors) -> NDArray[np.int8]:
    """One step for all vectors of a width, so that dot products keep the order of the cosines.

    A step for each vector's own largest number would halve the error of the cosine, and put dot products out of order
    (Spearman .58 against .9998 on STS-B with multilingual-e5-small).
    """
    step = _INT8_REACH / (_INT8_LARGEST * math.sqrt(len(vector)))
    direction = normalized(vector.reshape(1, -1))[0]
    steps: NDArray[np.float32] = np.clip(np.rint(direction / step), -_INT8_LARGEST, _INT8_LARGEST)
    return steps.astype(np.int8)


def _bits(vector: Vectors) -> NDArray[np.uint8]:
    return np.packbits(vector > 0)


VECTOR_ENCODINGS: Mapping[str, Callable[[Vectors], bytes]] = {
    "float": float_array, "base64": base64_string, "int8": int8_array, "uint8": uint8_array, "binary": binary_array,
    "ubinary": ubinary_array,
}  # fmt: skip


def encoded_vector(vector: Vectors, encoding: str) -> list[float] | str:
    """A vector (width) in ``encoding`` (of VECTOR_ENCODINGS), as a fragment for ``orjson.dumps``.

    Typed as what the JSON holds, so that it has a place in a TypedDict.
    """
    return cast("list[float] | str", orjson.Fragment(VECTOR_ENCODINGS[encoding](vector)))


def index_ranges(numbers: Sequence[int]) -> str:
    """The numbers as ranges, "0-4,7"; a list longer than 512 characters ends early, with "..."."""
    return _bounded_list(written_ranges(numbers))


def index_headers(name: str, numbers: Sequence[int]) -> dict[str, str]:
    """The header ``name`` with the numbers, and ``name``-Count with how many they are; none where there are none.

    Args:
        numbers: ascending, each once. Neighbours become a range: "0-4,7,9-10". A list longer than 512 characters ends
            early, with "...": the count is of all.
    """
    if not numbers:
        return {}
    return {name: index_ranges(numbers), f"{name}-Count": str(len(numbers))}


def described(name: str, what: str) -> Mapping[str, Any]:
    """What OpenAPI says of the two headers. ``what`` are the numbers, such as "inputs that were cut"."""
    numbers = f"Numbers of {what}, as ranges such as 0-4,7; over {_LIST_CHARS} characters it ends early, with `...`."
    return {
        name: {"description": f"{numbers} Absent without any.", "schema": {"type": "string"}, "example": "0-4,7"},
        f"{name}-Count": {"description": f"How many {what} there are.", "schema": {"type": "integer", "minimum": 1}},
    }


def _bounded_list(ranges: Sequence[str]) -> str:
    whole = ",".join(ranges)
    if len(whole) <= _LIST_CHARS:
        return whole
    kept = whole[: _LIST_CHARS - len(_REST)].rpartition(",")[0]  # without the last, which may be half of a number
    return f"{kept},{_REST}"
