"""Pointers change whole, digests see one bit, and a full disk is told apart from other faults."""

from __future__ import annotations

import errno

import pytest
from safetensors import SafetensorError

from backend.training.trainer.durable import digest, is_full, point, pointed


def test_a_pointer_changes_whole(tmp_path):
    """It names a folder beside it; a write that dies before the rename leaves the old name."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    point(tmp_path / "latest", "a", tmp_path / ".pending")
    assert pointed(tmp_path / "latest") == tmp_path / "a"
    (tmp_path / ".pending").write_text("b", encoding="utf-8")  # as a killed run leaves it
    assert pointed(tmp_path / "latest") == tmp_path / "a"

    point(tmp_path / "latest", "b", tmp_path / ".pending")

    assert pointed(tmp_path / "latest") == tmp_path / "b"
    assert not (tmp_path / ".pending").exists()


@pytest.mark.parametrize("content", [b"", b"absent", b"..", b"a/../a", b"/", b"\xff\xfe", b"file"])
def test_a_pointer_leads_nowhere_else(tmp_path, content):
    """Only the plain name of a folder beside it counts."""
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "latest").write_bytes(content)

    assert pointed(tmp_path / "latest") is None


def test_a_digest_sees_one_bit(tmp_path):
    """Equal content has equal digests; one other bit another one."""
    for name, content in (("one", b"\x00" * 99), ("same", b"\x00" * 99), ("other", b"\x00" * 98 + b"\x01")):
        (tmp_path / name).write_bytes(content)

    assert digest(tmp_path / "one") == digest(tmp_path / "same") != digest(tmp_path / "other")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (SafetensorError("Error while serializing: I/O error: Permission denied (os error 13)"), False),
        (OSError(errno.EIO, "Input/output error"), False),
    ],
)
def test_a_full_disk_is_recognised(error, expected):
    """By number, or in safetensors' words."""
    assert is_full(error) == expected
