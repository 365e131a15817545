"""HTTP client of the OCR benchmark: sends files one at a time, concurrently, or as a job that it follows."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

_WAIT_S = 300.0  # for a response; the service's own limits are shorter


class RequestRefused(RuntimeError):
    """A response with an error status."""

    def __init__(self, path: str, status: int, body: bytes) -> None:
        super().__init__(f"{path} answered {status}: {body[:500].decode('utf-8', 'replace')}")
        self.status = status


def read(port: int, file: bytes, **fields: str) -> dict[str, Any]:
    """The response of ``POST /v1/ocr`` to a file. Raises: RequestRefused."""
    with closing(_connection(port)) as connection:
        return _post(connection, "/v1/ocr", file, fields)


def read_all(port: int, files: Sequence[bytes], clients: int, **fields: str) -> list[dict[str, Any]]:
    """Send files from ``clients`` concurrent clients. Raises: RequestRefused."""
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda file: read(port, file, **fields), files))


def first_page_s(port: int, file: bytes, **fields: str) -> float:
    """Seconds from sending a job to the event of its first page; the job is then cancelled.

    Raises: RequestRefused, with status 404 where the service has no jobs; RuntimeError for a job without a page.
    """
    started_s = time.perf_counter()
    with closing(_connection(port)) as connection:
        job = _post(connection, "/v1/jobs", file, fields)
        connection.request("GET", f"/v1/jobs/{job['id']}/events")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise RequestRefused("/v1/jobs/…/events", response.status, response.read())
        for event in events(response):
            if event == "page":
                return _cancel_job(port, job["id"], time.perf_counter() - started_s)
            if event == "end":
                break
    raise RuntimeError("the job ended before a page event")


def searchable_pdf(port: int, file: bytes, **fields: str) -> bytes:
    """The searchable PDF of a job: sent, followed to its end, fetched. Raises: RequestRefused."""
    with closing(_connection(port)) as connection:
        job = _post(connection, "/v1/jobs", file, fields)
        connection.request("GET", f"/v1/jobs/{job['id']}/events")
        connection.getresponse().read()  # ends with the job
        path = f"/v1/jobs/{job['id']}/result?format=pdf"
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise RequestRefused(path, response.status, body)
    return body


def events(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[str]:
    """Yield the names of server-sent events as they arrive."""
    for line in lines:
        if line.startswith(b"event:"):
            yield line.removeprefix(b"event:").strip().decode("ascii")


def _cancel_job(port: int, job_id: str, took_s: float) -> float:
    with closing(_connection(port)) as connection:
        connection.request("DELETE", f"/v1/jobs/{job_id}")
        connection.getresponse().read()
    return took_s


def _post(connection: http.client.HTTPConnection, path: str, file: bytes, fields: dict[str, str]) -> dict[str, Any]:
    headers = {"Content-Type": "application/octet-stream"}
    connection.request("POST", f"{path}?{urlencode(fields)}", file, headers)
    response = connection.getresponse()
    body = response.read()
    if response.status not in (http.client.OK, http.client.ACCEPTED):
        raise RequestRefused(path, response.status, body)
    document: dict[str, Any] = json.loads(body)
    return document


def _connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_S)
