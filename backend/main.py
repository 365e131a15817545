"""The server process: reads settings, builds the services, serves, and drains accepted requests at the end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

import uvloop

from backend.bootstrap.models import AskForGpu
from backend.bootstrap.services import build
from backend.config import Settings, load_settings, publish
from backend.device.choice.prompt import choose_card, is_interactive
from backend.device.choice.saved_choice import ChoiceFile, SavedChoice
from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu, platform
from backend.device.memory.device_memory import allocator_options
from backend.device.records import MachineFacts
from backend.errors import SetupError
from backend.processes.service import serve_until_stopped
from backend.telemetry import configure_logging, log_event

_log = logging.getLogger("backend")
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
        await serve_until_stopped(services, settings, loss)
        return EXIT_DEVICE_LOST if loss.done() else 0
    finally:
        loss.cancel()
        await services.close()
        log_event(_log, logging.INFO, "services closed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT.

    The exit code is 2 when the start failed and a restart would not help, 3 when the device was lost.
    """
    options = _parse(arguments)
    try:
        settings = load_settings()
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
    return parser.parse_args(arguments)


def _ask(facts: MachineFacts, file: ChoiceFile) -> SavedChoice | None:
    return choose_card(facts, file, sys.stdin, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
