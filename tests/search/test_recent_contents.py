"""The files whose pages are looked at are read from their storage once."""

import asyncio
from collections import Counter

import pytest

from backend.errors import NotFound, StorageCorrupt
from backend.files.stored_file import StoredFile
from backend.search import files
from backend.search.files import RecentContents
from tests.documents.conftest import LIMITS
from tests.search.search_stack import OTHER, OWNER, SearchStack


class _Storage:
    """Gives files whose bytes are their id."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.errors: list[Exception] = []

    async def content(self, file_id: str) -> StoredFile | None:
        self.reads[file_id] += 1
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop()
        return None if file_id == "absent" else StoredFile.of(file_id.encode(), LIMITS)


async def _read(recent: RecentContents, file_id: str) -> bytes:
    content = await recent.content(file_id)
    try:
        return content.content()
    finally:
        content.close()


async def test_page_images_read_their_file_once(search: SearchStack) -> None:
    """Side by side, too. A file that is deleted is gone at once; others never see it."""
    file_id = await search.upload()

    images = await asyncio.gather(*(search.files.page_image(OWNER, file_id, page, 72) for page in range(1, 4)))
    images.append(await search.files.page_image(OWNER, file_id, 4, 72))
    with pytest.raises(NotFound):
        await search.files.page_image(OTHER, file_id, 1, 72)
    reads = search.storage.calls["content"]
    await search.files.delete(OWNER, file_id)

    assert [b"1 at 72", b"2 at 72", b"3 at 72", b"4 at 72"] == images
    assert 1 == reads
    with pytest.raises(NotFound):
        await search.files.page_image(OWNER, file_id, 1, 72)


@pytest.mark.parametrize(("name", "most"), [("MAX_FILES", 2), ("MAX_BYTES", 3)])
async def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setattr(files, name, most)
    storage = _Storage()
    recent = RecentContents(storage.content)

    read = [await _read(recent, file_id) for file_id in ("a", "b", "a", "cc", "a", "b")]

    assert [b"a", b"b", b"a", b"cc", b"a", b"b"] == read
    assert {"a": 1, "b": 2, "cc": 1} == storage.reads


async def test_a_large_file_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 3)
    storage = _Storage()
    recent = RecentContents(storage.content)

    read = [await _read(recent, file_id) for file_id in ("a", "large", "large", "a")]
    side_by_side = await asyncio.gather(_read(recent, "large"), _read(recent, "large"))

    assert [b"a", b"large", b"large", b"a"] == read
    assert [b"large"] * 2 == side_by_side
    assert {"a": 1, "large": 3} == storage.reads


async def test_bytes_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "KEPT_S", 0.0)
    storage = _Storage()
    recent = RecentContents(storage.content)

    await _read(recent, "a")
    forgotten = asyncio.Event()
    asyncio.get_running_loop().call_later(0.0, forgotten.set)
    await forgotten.wait()
    await _read(recent, "a")

    assert {"a": 2} == storage.reads


async def test_what_cannot_be_read_is_read_again() -> None:
    """An error, or a file that is not there, is nobody's answer later."""
    storage = _Storage()
    recent = RecentContents(storage.content)
    storage.errors = [StorageCorrupt("broken")]

    with pytest.raises(StorageCorrupt):
        await recent.content("a")

    assert b"a" == await _read(recent, "a")
    assert [None, None] == [await recent.content("absent") for _ in range(2)]
    assert {"a": 2, "absent": 2} == storage.reads
