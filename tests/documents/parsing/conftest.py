"""Readers for the tests of this folder: real worker processes, shared where a test leaves them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from backend.documents.parsing.file_readers import FileReaders
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.worker_process import WorkerProcess
from tests.documents.parsing.pdfs import FAULTY_WORKER


@pytest.fixture(scope="session")
def readers() -> Iterator[FileReaders]:
    """Two workers with the usual limits, for tests that only read."""
    with FileReaders(2, FileLimits()) as readers:
        yield readers


@pytest.fixture
def make_readers() -> Iterator[Callable[..., FileReaders]]:
    """Readers of one's own, closed after the test; ``faulty`` ones fail by page number (faulty_worker.py)."""
    made: list[FileReaders] = []

    def make(count: int = 1, limits: FileLimits | None = None, *, faulty: bool = False) -> FileReaders:
        limits = limits or FileLimits()
        start = (lambda: WorkerProcess(limits, command=FAULTY_WORKER)) if faulty else None
        made.append(FileReaders(count, limits, start_worker=start))
        return made[-1]

    yield make
    for readers in made:
        readers.close()
