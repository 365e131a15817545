"""The bytes of stored files: read where they lie, and never other than they were stored."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from backend.errors import StorageCorrupt
from backend.files.stored_file import StoredFile
from backend.search.sqlite.contents import Contents
from tests.search.samples import stored

BYTES = b"%PDF-1.7 a file"
SHA256 = hashlib.sha256(BYTES).hexdigest()


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    kept = Contents(tmp_path)
    with stored(BYTES) as upload:
        kept.write("file-1", upload)
    return kept


def test_a_file_is_not_copied(contents: Contents, tmp_path: Path) -> None:
    """What is read is the stored file itself, so that a page of a large one costs no memory."""
    content = contents.read("file-1", SHA256)

    assert _path(tmp_path).stat().st_ino == _inode(content)
    assert (BYTES, len(BYTES), SHA256) == (content.content(), content.size_bytes, content.sha256)
    content.close()


def test_a_file_is_hashed_once(contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again where it was written to."""
    hashed: list[Any] = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *arguments: hashed.append(1) or digest(*arguments))

    for _ in range(3):
        contents.read("file-1", SHA256).close()
    _path(tmp_path).write_bytes(BYTES[::-1])

    with pytest.raises(StorageCorrupt, match="file-1"):
        contents.read("file-1", SHA256)
    assert 2 == len(hashed)


def test_a_file_that_is_deleted_stays_open(contents: Contents) -> None:
    content = contents.read("file-1", SHA256)
    second = content.shared()
    contents.delete("file-1")
    content.close()

    assert (BYTES, SHA256) == (second.content(), second.sha256)
    with pytest.raises(StorageCorrupt, match="gone"):
        contents.read("file-1", SHA256)
    second.close()


def _inode(content: StoredFile) -> int:
    descriptor = content.lend()
    try:
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def _path(folder: Path) -> Path:
    [path] = folder.glob("??/*")
    return path
