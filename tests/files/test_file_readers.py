"""FileReaders with real processes: files that crash or hang workers, cancelled callers, a service that dies."""

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
from backend.files import worker_pool as worker_process
from backend.files.file_readers import FileReaders, OpenFile
from backend.files.limits import MAX_OPEN_FILES, FileLimits
from backend.files.worker_pool import WorkerProcess
from tests.files import faulty_worker as fault
from tests.files.conftest import newest_worker
from tests.files.pdfs import FAULTY_WORKER, pdf, text

ROOT = Path(__file__).resolve().parents[2]
PAGES = [text(b"page %d" % number) for number in range(1, 12)]
QUICK = FileLimits(page_s=1.0)
BUSY_RATIO = 100.0  # seconds on the clock a second of work: a busy machine may give a worker a tenth of a core
MakeReaders = Callable[..., FileReaders]


def worker_pids() -> set[int]:
    """The existing worker processes of this process, zombies included."""
    children = psutil.Process().children()
    return {child.pid for child in children if child.status() == "zombie" or "worker" in " ".join(child.cmdline())}


def is_read(readers: FileReaders, file: OpenFile) -> bool:
    return readers.page_text(file, 1).text == "page 1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "expected", "message"),
    [
        pytest.param(fault.HANGS, Unavailable, r"page 2: its reader was ended after .* worked 0\.\d s.*LIMIT_PAGE_S",
                     id="hangs"),
        pytest.param(fault.WORKS, TooLarge, r"page 11: seconds of reading: 1\.\d is over.*LIMIT_PAGE_S", id="works"),
        pytest.param(fault.CRASHES, UnreadableFile, "page 3: the process that read it ended .SIGSEGV", id="crashes"),
        pytest.param(fault.OUT_OF_MEMORY, TooLarge, "page 4: bytes of memory.*LIMIT_READER_BYTES", id="out-of-memory"),
        pytest.param(fault.EXITS, UnreadableFile, "page 5: the process that read it ended .exit 7", id="exits"),
        pytest.param(fault.INCONSISTENT, InferenceFailed, "page 6: its reader gave an answer that is none",
                     id="inconsistent"),
        pytest.param(fault.BAD_FRAME, UnreadableFile, "page 7: .*nonsense on its wire", id="bad-frame"),
        pytest.param(fault.RAISES, UnreadableFile, "page 8: it cannot be read: RuntimeError: a parser's own words",
                     id="raises"),
    ],
)  # fmt: skip
def test_each_fault_has_its_error(
    make_readers: MakeReaders, monkeypatch: pytest.MonkeyPatch, page: int, expected: type[Exception], message: str
):
    """The failing call names the fault, in time; the next call on the same file is answered."""
    readers = make_readers(limits=QUICK, faulty=True)
    if page != fault.HANGS:
        monkeypatch.setattr(worker_process, "WALL_RATIO", BUSY_RATIO)
    with readers.open(pdf(*PAGES)) as file:
        before_s = time.monotonic()
        with pytest.raises(expected, match=message):
            readers.page_text(file, page)
        took_s = time.monotonic() - before_s

        assert is_read(readers, file)
    assert took_s < 120  # one deadline, the start of workers on a busy machine included
    assert readers.counts().busy == 0


@pytest.mark.slow
def test_waiting_for_a_core_is_not_the_files_work(make_readers: MakeReaders, monkeypatch: pytest.MonkeyPatch):
    """A page that takes longer than its limit on the clock, and works less, is read."""
    monkeypatch.setattr(worker_process, "WALL_RATIO", BUSY_RATIO)
    readers = make_readers(limits=QUICK, faulty=True)
    with readers.open(pdf(*PAGES)) as file:
        assert "page 1" == readers.page_text(file, fault.SLOW).text


def test_a_crash_that_another_file_caused(make_readers: MakeReaders):
    """A crash of a worker that had read other files is retried on a new one."""
    readers = make_readers(faulty=True)
    with readers.open(pdf(*PAGES)) as first, readers.open(pdf(*PAGES)) as second:
        assert is_read(readers, first)
        layer = readers.page_text(second, fault.CRASHES_IF_USED)

    assert "page 1" == layer.text  # what the faulty worker reads for every page
    assert (1, 2) == (readers.counts().died, readers.counts().started)


