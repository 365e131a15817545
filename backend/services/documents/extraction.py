"""Files to pages: text layer or OCR page by page, several at once, each kept by what was read and how."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from backend.batching.work_item import Priority
from backend.cache.blobs import BlobCache
from backend.cache.keys import CacheNamespace
from backend.documents.language import detect
from backend.documents.page_codec import pack_page, unpack_page
from backend.documents.pages import Document, Page
from backend.documents.parsing.file_readers import FileReaders, OpenFile
from backend.documents.parsing.page_ranges import select_pages
from backend.documents.parsing.records import TextLayer
from backend.documents.parsing.resolution import choose_resolution
from backend.documents.parsing.stored_file import StoredFile
from backend.documents.parsing.text_source import ChosenSource, choose_source
from backend.engines.ocr.records import OcrImage, OcrResult
from backend.errors import InferenceFailed, Overloaded, TooLarge, UnreadableFile
from backend.services.documents.ocr import PageReader
from backend.services.documents.ocr_page import page_of
from backend.services.documents.records import DocumentEvent, DocumentOptions, FailedPage, ReadDocument, Tell
from backend.services.inference import Urgency

Made = TypeVar("Made")
_PAGES_OWN = (UnreadableFile, TooLarge, InferenceFailed)  # faults of one page, which must not cost the others


@dataclass(slots=True)
class _Reading:
    """One file on its way."""

    file: OpenFile
    options: DocumentOptions
    urgency: Urgency
    tell: Tell
    numbers: tuple[int, ...]
    languages: tuple[str, ...]  # of the print
    keys: CacheNamespace  # of its pages, read with these options
    pages: dict[int, Page] = field(default_factory=dict)
    failed: dict[int, FailedPage] = field(default_factory=dict)
    ocr_s: float = 0.0

    def event(self, page: Page | None = None, failed: FailedPage | None = None) -> DocumentEvent:
        return DocumentEvent("reading", len(self.pages) + len(self.failed), len(self.numbers), page, failed)


class DocumentReader:
    """Uploads in, pages out. Belongs to the loop's thread.

    Args:
        languages: of the print, where a request names none.
        pages_at_once: of one file; while one is drawn others are read.
        version: of this code; what an older one read is not used.
    """

    def __init__(
        self,
        readers: FileReaders,
        ocr: PageReader,
        cache: BlobCache,
        *,
        languages: tuple[str, ...],
        pages_at_once: int,
        version: str,
    ) -> None:
        self._readers, self._ocr, self._cache = readers, ocr, cache
        self._languages, self._pages_at_once = languages, pages_at_once
        self._keys = CacheNamespace("page", version, repr(ocr.report()), str(readers.limits.render_pixels))
        self._threads = ThreadPoolExecutor(max_workers=pages_at_once, thread_name_prefix="read")

    def report(self) -> dict[str, Any]:
        """What recognises pages here, and why; the processes that parse files."""
        return {**self._ocr.report(), "languages": self._languages, "readers": asdict(self._readers.counts())}

    async def read(
        self,
        upload: StoredFile,
        options: DocumentOptions,
        urgency: Urgency,
        tell: Tell,
        use: Callable[[Page], None],
    ) -> ReadDocument:
        """All the pages that were asked for; those that cannot be read are told of, and cost the others nothing.

        Args:
            upload: stays the caller's.
            use: told of each page at once, before anyone else.

        Raises: what `FileReaders.open` raises; InvalidField, TooLarge for the pages asked for; the error of the first
            page where none could be read; Overloaded, Unavailable, DeadlineExceeded.
        """
        started_s = time.perf_counter()
        tell(DocumentEvent("opening"))
        file = await self._open(upload, options, urgency)
        try:
            numbers = select_pages(options.pages, file.info.page_count, self._readers.limits)
            languages = options.languages or self._languages
            keys = self._keys.narrow(options.source, options.engine, *languages)
            reading = _Reading(file, options, urgency, tell, numbers, languages, keys)
            tell(reading.event())
            opened_s = time.perf_counter()
            await self._read_all(reading, use)
        except BaseException:
            file.cancel()  # what runs for it in a worker ends at once
            raise
        finally:
            file.close()
        return _gathered(reading, opened_s - started_s, time.perf_counter() - opened_s)

    async def picture(
        self, upload: StoredFile, number: int, *, turn: int, dpi: float, password: str | None = None
    ) -> bytes:
        """A page as a PNG, turned as it was read, for viewers.

        Raises: what `FileReaders` raises for the file or the page.
        """

        def draw() -> bytes:
            with self._readers.open(upload.shared(), password=password) as file:
                return self._readers.picture(file, number, dpi=dpi, turn=turn)

        return await self._on_thread(draw)

    async def searchable_pdf(
        self, upload: StoredFile, document: Document, *, password: str | None = None, until: float | None = None
    ) -> bytes:
        """The file as a PDF in which the words that were read of it are found.

        Args:
            document: as it was read of this upload.

        Raises: what `FileReaders` raises.
        """

        def write() -> bytes:
            with self._readers.open(upload.shared(), password=password, until=until) as file:
                return self._readers.searchable_pdf(file, document, until=until)

        return await self._on_thread(write)

    async def warm_up(self, lanes: int) -> None:
        """Have a process ready, and every lane what it reads pages with, before the first file comes."""
        await asyncio.gather(self._on_thread(self._readers.start), self._ocr.warm_up(lanes, self._languages))

    def close(self) -> None:
        """Let the threads go and end the worker processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._readers.close()

    async def _open(self, upload: StoredFile, options: DocumentOptions, urgency: Urgency) -> OpenFile:
        opening = partial(self._readers.open, upload.shared(), password=options.password, until=_until(urgency))
        future = asyncio.get_running_loop().run_in_executor(self._threads, opening)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_opened)
            raise

    async def _read_all(self, reading: _Reading, use: Callable[[Page], None]) -> None:
        numbers = iter(reading.numbers)
        tasks = [
            asyncio.create_task(self._read_some(reading, numbers, use))
            for _ in range(min(self._pages_at_once, len(reading.numbers)))
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_some(self, reading: _Reading, numbers: Iterator[int], use: Callable[[Page], None]) -> None:
        for number in numbers:
            try:
                page = await self._read_page(reading, number)
            except _PAGES_OWN as error:
                reading.failed[number] = FailedPage(number, error)
                reading.tell(reading.event(failed=reading.failed[number]))
                continue
            reading.pages[number] = page
            use(page)
            reading.tell(reading.event(page=page))

    async def _read_page(self, reading: _Reading, number: int) -> Page:
        key = reading.keys.key("file", f"{reading.file.info.sha256} {number}".encode())
        if (kept := await self._cache.get(key)) is not None:
            unpacked = await self._on_thread(partial(unpack_page, kept))
            if unpacked is not None:
                return unpacked
        layer, chosen = await self._on_thread(partial(self._look, reading, number))
        if chosen.source == "text_layer":
            page = layer.page(number, chosen.why)
        else:
            page = await self._recognise(reading, number, layer, chosen)
        page, packed = await self._on_thread(partial(_finished, page))
        self._cache.put(key, packed)
        return page

    async def _recognise(self, reading: _Reading, number: int, layer: TextLayer, chosen: ChosenSource) -> Page:
        file, urgency = reading.file, reading.urgency
        size = file.info.size(number)
        resolution = choose_resolution(
            size.width or layer.width, size.height or layer.height, layer.stats, self._readers.limits
        )
        draw = partial(self._readers.render, file, number, resolution=resolution, color=True, until=_until(urgency))
        raster = await self._on_thread(draw)
        image = OcrImage(raster.pixels, raster.dpi, reading.languages, self._readers.limits.page_s)
        started_s = time.perf_counter()
        result = await self._recognised(image, reading)
        reading.ocr_s += time.perf_counter() - started_s
        return page_of(raster, result, number, file.kind, chosen)

    async def _recognised(self, image: OcrImage, reading: _Reading) -> OcrResult:
        """On the lanes. What runs in the background waits where there is no room, for it has pages to lose."""
        while True:
            try:
                return await self._ocr.read(image, reading.options.engine, reading.urgency)
            except Overloaded as error:
                if reading.urgency.priority is not Priority.BULK:
                    raise
                await asyncio.sleep(error.retry_after_s or 1.0)

    def _look(self, reading: _Reading, number: int) -> tuple[TextLayer, ChosenSource]:
        layer = self._readers.page_text(reading.file, number, until=_until(reading.urgency))
        return layer, choose_source(layer, reading.options.source)

    async def _on_thread(self, work: Callable[[], Made]) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _until(urgency: Urgency) -> float | None:
    return None if math.isinf(urgency.deadline_s) else urgency.deadline_s


def _close_opened(future: asyncio.Future[OpenFile]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _finished(page: Page) -> tuple[Page, bytes]:
    """The page with its language, and what the cache keeps of it: some milliseconds, on a thread."""
    found = detect(page.text) if page.text else None
    page = replace(page, language=found.code) if found else page
    return page, pack_page(page)


def _gathered(reading: _Reading, open_s: float, read_s: float) -> ReadDocument:
    failed = tuple(reading.failed[number] for number in sorted(reading.failed))
    if failed and not reading.pages:
        raise failed[0].error
    info = reading.file.info
    pages = tuple(reading.pages[number] for number in sorted(reading.pages))
    document = Document(info.kind, pages, info.page_count, info.sha256, info.metadata)
    ocr_pages = sum(page.source == "ocr" for page in pages)
    return ReadDocument(document, failed, ocr_pages, open_s, read_s, reading.ocr_s)
