"""Prints how many files of backend/ a request enters: the way of a text, of a page, of a recording.

    python -m tools.journeys                                        # a text, and the same from the cache
    python -m tools.journeys --scan page.png --recording call.wav --files

The service runs in this process, with the bundled models and a state folder of its own. A profiler on every thread
notes each file whose code runs for a request: in its task, in tasks and threads' work that come from it, and on lanes,
which run nothing else meanwhile. Each is asked for twice, in words or bytes of its own: the first loads what is loaded
at first use, the second is counted.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from backend.api.app import create_app
from backend.bootstrap.services import api_options, build
from backend.config import Settings

PACKAGE = f"{Path(__file__).resolve().parents[1] / 'backend'}{os.sep}"
_REST_S = 3.0  # until what follows an answer is over
Ask = Callable[[httpx.AsyncClient, int], Awaitable[httpx.Response]]

_counts: ContextVar[bool] = ContextVar("counts", default=False)


class Profile:
    """The files of backend/ whose code runs for what is asked within ``of``."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_on = False

    def start(self) -> None:
        """On this thread and every later one: before the service starts."""
        submit = ThreadPoolExecutor.submit

        def submit_in_context(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
            return submit(pool, copy_context().run, work, *arguments)

        ThreadPoolExecutor.submit = submit_in_context  # type: ignore[assignment,method-assign]
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    async def of(self, asking: Awaitable[httpx.Response]) -> tuple[httpx.Response, list[str]]:
        """The answer, and the files."""
        self._files, self._is_on = set(), True
        token = _counts.set(True)
        try:
            answer = await asking
        finally:
            _counts.reset(token)
            self._is_on = False
        return answer, sorted(file.removeprefix(PACKAGE) for file in self._files)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self._is_on or not (file := frame.f_code.co_filename).startswith(PACKAGE):
            return
        if _counts.get() or threading.current_thread().name.startswith("lane-"):
            self._files.add(file)


def questions(scan: Path | None, recording: Path | None) -> dict[str, Ask]:
    """What is asked, by name; the number makes a file one of its own."""
    texts = ("La factura vence en marzo.", "El importe vence el 31 de mayo.")
    asked: dict[str, Ask] = {
        "a text": lambda client, turn: client.post("/v1/embeddings", json={"input": [texts[turn]]}),
        "a cached text": lambda client, _turn: client.post("/v1/embeddings", json={"input": [texts[0]]}),
    }
    if scan is not None:
        asked["a scanned page"] = lambda client, turn: client.post(
            "/v1/documents", files={"file": scan.read_bytes() + bytes(turn)}
        )
    if recording is not None:
        asked["a recording"] = lambda client, turn: client.post(
            "/v1/audio/transcriptions",
            files={"file": recording.read_bytes()},
            data={"model": "whisper-1", "temperature": f"0.{turn}"},  # pieces are kept by their samples
        )
    return asked


async def run(scan: Path | None, recording: Path | None, *, lists_files: bool) -> None:
    """Start the service, ask, print."""
    profile = Profile()
    profile.start()
    with tempfile.TemporaryDirectory(prefix="journeys-") as state:
        settings = Settings(state_dir=Path(state), measure_when_idle=False)
        services = await build(settings)
        app = create_app(services, api_options(settings, services.metering.keys, services.memory))
        try:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=600) as client:
                for name, ask in questions(scan, recording).items():
                    await ask(client, 0)
                    await asyncio.sleep(_REST_S)
                    answer, entered = await profile.of(ask(client, 1))
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
