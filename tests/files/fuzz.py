"""Feeds mutated files to the reader processes: ``python -m tests.files.fuzz --seconds 3600``.

Each file must be answered with pages or with one of our errors for files, all of which can be written in every format;
the worker must stay within its memory, leave no descriptor open, and read the next sound file.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
from pathlib import Path

import orjson
import psutil

from backend.documents.formats.registry import FORMATS
from backend.errors import BadInput, InvalidField
from backend.files.file_readers import FileReaders, OpenFile
from backend.files.file_types import FileType
from backend.files.limits import FileLimits
from backend.files.pages import Document, Page
from backend.files.resolution import choose_resolution
from backend.files.speech_records import SAMPLE_RATE
from backend.files.text_files import choose_source
from backend.files.worker_pool import WorkerProcess
from tests.files.mutations import MutatedFile, mutated_file, sound_files, sound_recordings
from tests.files.pdfs import pdf, text

# Small, so that what grows or hangs meets its limit soon; the limits themselves are what is tested.
LIMITS = FileLimits(page_s=5.0, worker_bytes=256 * 2**20, page_pixels=20_000_000, render_pixels=4_000_000, audio_s=60.0)
SLICE_S = 7.0  # of a recording, asked for at once
MAX_PAGES = 3  # read of each file
SOUND_EVERY = 10  # files: how often a sound one is read in between
# Of a worker beside its granted memory: the interpreter, PDFium, Pillow and numpy (55 MB), mapped files and libraries.
OWN_BYTES = 160 * 2**20
SPARE_DESCRIPTORS = 4  # opened once by libraries at their first use
SOUND = pdf(text(b"sound"))


class Finding(AssertionError):
    """A file that was not handled as it must be."""


@dataclass
class FuzzReport:
    """What happened to the files."""

    files: int = 0
    outcomes: Counter[str] = field(
        default_factory=Counter
    )  # by error code, "read" for a page that was read, "heard" for a recording
    foreign: Counter[str] = field(default_factory=Counter)  # errors that a parser raised in its own words, shortened
    findings: list[str] = field(default_factory=list)


class ReaderFuzz:
    """Reads mutated files with real workers and checks what they leave behind."""

    def __init__(self, readers: FileReaders, workers: Sequence[WorkerProcess], keep: Path) -> None:
        self._readers, self._workers = readers, workers
        self._keep = keep  # where files that fail are written
        self.report = FuzzReport()
        self._descriptors: dict[int, int] = {}  # of each worker, when it was first seen at rest

    def run(self, cases: Iterable[MutatedFile]) -> FuzzReport:
        """Read every file; those that fail are written to the folder and listed in the report."""
        for case in cases:
            try:
                self._examine(case.data)
                if self.report.files % SOUND_EVERY == 0:
                    self._read_sound()
                    self._check_workers()
            except Exception as error:
                path = self._keep / f"{case.seed}-{case.name}"
                path.write_bytes(case.data)
                self.report.findings.append(f"seed {case.seed} ({case.name}): {type(error).__name__}: {error}; {path}")
            self.report.files += 1
        return self.report

    def _examine(self, data: bytes) -> None:
        try:
            with self._readers.open(data) as file:
                if not all(isfinite(side) for size in file.info.sizes for side in (size.width, size.height)):
                    raise Finding("a page has a size that is no number")
                orjson.dumps(dict(file.info.metadata))
                if file.kind is FileType.AUDIO:
                    self._hear(file)
                    return
                pages = [self._page(file, number) for number in range(1, min(MAX_PAGES, file.info.page_count) + 1)]
                self._write(file, [page for page in pages if page])
        except BadInput as error:
            self._count(error)

    def _hear(self, file: OpenFile) -> None:
        """All of a recording, in slices: never more than LIMIT_AUDIO_S."""
        assert file.info.audio is not None
        start, is_last = 0, False
        while not is_last:
            part = self._readers.audio(file, start, SLICE_S)
            start, is_last = start + len(part.samples), part.is_last
            if start > (LIMITS.audio_s + 1) * SAMPLE_RATE:
                raise Finding(f"{start} samples are over the limit")
        self.report.outcomes["heard"] += 1

    def _page(self, file: OpenFile, number: int) -> Page | None:
        try:
            layer = self._readers.page_text(file, number)
            choose_source(layer)
            resolution = choose_resolution(layer.width, layer.height, layer.stats, LIMITS)
            raster = self._readers.render(file, number, resolution=resolution, turn=layer.turn)
        except BadInput as error:
            self._count(error)
            return None
        if raster.pixels.size > LIMITS.render_pixels:
            raise Finding(f"page {number} has {raster.pixels.size} pixels")
        page = layer.page(number, "")
        if not all(isfinite(side) for word in page.words for side in word.box):
            raise Finding(f"page {number} has a box that is no number")
        self.report.outcomes["read"] += 1
        return page

    def _write(self, file: OpenFile, pages: list[Page]) -> None:
        """Every format of the pages can be written, the searchable PDF included."""
        document = Document(file.kind, tuple(pages), file.info.page_count, file.info.sha256)
        for document_format in FORMATS:
            if document_format.stream is not None:
                b"".join(document_format.stream(document))
        if pages:
            self._readers.searchable_pdf(file, document)

    def _count(self, error: BadInput) -> None:
        if isinstance(error, InvalidField):
            raise Finding(f"the caller is blamed: {error}") from error
        self.report.outcomes[error.code] += 1
        _, found, foreign = str(error).partition("it cannot be read: ")
        if found or "ended" in str(error):
            self.report.foreign[(foreign or str(error))[:90]] += 1

    def _read_sound(self) -> None:
        with self._readers.open(SOUND) as file:
            if self._readers.page_text(file, 1).text != "sound":
                raise Finding("the next sound file is not read")

    def _check_workers(self) -> None:
        """No worker holds more memory or descriptors than it may, or a file that it writes."""
        for worker in self._workers:
            if not worker.served or not worker.is_alive:
                continue
            process = psutil.Process(worker.pid)
            peak_bytes, held = _peak_bytes(worker.pid), process.num_fds()
            if peak_bytes > LIMITS.worker_bytes + OWN_BYTES:
                raise Finding(f"a worker grew to {peak_bytes / 2**20:.0f} MiB")
            if written := [file.path for file in process.open_files() if file.mode != "r"]:
                raise Finding(f"a worker writes to {written}")
            if held > self._descriptors.setdefault(worker.pid, held) + SPARE_DESCRIPTORS:
                raise Finding(f"a worker holds {held} descriptors, {self._descriptors[worker.pid]} at first")


@contextmanager
def recorded_readers(count: int) -> Iterator[tuple[FileReaders, list[WorkerProcess]]]:
    """Readers, and every worker they start: a test process has children of other tests too."""
    workers: list[WorkerProcess] = []

    def start_worker() -> WorkerProcess:
        workers.append(WorkerProcess(LIMITS))
        return workers[-1]

    with FileReaders(count, LIMITS, start_worker=start_worker) as readers:
        yield readers, workers


def _peak_bytes(pid: int) -> int:
    """The most memory that a process ever held (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def cases(seeds: Iterable[int]) -> Iterator[MutatedFile]:
    """The files of the seeds: a document and a recording of each."""
    documents, recordings = sound_files(), sound_recordings()
    return (mutated_file(seed, files) for seed in seeds for files in (documents, recordings))


def within(seeds: Iterable[int], budget_s: float) -> Iterator[int]:
    """The seeds, until the time is up."""
    ends_s = time.monotonic() + budget_s
    return (seed for seed, _ in zip(seeds, iter(lambda: time.monotonic() < ends_s, False), strict=False))


def main() -> int:
    """Fuzz for some time and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seed", type=int, help="repeat this one file")
    arguments = parser.parse_args()
    seeds = [arguments.seed] if arguments.seed is not None else count(arguments.first_seed)
    keep = Path(tempfile.mkdtemp(prefix="fuzzed-files-"))
    with recorded_readers(len(os.sched_getaffinity(0))) as (readers, workers):
        report = ReaderFuzz(readers, workers, keep).run(cases(within(seeds, arguments.seconds)))
        counts = readers.counts()
    lines = [f"{report.files} files from seed {arguments.first_seed}: {dict(report.outcomes.most_common())}; {counts}"]
    lines += [f"{times:6} x {message}" for message, times in report.foreign.most_common()]
    sys.stdout.write("\n".join([*lines, *(report.findings or ["nothing found"])]) + "\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