def test_a_worker_killed_while_idle(make_readers: MakeReaders):
    """The next caller does not notice."""
    before = worker_pids()
    readers = make_readers()
    with readers.open(pdf(*PAGES)) as file:
        (pid,) = worker_pids() - before
        os.kill(pid, signal.SIGKILL)

        assert is_read(readers, file)


def test_many_threads_on_few_workers(make_readers: MakeReaders):
    """Every caller gets the right page of the right file."""
    readers = make_readers(2)
    files = [readers.open(pdf(*(text(b"file %d page %d" % (name, page)) for page in range(1, 6)))) for name in range(8)]

    def read(call: tuple[int, int]) -> str:
        return readers.page_text(files[call[0]], call[1]).text

    calls = [(name, page) for page in range(1, 6) for name in range(8)]
    with ThreadPoolExecutor(16) as threads:
        texts = list(threads.map(read, calls))
    for file in files:
        file.close()

    assert [f"file {name} page {page}" for name, page in calls] == texts
    assert readers.counts().started <= 2


def test_cancelled(make_readers: MakeReaders):
    """The running call ends after the grace, long before its deadline; later ones are refused; others are read."""
    readers = make_readers(faulty=True)
    others, file = readers.open(pdf(*PAGES)), readers.open(pdf(*PAGES))
    started = threading.Event()

    def read() -> None:
        started.set()
        readers.page_text(file, fault.HANGS)

    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(read)
        started.wait()
        while not readers.counts().busy:  # until the call has its worker; there is no event for it
            time.sleep(0.001)
        file.cancel()
        with pytest.raises(CallerGone):
            call.result(timeout=15)
    with pytest.raises(CallerGone):
        readers.page_text(file, 1)

    assert is_read(readers, others)


@pytest.mark.parametrize("leaves", ["late", "cancelled"])
def test_a_caller_that_leaves_costs_no_worker(make_readers: MakeReaders, leaves: str):
    """The worker ends a call that is short, and reads on: nobody can have workers started again and again."""
    readers = make_readers(faulty=True, grace_s=60.0)
    others, file = readers.open(pdf(*PAGES)), readers.open(pdf(*PAGES))
    with ThreadPoolExecutor(1) as thread:
        deadline_s = time.monotonic() + 0.1 if leaves == "late" else None
        call = thread.submit(readers.page_text, file, fault.SLOW, deadline_s=deadline_s)
        while not readers.counts().busy and not call.done():
            time.sleep(0.001)
        if leaves == "cancelled":
            file.cancel()
        with suppress(CallerGone, DeadlineExceeded):
            call.result(timeout=15)

    assert is_read(readers, others)
    assert (1, 0) == (readers.counts().started, readers.counts().late)


def test_a_call_that_is_late_before_it_begins(make_readers: MakeReaders):
    """No worker gets a call that would have to be killed at once."""
    readers = make_readers()
    file = readers.open(pdf(*PAGES))

    with pytest.raises(DeadlineExceeded):
        readers.page_text(file, 1, deadline_s=time.monotonic() - 1.0)

    assert is_read(readers, file)
    assert (1, 0) == (readers.counts().started, readers.counts().late)


def test_no_worker_in_time(make_readers: MakeReaders):
    """A caller waits for a free worker until its own deadline, and no longer."""
    readers = make_readers(faulty=True)
    file = readers.open(pdf(*PAGES))
    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(readers.page_text, file, fault.HANGS)
        while not readers.counts().busy:
            time.sleep(0.001)
        with pytest.raises(DeadlineExceeded):
            readers.page_text(file, 1, deadline_s=time.monotonic() + 0.05)
        file.cancel()
        with pytest.raises(CallerGone):
            call.result(timeout=15)


@pytest.mark.slow
def test_late_for_its_caller(make_readers: MakeReaders):
    """A call ends at its caller's deadline, with DeadlineExceeded, not with an error of the file."""
    readers = make_readers(faulty=True)
    with readers.open(pdf(*PAGES)) as file:
        with pytest.raises(DeadlineExceeded):
            readers.page_text(file, fault.HANGS, deadline_s=time.monotonic() + 0.3)

        assert is_read(readers, file)


