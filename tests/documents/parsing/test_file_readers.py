"""Readers under fire: files that crash, hang, swell or lie, callers that go, a service that dies. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from backend.documents.parsing.file_readers import FileReaders
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.open_file import OpenFile
from backend.documents.parsing.worker_process import WorkerProcess
from backend.errors import (
    CallerGone,
    DeadlineExceeded,
    InferenceFailed,
    InvalidField,
    PasswordRequired,
    TooLarge,
    Unavailable,
    UnreadableFile,
    WrongMediaType,
    WrongPassword,
)
from tests.documents.parsing import faulty_worker as fault
from tests.documents.parsing.pdfs import pdf, text

ROOT = Path(__file__).resolve().parents[3]
PAGES = [text(b"page %d" % number) for number in range(1, 11)]
QUICK = FileLimits(page_s=1.0)
MakeReaders = Callable[..., FileReaders]


def worker_pids() -> set[int]:
    """The workers of this process that are there, zombies included."""
    children = psutil.Process().children()
    return {child.pid for child in children if child.status() == "zombie" or "files" in " ".join(child.cmdline())}


def is_read(readers: FileReaders, file: OpenFile) -> bool:
    return readers.page_text(file, 1).text == "page 1"


@pytest.mark.parametrize(
    ("page", "expected", "message"),
    [
        pytest.param(fault.HANGS, TooLarge, r"page 2: seconds of reading: 1\.\d is over.*LIMIT_PAGE_S",
                     id="hangs"),
        pytest.param(fault.CRASHES, UnreadableFile, "page 3: the process that read it ended .SIGSEGV", id="crashes"),
        pytest.param(fault.SWELLS, TooLarge, "page 4: bytes of memory.*LIMIT_READER_BYTES", id="swells"),
        pytest.param(fault.EXITS, UnreadableFile, "page 5: the process that read it ended .exit 7", id="exits"),
        pytest.param(fault.LIES, InferenceFailed, "page 6: its reader gave an answer that is none", id="lies"),
        pytest.param(fault.BABBLES, UnreadableFile, "page 7: .*nonsense on its wire", id="babbles"),
        pytest.param(fault.RAISES, UnreadableFile, "page 8: it cannot be read: RuntimeError: a parser's own words",
                     id="raises"),
    ],
)  # fmt: skip
def test_one_page_has_its_own_error(make_readers: MakeReaders, page: int, expected: type[Exception], message: str):
    """The call that met the fault says what it was, in its time; the next call on the same file is answered."""
    readers = make_readers(limits=QUICK, faulty=True)
    with readers.open(pdf(*PAGES)) as file:
        before_s = time.monotonic()
        with pytest.raises(expected, match=message):
            readers.page_text(file, page)
        took_s = time.monotonic() - before_s

        assert is_read(readers, file)
    assert took_s < 30  # one deadline, the start of workers on a busy machine included
    assert readers.counts().busy == 0


def test_a_crash_that_another_file_caused(make_readers: MakeReaders):
    """A worker that had read other files is not believed: the page is read once more on a new one, and is sound."""
    readers = make_readers(faulty=True)
    with readers.open(pdf(*PAGES)) as first, readers.open(pdf(*PAGES)) as second:
        assert is_read(readers, first)
        layer = readers.page_text(second, fault.CRASHES_IF_USED)

    assert "page 1" == layer.text  # what the faulty worker reads for every page
    assert (1, 2) == (readers.counts().died, readers.counts().started)


def test_a_worker_killed_while_idle(make_readers: MakeReaders):
    """Somebody else's doing: the next caller does not notice."""
    before = worker_pids()
    readers = make_readers()
    with readers.open(pdf(*PAGES)) as file:
        (pid,) = worker_pids() - before
        os.kill(pid, signal.SIGKILL)

        assert is_read(readers, file)


def test_many_threads_on_few_workers(make_readers: MakeReaders):
    """Every caller gets its own page of its own file, whoever reads it."""
    readers = make_readers(2)
    files = [readers.open(pdf(*(text(b"file %d page %d" % (name, page)) for page in range(1, 6)))) for name in range(8)]

    def read(job: tuple[int, int]) -> str:
        return readers.page_text(files[job[0]], job[1]).text

    jobs = [(name, page) for page in range(1, 6) for name in range(8)]
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(read, jobs))
    for file in files:
        file.close()

    assert [f"file {name} page {page}" for name, page in jobs] == found
    assert readers.counts().started <= 2


