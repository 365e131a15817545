"""Mutated files: a few in `make test`, as many as fit the time in `make test-all`; fuzz.py runs for longer."""

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import psutil
import pytest

from backend.models.fields_network import bundled_network
from tests.files.fuzz import FuzzReport, ReaderFuzz, cases, recorded_readers, within
from tests.files.mutations import mutated_file, sound_files, sound_recordings

BUDGET_S = float(os.environ.get("FUZZ_SECONDS", "75"))
# Seeds whose files were once handled badly, and how.
REGRESSIONS = {
    17: "a later TIFF directory without a width cost the whole file",
    104: "a broken JPEG was refused with a KeyError of Pillow's registry",
    138: "a GIF whose later frames cannot be counted was refused",
    279: "a TIFF of no size was refused in a parser's own words",
}
SMOKE = range(1000, 1012)


def fuzz(seeds: Iterable[int], keep: Path) -> FuzzReport:
    """Read the files of these seeds with workers of their own, which leave no descriptor and no process behind."""
    files, process = cases(seeds), psutil.Process()  # making PDFs opens the random device, once for all
    bundled_network()  # writing fields maps its words, once for all
    descriptors = process.num_fds()
    with recorded_readers(2) as (readers, workers):
        report = ReaderFuzz(readers, workers, keep).run(files)

    assert not [worker.pid for worker in workers if worker.is_alive], "processes left behind"
    assert process.num_fds() <= descriptors, "descriptors left behind"
    return report


def test_known_seeds(tmp_path: Path):
    """Files that once were handled badly, and a few others."""
    report = fuzz([*REGRESSIONS, *SMOKE], tmp_path)

    assert [] == report.findings
    assert report.files == 2 * (len(REGRESSIONS) + len(SMOKE))  # a document and a recording of each seed
    assert not report.foreign


@pytest.mark.slow
@pytest.mark.timeout(BUDGET_S + 300)
def test_as_many_as_fit_the_time(tmp_path: Path):
    """Every file of the seeds from 0 on, until the time is up, is answered, and the next sound file is read."""
    report = fuzz(within(count(), BUDGET_S), tmp_path)

    assert [] == report.findings
    assert report.outcomes["read"]
    assert report.outcomes["heard"]
    assert report.outcomes["unreadable_file"]


@pytest.mark.slow
def test_a_seed_repeats_its_file():
    """Reports name seeds only."""
    files = {**sound_files(), **sound_recordings()}

    assert [mutated_file(seed, files) for seed in range(50)] == [mutated_file(seed, files) for seed in range(50)]
