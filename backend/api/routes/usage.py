"""``GET /v1/usage``: what the caller has used this minute, today and this month; for admins, what all have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import json_response
from backend.api.request_context import Handle, context_of
from backend.api.routing import get
from backend.callers.callers import Caller, Quotas
from backend.callers.quotas import Bucket
from backend.callers.usage import Counts, TenantUsage, UsageService
from backend.jobs.service import JobService
from backend.search.files import FileService

_usage_of: Handle[UsageService] = Handle("usage")
_jobs_of: Handle[JobService] = Handle("jobs")
_files_of: Handle[FileService] = Handle("files")


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


async def read_usage(request: Request) -> Response:
    """Requests, tokens and pages that this key's tenant used, and its quotas; an admin sees all tenants.

    Periods are calendar ones in UTC: the minute, the day and the month that run, and the month before. Counted are the
    requests of all processes (with Redis of all replicas) up to now, those of the last second perhaps not yet. Without
    keys nobody is counted, and all is 0. 503 while what keeps the counts is away: nothing is lost then.
    """
    caller = context_of(request).caller
    tenants = await _usage_of(request).of(caller, request.query_params.get("tenant"))
    holding = await _holding_of(request, tenants[0].caller) if len(tenants) == 1 else Holding()
    cards = [usage_card(tenant, holding) for tenant in tenants]
    as_of = moment(tenants[0].usage.now_s)
    return json_response(UsageList(object="list", data=cards, as_of=as_of, counted_by=_usage_of(request).counted_by))


async def _holding_of(request: Request, caller: Caller) -> Holding:
    """Asked for one tenant only: it costs what holds them some calls for each."""
    quotas = caller.quotas
    return Holding(
        jobs=None if quotas.jobs is None else await _jobs_of(request).live(caller.owner),
        stored_bytes=None if quotas.stored_bytes is None else await _files_of(request).kept_bytes(caller.owner),
    )


_COUNTS = {"requests": 3, "tokens": 420, "pages": 0, "refused": 0}
_EXAMPLE = {
    "object": "list",
    "data": [
        {
            "object": "usage",
            "tenant": "billing",
            "minute": {"start": "2026-11-23T11:45:00Z", **_COUNTS},
            "today": {"start": "2026-11-23T00:00:00Z", "requests": 812, "tokens": 90_311, "pages": 41, "refused": 2},
            "month": {
                "start": "2026-11-01T00:00:00Z", "requests": 9120, "tokens": 1_410_022, "pages": 870, "refused": 9,
            },
            "previous_month": {"start": "2026-10-01T00:00:00Z", "requests": 0, "tokens": 0, "pages": 0, "refused": 0},
            "quotas": [{"quota": "tokens_per_minute", "limit": 200_000, "used": 311, "retry_after_s": 0.0}],
        }
    ],
    "as_of": "2026-11-23T11:45:12Z",
    "counted_by": "all replicas that share Redis",
}  # fmt: skip
_TENANT = {
    "name": "tenant", "in": "query", "required": False, "schema": {"type": "string", "minLength": 1, "maxLength": 64},
    "description": "Of those that this key may see this one alone, with its live jobs and stored bytes.",
    "example": "billing",
}  # fmt: skip
ROUTES = (
    get(
        "/v1/usage", read_usage, tag="operations", schema=UsageList, example=_EXAMPLE, errors=(404,),
        parameters=(_TENANT,),
    ),
)  # fmt: skip
