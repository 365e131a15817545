"""A client as careful as users are told to be: it tries again what is retryable, and keeps account of each attempt."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson

from benchmarks.soak.http_client import Answer, CutOff, HttpClient
from benchmarks.soak.ledger import Attempt
from benchmarks.soak.schedule import AWAY, BAD_GATEWAY, BUSY, CUT_OFF, FULL_DISK, LATE

_RETRIED = {429: BUSY, 502: BAD_GATEWAY, 503: AWAY, 504: LATE, 507: FULL_DISK}
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 4.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client waits."""

    attempt_s: float  # for the whole answer to one attempt
    total_s: float  # from the first attempt; then a request counts as lost


TEXT = Patience(30.0, 60.0)
FILE = Patience(75.0, 180.0)  # the service takes LIMIT_REQUEST_S, a minute, before it says that it is too late


@dataclass(slots=True)
class Call:
    """One request with all its attempts. ``answer`` is None where patience ended first."""

    answer: Answer | None = None
    failures: list[Attempt] = field(default_factory=list)


async def call(
    client: HttpClient,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    patience: Patience = TEXT,
    is_gone: Callable[[], bool] = lambda: False,
) -> Call:
    """Send until there is an answer that is not to be retried, patience ends, or the server is known to have ended."""
    loop = asyncio.get_running_loop()
    end_s, made = loop.time() + patience.total_s, Call()
    while True:
        began_s, asked_s = loop.time(), 0.0
        try:
            answer = await client.request(method, path, body, headers, timeout_s=patience.attempt_s)
        except CutOff as error:
            failure, detail = CUT_OFF, str(error)
        else:
            failure, asked_s = refusal(answer)
            if not failure:
                made.answer = answer
                return made
            detail = answer.body[:300].decode("utf-8", "replace")
        made.failures.append(Attempt(failure, began_s, loop.time(), f"{method} {path.partition('?')[0]}: {detail}"))
        wait_s = max(asked_s, min(_FIRST_WAIT_S * 2 ** len(made.failures), _LONGEST_WAIT_S))
        if is_gone() or loop.time() + wait_s > end_s:
            return made
        await asyncio.sleep(wait_s)


def refusal(answer: Answer) -> tuple[str, float]:
    """How an attempt failed that may be made again, and the seconds to wait that the answer asks for; "" for an answer.

    A 429 or 503 of the service without Retry-After, and one that calls itself not retryable, get a name that no fault
    excuses. The proxy's own errors are not JSON.
    """
    if answer.status not in _RETRIED:
        return "", 0.0
    name = _RETRIED[answer.status]
    if "json" not in answer.headers.get("content-type", ""):
        return name, 0.0
    if answer.status == 507 and answer.headers.get("x-should-retry") != "true":
        return "", 0.0
    if not orjson.loads(answer.body).get("retryable"):
        return f"{name} that is not retryable", 0.0
    after = answer.headers.get("retry-after", "")
    if answer.status in (429, 503) and not after.isdigit():
        return f"{name} without Retry-After", 0.0
    return name, min(float(after or 0), 5.0)
