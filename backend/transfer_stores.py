"""Command that writes vector stores and documents of one caller to a file, and reads them into any storage.

python -m backend.transfer_stores export FILE [--caller NAME] [--store ID]...
python -m backend.transfer_stores import FILE [--caller NAME]

It works on the storage that the settings name: SEARCH_URL, or the folder in STATE_DIR, which one process at a time may
write: stop the service before an import into a folder. The exit code is 0 when all is done, 1 when nothing was,
2 for a caller that is not known. What an export leaves out is told on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from backend.bootstrap.documents import file_limits
from backend.bootstrap.metering import key_ring
from backend.bootstrap.search import search_storage
from backend.callers.callers import ANYBODY, owner_digest
from backend.config import Settings, load_settings
from backend.errors import BadInput, BadSettings, FinanciaError
from backend.search.storage import SearchStorage
from backend.search.transfer import Transferred, export_stores, import_stores


class UnknownCaller(BadInput):
    """A name of which nothing is stored, and no key has."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        done = asyncio.run(_run(load_settings(), options))
    except (FinanciaError, BadSettings, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, UnknownCaller) else 1
    left_out = _left_out(done)
    if left_out:
        sys.stderr.write(f"left out: {left_out}\n")
    waiting = f" ({done.waiting} of them without chunks, to be indexed after an import)" if done.waiting else ""
    documents = f", {done.documents} stored documents" if done.documents else ""
    sys.stdout.write(
        f"{options.action}ed {done.stores} vector stores, {done.files} files{waiting}, {done.chunks} chunks{documents}"
        f"{f'; left out: {left_out}' if left_out else ''}\n"
    )
    return 0


def _left_out(done: Transferred) -> str:
    parts = (
        (done.cancelled, "files whose indexing was cancelled"),
        (done.outside, "uploads that are in no exported store (add them to one to have them)"),
    )
    return ", ".join(f"{count} {what}" for count, what in parts if count)


async def _run(settings: Settings, options: argparse.Namespace) -> Transferred:
    owner = owner_digest("name", options.caller) if options.caller else ANYBODY.owner
    storage = search_storage(settings)
    await storage.start()
    try:
        if options.caller:
            await _check_caller(settings, storage, options)
        if options.action == "export":
            return await export_stores(storage, owner, options.file, options.store)
        return await import_stores(storage, owner, options.file, file_limits(settings))
    finally:
        await storage.close()


async def _check_caller(settings: Settings, storage: SearchStorage, options: argparse.Namespace) -> None:
    """Raises: UnknownCaller. What a key that was removed has left can still be exported."""
    callers = key_ring(settings).callers
    if any(caller.name == options.caller for caller in callers):
        return
    usage = await storage.usage(owner_digest("name", options.caller))
    if options.action == "import" or not (usage.files or usage.stores):
        raise UnknownCaller(
            f"--caller: no key of API_KEYS or ADMIN_KEYS has the name '{options.caller}'; set them as for the service, "
            "or correct the name"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m backend.transfer_stores", description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    for action, what in (
        ("export", "write vector stores to a new file"),
        ("import", "add the vector stores of a file"),
    ):
        one = actions.add_parser(action, help=what)
        one.add_argument("file", type=Path)
        one.add_argument("--caller", help="name of an API key with a name; without it: of a service without keys")
        if action == "export":
            one.add_argument("--store", action="append", default=[], metavar="ID", help="only this one; repeatable")
    return parser


if __name__ == "__main__":
    sys.exit(main())
