"""JSON answers as bytes, vectors within them, and headers that list numbers."""

from __future__ import annotations

import asyncio
import binascii
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Literal, NotRequired, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.errors import InvalidField
from backend.files.page_ranges import written_ranges
from backend.models.encoder import normalized

Vectors = NDArray[np.float32]
T = TypeVar("T")

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


def answer_of(schema: type[T], record: object, **others: Any) -> T:
    """An answer with the names of its schema, in their order: of ``others``, a literal's only value, or of ``record``.

    What is not required is there only where ``others`` have it.
    """
    answer = {}
    for name, is_required, constant in _names_of(schema):  # type: ignore[arg-type]  # classes are hashable
        if name in others:
            answer[name] = others[name]
        elif is_required:
            answer[name] = getattr(record, name) if constant is None else constant
    return cast("T", answer)


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


_LIST_CHARS = 512  # nginx takes 4 KB of an answer's headers, all of them together; balancers less
_REST = "..."


def index_ranges(numbers: Sequence[int]) -> str:
    """The numbers as ranges, "0-4,7"; a list longer than 512 characters ends early, with "..."."""
    return _shortened(written_ranges(numbers))


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


def _shortened(ranges: Sequence[str]) -> str:
    whole = ",".join(ranges)
    if len(whole) <= _LIST_CHARS:
        return whole
    kept = whole[: _LIST_CHARS - len(_REST)].rpartition(",")[0]  # without the last, which may be half of a number
    return f"{kept},{_REST}"
