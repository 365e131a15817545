"""Tables of the fields benchmark, and missed targets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.fields_scores import FIELDS
from benchmarks.tables import Result, about, faults, table

OURS, PATTERNS = "ours", "patterns"
_MAX_INVENTED = 0.01
_MAX_SECONDS = 0.05  # a page
_TARGETS: Mapping[tuple[str, str], float] = {  # split, figure -> least F1
    ("made, digital", "fields"): 0.95,
    ("made, scans", "fields"): 0.88,
    ("made, digital", "items"): 0.90,
    ("made, scans", "items"): 0.80,
    ("tables, digital", "relations"): 0.93,
    ("tables, scans", "relations"): 0.85,
}
_SROIE = "receipts (SROIE)"
_SROIE_TARGETS = {"VendorName": 0.85, "InvoiceDate": 0.95, "VendorAddress": 0.80, "InvoiceTotal": 0.90}
_BY_FIELD = ("made, digital", "made, scans", "fields_dev, digital", "fields_dev, scans", "real invoices", _SROIE)
_EMPTY = "-"


def fields_section(result: Result) -> str:
    """All tables of a run."""
    opening = (
        f"{about(result)} Patterns are plain regular expressions on the text that this "
        "service reads. Micro F1; in brackets what is to be reached:"
    )
    tables = [table(_split_rows(result)), "F1 of each field, ours:", table(_field_rows(result))]
    sections = [opening, *tables, _cost(result), *_sure(result)]
    return "\n\n".join([*sections, *faults("Failed", result["failed"])])


def _cost(result: Result) -> str:
    """Inventions and seconds, as sentences."""
    invented, seconds = result["inventions"], result["seconds_a_page"]
    return (
        f"Invented: {invented['answered']} values on {invented['documents']} documents without fields, "
        f"{invented['share']:.2%} of what could be answered (to reach: at most {_MAX_INVENTED:.0%}). Fields and "
        f"tables take {seconds[OURS]['median'] * 1000:.0f} ms a page after reading it, at most "
        f"{seconds[OURS]['max'] * 1000:.0f} ms (to reach: at most {_MAX_SECONDS * 1000:.0f} ms)."
    )


def _sure(result: Result) -> Iterator[str]:
    """What scores are worth."""
    for name, figures in result.get("calibration", {}).items():
        booked = f"those of at least {figures['least']:.2f} are right in 99 %: {figures['booked']:.0%} of all"
        yield (
            f"Scores of {name}: expected calibration error {figures['error']:.3f}; of {figures['values']} values "
            f"{booked if figures['booked'] else 'none is sure enough that 99 % are right'}."
        )


def missed(result: Result) -> list[str]:
    """The missed targets, each as a phrase."""
    return [name for name, is_reached in _targets(result) if not is_reached]


def _targets(result: Result) -> Iterator[tuple[str, bool]]:
    splits = result["splits"]
    for (split, figure), least in _TARGETS.items():
        if figures := splits.get(split, {}).get(OURS):
            yield f"{split}: {figure} {least:.2f}", figures.get(figure, {"f1": 0.0})["f1"] >= least
    for name, least in _SROIE_TARGETS.items():
        if figures := splits.get(_SROIE, {}).get(OURS):
            yield f"{_SROIE}: {name} {least:.2f}", figures["by_field"][name]["f1"] >= least
    yield "inventions", result["inventions"]["share"] <= _MAX_INVENTED
    yield "milliseconds a page", result["seconds_a_page"][OURS]["median"] <= _MAX_SECONDS


def _split_rows(result: Result) -> Sequence[Sequence[str]]:
    rows = [
        ["", "documents", "fields, ours", "fields, patterns",
         "key fields all right", "items", "tax rows", "totals flag, balanced", "tables"]
    ]  # fmt: skip
    for split, readers in result["splits"].items():
        if OURS not in readers:
            continue
        figures = readers[OURS]
        cells = [_f1(figures, "fields", split), _f1(readers.get(PATTERNS, {}), "fields")]
        balanced = figures["flags"].get("totals", {}).get("balanced")
        cells += [
            _share(figures.get("bookable")),
            _f1(figures, "items", split),
            _f1(figures, "taxes"),
            _share(balanced),
        ]
        rows.append([split, str(figures["documents"]), *cells, _f1(figures, "relations", split)])
    return rows


def _f1(figures: Mapping[str, Any], name: str, split: str = "") -> str:
    if name not in figures:
        return _EMPTY
    value, least = figures[name]["f1"], _TARGETS.get((split, name))
    goal = "" if least is None else f" ({least:.2f}{'' if value >= least else ', missed'})"
    return f"{value:.3f}{goal}"


def _share(value: float | None) -> str:
    return _EMPTY if value is None else f"{value:.0%}"


def _field_rows(result: Result) -> Sequence[Sequence[str]]:
    splits = [split for split in _BY_FIELD if OURS in result["splits"].get(split, {})]
    rows = [["", *splits]]
    for name in FIELDS:
        cells = [result["splits"][split][OURS]["by_field"].get(name) for split in splits]
        rows.append([f"`{name}`", *(_field_cell(cell, name, split) for cell, split in zip(cells, splits, strict=True))])
    return rows


def _field_cell(figures: Mapping[str, float] | None, name: str, split: str) -> str:
    if figures is None:
        return _EMPTY
    least = _SROIE_TARGETS.get(name) if split == _SROIE else None
    goal = "" if least is None else f" ({least:.2f}{'' if figures['f1'] >= least else ', missed'})"
    return f"{figures['f1']:.2f}{goal}"