def test_a_worker_that_does_not_start():
    """As when a library is missing: 503, as no file is at fault."""
    limits = FileLimits()
    command = (sys.executable, "-c", "raise SystemExit(3)")
    with FileReaders(1, limits, start_worker=lambda: WorkerProcess(limits, command=command)) as readers:
        with pytest.raises(Unavailable, match=r"did not start \(exit 3\)"):
            readers.open(pdf())


@pytest.mark.slow
def test_a_decompression_bomb(make_readers: MakeReaders):
    """300 kB that decompress to 300 MB, over the memory limit: the file is refused and the next one read."""
    readers = make_readers(limits=FileLimits(worker_bytes=64 * 2**20))
    bomb = pdf(b"(" + bytes(300 * 2**20) + b") Tj")

    with readers.open(pdf(*PAGES)) as file:
        with readers.open(bomb) as other, pytest.raises(UnreadableFile, match="LIMIT_READER_BYTES"):
            readers.page_text(other, 1)

        assert is_read(readers, file)


def test_stopping(make_readers: MakeReaders):
    """Running calls end, later ones are refused with 503, and no process is left, not even a zombie."""
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


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_workers_end_with_the_service(end: signal.Signals):
    """However the service dies, even during a call."""
    script = (
        "import sys, threading\n"
        "from backend.files.limits import FileLimits\n"
        "from backend.files.file_readers import FileReaders\n"
        "from backend.files.worker_pool import WorkerProcess\n"
        "from tests.files.pdfs import FAULTY_WORKER, pdf\n"
        "limits = FileLimits(page_s=500.0)\n"
        "readers = FileReaders(1, limits, start_worker=lambda: WorkerProcess(limits, command=FAULTY_WORKER))\n"
        "file = readers.open(pdf(b'', b''))\n"
        "threading.Thread(target=readers.page_text, args=(file, 2), daemon=True).start()\n"
        "while not readers.counts().busy: pass\n"
        "print('asked', flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout.readline() == "asked\n"
        workers = psutil.Process(service.pid).children()
        service.send_signal(end)
        service.wait(10)
    _, left = psutil.wait_procs(workers, timeout=10)

    assert 1 == len(workers)
    assert [] == left


def test_a_worker_ignores_signals_that_are_for_the_service(make_readers: MakeReaders):
    """Ctrl-C and a supervisor's SIGTERM reach whole process groups; accepted work is finished first."""
    before = worker_pids()
    readers = make_readers()
    with readers.open(pdf(*PAGES)) as file:
        (pid,) = worker_pids() - before
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)

        assert is_read(readers, file)
    assert 0 == readers.counts().died


