"""The runs: what is compared with what, what counts as unread, and whether memory grows."""

import pytest

from benchmarks import ocr, ocr_speed
from benchmarks.ocr_memory import MemorySample, as_json, slope
from benchmarks.ocr_quality import DATASETS, RAPIDOCR_LOOP, TESSERACT_POOL, OcrDataset, Page, pages_of, row_of
from benchmarks.ocr_speed import Pass, SpeedResults, rates_of
from benchmarks.ocr_timings import AUTO, TESSERACT


def speed_of(**rates):
    """A run of one page, a rate a round."""
    results = SpeedResults()
    for reader, of_rounds in rates.items():
        for index, rate in enumerate(of_rounds):
            results.add(reader.replace("_", "-"), index, 1 / rate, ["El año"])
    return ocr_speed.as_json(results, ["El año"])


def test_ratios_are_of_one_round():
    """A machine of half the speed in the second round changes no ratio."""
    result = speed_of(pytesseract=[0.2, 0.1], ours=[4.0, 2.0], ours_tesseract=[5.0, 2.0])

    plain = result["speed"][0]
    assert ("pytesseract", 15.0, 0.0) == (plain["reader"], plain["target"], plain["cer"])
    assert pytest.approx({"median": 20, "min": 20, "max": 20, "n": 2}) == plain["ours_over"]
    assert pytest.approx({"median": 1.125, "min": 1.0, "max": 1.25, "n": 2}) == result["auto_over_tesseract_time"]


def test_several_passes_are_one_rate():
    """Of all pages over all seconds: a slow pass is not averaged away."""
    rates = rates_of([Pass(AUTO, 0, 4.0), Pass(TESSERACT, 0, 3.0), Pass(AUTO, 0, 1.0), Pass(AUTO, 1, 2.0)])

    assert {AUTO: [1.6, 2.0], TESSERACT: [3.0]} == rates


def test_a_pdf_read_as_images_is_no_number(monkeypatch):
    """The hundred pages must come back, from their own text."""
    answer = {"pages": [{"source": "ocr"}] * ocr_speed.DIGITAL_PAGES}
    monkeypatch.setattr(ocr_speed, "read", lambda port, file: answer)

    with pytest.raises(RuntimeError, match=r"read by .'ocr'"):
        ocr_speed._digital_s(1, "a test")


def test_the_shared_sets_are_whole(data_dir):
    """Each of the eight has pages with their truth."""
    assert all(page.truth.strip() for dataset in DATASETS for page in pages_of(data_dir, dataset))
    assert [21, 6, 8, 3, 30, 10, 4, 5] == [len(pages_of(data_dir, dataset)) for dataset in DATASETS]


def test_a_row_has_its_own_bars(tmp_path):
    """The CER target is plain Tesseract's on the data set; the recall target is fixed."""
    pages = [Page(tmp_path / "a.jpg", "uno dos")]
    texts = {AUTO: ["uno dos"], TESSERACT_POOL: ["uno das"], RAPIDOCR_LOOP: ["unodos"]}

    row = row_of(OcrDataset("set", "A set", keeps_cer=True, recall_target=0.9), pages, texts)

    assert [0.0, 1 / 7, 1 / 7] == [row["readers"][name]["cer"] for name in texts]
    assert [1.0, 0.5, 0.0] == [row["readers"][name]["recall"] for name in texts]
    assert (1 / 7, 0.9, 1) == (row["cer_target"], row["recall_target"], row["pages"])


def test_a_slope_and_its_error():
    """Bytes a page of a line, and none of a cloud without one."""
    exact, error = slope([10, 20, 30, 40], [1000, 1020, 1040, 1060])

    assert (2.0, 0.0) == (pytest.approx(exact), pytest.approx(error, abs=1e-9))
    assert slope([1, 2, 3, 4], [0, 10, 10, 0])[1] > 1


def test_memory_counts_from_the_middle():
    """What a start takes is no leak; what the parsing processes take counts with the service."""
    samples = [MemorySample(pages, 10**8 + 50 * min(pages, 50), 10**6 + 10 * pages) for pages in range(10, 110, 10)]

    result = as_json(samples)

    assert pytest.approx(10) == result["bytes_a_page"]["all"]["slope"]
    assert pytest.approx(0) == result["bytes_a_page"]["service"]["slope"]
    assert (100, 60) == (result["pages"], samples[5].pages)
    assert samples[5].bytes == result["middle_bytes"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, ocr.MISSED, id="missed"),
        pytest.param({"quick": True}, 0, id="a-quick-run-misses-nothing"),
        pytest.param({"unmeasured": {"first_page": "no jobs"}}, ocr.UNMEASURED, id="unmeasured"),
        pytest.param({"bytes_a_page": {"all": {"slope": 10.0}}}, 0, id="reached"),
    ],
)
def test_exit_status(changes, expected):
    """Whoever runs it in CI sees a missed target."""
    result = {"quick": False, "bytes_a_page": {"all": {"slope": 5_000.0}}, "target": 1024, **changes}

    assert expected == ocr.status_of(result)
