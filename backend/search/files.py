"""The use case behind ``/v1/files``: keep uploads of each caller."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace

from backend.documents.records import RenderPage
from backend.errors import NotFound
from backend.files.stored_file import StoredFile
from backend.search.attributes import NAME_CHARS, checked_text
from backend.search.limits import SearchLimits
from backend.search.records import FileRecord, ListPage
from backend.search.storage import SearchStorage, list_range

PARTS = ".parts"  # behind the owner of what is not a whole file yet: `uploads`
KEPT_S = 60.0
MAX_FILES = 4
MAX_BYTES = 64 * 2**20  # of all together; a larger file is read each time


class RecentContents:
    """Reads files from a storage, and those that were read last from memory. Used on the event loop only.

    Whether a file is still there, and whose it is, the caller has checked.

    Args:
        read: `SearchStorage.content`.
    """

    def __init__(self, read: Callable[[str], Awaitable[StoredFile | None]]) -> None:
        self._read = read
        self._kept: dict[str, StoredFile] = {}  # by id, the one that was used last at the end
        self._reading: dict[str, asyncio.Task[StoredFile | None]] = {}
        self._expiry: dict[str, asyncio.TimerHandle] = {}

    async def content(self, file_id: str) -> StoredFile | None:
        """The bytes, to be closed by the caller; None for a file that is not there. Raises: as ``read``."""
        if (kept := self._kept.pop(file_id, None)) is not None:
            self._kept[file_id] = kept
            return kept.shared()
        if (reading := self._reading.get(file_id)) is None:  # of callers side by side one reads for all
            reading = self._reading[file_id] = asyncio.create_task(self._fetched(file_id))
            reading.add_done_callback(lambda done: self._has_read(file_id, done))
        content = await asyncio.shield(reading)
        return None if content is None else content.shared()

    def forget(self, file_id: str) -> None:
        """Free the bytes of a file, once nobody has them open."""
        if (timer := self._expiry.pop(file_id, None)) is not None:
            timer.cancel()
        self._kept.pop(file_id, None)  # closed with its last reference: somebody may be about to share it

    async def _fetched(self, file_id: str) -> StoredFile | None:
        content = await self._read(file_id)
        if content is not None and content.size_bytes <= MAX_BYTES:
            self._kept[file_id] = content
            self._expiry[file_id] = asyncio.get_running_loop().call_later(KEPT_S, self.forget, file_id)
            self._make_room()
        return content

    def _has_read(self, file_id: str, reading: asyncio.Task[StoredFile | None]) -> None:
        del self._reading[file_id]
        if not reading.cancelled():
            reading.exception()  # of which nobody is told where all callers have left

    def _make_room(self) -> None:
        while len(self._kept) > MAX_FILES or sum(kept.size_bytes for kept in self._kept.values()) > MAX_BYTES:
            self.forget(next(iter(self._kept)))


MIN_EXPIRY_S, MAX_EXPIRY_S = 3_600, 2_592_000  # an hour to 30 days, as OpenAI's; the API checks them


def new_file_id() -> str:
    return f"file-{secrets.token_hex(12)}"


class FileService:
    """Each caller sees only its own files. Used on the event loop only.

    Args:
        render_page: draws a page as a PNG.
        bytes_of: an owner's quota of bytes; None: LIMIT_STORED_BYTES alone.
        now: Unix seconds.
    """

    def __init__(
        self,
        storage: SearchStorage,
        limits: SearchLimits,
        *,
        render_page: RenderPage,
        now: Callable[[], float],
        bytes_of: Callable[[str], int | None] = lambda _owner: None,
    ) -> None:
        self._storage, self._limits, self._bytes_of = storage, limits, bytes_of
        self._render_page, self._now = render_page, now
        self._recent = RecentContents(storage.content)  # for page images: PostgreSQL sends a file whole

    async def upload(
        self,
        owner: str,
        content: StoredFile,
        name: str,
        purpose: str,
        *,
        expires_after_s: float | None = None,
        file_id: str | None = None,
    ) -> FileRecord:
        """Keep a file.

        Raises: TooLarge over LIMIT_STORED_FILES or LIMIT_STORED_BYTES; QuotaExceeded over the owner's own quota of
            bytes; InvalidField; Unavailable.

        Args:
            content: stays the caller's to close.
            file_id: where it is known before; BadInput for one that there is.
        """
        record = self.record(owner, content, name, purpose, expires_after_s=expires_after_s)
        record = record if file_id is None else replace(record, id=file_id)
        await self._storage.add_file(record, content, limits=self.limits_of(owner))
        return record

    def record(
        self,
        owner: str,
        content: StoredFile,
        name: str,
        purpose: str,
        *,
        expires_after_s: float | None = None,
        file_id: str | None = None,
    ) -> FileRecord:
        """What is kept of a new file beside its bytes. Raises: InvalidField."""
        checked_text(name, "file.name", NAME_CHARS)
        checked_text(purpose, "purpose", NAME_CHARS)
        now_s = self._now()
        return FileRecord(
            id=file_id or new_file_id(),
            owner=owner,
            name=name,
            size_bytes=content.size_bytes,
            sha256=content.sha256,
            purpose=purpose,
            created_s=now_s,
            expires_s=None if expires_after_s is None else now_s + expires_after_s,
        )

    def limits_of(self, owner: str) -> SearchLimits:
        """What this owner may keep."""
        return self._limits.of_owner(self._bytes_of(owner.partition(".")[0]))

    async def kept_bytes(self, owner: str) -> int:
        """Bytes of an owner's files, and of what vector stores hold of them."""
        return (await self._storage.usage(owner)).bytes

    async def find(self, owner: str, file_id: str) -> FileRecord:
        """Raises: NotFound, also for somebody else's and for one that has expired."""
        record = await self._storage.file(owner, file_id)
        if record is None or self.has_expired(record):
            raise _not_found(file_id)
        return record

    async def list_files(self, owner: str, page: ListPage, purpose: str | None = None) -> tuple[list[FileRecord], bool]:
        """The files of a page of the list, and whether there are more. Raises: InvalidField for an unknown id."""
        part = await list_range(self._storage, "file", owner, page)
        rows = await self._storage.files(owner, part, purpose=purpose)
        files, has_more = page.part_of(rows)
        return [file for file in files if not self.has_expired(file)], has_more

    async def content(self, owner: str, file_id: str) -> tuple[FileRecord, StoredFile]:
        """The bytes, to be closed by the caller. Raises: NotFound."""
        record = await self.find(owner, file_id)
        content = await self._storage.content(file_id)
        if content is None:  # deleted meanwhile
            raise _not_found(file_id)
        return record, content

    async def delete(self, owner: str, file_id: str) -> None:
        """Delete a file, also from all vector stores. Raises: NotFound."""
        if not await self._storage.delete_file(owner, file_id):
            raise _not_found(file_id)
        self._recent.forget(file_id)

    async def page_image(
        self,
        owner: str,
        file_id: str,
        number: int,
        dpi: float,
        *,
        rotation: int | None = None,
        password: str | None = None,
    ) -> bytes:
        """A page as a PNG, upright as it was read; one that no store has read (yet) as a viewer shows it.

        Args:
            rotation: of the page as it was read; None: as the store that indexed it last knows it.

        Raises: NotFound, InvalidField for a page that is not there, WrongMediaType for a file without pages,
            PasswordRequired.
        """
        await self.find(owner, file_id)
        content = await self._recent.content(file_id)
        if content is None:  # deleted meanwhile
            raise _not_found(file_id)
        try:
            if rotation is None:
                sizes = await self._storage.file_pages(file_id)
                rotation = next((page.rotation for page in sizes if page.number == number), 0)
            return await self._render_page(content, number, rotation=rotation, dpi=dpi, password=password)
        finally:
            content.close()

    def now_s(self) -> float:
        """Unix seconds."""
        return self._now()

    def has_expired(self, record: FileRecord) -> bool:
        return record.expires_s is not None and record.expires_s <= self._now()


def _not_found(file_id: str) -> NotFound:
    return NotFound(f"file_id: there is no file '{file_id[:64]}'", param="file_id")
