"""What the benchmarks of single requests send and read: one request a connection, refusals as errors."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

_WAIT_S = 300.0  # for a response; the service's own limits are shorter


class RequestRefused(RuntimeError):
    """A response with an error status."""

    def __init__(self, path: str, status: int, body: bytes) -> None:
        super().__init__(f"{path} answered {status}: {body[:500].decode('utf-8', 'replace')}")


@contextmanager
def sent(
    port: int, path: str, body: Any = None, *, method: str | None = None, media_type: str = "", wait_s: float = _WAIT_S
) -> Iterator[HTTPResponse]:
    """The response to a request, not read yet. Raises: RequestRefused; OSError when nothing answers.

    Args:
        body: bytes are a file, unless ``media_type`` says what they are; anything else goes as JSON. None: a GET.
    """
    headers = {} if body is None else {"Content-Type": media_type or "application/octet-stream"}
    if body is not None and not isinstance(body, bytes):
        body, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=wait_s) as response:
            yield response
    except urllib.error.HTTPError as error:
        raise RequestRefused(path, error.code, error.read()) from error


def ask(port: int, path: str, body: Any = None, *, method: str | None = None) -> Any:
    """The JSON of a response. Args as of ``sent``. Raises: RequestRefused, OSError."""
    with sent(port, path, body, method=method) as response:
        return json.load(response)
