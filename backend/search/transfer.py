"""Vector stores and stored documents of one owner as one file, out of any storage and into any.

The file is a tar. First ``manifest.json`` (format, version), then for each stored document
``documents/N/document.json`` (the upload, what was read, changes, lessons), ``parts.json`` (its pages) and ``content``
(the upload's bytes); then for each store ``stores/N/store.json`` and its files:
``stores/N/files/M/file.json`` (the upload, and what is known of it in the store), ``content`` (its bytes, in the first
that has it), and where it is indexed ``chunks.jsonl`` (a chunk a line) and ``vectors.npy`` (float32: chunks,
width). ``end.json`` is last: the SHA-256 over names and contents of all members before it. A file without it, or with
another sum, is refused before anything is written.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import orjson

from backend.durable_files import flush
from backend.errors import BadInput, FinanciaError, NotFound
from backend.files.limits import FileLimits
from backend.files.pages import Box
from backend.files.stored_file import StoredFile
from backend.models.encoder import Vectors
from backend.search.corrected_answer import corrected_answer, values_of
from backend.search.records import (
    Chunking,
    DocumentChange,
    DocumentQuery,
    DocumentRow,
    EncoderIdentity,
    FileRecord,
    IndexedFile,
    Lesson,
    ListRange,
    NewChunk,
    PageSize,
    PlacedWord,
    Position,
    StoredChunk,
    StoredDocument,
    StoreFile,
    VectorStore,
)
from backend.search.storage import SearchStorage

FORMAT = "financia-vector-stores"
VERSION = 2  # of the format: 1 had no stored documents; a later one is refused
_MANIFEST, _END = "manifest.json", "end.json"
_PIECE_BYTES = 2**20
PAGE = 100  # rows of a list at once


@dataclass(slots=True)
class Transferred:
    """What was written or read."""

    stores: int = 0
    files: int = 0  # in stores; one in two stores counts twice
    chunks: int = 0
    documents: int = 0
    waiting: int = 0  # of the files: without chunks, to be indexed where they are imported
    cancelled: int = 0  # files of stores that are left out
    outside: int = 0  # uploads that are left out, as no exported store has them


@dataclass(slots=True)
class _Made:
    """What an import has added so far, to be taken back if it fails."""

    owner: str
    stores: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    waiting: list[StoreFile] = field(default_factory=list)  # to be indexed, once all is there


async def export_stores(storage: SearchStorage, owner: str, path: Path, store_ids: Sequence[str] = ()) -> Transferred:
    """Write these vector stores of an owner, or all and its stored documents, to a new file.

    A file that failed or is in progress comes without chunks. What was cancelled is left out, and so are uploads that
    are in no store; both are counted.

    Raises: NotFound for an unknown store; BadInput for a file that is there already, and for a store that is being
    re-embedded or changes meanwhile; OSError.
    """
    _check_new(path)
    stores = [store async for store in _stores(storage, owner)]
    if missing := set(store_ids) - {store.id for store in stores}:
        raise NotFound(f"vector store '{min(missing)}' does not exist")
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
            archive = _ArchiveWriter(tar)
            archive.add_json(_MANIFEST, {"format": FORMAT, "version": VERSION})
            done = Transferred()
            if not store_ids:
                await _export_documents(storage, archive, owner, done)
            for store in stores:
                if not store_ids or store.id in store_ids:
                    await _export_store(storage, archive, store, done)
            archive.end()
        if not store_ids:
            done.outside = (await storage.usage(owner)).files - len(archive.seen)
        flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return done


async def import_stores(storage: SearchStorage, owner: str, path: Path, limits: FileLimits) -> Transferred:
    """Add all vector stores of a file, with the ids they had, as this owner's. On any fault nothing is left of it.

    What was not indexed yet waits for indexing.

    Raises: BadInput for a file that is not whole, or ids that are there already; OSError; errors of the storage.
    """
    check_archive(path)
    made, done = _Made(owner), Transferred()
    try:
        with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            await _import_members(storage, _Members(tar), made, done, limits)
        await storage.attach(made.waiting)
        done.waiting = len(made.waiting)
    except BaseException as error:
        await _take_back(storage, made)
        if isinstance(error, KeyError | TypeError | ValueError):
            raise BadInput(f"import: {path.name} is whole, but no export of this release writes it so") from error
        raise
    return done


def _check_new(path: Path) -> None:
    if path.exists():
        raise BadInput(f"export: {path.name} is there already; name a new file, or delete it first")


def check_archive(path: Path) -> None:
    """Read all of it. Raises: BadInput for what is not such a file, is cut off, or was changed; OSError."""
    if not path.is_file():
        raise BadInput(f"import: {path.name} is no file; name one that export has written")
    hashed, seen_manifest, end = hashlib.sha256(), False, None
    try:
        with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is None or end is not None:
                    raise BadInput(f"import: {path.name} has a member '{member.name}' that no export writes")
                if not seen_manifest:
                    seen_manifest = True
                    _check_manifest(path, member.name, content, hashed)
                elif member.name == _END:
                    end = _parsed(content.read(), path, member.name)
                else:
                    _hash_member(hashed, member.name, member.size, content)
    except (tarfile.TarError, EOFError) as error:
        raise BadInput(
            f"import: {path.name} is cut off or is not an export ({error}); copy or export it again"
        ) from error
    if end is None:
        raise BadInput(f"import: {path.name} is cut off: it has no {_END}; copy or export it again")
    if end.get("sha256") != hashed.hexdigest():
        raise BadInput(f"import: {path.name} was changed: its checksum is another one; copy or export it again")


def _check_manifest(path: Path, name: str, content: IO[bytes], hashed: hashlib._Hash) -> None:
    manifest = content.read(_PIECE_BYTES)
    found = _parsed(manifest, path, name) if name == _MANIFEST else {}
    if found.get("format") != FORMAT:
        raise BadInput(f"import: {path.name} is not an export of vector stores")
    if found.get("version") not in (1, VERSION):
        raise BadInput(
            f"import: {path.name} has version {found.get('version')} of the format; this release reads 1 to {VERSION}"
        )
    _hash_member(hashed, name, len(manifest), io.BytesIO(manifest))


def _parsed(content: bytes, path: Path, name: str) -> dict[str, Any]:
    try:
        parsed = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"import: {path.name}: '{name}' was changed; copy or export it again") from error
    return parsed if isinstance(parsed, dict) else {}


def _hash_member(hashed: hashlib._Hash, name: str, size: int, content: IO[bytes]) -> None:
    hashed.update(f"{name}\0{size}\0".encode())
    while piece := content.read(_PIECE_BYTES):
        hashed.update(piece)


class _ArchiveWriter:
    """Members of a tar and the checksum over them."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self.files: set[str] = set()  # whose bytes are in it
        self.seen: set[str] = set()  # with those that are left out as cancelled
        self._tar = tar
        self._hash = hashlib.sha256()

    def add(self, name: str, content: bytes) -> None:
        _hash_member(self._hash, name, len(content), io.BytesIO(content))
        self._write(name, content)

    def add_json(self, name: str, value: object) -> None:
        self.add(name, orjson.dumps(value))

    def end(self) -> None:
        self._write(_END, orjson.dumps({"sha256": self._hash.hexdigest()}))

    def _write(self, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content))


