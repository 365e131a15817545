"""Work beside clean pages: which pages count, what they are compared with, and an earlier commit's server."""

import io
import sys
from types import SimpleNamespace

import pytest
from PIL import Image

from benchmarks import ocr_comparisons, ocr_searchable, ocr_workloads
from benchmarks.ocr_comparisons import Workloads, time_ours, time_peers
from benchmarks.ocr_pages import scanned_pdf, slip
from benchmarks.ocr_peers import OcrResult
from benchmarks.ocr_searchable import by_ocrmypdf, texts_of
from benchmarks.ocr_timings import AUTO, BEFORE, DOUBTFUL, MIXED, RAPIDOCR, SEARCHABLE, SINGLE, Timing, Timings
from benchmarks.ocr_workloads import doubtful_pages, mixed_pages, scan, worn
from benchmarks.peers import Peer, PeerError, running


def timings_of(*records):
    timings = Timings()
    for record in records:
        timings.add(Timing(*record))
    return {(row["work"], row["reader"]): row for row in timings.as_json()}


def test_times_are_compared_within_a_round():
    """A machine of half the speed in the second round changes no ratio."""
    rows = timings_of(
        *[(SINGLE, BEFORE, 0, 2, 4.0), (SINGLE, AUTO, 0, 2, 2.0)],
        *[(SINGLE, BEFORE, 1, 2, 8.0), (SINGLE, AUTO, 1, 2, 4.0)],
    )

    assert {"median": 0.5, "min": 0.5, "max": 0.5, "n": 2} == rows[SINGLE, BEFORE]["ours_over"]
    assert (0.6, None) == (rows[SINGLE, BEFORE]["target"], rows[SINGLE, AUTO]["target"])
    assert 6.0 == rows[SINGLE, BEFORE]["seconds"]["median"]


def test_a_round_without_ours_is_no_ratio():
    """Where auto took RapidOCR's result in one round only, that round alone is compared."""
    rows = timings_of((DOUBTFUL, AUTO, 1, 3, 5.0), (DOUBTFUL, RAPIDOCR, 1, 3, 4.0))

    assert 1.25 == rows[DOUBTFUL, RAPIDOCR]["ours_over"]["median"]


@pytest.fixture
def workloads(tmp_path):
    (tmp_path / f"{SINGLE}-00").write_bytes(b"scan")
    for number in range(2):
        (tmp_path / f"{MIXED}-{number:02}").write_bytes(b"page")
    (tmp_path / "scans.pdf").write_bytes(b"pdf")
    return Workloads([b"scan"], [b"print", b"receipt"], [b"page"] * 2, tmp_path)


def test_only_pages_that_rapidocr_wins_are_doubtful(monkeypatch, workloads):
    """A page for which auto kept Tesseract's result says nothing about the price of asking both."""
    monkeypatch.setattr(ocr_comparisons, "clean_page", slip)
    asked = []

    def read(port, file, *, engine, **fields):
        asked.append((file, engine))
        name = "rapidocr 3.10.0" if file == b"receipt" or engine == "rapidocr" else "tesseract 5.5.1"
        return {"pages": [{"engine": name}]}

    monkeypatch.setattr(ocr_comparisons, "read", read)
    monkeypatch.setattr(ocr_comparisons, "read_all", lambda *_, **fields: [])
    monkeypatch.setattr(ocr_comparisons, "by_job", lambda *_: (1.0, ["text"] * ocr_searchable.PAGES))
    timings = list(time_ours(1, 0, workloads))

    assert [(DOUBTFUL, AUTO, 1), (DOUBTFUL, RAPIDOCR, 1)] == [
        (timing.work, timing.reader, timing.pages) for timing in timings if timing.work == DOUBTFUL
    ]
    assert (b"print", "rapidocr") not in asked
    assert {SINGLE, DOUBTFUL, MIXED, SEARCHABLE} == {timing.work for timing in timings}


def test_a_pdf_that_lost_pages_is_no_time(monkeypatch, workloads):
    """Nobody is quick by leaving pages out."""
    monkeypatch.setattr(ocr_comparisons, "by_ocrmypdf", lambda *_: (1.0, ["text"]))

    with pytest.raises(RuntimeError, match="ocrmypdf: 1 of 20 pages"):
        ocr_comparisons.time_ocrmypdf(0, workloads)


def test_peers_read_the_files_of_each_work(monkeypatch, workloads):
    """Those that take one page at a time the scans, the pool the mixed set."""
    read = {}

    def run(name, files):
        read.setdefault(name, []).append([file.name for file in files])
        return OcrResult(2.0, ("text",) * len(files))

    monkeypatch.setattr(ocr_comparisons, "run_in_subprocess", run)
    timings = list(time_peers(0, workloads))

    assert [["mixed-00", "mixed-01"]] == read["pytesseract-pool"]
    assert [["single-00"]] == read["rapidocr"] == read["pytesseract-one-thread"]
    assert [1, 1, 2] == [timing.pages for timing in timings]


def test_pages_of_several_kinds_without_the_sets(tmp_path, monkeypatch):
    """Made ones take their place: gray scans and worn copies."""
    monkeypatch.setattr(ocr_workloads, "clean_page", slip)
    assert [worn(number) for number in range(4)] == doubtful_pages(tmp_path)
    mixed = mixed_pages(tmp_path)
    assert (8, 8) == (len(mixed), len(set(mixed)))
    with Image.open(io.BytesIO(scan(1))) as page:
        assert ("L", 200) == (page.mode, round(page.info["dpi"][0]))


def test_pages_of_the_sets(data_dir):
    """Every second page of each set: thresholds were chosen on the others."""
    assert (5, 14) == (len(doubtful_pages(data_dir)), len(mixed_pages(data_dir)))
    assert (data_dir / "ocr_sroie" / "en_sroie_008.jpg").read_bytes() in doubtful_pages(data_dir)


def test_ocrmypdf_is_called_with_a_page_on_each_core(monkeypatch, tmp_path):
    """As it starts by default, otherwise; its text comes from the PDF that it wrote."""
    called = []

    def run(argv, *, check):
        called.append(argv)
        (tmp_path / "out.pdf").write_bytes(scanned_pdf([slip(0).png] * 2))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(ocr_searchable.subprocess, "run", run)
    monkeypatch.setattr(ocr_searchable, "cores", lambda: 2)
    seconds, texts = by_ocrmypdf(tmp_path / "in.pdf", tmp_path / "out.pdf", tmp_path / "venv")

    [[program, *flags, source, target]] = called
    assert [str(tmp_path / name) for name in ("venv/bin/ocrmypdf", "in.pdf", "out.pdf")] == [program, source, target]
    assert {"--language=spa+eng", "--jobs=2"} < set(flags)
    assert seconds >= 0
    assert ["", ""] == texts == texts_of((tmp_path / "out.pdf").read_bytes())


def test_a_server_of_another_checkout(tmp_path):
    """It starts in that folder: its own package is the one that is imported."""
    module = tmp_path / "checkout_of_a_test.py"
    module.write_text("import sys; sys.exit(7)")
    peer = Peer(BEFORE, (sys.executable, "-m", "checkout_of_a_test"), cwd=tmp_path)

    with pytest.raises(PeerError, match="status 7"), running(peer, tmp_path):
        pass
