"""The answer of ``GET /v1/usage``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from backend.callers.callers import Quotas
from backend.callers.quotas import Bucket
from backend.callers.usage import TenantUsage
from backend.callers.usage_records import Counts


class UsagePeriod(TypedDict):
    """What was used since ``start``, or in the month that began then."""

    start: Annotated[str, Field(description="UTC, ISO 8601.")]
    requests: Annotated[int, Field(description="Requests that were admitted, errors included.")]
    tokens: Annotated[int, Field(description="As `usage` in answers counts them, cached ones included.")]
    pages: Annotated[int, Field(description="Of files, and begun minutes of recordings; those of jobs when read.")]
    refused: Annotated[int, Field(description="Requests that a quota refused (429); not among `requests`.")]


class QuotaUsage(TypedDict):
    """One quota, and what of it is used now."""

    quota: Literal["requests_per_minute", "tokens_per_minute", "pages_per_minute", "jobs", "stored_bytes"]
    limit: int
    used: Annotated[
        int | None,
        Field(description="Not refilled yet, over the limit in debt; null: not told of all tenants at once."),
    ]
    retry_after_s: Annotated[float, Field(description="Until there is some of it again; 0: there is.")]


class Usage(TypedDict):
    """What one tenant used and may use."""

    object: Literal["usage"]
    tenant: Annotated[str, Field(description="The name of its keys.")]
    minute: UsagePeriod
    today: UsagePeriod
    month: UsagePeriod
    previous_month: UsagePeriod
    quotas: list[QuotaUsage]


class UsageList(TypedDict):
    """The caller's own usage; for an admin that of all tenants."""

    object: Literal["list"]
    data: list[Usage]
    as_of: Annotated[str, Field(description="UTC, ISO 8601; by the clock of who keeps the counts.")]
    counted_by: Annotated[str, Field(description="Whose requests are in it: this machine's, or all replicas'.")]


@dataclass(frozen=True, slots=True)
class Holding:
    """What a tenant holds of its quotas that are none a minute. None: that was not asked for."""

    jobs: int | None = None  # queued or running
    stored_bytes: int | None = None


def usage_card(tenant: TenantUsage, holding: Holding) -> Usage:
    used, now = tenant.usage, datetime.fromtimestamp(tenant.usage.now_s, UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = today.replace(day=1)
    return {
        "object": "usage",
        "tenant": tenant.caller.name,
        "minute": _period(now.replace(second=0, microsecond=0), used.minute),
        "today": _period(today, used.day),
        "month": _period(month, used.month),
        "previous_month": _period((month - timedelta(days=1)).replace(day=1), used.previous_month),
        "quotas": [*map(_rate, tenant.buckets), *_held(tenant.caller.quotas, holding)],
    }


def moment(unix_s: float) -> str:
    return _iso(datetime.fromtimestamp(unix_s, UTC))


def _period(start: datetime, counts: Counts) -> UsagePeriod:
    return {"start": _iso(start), **counts._asdict()}  # type: ignore[typeddict-item]  # the fields of Counts


def _rate(bucket: Bucket) -> QuotaUsage:
    return {
        "quota": f"{bucket.kind}_per_minute",  # type: ignore[typeddict-item]  # one of the literals
        "limit": bucket.limit,
        "used": bucket.used,
        "retry_after_s": round(bucket.wait_s(), 3),
    }


def _held(quotas: Quotas, holding: Holding) -> Sequence[QuotaUsage]:
    held: list[QuotaUsage] = []
    if quotas.jobs is not None:
        held.append({"quota": "jobs", "limit": quotas.jobs, "used": holding.jobs, "retry_after_s": 0.0})
    if quotas.stored_bytes is not None:
        limit, used = quotas.stored_bytes, holding.stored_bytes
        held.append({"quota": "stored_bytes", "limit": limit, "used": used, "retry_after_s": 0.0})
    return held


def _iso(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


SCHEMAS: tuple[type, ...] = (UsagePeriod, QuotaUsage, Usage, UsageList)
