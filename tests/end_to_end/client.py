"""Requests to the running service, and its memory, files and processes."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import numpy as np
import psutil
import pytest

from tests.clients.server import LiveServer

# The first test waits until the service has started.
MARKS = [pytest.mark.tesseract, pytest.mark.timeout(300)]
TIMEOUT_S = 60.0  # only bounds a broken test
WORKER = "backend.files.worker"


def send(
    client: httpx.Client, content: bytes, route: str = "/v1/documents", *, name: str = "a.pdf", **fields: str
) -> httpx.Response:
    """One upload, as curl -F sends it."""
    return client.post(route, files={"file": (name, content)}, data=fields)


def answer_of(client: httpx.Client, content: bytes, **fields: str) -> dict[str, Any]:
    """The answer for a document; must be 200."""
    response = send(client, content, **fields)
    assert 200 == response.status_code, response.text
    answer: dict[str, Any] = response.json()
    return answer


def problem_of(response: httpx.Response) -> tuple[int, str]:
    """Status and code of an error answer, whose detail must be a sentence."""
    problem = response.json()
    assert "application/problem+json" == response.headers["content-type"], response.text
    assert len(problem["detail"].split()) > 3, "a sentence"
    return response.status_code, problem["code"]


def vector_of(text: str) -> np.ndarray:
    """A vector from the base64 of little-endian float32."""
    return np.frombuffer(base64.b64decode(text), "<f4")


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    data: Any


def events(client: httpx.Client, job_id: str) -> Iterator[Event]:
    with client.stream("GET", f"/v1/jobs/{job_id}/events") as stream:
        assert 200 == stream.status_code
        name = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield Event(name, json.loads(line.removeprefix("data: ")))


def metric(client: httpx.Client, series: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{series} ")]
    return float(value)


class Footprint(NamedTuple):
    """Memory, files and processes of the service."""

    memory_bytes: int  # resident, its readers included
    files: int  # descriptors of the service alone
    readers: int


def footprint(served: LiveServer) -> Footprint:
    process = psutil.Process(served.process.pid)
    readers = [child for child in process.children() if WORKER in _command(child)]
    memory_bytes = process.memory_info().rss + sum(_memory(reader) for reader in readers)
    return Footprint(memory_bytes, process.num_fds(), len(readers))


def wait_until(client: httpx.Client, condition: Callable[[], bool], failure: str) -> None:
    """Poll: another process does not notify about its memory."""
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end_s, failure
        client.get("/health/live")


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


def _memory(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0
