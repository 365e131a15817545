"""``GET /v1/usage``: what the caller has used this minute, today and this month; for admins, what all have."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import Services, context_of, services_of
from backend.api.responses.json_bytes import json_response
from backend.api.responses.usage import Holding, UsageList, moment, usage_card
from backend.api.routing import get
from backend.callers.callers import Caller


async def read_usage(request: Request) -> Response:
    """Requests, tokens and pages that this key's tenant used, and its quotas; an admin sees all tenants.

    Periods are calendar ones in UTC: the minute, the day and the month that run, and the month before. Counted are the
    requests of all processes (with Redis of all replicas) up to now, those of the last second perhaps not yet. Without
    keys nobody is counted, and all is 0. 503 while what keeps the counts is away: nothing is lost then.
    """
    services, caller = services_of(request), context_of(request).caller
    tenants = await services.usage.of(caller, request.query_params.get("tenant"))
    holding = await _holding_of(services, tenants[0].caller) if len(tenants) == 1 else Holding()
    cards = [usage_card(tenant, holding) for tenant in tenants]
    as_of = moment(tenants[0].usage.now_s)
    return json_response(UsageList(object="list", data=cards, as_of=as_of, counted_by=services.usage.counted_by))


async def _holding_of(services: Services, caller: Caller) -> Holding:
    """Asked for one tenant only: it costs what holds them some calls for each."""
    quotas = caller.quotas
    return Holding(
        jobs=None if quotas.jobs is None else await services.jobs.live(caller.owner),
        stored_bytes=None if quotas.stored_bytes is None else await services.files.kept_bytes(caller.owner),
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
                "start": "2026-11-01T00:00:00Z",
                "requests": 9120,
                "tokens": 1_410_022,
                "pages": 870,
                "refused": 9,
            },
            "previous_month": {"start": "2026-10-01T00:00:00Z", "requests": 0, "tokens": 0, "pages": 0, "refused": 0},
            "quotas": [{"quota": "tokens_per_minute", "limit": 200_000, "used": 311, "retry_after_s": 0.0}],
        }
    ],
    "as_of": "2026-11-23T11:45:12Z",
    "counted_by": "all replicas that share Redis",
}
_TENANT = {
    "name": "tenant",
    "in": "query",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
    "description": "Of those that this key may see this one alone, with its live jobs and stored bytes.",
    "example": "billing",
}
ROUTES = (
    get(
        "/v1/usage",
        read_usage,
        tag="operations",
        schema=UsageList,
        example=_EXAMPLE,
        errors=(404,),
        parameters=(_TENANT,),
    ),
)
