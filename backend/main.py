"""The server process: reads settings, builds the services, serves, and drains accepted requests at the end."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn
import uvloop

from backend.api.app import InferenceApp, create_app
from backend.api.http_protocol import ConnectionGuard, ConnectionLimits, GuardedProtocol
from backend.bootstrap.models import AskForGpu
from backend.bootstrap.services import api_options, build
from backend.config import Settings, load_settings, publish
from backend.device.choice.prompt import choose_card, is_interactive
from backend.device.choice.saved_choice import ChoiceFile, SavedChoice
from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu, platform
from backend.device.memory.device_memory import allocator_options
from backend.device.records import MachineFacts
from backend.errors import SetupError
from backend.telemetry import Telemetry, configure_logging, log_event

_log = logging.getLogger("backend")
EXIT_SETUP = 2  # wrong settings, device or model: restarting does not help
EXIT_DEVICE_LOST = 3  # the device's context is dead: restarting is the cure
GC_THRESHOLDS = (20_000, 20, 50)  # Python's (700, 10, 10) took 4 % of the loop's time: a request makes no cycles
OTHER_FILES = 512  # beside connections: uploads, readers' pipes, models, Redis, and those told 503
GRACE_S = 1.0  # time for clients with a kept connection to see "Connection: close" on an answer


class DrainingServer(uvicorn.Server):
    """uvicorn that answers with "Connection: close" for ``GRACE_S`` before it closes connections.

    Closing a keep-alive connection while a request is on its way loses that request. After the grace period only
    connections that sent nothing meanwhile are closed, and accepted requests are finished.
    """

    def __init__(self, config: uvicorn.Config, app: InferenceApp) -> None:
        super().__init__(config)
        self._app = app

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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Announce the shutdown, hand over background jobs, wait for the grace period, then close as uvicorn does.

        Another replica can start on the jobs at once, while requests are finished here. Event streams end after the
        grace period, when no new connection comes back to this process.
        """
        self._app.state.draining = True
        log_event(_log, logging.INFO, "draining")
        handover = asyncio.create_task(self._app.state.services.jobs.drain())
        if not self.force_exit:
            await asyncio.sleep(GRACE_S)
        self._app.state.streams.end()
        await super().shutdown(sockets)
        await asyncio.gather(handover, return_exceptions=True)  # closing the services waits for it again


async def serve(settings: Settings, *, gpu: int | None = None, ask: AskForGpu | None = None) -> int:
    """Build the services, serve until stopped, close; returns the exit code. Raises: SetupError when the start fails.

    A lost device ends it too, once waiting clients have their 503: every further call on that device fails, and only
    a new process can use it again.
    """
    services = await build(settings, gpu=gpu, ask=ask)
    loss = asyncio.create_task(services.batcher.device_lost())
    try:
        app = create_app(services, api_options(settings))
        config = server_config(app, settings, services.telemetry)
        gc.set_threshold(*GC_THRESHOLDS)
        gc.collect()
        gc.freeze()  # objects of the start live as long as the process: later collections skip them
        server = DrainingServer(config, app)
        services.telemetry.connections.set_function(lambda: len(server.server_state.connections))
        loss.add_done_callback(lambda _task: server.stop())
        await server.serve()
        return EXIT_DEVICE_LOST if loss.done() else 0
    finally:
        loss.cancel()
        await services.close()
        log_event(_log, logging.INFO, "services closed")


def server_config(app: InferenceApp, settings: Settings, telemetry: Telemetry) -> uvicorn.Config:
    limits = ConnectionLimits(connections=connections_within(settings.limit_connections))
    guard = ConnectionGuard(limits, lambda reason: telemetry.connections_refused_total.labels(reason).inc())
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
    needed, (soft, hard) = limit + OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limit
    allowed = max(1, soft - OTHER_FILES)
    log_event(_log, logging.WARNING, "fewer connections", limit=limit, allowed=allowed, reason=f"ulimit -n {soft}")
    return allowed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT.

    The exit code is 2 when the start failed and a restart would not help, 3 when the device was lost.
    """
    options = _parse(arguments)
    try:
        settings = load_settings()
        configure_logging(settings.log_level)
        if reason := disable_faulty_amx(cpu()[1]):
            log_event(_log, logging.WARNING, "AMX disabled", reason=reason)
        conf = settings.pytorch_alloc_conf or ""
        publish(settings, allocator_options(conf, fraction=settings.gpu_memory_fraction, platform=platform()))
        ask = _ask if is_interactive(sys.stdin, sys.stdout, assume_no=options.yes) else None
        return uvloop.run(serve(settings, gpu=options.gpu, ask=ask))
    except SetupError as error:
        print(f"financia: {error}", file=sys.stderr)
        return EXIT_SETUP
    except KeyboardInterrupt:
        return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m backend.main",
        description="Start the service. Settings come from the environment or backend/.env (docs/settings.md).",
    )
    parser.add_argument(
        "--gpu",
        type=int,
        metavar="N",
        help="serve from this GPU, before DEVICE and the saved choice (python -m backend.check_gpu lists them)",
    )
    parser.add_argument(
        "--yes", action="store_true", help="ask nothing, also on a terminal with several GPUs: take the best one"
    )
    return parser.parse_args(arguments)


def _ask(facts: MachineFacts, file: ChoiceFile) -> SavedChoice | None:
    return choose_card(facts, file, sys.stdin, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
