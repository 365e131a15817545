"""Storage of uploads."""

import fcntl
import gc
import hashlib
import os
from pathlib import Path

import pytest

from backend.errors import TooLarge
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile

LIMITS = FileLimits(file_bytes=1000)


def open_descriptors() -> int:
    """Number in this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def content(stored: StoredFile) -> bytes:
    """All bytes, through a descriptor as a worker gets it."""
    fd = stored.lend()
    try:
        return os.pread(fd, 10_000, 0)
    finally:
        os.close(fd)


def test_chunks_add_up():
    """Bytes, length and hash do not depend on the chunks."""
    stored = StoredFile(LIMITS)
    for chunk in (b"abc", bytearray(b""), memoryview(b"def")):
        stored.write(chunk)

    assert (b"abcdef", 6, b"abcdef") == (content(stored), stored.size_bytes, stored.head)
    assert hashlib.sha256(b"abcdef").hexdigest() == stored.sha256


def test_over_the_limit():
    """Refused at once, naming the setting; nothing of that chunk is kept."""
    stored = StoredFile(LIMITS)
    stored.write(bytes(1000))

    with pytest.raises(TooLarge, match="1001 is over the limit of 1000 \\(LIMIT_FILE_BYTES\\)"):
        stored.write(b"x")
    assert stored.size_bytes == 1000


def test_a_path(tmp_path: Path):
    """A file is copied and may change afterwards."""
    path = tmp_path / "a.pdf"
    path.write_bytes(b"before")
    stored = StoredFile.of(path, LIMITS)
    path.write_bytes(b"after!")

    assert content(stored) == b"before"


def test_a_path_that_is_too_large_is_not_read(tmp_path: Path):
    """Its size is checked first, and no descriptor stays open."""
    path = tmp_path / "a.pdf"
    with path.open("wb") as file:
        file.truncate(10**12)  # sparse: takes no space on disk
    before = open_descriptors()

    with pytest.raises(TooLarge):
        StoredFile.of(path, LIMITS)
    assert before == open_descriptors()


@pytest.mark.skipif(not hasattr(fcntl, "F_ADD_SEALS"), reason="Linux only")
def test_sealed_bytes_cannot_be_changed():
    """Not even through a worker's descriptor."""
    stored = StoredFile.of(b"contract", LIMITS)
    stored.seal()
    fd = stored.lend()

    with pytest.raises(PermissionError):
        os.pwrite(fd, b"X", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)
    assert content(stored) == b"contract"


def test_closed_means_closed():
    """No descriptor is left, none can be lent, and closing twice does nothing."""
    before = open_descriptors()
    stored = StoredFile.of(b"x", LIMITS)
    stored.close()
    stored.close()

    with pytest.raises(ValueError, match="closed"):
        stored.lend()
    assert before == open_descriptors()


def test_a_forgotten_file_is_closed():
    """Dropping it without closing leaks nothing."""
    before = open_descriptors()
    stored = StoredFile.of(b"x", LIMITS)
    assert before + 1 == open_descriptors()
    del stored
    gc.collect()

    assert before == open_descriptors()


def test_without_memfd(monkeypatch: pytest.MonkeyPatch):
    """macOS: an unlinked temporary file."""
    monkeypatch.delattr(os, "memfd_create")
    stored = StoredFile.of(b"contract", LIMITS)
    stored.seal()
    fd = stored.lend()

    assert b"contract" == content(stored)
    assert 0 == os.fstat(fd).st_nlink
    os.close(fd)


def test_shared_handles_are_independent():
    """Both have the same bytes; closing one leaves the other, and closing both frees them."""
    before = open_descriptors()
    stored = StoredFile.of(b"abc", LIMITS)
    share = stored.shared()
    stored.close()

    assert (b"abc", b"abc", 3) == (content(share), share.content(), share.size_bytes)
    assert hashlib.sha256(b"abc").hexdigest() == share.sha256
    share.close()
    assert before == open_descriptors()
    with pytest.raises(ValueError, match="closed"):
        stored.shared()
