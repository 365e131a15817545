"""The app's services over a real storage of documents, whose fields are read from plain texts."""

import io
import itertools
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from backend.bootstrap.search import keep_document
from backend.documents.records import DocumentAnswer, DocumentOptions, EventCallback
from backend.documents.text_fields import find_text_fields
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.runner import JobPolicy
from backend.jobs.service import JobService
from backend.lanes.inference import Urgency
from backend.lanes.text_work import TextWork
from backend.search.files import FileService
from backend.search.limits import SearchLimits
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.stored_documents import StoredDocuments
from backend.telemetry import Telemetry
from tests.api.document_fakes import FakeDocuments
from tests.api.fakes import FakeServices, fake_services
from tests.fakes import ManualClock

_NOW_S = 1_767_225_600.0


def invoice_text(number: int, *, base: str = "500,00", tax: str = "105,00", total: str = "605,00") -> str:
    """An invoice as it is set on paper."""
    return f"""Aceros del Norte, S.L.           FACTURA
NIF A58818501                    Nº factura: 2026/{number:03d}
                                 Fecha: {number % 28 + 1:02d}/03/2026

Código   Concepto          Cantidad    Precio     Importe
0017     Tornillo M8             10     50,00      {base}

                     Base imponible    {base}
                     IVA 21 %          {tax}
                     Total             {total}
"""


@dataclass
class TextDocuments(FakeDocuments):
    """Reads a file as a page set by a typewriter."""

    async def process(self, upload: StoredFile, options: DocumentOptions, *args: Any, **more: Any) -> DocumentAnswer:
        text = upload.content().decode()
        return replace(await find_text_fields(TextWork(Telemetry()), text, self.examples, ""), options=options)


async def draw_page(*args: Any, **options: Any) -> bytes:
    """A white page."""
    target = io.BytesIO()
    Image.new("RGB", (595, 842), "white").save(target, "PNG")
    return target.getvalue()


@asynccontextmanager
async def books_services(folder: Path) -> AsyncIterator[FakeServices]:
    """Services whose stored documents are kept in ``folder``."""
    storage = SqliteStorage(SqliteOptions(folder / "search"), clock=ManualClock())
    await storage.start()
    services: Any = fake_services()
    services.documents = TextDocuments()
    files = FileService(storage, SearchLimits(), render_page=draw_page, now=itertools.count(_NOW_S).__next__)
    services.stored_documents = StoredDocuments(storage, files)
    services.jobs = await _jobs(services)
    try:
        yield services
    finally:
        await services.jobs.close()
        await storage.close()


async def _jobs(services: Any) -> JobService:
    """Jobs that read files and keep them."""

    def process(
        upload: StoredFile, options: DocumentOptions, urgency: Urgency, on_event: EventCallback, *, owner: str
    ) -> Awaitable[DocumentAnswer]:
        return services.documents.process(upload, options, urgency, on_event, owner=owner)  # type: ignore[no-any-return]

    store = MemoryJobStore(100, 1_000_000, FileLimits(), ManualClock(_NOW_S))
    jobs = JobService(store, services.telemetry, JobPolicy(), process=process, render_page=draw_page)
    jobs.keep_with(partial(keep_document, services.stored_documents))
    await jobs.start()
    return jobs