def test_a_worker_that_was_taken_over_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No secrets, no file but its own, no network and no other process; all of it is there without the confinement."""
    monkeypatch.setenv("API_KEYS", "secret")
    (tmp_path / "secret").write_text("of another tenant", encoding="utf-8")
    command = (*FAULTY_WORKER, str(tmp_path))
    with FileReaders(1, QUICK, start_worker=lambda: WorkerProcess(QUICK, command=command)) as readers:
        with readers.open(pdf(*[b""] * fault.TAKEN_OVER)) as file:
            with pytest.raises(UnreadableFile) as caught:
                readers.page_text(file, fault.TAKEN_OVER)
            confined = readers.report()["confined"]
    open_to_us = fault.attacks(tmp_path, os.getpid())

    if any("not confined" in how for how in confined.values()):
        pytest.skip(f"this kernel confines no process: {confined}")
    assert "got: []" in str(caught.value)
    assert 15 == len(open_to_us)
    assert {"files", "system_calls"} == confined.keys()


def test_a_worker_has_bounds_and_none_of_the_services_libraries(make_readers: MakeReaders):
    """It may write no file, and its private memory and its address space have limits."""
    before = worker_pids()
    readers = make_readers()
    with readers.open(pdf(*PAGES)):
        (pid,) = worker_pids() - before
        worker = psutil.Process(pid)
        mapped = {Path(mapping.path).name for mapping in worker.memory_maps()}

        assert worker.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
        assert worker.rlimit(psutil.RLIMIT_DATA)[1] < 2 * readers.limits.worker_bytes
        assert worker.rlimit(psutil.RLIMIT_AS)[1] < 16 * readers.limits.worker_bytes
    assert not [name for name in mapped if "torch" in name or "openvino" in name or "onnxruntime" in name]


def test_the_service_loads_no_parser():
    """PDFium, Pillow and libheif stay out of the process that holds the models."""
    code = (
        "import sys, backend.files.file_readers\n"
        "print([name for name in ('pypdfium2', 'PIL', 'pillow_heif', 'torch') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "[]\n" == result.stdout


def test_closed_files_leave_nothing_open(make_readers: MakeReaders):
    """Files opened and closed leave no descriptor here and no open file in a worker."""
    readers = make_readers()
    data = pdf(*PAGES)
    with readers.open(data) as file:
        is_read(readers, file)
    worker = newest_worker()
    our_fds, worker_fds = len(list(Path("/proc/self/fd").iterdir())), worker.num_fds()
    for _ in range(20):
        with readers.open(data) as file:
            assert is_read(readers, file)

    assert our_fds == len(list(Path("/proc/self/fd").iterdir()))
    assert worker_fds == worker.num_fds()


def test_more_open_files_than_a_worker_holds(make_readers: MakeReaders):
    """The others are opened again when they are read."""
    readers = make_readers()
    files = [readers.open(pdf(text(b"file %d" % number))) for number in range(7)]
    readers.page_text(files[0], 1)
    with_one = newest_worker().num_fds()
    texts = [readers.page_text(file, 1).text for _ in range(2) for file in files]

    assert 2 * [f"file {number}" for number in range(7)] == texts
    assert with_one + MAX_OPEN_FILES > newest_worker().num_fds()


@pytest.mark.slow
def test_old_workers_are_renewed(make_readers: MakeReaders, monkeypatch: pytest.MonkeyPatch):
    """After so many calls, without losing a page."""
    monkeypatch.setattr("backend.files.worker_pool.MAX_CALLS", 3)
    readers = make_readers()
    with readers.open(pdf(*PAGES)) as file:
        assert [f"page {number}" for number in range(1, 11)] == [
            readers.page_text(file, number).text for number in range(1, 11)
        ]

    assert 3 == readers.counts().recycled


@pytest.mark.parametrize("password", ["geheim", "contraseña", "пароль"])
def test_passwords(readers: FileReaders, password: str):
    """Without, with a wrong and with the right one."""
    data = pdf(*PAGES, password=password)

    with pytest.raises(PasswordRequired, match="send its password") as needed:
        readers.open(data)
    with pytest.raises(WrongPassword):
        readers.open(data, password="wrong")
    with readers.open(data, password=password) as file:
        assert is_read(readers, file)
    assert ("password_required", 422) == (needed.value.code, needed.value.status)


def test_file_info(readers: FileReaders):
    """Page count, sizes and hash are known before a page is read."""
    data = pdf(b"", b"", size=(300, 200), rotate=90)
    with readers.open(data) as file:
        info = file.info

    assert ("pdf", 2, 2) == (info.kind, info.page_count, len(info.sizes))
    assert (200, 300) == (info.sizes[0].width, info.sizes[0].height)
    assert 64 == len(info.sha256)


def test_an_unknown_page(readers: FileReaders):
    """422, with the number of pages."""
    with readers.open(pdf(*PAGES)) as file, pytest.raises(InvalidField, match="there is no page 12; the file has 11"):
        readers.page_text(file, 12)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", UnreadableFile), (b"\x7fELF", WrongMediaType), (b"%PDF-1.7 and nothing", UnreadableFile)],
)
def test_unreadable_files(readers: FileReaders, data: bytes, expected: type[Exception]):
    """They are refused, and their memory is freed."""
    before = _uploads_held()
    with pytest.raises(expected):
        readers.open(data)

    assert before == _uploads_held()


def _uploads_held() -> int:
    """Counts uploads only, as other threads open and close descriptors meanwhile."""
    held = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this very listing
            held += "memfd:upload" in str(path.readlink())
    return held
