"""The use case behind ``/v1/documents``: keep what was read from a file, and what people make of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import orjson

from backend.callers.callers import owner_digest
from backend.callers.event_watch import EventWatch, Watchers
from backend.errors import Conflict, InvalidField, NotFound, TooLarge
from backend.files.limits import FileLimits
from backend.files.page_ranges import select_pages
from backend.files.stored_file import StoredFile
from backend.invoices.corrections import LIST_COLUMNS, MAX_ROWS, checked_value
from backend.invoices.records import FIELD_NAMES
from backend.search.corrected_answer import KIND, corrected_answer, iso_time, values_of
from backend.search.document_sql import position_of
from backend.search.files import FileService
from backend.search.records import (
    DOCUMENT_CONTENT,
    ConfirmedDocument,
    DocumentAction,
    DocumentChange,
    DocumentQuery,
    DocumentRow,
    FileRecord,
    Lesson,
    ListPage,
    ListRange,
    Position,
    StoredDocument,
)
from backend.search.storage import SearchStorage, list_range
from backend.search.waker import Waker
from backend.speech.pages import KIND as RECORDING

PURPOSE = "documents"
KINDS = ("invoice", "credit_note", "receipt", "bank_statement")
_MAX_CHANGES = 2_000  # of one file
_MAX_CHANGES_BYTES = 2**22  # of JSON: each answer about a document is made of all its changes
_AT_ONCE = 100  # documents in memory while all are walked through
# Vectors are those of vector stores; what is said of the file is that of its first document.
_NOT_KEPT = ("vector", "chunks", "object", "fields", "fields_why", "fields_reasons", "valid", *DOCUMENT_CONTENT)
_ANEW = "Send the fields of a document together; delete it and send the file again to begin anew."
_TURNS = 4  # of an owner at once
_TRIES = 5  # of a confirmation beside changes in other processes
_LOOK_S = 2.0  # until a watched document is looked at again: what this process did not change wakes nobody

Pages = tuple[int, ...]  # numbers of the pages of a document

# What a confirmed document teaches: keys to find it by, and the lesson; None: nothing. Called on a thread.
LessonOf = Callable[[ConfirmedDocument], tuple[Sequence[str], Mapping[str, Any]] | None]


# Reads documents that somebody has cut out of a file: what is stored, its content, the pages of each of them.
ReadParts = Callable[[StoredDocument, Mapping[str, Any], Sequence[Pages]], Awaitable[Sequence[Mapping[str, Any]]]]


class DocumentEvent(NamedTuple):
    """A watched document as it is now, after a change or as it was found; None where it is deleted."""

    stored: StoredDocument | None
    seen: int | None  # the revision that was told before it; None: none


class CheckedDocument(NamedTuple):
    """A stored document as it is now."""

    stored: StoredDocument
    answer: dict[str, Any]  # `corrected_answer`
    problems: list[dict[str, Any]]  # what does not fit, as codes with parameters; see `found_problems`


def keyed_id(owner: str, key: str) -> str:
    """The id of the document that an owner's Idempotency-Key stands for."""
    return f"file-{owner_digest(owner, key)[:24]}"


