"""An accountant's day in a browser: twenty files of all kinds become one workbook, whatever happens to the service."""

import datetime as dt
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.books.workbooks import converted, sheets_of
from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.test_ledger import Keyboard, exported, hold
from tests.clients.server import QUICK, LiveServer, run_server
from tests.end_to_end.client import MARKS
from tests.end_to_end.mixed_papers import CORRECTIONS, Truth, mixed_papers

pytestmark = [*MARKS, pytest.mark.chromium, pytest.mark.libreoffice, pytest.mark.slow]
COLUMNS = ("Fecha", "Proveedor", "NIF", "Base imponible", "Cuota de IVA", "Total factura")
BEFORE_THE_KILL = 8
NOTICE = "document.querySelector('#ledger-notices [role=alert]')"


@pytest.mark.timeout(600)  # three minutes beside seven other runs on two cores
async def test_twenty_files_become_one_workbook(chrome: Chrome, state_dir: Path, tmp_path: Path) -> None:
    """Dropped, three corrected, all confirmed; another person and kill -9 come between; the cells are the truth."""
    files, truths = mixed_papers()
    paths = [tmp_path / name for name in files]
    for path in paths:
        path.write_bytes(files[path.name])
    settings = {**QUICK, "STATE_DIR": str(tmp_path / "state")}
    async with open_tab(chrome, languages="es") as page:
        with run_server(state_dir, **settings) as server:
            port = str(urlsplit(server.url).port)
            await page.open(f"{server.url}/#ledger")
            await page.wait_for(
                "document.querySelector('#ledger-none') && !document.querySelector('#ledger-none').hidden"
            )
            await page.drop_file(*paths)
            await page.wait_for(f"document.querySelectorAll('#ledger-rows tr').length === {len(truths)}", limit_s=200)
            await page.run("[...document.querySelectorAll('#ledger-rows tr a')].at(-1).click()")
            await another_person_changes(chrome, page)
            await confirm(page, BEFORE_THE_KILL)
            server.process.kill()
            server.process.wait()
        await ctrl_enter(page)
        await page.wait_for(NOTICE)
        assert "Se ha perdido la conexión" in await page.text("#ledger-notices")
        with run_server(state_dir, **settings, PORT=port) as server:
            require_kept(server, truths, BEFORE_THE_KILL)
            await confirm(page, len(truths) - BEFORE_THE_KILL)
            await page.wait_for("document.querySelector('#ledger-facts').innerText.endsWith(' 0 por revisar')")
            book = await exported(page)
    assert [] == page.faults

    for read in (sheets_of(book), sheets_of(converted(book, tmp_path))):
        rows = read["Facturas recibidas"]
        assert {"Confirmada"} == {row["Estado"] for row in rows}
        assert truths == {row["Serie-Número"]: truth_in([row[name] for name in COLUMNS]) for row in rows}


def truth_in(cells: list[object]) -> Truth:
    day, *rest = cells
    assert isinstance(day, dt.datetime)  # no text that looks like one
    return Truth(day.date(), *rest)  # type: ignore[arg-type]


async def confirm(page: Tab, count: int) -> None:
    """Confirm so many documents by keyboard, correcting those that are printed wrongly."""
    for _ in range(count):
        number = await page.run("document.querySelector('#field-InvoiceId').value")
        keyboard = Keyboard(page)
        if number in CORRECTIONS:
            name, value = CORRECTIONS[number]
            await page.run(f"document.querySelector('#field-{name}').focus()")
            await keyboard.type(value)
        await keyboard.confirm()
        await page.wait_for("location.hash === '#ledger' || document.activeElement.closest('#validation-form')")


async def another_person_changes(chrome: Chrome, page: Tab) -> None:
    """Two have one document open: what the first one writes the second one sees at once, and who did it."""
    await page.wait_for("document.activeElement.closest('#validation-form')")
    right = await page.run("document.querySelector('#field-InvoiceTotal').value")
    async with open_tab(chrome, languages="es") as other:
        await other.open(await page.run("location.href"))
        await other.wait_for("document.activeElement.closest('#validation-form')")
        await other.run("document.querySelector('#field-InvoiceTotal').focus()")
        await Keyboard(other).type("1")
        await other.press("Enter")
        await other.wait_for("!document.querySelector('#undo').disabled && document.querySelector('.check.bad')")
        await page.wait_for("document.querySelector('[data-kind=others]')")
        assert "Cambiado mientras tanto por alguien" in await page.text("#ledger-notices")
        await page.wait_for("document.querySelector('#field-InvoiceTotal').value === '1,00'")
        assert [] == other.faults
    await page.run("document.querySelector('#field-InvoiceTotal').focus()")
    await Keyboard(page).type(right)
    await page.press("Enter")
    await page.wait_for("!document.querySelector('#undo').disabled")


def require_kept(server: LiveServer, truths: dict[str, Truth], count: int) -> None:
    """What was confirmed before the service was killed is there, with its corrections."""
    with server.client() as client:
        rows = client.get("/v1/documents/ledger", params={"state": "confirmed"}).json()["data"]
    assert count == len(rows)
    assert {row["number"]: float(row["total"]) for row in rows} == {
        row["number"]: float(truths[row["number"]].total) for row in rows
    }


async def ctrl_enter(page: Tab) -> None:
    await hold(page, "Enter", 13, modifiers=2)
