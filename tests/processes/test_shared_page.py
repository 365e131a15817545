"""Quotas and text limits that several processes share."""

import os

import pytest

from backend.callers.callers import read_key_ring
from backend.config import Settings
from backend.errors import Overloaded
from backend.lanes.text_work import TextLimits, TextWork
from backend.processes.shared_page import SharedPage
from backend.telemetry import Telemetry, add_snapshots, without_gauges

SETTINGS = Settings(server_processes=2, api_keys=("shop=a", "bank=b"), quota_requests_per_minute=10)


@pytest.fixture
def pages():
    """The page as the service process and its two workers have it."""
    owners = [caller.owner for caller in read_key_ring(SETTINGS.api_keys).callers]
    first = SharedPage.create(SETTINGS, owners)
    pages = [first, *(SharedPage.open(first.descriptor, SETTINGS, place, first.owners) for place in (1, 2))]
    yield pages
    os.close(first.descriptor)


def test_a_bucket_counts_what_all_processes_charge(pages):
    """Not another caller's, and not another kind's."""
    callers = read_key_ring(SETTINGS.api_keys).callers
    levels = [page.level(callers[0].owner, "requests") for page in pages]
    for number, level in enumerate(levels):
        level.add(100.0, 6.0 + number)
    others = [pages[0].level(callers[1].owner, "requests"), pages[0].level(callers[0].owner, "tokens")]

    assert [121.0] * 3 == [level.full_at_s for level in levels]
    assert [0.0, 0.0] == [level.full_at_s for level in others]


def test_characters_elsewhere_count(pages):
    """A long text in one process leaves less room in another; those of an ended process are given back."""
    works = [TextWork(Telemetry(), TextLimits(10_000, 20_000)) for _ in pages[1:]]
    for work, page in zip(works, pages[1:], strict=True):
        work.share(page.hold_characters, page.characters_elsewhere)
    with works[0].admit(9_000), works[0].admit(8_000):
        with pytest.raises(Overloaded, match="17000 characters"), works[1].admit(9_000):
            pass
        pages[0].clear(1)
        with works[1].admit(9_000):
            pass
    for work in works:
        work.close()


async def test_one_scrape_tells_all_processes():
    """Counters and histograms are summed, also series that this process lacks; of other gauges this process's hold."""
    service, worker = Telemetry(), Telemetry()
    for telemetry, count in ((service, 2), (worker, 5)):
        telemetry.inputs_total.labels("embeddings").inc(count)
        telemetry.request_duration_seconds.labels("/v1/embeddings").observe(0.003)
        telemetry.queue_jobs.set(count)
        telemetry.connections.set(count)
    worker.requests_total.labels("/only-here", "200").inc(3)
    ended = without_gauges(worker.snapshot())

    async def others():
        return [worker.snapshot(), add_snapshots(ended, ended)]

    service.add_others(others)
    lines = (await service.render_all()).decode().splitlines()
    numbers = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    assert "17.0" == numbers['financia_inputs_total{task="embeddings"}']
    assert "4.0" == numbers['financia_request_duration_seconds_count{route="/v1/embeddings"}']
    assert "4.0" == numbers['financia_request_duration_seconds_bucket{le="0.005",route="/v1/embeddings"}']
    assert "9.0" == numbers['financia_requests_total{route="/only-here",status="200"}']
    assert ("2.0", "7.0") == (numbers["financia_queue_jobs"], numbers["financia_connections"])
