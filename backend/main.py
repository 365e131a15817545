"""The server process: reads settings, builds the services, serves, and drains accepted requests at the end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace

import uvloop

from backend.api.app import create_app
from backend.bootstrap.models import AskForGpu
from backend.bootstrap.services import Services, api_options, build
from backend.config import Settings, load_settings, publish
from backend.device.choice.prompt import choose_card, is_interactive
from backend.device.choice.saved_choice import ChoiceFile, SavedChoice
from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu, platform
from backend.device.memory.device_memory import allocator_options
from backend.device.records import MachineFacts
from backend.errors import SetupError
from backend.processes.http_server import DrainingServer, server_config, tune_interpreter
from backend.processes.http_workers import HttpWorkers
from backend.telemetry import configure_logging, log_event

_log = logging.getLogger("backend")
_NEVER_S = 10**9  # after which a kept connection of an HTTP worker is closed: it would race with a request
EXIT_SETUP = 2  # wrong settings, device or model: restarting does not help
EXIT_DEVICE_LOST = 3  # the device's context is dead: restarting is the cure


async def serve(settings: Settings, *, gpu: int | None = None, ask: AskForGpu | None = None) -> int:
    """Build the services, serve until stopped, close; returns the exit code. Raises: SetupError when the start fails.

    A lost device ends it too, once waiting clients have their 503: every further call on that device fails, and only
    a new process can use it again.
    """
    services = await build(settings, gpu=gpu, ask=ask)
    loss = asyncio.create_task(services.batcher.device_lost())
    try:
        await _serve_until_stopped(services, settings, loss)
        return EXIT_DEVICE_LOST if loss.done() else 0
    finally:
        loss.cancel()
        await services.close()
        log_event(_log, logging.INFO, "services closed")


async def _serve_until_stopped(services: Services, settings: Settings, loss: asyncio.Task[str]) -> None:
    """Serve until SIGTERM, SIGINT or the end of ``loss``, then finish what was accepted. Raises: SetupError."""
    if settings.server_processes > 1:
        await _serve_with_workers(services, settings, loss)
    else:
        await _serve_alone(services, settings, loss)


async def _serve_alone(services: Services, settings: Settings, loss: asyncio.Task[str]) -> None:
    options = api_options(settings, services.metering.keys, services.memory)
    app = create_app(services, options)
    server = DrainingServer(server_config(app, settings, services.telemetry, options.traffic), app)
    services.telemetry.connections.set_function(lambda: len(server.server_state.connections))
    tune_interpreter()
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
        options = api_options(settings, services.metering.keys, services.memory)
        app = create_app(services, options)
        config = server_config(app, settings, services.telemetry, options.traffic)
        config.uds, config.timeout_keep_alive = workers.service_path, _NEVER_S
        server = DrainingServer(config, app, workers)
        tune_interpreter()
        loss.add_done_callback(lambda _task: server.stop())
        await server.serve()
    finally:
        await workers.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT.

    The exit code is 2 when the start failed and a restart would not help, 3 when the device was lost.
    """
    options = _parse(arguments)
    try:
        settings = load_settings(**({"log_level": "DEBUG"} if options.verbose else {}))
        configure_logging(settings.log_level, settings.log_format)
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
    parser.add_argument("--verbose", action="store_true", help="log everything, as LOG_LEVEL=DEBUG does")
    return parser.parse_args(arguments)


def _ask(facts: MachineFacts, file: ChoiceFile) -> SavedChoice | None:
    return choose_card(facts, file, sys.stdin, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
