"""What stores files, vector stores and chunks, and ranks the chunks of one store: the protocol of the storages.

`sqlite` keeps everything in a folder of one machine, `postgres` on a server that replicas share. Both pass the same
tests (tests/search/storage_contract.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Protocol

from backend.errors import BadInput, InvalidField
from backend.files.stored_file import StoredFile
from backend.models.encoder import Vectors
from backend.search.filters import Filter
from backend.search.limits import SearchLimits
from backend.search.records import (
    Attributes,
    ChunkContent,
    DocumentQuery,
    DocumentRow,
    DocumentSort,
    Duplicate,
    EncoderIdentity,
    FileRecord,
    FileStatus,
    IndexClaim,
    IndexedFile,
    IndexFailure,
    KeywordQuery,
    Lesson,
    ListKind,
    ListPage,
    ListRange,
    PageSize,
    Position,
    Progress,
    Ranked,
    StoredChunk,
    StoredDocument,
    StoredUsage,
    StoreFile,
    VectorStore,
)


class SearchStorage(Protocol):
    """Called on the event loop; nothing here blocks it. What returns from a call that changes something is durable.

    Every call raises Unavailable where the storage is away, cannot be written by this process, or its disk is full
    (nothing has changed then), and StorageCorrupt where its data are broken: never a wrong answer.
    """

    async def start(self) -> None:
        """Open, creating or upgrading the schema. Raises: SetupError for what cannot be opened at all."""

    async def close(self) -> None: ...

    async def swept(self) -> None:
        """Return when what was deleted before has left the disk, which it does in the background."""

    def report(self) -> dict[str, Any]:
        """The kind of storage, where it is, and whether this process writes, for GET /v1/system."""

    async def position(self, kind: ListKind, list_id: str, row_id: str) -> Position | None:
        """Where a row stands in its list, also one that was deleted within the last day.

        Args:
            list_id: the owner, or the store.
        """

    # Files

    async def add_file(self, file: FileRecord, content: StoredFile, *, limits: SearchLimits | None = None) -> None:
        """Cancelled, it has kept the file whole or not at all.

        Raises: BadInput for an id that anybody has already; TooLarge as `limits.check_kept_file`.

        Args:
            limits: of the owner, as in the other calls that add something: whoever adds at the same time, the sum
                stays below them. None: none.
        """

    async def file(self, owner: str, file_id: str) -> FileRecord | None: ...

    async def files_of(self, owner: str, file_ids: Collection[str]) -> list[FileRecord]:
        """Those of the files that are there, in any order."""

    async def files(self, owner: str, part: ListRange, *, purpose: str | None = None) -> list[FileRecord]: ...

    async def content(self, file_id: str) -> StoredFile | None:
        """The file's bytes, to be closed by the caller."""

    async def delete_file(self, owner: str, file_id: str) -> bool:
        """Delete a file, also from every vector store. False: there was none."""

    async def file_pages(self, file_id: str) -> tuple[PageSize, ...]:
        """The pages of a file as the store that indexed it last has them; none before it is indexed."""

    async def expired_files(self, now_s: float) -> list[FileRecord]:
        """Files of all owners whose ``expires_s`` has passed."""

    async def usage(self, owner: str) -> StoredUsage: ...

    async def totals(self) -> StoredUsage:
        """What all owners together have stored."""

    # Stored documents: files with what was read from them. `delete_file` deletes all of it.

    async def add_document(
        self,
        row: DocumentRow,
        content: StoredFile,
        document_content: Mapping[str, Any],
        *,
        limits: SearchLimits | None = None,
    ) -> None:
        """`add_file` of a file with its document, both or neither. Raises: as `add_file`.

        Args:
            document_content: the answer's `DOCUMENT_CONTENT`, which stays as it is.
        """

    async def replace_document(self, row: DocumentRow, *, limits: SearchLimits | None = None) -> bool:
        """Write a document's next revision with its values and lessons, in place of those of the revision before.

        False: it is gone, or of another revision; nothing has changed. Raises: TooLarge, QuotaExceeded.
        """

    async def document(self, owner: str, file_id: str) -> StoredDocument | None: ...

    async def document_content(self, file_id: str) -> dict[str, Any] | None:
        """The answer's `DOCUMENT_CONTENT` as it was read."""

    async def documents(self, owner: str, query: DocumentQuery, part: ListRange) -> list[StoredDocument]:
        """Those of the query. Positions in ``part`` are those of `document_position`."""

    async def document_position(self, owner: str, file_id: str, sort: DocumentSort) -> Position | None:
        """Where a document stands in a list that is sorted so."""

    async def document_duplicates(self, owner: str, file_ids: Sequence[str]) -> list[Duplicate]:
        """Which of these documents there is another of, the owner's all together."""

    async def lessons(self, owner: str, keys: Sequence[str], limit: int) -> list[Lesson]:
        """Those with any of the keys, each once, the newest first."""

    async def lessons_of(self, file_id: str) -> list[Lesson]:
        """Those that the documents of a file taught."""

    # Vector stores

    async def add_store(
        self, store: VectorStore, files: Sequence[StoreFile] = (), *, limits: SearchLimits | None = None
    ) -> None:
        """Add a store with its files, all of it or nothing.

        Raises: BadInput for an id that anybody has already; TooLarge as `limits.check_kept_store`; as `attach`.
        """

    async def store(self, owner: str, store_id: str) -> VectorStore | None: ...

    async def stores(self, owner: str, part: ListRange) -> list[VectorStore]: ...

    async def update_store(self, store: VectorStore) -> bool:
        """Write name, description, metadata, expiry and last activity. False: it is gone."""

    async def touch_store(self, store_id: str, now_s: float) -> None:
        """Write the last activity alone, where it is later than the one that is kept."""

    async def delete_store(self, owner: str, store_id: str) -> bool: ...

    async def expired_stores(self, now_s: float) -> list[VectorStore]:
        """Stores of all owners whose time without activity is over."""

    # The files of a store

    async def attach(self, files: Sequence[StoreFile], *, limits: SearchLimits | None = None) -> None:
        """Add files to their store, all or none, to be indexed. One that is there already is indexed anew.

        Raises: NotFound; TooLarge as `limits.check_room_to_index`, QuotaExceeded as `limits.check_waiting_files`.
        """

    async def store_file(self, store_id: str, file_id: str) -> StoreFile | None: ...

    async def store_files(
        self, store_id: str, part: ListRange, *, status: FileStatus | None = None, batch_id: str | None = None
    ) -> list[StoreFile]: ...

    async def set_attributes(
        self, store_id: str, file_id: str, attributes: Attributes, *, limits: SearchLimits | None = None
    ) -> StoreFile | None:
        """Raises: TooLarge, QuotaExceeded where they are more than before, and too much."""

    async def detach(self, store_id: str, file_id: str) -> bool: ...

    async def batch_counts(self, store_id: str, batch_id: str) -> dict[FileStatus, int] | None:
        """Of its files that are still in the store. None: the store has never had files of such a batch."""

    async def cancel_batch(self, store_id: str, batch_id: str) -> int:
        """Cancel those of its files that are in progress; how many they were."""

    def file_chunks(self, store_id: str, file_id: str) -> AsyncIterator[StoredChunk]:
        """All chunks of a file in order."""

    # Indexing

    async def claim(self, encoder: EncoderIdentity, lease_s: float) -> IndexClaim | None:
        """A file that waits, of a store of this encoder, of none yet, or being re-embedded with it.

        Owners take turns: of the owner with the fewest running files, then of the one whose last claim is the longest
        ago, it is the file that has waited longest. A file whose claim ran out is claimed again.
        """

    async def renew(self, claim: IndexClaim, progress: Progress, lease_s: float) -> bool:
        """False: the file was removed or cancelled, or another process has it. Stop then."""

    async def finish(self, claim: IndexClaim, indexed: IndexedFile) -> bool:
        """Store chunks, vectors and attributes in one step, in place of earlier ones; the status is `completed`.

        The store's encoder becomes this one where it had none. False as `renew`: nothing is stored then.
        """

    async def fail(self, claim: IndexClaim, failure: IndexFailure) -> bool: ...

    async def release(self, claim: IndexClaim) -> None:
        """Give the file back to the queue, not counted as an attempt."""

    async def waiting(self) -> int:
        """Files of all owners that are in progress."""

    # Search

    async def nearest(self, store: VectorStore, vector: Vectors, where: Filter | None, limit: int) -> list[Ranked]:
        """The chunks of completed files with the highest cosine, exactly as many as there are up to ``limit``.

        Shapes: vector (width) float32, unit length, of the store's encoder.
        """

    async def matching(self, store: VectorStore, query: KeywordQuery, where: Filter | None, limit: int) -> list[Ranked]:
        """The chunks of completed files with the highest BM25 (`backend.search.keywords`, statistics of this store)."""

    async def chunks(self, store_id: str, ids: Collection[int]) -> list[StoredChunk]:
        """The chunks in the order of ``ids``; those that have been deleted since are left out."""

    async def chunk_contents(self, store_id: str, ids: Collection[int]) -> list[ChunkContent]:
        """What tells equal chunks, in any order, without reading their texts; those that are deleted are left out."""

    async def attribute_keys(self, store_id: str, limit: int = 100) -> list[str]:
        """Names of the attributes that files of this store have, the caller's and found ones, sorted."""

    async def attribute_types(self, store_id: str, names: Sequence[str]) -> dict[str, set[str]]:
        """Of each name, which of "numbers", "texts" and "booleans" files of this store have under it."""

    # Copies from one storage to another

    async def file_vectors(self, store_id: str, file_id: str) -> Vectors:
        """The vectors of a file's chunks in order, by the store's encoder. Shapes: (chunks, width) float32.

        (0, 0) where there are none. Raises: StorageCorrupt where a chunk has none.
        """

    async def restore(self, file: StoreFile, indexed: IndexedFile) -> None:
        """Add a file that another storage has indexed: nobody indexes it in between.

        Raises: NotFound as `attach`; WrongEncoder where the store has vectors of another encoder.
        """

    # Another encoder

    async def begin_reembedding(self, store_id: str, encoder: EncoderIdentity) -> bool: ...

    async def unembedded(
        self, store_id: str, encoder: EncoderIdentity, limit: int, *, behind: int = 0
    ) -> list[tuple[int, str]]:
        """Ids and texts of chunks without a vector of this encoder, the lowest ids first.

        Args:
            behind: the last id of the batch before, so that nobody reads again what is done.
        """

    async def put_vectors(
        self, store_id: str, encoder: EncoderIdentity, chunk_ids: Sequence[int], vectors: Vectors
    ) -> None:
        """Keep vectors beside those of the store's encoder, which go on answering. Deleted chunks are ignored."""

    async def switch_encoder(self, store_id: str, encoder: EncoderIdentity) -> bool:
        """Make this the store's encoder, and delete the vectors of others. False: some chunks have no vector yet."""

    async def reembedding_stores(self, encoder: EncoderIdentity) -> list[VectorStore]:
        """Stores of all owners that are being re-embedded with this encoder."""


def id_taken(kind: str, taken_id: str) -> BadInput:
    """What a storage raises where another row has the id, whoever owns it."""
    return BadInput(f"{kind} '{taken_id}': there is one with this id already; delete it first, or choose another id")


_NAMES = {"file": "file '{}'", "store": "vector store '{}'", "store_file": "file '{}' in this vector store"}


async def list_range(storage: SearchStorage, kind: ListKind, list_id: str, page: ListPage) -> ListRange:
    """One row more than the page has, to tell whether there are more.

    Raises: InvalidField for an id that is not in the list, and was not within the last day.
    """

    async def position(param: str, row_id: str | None) -> Position | None:
        found = None if row_id is None else await storage.position(kind, list_id, row_id)
        if row_id is not None and found is None:
            raise InvalidField(f"{param}: there is no {_NAMES[kind].format(row_id[:64])}", param=param)
        return found

    after, before = await position("after", page.after), await position("before", page.before)
    return ListRange(page.limit + 1, page.order, after, before)
