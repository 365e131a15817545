"""The service over HTTP on the device: one text and many, the lone text's latency, and /metrics/gpu under load."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.models.model_files import resolve
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.encoders import token_ids
from benchmarks.gpu_check.made_models import E5_SMALL, TINY, make_model
from benchmarks.gpu_check.servers import get, joined, load, process_counts, serving, system_report
from benchmarks.gpu_check.targets import LONE, TEXTS_32
from benchmarks.load import Shape
from benchmarks.peers import Server
from benchmarks.texts import distinct_texts

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
            result["embedding_model"] = _model_of(system_report(server))
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
        metrics["report"] = json.loads(get(server, "/metrics/gpu"))
        metrics["seconds"] = time.perf_counter() - started_s
        metrics["samples"] = len(get(server, "/metrics/gpu", "text/plain").splitlines())
    except OSError as error:
        metrics["fault"] = str(error)


def _model_of(system: Any) -> Any:
    """The embedding model's part of GET /v1/system."""
    models = system.get("models", []) if isinstance(system, dict) else []
    return models[0] if isinstance(models, list) and models else models
