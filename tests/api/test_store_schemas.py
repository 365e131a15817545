"""The schema of a request to vector stores and its reader refuse the same values."""

from typing import Any

import jsonschema
import pytest

from backend.api.json_io import validate_fields
from backend.api.routes.store_files import AddFileRequest
from backend.api.routes.vector_stores import CreateStoreRequest
from backend.errors import BadInput

MAX_DAYS = 365  # OpenAI's

PAIRS = [
    pytest.param({"k" * 64: "v" * 512}, True, id="longest"),
    pytest.param({"año 📅": "línea 1\r\n\tlínea 2 😀"}, True, id="lines"),
    pytest.param({"k" * 65: "v"}, False, id="long-name"),
    pytest.param({"": "v"}, False, id="no-name"),
    pytest.param({"k": "v" * 513}, False, id="long-text"),
    pytest.param({"a\tb": "v"}, False, id="tab-in-name"),
    pytest.param({"a\x85b": "v"}, False, id="c1-control-in-name"),
    pytest.param({"k": "a\x00b"}, False, id="nul"),
    pytest.param({"k": "a\x1bb"}, False, id="escape"),
    pytest.param({"k": "a\x7fb"}, False, id="delete"),
    pytest.param({"k": "a\x9fb"}, False, id="c1-control"),
]


@pytest.mark.parametrize(("pairs", "is_good"), PAIRS)
def test_texts(pairs: dict[str, str], is_good: bool) -> None:
    """Of attributes and of metadata."""
    assert [is_good] * 4 == [
        _fits_schema(AddFileRequest, {"file_id": "file-1", "attributes": pairs}),
        _is_read(AddFileRequest, {"file_id": "file-1", "attributes": pairs}),
        _fits_schema(CreateStoreRequest, {"metadata": pairs}),
        _is_read(CreateStoreRequest, {"metadata": pairs}),
    ]


@pytest.mark.parametrize("count", [16, 17, 64, 65])
def test_how_many(count: int) -> None:
    """64 attributes, 16 of metadata."""
    pairs = {f"k{number}": "v" for number in range(count)}
    attributes, metadata = {"file_id": "file-1", "attributes": pairs}, {"metadata": pairs}

    assert [count <= 64] * 2 == [_fits_schema(AddFileRequest, attributes), _is_read(AddFileRequest, attributes)]
    assert [count <= 16] * 2 == [_fits_schema(CreateStoreRequest, metadata), _is_read(CreateStoreRequest, metadata)]


@pytest.mark.parametrize("days", [0, 1, MAX_DAYS, MAX_DAYS + 1])
def test_days(days: int) -> None:
    body = {"expires_after": {"anchor": "last_active_at", "days": days}}
    is_good = 1 <= days <= MAX_DAYS

    assert [is_good] * 2 == [_fits_schema(CreateStoreRequest, body), _is_read(CreateStoreRequest, body)]


@pytest.mark.parametrize("tokens", [99, 100, 4_096, 4_097])
def test_lengths_of_chunks(tokens: int) -> None:
    sizes = {"max_chunk_size_tokens": tokens, "chunk_overlap_tokens": 0}
    body = {"file_id": "file-1", "chunking_strategy": {"type": "static", "static": sizes}}

    assert [100 <= tokens <= 4_096] * 2 == [_fits_schema(AddFileRequest, body), _is_read(AddFileRequest, body)]


def test_whole_numbers_that_no_float64_holds() -> None:
    bodies = [{"file_id": "file-1", "attributes": {"n": number}} for number in (2**53, 2**53 + 1)]

    assert [True, False] == [_is_read(AddFileRequest, body) for body in bodies]


def _fits_schema(model: Any, body: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(model.model_json_schema()).is_valid(body))


def _is_read(model: Any, body: dict[str, Any]) -> bool:
    try:
        validate_fields(model, body)
    except BadInput:
        return False
    return True
