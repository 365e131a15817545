"""Starts the service on the device with a model made on the spot, and loads it from several processes at once."""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.config import Settings
from benchmarks.gpu_check.context import Context
from benchmarks.load import Report, Shape, run_in_subprocess
from benchmarks.peers import Server, ours, running

_LEARNT_S = 20.0  # heads of bundled classifiers are learnt anew for another encoder; then it is loaded meanwhile
_FIRST_TEXTS = 40_000  # between the texts of two generators


def process_counts(context: Context) -> tuple[int, ...]:
    """Values of SERVER_PROCESSES to try; one where the service has no such setting."""
    if "server_processes" not in Settings.model_fields or context.is_small:
        return (1,)
    return (1, 10, 4) if (os.cpu_count() or 1) > 8 else (1, 4)


@contextlib.contextmanager
def serving(context: Context, model: Path, processes: int, **settings: str) -> Iterator[Server]:
    """The service with this encoder alone, its cache off and its queue long."""
    many = {"SERVER_PROCESSES": str(processes)} if processes > 1 else {}
    peer = ours(
        context.folder / f"state-{processes}",
        EMBEDDING_MODEL=str(model),
        DEVICE=context.device,
        PRECISION="bf16" if context.is_cuda else "fp32",
        NER_MODEL="none",
        SPEECH_MODEL="none",
        LIMIT_QUEUE_TOKENS="8000000",
        **many,
        **settings,
    )
    with running(replace(peer, settling=()), context.folder) as server:
        _wait_learnt(server, 0.0 if context.is_small else _LEARNT_S)
        yield server


def _wait_learnt(server: Server, limit_s: float) -> None:
    ends_s = time.monotonic() + limit_s
    while time.monotonic() < ends_s and "pending" in get(server, "/v1/classifiers"):
        time.sleep(0.5)


def get(server: Server, path: str, accept: str = "application/json") -> str:
    """The answer's text. Raises: OSError."""
    request = urllib.request.Request(server.url(path), headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as response:
        body: bytes = response.read()
    return body.decode()


def system_report(server: Server) -> Any:
    """GET /v1/system: what was chosen, and why."""
    return json.loads(get(server, "/v1/system"))


def load(server: Server, shape: Shape, generators: int) -> list[Report]:
    """Run a load from several processes at the same time, each with texts of its own."""
    shapes = [replace(shape, first_text=index * _FIRST_TEXTS) for index in range(generators)]
    with ThreadPoolExecutor(generators) as pool:
        return list(pool.map(lambda each: run_in_subprocess(server.port, each), shapes))


def joined(reports: Sequence[Report]) -> dict[str, Any]:
    """Rates added up, the slowest generator's times, and every status but 200."""
    statuses: dict[str, int] = {}
    for report in reports:
        for status, count in report.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return {
        "texts_per_s": sum(report.texts_per_s for report in reports),
        "requests_per_s": sum(report.requests_per_s for report in reports),
        "p50_s": max(report.p50_s for report in reports),
        "p99_s": max(report.p99_s for report in reports),
        "errors": {status: count for status, count in statuses.items() if status != "200"},
        "generator_cpu_ratio": sum(report.generator_cpu_ratio for report in reports),
    }
