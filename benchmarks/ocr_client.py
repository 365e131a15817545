"""Client of the OCR benchmark: sends files one at a time, concurrently, or as a job that it follows."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

from benchmarks.client import ask, sent


def read(port: int, file: bytes, **fields: str) -> dict[str, Any]:
    """The response of ``POST /v1/ocr`` to a file. Raises: RequestRefused."""
    document: dict[str, Any] = ask(port, f"/v1/ocr?{urlencode(fields)}", file)
    return document


def read_all(port: int, files: Sequence[bytes], clients: int, **fields: str) -> list[dict[str, Any]]:
    """Send files from ``clients`` concurrent clients. Raises: RequestRefused."""
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda file: read(port, file, **fields), files))


def first_page_s(port: int, file: bytes, **fields: str) -> float:
    """Seconds from sending a job to the event of its first page; the job is then cancelled.

    Raises: RequestRefused; RuntimeError for a job without a page.
    """
    started_s = time.perf_counter()
    job = f"/v1/jobs/{ask(port, f'/v1/jobs?{urlencode(fields)}', file)['id']}"
    with sent(port, f"{job}/events") as events:
        if not any(line.strip() == b"event: page" for line in events):
            raise RuntimeError("the job ended before a page event")
        took_s = time.perf_counter() - started_s
    with sent(port, job, method="DELETE"):
        return took_s


def searchable_pdf(port: int, file: bytes, **fields: str) -> bytes:
    """The searchable PDF of a job: sent, followed to its end, fetched. Raises: RequestRefused."""
    job = f"/v1/jobs/{ask(port, f'/v1/jobs?{urlencode(fields)}', file)['id']}"
    with sent(port, f"{job}/events") as events:
        events.read()  # ends with the job
    with sent(port, f"{job}/result?format=pdf") as result:
        return result.read()
