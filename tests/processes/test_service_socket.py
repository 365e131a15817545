"""Folders of service processes that were killed."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.errors import SetupError
from backend.processes import http_workers
from backend.processes.http_workers import create_folder, socket_in


def folder_with_socket(sock: socket.socket, *, age_s: float) -> Path:
    """A service process's folder, whose socket was bound so long ago."""
    folder = create_folder()
    path = socket_in(folder)
    sock.bind(str(path))
    then = path.stat().st_mtime - age_s
    os.utime(path, (then, then))
    return folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as a socket's path has 107 bytes at most, which pytest's own folders may fill."""
    with tempfile.TemporaryDirectory(prefix="f") as name:
        yield Path(name)


def test_what_a_killed_service_left_is_removed(folder: Path, monkeypatch):
    """Not the folder of one that listens, of one that starts, nor anything else."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    starting = create_folder()
    other = folder / "financia-other"
    other.mkdir()
    with (
        socket.socket(socket.AF_UNIX) as dead,
        socket.socket(socket.AF_UNIX) as living,
        socket.socket(socket.AF_UNIX) as young,
    ):
        killed = folder_with_socket(dead, age_s=3600)
        dead.close()
        kept = folder_with_socket(living, age_s=3600)
        living.listen()
        bound = folder_with_socket(young, age_s=0)
        new = create_folder()

        assert {starting, other, kept, bound, new} == set(folder.iterdir())
        assert not killed.exists()
        assert 0o700 == new.stat().st_mode & 0o777


def test_the_longest_temporary_folder_that_fits(folder: Path, monkeypatch):
    """One byte more goes elsewhere, so that every folder that is taken can be bound."""
    spare = 103 - len("/financia-http-12345678/service.sock") - len(str(folder)) - 1
    fits, too_long = folder / ("d" * spare), folder / ("d" * (spare + 1))
    monkeypatch.setattr(http_workers, "SHORT", (str(folder),))
    parents = []
    for parent in (fits, too_long):
        parent.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(parent))
        made = create_folder()
        parents.append(made.parent)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(socket_in(made)))

    assert [fits, folder] == parents
    assert 103 == len(str(socket_in(next(fits.iterdir()))))
    assert [] == list(too_long.iterdir())


def test_no_folder_for_the_socket_says_what_to_change(folder: Path, monkeypatch):
    """Each place with its fault, and the variable that helps."""
    long = folder / ("d" * 100)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(http_workers, "SHORT", (str(folder / "absent"),))
    with pytest.raises(SetupError) as failure:
        create_folder()

    told = str(failure.value)
    assert "set TMPDIR to a short path" in told
    assert f"{long}: {len(str(long)) + 36} bytes; {folder / 'absent'}: No such file" in told
