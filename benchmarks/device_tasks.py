"""The tasks of the device table as requests to a running service: what is sent, and how long the answers take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from benchmarks.client import ask
from benchmarks.ocr_client import read_all
from benchmarks.ocr_pages import clean_page, sentences

# task -> what stands in the table; the amounts are those that guides promise numbers for
TITLES = {
    "embeddings": "embeddings of {} documents",
    "classes": "classes of {} documents, one request",
    "pages": "{} scanned pages read, engine as chosen",
    "rapidocr": "{} scanned pages read by RapidOCR",
    "analysis": "full analysis of {} documents",
}
TASKS = tuple(TITLES)
_SENTENCES = 20  # of a document: half a page of text, about 400 tokens, which every encoder takes whole
_CLIENTS = 8  # that ask for pages and analyses at the same time


def run_task(port: int, task: str, count: int, first: int) -> float:
    """Seconds until the service has answered for ``count`` things, the ``first`` one being that number.

    Raises: RequestRefused for a status but 200; OSError when nothing answers.
    """
    send = _prepared(port, task, count, first)
    started_s = time.perf_counter()
    send()
    return time.perf_counter() - started_s


def _prepared(port: int, task: str, count: int, first: int) -> Callable[[], object]:
    """The requests of a pass, made before it is timed."""
    if task in ("pages", "rapidocr"):
        pages = [clean_page(first + index).png for index in range(count)]
        fields = {"engine": "rapidocr"} if task == "rapidocr" else {}
        return lambda: read_all(port, pages, min(_CLIENTS, count), source="ocr", **fields)
    texts = documents(count, first)
    if task == "analysis":
        return lambda: _send_all(port, "/v1/analyze", texts)
    path = "/v1/embeddings" if task == "embeddings" else "/v1/classify"
    return lambda: ask(port, path, {"input": texts})


def documents(count: int, first: int) -> list[str]:
    """Texts, other words in each."""
    return [" ".join(islice(sentences(f"document {first + index}"), _SENTENCES)) for index in range(count)]


def system_report(port: int) -> Any:
    """What GET /v1/models says: what each model runs on, in which arithmetic."""
    return ask(port, "/v1/models")


def _send_all(port: int, path: str, texts: Sequence[str]) -> None:
    with ThreadPoolExecutor(min(_CLIENTS, len(texts))) as pool:
        list(pool.map(lambda text: ask(port, path, {"input": text}), texts))
