"""Tables of the OCR benchmark: results beside their targets."""

import pytest

from benchmarks.ocr_quality import RAPIDOCR_LOOP, TESSERACT_POOL
from benchmarks.ocr_searchable import OCRMYPDF
from benchmarks.ocr_speed import DIGITAL
from benchmarks.ocr_tables import memory_section, missed, ocr_section
from benchmarks.ocr_timings import AUTO, BEFORE, MIXED, SEARCHABLE, SINGLE, TESSERACT
from tests.benchmarks.test_render import ABOUT, rows


def spread(median, n=1):
    return {"median": median, "min": median * 0.9, "max": median * 1.1, "n": n}


def speed_row(reader, rate, over, target=None):
    """A row as a run keeps it."""
    return {"reader": reader, "pages_per_s": spread(rate, 3), "ours_over": spread(over), "target": target, "cer": 0.003}


@pytest.fixture
def result():
    """A run that reached all but the pool's bar and the receipts' recall."""
    readers = {
        AUTO: {"cer": 0.031, "recall": 0.92},
        TESSERACT_POOL: {"cer": 0.035, "recall": 0.86},
        RAPIDOCR_LOOP: {"cer": 0.1, "recall": 0.9},
    }
    base = {"pages": 21, "readers": readers, "cer_target": None, "recall_target": None}
    return ABOUT | {
        "readers": {"tesseract": "5.3.0"},
        "languages": "spa+eng",
        "shape": {"pages": 8, "dpi": 200, "font": "DejaVu Serif", "rounds": 3, "clients": 4},
        "speed": [
            speed_row("pytesseract", 0.2, 18.0, 15.0),
            speed_row("pytesseract-pool", 3.0, 1.2, 1.25),
            speed_row(AUTO, 3.6, 1.0),
            speed_row(TESSERACT, 3.7, 0.97),
        ],
        "auto_over_tesseract_time": spread(1.03),
        "seconds": {DIGITAL: spread(1.5)},
        "quality": [
            {**base, "set": "Spanish books", "folder": "es", "cer_target": 0.035},
            {**base, "set": "receipts", "folder": "sroie", "recall_target": 0.93},
            {**base, "set": "photographs", "folder": "photos"},
        ],
        "unmeasured": {"first_page": "the service has no jobs"},
    }


def test_speed_beside_its_bars(result):
    """A missed bar says so; ours is not compared with itself."""
    section = ocr_section(result)

    assert [["0.20 (0.18-0.22)", "18.00x", "15x", "0.0030"]] == [
        cells[1:] for cells in rows(section, "pytesseract in a loop")
    ]
    assert "1.25x (missed)" == rows(section, "the same, as many at once as cores")[0][3]
    assert ["-", "-"] == rows(section, "**FinancIA Inference**")[0][2:4]
    assert ["1.50 s", "3 s"] == rows(section, "100 pages with text of their own, first request after a start")[0][1:]
    assert "at most 1.5x" == rows(section, "`engine=auto` against `tesseract`, time of the clean pages")[0][-1]


def test_quality_beside_its_bars(result):
    """Characters and words of three readers, and which of them counts for the set."""
    section = ocr_section(result)

    assert [["21", "0.031", "0.035", "0.100", "0.920", "0.860", "0.900", "CER 0.035"]] == [
        cells[1:] for cells in rows(section, "Spanish books")
    ]
    assert "recall 0.93 (missed)" == rows(section, "receipts")[0][-1]
    assert "-" == rows(section, "photographs")[0][-1]


def test_what_was_missed(result):
    """What decides the exit status."""
    assert ["1.25x pytesseract-pool", "recall of sroie"] == missed(result)

    result["seconds"][DIGITAL] = spread(3.1)
    result["auto_over_tesseract_time"] = spread(1.6)
    result["quality"][0]["cer_target"] = 0.030

    assert ["auto at 1.5x", "digital in 3.0 s", "CER of es"] == missed(result)[1:4]


@pytest.mark.parametrize(("slope", "end"), [(-20.0, "1,024)."), (1500.4, "1,024) (missed).")])
def test_memory_is_one_sentence(slope, end):
    """The slope with its error, and whether it is flat."""
    fields = {"pages": 2016, "middle_bytes": 700 * 2**20, "last_bytes": 701 * 2**20, "target": 1024}

    section = memory_section(ABOUT | fields | {"bytes_a_page": {"all": {"slope": slope, "error": 12.4}}})

    assert f"over the second half {slope:+,.0f} ± 12 bytes a page" in section
    assert "over 2,016 pages" in section
    assert "700 MiB half-way, 701 MiB at the end" in section
    assert section.endswith(f"(to reach: under {end}")


def test_other_work_beside_its_bars(result):
    """Seconds a page of each reader, our time against it, and whose commit was before."""
    row = {"pages": 2, "cer": None}
    result["before"] = "d2cf607"
    result["comparisons"] = [
        {**row, "work": SINGLE, "reader": AUTO, "seconds": spread(4.0), "ours_over": spread(1.0), "target": None},
        {**row, "work": SINGLE, "reader": BEFORE, "seconds": spread(8.0), "ours_over": spread(0.5), "target": 0.6},
        {**row, "work": MIXED, "reader": BEFORE, "seconds": spread(4.4), "ours_over": spread(0.9), "target": 0.77},
        {**row, "work": SEARCHABLE, "reader": OCRMYPDF, "seconds": spread(6.0), "ours_over": spread(0.7), "target": 1}
        | {"cer": 0.004},
    ]
    section = ocr_section(result)

    single = rows(section, "one scanned A4 page at a time, nothing else to do")
    assert ["2", "**FinancIA Inference**", "2.00", "-", "-", "-"] == single[0][1:]
    assert ["2", "FinancIA Inference, commit `d2cf607`", "4.00", "0.50x", "at most 0.60x", "-"] == single[1][1:]
    searchable = rows(section, "a scanned PDF made searchable: ours as a job")[0]
    assert ["OCRmyPDF 17", "3.00", "0.70x", "at most 1.00x", "0.0040"] == searchable[2:]
    assert "mixed at 0.77x before" in missed(result)
    assert "at most 0.77x (missed)" in section