async def _stores(storage: SearchStorage, owner: str) -> AsyncIterator[VectorStore]:
    after = None
    while stores := await storage.stores(owner, ListRange(PAGE, "asc", after)):
        for store in stores:
            yield store
        after = Position(stores[-1].created_s, stores[-1].id)


async def _export_store(storage: SearchStorage, archive: _ArchiveWriter, store: VectorStore, done: Transferred) -> None:
    if store.reembedding is not None:
        raise BadInput(f"vector store '{store.id}' is being re-embedded; export it when that is done, or stop it first")
    folder = f"stores/{done.stores}"
    archive.add_json(f"{folder}/store.json", asdict(store))
    after, number, seen = None, 0, 0
    while files := await storage.store_files(store.id, ListRange(PAGE, "asc", after)):
        archive.seen.update(file.file_id for file in files)
        seen += len(files)
        for file in files:
            if file.status == "cancelled":
                done.cancelled += 1
            else:
                await _export_file(storage, archive, f"{folder}/files/{number}", (store, file))
                number, done.files, done.chunks = number + 1, done.files + 1, done.chunks + file.chunks
                done.waiting += file.status != "completed"
        after = Position(files[-1].created_s, files[-1].file_id)
    now = await storage.store(store.owner, store.id)
    if now is None or sum(now.counts.values()) != seen:
        raise BadInput(f"vector store '{store.id}': its files changed meanwhile; export again")
    done.stores += 1


