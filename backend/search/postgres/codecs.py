"""How texts, vectors and mappings are written in PostgreSQL. No connection."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.models.encoder import Vectors

# pgvector's type -> how it sends a component: big-endian, behind the count of components and two bytes of nothing.
VECTOR_COMPONENTS: Mapping[str, str] = {"halfvec": ">f2", "vector": ">f4"}
_VECTOR_HEAD = struct.Struct(">HH")
# PostgreSQL's text has no U+0000. Two characters stand for it and for the one they begin with, which keeps the order.
_NUL, _ESCAPE = "\x00", "\x01"
_ESCAPED_NUL, _ESCAPED_ESCAPE = "\x01\x01", "\x01\x02"


def encode_text(text: str) -> bytes:
    """UTF-8 without U+0000, in the same order by code point as the texts themselves."""
    if _NUL in text or _ESCAPE in text:
        text = text.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_NUL, _ESCAPED_NUL)
    return text.encode()


def decode_text(content: bytes) -> str:
    text = content.decode()
    if _ESCAPE in text:
        return text.replace(_ESCAPED_NUL, _NUL).replace(_ESCAPED_ESCAPE, _ESCAPE)
    return text


def vector_encoder(type_name: str) -> Callable[[Vectors], bytes]:
    """What makes the binary form of a vector (width) for this type of pgvector."""
    component = VECTOR_COMPONENTS[type_name]

    def encode(vector: Vectors) -> bytes:
        return _VECTOR_HEAD.pack(vector.size, 0) + vector.astype(component).tobytes()

    return encode


def vector_decoder(type_name: str) -> Callable[[bytes], Vectors]:
    component = VECTOR_COMPONENTS[type_name]

    def decode(content: bytes) -> Vectors:
        vector: NDArray[Any] = np.frombuffer(content, component, offset=_VECTOR_HEAD.size)
        return vector.astype(np.float32)

    return decode


def to_json(value: object) -> str:
    return orjson.dumps(value).decode()


def from_json(text: str) -> Any:
    return orjson.loads(text)
