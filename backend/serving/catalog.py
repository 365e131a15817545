"""The loaded models, and the names by which a request may select them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backend.device.plan.placement import Placement
from backend.errors import UnknownModel
from backend.lanes.cache.store import CacheNamespace
from backend.lanes.engine import Engine, UnloadableEncoder
from backend.models.autotune import Choice
from backend.models.fingerprint import arithmetic_key
from backend.models.model_files import BUNDLED, BUNDLED_DEFAULT, BUNDLED_SOURCES
from backend.models.resting_process import Work
from backend.models.sequence_head import SequenceHead
from backend.models.spec import ModelSpec
from backend.models.tokenizer import TextTokenizer
from backend.serving.engines.heads import EMBEDDINGS
from backend.serving.pending_models import PendingModels


@dataclass(frozen=True, slots=True)
class AfterStart:
    """What is done for a model on a CPU when it serves already; nothing here is urgent."""

    warm_up: Callable[[], None]  # load it where it is not yet, and compile what early requests need; on a thread
    load: Callable[[], LoadedModel]  # it again, by what is known by then; on a thread
    measure: Work | None = None  # the runtimes; None where they are measured
    measured: Callable[[], Choice | None] = lambda: None  # what was chosen since; on a thread


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that serves requests."""

    spec: ModelSpec
    tokenizer: TextTokenizer
    engine: Engine
    token_engine: Engine  # gives its token vectors, on the same encoders
    placement: Placement
    choice: Choice
    names: tuple[str, ...]  # every name it answers to; the served one first
    created_s: float  # Unix time of loading, for OpenAI's list
    task: str = EMBEDDINGS
    residents: tuple[UnloadableEncoder[Any], ...] = ()  # its encoders in memory, one a device
    labels: tuple[str, ...] = ()  # of a classifier, in the order of its results
    head: SequenceHead | None = None  # of a sequence classifier
    activations: str = ""  # `runtimes.activations` of this processor
    after_start: AfterStart | None = None  # None where nothing is left to do

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory; an idle model is loaded again by the next batch."""
        return not self.residents or any(resident.is_loaded for resident in self.residents)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def runtime(self) -> str:
        """What executes it: "torch", "onnx" or "openvino"."""
        return self.choice.runtime

    @property
    def dtype(self) -> str:
        """The arithmetic of its linear layers."""
        return self.choice.dtype

    @property
    def device(self) -> str:
        """Where it runs, as torch names it."""
        return self.placement.device

    def namespace(self, *parameters: str) -> CacheNamespace:
        """Cache keys for this model's output, in this runtime and dtype, under these task parameters."""
        arithmetic = arithmetic_key(self.dtype, self.activations)
        return CacheNamespace(self.spec.fingerprint, self.runtime, arithmetic).narrow(*parameters)

    def report(self) -> dict[str, object]:
        """Every choice made for this model, with its reasons."""
        return {
            "name": self.name,
            "task": self.task,
            "names": self.names,
            "source": self.spec.source,
            "revision": self.spec.revision,
            "sha256": self.spec.sha256,
            "fingerprint": self.spec.fingerprint,
            "width": self.spec.width,
            "max_tokens": self.spec.max_tokens,
            "pooling": self.spec.pooling.value,
            "normalize": self.spec.normalize,
            "device": self.device,
            "is_loaded": self.is_loaded,
            "labels": self.labels,
            "choice": asdict(self.choice),
            "cuda_graphs": [graphs for resident in self.residents if (graphs := resident.graphs()) is not None],
        }


class Catalog:
    """The loaded models by task; there is always one for embeddings. Belongs to the loop; changed by ModelSwapper.

    Args:
        pending: those that are set and not loaded yet.
    """

    def __init__(self, embedding: LoadedModel, *others: LoadedModel, pending: PendingModels | None = None) -> None:
        self._models = {model.task: model for model in (embedding, *others)}
        self.pending = pending or PendingModels()

    def embedding(self, name: str | None = None) -> LoadedModel:
        """The embedding model, by any of its names or none.

        Raises: UnknownModel with the known names; ModelPending for a name of a model that is not loaded yet.
        """
        model = self._models[EMBEDDINGS]
        if name is None or name in model.names:
            return model
        raise self.unknown(name, model.names, aliases="MODEL_ALIASES")

    def of(self, task: str) -> LoadedModel | None:
        """The model of a task; None where none is configured."""
        return self._models.get(task)

    def replace(self, model: LoadedModel) -> LoadedModel | None:
        """Serve this model for its task from the next request on; returns the one it replaces, if any."""
        old = self.of(model.task)
        self._models[model.task] = model
        self.pending.settle(model.task)
        return old

    def models(self) -> Sequence[LoadedModel]:
        return list(self._models.values())

    def fingerprints(self) -> str:
        """One short string for all that is loaded: equal while each task's outputs are those of the same model."""
        return " ".join(f"{task}:{self._models[task].spec.fingerprint[:16]}" for task in sorted(self._models))

    def find(self, name: str) -> LoadedModel:
        """Any loaded model, by any of its names. Raises: as ``embedding``."""
        for model in self.models():
            if name in model.names:
                return model
        raise self.unknown(name, [known for model in self.models() for known in model.names])

    def unknown(self, name: str, known: Sequence[str], *, aliases: str = "") -> UnknownModel:
        """The error for a name that no loaded model has. Raises: ModelPending where one will have it."""
        self.pending.check(name)
        return UnknownModel(name, known, aliases=aliases)


def served_names(spec: ModelSpec, aliases: Sequence[str]) -> tuple[str, ...]:
    """The served name, its last part, its source and the configured aliases, each once.

    Whichever encoder of the service serves, "bundled" names it: requests as documented work with each.
    """
    bundled = {BUNDLED: [BUNDLED_DEFAULT]}.get(spec.source, [BUNDLED]) if spec.source in BUNDLED_SOURCES else []
    return tuple(dict.fromkeys([spec.name, spec.name.rsplit("/", 1)[-1], spec.source, *bundled, *aliases]))
