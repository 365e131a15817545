"""The made documents: their truth stands on the page, adds up, and has right check digits."""

import html
import re
from decimal import Decimal
from random import Random

import pytest

from backend.text.patterns import find_patterns
from benchmarks.fields_designs import identities
from benchmarks.fields_designs.generate import INVOICES, OTHERS
from benchmarks.fields_designs.invoice import Line, Terms, negated, settle
from benchmarks.fields_designs.table_pages import TABLES

SEEDS = range(6)


def made(name, seed):
    return INVOICES[name](Random(f"test/{name}/{seed}"))


def text_of(page):
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)).split())


@pytest.mark.parametrize("name", INVOICES)
def test_truth_is_on_the_page(name):
    """Names, numbers, tax numbers, accounts and descriptions are printed as the truth has them."""
    for seed in SEEDS:
        sheet = made(name, seed)
        text, fields = text_of(sheet.html), sheet.truth["fields"]
        bare = re.sub(r"\W", "", text)

        for field in ("VendorName", "CustomerName", "InvoiceId"):
            readings = [fields.get(field, ""), *sheet.truth["accept"].get(field, [])]
            assert any(reading in text for reading in readings)
        for field in ("VendorTaxId", "CustomerTaxId", "IBAN"):
            assert fields.get(field, "").removeprefix("GB").removeprefix("IT") in bare
        for item in sheet.truth["items"]:
            assert item["Description"] in text


@pytest.mark.parametrize("name", INVOICES)
def test_sums_are_right_unless_marked_wrong(name):
    """Base and taxes make the total, less what is withheld where one total is printed; one in eight is wrong."""
    for seed in SEEDS:
        truth = made(name, seed).truth
        values = {
            key: Decimal(value) for key, value in {**truth["optional"], **truth["fields"]}.items() if key in _SUMS
        }
        total = values["SubTotal"] + sum(Decimal(row["Amount"]) for row in truth["tax_details"])
        totals = {total, total - values.get("WithholdingAmount", Decimal(0))}
        rates_hold = all(
            abs(Decimal(row["Base"]) * Decimal(row["Rate"]) / 100 - Decimal(row["Amount"])) <= Decimal("0.02")
            for row in truth["tax_details"]
        )

        assert truth["valid"]["totals"] is (values["InvoiceTotal"] in totals and rates_hold)


_SUMS = frozenset({"SubTotal", "InvoiceTotal", "WithholdingAmount"})


def test_same_seed_same_document():
    """A set can be made again."""
    assert made("es_hotel", 1) == made("es_hotel", 1)
    assert made("es_hotel", 1) != made("es_hotel", 2)


def test_credit_notes_turn_the_signs():
    """A negated bill keeps its prices and turns quantities, sums and taxes."""
    bill = settle(Random(1), [Line("Tornillo", Decimal(2), Decimal("3.50"), Decimal(21))], Terms())
    note = negated(bill)

    assert (-bill.total, -bill.total_tax) == (note.total, note.total_tax)
    assert Decimal("3.50") == note.lines[0].unit_price
    assert Decimal("-7.00") == note.lines[0].amount


@pytest.mark.parametrize(
    ("make", "label"),
    [
        (identities.nif, "NIF"), (identities.nie, "NIE"), (identities.cif, "CIF"), (identities.vat_gb, "VAT"),
        (identities.vat_ie, "VAT"), (identities.vat_de, "VAT"), (identities.vat_fr, "VAT"),
    ],
)  # fmt: skip
def test_check_characters(make, label):
    """Our own patterns, written apart, agree with the numbers made right and those made wrong."""
    random = Random(4)
    for is_right in (True, False):
        for _ in range(20):
            number = make(random, is_right=is_right)
            [valid] = {match.valid for match in find_patterns(f"{label} {number}") if match.type == label}
            assert is_right is valid


@pytest.mark.parametrize("country", ["ES", "DE", "FR", "PT", "IE", "GB"])
def test_accounts(country):
    """Accounts have right check digits."""
    account = identities.iban(Random(country), country)
    matches = find_patterns(f"IBAN {identities.in_fours(account)}.")

    assert (account, True) in {(match.text.replace(" ", ""), match.valid) for match in matches if match.type == "IBAN"}


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_rows_of_one_width(name):
    """Spans fill each row to the same number of columns."""
    for table in TABLES[name](Random(name)).truth["tables"]:
        rows, width = table["rows"], sum(cell["colspan"] for cell in table["rows"][0])
        places = sum(cell["rowspan"] * cell["colspan"] for row in rows for cell in row)

        assert len(rows) * width == places


def test_pages_without_fields_ask_for_none():
    """Their truth is empty, so that every answer is an invention."""
    for design in OTHERS.values():
        assert {} == design(Random(3)).truth["fields"]
