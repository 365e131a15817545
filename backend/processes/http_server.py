"""uvicorn as this service runs it: limits on connections, and a shutdown that loses no accepted request."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, cast

import uvicorn
from starlette.types import ASGIApp

from backend.api.app import InferenceApp
from backend.api.http_protocol import ConnectionGuard, ConnectionLimits, GuardedProtocol
from backend.api.traffic import Traffic
from backend.config import Settings
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger("backend")
FILES_EACH = 2  # of a connection: its socket, and an upload's memory file or the way to the service process
OTHER_FILES = 512  # beside connections: files of jobs, readers' pipes, models, Redis, and those told 503
GC_THRESHOLDS = (20_000, 20, 50)  # Python's (700, 10, 10) took 4 % of the loop's time: a request makes no cycles
SWITCH_S = 0.001  # of a thread that others wait for
GRACE_S = 1.0  # time for clients with a kept connection to see "Connection: close" on an answer


class OtherProcesses(Protocol):
    """The processes beside this one that serve the same clients."""

    async def start(self) -> None:
        """Start them, once this process serves. Raises: SetupError."""

    async def drain(self) -> None:
        """Have them finish what they accepted, and wait for their end."""


class NoOtherProcesses:
    """This process serves alone. A null object."""

    async def start(self) -> None: ...

    async def drain(self) -> None: ...


class DrainingServer(uvicorn.Server):
    """uvicorn that answers with "Connection: close" for ``GRACE_S`` before it closes connections.

    Closing a keep-alive connection while a request is on its way loses that request. After the grace period only
    connections that sent nothing meanwhile are closed, and accepted requests are finished.
    """

    def __init__(self, config: uvicorn.Config, app: InferenceApp, others: OtherProcesses | None = None) -> None:
        super().__init__(config)
        self._app, self._others = app, others or NoOtherProcesses()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT.

        uvicorn's own method raises the signal again afterwards, which kills the process before the services are closed
        and pending writes reach Redis.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Shut down as on SIGTERM."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, then start the other processes. Raises: SetupError."""
        await super().startup(sockets)
        await self._others.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Announce the shutdown, hand over background jobs, wait for the grace period, then close as uvicorn does.

        Another replica can start on the jobs at once, while requests are finished here. Event streams end after the
        grace period, when no new connection comes back to this process.
        """
        self._app.state.draining = True
        log_event(_log, logging.INFO, "draining")
        handover = asyncio.create_task(self._app.state.services.hand_over())
        others = asyncio.create_task(self._others.drain())
        if not self.force_exit:
            await asyncio.sleep(GRACE_S)
        self._app.state.streams.end()
        await asyncio.gather(others, return_exceptions=True)  # what they still forward is answered here
        await super().shutdown(sockets)
        await asyncio.gather(handover, return_exceptions=True)  # closing the services waits for it again


def tune_interpreter() -> None:
    """Have threads take turns soon, and the garbage collector run seldom and skip what lives as long as the process.

    While eight threads read hostile texts, `/health/live` took 180 ms with turns of a millisecond, 680 ms and more with
    the interpreter's own five.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    gc.freeze()


def server_config(
    app: ASGIApp, settings: Settings, telemetry: Telemetry, traffic: Traffic, *, processes: int = 1
) -> uvicorn.Config:
    """How uvicorn serves ``app``; of LIMIT_CONNECTIONS, the part of one of so many processes.

    Args:
        traffic: of ``app``, which learns here how many connections there may be.
    """
    limits = ConnectionLimits(connections=connections_within(-(-settings.limit_connections // processes)))
    traffic.most_requests = limits.connections
    guard = ConnectionGuard(limits, lambda reason: telemetry.connections_refused_total.labels(reason).inc(), traffic)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=cast("type[asyncio.Protocol]", partial(GuardedProtocol, guard=guard)),
        ws="none",  # an installed websockets package would take connections over, past the limits
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=math.ceil(settings.keep_alive_s),
        timeout_graceful_shutdown=int(settings.limit_drain_s) + 1,
        backlog=2048,
    )


def connections_within(limit: int) -> int:
    """LIMIT_CONNECTIONS, or what the process may open of them: without a free descriptor nobody is answered."""
    needed, (soft, hard) = FILES_EACH * limit + OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limit
    allowed = max(1, (soft - OTHER_FILES) // FILES_EACH)
    log_event(_log, logging.WARNING, "fewer connections", limit=limit, allowed=allowed, reason=f"ulimit -n {soft}")
    return allowed
