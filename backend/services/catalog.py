"""What is loaded now, and by which names a request may ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from backend.device.plan import Placement
from backend.errors import UnknownModel
from backend.ml.engine import Engine
from backend.models.residence import Resident
from backend.models.selection import Choice
from backend.models.spec import ModelSpec
from backend.models.tokens import TextTokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that answers."""

    spec: ModelSpec
    tokenizer: TextTokenizer
    engine: Engine
    placement: Placement
    choice: Choice
    names: tuple[str, ...]  # every name it answers to; the served one first
    created_s: float  # Unix time of loading, for OpenAI's list
    task: str = "embeddings"
    residents: tuple[Resident, ...] = ()  # its stay in memory, one a device
    labels: tuple[str, ...] = ()  # of a classifier, in the order of its probabilities

    @property
    def is_loaded(self) -> bool:
        """Whether a batch would find it in memory; an idle model comes back with the next one."""
        return not self.residents or any(resident.is_loaded for resident in self.residents)

    @property
    def name(self) -> str:
        """The served name."""
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

    def report(self) -> dict[str, object]:
        """Every choice made for this model, with its reasons."""
        return {
            "name": self.name,
            "task": self.task,
            "names": self.names,
            "source": self.spec.source,
            "revision": self.spec.revision,
            "sha256": self.spec.sha256,
            "width": self.spec.width,
            "max_tokens": self.spec.max_tokens,
            "pooling": self.spec.pooling.value,
            "normalize": self.spec.normalize,
            "device": self.device,
            "is_loaded": self.is_loaded,
            "labels": self.labels,
            "choice": asdict(self.choice),
        }


class Catalog:
    """The loaded models by task. Belongs to the loop; filled by the wiring, changed by the hot loader."""

    def __init__(self, embedding: LoadedModel, ner: LoadedModel | None = None) -> None:
        self._embedding, self._ner = embedding, ner

    def embedding(self, name: str | None = None) -> LoadedModel:
        """The embedding model, by any of its names or none. Raises: UnknownModel with the names there are."""
        if name is None or name in self._embedding.names:
            return self._embedding
        raise UnknownModel(name, self._embedding.names)

    def ner(self) -> LoadedModel | None:
        """The token classifier; None where none is configured."""
        return self._ner

    def replace(self, model: LoadedModel) -> LoadedModel | None:
        """Serve another model for its task from the next request on; the one it takes the place of, if any."""
        old: LoadedModel | None
        if model.task == self._embedding.task:
            old, self._embedding = self._embedding, model
        else:
            old, self._ner = self._ner, model
        return old

    def models(self) -> Sequence[LoadedModel]:
        """Everything that is loaded."""
        return [self._embedding, *([self._ner] if self._ner else [])]

    def find(self, name: str) -> LoadedModel:
        """Any loaded model, by any of its names. Raises: UnknownModel with the names there are."""
        for model in self.models():
            if name in model.names:
                return model
        raise UnknownModel(name, [known for model in self.models() for known in model.names])


def names_of(spec: ModelSpec, aliases: Sequence[str]) -> tuple[str, ...]:
    """The served name, its last part, its source and the configured aliases, each once."""
    return tuple(dict.fromkeys([spec.name, spec.name.rsplit("/", 1)[-1], spec.source, *aliases]))
