"""Builds the summary service: who writes summaries, on which lanes, and what they are checked against."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

from backend.config import Settings
from backend.device.records import DeviceType
from backend.lanes.batcher import Batcher
from backend.lanes.inference import Inference, UsageCounter
from backend.lanes.work_queue import QueueLimits
from backend.serving.engines.generation import TASK
from backend.serving.loading import LoadContext
from backend.summaries.service import SummaryService, SupportFinder
from backend.summaries.writers import ChatApi, ChatWriter, Writers
from backend.text.analysis import AnalysisService

_NICENESS = 10  # of a lane on the CPU: a summary takes seconds, and no text should wait for it


@dataclass(frozen=True, slots=True)
class SummaryRuntime:
    """Summaries with the lanes and connections that only they use."""

    service: SummaryService
    lanes: Batcher
    chat: ChatWriter | None

    def report(self) -> dict[str, Any]:
        """For GET /v1/system; the key of the API is not in it."""
        return {"lanes": asdict(self.lanes.status()), "api": None if self.chat is None else self.chat.report()}

    async def close(self, drain_s: float) -> None:
        """Finish what was accepted."""
        await self.lanes.drain(drain_s)
        if self.chat is not None:
            await self.chat.close()


def build_summaries(
    settings: Settings, context: LoadContext, inference: Inference, analysis: AnalysisService, support: SupportFinder
) -> SummaryRuntime:
    """The summary service, its lanes started: one a device, beside those of texts."""
    catalog, telemetry, placements = support.catalog, context.telemetry, context.placements
    niceness = _NICENESS if placements[0].type is DeviceType.CPU else 0
    limits = QueueLimits(settings.limit_queue_tokens)
    lanes = Batcher(1, limits, telemetry, devices=len(placements), niceness=niceness)
    lanes.start(asyncio.get_running_loop())
    chat = None
    if settings.summary_url:
        api = ChatApi(settings.summary_url, settings.summary_url_model, settings.summary_url_key)
        chat = ChatWriter(api, catalog, UsageCounter(telemetry, TASK))
    writers = Writers(catalog, lanes, inference.text_work, UsageCounter(telemetry, TASK), chat)
    return SummaryRuntime(SummaryService(analysis, writers, support), lanes, chat)
