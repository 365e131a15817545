"""JSON answers as bytes, and vectors within them."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.responses import Response

Vectors = NDArray[np.float32]

_JSON_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


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


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> JsonBytes:
    """Plain values as JSON; values that JSON does not know are written as text."""
    return JsonBytes(orjson.dumps(content, default=str, option=_JSON_OPTIONS), status, headers)


def float_array(vector: Vectors) -> bytes:
    """A vector (width) as a JSON array of its shortest exact decimals."""
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)


def base64_string(vector: Vectors) -> bytes:
    """A vector (width) as a JSON string of the base64 of its little-endian float32 bytes, OpenAI's format."""
    return b'"' + binascii.b2a_base64(vector.astype("<f4", copy=False).data, newline=False) + b'"'


VECTOR_ENCODINGS: Mapping[str, Callable[[Vectors], bytes]] = {"float": float_array, "base64": base64_string}


def encoded_vector(vector: Vectors, encoding: str) -> list[float] | str:
    """A vector (width) in ``encoding`` (of VECTOR_ENCODINGS), as a fragment for ``orjson.dumps``.

    Typed as what the JSON holds, so that it has a place in a TypedDict.
    """
    return cast("list[float] | str", orjson.Fragment(VECTOR_ENCODINGS[encoding](vector)))
