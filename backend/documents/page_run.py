"""Runs the parts of one page on lanes, and counts what the page costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.lanes.batcher import Batcher
from backend.lanes.bulk_retry import retry_bulk
from backend.lanes.engine import Engine
from backend.lanes.inference import Urgency
from backend.lanes.policy import portions
from backend.lanes.work_item import WorkItem
from backend.ocr.page_time import PageBudget
from backend.ocr.records import OcrImage

_PIXELS_A_TOKEN = 256  # a page then weighs in the queue what texts of the same time on a lane do


@dataclass(slots=True)
class PageRun:
    """One page that is read: how urgent it is, and what it has cost."""

    image: OcrImage
    urgency: Urgency
    on_device: bool = False  # RapidOCR runs on a device: its lanes wait while that works, which is what counts
    lane_s: float = 0.0  # all lanes and engines together

    def spend(self, item: WorkItem, budget: PageBudget) -> bool:
        """Count an item that has ended; True when nothing is left of the budget."""
        budget.spend(item.lane_s if self.on_device else item.work_s)
        return budget.left_s <= 0


def page_cost(pixels: NDArray[np.uint8]) -> int:
    """Tokens that a page or a part of it counts in the queue."""
    height, width_px = pixels.shape[:2]
    return max(1, int(height * width_px) // _PIXELS_A_TOKEN)


async def run_one(lanes: Batcher, engine: Engine, payload: Any, cost: int, run: PageRun) -> Any:
    """The result of one payload."""
    [value] = await _run(lanes, engine, [payload], [cost], run)
    return value


async def run_within(
    budget: PageBudget, lanes: Batcher, engine: Engine, payloads: Sequence[Any], *, costs: Sequence[int], run: PageRun
) -> list[Any]:
    """The results in order, up to the one with which the budget is spent; those after it are given up.

    They go in portions that the queue can hold: none of them is refused for its neighbours.
    """
    results: list[Any] = []
    for part in portions(costs, lanes.bulk_tokens):
        if budget.left_s > 0:
            results += await _run(lanes, engine, payloads[part], costs[part], run, budget=budget)
    return results


async def _run(
    lanes: Batcher,
    engine: Engine,
    payloads: Sequence[Any],
    costs: Sequence[int],
    page: PageRun,
    *,
    budget: PageBudget | None = None,
) -> list[Any]:
    """The results in order, up to the budget. Bulk work that the lanes refuse for now is tried again."""
    priority, deadline_s = page.urgency

    async def run() -> list[Any]:
        items = lanes.submit(engine, payloads, costs, priority=priority, deadline_s=deadline_s)
        values: list[Any] = []
        try:
            for item in items:
                values.append(await item.future)
                if budget is not None and page.spend(item, budget):
                    break
        finally:
            page.lane_s += sum(item.lane_s for item in items)
            for item in items:
                item.abandon()  # when one fails or the caller leaves, those that still wait are dropped
        return values

    return await retry_bulk(page.urgency, run)
