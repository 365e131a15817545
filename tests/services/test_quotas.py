"""Quotas a minute: buckets that refill evenly, debt, and what the answers say of them."""

from __future__ import annotations

import pytest

from backend.errors import QuotaExceeded
from backend.services.callers import Caller, Quotas
from backend.services.quotas import NO_METER, Bucket, Meter, Meters
from backend.telemetry import Telemetry
from tests.fakes import ManualClock


def meter_of(quotas: Quotas, clock: ManualClock, telemetry: Telemetry | None = None) -> Meter:
    meters = Meters(telemetry or Telemetry(), clock=clock)
    meters.open([Caller("team", "owner", quotas=quotas)])
    return meters.of("owner")


def test_a_minutes_worth_at_once_then_evenly():
    """All of it may be used at once; then each unit is there when it is refilled."""
    clock = ManualClock()
    meter = meter_of(Quotas(requests_per_minute=6), clock)

    for _ in range(6):
        meter.admit()
    with pytest.raises(
        QuotaExceeded, match=r"has used 6 .* quota is 6 \(QUOTA_REQUESTS_PER_MINUTE\).* 10\.0 s"
    ) as full:
        meter.admit()
    assert pytest.approx(10.0) == full.value.retry_after_s
    clock.advance(9.99)
    with pytest.raises(QuotaExceeded):
        meter.admit()
    clock.advance(0.01)
    meter.admit()
    clock.advance(1e6)  # what is not used is not saved up
    for _ in range(6):
        meter.admit()
    with pytest.raises(QuotaExceeded):
        meter.admit()


@pytest.mark.parametrize("limit", [1, 7, 60, 1000, 99_991])
def test_exactly_the_quota(limit: int):
    """No rounding error takes or gives a request."""
    clock = ManualClock(123_456.789)
    meter = meter_of(Quotas(requests_per_minute=limit), clock)
    for _ in range(limit):
        meter.admit()

    with pytest.raises(QuotaExceeded):
        meter.admit()
    clock.advance(60 / limit)
    meter.admit()


def test_debt():
    """Tokens are charged after the fact; who used three minutes' worth waits until there is one again."""
    clock = ManualClock()
    meter = meter_of(Quotas(tokens_per_minute=600), clock)
    meter.require("tokens")
    meter.charge("tokens", 1800)

    with pytest.raises(QuotaExceeded, match=r"used 1800 .* 600 \(QUOTA_TOKENS") as refused:
        meter.require("tokens")
    assert pytest.approx(120.1) == refused.value.retry_after_s
    meter.require("pages")  # of which there is no quota
    meter.admit()
    clock.advance(120.1)
    meter.require("tokens", "pages")


def test_what_the_answers_say():
    """RateLimit and RateLimit-Policy, by the draft's syntax; an empty bucket's reset is what Retry-After says."""
    clock = ManualClock()
    meter = meter_of(Quotas(requests_per_minute=6, tokens_per_minute=600), clock)
    meter.admit()
    meter.charge("tokens", 700)

    assert (
        (b"ratelimit-policy", b'"requests";q=6;w=60, "tokens";q=600;w=60;qu="tokens"'),
        (b"ratelimit", b'"requests";r=5;t=10, "tokens";r=0;t=11'),
    ) == meter.headers()


def test_without_quotas():
    """A caller without any is counted and never refused; its answers have no headers of quotas."""
    telemetry, clock = Telemetry(), ManualClock()
    meter = meter_of(Quotas(), clock, telemetry)
    for _ in range(1000):
        meter.admit()
    meter.charge("tokens", 10**9)
    meter.require("requests", "tokens", "pages")
    meter.count(499)

    assert () == meter.headers()
    assert 1e9 == telemetry.key_tokens_total.labels("team")._value.get()
    assert 1 == telemetry.key_requests_total.labels("team", "4xx")._value.get()


def test_refusals_are_counted():
    """By the caller's name and the quota."""
    telemetry = Telemetry()
    meter = meter_of(Quotas(pages_per_minute=1), ManualClock(), telemetry)
    meter.charge("pages", 1)

    with pytest.raises(QuotaExceeded):
        meter.require("pages")
    assert 'financia_quota_exceeded_total{key="team",quota="pages"} 1.0' in telemetry.render().decode()


def test_callers_that_are_not_metered():
    """Nothing is counted for an owner that is in no settings, such as the job of a key that was withdrawn."""
    meters = Meters(Telemetry())

    assert NO_METER is meters.of("gone")
    meters.of("gone").charge("pages", 5)
    meters.of("gone").admit()


def test_opened_twice():
    """What was used stays used: the app opens the callers that the services opened before."""
    meters = Meters(Telemetry(), clock=ManualClock())
    caller = Caller("team", "owner", quotas=Quotas(requests_per_minute=1))
    meters.open([caller])
    meters.of("owner").admit()
    meters.open([caller])

    with pytest.raises(QuotaExceeded):
        meters.of("owner").admit()


def test_usage_shows_debt():
    """A bucket counts what it did not have."""
    bucket = Bucket("tokens", 10, clock=ManualClock())
    bucket.charge(25)

    assert (25, (0, pytest.approx(96.0))) == (bucket.used, bucket.left())
