"""Writes a summary with the model of SUMMARY_MODEL, on lanes of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from backend.errors import CallerGone, DeadlineExceeded
from backend.lanes.batcher import Batcher
from backend.lanes.inference import Urgency, UsageCounter, run_one
from backend.lanes.text_work import TextWork
from backend.models.encoder import Ids
from backend.models.generation import Generation
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.generation import TASK
from backend.summaries.records import DEFAULT_TOKENS, Method, SummaryOptions
from backend.summaries.writing import Reading, Writer, Written
from backend.text.language import Language

_SPECIAL_TOKENS = 4  # at most, around a text


@dataclass(frozen=True, slots=True)
class ModelWriter:
    """One loaded model, for one request; a Writer."""

    model: LoadedModel
    lanes: Batcher
    text_work: TextWork
    usage: UsageCounter

    @property
    def method(self) -> Method:
        return "model"

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def most_read_tokens(self) -> int:
        prefix = sum(self.count_tokens([self._prefix])) if self._prefix else 0
        return max(1, self.model.spec.max_tokens - prefix - _SPECIAL_TOKENS)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        encodings = self.model.tokenizer.encodings(list(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    async def write(
        self,
        reading: Reading,
        options: SummaryOptions,
        language: Language | None,  # noqa: ARG002 - the protocol's; the model writes the language it was trained for
        urgency: Urgency,
    ) -> Written:
        """The text that the model makes of it. A caller that leaves, or whose time is over, frees the lane at once."""
        encode = partial(self._encode, self._prefix + reading.text)
        [tokens] = await self.text_work.run_slices(encode, [reading.text], [len(reading.text)])
        ids = await self._generate(tokens, options, urgency)
        text = self.model.tokenizer.decode(ids)
        count = len(tokens) + len(ids)
        self.usage.count(1, count)
        return Written(text, self.name, count)

    async def _generate(self, ids: Ids, options: SummaryOptions, urgency: Urgency) -> Ids:
        left = threading.Event()  # set on the loop, read on the lane

        def is_wanted() -> bool:
            return not left.is_set() and time.monotonic() < urgency.deadline_s

        most = options.max_tokens or max(DEFAULT_TOKENS, options.min_tokens)
        task = Generation(ids, most, options.min_tokens, options.beams, is_wanted)
        try:
            written: Ids = await run_one(self.lanes, self.model.engine, task, task.cost, urgency)
            return written
        except CallerGone as error:  # the caller waits here, so it is its time that is over
            raise DeadlineExceeded(0.0, "the time of the request was over while its summary was written") from error
        finally:
            left.set()

    def _encode(self, text: str, _: Sequence[Any]) -> list[Ids]:
        return [tokens.ids for tokens in self.model.tokenizer.encode([text])]

    @property
    def _prefix(self) -> str:
        """What the model wants before a text to summarise, as T5's "summarize: "."""
        special = self.model.spec.config.get("task_specific_params") or {}
        return str((special.get("summarization") or {}).get("prefix") or "")


@dataclass(frozen=True, slots=True)
class Writers:
    """Who can write a summary here. The model may be loaded, or replaced, while the service runs."""

    catalog: Catalog
    lanes: Batcher  # of their own: a text must not wait for a summary
    text_work: TextWork
    usage: UsageCounter
    chat: Writer | None = None  # SUMMARY_URL

    def model(self) -> Writer | None:
        """SUMMARY_MODEL; None where none is set. Raises: ModelPending where one is set and the hub is away."""
        loaded = self.catalog.of(TASK)
        if loaded is None:
            pending = self.catalog.pending.of(TASK)
            if pending is not None:
                self.catalog.pending.check(pending.names[0])
            return None
        return ModelWriter(loaded, self.lanes, self.text_work, self.usage)

    def api(self) -> Writer | None:
        """None where SUMMARY_URL is not set."""
        return self.chat