class StoredDocuments:
    """Each caller sees only its own documents. Used on the event loop only.

    Args:
        files: whose limits and clock hold here too: a stored document is one of its files.
    """

    def __init__(
        self, storage: SearchStorage, files: FileService, *, lesson_of: LessonOf = lambda _confirmed: None
    ) -> None:
        self._storage, self._files, self._lesson_of = storage, files, lesson_of
        self._adding = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by file
        self._watchers = Watchers()
        self._waiting: set[tuple[str, Waker]] = set()  # who waits for changes of which document

    async def add(
        self,
        owner: str,
        content: StoredFile,
        name: str,
        answer: Mapping[str, Any],
        *,
        expires_after_s: float | None = None,
        file_id: str | None = None,
    ) -> StoredDocument:
        """Keep a file with its answer of POST /v1/documents. Raises: as `FileService.upload`.

        Args:
            content: stays the caller's to close.
            file_id: the document of this id is answered where it is there already; None: a new one.
        """
        file = self._files.record(owner, content, name, PURPOSE, expires_after_s=expires_after_s, file_id=file_id)
        async with self._adding if file_id else nullcontext():  # two with one id come one after the other
            before = await self.kept_before(owner, file_id, content) if file_id else None
            return before or await self._add(file, content, answer)

    async def kept_before(self, owner: str, file_id: str, content: StoredFile) -> StoredDocument | None:
        """The document that this id was given before. Raises: InvalidField where that is of another file."""
        stored = await self._storage.document(owner, file_id)
        if stored is None or self._files.has_expired(stored.file):
            return None
        if stored.file.sha256 != content.sha256:
            raise InvalidField("Idempotency-Key: it came before with another file; send a new key with a new file")
        return stored

    async def _add(self, file: FileRecord, content: StoredFile, answer: Mapping[str, Any]) -> StoredDocument:
        kept = {key: value for key, value in answer.items() if key not in _NOT_KEPT}
        kept["documents"] = [
            {key: value for key, value in document.items() if key != "tables"} for document in answer["documents"]
        ]
        apart = {key: answer[key] for key in DOCUMENT_CONTENT if key in answer}
        stored = StoredDocument(file, 1, file.created_s, kept)
        row = DocumentRow(stored, values_of(corrected_answer(stored)))
        await self._storage.add_document(row, content, apart, limits=self._files.limits_of(file.owner))
        return stored

    async def get(self, owner: str, file_id: str) -> StoredDocument:
        """Raises: NotFound, which says so where it was deleted or has expired within the last day."""
        stored = await self._storage.document(owner, file_id)
        if stored is None or self._files.has_expired(stored.file):
            raise await self._not_found(owner, file_id)
        return stored

    async def content(self, stored: StoredDocument) -> dict[str, Any]:
        """The answer's `DOCUMENT_CONTENT` as it was read: pages with words and boxes, tables. Raises: NotFound."""
        content = await self._storage.document_content(stored.id)
        if content is None:  # deleted meanwhile
            raise await self._not_found(stored.owner, stored.id)
        return content

    async def pages(self, owner: str, file_id: str) -> list[dict[str, Any]]:
        """The pages with words and boxes, as POST /v1/documents answers them. Raises: NotFound."""
        pages: list[dict[str, Any]] = (await self.content(await self.get(owner, file_id)))["pages"]
        return pages

    async def original(self, owner: str, file_id: str) -> tuple[StoredDocument, StoredFile]:
        """The file as it was sent, to be closed by the caller. Raises: NotFound."""
        stored = await self.get(owner, file_id)
        _, content = await self._files.content(owner, file_id)
        return stored, content

    async def page_image(
        self, owner: str, file_id: str, number: int, dpi: float, *, password: str | None = None
    ) -> bytes:
        """A page as a PNG, upright as it was read. Raises: as `FileService.page_image`."""
        pages = await self.pages(owner, file_id)
        rotation = next((page.get("rotation", 0) for page in pages if page["number"] == number), 0)
        return await self._files.page_image(owner, file_id, number, dpi, rotation=rotation, password=password)

    def turn(self, owner: str) -> asyncio.Semaphore:
        """To be held while an answer is made of an owner's documents: each holds what it is made of."""
        return self._turns.setdefault(owner, asyncio.Semaphore(_TURNS))

    async def list_documents(
        self, owner: str, query: DocumentQuery, page: ListPage
    ) -> tuple[list[StoredDocument], bool]:
        """The documents of a page of the list, fewer where they are large, and whether there are more.

        Raises: InvalidField for an unknown id.
        """
        part = await self._part(owner, query, page)
        rows, is_cut = await self._storage.documents(owner, query, part)
        listed, has_more = page.part_of(rows)
        return [row for row in listed if not self._files.has_expired(row.file)], has_more or is_cut

    async def each(self, owner: str, query: DocumentQuery | None = None) -> AsyncIterator[StoredDocument]:
        """All documents in the order of the query, the lowest first, a few at a time in memory: for exports."""
        query, after = query or DocumentQuery(), None
        while rows := (await self._storage.documents(owner, query, ListRange(_AT_ONCE, "asc", after)))[0]:
            after = position_of(rows[-1], query.sort)
            for row in rows:
                if not self._files.has_expired(row.file):
                    yield row

    async def correct(
        self, owner: str, by: str, file_id: str, document: int, fields: Mapping[str, Any], *, revision: int | None
    ) -> StoredDocument:
        """Put corrections in place of what was read; a confirmed document is to be reviewed again.

        Args:
            by: `Caller.name`.
            fields: by name a text, {"value": …, "page": …, "boxes": …, "start": …, "end": …}, a list of rows of such,
                or None for a field that the document does not have; "kind": of KINDS, or None.
            revision: that the caller has seen; None: the latest, whatever it is.

        Raises: NotFound, Conflict where somebody changed it meanwhile, InvalidField, TooLarge, QuotaExceeded.
        """
        checked = checked_fields(fields)
        return await self._changed(owner, by, file_id, "correct", document, revision=revision, fields=checked)

    async def confirm(
        self, owner: str, by: str, file_id: str, document: int | None = None, *, revision: int | None = None
    ) -> StoredDocument:
        """Mark a document of a file, or all, as right. Raises: as `correct`."""
        return await self._changed(owner, by, file_id, "confirm", document, revision=revision)

    async def reopen(
        self, owner: str, by: str, file_id: str, document: int | None = None, *, revision: int | None = None
    ) -> StoredDocument:
        """Mark a document of a file, or all, as to be reviewed; what it taught is forgotten. Raises: as `correct`."""
        return await self._changed(owner, by, file_id, "reopen", document, revision=revision)

    async def split(
        self, owner: str, by: str, file_id: str, cut: Sequence[str], read_parts: ReadParts, *, revision: int | None
    ) -> StoredDocument:
        """Cut a file into documents by hand; one whose pages stay keeps its corrections, others are read anew.

        Args:
            cut: the pages of each document, such as "1-3,7"; pages in none of them belong to no document.

        Raises: as `correct`; what ``read_parts`` raises.
        """
        stored = await self.get(owner, file_id)
        _require_revision(stored, revision)
        content = await self.content(stored)
        read_pages = [page["number"] for page in content["pages"]]
        wanted = pages_of_parts(cut, read_pages, stored.answer["page_count"])
        now = {tuple(part.read["pages"]): index for index, part in enumerate(stored.parts)}
        anew = [pages for pages in wanted if pages not in now]
        if list(now) == wanted:
            return stored
        _require_divisible(stored, anew)
        read = dict(zip(anew, await read_parts(stored, content, anew) if anew else (), strict=True))
        documents = [{"of": now[pages]} if pages in now else read[pages] for pages in wanted]
        fields = {"documents": documents}
        return await self._changed(owner, by, file_id, "split", None, revision=stored.revision, fields=fields)

    async def delete(self, owner: str, file_id: str) -> None:
        """Delete a document with its file, also from all vector stores. Raises: NotFound."""
        await self.get(owner, file_id)
        await self._files.delete(owner, file_id)
        self._wake(file_id)

    def watch(
        self, owner: str, file_id: str, seen: int | None = None, *, limit_s: float = math.inf
    ) -> EventWatch[DocumentEvent]:
        """A document that is stored, at each change until it is deleted; to be closed by the caller.

        Changes of this process are told at once, those of others within seconds.

        Args:
            seen: the revision after which to tell; None: it is told as it is, too.
            limit_s: from the first event that is asked for.

        Raises: Overloaded at once, where too many clients wait for events.
        """
        return self._watchers.watch(self._events(owner, file_id, seen, limit_s), owner)

    async def _events(
        self, owner: str, file_id: str, seen: int | None, limit_s: float
    ) -> AsyncGenerator[DocumentEvent, None]:
        now = asyncio.get_running_loop().time
        deadline_s, waiting = now() + limit_s, (file_id, Waker())
        self._waiting.add(waiting)
        try:
            while now() < deadline_s:
                revision = await self._storage.document_revision(owner, file_id)
                if revision is None or seen is None or revision > seen:
                    stored = None if revision is None else await self._storage.document(owner, file_id)
                    yield DocumentEvent(stored, seen)
                    if stored is None:
                        return
                    seen = stored.revision
                await waiting[1].wait(min(_LOOK_S, deadline_s - now()))
        finally:
            self._waiting.discard(waiting)

    def _wake(self, file_id: str) -> None:
        for watched_id, waker in self._waiting:
            if watched_id == file_id:
                waker.wake()

    async def checked(self, owner: str, documents: Sequence[StoredDocument]) -> list[CheckedDocument]:
        """The documents with corrections in place of what was read, and what does not fit."""
        made = await asyncio.to_thread(lambda: [_checked_document(stored) for stored in documents])
        found = {one.stored.id: one.problems for one in made}
        for duplicate in await self._storage.document_duplicates(owner, list(found)):
            code = "same_file" if duplicate.document is None else "duplicate"
            where = {} if duplicate.document is None else {"document": duplicate.document}
            problem = {"code": code, **where, "other": duplicate.other, "others": duplicate.others}
            found[duplicate.file_id].append(problem)
        return made

    async def _changed(
        self,
        owner: str,
        by: str,
        file_id: str,
        action: DocumentAction,
        document: int | None,
        *,
        revision: int | None,
        fields: Mapping[str, Any] | None = None,
    ) -> StoredDocument:
        async with self._changing.setdefault(file_id, asyncio.Lock()):
            for _ in range(_TRIES):
                stored = await self.get(owner, file_id)
                _require_revision(stored, revision)
                at_s, count = self._files.now_s(), len(stored.parts)
                if document is not None and not 0 <= document < count:
                    raise InvalidField(
                        f"document: this file holds {count}, so it must be 0 to {count - 1}, got {document}"
                    )
                if len(stored.changes) >= _MAX_CHANGES:
                    raise TooLarge("changes of this document", len(stored.changes), _MAX_CHANGES, "fixed", advice=_ANEW)
                made = tuple(
                    DocumentChange(stored.revision + 1, action, index, at_s, by, fields or {})
                    for index in _changed_by(action, document, count)
                )
                new = replace(stored, revision=stored.revision + 1, updated_s=at_s, changes=(*stored.changes, *made))
                size_bytes = len(orjson.dumps([change.fields for change in new.changes]))
                if size_bytes > _MAX_CHANGES_BYTES:
                    raise TooLarge("bytes of changes", size_bytes, _MAX_CHANGES_BYTES, "fixed", advice=_ANEW)
                answer = corrected_answer(new)
                row = DocumentRow(new, values_of(answer), await self._all_lessons(new, answer["documents"]))
                if await self._storage.replace_document(row, limits=self._files.limits_of(owner)):
                    self._wake(file_id)
                    return new
        raise Conflict(f"document '{file_id}': others change it at the same time; read it again, then send your change")

    async def _all_lessons(self, stored: StoredDocument, documents: Sequence[Mapping[str, Any]]) -> tuple[Lesson, ...]:
        """Those of all documents of a file, as they are corrected, that are confirmed."""
        confirmed = [index for index, is_confirmed in enumerate(stored.confirmed) if is_confirmed]
        if not confirmed:
            return ()
        pages = (await self.content(stored)).get("pages", [])
        made: list[Lesson] = []
        for index in confirmed:
            one = ConfirmedDocument(stored, index, pages, documents[index]["kind"], documents[index]["fields"])
            lesson = await asyncio.to_thread(self._lesson_of, one)
            if lesson is not None:
                made.append(Lesson(stored.id, index, tuple(lesson[0]), lesson[1], documents[index]["confirmed_at"]))
        return tuple(made)

    async def _part(self, owner: str, query: DocumentQuery, page: ListPage) -> ListRange:
        if query.sort == "created_at":
            return await list_range(self._storage, "file", owner, page)
        ends = list[Position | None]()
        for param, cursor in (("after", page.after), ("before", page.before)):
            if not isinstance(cursor, str):
                ends.append(cursor)
                continue
            end = await self._storage.document_position(owner, cursor, query.sort)
            if end is None:
                raise InvalidField(f"{param}: there is no document '{cursor[:64]}' (any more)")
            ends.append(end)
        return ListRange(page.limit + 1, page.order, *ends)

    async def _not_found(self, owner: str, file_id: str) -> NotFound:
        was_there = await self._storage.position("file", owner, file_id) is not None
        if was_there and await self._storage.file(owner, file_id) is None:
            return NotFound(f"id: document '{file_id}' was deleted; what was changed in it is gone, too", param="id")
        return NotFound(f"id: there is no document '{file_id[:64]}'", param="id")


