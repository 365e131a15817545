"""The spans of work on lanes: of a batch, with a link to each request in it, and of a request's part in batches."""

from __future__ import annotations

from collections.abc import Sequence

from backend.lanes.lane import BatchResult
from backend.lanes.work_item import WorkItem
from backend.tracing.spans import LINKS_MAX, record


def trace_batch(result: BatchResult, *, tokens: int, failed: int) -> None:
    """Record the batch and its stages, where a request in it is sampled. Runs on the lane.

    The batch belongs to the trace of its oldest sampled item, and links to the spans of the others; each item learns
    the batch's identity, so that its own trace can link to it.
    """
    batch = result.batch
    recorded = [item.span for item in batch.items if item.span is not None]
    if not recorded:
        return
    spans = {span.context: span for span in recorded}
    first, *others = spans.values()
    span = first.child("batch", started_s=batch.items[0].started_s)
    span.links = [other.context for other in others[:LINKS_MAX]]
    costs = batch.costs
    span.attributes |= {
        "financia.engine": batch.engine.name,
        "financia.batch.items": len(costs),
        "financia.batch.requests": len(spans),  # sampled ones
        "financia.batch.tokens": tokens,
        "financia.batch.padding_ratio": round(1 - tokens / max(1, max(costs) * len(costs)), 4),
    }
    if failed or result.split:
        span.attributes |= {"financia.batch.failed_items": failed, "financia.batch.split": result.split}
    for name, started_s, ended_s in (
        ("prepare", span.started_s, batch.prepared_s),
        ("forward", batch.prepared_s, batch.launched_s),
        ("finish", batch.awaited_s, result.finished_s),
    ):
        if 0 < started_s <= ended_s:
            span.child(name, started_s=started_s).end(ended_s)
    span.end(result.finished_s)
    for item in batch.items:
        item.batch_span = span.context


def record_items(items: Sequence[WorkItem]) -> None:
    """The time of one request's items in the queue and in batches, as Server-Timing has it, with links to the batches.

    Items that joined those of another request may have begun before this one did.
    """
    ran = [item for item in items if item.finished_s]
    if not ran:
        return
    enqueued_s, started_s = min(item.enqueued_s for item in ran), max(item.started_s for item in ran)
    attributes = {"financia.inputs": len(ran), "financia.tokens": sum(item.cost for item in ran)}
    batches = list({item.batch_span: None for item in ran if item.batch_span is not None})
    record("queue", enqueued_s, started_s, attributes)
    first_s, last_s = min(item.started_s for item in ran), max(item.finished_s for item in ran)
    record("inference", first_s, last_s, attributes, batches)
