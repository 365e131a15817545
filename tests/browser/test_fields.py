"""Fields beside the paper, and tables as grids."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chrome import Tab
from tests.browser.drawn_documents import HOSTILE, invoice_data
from tests.browser.fake_job_service import FakeJobService

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]
DONE = "!document.querySelector('#forget').hidden"


async def test_the_fields_of_an_invoice_come_first(tab: Tab, service: FakeJobService, file: File) -> None:
    """Names, values, what is printed and what the checks say; amounts that do not add up are said in red."""
    service.data = invoice_data()
    await tab.choose_file(file("factura.pdf"))
    await tab.wait_for(DONE)

    assert "true" == await tab.run("document.querySelector('#tab-fields').getAttribute('aria-selected')")
    panel = await tab.text("#panel-fields")
    told = ("Supplier", "Suministros Ibéricos S.L.", "2026-03-12", "l2/O3/2026", "1,368.40", "Lines (2)")
    checked = (
        "Perhaps ES9121000418450200051332",
        "The amounts do not add up.",
        "Base + Tax = Total: 1,368.41 by its parts",
    )
    for words in (*told, *checked, "From the tax QR code"):
        assert words in panel, words
    red = await tab.run("getComputedStyle(document.querySelector('.totals')).color")
    assert red == await tab.run("getComputedStyle(document.querySelector('.differences')).color")
    assert HOSTILE in panel


async def test_fields_are_shown_before_the_rest_is_known(tab: Tab, service: FakeJobService, file: File) -> None:
    """As soon as they are read; who has gone to another tab meanwhile stays there."""
    service.data, service.step_by_step = invoice_data(), True
    await tab.choose_file(file("factura.pdf"))
    await tab.wait_for("document.querySelector('#progress-text').innerText.startsWith('Waiting')")
    await service.read_page()
    await service.read_fields()
    await tab.wait_for("document.querySelector('#panel-fields .field-table')?.checkVisibility()")
    assert "Suministros Ibéricos S.L." in await tab.text("#panel-fields")
    assert await tab.run("document.querySelector('#forget').hidden")
    await tab.click("#tab-text")
    await service.finish()
    await tab.wait_for(DONE)

    assert "true" == await tab.run("document.querySelector('#tab-text').getAttribute('aria-selected')")


async def test_pointing_at_a_field_lights_it_up(tab: Tab, service: FakeJobService, file: File) -> None:
    """The boxes of the field under the pointer are marked on the page, without moving it; a click goes there."""
    service.data = invoice_data()
    await tab.choose_file(file("factura.pdf"))
    await tab.wait_for(DONE)
    await tab.wait_for("document.querySelector('#page-1 .marks') !== null")

    await tab.run("document.querySelector('.field-table tr').dispatchEvent(new PointerEvent('pointerenter'))")

    box = invoice_data()["fields"]["VendorName"]["boxes"][0]
    assert box[0] - 2 == await tab.run("Number(document.querySelector('#page-1 .spot rect').getAttribute('x'))")


async def test_tables_are_grids(tab: Tab, service: FakeJobService, file: File) -> None:
    """Header cells, cells that span columns, and text that is only ever text."""
    service.data = invoice_data()
    await tab.choose_file(file("factura.pdf"))
    await tab.wait_for(DONE)
    await tab.click("#tab-tables")

    grid = "document.querySelector('#panel-tables .grid')"
    assert 2 == await tab.run(f"{grid}.querySelectorAll('th').length")
    assert 3 == await tab.run(f"{grid}.querySelectorAll('tr').length")
    assert 2 == await tab.run(f"{grid}.querySelector('tr:last-child td').colSpan")
    assert HOSTILE == await tab.run(f"{grid}.querySelector('tr:last-child td').textContent")


async def test_a_document_without_fields_says_so(tab: Tab, service: FakeJobService, file: File) -> None:
    """In the words of the page: the service's own are for who looks into the answer. The overview stays in front."""
    service.data = {"fields": {}, "fields_why": "its title is a quote's", "tables": []}
    await tab.choose_file(file("carta.pdf"))
    await tab.wait_for(DONE)
    assert await tab.run("!document.querySelector('#panel-overview').hidden")
    await tab.click("#tab-fields")

    assert "There are no fields: this is no invoice, receipt or bank statement." == await tab.text("#panel-fields")


async def test_fields_in_spanish(tab: Tab, service: FakeJobService, file: File) -> None:
    """Names of fields and messages follow the language of the page."""
    service.data = invoice_data()
    await tab.choose_file(file("factura.pdf"))
    await tab.wait_for(DONE)
    await tab.click("[data-language=es]")

    panel = await tab.text("#panel-fields")
    written = (
        "12/03/2026",
        "1.368,40",
        "Base imponible + Impuestos = Total: según sus partes 1.368,41, pero pone 1.368,40",
    )
    for words in ("Proveedor", "Los importes no cuadran.", "Líneas (2)", "Concepto", *written):
        assert words in panel, words
