"""Books as Excel, CSV and JSON: every cell is what the documents say."""

import csv
import datetime as dt
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pytest

from backend.books import exports
from backend.books.exports import BookExport, ExportFormat, ExportOptions
from backend.books.ledger import BookedFile
from backend.books.views import Locale, ViewName
from backend.errors import TooLarge
from tests.books.booked import booked, field, invoice, statement, taxes
from tests.books.workbooks import converted, sheets_of


def _day(year: int, month: int, day: int) -> dt.datetime:
    """A day as openpyxl reads it: spreadsheets know no time zones."""
    return dt.datetime(year, month, day)  # noqa: DTZ001


DAY = _day(2026, 3, 12)
LINES_ES = [
    "Fecha", "Serie-Número", "NIF", "Proveedor", "Línea", "Código", "Concepto", "Cantidad", "Unidad", "Precio",
    "Descuento", "Tipo de IVA", "Importe", "Moneda", "Archivo", "Páginas", "Documento",
]  # fmt: skip


def _export(
    *files: BookedFile, form: ExportFormat = "xlsx", view: ViewName | None = None, locale: Locale = "es"
) -> bytes:
    target = io.BytesIO()
    with BookExport(ExportOptions(form, view, locale), target) as export:
        for file in files:
            export.add(file)
        export.finish()
    return target.getvalue()


def test_a_workbook_of_everything() -> None:
    """A row an invoice and rate, its lines, its supplier; dates are dates, amounts numbers, codes text."""
    sheets = sheets_of(_export(booked(invoice(confirmed=True, pages=(1, 2, 3, 7)))))

    assert ["Facturas recibidas", "Líneas", "Por proveedor"] == list(sheets)
    first, second = sheets["Facturas recibidas"]
    common = {
        "Estado": "Confirmada", "Fecha": DAY, "Serie-Número": "2026/017", "NIF": "A58818501", "Moneda": "EUR",
        "Proveedor": "Aceros del Norte, S.L.", "Impuesto": "IVA", "Vencimiento": _day(2026, 4, 12),
        "Comprobación": "Cuadra", "Clase": "Factura", "Archivo": "factura.pdf", "Páginas": "1-3, 7",
        "Documento": "file-1",
    }  # fmt: skip
    whole = {"Tipo de retención": 15, "Retención": 75, "Total factura": 497, "A pagar": 497}
    assert first == {**common, **whole, "Base imponible": 200, "Tipo de IVA": 21, "Cuota de IVA": 42}
    assert second == {**common, "Base imponible": 300, "Tipo de IVA": 10, "Cuota de IVA": 30}
    assert [("0017", "Tornillo M8", 10, 20, 200), ("0018", "=HYPERLINK()", 2.5, 120, 300)] == [
        (row["Código"], row["Concepto"], row["Cantidad"], row["Precio"], row["Importe"]) for row in sheets["Líneas"]
    ]
    assert [{
        "Proveedor": "Aceros del Norte, S.L.", "NIF": "A58818501", "Facturas": 1, "Base imponible": 500,
        "Impuestos": 72, "Retención": 75, "Total factura": 497, "A pagar": 497, "Moneda": "EUR",
        "Primera": DAY, "Última": DAY,
    }] == sheets["Por proveedor"]  # fmt: skip


def test_cells_are_formatted_for_people() -> None:
    """A date looks like one, an amount has two digits; there is no formula."""
    sheet = openpyxl.load_workbook(io.BytesIO(_export(booked(invoice(VendorName="=1+1")))))["Facturas recibidas"]
    by_header = {header.value: cell for header, cell in zip(sheet[1], sheet[2], strict=True)}

    assert ("dd/mm/yyyy", "#,##0.00") == (by_header["Fecha"].number_format, by_header["Total factura"].number_format)
    assert ("s", "=1+1") == (by_header["Proveedor"].data_type, by_header["Proveedor"].value)
    assert ("A2", True) == (sheet.freeze_panes, sheet.auto_filter.ref is not None)


def test_movements_have_a_sheet_where_there_are_any() -> None:
    """A statement is no invoice: its movements are a sheet of their own."""
    sheets = sheets_of(_export(booked(invoice(), statement()), locale="en"))

    assert ["Invoices received", "Lines", "By supplier", "Movements"] == list(sheets)
    assert {"file-1"} == {row["Document"] for row in sheets["Invoices received"]}
    assert 2 == len(sheets["Invoices received"])
    assert ["Recibo luz", "+ abono"] == [row["Description"] for row in sheets["Movements"]]
    assert {
        "Account": "ES9121000418450200051332", "Holder": "Bodegas Sol", "Date": _day(2026, 3, 2),
        "Value date": _day(2026, 3, 2), "Description": "Recibo luz", "Amount": -100, "Balance": 900,
        "Currency": "EUR", "File": "factura.pdf", "Pages": "1", "Document": "file-1",
    } == sheets["Movements"][0]  # fmt: skip


