"""A process that keeps, corrects and confirms documents until it is killed, and names each acknowledged revision."""

import asyncio
import sys
from itertools import count
from pathlib import Path

from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from tests.search.document_contract import Documents


async def work(folder: Path) -> None:
    storage = SqliteStorage(SqliteOptions(folder))
    await storage.start()
    documents = Documents(storage, lesson_of=lambda _: (["nif"], {}))
    for number in count((await storage.usage("ana")).files):
        stored = await documents.add(content=b"paper %d" % number)
        print(f"{stored.id} 1.", flush=True)  # noqa: T201 - read by the test
        await documents.correct(stored, InvoiceId=str(number))
        print(f"{stored.id} 2.", flush=True)  # noqa: T201 - as above
        await documents.service.confirm("ana", "eva", stored.id)
        print(f"{stored.id} 3.", flush=True)  # noqa: T201 - as above


asyncio.run(work(Path(sys.argv[1])))