def _require_revision(stored: StoredDocument, revision: int | None) -> None:
    """Raise Conflict where the caller has not seen the latest revision; it names what others changed since."""
    if revision is None or revision == stored.revision:
        return
    since = [change for change in stored.changes if change.revision > revision]
    told = "; ".join(
        f"{change.by} {_ACTS[change.action]} {', '.join(change.fields) or f'document {change.document}'} "
        f"at {iso_time(change.at_s)}"
        for change in since[-5:]
    )
    raise Conflict(
        f"revision: this document is at {stored.revision}, you have seen {revision}: {told or 'there is no such one'}. "
        "Read it again, then send your change with its revision",
        param="revision",
    )


_ACTS = {"correct": "corrected", "confirm": "confirmed", "reopen": "reopened", "split": "split"}


def _changed_by(action: DocumentAction, document: int | None, count: int) -> Iterable[int | None]:
    """Of which documents of a file a change is told."""
    if action == "split":
        return (None,)
    return range(count) if document is None else (document,)


def pages_of_parts(cut: Sequence[str], known: Sequence[int], page_count: int) -> list[Pages]:
    """The page numbers of each document that a caller wishes; ``known`` were read. Raises: InvalidField."""
    parts, owners = list[Pages](), dict[int, int]()
    for index, ranges in enumerate(cut):
        location = f"documents[{index}].pages"
        if not ranges.strip():
            raise InvalidField(f'{location}: is empty; name its pages, such as "1-3,7"', param=location)
        try:
            pages = select_pages(ranges, page_count, FileLimits(pages=page_count))
        except InvalidField as error:
            raise InvalidField(f"{location}{str(error).removeprefix('pages')}", param=location) from error
        for number in pages:
            if number not in known:
                raise InvalidField(
                    f"{location}: page {number} was not read, so no document can have it", param=location
                )
            if (owner := owners.setdefault(number, index)) != index:
                raise InvalidField(
                    f"{location}: page {number} is in documents[{owner}], too; a page belongs to one document",
                    param=location,
                )
        parts.append(pages)
    return parts


