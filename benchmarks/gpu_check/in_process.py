"""The service without HTTP (tokenizer, queue, lanes) beside sentence-transformers: the same card, texts, weights."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvloop

from backend.models.model_files import resolve
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.encoders import token_ids
from benchmarks.gpu_check.made_models import BASE, E5_SMALL, TINY, make_model
from benchmarks.gpu_check.targets import MIXED, SERVICE
from benchmarks.texts import distinct_texts

_TEXTS, _ROUNDS, _CHUNK = 8192, 3, 512
_JOINED = 7  # texts that make a long one

Encode = Callable[[Sequence[str]], object]


def measure(context: Context) -> dict[str, Any]:
    """Rows of texts and tokens a second; rounds of both are interleaved, medians count."""
    result: dict[str, Any] = {"rows": []}
    for size in (TINY,) if context.is_small else (E5_SMALL, BASE):
        folder = make_model(size, context.folder / size.name)
        short = list(distinct_texts(64 if context.is_small else _TEXTS))
        long = [" ".join(short[first : first + _JOINED]) for first in range(0, len(short), _JOINED)]
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        services, ours = _service(runner, folder, context)
        encoders = {SERVICE: ours, **_sentence_transformers(folder, context)}
        for name, texts in ((MIXED, short), ("long texts", long)):
            tokens = sum(len(text) for text in token_ids(resolve(str(folder)), texts))
            rates = _rates(encoders, texts, 1 if context.is_small else _ROUNDS)
            for encoder, values in rates.items():
                rate = statistics.median(values)
                row = {"model": size.name, "texts": name, "encoder": encoder, "texts_per_s": rate}
                row |= {"least": min(values), "most": max(values), "tokens_per_s": rate * tokens / len(texts)}
                result["rows"].append(row)
            context.keep(result)
        runner.run(services.close())
        runner.close()
    return result


def _service(runner: asyncio.Runner, folder: Path, context: Context) -> tuple[Any, Encode]:
    from backend.bootstrap.services import build  # after _prepare of the part's process
    from backend.config import load_settings

    settings = load_settings(
        embedding_model=str(folder),
        device=context.device,
        lanes=1,
        precision="bf16" if context.is_cuda else "fp32",
        ner_model="none",
        speech_model="none",
        cache_enabled=False,
        limit_queue_tokens=1 << 26,
        state_dir=context.folder / f"state-{folder.name}",
    )
    services = runner.run(build(settings))

    async def embed(texts: Sequence[str]) -> None:
        chunks = [list(texts[first : first + _CHUNK]) for first in range(0, len(texts), _CHUNK)]
        await asyncio.gather(*(services.embeddings.embed(chunk) for chunk in chunks))

    return services, lambda texts: runner.run(embed(texts))


def _sentence_transformers(folder: Path, context: Context) -> dict[str, Encode]:
    """At the batch sizes that its users take; nothing where it is not installed."""
    if find_spec("sentence_transformers") is None:
        return {}
    from sentence_transformers import SentenceTransformer  # seconds of import

    kwargs = {"dtype": "bfloat16"} if context.is_cuda else {}
    model = SentenceTransformer(str(folder), device=context.device, model_kwargs=kwargs)

    def encoder(size: int) -> Encode:
        return lambda texts: model.encode(list(texts), batch_size=size, normalize_embeddings=True)

    return {f"sentence-transformers, batches of {size}": encoder(size) for size in (256, 1024)}


def _rates(encoders: dict[str, Encode], texts: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Texts a second of each encoder, round after round, after one pass that compiles the shapes."""
    rates: dict[str, list[float]] = {name: [] for name in encoders}
    for encode in encoders.values():
        encode(texts)
    for _ in range(rounds):
        for name, encode in encoders.items():
            started_s = time.perf_counter()
            encode(texts)
            rates[name].append(len(texts) / (time.perf_counter() - started_s))
    return rates
