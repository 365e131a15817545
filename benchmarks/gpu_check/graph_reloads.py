"""Captured graphs under reloads: a graph that dies must take nothing with it that another replays on."""

import gc
from typing import Any

import numpy as np
import torch

from backend.models.encoder import normalized
from backend.models.model_files import resolve
from backend.models.runtimes import Candidate, load_encoder, warm_up
from benchmarks.gpu_check.context import Context, NotPossible
from benchmarks.gpu_check.encoders import encode, engine_of, placement_on
from benchmarks.gpu_check.made_models import E5_SMALL, TINY, make_model

_MODELS, _TEXTS, _ROUNDS = 8, 24, 4
_WRONG = 0.999  # cosine; one text's vector by two kernels differs by less


def measure(context: Context) -> dict[str, Any]:
    """Load models with their graphs, drop every other one, disturb the memory, and compare the others' vectors.

    Raises: NotPossible without a card.
    """
    if not context.is_cuda:
        raise NotPossible("graphs are captured on a card alone")
    spec = resolve(str(make_model(TINY if context.is_small else E5_SMALL, context.folder / "model")))
    candidate, placement = Candidate("torch-packed", "bf16"), placement_on(context.device)
    rng = np.random.default_rng(2)
    texts = [rng.integers(5, 200, length) for length in rng.integers(3, 300, _TEXTS)]
    encoders: list[Any] = []
    for _ in range(_MODELS):
        encoders.append(load_encoder(spec, candidate, placement))
        warm_up(encoders[-1], spec.max_tokens)
    expected = [_alone(encoder, texts) for encoder in encoders]
    wrong, least, compared = 0, 1.0, 0
    for _ in range(_ROUNDS):
        for place in range(0, _MODELS, 2):
            encoders[place] = None
        gc.collect()
        torch.cuda.empty_cache()
        noise = [torch.full((1 << 22,), torch.nan, device=context.device) for _ in range(64)]
        for place in range(1, _MODELS, 2):
            cosines = (_alone(encoders[place], texts) * expected[place]).sum(axis=1)
            wrong += int((~(cosines >= _WRONG)).sum())
            least, compared = min(least, float(np.nan_to_num(cosines, nan=-1.0).min())), compared + len(cosines)
        del noise
        for place in range(0, _MODELS, 2):
            encoders[place] = load_encoder(spec, candidate, placement)
            warm_up(encoders[place], spec.max_tokens)
            expected[place] = _alone(encoders[place], texts)
    graphs = sum(len(encoder.graphs) for encoder in encoders)
    return {"graphs": graphs, "compared": compared, "wrong": wrong, "cosine_min": least, "models": _MODELS}


def _alone(encoder: Any, texts: list[Any]) -> Any:
    engine = engine_of(encoder, 1 << 14)
    return normalized(np.concatenate([encode(engine, [text]) for text in texts]))
