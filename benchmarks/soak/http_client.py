"""The soak's HTTP client of one server on this machine: httpx, which sends no request a second time by itself.

Every way in which an attempt fails below HTTP is one error, `CutOff`.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Self

import httpx

KEY = "key-of-the-soak-test"
AUTHORIZATION = f"Bearer {KEY}"
_IDLE_S = 4.0  # a kept connection is not used again after this; the proxy keeps it for 60 s


class CutOff(Exception):
    """The connection was refused, reset, or ended before the answer was complete; or nothing came in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete answer."""

    status: int
    headers: Mapping[str, str]  # found by names in any case
    body: bytes


class HttpClient:
    """Sends requests to a port of this machine. Used on one event loop; a context, or `close` at the end."""

    def __init__(self, port: int) -> None:
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": AUTHORIZATION, "Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_S),
            timeout=None,  # of an attempt as a whole: `timeout_s`
            trust_env=False,
        )

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, timeout_s: float
    ) -> Answer:
        """The answer to one attempt. Raises: CutOff."""
        try:
            with _cut_off():
                async with asyncio.timeout(timeout_s):
                    made = await self._client.request(method, path, content=body, headers=headers)
        except TimeoutError as error:
            raise CutOff(f"no answer within {timeout_s:g} s") from error
        return Answer(made.status_code, made.headers, made.content)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncGenerator[httpx.Response, None]:
        """A GET's answer, whose body is still to come. Raises: CutOff."""
        with _cut_off():
            async with self._client.stream("GET", path, headers=headers) as answer:
                yield answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the kept connections."""
        await self._client.aclose()


@contextmanager
def _cut_off() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise CutOff(f"{type(error).__name__}: {error}") from error