def test_cancelled(make_readers: MakeReaders):
    """The call that runs ends at once, long before its deadline; later calls do not begin; other files are read."""
    readers = make_readers(faulty=True)
    others, file = readers.open(pdf(*PAGES)), readers.open(pdf(*PAGES))
    asked = threading.Event()

    def read() -> None:
        asked.set()
        readers.page_text(file, fault.HANGS)

    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(read)
        asked.wait()
        while not readers.counts().busy:  # until the worker is lent: nothing tells a test
            time.sleep(0.001)
        file.cancel()
        with pytest.raises(CallerGone):
            call.result(timeout=15)
    with pytest.raises(CallerGone):
        readers.page_text(file, 1)

    assert is_read(readers, others)


def test_no_worker_in_time(make_readers: MakeReaders):
    """A caller waits for a free worker until its own deadline, and no longer."""
    readers = make_readers(faulty=True)
    file = readers.open(pdf(*PAGES))
    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(readers.page_text, file, fault.HANGS)
        while not readers.counts().busy:
            time.sleep(0.001)
        with pytest.raises(DeadlineExceeded):
            readers.page_text(file, 1, until=time.monotonic() + 0.05)
        file.cancel()
        with pytest.raises(CallerGone):
            call.result(timeout=15)


def test_late_for_its_caller(make_readers: MakeReaders):
    """A call ends when nobody needs its answer any more, with the request's error, not the file's."""
    readers = make_readers(faulty=True)
    with readers.open(pdf(*PAGES)) as file:
        with pytest.raises(DeadlineExceeded):
            readers.page_text(file, fault.HANGS, until=time.monotonic() + 0.3)

        assert is_read(readers, file)


def test_a_worker_that_does_not_start():
    """A library is missing: no file's fault, so 503."""
    limits = FileLimits()
    command = (sys.executable, "-c", "raise SystemExit(3)")
    with FileReaders(1, limits, start_worker=lambda: WorkerProcess(limits, command=command)) as readers:
        with pytest.raises(Unavailable, match=r"did not start \(exit 3\)"):
            readers.open(pdf())


def test_a_content_stream_that_swells(make_readers: MakeReaders):
    """300 kB that unpack to 300 MB, with less memory granted: the file is refused and the next one read."""
    readers = make_readers(limits=FileLimits(worker_bytes=64 * 2**20))
    bomb = pdf(b"(" + bytes(300 * 2**20) + b") Tj")

    with readers.open(pdf(*PAGES)) as file:
        with readers.open(bomb) as other, pytest.raises(UnreadableFile, match="LIMIT_READER_BYTES"):
            readers.page_text(other, 1)

        assert is_read(readers, file)


def test_stopping(make_readers: MakeReaders):
    """Running calls end, later ones are refused with 503, and no process is left, not even a dead one."""
    before = worker_pids()
    readers = make_readers(2, faulty=True)
    file = readers.open(pdf(*PAGES))
    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(readers.page_text, file, fault.HANGS)
        while not readers.counts().busy:
            time.sleep(0.001)
        readers.close()
        with pytest.raises(Unavailable):
            call.result(timeout=15)
    with pytest.raises(Unavailable):
        readers.open(pdf())

    assert worker_pids() <= before


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_workers_end_with_the_service(end: signal.Signals):
    """However it dies, in the middle of a call: nobody reads for nobody."""
    script = (
        "import sys, threading\n"
        "from backend.documents.parsing.limits import FileLimits\n"
        "from backend.documents.parsing.file_readers import FileReaders\n"
        "from backend.documents.parsing.worker_process import WorkerProcess\n"
        "from tests.documents.parsing.pdfs import FAULTY_WORKER, pdf\n"
        "limits = FileLimits(page_s=500.0)\n"
        "readers = FileReaders(1, limits, start_worker=lambda: WorkerProcess(limits, command=FAULTY_WORKER))\n"
        "file = readers.open(pdf(b'', b''))\n"
        "threading.Thread(target=readers.page_text, args=(file, 2), daemon=True).start()\n"
        "while not readers.counts().busy: pass\n"
        "print('asked', flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "asked\n"
        workers = psutil.Process(service.pid).children()
        service.send_signal(end)
        service.wait(10)
    _, left = psutil.wait_procs(workers, timeout=10)

    assert 1 == len(workers)
    assert [] == left


def test_a_worker_ignores_signals_that_are_for_the_service(make_readers: MakeReaders):
    """A terminal's Ctrl-C and a supervisor's SIGTERM reach whole groups; accepted work is finished first."""
    before = worker_pids()
    readers = make_readers()
    with readers.open(pdf(*PAGES)) as file:
        (pid,) = worker_pids() - before
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)

        assert is_read(readers, file)
    assert 0 == readers.counts().died


