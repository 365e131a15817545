"""The engine that writes summaries: a sequence-to-sequence model, batches of texts, one result each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.errors import FinanciaError
from backend.lanes.engine import BatchLimits, EncoderSource, UnlimitedBatches
from backend.models.encoder import Ids
from backend.models.generation import Generation, Generator

TASK = "summaries"  # the engine's name, and a label of its metrics
_CANARY_TOKENS = 4


@dataclass(frozen=True, slots=True)
class GenerationEngine:
    """One model on one device. Payload: `Generation`, or the ids alone of a first trial."""

    source: EncoderSource[Generator]
    budget: int  # padded tokens of a batch, those to write included
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    name: str = TASK
    launch_cost: int = 0

    @property
    def padding_cost(self) -> float:
        return self.source.padding_cost

    def on(self, device_index: int) -> GenerationEngine:  # noqa: ARG002 - this engine has one device only
        return self

    def prepare(self, payloads: Sequence[Generation | Ids]) -> tuple[Generator, list[Generation]]:
        """The model, which is loaded here if it was unloaded, and its tasks."""
        tasks = [
            payload if isinstance(payload, Generation) else Generation(payload, _CANARY_TOKENS) for payload in payloads
        ]
        return self.source.get(), tasks

    def forward(self, prepared: tuple[Generator, list[Generation]]) -> list[Ids | FinanciaError]:
        """Write token by token; every token asks the tasks whether they are wanted."""
        generator, tasks = prepared
        return generator.generate(tasks)

    def finish(self, output: list[Ids | FinanciaError]) -> Sequence[Ids | FinanciaError]:
        return output
