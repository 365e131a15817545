"""Files to pages: text layer or OCR page by page, several pages at once, with a cache of pages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from backend.abandoned import end_tasks
from backend.documents.ocr import OcrService, page_of, with_pictures
from backend.documents.records import DocumentEvent, DocumentOptions, EventCallback, ExtractedDocument, FailedPage
from backend.errors import BadInput, InferenceFailed, InvalidField, Overloaded, TooLarge, UnreadableFile, WrongMediaType
from backend.files.einvoice.fiscal_qr import MENTION, read_fiscal_qr
from backend.files.einvoice.records import EInvoice
from backend.files.file_readers import FileReaders, OpenFile
from backend.files.file_types import FileType
from backend.files.page_codec import pack_page, unpack_page
from backend.files.page_ranges import check_documents, select_pages
from backend.files.pages import Barcode, BarcodeFormats, Document, Page
from backend.files.records import PlacedPicture, TextLayer
from backend.files.resolution import choose_resolution
from backend.files.stored_file import StoredFile
from backend.files.text_files import ChosenSource, choose_source
from backend.lanes.backlog import Admitted
from backend.lanes.cache.store import BlobCache, CacheNamespace
from backend.lanes.file_threads import FileThreads
from backend.lanes.inference import Urgency, retry_bulk
from backend.models.resting_process import Measurement
from backend.ocr.engine_choice import OcrEngineName, reason_for_doubt
from backend.ocr.rapidocr_models import is_latin_print
from backend.ocr.records import OcrImage, OcrResult
from backend.ocr.tessdata import TESSERACT_CODES
from backend.reasons import because
from backend.speech.pages import KIND
from backend.telemetry import log_event
from backend.text.language import detect
from backend.tracing.spans import span

_log = logging.getLogger(__name__)
_ENCODING = re.compile(r"""(<\?xml[^>]{0,200}?\sencoding\s*=\s*["'])[\w.-]{1,40}""")  # of the declaration
_MAX_PAGES = 3  # with a mention of a code that are searched for one: 20 ms each


def read_einvoice(
    readers: FileReaders,
    file: OpenFile,
    pages: Iterable[Page],
    *,
    deadline_s: float | None,
    codes: Sequence[Barcode] | None = None,
) -> EInvoice | None:
    """What XML in the file, or a code on its pages says as data; None where nothing does. Blocks: call it on a thread.

    Args:
        pages: of the file, as they were read.
        codes: on all of them; None: pages that mention one are drawn and searched for it.

    Raises: what `FileReaders` raises but for the contents.
    """
    if (invoice := _inside(readers, file, deadline_s)) is not None:
        return invoice
    mentioning = tuple(islice(filter(_mentions_code, pages), _MAX_PAGES))
    if codes is None:
        return _printed(read_barcodes(readers, file, mentioning, "QRCode", deadline_s=deadline_s))
    numbers = {page.number for page in mentioning}
    return _printed(code for code in codes if code.kind == "QRCode" and code.page in numbers)


def read_beside(readers: FileReaders, xml: str, *, deadline_s: float | None) -> EInvoice:
    """The electronic invoice that came beside a file. Blocks: call it on a thread.

    Raises: InvalidField for what is none, and what `FileReaders` raises.
    """
    # It is a text by now, whatever bytes it came in: its declaration would have it decoded once more.
    data = _ENCODING.sub(r"\g<1>UTF-8", xml.lstrip("\ufeff \r\n\t"), count=1).encode("utf-8", "replace")
    try:
        with readers.open(data, deadline_s=deadline_s) as file:
            invoice = readers.einvoice(file, deadline_s=deadline_s) if file.kind is FileType.XML else None
    except (UnreadableFile, WrongMediaType) as error:
        raise InvalidField(f"xml: {error}", param="xml") from error
    if invoice is None:
        raise InvalidField("xml: it is a file of another kind, and no electronic invoice", param="xml")
    return invoice


def _inside(readers: FileReaders, file: OpenFile, deadline_s: float | None) -> EInvoice | None:
    """What the file is or has attached. An attachment that cannot be read costs a PDF nothing but itself."""
    try:
        return readers.einvoice(file, deadline_s=deadline_s)
    except (BadInput, InferenceFailed) as error:  # too large, too slow, or its reader died of it
        if file.kind is FileType.XML:
            raise
        log_event(_log, logging.WARNING, "attachments could not be read", fault=type(error).__name__)
        return None


def _printed(codes: Iterable[Barcode]) -> EInvoice | None:
    for code in codes:
        if (invoice := read_fiscal_qr(code.text)) is not None:
            return replace(invoice, page=code.page, box=(*code.box,))
    return None


def read_barcodes(
    readers: FileReaders, file: OpenFile, pages: Iterable[Page], formats: BarcodeFormats, *, deadline_s: float | None
) -> Iterator[Barcode]:
    """The barcodes of pages that were read, in their order. Blocks: take from it on a thread."""
    for page in pages:
        try:
            yield from readers.barcodes(file, page.number, formats=formats, turn=page.rotation, deadline_s=deadline_s)
        except (BadInput, InferenceFailed):  # the page was read; that no code could be looked for costs nothing else
            continue


def _mentions_code(page: Page) -> bool:
    return MENTION.search(page.text) is not None


_AT_ONCE = 2
# Sentences of nine languages (SIB-200) in pairs, of 270 characters, were told apart without a fault at this score.
_SURE = 0.9
_MIN_WORDS = 20
# Confidence by which a reading in the page's own language may fall behind one in others: a French typescript had 0.839
# with French and Spanish, 0.842 with Spanish and English, and 0.89 of its words right instead of 0.78 (no
# other of eight fell behind by more).
_SLACK = 0.02


def first_guess(listed: tuple[str, ...], earlier: str | None) -> tuple[str, ...]:
    """The languages to read a page with at first: at most two, while all are of Latin print.

    Pages of other scripts tell nothing in the wrong language, so with one of those on the list all are read at once.

    Args:
        listed: OCR_LANGUAGES, most likely first.
        earlier: the language of an earlier page of the file, None where it is not known.
    """
    if len(listed) <= _AT_ONCE or not is_latin_print(listed):
        return listed
    return listed[:_AT_ONCE] if earlier is None else _languages_for(earlier, listed)


def second_guess(result: OcrResult, read_with: Sequence[str], listed: tuple[str, ...]) -> tuple[str, ...]:
    """The languages to read a page with once more: those for its text; empty where it was read with them.

    They follow from the text alone, so that a page reads the same whatever the first guess was.
    """
    if set(listed) <= set(read_with) or len(result.words) < _MIN_WORDS:
        return ()
    language = detect(" ".join(word.text for word in result.words))
    if language is None or language.score < _SURE or language.code not in listed:
        return ()
    languages = _languages_for(language.code, listed)
    return () if languages == tuple(read_with) else languages


async def recognize_in_its_language(
    ocr: OcrService, image: OcrImage, listed: tuple[str, ...], engine: OcrEngineName, urgency: Urgency
) -> OcrResult:
    """The words of a page, read again by Tesseract where its text turns out to be in another language of ``listed``.

    RapidOCR's result is replaced only by one that Tesseract is sure of: it reads all Latin print alike.

    Args:
        image: with the languages of `first_guess`.

    Raises: what `OcrService.recognize` raises.
    """
    first = await ocr.recognize(image, engine, urgency)
    again = ocr.tesseract_of(engine)
    if again is None:
        return first
    languages = await asyncio.to_thread(second_guess, first, image.languages, listed)
    if not languages:
        return first
    tried = {"languages": [",".join(languages)]}
    try:
        second = await ocr.recognize(replace(image, languages=languages), again, urgency)
    except (Overloaded, InferenceFailed, InvalidField) as error:  # no data: RapidOCR may know the language
        return replace(first, why=f"{first.why}; {because('not_read_again', **tried, error=error)}")
    if _is_no_worse(second, first):
        return replace(second, why=f"{because('read_again', **tried)}; {first.why}")
    return replace(first, why=f"{first.why}; {because('read_again_no_better', **tried)}")


def _languages_for(language: str, listed: tuple[str, ...]) -> tuple[str, ...]:
    usual = listed[:_AT_ONCE]
    same_data = TESSERACT_CODES.get(language) in map(TESSERACT_CODES.get, usual)
    return usual if same_data or language not in listed else (language, listed[0])


def _is_no_worse(second: OcrResult, first: OcrResult) -> bool:
    if first.engine.partition(" ")[0] != second.engine.partition(" ")[0]:
        return not reason_for_doubt(second)
    return (second.confidence or 0.0) > (first.confidence or 0.0) - _SLACK


Result = TypeVar("Result")
_PAGE_ERRORS = (UnreadableFile, TooLarge, InferenceFailed)  # errors of one page; the other pages are still extracted


@dataclass(slots=True)
class _Extraction:
    """State of one file while its pages are extracted."""

    file: OpenFile
    options: DocumentOptions
    urgency: Urgency
    on_event: EventCallback
    numbers: tuple[int, ...]  # pages to extract
    languages: tuple[str, ...]  # of the print: those of the request, which are read all at once, or OCR_LANGUAGES
    keys: CacheNamespace  # of pages of these options
    pages: dict[int, Page] = field(default_factory=dict)
    failed: dict[int, FailedPage] = field(default_factory=dict)
    ocr_s: float = 0.0
    characters: int = 0  # of the pages so far
    admitted: Admitted | None = None  # from its first page without a sound text layer

    @property
    def pages_left(self) -> int:
        return len(self.numbers) - len(self.pages) - len(self.failed)

    def language_before(self, number: int) -> str | None:
        """The language of the nearest page before this one that is there; None where none is."""
        earlier = [done for done, page in self.pages.items() if done < number and page.language]
        return self.pages[max(earlier)].language if earlier else None

    def page_done(self) -> None:
        if self.admitted is not None:
            self.admitted.done(1)

    def event(self, page: Page | None = None, failed: FailedPage | None = None) -> DocumentEvent:
        return DocumentEvent("reading", len(self.pages) + len(self.failed), len(self.numbers), page, failed)


class DocumentExtractor:
    """Extracts the pages of uploads. Used on the event loop only.

    Args:
        languages: of the print, where a request names none.
        pages_at_once: of one file; while one is rendered others are recognised.
        version: of this code; cached pages of other versions are not used.
    """

    def __init__(
        self,
        readers: FileReaders,
        ocr: OcrService,
        cache: BlobCache,
        *,
        languages: tuple[str, ...],
        pages_at_once: int,
        version: str,
    ) -> None:
        self._readers, self._ocr, self._cache = readers, ocr, cache
        self._languages, self._pages_at_once = languages, pages_at_once
        self._keys = CacheNamespace("page", version, ocr.fingerprint, str(readers.limits.render_pixels))
        self._threads = FileThreads(readers, pages_at_once, name="read")

    def report(self) -> dict[str, Any]:
        """OCR engines with reasons, default languages, and the reader processes, for GET /v1/system."""
        return {**self._ocr.report(), "languages": self._languages, "readers": self._readers.report()}

    async def extract(
        self,
        upload: StoredFile,
        options: DocumentOptions,
        urgency: Urgency,
        on_event: EventCallback,
        on_page: Callable[[Page], None],
    ) -> ExtractedDocument:
        """Every requested page; one that cannot be extracted is listed with its error, and the others are not affected.

        Args:
            upload: stays the caller's to close.
            on_page: called with each page as soon as it is there, before ``on_event``.

        Raises: what `FileReaders.open` raises; InvalidField, TooLarge for the requested pages; the error of the first
            page where none could be extracted; Overloaded, Unavailable, DeadlineExceeded.
        """
        started_s = time.perf_counter()
        on_event(DocumentEvent("opening"))
        with span("open"):
            file = await self._threads.open(upload, urgency, password=options.password)
        try:
            numbers = select_pages(options.pages, file.info.page_count, self._readers.limits)
            check_documents(options.split, file.info.page_count, numbers)  # before pages are read
            languages = options.languages or self._languages
            chosen = () if options.languages else ("by page",)
            keys = self._keys.narrow(options.source, options.engine, *languages, *chosen)
            extraction = _Extraction(file, options, urgency, on_event, numbers, languages, keys)
            on_event(extraction.event())
            opened_s = time.perf_counter()
            with span("read", {"financia.pages": len(numbers)}):
                beside = await self._beside(extraction)  # before the pages: a wrong one is refused at once
                await self._extract_all(extraction, on_page)
                barcodes = await self._barcodes(extraction)
                einvoice = beside or await self._einvoice(extraction, barcodes)
        except BaseException:
            file.cancel()  # ends its work in a reader process at once
            raise
        finally:
            self._threads.release(file)
        return _result(extraction, einvoice, barcodes or (), opened_s - started_s, time.perf_counter() - opened_s)

    async def page_image(
        self, upload: StoredFile, number: int, *, rotation: int, dpi: float, password: str | None = None
    ) -> bytes:
        """A page as a PNG, rotated clockwise by ``rotation`` degrees.

        Raises: what `FileReaders` raises for the file or the page.
        """

        def draw() -> bytes:
            with self._readers.open(upload.shared(), password=password) as file:
                if file.kind == KIND:
                    raise WrongMediaType("file: it is a recording: its pages are minutes, of which there is no picture")
                return self._readers.picture(file, number, dpi=dpi, turn=rotation)

        return await self._threads.run(draw)

    async def searchable_pdf(
        self, upload: StoredFile, document: Document, *, password: str | None = None, deadline_s: float | None = None
    ) -> bytes:
        """The file as a PDF with its recognised words as invisible text, to be searched and copied.

        Args:
            document: the pages extracted from this upload.

        Raises: what `FileReaders` raises.
        """

        def write() -> bytes:
            with self._readers.open(upload.shared(), password=password, deadline_s=deadline_s) as file:
                return self._readers.searchable_pdf(file, document, deadline_s=deadline_s)

        return await self._threads.run(write)

    async def warm_up(self) -> None:
        """Start a reader process, and load OCR data, before the first file comes."""
        first = first_guess(self._languages, None)
        await asyncio.gather(self._threads.run(self._readers.start), self._ocr.warm_up(first))

    def measurements(self) -> Sequence[Measurement]:
        """Of what serves by what is known of processors like this one."""
        return self._ocr.measurements()

    def close(self) -> None:
        self._threads.close()
        self._readers.close()

    async def _extract_all(self, extraction: _Extraction, on_page: Callable[[Page], None]) -> None:
        numbers = iter(extraction.numbers)
        tasks = [
            asyncio.create_task(self._extract_next(extraction, numbers, on_page))
            for _ in range(min(self._pages_at_once, len(extraction.numbers)))
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end_tasks(*tasks)
            if extraction.admitted is not None:
                extraction.admitted.close()

    async def _extract_next(
        self, extraction: _Extraction, numbers: Iterator[int], on_page: Callable[[Page], None]
    ) -> None:
        for number in numbers:
            try:
                self._check_characters(extraction, number)
                with span("page", {"financia.page.number": number}) as traced:
                    page = await self._extract_page(extraction, number)
                    traced.set("financia.page.source", page.source)
                extraction.characters += len(page.text)
                self._check_characters(extraction, number)
            except _PAGE_ERRORS as error:
                extraction.failed[number] = FailedPage(number, error)
                extraction.page_done()
                extraction.on_event(extraction.event(failed=extraction.failed[number]))
                continue
            extraction.pages[number] = page
            extraction.page_done()
            on_page(page)
            extraction.on_event(extraction.event(page=page))

    def _check_characters(self, extraction: _Extraction, number: int) -> None:
        """Raises: TooLarge for a page with which, or before which, the document has too many characters.

        A file of 5 KB had 200 pages of a million characters each: 22 GB of words, had they all been kept.
        """
        limit, characters = self._readers.limits.document_chars, extraction.characters
        if characters > limit:
            what, advice = f"characters of the file up to page {number}", "Ask for fewer of its pages."
            raise TooLarge(what, characters, limit, "LIMIT_DOCUMENT_CHARS", advice=advice, param="file")

    async def _extract_page(self, extraction: _Extraction, number: int) -> Page:
        key = extraction.keys.key("file", f"{extraction.file.info.sha256} {number}".encode())
        if (cached := await self._cache.get(key)) is not None:
            unpacked = await self._threads.run(partial(unpack_page, cached))
            if unpacked is not None:
                return unpacked
        read_text_layer = partial(self._read_text_layer, extraction, number)
        layer, chosen, set_page = await retry_bulk(extraction.urgency, partial(self._threads.run, read_text_layer))
        page = set_page or await self._ocr_page(extraction, number, layer, chosen)
        if set_page and layer.pictures and extraction.options.source != "text_layer":
            page = await self._read_pictures(extraction, page, layer, chosen)
        part = extraction.file.info.part(number)
        page = replace(page, part=part.name, attachment=part.attachment)
        page, packed = await self._threads.run(partial(_with_language, page))
        if not page.incomplete:  # it may be read to its end another time
            self._cache.put(key, packed)
        return page

    async def _read_pictures(self, extraction: _Extraction, page: Page, layer: TextLayer, chosen: ChosenSource) -> Page:
        """The page with the words of the pictures on it; one that cannot be read costs the page nothing else."""
        read: list[tuple[PlacedPicture, Page]] = []
        for index, picture in enumerate(layer.pictures):
            with contextlib.suppress(*_PAGE_ERRORS):
                read.append((picture, await self._ocr_page(extraction, page.number, layer, chosen, picture=index)))
        why = because("pictures_read", count=len(read), of=len(layer.pictures))
        incomplete = len(read) < len(layer.pictures) or any(one.incomplete for _, one in read)
        whole = await self._threads.run(partial(with_pictures, page, read))
        return replace(whole, why=f"{page.why}; {why}", incomplete=incomplete)

    async def _ocr_page(
        self,
        extraction: _Extraction,
        number: int,
        layer: TextLayer,
        chosen: ChosenSource,
        *,
        picture: int | None = None,
    ) -> Page:
        file, urgency = extraction.file, extraction.urgency
        if extraction.admitted is None:  # before the page is rendered: what is refused should cost little
            extraction.admitted = self._ocr.backlog.admit(extraction.pages_left, urgency.priority, urgency.deadline_s)
        size = file.info.size(number)
        resolution = choose_resolution(
            size.width or layer.width, size.height or layer.height, layer.stats, self._readers.limits
        )
        draw = partial(
            self._readers.render, file, number, resolution=resolution, color=True, picture=picture,
            deadline_s=urgency.worker_deadline_s,
        )  # fmt: skip
        with span("draw"):
            raster = await retry_bulk(urgency, partial(self._threads.run, draw))
        listed, options = extraction.languages, extraction.options
        first = options.languages or first_guess(listed, extraction.language_before(number))
        limit_s = self._readers.limits.page_s
        image = OcrImage(raster.pixels, raster.dpi, first, limit_s, deadline_s=urgency.deadline_s)
        started_s = time.perf_counter()
        with span("ocr") as traced:
            result = await recognize_in_its_language(self._ocr, image, listed, options.engine, urgency)
            traced.set("financia.ocr.engine", result.engine)
        extraction.ocr_s += time.perf_counter() - started_s
        return page_of(raster, result, number, file.page_kind(number), chosen)

    async def _beside(self, extraction: _Extraction) -> EInvoice | None:
        """What XML beside the file says."""
        xml, urgency = extraction.options.xml, extraction.urgency
        if xml is None or "fields" not in extraction.options.features:
            return None
        read = partial(read_beside, self._readers, xml, deadline_s=urgency.worker_deadline_s)
        return await retry_bulk(urgency, partial(self._threads.run, read))

    async def _einvoice(self, extraction: _Extraction, codes: Sequence[Barcode] | None) -> EInvoice | None:
        """What XML in the file, or a tax QR code on one of its pages says, in this order."""
        if "fields" not in extraction.options.features:
            return None
        pages, urgency = [extraction.pages[number] for number in sorted(extraction.pages)], extraction.urgency
        deadline_s = urgency.worker_deadline_s
        read = partial(read_einvoice, self._readers, extraction.file, pages, deadline_s=deadline_s, codes=codes)
        return await retry_bulk(urgency, partial(self._threads.run, read))

    async def _barcodes(self, extraction: _Extraction) -> tuple[Barcode, ...] | None:
        """Of every page; None where nobody asks for them."""
        if not extraction.options.barcodes:
            return None
        pages, urgency = [extraction.pages[number] for number in sorted(extraction.pages)], extraction.urgency

        def read() -> tuple[Barcode, ...]:
            deadline_s = urgency.worker_deadline_s
            return (*read_barcodes(self._readers, extraction.file, pages, "AllReadable", deadline_s=deadline_s),)

        return await retry_bulk(urgency, partial(self._threads.run, read))

    def _read_text_layer(self, extraction: _Extraction, number: int) -> tuple[TextLayer, ChosenSource, Page | None]:
        """The text layer and the page that it makes, where it is to be the page's text. Blocks."""
        layer = self._readers.page_text(extraction.file, number, deadline_s=extraction.urgency.worker_deadline_s)
        chosen = choose_source(layer, extraction.options.source)
        return layer, chosen, layer.page(number, chosen.why) if chosen.source == "text_layer" else None


def _with_language(page: Page) -> tuple[Page, bytes]:
    """The page with its language, and its bytes for the cache. Takes milliseconds: runs on a thread."""
    language = detect(page.text) if page.text else None
    page = replace(page, language=language.code) if language else page
    return page, pack_page(page)


def _result(
    extraction: _Extraction, einvoice: EInvoice | None, barcodes: tuple[Barcode, ...], open_s: float, read_s: float
) -> ExtractedDocument:
    failed = tuple(extraction.failed[number] for number in sorted(extraction.failed))
    if failed and not extraction.pages:
        raise failed[0].error
    info = extraction.file.info
    pages = tuple(extraction.pages[number] for number in sorted(extraction.pages))
    document = Document(info.kind, pages, info.page_count, info.sha256, info.metadata, einvoice, barcodes)
    ocr_pages = sum(page.source == "ocr" for page in pages)
    return ExtractedDocument(document, failed, ocr_pages, open_s, read_s, extraction.ocr_s)
