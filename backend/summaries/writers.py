"""Who writes summaries in this process: the model of SUMMARY_MODEL, the API of SUMMARY_URL, or nobody."""

from __future__ import annotations

from dataclasses import dataclass

from backend.lanes.batcher import Batcher
from backend.lanes.inference import Usage
from backend.lanes.text_work import TextWork
from backend.serving.catalog import Catalog
from backend.serving.engines.generation import TASK
from backend.summaries.model_writer import ModelWriter
from backend.summaries.writing import Writer


class NoWriters:
    """Neither SUMMARY_MODEL nor SUMMARY_URL is set. A null object."""

    def model(self) -> Writer | None:
        return None

    def api(self) -> Writer | None:
        return None


@dataclass(frozen=True, slots=True)
class ConfiguredWriters:
    """Those of the settings; the model may be loaded, or replaced, while the service runs."""

    catalog: Catalog
    lanes: Batcher  # of their own: a text must not wait for a summary
    text_work: TextWork
    usage: Usage
    chat: Writer | None  # SUMMARY_URL

    def model(self) -> Writer | None:
        """The model that is loaded. Raises: ModelPending where one is set and the hub is away."""
        loaded = self.catalog.of(TASK)
        if loaded is None:
            pending = self.catalog.pending.of(TASK)
            if pending is not None:
                self.catalog.pending.check(pending.names[0])
            return None
        return ModelWriter(loaded, self.lanes, self.text_work, self.usage)

    def api(self) -> Writer | None:
        return self.chat