def test_one_view_alone() -> None:
    """A workbook of the sheet that was asked for, also an empty one."""
    assert {"Movimientos": []} == sheets_of(_export(booked(invoice()), view="movements"))
    assert ["Líneas"] == list(sheets_of(_export(booked(invoice()), view="lines")))


def test_duplicates_and_missing_numbers() -> None:
    """The second of two equal invoices names the first; a gap stands beside its supplier."""
    numbers = ("F-1", "F-2", "F-4", "F-5")
    files = [booked(invoice(number), file_id=f"file-{number}", name=f"{number}.pdf") for number in numbers]
    files.append(booked(invoice("F-2"), file_id="file-again", name="otra.pdf"))
    sheets = sheets_of(_export(*files))

    assert {("file-again", "F-2.pdf (1)")} == {
        (row["Documento"], row["Duplicada de"]) for row in sheets["Facturas recibidas"] if "Duplicada de" in row
    }
    assert 2 == sum("Duplicada de" in row for row in sheets["Facturas recibidas"]), "both rates of the second one"
    assert "F-3" == sheets["Por proveedor"][0]["Números que faltan"]


def test_csv_for_a_spanish_excel() -> None:
    """Semicolons, decimal commas, a mark of UTF-8, days first."""
    text = _export(booked(invoice()), form="csv", view="lines")

    assert text.startswith(b"\xef\xbb\xbf")
    assert not text[3:].startswith(b"\xef\xbb\xbf")
    headers, first, second = csv.reader(io.StringIO(text.decode("utf-8-sig")), delimiter=";")
    assert LINES_ES == headers
    assert ["12/03/2026", "2,5", "120,00", "'=HYPERLINK()"] == [second[0], second[7], second[9], second[6]]
    assert "0017" == first[5]


def test_an_electronic_invoice_in_the_spanish_book() -> None:
    """VAT is IVA and a NIF has no country there; other countries' ids, other taxes and other languages stay."""
    german, rows = {"VendorTaxId": field("DE 123456789")}, taxes(("VAT", "21", "100.00", "21.00"))
    files = booked(invoice(VendorTaxId=field("ES A-58818501"), TaxDetails=rows), invoice("2", **german))
    spanish, english = sheets_of(_export(files)), sheets_of(_export(files, locale="en"))

    book = spanish["Facturas recibidas"]
    assert [("A58818501", "IVA"), ("DE 123456789", "IVA")] == [(row["NIF"], row["Impuesto"]) for row in book[:2]]
    assert {"A58818501", "DE 123456789"} == {row["NIF"] for row in spanish["Por proveedor"]}
    assert ("ES A-58818501", "VAT") == tuple(english["Invoices received"][0][name] for name in ("Tax ID", "Tax"))


def test_csv_for_programs() -> None:
    """RFC 4180: commas, lines that end with CR and LF, quotes where they are needed; points and ISO dates."""
    text = _export(booked(invoice()), form="csv", locale="en").decode()

    assert text.count("\r\n") == text.count("\n") == 3
    assert '"Aceros del Norte, S.L."' in text
    first = next(csv.DictReader(io.StringIO(text)))
    assert ("2026-03-12", "497.00", "To review") == (first["Date"], first["Total"], first["State"])


def test_json() -> None:
    """The same rows by the names of the API, amounts as decimals in text, whatever the language."""
    answer = json.loads(_export(booked(invoice(), invoice("2")), form="json"))

    assert ("list", "ledger", 4) == (answer["object"], answer["view"], len(answer["data"]))
    first = answer["data"][0]
    assert ("to_review", "2026-03-12", "497.00", "21", None) == (
        first["state"], first["date"], first["total"], first["tax_rate"], first["customer"],
    )  # fmt: skip


@pytest.mark.parametrize("form", ["xlsx", "csv", "json"])
def test_nothing_at_all(form: ExportFormat) -> None:
    """No documents give headers and no rows."""
    export = _export(form=form)

    if form == "xlsx":
        assert [[], [], []] == list(sheets_of(export).values())
    elif form == "csv":
        assert 1 == export.count(b"\r\n")
    else:
        assert [] == json.loads(export)["data"]


HOSTILE = [
    "=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "x;=1", "x\n=1", "<r><t>x</t></r>", "_x0041_",
    "\x00\x01\x1f", "]]>", "&amp;", "https://x.invalid", "'", '"', "{=1}", "\N{GRINNING FACE}",
]  # fmt: skip