def test_a_worker_knows_no_secrets(make_readers: MakeReaders, monkeypatch: pytest.MonkeyPatch):
    """Whoever takes one over finds neither keys nor the service's libraries, and may write no file."""
    monkeypatch.setenv("API_KEYS", "secret")
    before = worker_pids()
    readers = make_readers()
    with readers.open(pdf(*PAGES)):
        (pid,) = worker_pids() - before
        worker = psutil.Process(pid)
        mapped = {Path(one.path).name for one in worker.memory_maps()}

        assert "API_KEYS" not in worker.environ()
        assert worker.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
        assert worker.rlimit(psutil.RLIMIT_DATA)[1] < 2 * readers.limits.worker_bytes
    assert not [name for name in mapped if "torch" in name or "openvino" in name or "onnxruntime" in name]


def test_the_service_loads_no_parser():
    """PDFium, Pillow and libheif stay out of the process that holds the models."""
    code = (
        "import sys, backend.documents.parsing.file_readers\n"
        "print([name for name in ('pypdfium2', 'PIL', 'pillow_heif', 'torch') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "[]\n" == found.stdout


def test_nothing_piles_up(make_readers: MakeReaders):
    """Files opened and closed leave no descriptor here and no open file in a worker."""
    readers = make_readers()
    data = pdf(*PAGES)
    with readers.open(data) as file:
        is_read(readers, file)
    worker = readers._pool._idle[0]
    here, there = len(list(Path("/proc/self/fd").iterdir())), psutil.Process(worker.pid).num_fds()
    for _ in range(20):
        with readers.open(data) as file:
            assert is_read(readers, file)

    assert here == len(list(Path("/proc/self/fd").iterdir()))
    assert there == psutil.Process(worker.pid).num_fds()
    assert {} == worker.files


def test_many_open_files_are_read_in_turn(make_readers: MakeReaders):
    """A worker holds a few open; the others are opened again when they are asked for."""
    readers = make_readers()
    files = [readers.open(pdf(text(b"file %d" % number))) for number in range(7)]
    found = [readers.page_text(file, 1).text for _ in range(2) for file in files]

    assert 2 * [f"file {number}" for number in range(7)] == found
    assert len(readers._pool._idle[0].files) <= 4


def test_old_workers_are_renewed(make_readers: MakeReaders, monkeypatch: pytest.MonkeyPatch):
    """After so many pages, or when one has grown; nobody waits for it, nothing is lost."""
    monkeypatch.setattr("backend.documents.parsing.worker_pool._CALLS_OF_A_LIFE", 3)
    readers = make_readers()
    with readers.open(pdf(*PAGES)) as file:
        assert [f"page {number}" for number in range(1, 11)] == [
            readers.page_text(file, number).text for number in range(1, 11)
        ]

    assert 3 == readers.counts().recycled


@pytest.mark.parametrize("password", ["geheim", "contraseña", "пароль"])
def test_passwords(readers: FileReaders, password: str):
    """Needed, wrong, right."""
    data = pdf(*PAGES, password=password)

    with pytest.raises(PasswordRequired, match="send its password") as needed:
        readers.open(data)
    with pytest.raises(WrongPassword):
        readers.open(data, password="wrong")
    with readers.open(data, password=password) as file:
        assert is_read(readers, file)
    assert ("password_required", 422) == (needed.value.code, needed.value.status)


def test_facts(readers: FileReaders):
    """What is known of a file before a page is read."""
    data = pdf(b"", b"", size=(300, 200), rotate=90)
    with readers.open(data) as file:
        info = file.info

    assert ("pdf", 2, 2) == (info.kind, info.page_count, len(info.sizes))
    assert (200, 300) == (info.sizes[0].width, info.sizes[0].height)
    assert 64 == len(info.sha256)


def test_a_page_that_is_not_there(readers: FileReaders):
    """422, and what there is."""
    with readers.open(pdf(*PAGES)) as file, pytest.raises(InvalidField, match="there is no page 11; the file has 10"):
        readers.page_text(file, 11)


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", UnreadableFile), (b"hello", WrongMediaType), (b"%PDF-1.7 and nothing", UnreadableFile)]
)
def test_what_is_no_file(readers: FileReaders, data: bytes, expected: type[Exception]):
    """Refused, and its bytes are given back."""
    before = _uploads_held()
    with pytest.raises(expected):
        readers.open(data)

    assert before == _uploads_held()


def _uploads_held() -> int:
    """Uploads alone: other threads of the process open and close descriptors meanwhile."""
    held = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this very listing
            held += "memfd:upload" in str(path.readlink())
    return held
