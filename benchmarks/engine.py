"""Throughput of the engines in process, without HTTP: texts per second of the models themselves.

    python -m benchmarks.engine --quick

Every engine runs in its own process, so that threads and memory do not interfere, round after round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import uvloop

from benchmarks.accuracy import Vectors, normalized
from benchmarks.machine import facts
from benchmarks.peers import OTHER_ENCODERS, ROOT, model_folder, other_encoders
from benchmarks.texts import distinct_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

RESULT = Path(__file__).parent / "results" / "engine.json"

_BATCH = 32
_WARMUP_TEXTS = 64

Encode = Callable[[Sequence[str]], object]


def sentence_transformer(dtype: str, folder: Path | None = None) -> SentenceTransformer:
    """A model in sentence-transformers, on all cores.

    Args:
        dtype: "float32" or "bfloat16".
        folder: the served model's unless said.
    """
    from sentence_transformers import SentenceTransformer  # seconds of import, only in the process that measures it

    return SentenceTransformer(str(folder or model_folder()), device="cpu", model_kwargs={"dtype": dtype})


def _sentence_transformer_encode(dtype: str) -> Encode:
    model = sentence_transformer(dtype)
    return lambda texts: model.encode(list(texts), batch_size=_BATCH, normalize_embeddings=True)


def _service_encode(precision: Literal["auto", "exact", "bf16"], **settings: str) -> Encode:
    """This service without HTTP: tokenizer, queue and lanes, no cache."""
    from backend.bootstrap.services import build
    from backend.config import load_settings  # each child process imports one engine only

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    services = runner.run(build(load_settings(precision=precision, cache_enabled=False, **settings)))
    while services.classification.report()["pending"]:  # learnt in the background, beside what is measured
        runner.run(asyncio.sleep(1))
    return lambda texts: runner.run(services.embeddings.embed(list(texts)))


def engines() -> dict[str, Callable[[], Encode]]:
    """The engines by their name in the tables; the call loads the model."""
    others = {f"FinancIA Inference, auto, {OTHER_ENCODERS[name]}": OTHER_ENCODERS[name] for name in other_encoders()}
    return {
        "FinancIA Inference, auto": lambda: _service_encode("auto"),
        "FinancIA Inference, bf16": lambda: _service_encode("bf16"),
        "FinancIA Inference, exact": lambda: _service_encode("exact"),
        **{name: partial(_service_encode, "auto", embedding_model=source) for name, source in others.items()},
        "sentence-transformers fp32": lambda: _sentence_transformer_encode("float32"),
        "sentence-transformers bf16": lambda: _sentence_transformer_encode("bfloat16"),
    }


def texts_per_s(encode: Encode, texts: Sequence[str]) -> float:
    """The rate of one pass over ``texts`` after a short warm-up."""
    encode(texts[:_WARMUP_TEXTS])
    started_s = time.perf_counter()
    encode(texts)
    return len(texts) / (time.perf_counter() - started_s)


def reference_vectors(texts: Sequence[str], folder: Path | None = None) -> Vectors:
    """sentence-transformers' fp32 vectors, computed in a temporary process; shape (texts, width).

    Args:
        folder: the served model's unless said.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_reference, list(texts), folder).result()


def _reference(texts: list[str], folder: Path | None) -> Vectors:
    return normalized(sentence_transformer("float32", folder).encode(texts, batch_size=_BATCH).astype("float64"))


def _measure_in_subprocess(name: str, count: int, state: str) -> float:
    argv = [sys.executable, "-m", "benchmarks.engine", f"--one={name}", f"--texts={count}"]
    env = os.environ | {"STATE_DIR": state, "LOG_LEVEL": "WARNING"}
    completed = subprocess.run(argv, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return float(completed.stdout.splitlines()[-1])


def run(count: int, rounds: int) -> dict[str, object]:
    """All engines, ``rounds`` times in turn; medians with their spread."""
    environment = facts()
    rates: dict[str, list[float]] = {name: [] for name in engines()}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as state:  # the first round's tuning serves the others
        for index in range(rounds):
            for name, engine_rates in rates.items():
                engine_rates.append(_measure_in_subprocess(name, count, state))
                print(f"round {index + 1}: {name}: {engine_rates[-1]:.1f} texts/s", file=sys.stderr)
    return {
        **environment,
        "shape": {"texts": count, "batch": _BATCH, "rounds": rounds},
        "texts_per_s": {
            name: {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}
            for name, values in rates.items()
        },
    }


def main() -> None:
    """Measure every engine and write ``results/engine.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few texts, one round: for development")
    parser.add_argument("--one", choices=list(engines()), help="measure one engine in this process and print its rate")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULT)
    flags = parser.parse_args()
    if flags.one:
        print(texts_per_s(engines()[flags.one](), distinct_texts(flags.texts)))
        return
    count, rounds = (256, 1) if flags.quick else (flags.texts, flags.rounds)
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(json.dumps(run(count, rounds), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
