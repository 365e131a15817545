"""Tables of the OCR benchmark: speed, quality, memory growth, and missed targets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.ocr_quality import PEER_DPI, RAPIDOCR_LOOP, TESSERACT_POOL
from benchmarks.ocr_searchable import OCRMYPDF
from benchmarks.ocr_speed import (
    AUTO_TARGET,
    DIGITAL,
    DIGITAL_AGAIN,
    DIGITAL_PAGES,
    DIGITAL_TARGET_S,
    FIRST_PAGE,
    FIRST_PAGE_TARGET_S,
)
from benchmarks.ocr_timings import AUTO, BEFORE, DOUBTFUL, MIXED, RAPIDOCR, SEARCHABLE, SINGLE, TESSERACT
from benchmarks.tables import Result, about, faults, mib, spread_cell, table

READERS: Mapping[str, str] = {
    "pytesseract": "pytesseract in a loop",
    "pytesseract-one-thread": "the same, one thread a page",
    "pytesseract-pool": "the same, as many at once as cores",
    "rapidocr": "RapidOCR in a loop",
    AUTO: "**FinancIA Inference**",
    TESSERACT: "FinancIA Inference, `engine=tesseract`",
    RAPIDOCR: "FinancIA Inference, `engine=rapidocr`",
    BEFORE: "FinancIA Inference, commit `{before}`",
    OCRMYPDF: "OCRmyPDF 17",
}
_WORKS = {
    SINGLE: "one scanned A4 page at a time, nothing else to do",
    DOUBTFUL: "pages for which `auto` takes RapidOCR's result, one at a time",
    MIXED: "books, typescript, receipts, photographs, scans, as many at once as in the table above",
    SEARCHABLE: "a scanned PDF made searchable: ours as a job",
}
_QUALITY = {AUTO: "ours", TESSERACT_POOL: "Tesseract", RAPIDOCR_LOOP: "RapidOCR"}
_TIMES: Mapping[str, tuple[str, float]] = {
    DIGITAL: (f"{DIGITAL_PAGES} pages with text of their own, first request after a start", DIGITAL_TARGET_S),
    DIGITAL_AGAIN: (f"{DIGITAL_PAGES} others, the next request", DIGITAL_TARGET_S),
    FIRST_PAGE: ("first page of a scan sent as a job", FIRST_PAGE_TARGET_S),
}
_COMPARISONS = "Other work, in the same rounds; our time as a share of the reader's, within each round:"
_AUTO = "`engine=auto` against `tesseract`, time of the clean pages"
_EMPTY = "-"


def ocr_section(result: Result) -> str:
    """All tables of a run."""
    versions = ", ".join(f"{name} {version}" for name, version in result["readers"].items())
    sections = [f"{about(result)} Read by {versions}."]
    if "speed" in result:
        sections += [_speed_description(result), table(_speed_rows(result)), table(_time_rows(result))]
    if result.get("comparisons"):
        sections += [_COMPARISONS, table(_comparison_rows(result))]
    if "quality" in result:
        description = (
            f"CER (wrong characters a character of the truth, white space aside) and recall (words of the truth that "
            f"were read), means of a set's pages, through `/v1/ocr` as it starts; the others are given pictures of "
            f"{PEER_DPI} dpi where a page is a PDF:"
        )
        sections += [description, table(_quality_rows(result))]
    return "\n\n".join([*sections, *faults("Not measured", result["unmeasured"])])


def memory_section(result: Result) -> str:
    """The memory result as a sentence, with its circumstances."""
    growth = result["bytes_a_page"]["all"]
    missed_mark = " (missed)" if growth["slope"] >= result["target"] else ""
    return (
        f"{about(result)} Resident memory of the service and its processes over {result['pages']:,} pages, scans and "
        f"PDFs by turns, cache off: {mib(result['middle_bytes'])} half-way, {mib(result['last_bytes'])} "
        f"at the end; over the second half {growth['slope']:+,.0f} ± {growth['error']:,.0f} bytes a page "
        f"(to reach: under {result['target']:,}){missed_mark}."
    )


def missed(result: Result) -> list[str]:
    """The missed targets, each as a phrase."""
    return [target for target, is_reached in _targets(result) if not is_reached]


def _targets(result: Result) -> Iterator[tuple[str, bool]]:
    for row in result.get("speed", ()):
        if row["target"] is not None:
            yield f"{row['target']}x {row['reader']}", row["ours_over"]["median"] >= row["target"]
    if "speed" in result:
        yield f"auto at {AUTO_TARGET}x", result["auto_over_tesseract_time"]["median"] <= AUTO_TARGET
        for name, times in result["seconds"].items():
            limit_s = _TIMES[name][1]
            yield f"{name} in {limit_s} s", times["median"] <= limit_s
    for row in result.get("comparisons", ()):
        if row["target"] is not None:
            yield f"{row['work']} at {row['target']:.2f}x {row['reader']}", _reaches(row)
    for row in result.get("quality", ()):
        ours = row["readers"][AUTO]
        yield f"CER of {row['folder']}", row["cer_target"] is None or ours["cer"] <= row["cer_target"]
        yield f"recall of {row['folder']}", row["recall_target"] is None or ours["recall"] >= row["recall_target"]
    if "bytes_a_page" in result:
        yield "memory", result["bytes_a_page"]["all"]["slope"] < result["target"]


def _speed_description(result: Result) -> str:
    shape = result["shape"]
    return (
        f"{shape['pages']} clean A4 pages of {shape['dpi']} dpi ({shape['font']}), other words on each, "
        f"{result['languages']}, words with boxes from everyone; ours over HTTP, {shape['clients']} at once, "
        "cache off. Medians, in brackets the extremes of the rounds:"
    )


def _speed_rows(result: Result) -> Sequence[Sequence[str]]:
    rows = [["reader", "pages/s", "ours against it", "to reach", "CER"]]
    for row in result["speed"]:
        times, target = row["ours_over"], row["target"]
        is_ours = row["reader"] == AUTO
        cells = [_EMPTY if is_ours else spread_cell(times, "x")]
        cells += [_EMPTY if target is None else f"{target:g}x" + _or_missed(times["median"] >= target)]
        rows.append([_reader(result, row), spread_cell(row["pages_per_s"]), *cells, f"{row['cer']:.4f}"])
    return rows


def _comparison_rows(result: Result) -> Sequence[Sequence[str]]:
    rows = [["work", "pages", "reader", "seconds a page", "our time against it", "to reach", "CER"]]
    works = list(_WORKS)
    for row in sorted(result["comparisons"], key=lambda row: works.index(row["work"])):
        is_ours, target = row["reader"] == AUTO, row["target"]
        cells = [_EMPTY if is_ours else spread_cell(row["ours_over"], "x")]
        cells += [_EMPTY if target is None else f"at most {target:.2f}x" + _or_missed(_reaches(row))]
        cells += [_EMPTY if row["cer"] is None else f"{row['cer']:.4f}"]
        a_page = {name: value / (1 if name == "n" else row["pages"]) for name, value in row["seconds"].items()}
        rows.append([_WORKS[row["work"]], str(row["pages"]), _reader(result, row), spread_cell(a_page), *cells])
    return rows


def _reaches(row: Mapping[str, Any]) -> bool:
    return bool(row["ours_over"]["median"] <= row["target"])


def _reader(result: Result, row: Mapping[str, Any]) -> str:
    return READERS[row["reader"]].format(before=result.get("before"))


def _time_rows(result: Result) -> Sequence[Sequence[str]]:
    auto = result["auto_over_tesseract_time"]
    rows = [["", "reached", "to reach"]]
    for name, times in result["seconds"].items():
        title, limit_s = _TIMES[name]
        rows.append([title, spread_cell(times, " s"), f"{limit_s:g} s" + _or_missed(times["median"] <= limit_s)])
    rows.append(
        [_AUTO, spread_cell(auto, "x"), f"at most {AUTO_TARGET:g}x" + _or_missed(auto["median"] <= AUTO_TARGET)]
    )
    return rows


def _quality_rows(result: Result) -> Sequence[Sequence[str]]:
    head = ["set", "pages", *(f"CER, {name}" for name in _QUALITY.values())]
    rows = [[*head, *(f"recall, {name}" for name in _QUALITY.values()), "to reach"]]
    for row in result["quality"]:
        readers: Mapping[str, Any] = row["readers"]
        cers, recalls = ([f"{readers[name][metric]:.3f}" for name in _QUALITY] for metric in ("cer", "recall"))
        rows.append([row["set"], str(row["pages"]), *cers, *recalls, _target_cell(row, readers[AUTO])])
    return rows


def _target_cell(row: Mapping[str, Any], ours: Mapping[str, float]) -> str:
    cells = []
    if row["cer_target"] is not None:
        cells.append(f"CER {row['cer_target']:.3f}" + _or_missed(ours["cer"] <= row["cer_target"]))
    if row["recall_target"] is not None:
        cells.append(f"recall {row['recall_target']:.2f}" + _or_missed(ours["recall"] >= row["recall_target"]))
    return ", ".join(cells) or _EMPTY


def _or_missed(is_reached: bool) -> str:
    return "" if is_reached else " (missed)"
