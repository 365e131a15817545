"""Scores of fields, items, rows of tax and flags against a truth file."""

import pytest

from benchmarks.fields_scores import Answer, Count, calibration, is_same, read_answer, score_fields, summary, sureness

TRUTH = {
    "doc_type": "invoice",
    "labelled": [
        "VendorTaxId", "InvoiceId", "InvoiceDate", "InvoiceTotal", "AmountDue", "Items", "TaxDetails", "valid",
    ],
    "fields": {
        "VendorTaxId": "B50308519", "InvoiceId": "F-26/7", "InvoiceDate": "2026-03-12", "InvoiceTotal": "108.90",
        "WithholdingRate": "15", "WithholdingAmount": "13.50",
    },
    "optional": {"AmountDue": "108.90"},
    "accept": {"InvoiceTotal": ["95.40"]},
    "items": [{"Description": "Tornillo M8", "Quantity": "9", "UnitPrice": "10", "Amount": "90.00"}],
    "tax_details": [{"Type": "IVA", "Rate": "21", "Base": "90.00", "Amount": "18.90"}],
    "valid": {"totals": True},
}  # fmt: skip
RIGHT = {"VendorTaxId": "B50308519", "InvoiceId": "F-26/7", "InvoiceDate": "2026-03-12", "InvoiceTotal": "108.90"}
ITEM = {"Description": "Tornillo M8", "Quantity": "9", "UnitPrice": "10.00", "Amount": "90"}


@pytest.mark.parametrize(
    ("name", "expected", "given", "same"),
    [
        pytest.param("InvoiceTotal", "1010.80", 1010.8, True, id="amounts-by-number"),
        pytest.param("InvoiceTotal", "-12.00", "12.00", False, id="signs-count"),
        pytest.param("InvoiceDate", "2026-03-12", "2026-12-03", False, id="month-and-day-turned"),
        pytest.param("VendorTaxId", "GB442487189", "442 4871 89", True, id="country-left-out"),
        pytest.param("VendorTaxId", "B50308519", "B50308510", False, id="one-wrong-digit"),
        pytest.param("InvoiceId", "2026/7", "20267", False, id="numbers-of-invoices-keep-separators"),
        pytest.param(
            "IBAN", "ES9814657372970405525537", "ES98 1465 7372 9704 0552 5537", True, id="spaces-in-accounts"
        ),
        pytest.param("VendorName", "Informática Salinas, S.L.", "INFORMATICA SALINAS SL", True, id="names-by-likeness"),
        pytest.param("VendorName", "Informática Salinas, S.L.", "Gráficas Lozano S.L.", False, id="another-name"),
        pytest.param(
            "VendorAddress", "C/ Mayor 57, 28013 Madrid", "28013 Madrid, C/ Mayor 57", True, id="order-of-address"
        ),
    ],
)
def test_is_same(name, expected, given, same):
    """Each kind of value has its own way to be equal."""
    assert is_same(name, expected, given) is same


def test_wrong_value_counts_twice():
    """A wrong value is an answer too many and one that is missing."""
    scores = score_fields(TRUTH, Answer({**RIGHT, "InvoiceId": "F-26/8"}))

    assert Count(0, 1, 1) == scores.fields["InvoiceId"]
    assert Count(right=1) == scores.fields["InvoiceDate"]
    assert Count(missed=1) == scores.bookable


def test_optional_and_accepted_values():
    """An optional value may be given, an accepted one is right; another one is wrong."""
    assert Count() == score_fields(TRUTH, Answer({**RIGHT, "AmountDue": "108.90"})).fields["AmountDue"]
    assert Count(wrong=1) == score_fields(TRUTH, Answer({**RIGHT, "AmountDue": "1.00"})).fields["AmountDue"]
    assert Count(right=1) == score_fields(TRUTH, Answer({"InvoiceTotal": "95.4"})).fields["InvoiceTotal"]


def test_items_need_amount_and_description():
    """An item is found by amount and a similar description; it is whole with quantity and price."""
    scores = score_fields(TRUTH, Answer({"Items": [{**ITEM, "Quantity": "8"}, {**ITEM, "Amount": "91"}]}))

    assert Count(right=1, wrong=1) == scores.items
    assert Count(wrong=2, missed=1) == scores.whole_items


def test_tax_rows_leave_withholding_out():
    """A row of withholding among the taxes is no wrong one."""
    rows = [{"Rate": "21", "Amount": "18.90"}, {"Rate": "15", "Amount": "-13.50"}, {"Rate": "10", "Amount": "9"}]
    scores = score_fields(TRUTH, Answer({"TaxDetails": rows}))

    assert Count(right=1, wrong=1) == scores.taxes


def test_balanced_flag_of_always_right():
    """Whoever always says that totals add up is right half of the time by the balanced figure."""
    wrong = {**TRUTH, "valid": {"totals": False}}
    scores = [score_fields(truth, Answer(flags={"totals": True})) for truth in (TRUTH, TRUTH, TRUTH, wrong)]

    assert {"accuracy": 0.75, "balanced": 0.5} == summary(scores)["flags"]["totals"]


def test_read_answer_takes_values_out_of_their_places():
    """Values come wrapped with their places and reasons; empty ones are none."""
    row = {"Description": {"value": "Tornillo", "page": 1}, "Amount": {"value": "90.00"}}
    fields = {"InvoiceId": {"value": "7", "score": 0.9}, "DueDate": {"value": ""}, "Items": {"value": [row]}}
    answer = read_answer({"fields": fields, "valid": {"totals": False, "VendorTaxId": None}, "tables": []})

    assert {"InvoiceId": "7", "Items": [{"Description": "Tornillo", "Amount": "90.00"}]} == answer.fields
    assert {"totals": False} == answer.flags


def test_what_scores_are_worth():
    """A score is compared with the share of right values near it; below the first wrong one, too few are right."""
    answer = Answer({**RIGHT, "InvoiceId": "F-26/8"}, scores=dict.fromkeys(RIGHT, 0.9))
    values = [(0.95, True)] * 3 + [(0.85, False), (0.85, True)]

    assert [False] == [is_right for score, is_right in sureness(TRUTH, answer) if not is_right]
    assert {"values": 5, "error": pytest.approx(0.17), "least": 0.95, "booked": 0.6} == calibration(values)
    assert 0 == calibration([(0.9, False)])["booked"]
