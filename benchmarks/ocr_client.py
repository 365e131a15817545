"""A client that sends files to our service: one at a time, so many at a time, or as a job whose events it watches."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

_WAIT_S = 300.0  # for one answer; the service's own limits end earlier


class Refused(RuntimeError):
    """An answer that is no success."""

    def __init__(self, path: str, status: int, said: bytes) -> None:
        super().__init__(f"{path} answered {status}: {said[:500].decode('utf-8', 'replace')}")
        self.status = status


def read(port: int, file: bytes, **fields: str) -> dict[str, Any]:
    """The document that ``POST /v1/ocr`` makes of a file. Raises: Refused."""
    with closing(_connection(port)) as connection:
        return _sent(connection, "/v1/ocr", file, fields)


def read_all(port: int, files: Sequence[bytes], clients: int, **fields: str) -> list[dict[str, Any]]:
    """So many files under way at once, the next one sent when one is answered. Raises: Refused."""
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda file: read(port, file, **fields), files))


def first_page_s(port: int, file: bytes, **fields: str) -> float:
    """Seconds from sending a job to hearing of its first page; the job is cancelled then.

    Raises: Refused; its status is 404 where the service has no jobs. RuntimeError when the job ends without a page.
    """
    started_s = time.perf_counter()
    with closing(_connection(port)) as connection:
        job = _sent(connection, "/v1/jobs", file, fields)
        connection.request("GET", f"/v1/jobs/{job['id']}/events")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise Refused("/v1/jobs/…/events", answer.status, answer.read())
        for event in events(answer):
            if event == "page":
                return _ended(port, job["id"], time.perf_counter() - started_s)
            if event == "end":
                break
    raise RuntimeError("the job ended before a page of it was told")


def events(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[str]:
    """The names of server-sent events as they come."""
    for line in lines:
        if line.startswith(b"event:"):
            yield line.removeprefix(b"event:").strip().decode("ascii")


def _ended(port: int, job_id: str, took_s: float) -> float:
    with closing(_connection(port)) as connection:
        connection.request("DELETE", f"/v1/jobs/{job_id}")
        connection.getresponse().read()
    return took_s


def _sent(connection: http.client.HTTPConnection, path: str, file: bytes, fields: dict[str, str]) -> dict[str, Any]:
    headers = {"Content-Type": "application/octet-stream"}
    connection.request("POST", f"{path}?{urlencode(fields)}", file, headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status not in (http.client.OK, http.client.ACCEPTED):
        raise Refused(path, answer.status, body)
    told: dict[str, Any] = json.loads(body)
    return told


def _connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_S)
