"""Prints how many files of backend/ a request enters: the way of a text, of a page, of a recording.

    python -m tools.journeys                                        # a text, and the same from the cache
    python -m tools.journeys --scan page.png --recording call.wav --files

The service runs in this process, with the bundled models and a state folder of its own. A profiler on every thread
notes each file whose code runs; what runs while nobody asks is taken off.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import httpx

from backend.api.app import create_app
from backend.bootstrap.services import api_options, build
from backend.config import Settings

PACKAGE = f"{Path(__file__).resolve().parents[1] / 'backend'}{os.sep}"
_IDLE_S = 3.0
Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


class Profile:
    """The files of backend/ whose code ran since the last call of ``take``."""

    def __init__(self) -> None:
        self._files: set[str] = set()

    def start(self) -> None:
        """On this thread and every later one: before the service starts."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def take(self) -> set[str]:
        files, self._files = self._files, set()
        return {file.removeprefix(PACKAGE) for file in files}

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (file := frame.f_code.co_filename).startswith(PACKAGE):
            self._files.add(file)


def questions(scan: Path | None, recording: Path | None) -> dict[str, Ask]:
    """What is asked, by name."""
    text = {"input": ["La factura vence en marzo."]}
    asked: dict[str, Ask] = {
        "a text": lambda client: client.post("/v1/embeddings", json={"input": ["El importe vence el 31 de mayo."]}),
        "a cached text": lambda client: client.post("/v1/embeddings", json=text),
    }
    if scan is not None:
        asked["a scanned page"] = lambda client: client.post("/v1/documents", files={"file": scan.read_bytes()})
    if recording is not None:
        form = {"model": "whisper-1"}
        asked["a recording"] = lambda client: client.post(
            "/v1/audio/transcriptions", files={"file": recording.read_bytes()}, data=form
        )
    return asked


async def run(scan: Path | None, recording: Path | None, *, lists_files: bool) -> None:
    """Start the service, ask, print."""
    profile = Profile()
    profile.start()
    with tempfile.TemporaryDirectory(prefix="journeys-") as state:
        settings = Settings(state_dir=Path(state))
        services = await build(settings)
        app = create_app(services, api_options(settings, services.metering.keys))
        try:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=600) as client:
                await client.post("/v1/embeddings", json={"input": ["La factura vence en marzo.", "Se paga en mayo."]})
                await asyncio.sleep(_IDLE_S)
                profile.take()
                await asyncio.sleep(_IDLE_S)
                idle = profile.take()
                for name, ask in questions(scan, recording).items():
                    answer = await ask(client)
                    entered = sorted(profile.take() - idle)
                    print(f"{name}: {len(entered)} files (status {answer.status_code})")
                    if lists_files:
                        print(*(f"    {file}" for file in entered), sep="\n")
        finally:
            await services.close()


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scan", type=Path, help="an image or a PDF to read")
    parser.add_argument("--recording", type=Path, help="a recording to transcribe")
    parser.add_argument("--files", action="store_true", help="print each file")
    flags = parser.parse_args()
    asyncio.run(run(flags.scan, flags.recording, lists_files=flags.files))


if __name__ == "__main__":
    main()