async def _export_file(
    storage: SearchStorage, archive: _ArchiveWriter, folder: str, entry: tuple[VectorStore, StoreFile]
) -> None:
    store, file = entry
    record = await storage.file(store.owner, file.file_id)
    chunks = [chunk async for chunk in storage.file_chunks(store.id, file.file_id)]
    vectors = await storage.file_vectors(store.id, file.file_id) if chunks else np.zeros((0, 0), np.float32)
    if record is None or not len(chunks) == len(vectors) == file.chunks:
        raise BadInput(f"vector store '{store.id}': its file '{file.file_id}' changed meanwhile; export again")
    archive.add_json(f"{folder}/file.json", {"upload": asdict(record), "file": asdict(file)})
    if record.id not in archive.files:
        content = await storage.content(record.id)
        if content is None:
            raise BadInput(f"vector store '{store.id}': its file '{file.file_id}' was deleted meanwhile; export again")
        with closing(content):
            archive.add(f"{folder}/content", content.content())
        archive.files.add(record.id)
    if file.status == "completed":
        archive.add(f"{folder}/chunks.jsonl", b"".join(orjson.dumps(_chunk_row(chunk)) + b"\n" for chunk in chunks))
        saved = io.BytesIO()
        np.save(saved, vectors, allow_pickle=False)
        archive.add(f"{folder}/vectors.npy", saved.getvalue())


async def _export_documents(storage: SearchStorage, archive: _ArchiveWriter, owner: str, done: Transferred) -> None:
    after = None
    while documents := (await storage.documents(owner, DocumentQuery(), ListRange(PAGE, "asc", after)))[0]:
        for stored in documents:
            await _export_document(storage, archive, f"documents/{done.documents}", stored)
            done.documents += 1
        after = Position(documents[-1].file.created_s, documents[-1].id)


async def _export_document(
    storage: SearchStorage, archive: _ArchiveWriter, folder: str, stored: StoredDocument
) -> None:
    lessons = [asdict(lesson) for lesson in await storage.lessons_of(stored.id)]
    parts, content = await storage.document_content(stored.id), await storage.content(stored.id)
    if parts is None or content is None:
        raise BadInput(f"document '{stored.id}' was deleted meanwhile; export again")
    archive.add_json(f"{folder}/document.json", {"document": asdict(stored), "lessons": lessons})
    archive.add_json(f"{folder}/parts.json", parts)
    with closing(content):
        archive.add(f"{folder}/content", content.content())
    archive.files.add(stored.id)
    archive.seen.add(stored.id)


_CHUNK = ("index", "start", "end", "text", "tokens")


def _chunk_row(chunk: StoredChunk) -> dict[str, Any]:
    fields = {name: getattr(chunk, name) for name in _CHUNK}
    return {**fields, "words": [[*word[:4], *word.box] for word in chunk.words]}


def _chunk_of(row: dict[str, Any]) -> NewChunk:
    words = tuple(PlacedWord(start, end, page, line, Box(*box)) for start, end, page, line, *box in row["words"])
    return NewChunk(**{name: row[name] for name in _CHUNK}, words=words)


