"""Tables of the fields benchmark: results beside their targets."""

import pytest

from benchmarks.fields_tables import INVOICE2DATA, OURS, PATTERNS, fields_section, missed
from tests.benchmarks.test_render import ABOUT, rows


def f1(value):
    return {"precision": value, "recall": value, "f1": value, "truth": 10}


def figures(fields, items=0.95):
    by_field = {name: f1(fields) for name in ("VendorName", "VendorAddress", "InvoiceDate", "InvoiceTotal")}
    totals = {"totals": {"accuracy": 0.9, "balanced": 0.8}}
    return {"documents": 5, "fields": f1(fields), "items": f1(items), "by_field": by_field, "flags": totals}


@pytest.fixture
def result():
    """A run that reached all but the items of scans."""
    return ABOUT | {
        "invoice2data": "1.0.1",
        "splits": {
            "made, digital": {OURS: figures(0.97), INVOICE2DATA: figures(0.0), PATTERNS: figures(0.4)},
            "made, scans": {OURS: figures(0.9, items=0.7)},
            "tables, digital": {},
        },
        "inventions": {"documents": 100, "answered": 3, "share": 0.0017},
        "seconds_a_page": {OURS: {"median": 0.012, "min": 0.01, "max": 0.031, "n": 9}},
        "failed": {},
        "unmeasured": {INVOICE2DATA: "no network"},
    }


def test_missed_targets(result):
    """Each missed target is named; splits without documents miss none."""
    assert ["made, scans: items 0.80"] == missed(result)


def test_section(result):
    """Ours beside the others, with what was to be reached, and what could not be measured."""
    text = fields_section(result)
    digital, scans = rows(text, "made, digital")[0], rows(text, "made, scans")[0]

    assert ["made, digital", "5", "0.970 (0.95)", "0.000", "0.400"] == digital[:5]
    assert "0.700 (0.80, missed)" in scans
    assert "3 values on 100 documents" in text
    assert "Unmeasured: invoice2data: no network" in text
