"""The runtimes that the service could choose on a device, and loading an encoder on one of them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from backend.device.choice.selection import DeviceRequest
from backend.device.facts.machine import probe
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_source import Torch
from backend.device.plan.placement import Placement, place
from backend.errors import ModelUnavailable
from backend.lanes.engine import EncoderEngine, PinnedEncoder
from backend.models.encoder import Encoder, Ids, Vectors, ids_of
from backend.models.model_files import BUNDLED, MINILM, resolve
from backend.models.runtimes import Candidate, Runtime, candidates, load_encoder
from backend.models.spec import ModelSpec, Pooling
from backend.models.tokenizer import tokenizer_of
from backend.serving.engines.heads import EMBEDDINGS, PoolingHead
from benchmarks.gpu_check.made_models import E5_SMALL, make_model

_RUNTIMES = ("torch-packed", "torch")  # measured also where a start would not
_CARD_RUNTIMES = ("auto", *_RUNTIMES, "torch-compiled")  # compiling takes minutes on a CPU


def placement_on(device: str) -> Placement:
    """Where the service would run on this device."""
    return place(probe(driver=Nvml(), torch_source=Torch()), DeviceRequest(device))


def candidates_on(device: str, *, halves_only: bool = False) -> list[Candidate]:
    """What torch can run there: what a start would measure, and its padded and packed encoders in any case."""
    facts = probe(driver=Nvml(), torch_source=Torch())
    placement = place(facts, DeviceRequest(device))
    runtimes = _RUNTIMES if device == "cpu" else _CARD_RUNTIMES
    found = [each for name in runtimes for each in candidates(facts, placement, "auto", cast("Runtime", name))]
    return [each for each in dict.fromkeys(found) if not halves_only or each.dtype != "fp32"]


def one_of_each_runtime(found: Sequence[Candidate]) -> list[Candidate]:
    """The first dtype of each runtime: the best one."""
    return list({each.runtime: each for each in reversed(found)}.values())[::-1]


@contextmanager
def alone(result: dict[str, Any], candidate: Candidate) -> Iterator[None]:
    """Keeps a fault of one runtime from the others; it stands in the result's ``faults``."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the border to a runtime that may fail in any way
        why = (str(error).strip() or "no message").splitlines()[0][:300]
        result.setdefault("faults", {})[str(candidate)] = f"{type(error).__name__}: {why}"


def load(folder: Path, candidate: Candidate, device: str) -> Encoder:
    """The encoder of a model folder on one runtime."""
    return load_encoder(resolve(str(folder)), candidate, placement_on(device))


def real_model(folder: Path) -> ModelSpec:
    """EMBEDDING_MODEL, else a bundled encoder; where none is installed, one with fresh weights in ``folder``."""
    for source in (os.environ.get("EMBEDDING_MODEL", ""), BUNDLED, MINILM):
        if source:
            try:
                return resolve(source)
            except ModelUnavailable:
                continue
    return resolve(str(make_model(E5_SMALL, folder)))


def token_ids(spec: ModelSpec, texts: Sequence[str]) -> list[Ids]:
    """An engine's payload of each text."""
    return [ids_of(tokens.payload) for tokens in tokenizer_of(spec).encode(list(texts))]


def engine_of(encoder: Encoder, budget: int) -> EncoderEngine:
    """The embedding task on this encoder, as the service's lanes run it."""
    return EncoderEngine(EMBEDDINGS, PinnedEncoder(encoder), PoolingHead(Pooling.MEAN), budget)


def encode(engine: EncoderEngine, texts: Sequence[Ids]) -> Vectors:
    """The vectors of one batch: (texts, width)."""
    return np.stack([_vector(result) for result in engine.finish(engine.forward(engine.prepare(texts)))])


def encode_two_deep(engine: EncoderEngine, batches: Sequence[Sequence[Ids]]) -> None:
    """Encode as a lane of depth 2 does: the next batch is queued before the last one's vectors are waited for."""
    waiting: Any = None
    for texts in batches:
        output = engine.forward(engine.prepare(texts))
        if waiting is not None:
            engine.finish(waiting)
        waiting = output
    if waiting is not None:
        engine.finish(waiting)


def _vector(result: Any) -> Vectors:
    if isinstance(result, Exception):
        raise result
    vector: Vectors = result
    return vector
