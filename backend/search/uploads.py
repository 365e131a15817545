"""The use case behind ``/v1/uploads``: a file that comes in parts, which are files themselves until it is whole."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import orjson

from backend.errors import BadInput, InvalidField, NotFound
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile, check_bytes
from backend.search.files import PARTS, FileService
from backend.search.records import FileRecord, ListPage

LIFE_S = 3_600.0  # of an upload that is not completed, as OpenAI's
_PIECE_BYTES = 2**20
_LISTED = 100  # parts that are deleted at a time


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is announced. Times are Unix seconds."""

    id: str  # "upload_…"
    name: str
    size_bytes: int  # as announced
    purpose: str
    created_s: float
    expires_s: float
    expires_after_s: float | None = None  # of the file, once it is whole


class UploadService:
    """Uploads of each caller. They and their parts stand in the file storage, so any replica goes on with them.

    They belong to an owner of their own (`PARTS`), so lists of files do not show them and the bytes of a whole file do
    not count twice; the storage deletes what is not completed within an hour.
    """

    def __init__(self, files: FileService, limits: FileLimits) -> None:
        self._files, self._limits = files, limits

    async def create(
        self, owner: str, name: str, size_bytes: int, purpose: str, *, expires_after_s: float | None = None
    ) -> Upload:
        """Announce a file. Raises: TooLarge over LIMIT_FILE_BYTES; as `FileService.upload`."""
        check_bytes(size_bytes, self._limits)
        announced = orjson.dumps({"bytes": size_bytes, "expires_after_s": expires_after_s})
        with closing(StoredFile.of(announced, self._limits)) as content:
            record = await self._files.upload(
                owner + PARTS,
                content,
                name,
                purpose,
                expires_after_s=LIFE_S,
                file_id=f"upload_{secrets.token_hex(12)}",
            )
        return _upload(record, size_bytes, expires_after_s)

    async def add_part(self, owner: str, upload_id: str, content: StoredFile) -> FileRecord:
        """Keep a part. Raises: NotFound for an upload that is none, or no more; as `FileService.upload`."""
        await self._find(owner, upload_id)
        return await self._files.upload(
            owner + PARTS,
            content,
            upload_id,
            upload_id,
            expires_after_s=LIFE_S,
            file_id=f"part_{secrets.token_hex(12)}",
        )

    async def complete(
        self, owner: str, upload_id: str, part_ids: Sequence[str], md5: str | None = None
    ) -> tuple[Upload, FileRecord]:
        """Make a file of the parts, in this order. Completed again, it is the same file.

        Raises: InvalidField for parts that are not the upload's, or not all of it; NotFound; as `FileService.upload`.
        """
        file_id = f"file-{upload_id.removeprefix('upload_')}"
        try:
            upload = await self._find(owner, upload_id)
        except NotFound:
            return _completed(upload_id, await self._done(owner, upload_id, file_id))
        with closing(StoredFile(self._limits)) as content:
            await self._join(owner, upload, part_ids, content, md5)
            file = await self._keep(owner, upload, content, file_id)
        await self._delete(owner, upload_id)
        return upload, file

    async def cancel(self, owner: str, upload_id: str) -> Upload:
        """Delete an upload and its parts. Raises: NotFound."""
        upload = await self._find(owner, upload_id)
        await self._delete(owner, upload_id)
        return upload

    async def _find(self, owner: str, upload_id: str) -> Upload:
        try:
            record, content = await self._files.content(owner + PARTS, upload_id)
        except NotFound:
            raise _no_upload(upload_id) from None
        with closing(content):
            announced = orjson.loads(content.content())
        return _upload(record, announced["bytes"], announced["expires_after_s"])

    async def _done(self, owner: str, upload_id: str, file_id: str) -> FileRecord:
        try:
            return await self._files.find(owner, file_id)
        except NotFound:
            raise _no_upload(upload_id) from None

    async def _keep(self, owner: str, upload: Upload, content: StoredFile, file_id: str) -> FileRecord:
        """The whole file, also where another request has completed the upload meanwhile."""
        expires_after_s = upload.expires_after_s
        try:
            return await self._files.upload(
                owner, content, upload.name, upload.purpose, expires_after_s=expires_after_s, file_id=file_id
            )
        except BadInput as error:
            try:
                return await self._files.find(owner, file_id)
            except NotFound:
                raise error from None

    async def _join(
        self, owner: str, upload: Upload, part_ids: Sequence[str], whole: StoredFile, md5: str | None
    ) -> None:
        """Write the parts behind one another."""
        digest = hashlib.md5(usedforsecurity=False)
        for index, part_id in enumerate(part_ids):
            try:
                record, part = await self._files.content(owner + PARTS, part_id)
            except NotFound:
                raise _no_part(index, part_id, upload.id) from None
            with closing(part):
                if record.purpose != upload.id:
                    raise _no_part(index, part_id, upload.id)
                await asyncio.to_thread(_append, part, whole, digest)
        if whole.size_bytes != upload.size_bytes:
            raise InvalidField(
                f"part_ids: these parts are {whole.size_bytes} bytes together, and the upload was announced with "
                f"{upload.size_bytes}; name all its parts, or begin another upload"
            )
        if md5 is not None and md5.lower() != digest.hexdigest():
            raise InvalidField(
                f"md5: the parts together have {digest.hexdigest()}, and not {md5[:64]}; send them again"
            )

    async def _delete(self, owner: str, upload_id: str) -> None:
        """The parts, and then the upload: what is left over by a fault is deleted within the hour."""
        page, has_more = ListPage(_LISTED, "asc"), True
        while has_more:
            parts, has_more = await self._files.list_files(owner + PARTS, page, upload_id)
            for part in parts:
                await self._files.delete(owner + PARTS, part.id)
        await self._files.delete(owner + PARTS, upload_id)


def _upload(record: FileRecord, size_bytes: int, expires_after_s: float | None) -> Upload:
    expires_s = record.created_s + LIFE_S
    return Upload(record.id, record.name, size_bytes, record.purpose, record.created_s, expires_s, expires_after_s)


def _completed(upload_id: str, file: FileRecord) -> tuple[Upload, FileRecord]:
    """What was uploaded, as its file tells it."""
    expires_s = file.created_s + LIFE_S
    return Upload(upload_id, file.name, file.size_bytes, file.purpose, file.created_s, expires_s), file


def _append(part: StoredFile, whole: StoredFile, digest: hashlib._Hash) -> None:
    with part.borrowed() as descriptor:
        for offset in range(0, part.size_bytes, _PIECE_BYTES):
            piece = os.pread(descriptor, _PIECE_BYTES, offset)
            digest.update(piece)
            whole.write(piece)


def _no_upload(upload_id: str) -> NotFound:
    return NotFound(
        f"upload_id: there is no upload '{upload_id[:64]}' that waits for parts; they end with complete, with cancel, "
        f"and {LIFE_S / 60:g} minutes after they began",
        param="upload_id",
    )


def _no_part(index: int, part_id: str, upload_id: str) -> InvalidField:
    return InvalidField(f"part_ids[{index}]: there is no part '{part_id[:64]}' of the upload '{upload_id[:64]}'")
