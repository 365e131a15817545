"""Uploads in parts over an embedded storage: what is left over is deleted, and quotas hold."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from backend.errors import TooLarge
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.search.limits import SearchLimits
from backend.search.uploads import LIFE_S, UploadService
from tests.search.search_stack import OWNER, SearchStack

LIMITS = FileLimits()


def _stored(content: bytes) -> StoredFile:
    return StoredFile.of(content, LIMITS)


async def test_what_is_never_completed_expires(search: SearchStack) -> None:
    """Within the hour: the storage's own expiry finds the upload and its parts."""
    uploads = UploadService(search.files, LIMITS)
    upload = await uploads.create(OWNER, "a.txt", 2, "batch")
    part = await uploads.add_part(OWNER, upload.id, _stored(b"ab"))

    expired = await search.storage.expired_files(upload.created_s + LIFE_S + 1)
    assert {upload.id, part.id} == {file.id for file in expired}


async def test_parts_have_their_owners_quota(open_search: Callable[..., object]) -> None:
    """Of bytes; and the storage's limit of files."""
    search: SearchStack = await open_search(limits=replace(SearchLimits(), stored_files=2))  # type: ignore[misc]
    uploads = UploadService(search.files, LIMITS)
    upload = await uploads.create(OWNER, "a.txt", 2, "batch")
    await uploads.add_part(OWNER, upload.id, _stored(b"a"))
    with pytest.raises(TooLarge, match="LIMIT_STORED_FILES"):
        await uploads.add_part(OWNER, upload.id, _stored(b"b"))
