"""The ledger: files are dropped, corrected and confirmed one after the other, and exported as one workbook."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import uvicorn

from backend.api.app import create_app
from tests.books.books_services import books_services, invoice_text
from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.test_access import require_legible, require_names

pytestmark = pytest.mark.chromium
ROWS = "document.querySelectorAll('#ledger-rows tr').length"
STATUS = "document.querySelector('#status').textContent"


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Any]:
    async with books_services(tmp_path) as services:
        yield services


@pytest.fixture
async def address(services: Any) -> AsyncIterator[str]:
    """The real app on a port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(services), log_config=None, log_level="warning", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listener]))  # serve() would take the signals of the test run
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    await serving
    listener.close()


@pytest.fixture
async def page(chrome: Chrome, address: str) -> AsyncIterator[Tab]:
    """The ledger in Spanish."""
    async with open_tab(chrome, languages="es") as tab:
        await tab.open(f"{address}#ledger")
        await tab.wait_for("document.querySelector('#ledger-none') && !document.querySelector('#ledger-none').hidden")
        yield tab
        assert [] == tab.faults


def written(folder: Path, *numbers: int, **amounts: str) -> list[Path]:
    """Invoices as files."""
    paths = []
    for number in numbers:
        path = folder / f"factura-{number:03d}.txt"
        path.write_text(invoice_text(number, **amounts))
        paths.append(path)
    return paths


async def drop(page: Tab, *paths: Path, rows: int) -> None:
    """Drop files and wait until the table has so many rows."""
    await page.drop_file(*paths)
    await page.wait_for(f"{ROWS} === {rows}")


async def exported(page: Tab) -> bytes:
    """Press the export button; what the browser is given to save."""
    await page.run("window.before = URL.createObjectURL")
    await page.run("URL.createObjectURL = (blob) => ((window.saved = blob), before.call(URL, blob))")
    await page.click("#export-button")
    await page.wait_for("window.saved")
    bytes_of = "new Response(saved).arrayBuffer().then((all) => Array.from(new Uint8Array(all)))"
    return bytes(await page.run(bytes_of))


async def test_from_dropped_files_to_a_workbook(page: Tab, tmp_path: Path) -> None:
    """Three invoices, one of them read wrongly: it is corrected by keyboard, all are confirmed, the cells are right."""
    await drop(page, *written(tmp_path, 1, 2), *written(tmp_path, 4, total="695,00"), rows=3)
    assert "3 documentos · 3 por revisar" == await page.text("#ledger-facts")
    wrong = "[...document.querySelectorAll('#ledger-rows tr')].find((row) => row.innerText.includes('2026/004'))"
    assert "No cuadra" in await page.run(f"{wrong}.innerText")

    await page.run(f"{wrong}.querySelector('a').click()")
    await page.wait_for("document.querySelector('#validation-form .doubtful input') === document.activeElement")
    assert "InvoiceTotal" == await page.run("document.activeElement.dataset.name")
    assert "695,00" == await page.run("document.activeElement.value")
    await require_names(page)
    for width_px in (1280, 390):
        await page.show(width_px=width_px, dark=width_px == 390)
        await require_legible(page)
    await page.show()
    await page.run("document.activeElement.select()")
    await page.type("605")
    await page.press("Enter")
    await page.wait_for(f"{STATUS}.startsWith('Comprobado: base, impuestos y total cuadran')")
    assert "605,00" == await page.run("document.querySelector('#field-InvoiceTotal').value")
    for _ in range(2):
        opened = await page.text("#validation-title")
        await confirm(page)
        await page.wait_for(f"document.querySelector('#validation-title').innerText !== '{opened}'")
    await confirm(page)
    await page.wait_for(f"location.hash === '#ledger' && {ROWS} === 3")

    await page.wait_for("document.querySelector('#ledger-facts').innerText === '3 documentos · 0 por revisar'")
    await require_names(page)
    await require_legible(page)
    header, *rows = openpyxl.load_workbook(io.BytesIO(await exported(page)))["Facturas recibidas"].values
    found = {row[header.index("Serie-Número")]: row for row in rows}
    assert {"2026/001", "2026/002", "2026/004"} == found.keys()
    for number, row in found.items():
        assert 605 == row[header.index("Total factura")], number
        assert ("Confirmada", 500, 105) == tuple(
            row[header.index(name)] for name in ("Estado", "Base imponible", "Cuota de IVA")
        )
        assert int(number[-3:]) + 1 == row[header.index("Fecha")].day


async def test_chosen_documents_are_deleted_and_come_back(page: Tab, tmp_path: Path) -> None:
    """Until the time for it is over nothing is deleted; then the first screen no longer lists them, either."""
    await drop(page, *written(tmp_path, 1, 2, 3), rows=3)
    choose = "document.querySelectorAll('#ledger-rows input')[{}].click()"
    for row in (0, 1):
        await page.run(choose.format(row))
    await page.click("#delete-chosen")
    await page.wait_for(f"{ROWS} === 1")
    assert "2 documentos borrados." == await page.run(STATUS)
    await page.click("#undo-deletion")
    await page.wait_for(f"{ROWS} === 3")
    await page.run(choose.format(0))
    await page.click("#delete-chosen")
    await page.wait_for(f"{ROWS} === 2")
    await page.run("dispatchEvent(new Event('pagehide'))")  # as if the page were closed
    listed = "(await (await fetch('v1/documents')).json()).data.length"
    await page.run(f"(async () => {{ while ({listed} !== 2) await new Promise((then) => setTimeout(then, 20)); }})()")

    await page.run("location.hash = ''")
    await page.wait_for("document.querySelectorAll('#recent-list a').length === 2")
    assert "Aceros del Norte, S.L." in await page.text("#recent-list")
    await page.click("#recent-list a")
    await page.wait_for("document.querySelector('#validation-form input') === document.activeElement")


async def confirm(page: Tab) -> None:
    """Ctrl+Enter, as the tooltip says."""
    keys = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 2}
    await page.send("Input.dispatchKeyEvent", type="keyDown", **keys)
    await page.send("Input.dispatchKeyEvent", type="keyUp", **keys)
