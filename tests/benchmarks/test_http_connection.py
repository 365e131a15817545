"""Where an answer ends, however its bytes arrive."""

import pytest

from benchmarks.http_connection import ResponseParser, request_bytes

BODY = b'{"data": []}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 12\r\n\r\n" + BODY
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{"data\r\n6;name=value\r\n": []}\r\n00\r\n\r\n'
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
CLOSING = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
ANSWERS = [
    pytest.param(PLAIN, 200, id="content-length"),
    pytest.param(CHUNKED, 200, id="chunked"),
    pytest.param(EMPTY, 204, id="no-body"),
    pytest.param(CLOSING, 503, id="empty-body"),
]


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 1000])
@pytest.mark.parametrize(("raw", "status"), ANSWERS)
def test_an_answer_ends_with_its_last_byte(raw, status, piece_bytes):
    """Cut anywhere, an answer is whole when its last byte came and not before."""
    parser = ResponseParser()

    complete = [parser.feed(raw[start : start + piece_bytes]) for start in range(0, len(raw), piece_bytes)]

    assert [*[False] * (len(complete) - 1), True] == complete
    assert status == parser.status


def test_an_answer_without_a_length_never_ends():
    """Only the end of the connection would end it, so it counts as lost and not as short."""
    parser = ResponseParser()

    assert not parser.feed(b"HTTP/1.1 200 OK\r\n\r\n" + BODY)


@pytest.mark.parametrize(
    ("raw", "closes"), [pytest.param(PLAIN, False, id="kept"), pytest.param(CLOSING, True, id="closed")]
)
def test_a_server_may_end_the_connection(raw, closes):
    """The header is seen, so that the next request opens a new connection."""
    parser = ResponseParser()
    parser.feed(raw)

    assert closes == parser.closes


def test_request_bytes_count_bytes_not_characters():
    """The length of a body with accents is its length in UTF-8."""
    body = '{"input": "año"}'.encode()

    request = request_bytes("/v1/embeddings", body)

    assert f"Content-Length: {len(body)}\r\n\r\n".encode() + body in request
    assert request.startswith(b"POST /v1/embeddings HTTP/1.1\r\n")
