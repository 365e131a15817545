"""Fixtures with real worker processes."""

from collections.abc import Callable, Iterator

import psutil
import pytest

from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.worker_pool import MODULE, WorkerProcess
from tests.files.pdfs import FAULTY_WORKER


@pytest.fixture(scope="session")
def readers() -> Iterator[FileReaders]:
    """Two workers with default limits, shared by tests that only read."""
    with FileReaders(2, FileLimits()) as readers:
        yield readers


def newest_worker() -> psutil.Process:
    """The worker process that started last, of those that still run."""
    children = psutil.Process().children()
    return max((child for child in children if MODULE in child.cmdline()), key=psutil.Process.create_time)


def own_bytes(process: psutil.Process) -> int:
    """Memory of a process alone; pages of a file that it shares with the service are not."""
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))  # macOS does not tell


@pytest.fixture
def make_readers() -> Iterator[Callable[..., FileReaders]]:
    """Makes readers that are closed after the test; ``faulty`` ones fail by page number (faulty_worker.py)."""
    created: list[FileReaders] = []

    def make(
        count: int = 1, limits: FileLimits | None = None, *, faulty: bool = False, grace_s: float = 0.0
    ) -> FileReaders:
        limits = limits or FileLimits()
        start = (lambda: WorkerProcess(limits, command=FAULTY_WORKER)) if faulty else None
        created.append(FileReaders(count, limits, start_worker=start, grace_s=grace_s))
        return created[-1]

    yield make
    for readers in created:
        readers.close()