class _Members:
    """The members of a checked archive, in order."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._ahead: tarfile.TarInfo | None = tar.next()

    def is_next(self, ending: str) -> bool:
        return self._ahead is not None and self._ahead.name.endswith(ending)

    def stream(self) -> IO[bytes]:
        """The content of the next member."""
        assert self._ahead is not None
        content = self._tar.extractfile(self._ahead)
        self._ahead = self._tar.next()
        return cast("IO[bytes]", content)

    def json(self) -> Any:
        return orjson.loads(self.stream().read())


async def _import_members(
    storage: SearchStorage, members: _Members, made: _Made, done: Transferred, limits: FileLimits
) -> None:
    members.json()  # the manifest
    while members.is_next("/document.json"):
        await _import_document(storage, members, made, limits)
        done.documents += 1
    while members.is_next("/store.json"):
        store = _store_of(members.json(), made.owner)
        if await storage.store(made.owner, store.id) is not None:
            raise BadInput(f"import: the vector store '{store.id}' is there already; delete it first")
        await storage.add_store(store)
        made.stores.append(store.id)
        done.stores += 1
        while members.is_next("/file.json"):
            done.chunks += await _import_file(storage, members, (made, store), limits)
            done.files += 1


async def _import_file(
    storage: SearchStorage, members: _Members, where: tuple[_Made, VectorStore], limits: FileLimits
) -> int:
    """Add one file with its chunks, if it has any; how many they are."""
    made, store = where
    row = members.json()
    record = FileRecord(**{**row["upload"], "owner": made.owner})
    if members.is_next("/content"):
        await _import_content(storage, record, members.stream(), made, limits)
    file = _store_file_of(row["file"], store.id)
    if not members.is_next("/chunks.jsonl"):
        made.waiting.append(file)
        return 0
    chunks = [_chunk_of(orjson.loads(line)) for line in members.stream().read().splitlines()]
    vectors: Vectors = np.load(io.BytesIO(members.stream().read()), allow_pickle=False)
    encoder = store.encoder or EncoderIdentity("", "", 0)  # of a file without chunks, which has none
    indexed = IndexedFile(chunks, vectors, encoder, file.found, file.pages, file.language)
    await storage.restore(replace(file, status="in_progress"), indexed)
    return len(chunks)


async def _import_document(storage: SearchStorage, members: _Members, made: _Made, limits: FileLimits) -> None:
    row, parts = members.json(), members.json()
    record = FileRecord(**{**row["document"]["file"], "owner": made.owner})
    if await storage.file(made.owner, record.id) is not None:
        raise BadInput(f"import: the document '{record.id}' is there already; delete it first")
    changes = tuple(DocumentChange(**change) for change in row["document"]["changes"])
    stored = StoredDocument(**{**row["document"], "file": record, "changes": changes})
    lessons = tuple(Lesson(**{**lesson, "keys": tuple(lesson["keys"])}) for lesson in row["lessons"])
    document = DocumentRow(stored, values_of(corrected_answer(stored)), lessons)
    with closing(_content_of(record, members.stream(), limits)) as content:
        await storage.add_document(document, content, parts)
    made.files.append(record.id)


async def _import_content(
    storage: SearchStorage, record: FileRecord, stream: IO[bytes], made: _Made, limits: FileLimits
) -> None:
    if (existing := await storage.file(made.owner, record.id)) is not None:
        if existing.sha256 != record.sha256:
            raise BadInput(f"import: a file '{record.id}' with other bytes is there already; delete it first")
        return
    with closing(_content_of(record, stream, limits)) as content:
        await storage.add_file(record, content)
    made.files.append(record.id)


def _content_of(record: FileRecord, stream: IO[bytes], limits: FileLimits) -> StoredFile:
    content = StoredFile(replace(limits, file_bytes=max(limits.file_bytes, record.size_bytes)))
    try:
        while piece := stream.read(_PIECE_BYTES):
            content.write(piece)
    except BaseException:
        content.close()
        raise
    return content


async def _take_back(storage: SearchStorage, made: _Made) -> None:
    """Remove what an import has added. Where the storage is away now, an operator deletes the stores by their ids."""
    with suppress(FinanciaError):
        for store_id in made.stores:
            await storage.delete_store(made.owner, store_id)
        for file_id in made.files:
            await storage.delete_file(made.owner, file_id)


def _store_of(row: dict[str, Any], owner: str) -> VectorStore:
    encoder = row["encoder"] and EncoderIdentity(**row["encoder"])
    counted = {"counts": {}, "usage_bytes": 0, "chunks": 0, "reembedding": None}
    return VectorStore(**{**row, **counted, "owner": owner, "encoder": encoder or None})


def _store_file_of(row: dict[str, Any], store_id: str) -> StoreFile:
    kept = {name: row[name] for name in ("file_id", "name", "created_s", "attributes", "found", "batch_id", "language")}
    chunking, pages = Chunking(**row["chunking"]), tuple(PageSize(**page) for page in row["pages"])
    return StoreFile(store_id=store_id, chunking=chunking, pages=pages, **kept)
