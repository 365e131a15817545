"""The process: settings, services, server; and an end that loses no accepted request."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
import uvloop

from backend.api.app import InferenceApp, create_app
from backend.api.connection import OneWriteProtocol
from backend.config import Settings, load_settings
from backend.errors import SetupError
from backend.telemetry import configure_logging, log_event
from backend.wiring import api_options, build

_log = logging.getLogger("backend")
EXIT_SETUP = 2  # wrong settings, device or model: restarting does not help
GC_THRESHOLDS = (20_000, 20, 50)  # Python's (700, 10, 10) took 4 % of the loop's time: a request makes no cycles
GRACE_S = 1.0  # time for clients with a kept connection to see "Connection: close" on an answer


class DrainingServer(uvicorn.Server):
    """uvicorn that says "Connection: close" on every answer for a moment before it closes anything.

    A kept connection that the server closes while a request is on its way loses that request; after the
    grace only connections that sent nothing meanwhile are closed, and what was accepted is finished.
    """

    def __init__(self, config: uvicorn.Config, app: InferenceApp) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT.

        uvicorn's own raises the signal again afterwards, which kills the process before the services are closed
        and what waits for Redis is written.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Announce the end, wait, then close as uvicorn does."""
        self._app.state.draining = True
        log_event(_log, logging.INFO, "draining")
        if not self.force_exit:
            await asyncio.sleep(GRACE_S)
        await super().shutdown(sockets)


async def serve(settings: Settings) -> None:
    """Build, answer until told to stop, close. Raises: SetupError when the start fails."""
    services = await build(settings)
    try:
        app = create_app(services, api_options(settings))
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=OneWriteProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(settings.limit_drain_s) + 1,
            backlog=2048,
        )
        gc.set_threshold(*GC_THRESHOLDS)
        gc.collect()
        gc.freeze()  # what the start left lives as long as the process: later collections skip it
        await DrainingServer(config, app).serve()
    finally:
        await services.close()
        log_event(_log, logging.INFO, "services closed")


def main() -> int:
    """Run until SIGTERM or SIGINT; the exit code is 2 when the start failed for a reason only a person can mend."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would take the lanes' cores
    try:
        settings = load_settings()
        configure_logging(settings.log_level)
        uvloop.run(serve(settings))
    except SetupError as error:
        print(f"financia: {error}", file=sys.stderr)
        return EXIT_SETUP
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
