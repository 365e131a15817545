"""Whether an encoder only queues work: the host is not held up, two batches overlap, graphs are replayed.

An engine queues in ``forward`` and waits in ``finish``. On a CPU, where work is done when a call returns, none of this
means anything.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from backend.lanes.engine import EncoderEngine
from backend.models.encoder import Ids, normalized
from backend.models.model_files import resolve
from backend.models.runtimes import Candidate, load_encoder, warm_up
from backend.models.spec import ModelSpec
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.device_timing import random, wait
from benchmarks.gpu_check.encoders import alone, candidates_on, encode, engine_of, one_of_each_runtime, placement_on
from benchmarks.gpu_check.made_models import E5_SMALL, TINY, make_model

_BUDGET = 1 << 20
_LONE = (12, 40, 512)  # tokens
_RUNS = 30
_WORK_PRODUCTS, _WORK_SIDE = 20, 8192  # 28 ms on an H200


def measure(context: Context) -> dict[str, Any]:
    """A row for each runtime."""
    size = TINY if context.is_small else E5_SMALL
    spec = resolve(str(make_model(size, context.folder / size.name)))
    result: dict[str, Any] = {"rows": []}
    for candidate in one_of_each_runtime(candidates_on(context.device, halves_only=context.is_cuda)):
        with alone(result, candidate):
            result["rows"].append(_measured(candidate, spec, context))
        context.keep(result)
    return result


def _measured(candidate: Candidate, spec: ModelSpec, context: Context) -> dict[str, Any]:
    """The timings of one runtime."""
    encoder: Any = load_encoder(spec, candidate, placement_on(context.device))
    row: dict[str, Any] = {"runtime": str(candidate), "attention": getattr(encoder, "attention", "")}
    warm_up(encoder, 16 if context.is_small else spec.max_tokens)
    row |= _timings(engine_of(encoder, _BUDGET), spec, context)
    graphs = getattr(encoder, "graphs", None)
    return row | {"graphs": 0 if graphs is None else len(graphs), "graph_fault": getattr(graphs, "fault", "")}


def _timings(engine: EncoderEngine, spec: ModelSpec, context: Context) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    mixed = [rng.integers(5, spec.shape.vocabulary_size, length) for length in (30, 7, 120, 64) * 16]
    for _ in range(2):
        encode(engine, mixed)
    lone = [_lone(engine, length, context) for length in _LONE]
    row: dict[str, Any] = {"lone": lone, "lone_cosine": _cosine_alone(engine, mixed)}
    if context.is_cuda:
        row["queue_behind_work_ms"] = 1e3 * _behind_work_s(lambda: _queue(engine, mixed), context)
        row["first_of_two_ms"], row["both_ms"] = _two(engine, mixed, context)
        row["synchronises"] = _synchronises(engine, mixed)
    return row


def _queue(engine: EncoderEngine, texts: list[Ids]) -> Any:
    return engine.forward(engine.prepare(texts))


def _lone(engine: EncoderEngine, length: int, context: Context) -> dict[str, Any]:
    """Milliseconds of one text: until it is queued, and until its vector is there."""
    texts, queued, done = [np.arange(5, 5 + length)], [], []
    for _ in range(3 if context.is_small else _RUNS):
        wait(context.device)
        started_s = time.perf_counter()
        output = _queue(engine, texts)
        queued.append(1e3 * (time.perf_counter() - started_s))
        engine.finish(output)
        done.append(1e3 * (time.perf_counter() - started_s))
    return {"tokens": length, "queue_ms": statistics.median(queued), "p50_ms": statistics.median(done)}


def _cosine_alone(engine: EncoderEngine, texts: list[Ids]) -> float:
    """Least cosine of texts alone, replayed where there are graphs, against the same texts among others."""
    together = normalized(encode(engine, texts)[:4])
    alone_vectors = normalized(np.concatenate([encode(engine, [text]) for text in texts[:4]]))
    return float((together * alone_vectors).sum(axis=1).min())


def _behind_work_s(queue: Callable[[], object], context: Context) -> float:
    """Seconds that queueing a batch takes while the device is busy for 28 ms."""
    work = random(_WORK_SIDE, _WORK_SIDE, device=context.device, dtype=torch.bfloat16)
    times = []
    for _ in range(5):
        wait(context.device)
        for _ in range(_WORK_PRODUCTS):
            _ = work @ work
        started_s = time.perf_counter()
        queue()
        times.append(time.perf_counter() - started_s)
    wait(context.device)
    return statistics.median(times)


def _two(engine: EncoderEngine, texts: list[Ids], context: Context) -> tuple[float, float]:
    """Milliseconds until the first of two queued batches is there, and until both are."""
    large = texts * 8
    wait(context.device)
    started_s = time.perf_counter()
    first, second = (_queue(engine, large) for _ in range(2))
    engine.finish(first)
    first_s = time.perf_counter() - started_s
    engine.finish(second)
    return 1e3 * first_s, 1e3 * (time.perf_counter() - started_s)


def _synchronises(engine: EncoderEngine, texts: list[Ids]) -> str:
    """What in queueing makes the host wait, as torch's own debug mode says; "" where nothing does."""
    prepared = engine.prepare(texts)
    torch.cuda.set_sync_debug_mode("error")
    try:
        output = engine.forward(prepared)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    engine.finish(output)
    return ""