def test_hostile_texts() -> None:
    """Whatever the text fields say, the files open, and no cell of them is a formula or a link."""
    names = (
        "VendorName", "VendorTaxId", "InvoiceId", "InvoiceDate", "DueDate", "CurrencyCode", "CustomerName",
        "CustomerTaxId", "MerchantName",
    )  # fmt: skip
    files = [
        booked(invoice(**dict.fromkeys(names, text)), statement(AccountHolder=text), file_id=text, name=text)
        for text in HOSTILE
    ]

    book = openpyxl.load_workbook(io.BytesIO(_export(*files)))
    cells = [cell for sheet in book for row in sheet for cell in row]
    assert not [cell for cell in cells if cell.data_type == "f" or cell.hyperlink]
    locales: tuple[Locale, ...] = ("es", "en")
    for locale in locales:
        written = _export(*files, form="csv", locale=locale).decode("utf-8-sig")
        for separator in ",;\t":
            begun = [cell for row in csv.reader(io.StringIO(written), delimiter=separator) for cell in row]
            assert not [cell for cell in begun if cell.lstrip(" \t\r\n").startswith(("=", "+", "@", "-2"))]
    suppliers = [row["supplier"] for row in json.loads(_export(*files, form="json"))["data"]]
    assert HOSTILE == suppliers[::2]


@pytest.mark.parametrize("value", ["2026-02-31", "1899-12-31", "12/03/2026", "2026-W01-1", "hoy", "20260312"])
def test_dates_that_a_spreadsheet_has_not(value: str) -> None:
    """They stay as they stand there, as text."""
    sheets = sheets_of(_export(booked(invoice(InvoiceDate=value))))

    assert value == sheets["Facturas recibidas"][0]["Fecha"]
    assert value in _export(booked(invoice(InvoiceDate=value)), form="csv").decode()


def test_amounts_of_more_digits_than_a_spreadsheet_has() -> None:
    """They stay whole, as text: a number would lose its cents."""
    sheets = sheets_of(_export(booked(invoice(InvoiceTotal="123456789012345.67"))))

    assert "123456789012345.67" == sheets["Facturas recibidas"][0]["Total factura"]


def test_a_text_longer_than_a_cell() -> None:
    """It is cut where Excel cuts it, and whole in CSV."""
    text = "a" * 40_000
    hostile = booked(invoice(VendorName=text))

    assert text[:32_767] == sheets_of(_export(hostile))["Facturas recibidas"][0]["Proveedor"]
    assert text.encode() in _export(hostile, form="csv")


def test_more_lines_than_a_sheet_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with what to do: Excel would open a sheet that ends in the middle."""
    monkeypatch.setattr(exports, "MAX_ROWS", 3)

    with pytest.raises(TooLarge, match=r"rows of lines: 4 is over the limit of 3 .*fewer documents, or format=csv"):
        _export(*[booked(invoice())] * 2)


def test_the_same_documents_give_the_same_bytes() -> None:
    """No time and no name of a machine is in a workbook."""
    assert _export(booked(invoice())) == _export(booked(invoice()))


@pytest.mark.slow
@pytest.mark.libreoffice
def test_libreoffice_reads_the_same(tmp_path: Path) -> None:
    """What another program makes of the workbook is the truth: dates, amounts and texts, none of them computed."""
    book = _export(booked(invoice(), invoice("=2+2", InvoiceDate="2026-12-31", InvoiceTotal="-1284.50")))
    read = sheets_of(converted(book, tmp_path))

    assert sheets_of(book) == read
    wanted = {"2026/017": (DAY, 497), "=2+2": (_day(2026, 12, 31), -1284.5)}
    rows = read["Facturas recibidas"]
    assert wanted == {
        row["Serie-Número"]: (row["Fecha"], row["Total factura"]) for row in rows if "Total factura" in row
    }


_MANY = 5_000


@pytest.mark.slow
@pytest.mark.parametrize("form", ["xlsx", "csv"])
def test_five_thousand_documents(form: ExportFormat) -> None:
    """Written as they come: 20,000 lines take no more memory than their ledger does."""
    script = f"""
import resource, tempfile
from tests.books.test_exports import many
from backend.books.exports import BookExport, BookExport, ExportOptions
target, files = tempfile.TemporaryFile(), many()
with BookExport(ExportOptions({form!r}, {"None" if form == "xlsx" else "'lines'"}, "es"), target) as export:
    export.add(next(files))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for file in files:
        export.add(file)
    export.finish()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, target.tell())
"""
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    grown_kib, size_bytes = map(int, run.stdout.split())
    assert grown_kib < 48 * 1024
    assert size_bytes > 1_000_000


def many() -> Iterator[BookedFile]:
    """Thousands of invoices with four lines each."""
    for index in range(_MANY):
        one = invoice(f"F-{index:05d}")
        one["fields"]["Items"]["value"] *= 2
        yield booked(one, file_id=f"file-{index}", name=f"{index}.pdf")
