"""Tokens a second of every runtime on the device, in process and without a tokenizer, as shares of its matrix rate."""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from backend.lanes.engine import EncoderEngine
from backend.models.encoder import Encoder, Ids
from backend.models.encoder_benchmark import cut_batches
from backend.models.model_files import resolve
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.device_timing import matrix_flop_per_s, wait
from benchmarks.gpu_check.encoders import (
    alone,
    candidates_on,
    encode,
    encode_two_deep,
    engine_of,
    load,
    one_of_each_runtime,
    token_ids,
)
from benchmarks.gpu_check.made_models import BASE, E5_SMALL, TINY, Size, make_model
from benchmarks.gpu_check.targets import MIXED
from benchmarks.texts import distinct_texts

_BUDGETS = (16384, 65536)  # tokens of a batch
_TEXTS = 8192
_LENGTHS = (40, 128, 512)
_ROUNDS = 3
_LONE_LENGTHS, _LONE_RUNS = (12, 40), 50
_COMPILES = "torch-compiled"
_PADS = 0.5  # from this padding cost on texts of like lengths must share a batch
_HALF = torch.bfloat16


def measure(context: Context) -> dict[str, Any]:
    """For each size, runtime and mix of lengths: the median rate of three rounds with the best budget.

    What compiles comes last: it takes minutes, and may be cut off.
    """
    device = context.device
    sizes = (TINY,) if context.is_small else (E5_SMALL, BASE)
    result: dict[str, Any] = {"matrix_tflop_per_s": matrix_flop_per_s(device, _HALF) / 1e12, "rows": [], "lone": []}
    folders = {size: make_model(size, context.folder / size.name) for size in sizes}
    mixes = {size: _mixes(folder, context) for size, folder in folders.items()}
    found = candidates_on(device, halves_only=context.is_cuda)
    best = one_of_each_runtime(found)
    runs = [(size, candidate) for size in sizes for candidate in found if candidate in best or size is not BASE]
    for size, candidate in sorted(runs, key=lambda run: (run[1].runtime == _COMPILES, run[1] not in best)):
        measured = mixes[size] if candidate in best else {MIXED: mixes[size][MIXED]}
        with alone(result, candidate):
            _measure_runtime(result, load(folders[size], candidate, device), size, measured, context)
    result["matrix_tflop_per_s_after"] = matrix_flop_per_s(device, _HALF) / 1e12
    return result


def _measure_runtime(
    result: dict[str, Any], encoder: Encoder, size: Size, mixes: dict[str, list[Ids]], context: Context
) -> None:
    """Add an encoder's rows to the result, one by one."""
    runtime = f"{encoder.runtime} {encoder.dtype}"
    for row in _rates(encoder, size, mixes, context, float(result["matrix_tflop_per_s"])):
        result["rows"].append({"runtime": runtime, **row})
        context.keep(result)
    result["lone"] += [{"runtime": runtime, **row} for row in _lone(encoder, size, context)]
    context.keep(result)


def _mixes(folder: Any, context: Context) -> dict[str, list[Ids]]:
    """Texts as clients send them, in the order they come, then texts of one length."""
    count = 32 if context.is_small else _TEXTS
    ids = token_ids(resolve(str(folder)), distinct_texts(count))
    tokens = sum(len(text) for text in ids)
    mixes = {MIXED: ids}
    for length in _LENGTHS[: 1 if context.is_small else None]:
        mixes[f"{length} tokens"] = [np.resize(ids[0], length)] * max(1, tokens // length)
    return mixes


def _rates(
    encoder: Encoder, size: Size, mixes: dict[str, list[Ids]], context: Context, matrix_tflop_per_s: float
) -> Iterator[dict[str, Any]]:
    for texts, ids in mixes.items():
        tokens = sum(len(text) for text in ids)
        flop = size.flop_per_token(sum(len(text) ** 2 for text in ids) / tokens)
        best: dict[str, Any] = {}
        for budget in _BUDGETS:
            rates = _rounds(engine_of(encoder, budget), batches_for(encoder, ids, budget), tokens, context)
            if statistics.median(rates) > best.get("tokens_per_s", 0.0):
                best = {"tokens_per_s": statistics.median(rates), "least": min(rates), "most": max(rates)}
                best |= {"budget": budget}
        tflop_per_s = flop * best["tokens_per_s"] / 1e12
        share = tflop_per_s / matrix_tflop_per_s
        yield {"model": size.name, "texts": texts, **best, "tflop_per_s": tflop_per_s, "matrix_share": share}


def batches_for(encoder: Encoder, ids: Sequence[Ids], budget: int) -> list[list[Ids]]:
    """Batches as the service makes them: by length where padding costs, else as texts come until the rows are full."""
    if encoder.padding_cost >= _PADS:
        return cut_batches(sorted(ids, key=len), budget)
    batches: list[list[Ids]] = [[]]
    rows = 0
    for text in ids:
        if batches[-1] and rows + len(text) > budget:
            batches.append([])
            rows = 0
        batches[-1].append(text)
        rows += len(text)
    return batches


def _rounds(engine: EncoderEngine, batches: list[list[Ids]], tokens: int, context: Context) -> list[float]:
    """Tokens a second of each round, after one that compiles the shapes."""
    encode_two_deep(engine, batches)
    rates = []
    for _ in range(1 if context.is_small else _ROUNDS):
        wait(context.device)
        started_s = time.perf_counter()
        encode_two_deep(engine, batches)
        wait(context.device)
        rates.append(tokens / (time.perf_counter() - started_s))
    return rates


def _lone(encoder: Encoder, size: Size, context: Context) -> Iterator[dict[str, Any]]:
    """Milliseconds of one text alone, nothing else to do."""
    for length in _LONE_LENGTHS:
        text = np.arange(5, 5 + length)
        engine, times = engine_of(encoder, length), []
        for _ in range(5 if context.is_small else _LONE_RUNS):
            started_s = time.perf_counter()
            encode(engine, [text])
            times.append(1e3 * (time.perf_counter() - started_s))
        yield {"model": size.name, "tokens": length, "p50_ms": statistics.median(times), "most_ms": max(times)}
