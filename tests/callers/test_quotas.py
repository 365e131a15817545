"""Quotas a minute: buckets that refill evenly, debt, and what the answers say of them."""

import pytest

from backend.callers.callers import NO_METER, Caller, Meter, Quotas
from backend.callers.quotas import MAX_LABELS, Meters
from backend.errors import QuotaExceeded
from backend.telemetry import Telemetry
from tests.fakes import ManualClock

PAGES = "financia_key_pages_total{"


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


def test_quotas_that_change():
    """From the next request on; what was used stays the same part, and a caller without quotas has none."""
    clock = ManualClock()
    meters = Meters(Telemetry(), clock=clock)
    meters.open([Caller("team", "owner", quotas=Quotas(requests_per_minute=10, tokens_per_minute=100))])
    for _ in range(5):
        meters.of("owner").admit()
    meter = meters.of("owner")
    meters.replace([Caller("team", "owner", quotas=Quotas(requests_per_minute=4, in_file=("requests_per_minute",)))])
    [bucket] = meters.buckets("owner")

    assert (2, (2, pytest.approx(30.0))) == (bucket.used, bucket.left())
    meter.admit()  # of a request that began before the change
    meter.admit()
    with pytest.raises(QuotaExceeded, match=r"its quota is 4 \(requests_per_minute in the keys file\)"):
        meter.admit()
    meters.replace([Caller("team", "owner")])
    meter.admit()
    assert () == meter.headers()


def test_a_caller_that_leaves_and_one_that_comes():
    """Its series go with it; who comes back begins anew."""
    telemetry = Telemetry()
    meters = Meters(telemetry, clock=ManualClock())
    meters.open([Caller("one", "1"), Caller("two", "2")])
    meters.of("1").charge("tokens", 5)
    meters.replace([Caller("two", "2"), Caller("three", "3")])
    names = {name for name in ("one", "two", "three") if f'key="{name}"' in telemetry.render().decode()}

    assert {"two", "three"} == names
    assert NO_METER is meters.of("1")


def counted(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(f"financia_{name}", labels)


def labels_of(telemetry: Telemetry) -> set[str]:
    return {row.split('"')[1] for row in telemetry.render().decode().splitlines() if row.startswith(PAGES)}


def test_labels_are_bounded():
    """Callers beyond them share one series, and are still apart in their quotas; a place that is left is taken.

    By their order alone: a process that starts later gives the same callers names.
    """
    telemetry = Telemetry()
    meters = Meters(telemetry, clock=ManualClock())
    callers = [Caller(f"t{n}", f"o{n}", quotas=Quotas(requests_per_minute=1)) for n in range(MAX_LABELS + 50)]
    meters.open(callers)
    for caller in callers:
        meters.of(caller.owner).admit()
        meters.of(caller.owner).charge("pages", 1)

    assert MAX_LABELS + 1 == len(labels_of(telemetry))
    assert 50 == counted(telemetry, "key_pages_total", key="_other")
    meters.replace(callers[1:])
    meters.of(callers[MAX_LABELS].owner).charge("pages", 6)
    meters.replace([Caller("new", "new"), *callers[1:]])
    meters.of("new").charge("pages", 7)
    meters.of(callers[MAX_LABELS].owner).charge("pages", 2)
    late = Telemetry()
    Meters(late, clock=ManualClock()).open([Caller("new", "new"), *callers[1:]])

    assert (7, 52) == tuple(counted(telemetry, "key_pages_total", key=name) for name in ("new", "_other"))
    assert labels_of(late) == labels_of(telemetry)
    assert f"t{MAX_LABELS}" not in labels_of(telemetry)


def test_a_refusal_is_counted_once():
    """Though the middleware sees it after the meter; one that a storage raised it counts."""
    telemetry = Telemetry()
    meter = meter_of(Quotas(requests_per_minute=1), ManualClock(), telemetry)
    meter.admit()
    with pytest.raises(QuotaExceeded) as refused:
        meter.admit()
    meter.refuse(refused.value)
    meter.refuse(QuotaExceeded("stored_bytes", "full", 60.0))
    meter.refuse(QuotaExceeded("waiting_files", "no quota of a caller", 30.0))

    for quota in ("requests", "stored_bytes"):
        assert 1 == counted(telemetry, "quota_exceeded_total", key="team", quota=quota)
