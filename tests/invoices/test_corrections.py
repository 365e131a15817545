"""What is checked again of a document's amounts after a correction."""

from __future__ import annotations

from typing import Any

import pytest

from backend.invoices.corrections import FieldValues, recheck

READ = {"SubTotal": "100.00", "TotalTax": "21.00", "InvoiceTotal": "121.00"}


def _values(fields: dict[str, Any]) -> FieldValues:
    lists = {name: value for name, value in fields.items() if isinstance(value, list)}
    return FieldValues({name: value for name, value in fields.items() if name not in lists}, lists)


@pytest.mark.parametrize(
    ("read", "changes", "totals", "wrong"),
    [
        pytest.param(READ, {"TotalTax": "10.00"}, False, ["SubTotal + TotalTax = InvoiceTotal"], id="sum"),
        pytest.param(READ, {"TotalTax": "10.00", "InvoiceTotal": "110.00"}, True, [], id="both-corrected"),
        pytest.param(READ, {"WithholdingAmount": "15.00", "InvoiceTotal": "106.00"}, True, [], id="withholding"),
        pytest.param({**READ, "InvoiceTotal": "123.50"}, {"SubTotal": "90.00", "InvoiceTotal": "113.50"}, True, [],
                     id="a-charge-that-is-no-field"),
        pytest.param({**READ, "InvoiceTotal": "123.50"}, {"SubTotal": "90.00"}, False,
                     ["SubTotal + TotalTax = InvoiceTotal"], id="beside-such-a-charge"),
        pytest.param({**READ, "SubTotal": "121.00"}, {"TotalTax": "20.00"}, True, [], id="tax-inside"),
        pytest.param({**READ, "WithholdingAmount": "15.00", "AmountDue": "50.00"}, {"SubTotal": "100.01"}, True, [],
                     id="a-payment-that-is-no-field"),
        pytest.param({**READ, "WithholdingAmount": "15.00", "AmountDue": "106.00"}, {"AmountDue": "107.00"}, False,
                     ["InvoiceTotal - WithholdingAmount = AmountDue"], id="due"),
        pytest.param(READ, {"TaxDetails": [{"Rate": "21", "Amount": "10.50"}, {"Rate": "10", "Amount": "10.50"}]}, True,
                     [], id="rates-that-make-the-tax"),
        pytest.param(READ, {"TaxDetails": [{"Rate": "21", "Amount": "20.00"}]}, False, ["sum of TaxDetails = TotalTax"],
                     id="rates-that-do-not"),
        pytest.param(READ, {"Items": [{"Amount": "60.00"}, {"Amount": "40.00"}]}, True, [], id="lines"),
        pytest.param(READ, {"Items": [{"Amount": "60.00"}, {"Description": "no amount"}]}, True, [], id="no-amount"),
        pytest.param(READ, {"Items": [{"Amount": "60.00"}]}, False, ["sum of Items = SubTotal"], id="line-missing"),
        pytest.param({"InvoiceTotal": "9.00", "Items": [{"Amount": "9.00"}]}, {"InvoiceTotal": "8.00"}, False,
                     ["sum of Items = InvoiceTotal"], id="lines-alone"),
        pytest.param({"OpeningBalance": "10.00", "ClosingBalance": "7.00", "Movements": [{"Amount": "-3.00"}]},
                     {"ClosingBalance": "8.00"}, False, ["OpeningBalance + sum of Movements = ClosingBalance"],
                     id="a-statement"),
        pytest.param({"InvoiceTotal": "9.00"}, {"InvoiceTotal": "8.00"}, None, [], id="nothing-to-check"),
        pytest.param({"SubTotal": "-100.00", "TotalTax": "-21.00", "InvoiceTotal": "-121.00"},
                     {"WithholdingAmount": "15.00", "InvoiceTotal": "-106.00"}, True, [], id="a-credit-note"),
    ],
)  # fmt: skip
def test_recheck(read: dict[str, Any], changes: dict[str, Any], totals: bool | None, wrong: list[str]):
    """Equations hold within rounding, or as far apart as they did where what was read adds up."""
    checked = recheck(_values(read), True, _values({**read, **changes}), frozenset(changes))

    assert (totals, wrong) == (checked.totals, [difference.equation for difference in checked.differences])


def test_nothing_is_explained_where_the_read_amounts_are_wrong():
    """A gap between them is a fault of the reading, which a person has to mend."""
    read = _values({**READ, "InvoiceTotal": "123.50"})

    assert recheck(read, False, read, frozenset({"SubTotal"})).totals is False
