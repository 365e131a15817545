"""The service over HTTP on the device: one text and many, the lone text's latency, and /metrics/gpu under load."""

import contextlib
import os
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.models.model_files import resolve
from benchmarks.client import RequestRefused, ask
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.encoders import token_ids
from benchmarks.gpu_check.made_models import E5_SMALL, TINY, make_model
from benchmarks.gpu_check.targets import LONE, TEXTS_32
from benchmarks.load import Report, Shape, run_in_subprocess
from benchmarks.peers import Server, ours, running
from benchmarks.texts import distinct_texts

_LEARNT_S = 20.0  # heads of bundled classifiers are learnt anew for another encoder; then it is loaded meanwhile
_FIRST_TEXTS = 40_000  # between the texts of two generators
_SAMPLE_TEXTS = 2048  # whose mean length stands for all


@dataclass(frozen=True, slots=True)
class _Load:
    """A closed loop from several generators."""

    name: str
    generators: int
    clients: int  # of each generator
    texts: int  # in a request


_LOADS = (
    _Load(LONE, 1, 1, 1),
    _Load("one text, 128 clients", 2, 64, 1),
    _Load(TEXTS_32, 3, 16, 32),
    _Load("256 texts", 4, 8, 256),
)
_FEW_LOADS = (_Load(LONE, 1, 1, 1), _Load(TEXTS_32, 2, 1, 32))


def measure(context: Context) -> dict[str, Any]:
    """Every load on a server of each number of processes; /metrics/gpu is read while 32 texts a request are sent."""
    size = TINY if context.is_small else E5_SMALL
    model = make_model(size, context.folder / size.name)
    result: dict[str, Any] = {"tokens_per_text": _mean_tokens(model), "rows": [], "metrics": []}
    for processes in process_counts(context):
        with serving(context, model, processes) as server:
            result["rows"] += [{"processes": processes, "model": size.name, "load": "start", "ready_s": server.ready_s}]
            result["embedding_model"] = ask(server.port, "/v1/system")["models"][0]
            for each in _FEW_LOADS if context.is_small else _LOADS:
                row, metrics = _run(server, each, context)
                rate = row["texts_per_s"] * result["tokens_per_text"]
                row |= {"processes": processes, "model": size.name, "load": each.name, "tokens_per_s": rate}
                result["rows"].append(row)
                result["metrics"] += [{"processes": processes, **metrics}] if metrics else []
                context.keep(result)
    return result


def _mean_tokens(model: Path) -> float:
    ids = token_ids(resolve(str(model)), distinct_texts(_SAMPLE_TEXTS))
    return sum(len(text) for text in ids) / len(ids)


def _run(server: Server, each: _Load, context: Context) -> tuple[dict[str, Any], dict[str, Any]]:
    warmup_s, duration_s = (0.5, 1.0) if context.is_small else (2.0, 5.0)
    shape = Shape(each.clients, texts=each.texts, encoding_format="base64", warmup_s=warmup_s, duration_s=duration_s)
    metrics: dict[str, Any] = {}
    reader = threading.Thread(target=_read_metrics, args=(server, warmup_s + duration_s / 2, metrics))
    if each.name == TEXTS_32:
        reader.start()
    row = joined(load(server, shape, each.generators))
    if each.name == TEXTS_32:
        reader.join()
    return row, metrics


def _read_metrics(server: Server, after_s: float, metrics: dict[str, Any]) -> None:
    """What /metrics/gpu says in the middle of the load, and how long it took."""
    time.sleep(after_s)
    started_s = time.perf_counter()
    try:
        metrics["report"] = ask(server.port, "/metrics/gpu")
        metrics["seconds"] = time.perf_counter() - started_s
        metrics["samples"] = len(get(server, "/metrics/gpu", "text/plain").splitlines())
    except (OSError, RequestRefused) as error:
        metrics["fault"] = str(error)


def process_counts(context: Context) -> tuple[int, ...]:
    """Values of SERVER_PROCESSES to try."""
    if context.is_small:
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
