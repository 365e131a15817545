"""Serves built services until the process is told to stop: alone, or with HTTP workers in front."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from backend.api.app import create_app
from backend.bootstrap.services import Services, api_options
from backend.config import Settings
from backend.processes.http_server import DrainingServer, server_config, spare_collections
from backend.processes.http_workers import HttpWorkers

_NEVER_S = 10**9  # after which a kept connection of an HTTP worker is closed: it would race with a request


async def serve_until_stopped(services: Services, settings: Settings, loss: asyncio.Task[str]) -> None:
    """Serve until SIGTERM, SIGINT or the end of ``loss``, then finish what was accepted. Raises: SetupError."""
    if settings.server_processes > 1:
        await _serve_with_workers(services, settings, loss)
    else:
        await _serve_alone(services, settings, loss)


async def _serve_alone(services: Services, settings: Settings, loss: asyncio.Task[str]) -> None:
    options = api_options(settings, services.metering.keys)
    app = create_app(services, options)
    server = DrainingServer(server_config(app, settings, services.telemetry, options.traffic), app)
    services.telemetry.connections.set_function(lambda: len(server.server_state.connections))
    spare_collections()
    loss.add_done_callback(lambda _task: server.stop())
    await server.serve()


async def _serve_with_workers(services: Services, settings: Settings, loss: asyncio.Task[str]) -> None:
    """Clients reach the HTTP workers; what those do not do themselves, they forward to this process."""
    workers = HttpWorkers(
        settings,
        services.batcher,
        services.catalog,
        services.telemetry,
        services.metering,
        supervisor=services.supervisor,
    )
    try:
        services = replace(services, processes=workers.report)
        workers.page.share(services.text_work, services.metering)
        services.health.watch(workers.degraded)
        services.loader.announce_to(workers.announce_models)
        services.telemetry.add_others(workers.snapshots)
        options = api_options(settings, services.metering.keys)
        app = create_app(services, options)
        config = server_config(app, settings, services.telemetry, options.traffic)
        config.uds, config.timeout_keep_alive = workers.service_path, _NEVER_S
        server = DrainingServer(config, app, workers)
        spare_collections()
        loss.add_done_callback(lambda _task: server.stop())
        await server.serve()
    finally:
        await workers.close()
