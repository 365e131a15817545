"""A process that adds files to a storage until it is killed, and names each one that was acknowledged."""

import asyncio
import sys
from itertools import count
from pathlib import Path

from backend.search.sqlite import postings
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from tests.search.samples import ENCODER, LEASE_S, indexed, store_file, upload, vector_store


async def add_files(folder: Path) -> None:
    postings.FRESH_CHUNKS = 20  # segments are made often, so that some are cut short
    storage = SqliteStorage(SqliteOptions(folder))
    await storage.start()
    if await storage.store("ana", "vs_1") is None:
        await storage.add_store(vector_store())
    while (claim := await storage.claim(ENCODER, LEASE_S)) is not None:  # of the process before
        await storage.finish(claim, indexed([f"alpha {n}" for n in range(5)]))
    already = (await storage.usage("ana")).files
    for number in count(already):
        file_id = f"file-{number}"
        await upload(storage, file_id, file_id.encode() * 1000)
        await storage.attach([store_file(file_id)])
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        assert await storage.finish(claim, indexed([f"alpha {n}" for n in range(5)]))
        print(f"{file_id}.", flush=True)  # noqa: T201 - read by the test


asyncio.run(add_files(Path(sys.argv[1])))