def _require_divisible(stored: StoredDocument, anew: Sequence[Pages]) -> None:
    """Raise where a file cannot be cut otherwise."""
    if stored.answer["kind"] == RECORDING:
        raise InvalidField("documents: a recording has no documents to cut")
    fields = [field for part in stored.parts for field in part.read["fields"].values()]
    if anew and any(field["source"] == "xml" for field in fields):
        raise InvalidField(
            "documents: the electronic invoice in the file is of the whole file, which stays one document"
        )


def _checked_document(stored: StoredDocument) -> CheckedDocument:
    answer = corrected_answer(stored)
    return CheckedDocument(stored, answer, found_problems(answer))


def found_problems(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What does not fit within a corrected answer, as codes with parameters.

    check_digits (field, value), ambiguous_date (field, value), arithmetic (equation, expected, printed).
    """
    problems: list[dict[str, Any]] = []
    for index, document in enumerate(answer["documents"]):
        for name, field in document["fields"].items():
            wrong = None if name in LIST_COLUMNS else _wrong(field)
            if wrong is not None:
                problems.append({"code": wrong, "document": index, "field": name, "value": field["value"]})
        problems += [
            {"code": "arithmetic", "document": index, **difference} for difference in document["valid"]["differences"]
        ]
    return problems


def _wrong(field: Mapping[str, Any]) -> str | None:
    if field["valid"] is False:
        return "check_digits"
    return "ambiguous_date" if field["ambiguous"] else None


def checked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Corrections as `DocumentChange` keeps them. Raises: InvalidField, TooLarge."""
    if not fields:
        raise InvalidField("fields: is empty; name at least one field and its value")
    return {name: _checked(name, value) for name, value in fields.items()}


def _checked(name: str, value: Any) -> Any:
    location = f"fields.{name[:64]}"
    if name == KIND:
        if value is not None and value not in KINDS:
            raise InvalidField(
                f"{location}: must be null or one of {', '.join(KINDS)}, got {value!r:.60}", param=location
            )
        return value
    if name not in FIELD_NAMES:
        raise InvalidField(f"{location}: is no field; there are kind, {', '.join(FIELD_NAMES)}", param=location)
    if value is None:
        return None
    return _checked_rows(name, value, location) if name in LIST_COLUMNS else _checked_cell(name, value, location)


def _checked_rows(name: str, rows: Any, location: str) -> list[dict[str, Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidField(f"{location}: must be a list of objects of {', '.join(LIST_COLUMNS[name])}", param=location)
    if len(rows) > MAX_ROWS:
        raise TooLarge(f"{location} (rows)", len(rows), MAX_ROWS, "fixed", param=location)
    checked = []
    for index, row in enumerate(rows):
        if unknown := row.keys() - set(LIST_COLUMNS[name]):
            raise InvalidField(
                f"{location}[{index}].{min(unknown)[:64]}: is no column; there are {', '.join(LIST_COLUMNS[name])}",
                param=location,
            )
        cells = {column: row[column] for column in LIST_COLUMNS[name] if row.get(column) is not None}
        checked.append(
            {column: _checked_cell(column, cell, f"{location}[{index}].{column}") for column, cell in cells.items()}
        )
    return checked


_POSITION_KEYS = ("page", "boxes", "start", "end")
_MAX_BOXES = 100
MAX_UNITS = 1e6  # of a page, and characters of a document in hundreds


def _checked_cell(name: str, value: Any, location: str) -> dict[str, Any]:
    if isinstance(value, str):
        value = {"value": value}
    if not isinstance(value, dict) or not isinstance(value.get("value"), str):
        raise InvalidField(
            f'{location}: must be a text, or an object such as {{"value": "…", "page": 1, "boxes": [[…]]}}, '
            f"got {value!r:.60}",
            param=location,
        )
    checked: dict[str, Any] = {"value": checked_value(name, value["value"], location)}
    for key in _POSITION_KEYS:
        if value.get(key) is not None:
            checked[key] = _checked_position(key, value[key], f"{location}.{key}")
    return checked


def _checked_position(key: str, value: Any, location: str) -> Any:
    if key == "boxes":
        if isinstance(value, list) and len(value) <= _MAX_BOXES and all(map(is_box, value)):
            return value
        raise InvalidField(
            f"{location}: must be at most {_MAX_BOXES} boxes of four numbers in page units", param=location
        )
    if type(value) in (int, float) and 0 <= value <= MAX_UNITS * 100 and value == int(value):
        return int(value)
    raise InvalidField(f"{location}: must be a whole number from 0, got {value!r:.60}", param=location)


def is_box(box: Any) -> bool:
    """Four numbers that can be a place on a page."""
    return (
        isinstance(box, list)
        and len(box) == 4
        and all(type(side) in (int, float) and abs(side) <= MAX_UNITS for side in box)
    )
