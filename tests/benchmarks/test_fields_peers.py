"""What invoice2data and plain patterns answer, under our names."""

import json

from benchmarks.fields_peers import by_invoice2data, by_regexes, translated


def test_translated_record():
    """Its names become ours; a date loses its time, lines without an amount are left out."""
    record = {"issuer": "Acme", "invoice_number": 17, "date": "2026-03-12 00:00:00", "amount": 12.5, "vat": ""}
    lines = [{"name": "Bolt", "qty": 2.0, "price_subtotal": 12.5}, {"line_note": "thanks"}]
    answer = translated({**record, "lines": lines})

    assert {
        "VendorName": "Acme",
        "InvoiceId": "17",
        "InvoiceDate": "2026-03-12",
        "InvoiceTotal": "12.5",
        "Items": [{"Description": "Bolt", "Quantity": "2.0", "Amount": "12.5"}],
    } == answer.fields


def test_known_files_are_not_read_again(tmp_path):
    """A file in the cache needs no environment; its seconds are those of the first time."""
    file, cache = tmp_path / "a.pdf", tmp_path / "cache"
    file.write_bytes(b"")
    cache.mkdir()
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # SHA-256 of nothing
    (cache / f"{empty}.json").write_text(json.dumps({"seconds": 2.5, "record": {"issuer": "Acme"}}))

    seconds, [answer] = by_invoice2data([file], tmp_path / "no-environment", cache)

    assert (2.5, {"VendorName": "Acme"}) == (seconds, answer.fields)


def test_patterns_read_plain_labels():
    """Labels with their values on one line are what patterns can read."""
    text = "NIF: B50308519\nFactura nº: F-26/7\nFecha: 12/03/2026\nBase imponible 90,00 €\nTOTAL 1.108,90 €"
    fields = by_regexes(text).fields

    assert ("B50308519", "F-26/7", "2026-03-12") == tuple(
        fields[name] for name in ("VendorTaxId", "InvoiceId", "InvoiceDate")
    )
    assert ("90.00", "1108.90", "EUR") == (fields["SubTotal"], fields["InvoiceTotal"], fields["CurrencyCode"])
