"""The runs: what is compared with what, what counts as unread, and whether memory grows."""

import sys
from types import SimpleNamespace

import pytest

from benchmarks import ocr, ocr_quality, ocr_speed
from benchmarks.ocr_client import Refused
from benchmarks.ocr_memory import LEAST_PAGES, Look, as_json, measure, rounds, slope
from benchmarks.ocr_quality import PLAIN, RAPID, SETS, Page, Set, pages_of, row_of
from benchmarks.ocr_speed import AUTO, TESSERACT, Pass, Speed, rates_of


def speed_of(**rates):
    """A run of one page, a rate a round."""
    found = Speed()
    for reader, of_rounds in rates.items():
        for index, rate in enumerate(of_rounds):
            found.add(reader.replace("_", "-"), index, 1 / rate, ["El año"])
    return ocr_speed.as_json(found, ["El año"])


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


@pytest.mark.parametrize(("status", "kept"), [(404, {"first_page": "the service has no jobs"}), (500, None)])
def test_a_service_without_jobs_is_told(monkeypatch, status, kept):
    """Anything else that jobs answer ends the run."""

    def refused(*args, **fields):
        raise Refused("/v1/jobs", status, b"")

    monkeypatch.setattr(ocr_speed, "first_page_s", refused)
    monkeypatch.setattr(ocr_speed, "scanned_pdf", lambda pages: b"")
    found = Speed()

    if kept is None:
        with pytest.raises(Refused):
            ocr_speed._first_page(1, [], found)
    else:
        ocr_speed._first_page(1, [], found)
        assert (kept, {}) == (found.unmeasured, found.seconds)


def test_pages_of_a_set(tmp_path):
    """A truth and the file beside it, whatever its kind; notes and lists are neither."""
    folder = tmp_path / "some_set"
    folder.mkdir()
    for name in ("b.gt.txt", "b.pdf", "a.gt.txt", "a.jpg", "SOURCE.md", "labels.tsv"):
        (folder / name).write_text(f"text of {name}", encoding="utf-8")

    pages = pages_of(tmp_path, Set("some_set", "some"))

    assert [Page(folder / "a.jpg", "text of a.gt.txt"), Page(folder / "b.pdf", "text of b.gt.txt")] == pages
    assert [] == pages_of(tmp_path, Set("absent", "absent"))


def test_the_shared_sets_are_whole(data_dir):
    """Each of the eight has pages with their truth."""
    assert all(page.truth.strip() for one in SETS for page in pages_of(data_dir, one))
    assert [21, 6, 8, 3, 30, 10, 4, 5] == [len(pages_of(data_dir, one)) for one in SETS]


def test_a_row_has_its_own_bars(tmp_path):
    """CER against plain Tesseract's on this very set; recall against the issue's."""
    pages = [Page(tmp_path / "a.jpg", "uno dos")]
    texts = {AUTO: ["uno dos"], PLAIN: ["uno das"], RAPID: ["unodos"]}

    row = row_of(Set("set", "A set", keeps_cer=True, recall_target=0.9), pages, texts)

    assert [0.0, 1 / 7, 1 / 7] == [row["readers"][name]["cer"] for name in texts]
    assert [1.0, 0.5, 0.0] == [row["readers"][name]["recall"] for name in texts]
    assert (1 / 7, 0.9, 1) == (row["cer_target"], row["recall_target"], row["pages"])


def test_a_refused_page_is_an_unread_one(monkeypatch, tmp_path):
    """It costs the set its words, and the result says why."""
    pages = [Page(tmp_path / name, "uno") for name in ("a.jpg", "b.jpg")]
    for page in pages:
        page.file.write_bytes(page.file.name.encode())

    def read(port, file, **fields):
        assert {"source": "ocr"} == fields
        if file == b"b.jpg":
            raise Refused("/v1/ocr", 413, b"too large")
        return {"text": "uno"}

    monkeypatch.setattr(ocr_quality, "read", read)
    failed = {}

    assert ["uno", ""] == ocr_quality._our_texts(1, pages, failed)
    assert {"b.jpg": "/v1/ocr answered 413: too large"} == failed


def test_a_slope_and_its_error():
    """Bytes a page of a line, and none of a cloud without one."""
    exact, error = slope([10, 20, 30, 40], [1000, 1020, 1040, 1060])

    assert (2.0, 0.0) == (pytest.approx(exact), pytest.approx(error, abs=1e-9))
    assert slope([1, 2, 3, 4], [0, 10, 10, 0])[1] > 1


def test_memory_counts_from_the_middle():
    """What a start takes is no leak; what the parsing processes take counts with the service."""
    looks = [Look(pages, 10**8 + 50 * min(pages, 50), 10**6 + 10 * pages) for pages in range(10, 110, 10)]

    result = as_json(looks)

    assert pytest.approx(10) == result["bytes_a_page"]["all"]["slope"]
    assert pytest.approx(0) == result["bytes_a_page"]["service"]["slope"]
    assert (100, 60) == (result["pages"], looks[5].pages)
    assert looks[5].bytes == result["middle_bytes"]


def test_too_few_pages_show_no_line(tmp_path):
    """Before anything is started."""
    with pytest.raises(ValueError, match="215 pages show no line, 216 do"):
        measure(tmp_path, LEAST_PAGES - 1)


def test_rounds_of_memory_end():
    """Scans and PDFs by turns, none sent twice, until there are enough pages."""
    sent = list(rounds(40))

    assert [36, 72] == [pages for pages, _ in sent]
    files = [file for _, some in sent for file in some]
    assert 40 == len(files) == len(set(files))
    assert {b"\x89PNG", b"%PDF"} == {file[:4] for file in files}


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


def test_parts_are_measured_in_the_order_asked_for(monkeypatch):
    """What one could not measure does not hide behind the other."""
    speed = {"speed": [], "unmeasured": {"first_page": "no jobs"}}
    monkeypatch.setattr(ocr, "ocr_speed", SimpleNamespace(measure=lambda *args: dict(speed)))
    quality = {"quality": [], "unmeasured": {"ocr_photos": "absent"}}
    monkeypatch.setattr(ocr, "ocr_quality", SimpleNamespace(measure=lambda *args, **more: dict(quality)))

    result = ocr.measure(["quality", "speed"], pages=1, rounds=1, data=ocr.DATA, is_quick=True)

    assert {"ocr_photos": "absent", "first_page": "no jobs"} == result["unmeasured"]
    assert ["quality", "quality_took_s", "speed", "speed_took_s"] == sorted(result.keys() - {"unmeasured"})


def test_an_unknown_part_is_refused(monkeypatch, capsys):
    """Before anything is started."""
    monkeypatch.setattr(sys, "argv", ["ocr", "--parts", "speed,beauty"])

    with pytest.raises(SystemExit):
        ocr.main()

    assert "beauty is neither speed nor quality" in capsys.readouterr().err
