"""The ledger: files are dropped, corrected and confirmed by keyboard, and exported as one workbook."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from backend.api.app import create_app
from backend.callers.callers import ANYBODY
from backend.callers.event_watch import Watchers
from backend.errors import PasswordRequired, Unavailable, WrongPassword
from tests.books.books_services import books_services, draw_page, invoice_text
from tests.browser.chrome import Chrome, Tab, open_tab, served
from tests.browser.test_access import require_legible, require_names
from tests.search.samples import INVOICE, stored, wire_answer, wire_document

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
    async with served(create_app(services)) as url:
        yield url


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


PAINTED = """(() => {
    window.painted = [];
    addEventListener("input", () => {
        const since = performance.now();
        requestAnimationFrame(() => setTimeout(() => painted.push(performance.now() - since)));
    }, true);
})()"""


class Keyboard:
    """Presses keys and counts them."""

    def __init__(self, page: Tab) -> None:
        self.page = page
        self.strokes = 0

    async def type(self, text: str) -> None:
        for letter in text:
            self.strokes += 1
            await self.page.send("Input.dispatchKeyEvent", type="char", text=letter)

    async def press(self, key: str) -> None:
        self.strokes += 1
        await self.page.press(key)

    async def confirm(self) -> None:
        """Ctrl+Enter, and wait for the next document or the ledger."""
        self.strokes += 1
        opened = await self.page.text("#validation-title")
        await hold(self.page, "Enter", 13, modifiers=2)
        await self.page.wait_for(
            f"location.hash === '#ledger' || document.querySelector('#validation-title').innerText !== '{opened}'"
        )


async def hold(page: Tab, key: str, code: int, *, modifiers: int, name: str = "") -> None:
    """A key with Alt (1) or Ctrl (2)."""
    keys = {"key": key, "code": name or key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
    await page.send("Input.dispatchKeyEvent", type="rawKeyDown", **keys)
    await page.send("Input.dispatchKeyEvent", type="keyUp", **keys)


async def test_from_dropped_files_to_a_workbook(page: Tab, tmp_path: Path) -> None:
    """Six invoices, three of them read wrongly: corrected by keyboard alone, all confirmed, the cells are the truth."""
    files = [
        *written(tmp_path, 1, 2, 3, 6),
        *written(tmp_path, 4, total="695,00"),
        *written(tmp_path, 5, total="665,00"),
    ]
    files[3].write_text(files[3].read_text().replace("A58818501", "A58818502"))
    corrections = {
        "2026/004": ("InvoiceTotal", "605"),
        "2026/005": ("InvoiceTotal", "605"),
        "2026/006": ("VendorTaxId", "A58818501"),
    }
    await drop(page, *files, rows=6)
    assert "6 documentos \u00b7 6 por revisar" == await page.text("#ledger-facts")

    await page.run("[...document.querySelectorAll('#ledger-rows tr a')].at(-1).click()")
    await page.wait_for("document.querySelector('#validation-form input') === document.activeElement")
    keyboard = Keyboard(page)
    await page.run(PAINTED)
    for _ in range(6):
        await page.wait_for("document.activeElement.closest('#validation-form')")
        number = await page.run("document.querySelector('#field-InvoiceId').value")
        if number in corrections:
            name, value = corrections[number]
            assert name == await page.run("document.activeElement.closest('.doubtful').dataset.field")
            await keyboard.type(value)
            assert "Base, impuestos y total cuadran" == await page.text("#validation-checks")  # before it is sent
        await keyboard.confirm()
    await page.wait_for("document.querySelector('#ledger-facts').innerText === '6 documentos \u00b7 0 por revisar'")

    assert (
        keyboard.strokes == 6 + 3 + 3 + 9
    )  # a confirmation each, and what is corrected: the doubtful value has the focus
    times_ms = sorted(await page.run("painted"))
    logging.getLogger(__name__).info(
        "value to painted: %.0f ms median", times_ms[len(times_ms) // 2]
    )  # of this machine
    await require_names(page)
    await require_legible(page)
    header, *rows = openpyxl.load_workbook(io.BytesIO(await exported(page)))["Facturas recibidas"].values
    found = {row[header.index("Serie-N\u00famero")]: row for row in rows}
    assert {f"2026/{number:03d}" for number in range(1, 7)} == found.keys()
    names = ("Estado", "Base imponible", "Cuota de IVA", "Total factura")
    for number, row in found.items():
        assert ("Confirmada", 500, 105, 605) == tuple(row[header.index(name)] for name in names), number
        assert int(number[-3:]) + 1 == row[header.index("Fecha")].day


async def test_every_state_can_be_read(page: Tab, tmp_path: Path) -> None:
    """Ledger and validation screen, wide and narrow, light and dark."""
    await drop(page, *written(tmp_path, 1), *written(tmp_path, 4, total="695,00"), rows=2)
    for opened in (False, True):
        if opened:
            await page.run("document.querySelector('#ledger-rows tr a').click()")
            await page.wait_for("document.querySelector('#validation-form input') === document.activeElement")
        for width_px, dark in ((390, True), (768, False), (1440, True)):
            await page.show(width_px=width_px, dark=dark)
            await require_names(page)
            await require_legible(page)


async def test_what_counts_is_seen_without_scrolling_sideways(page: Tab, tmp_path: Path) -> None:
    """Supplier, number, total and due date at each width, with amounts of six digits; on a telephone as cards."""
    await drop(page, *written(tmp_path, 1, base="500.000,00", tax="105.000,00", total="605.000,00"), rows=1)
    for width_px in (390, 768, 1024, 1440):
        await page.show(width_px=width_px)
        outside = """(({ right }) => [...document.querySelectorAll("#ledger-scroll :is(td, th) > *")]
            .filter((one) => one.getBoundingClientRect().right > right)
            .map((one) => one.innerText))(document.querySelector("#ledger-scroll").getBoundingClientRect())"""
        assert [] == await page.run(outside), width_px
        for column in ("supplier", "number", "total", "due_date"):
            assert await page.run(f"document.querySelector('#ledger-rows [data-column={column}]').checkVisibility()")
        await require_legible(page)
    assert "Suma en EUR (1 documento)" == await page.text("#ledger-sums th")


async def test_several_files_at_the_start(page: Tab, services: Any, tmp_path: Path) -> None:
    """They are read and kept with their progress, and listed: 20 at once, each opened by its address."""
    await page.run("location.hash = ''")
    await page.drop_file(*written(tmp_path, *range(1, 23)))
    await page.wait_for("document.querySelectorAll('#sending li').length > 3")
    await page.wait_for("document.querySelectorAll('#sending li').length === 0")
    assert "" == await page.run("location.hash")
    await page.wait_for("document.querySelectorAll('#recent-list a').length === 20")
    await page.click("#recent-more")
    await page.wait_for("document.querySelectorAll('#recent-list a').length === 22")

    assert await page.run("document.querySelector('#recent-more').hidden")
    for told in ("Aceros del Norte, S.L.", "605,00", "Por revisar", "1 página", "2026"):
        assert told in await page.text("#recent-list li:last-child")


async def test_a_service_that_is_stopped_gets_the_file_again(page: Tab, services: Any, tmp_path: Path) -> None:
    """What it had not read when it was stopped is sent once more, without a click."""
    process, times = services.documents.process, []

    async def stopped_once(*args: Any, **more: Any) -> Any:
        times.append(args)
        if len(times) == 1:
            raise Unavailable("the service was stopped before it had read this file; send it again")
        return await process(*args, **more)

    services.documents.process = stopped_once
    await drop(page, *written(tmp_path, 1, 2), rows=2)

    await page.wait_for("document.querySelector('#sending li') === null")
    assert 3 == len(times)


async def test_the_queue_is_in_the_order_of_its_files(page: Tab, services: Any, tmp_path: Path) -> None:
    """What is being read stands on top, without a bar what waits."""
    read = asyncio.Event()
    process = services.documents.process

    async def held(*args: Any, **more: Any) -> Any:
        await read.wait()
        return await process(*args, **more)

    services.documents.process = held
    await page.drop_file(*written(tmp_path, *range(1, 7)))
    await page.wait_for("document.querySelector('#sending').innerText.match(/Leyendo/g)?.length === 3")
    names = "[...document.querySelectorAll('#sending .row-name')].map((one) => one.innerText)"
    assert [f"factura-{number:03d}.txt" for number in range(1, 7)] == await page.run(names)
    bars = "[...document.querySelectorAll('#sending progress')].map((one) => one.checkVisibility())"
    assert [True] * 3 + [False] * 3 == await page.run(bars)
    read.set()
    await page.wait_for(f"{ROWS} === 6")


async def test_the_sums_of_two_currencies(page: Tab, services: Any) -> None:
    """Both are seen below a long table, and which total is in another currency than the others."""
    for number in range(30):
        fields = {**INVOICE, "CurrencyCode": "USD" if number == 7 else "EUR", "InvoiceId": f"A-{number}"}
        with stored(f"%PDF {number}".encode()) as content:
            answer = wire_answer(wire_document(**fields))
            await services.stored_documents.add(ANYBODY.owner, content, f"{number}.pdf", answer)
    await page.reload()
    await page.wait_for(f"{ROWS} === 30")
    tops = "[...document.querySelectorAll('#ledger-sums tr')].map((one) => one.getBoundingClientRect().top)"
    for width_px in (768, 1440):
        await page.show(width_px=width_px)
        first, second = await page.run(tops)
        assert first < second, width_px
    totals = "[...document.querySelectorAll('#ledger-rows [data-column=total]')].map((one) => one.innerText)"
    assert ["121,00 USD"] == [text for text in await page.run(totals) if text != "121,00"]


async def test_taxes_are_listed_with_their_surcharge(page: Tab, services: Any) -> None:
    """What makes the total can be added up in the table."""
    rates = (("IVA", "21", "21.00"), ("RE", "5.2", "5.20"))
    rows = [{"Type": kind, "Rate": rate, "Base": "100.00", "Amount": amount} for kind, rate, amount in rates]
    with stored(b"%PDF") as content:
        answer = wire_answer(wire_document(**INVOICE))
        document = await services.stored_documents.add(ANYBODY.owner, content, "1.pdf", answer)
    changes = {"TaxDetails": rows, "InvoiceTotal": "126.20"}
    await services.stored_documents.correct(ANYBODY.owner, "ana", document.id, 0, changes, revision=None)
    await page.reload()
    await page.wait_for(f"{ROWS} === 1")

    lines = "[...document.querySelectorAll('#ledger-rows .tax-line')].map((one) => one.innerText)"
    assert ["21 %: 21,00", "RE 5,2 %: 5,20"] == await page.run(lines)


async def test_the_ledger_is_filtered_by_any_word(page: Tab, tmp_path: Path) -> None:
    """Of a supplier without its accents, a NIF, a date or an amount as they are shown."""
    files = written(tmp_path, 1, 2, base="1.000,00", tax="210,00", total="1.210,00")
    files[0].write_text(files[0].read_text().replace("Aceros del Norte", "Cerámicas Ibáñez"))
    await drop(page, *files, rows=2)
    for words, rows in (("ibanez", 1), ("A58818501", 2), ("1.210,00 €", 2), ("02/03/2026", 1), ("norte 2026/002", 1)):
        await page.run(f"document.querySelector('#filter-text').value = '{words}'")
        await page.run("document.querySelector('#filter-text').dispatchEvent(new Event('input', {bubbles: true}))")
        await page.wait_for(f"{ROWS} === {rows}")


async def test_no_value_of_a_line_is_cut(page: Tab, tmp_path: Path) -> None:
    """Amounts of eight figures and dates, at each width; the text of a line has the room that is left."""
    amounts = {"base": "123.500,00", "tax": "25.935,00", "total": "149.435,00"}
    await opened(page, tmp_path, **amounts)
    cut = """[...document.querySelectorAll('.check-list input:not(.value-text)')]
        .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.value)"""
    for width_px in (390, 768, 1024, 1440):
        await page.show(width_px=width_px)
        assert [] == await page.run(cut), width_px
        text = "document.querySelector('[data-list=Items][data-column=Description]').getBoundingClientRect().width"
        assert await page.run(text) >= 160, width_px


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_recent_documents_can_be_read(page: Tab, tmp_path: Path, dark: bool) -> None:
    """The start with documents to go on with, at each width, one with a long name."""
    long = written(tmp_path, 2)[0].rename(tmp_path / f"factura-{'muy-larga-' * 12}.txt")
    await drop(page, *written(tmp_path, 1), long, rows=2)
    await page.run("location.hash = ''")
    await page.wait_for("document.querySelectorAll('#recent-list li').length === 2")
    for width_px in (390, 768, 1024, 1440):
        await page.show(width_px=width_px, dark=dark)
        await require_names(page)
        await require_legible(page)


async def test_a_tax_id_is_taken_without_its_label(page: Tab, tmp_path: Path) -> None:
    """What is chosen with "VAT" or "NIF" before it is kept as the number alone, and shown as a NIF in Spanish."""
    await opened(page, tmp_path)
    await page.run("document.querySelector('#field-VendorTaxId').focus()")
    await Keyboard(page).type("VAT: ES B12345674")
    await page.press("Tab")
    stored = "fetch(`v1/documents/${location.hash.slice(10, -2)}`).then((answer) => answer.json())"
    await page.wait_for(f"{stored}.then(({{ documents }}) => documents[0].fields.VendorTaxId.value === 'B12345674')")
    assert "B12345674" == await page.run("document.querySelector('#field-VendorTaxId').value")


async def opened(page: Tab, tmp_path: Path, **amounts: str) -> None:
    """The validation screen of one invoice, its total chosen."""
    await drop(page, *written(tmp_path, 1, **amounts), rows=1)
    await page.run("document.querySelector('#ledger-rows tr a').click()")
    await page.wait_for("document.querySelector('#validation-form input') === document.activeElement")
    await page.run("document.querySelector('#field-InvoiceTotal').focus()")


async def test_what_is_typed_is_checked_at_every_key(page: Tab, tmp_path: Path) -> None:
    """Sums and check digits, before anything is sent; Escape brings the value back, and then the ledger."""
    await opened(page, tmp_path)
    checks = "document.querySelector('#validation-checks').innerText"
    keyboard = Keyboard(page)
    await keyboard.type("60")
    assert "Base imponible + Impuestos = Total: salen 605,00 y pone 60,00" in await page.run(checks)
    await keyboard.type("5")
    assert "Base, impuestos y total cuadran" == await page.run(checks)
    await page.run("document.querySelector('#field-VendorTaxId').focus()")
    await keyboard.type("A58818502")
    assert "NIF del proveedor: los d\u00edgitos de control de A58818502 no cuadran" in await page.run(checks)
    await page.press("Escape")

    assert ["A58818501", 1] == await page.run(
        "[document.activeElement.value, document.querySelectorAll('#validation-checks .check').length]"
    )
    await page.press("Escape")
    await page.wait_for("location.hash === '#ledger'")
    assert not [url for url in page.requests if url.endswith("/fields")]


async def test_a_value_that_is_far_too_long(page: Tab, tmp_path: Path) -> None:
    """Is refused in words about the value, and goes with Escape or a shorter one."""
    await opened(page, tmp_path)
    await page.run("document.querySelector('#field-VendorName').focus()")
    await page.type("x" * 10_000)
    await page.press("Enter")
    await page.wait_for("document.querySelector('#ledger-notices [role=alert]')")
    assert "Este valor es demasiado largo" in await page.text("#ledger-notices")

    await page.run("document.querySelector('#field-VendorName').focus()")
    await Keyboard(page).type("Aceros")
    await page.press("Enter")
    await page.wait_for("document.querySelector('#ledger-notices [role=alert]') === null")


async def test_each_value_is_shown_as_it_stands_on_the_paper(page: Tab, tmp_path: Path) -> None:
    """Cut out of the page beside its input; where the paper does not say where, there is none."""
    await opened(page, tmp_path)
    cuts = "[...document.querySelectorAll('.crop')].filter((one) => one.width !== 300)"  # what a canvas is at first
    fields = "fetch(`v1/documents/${location.hash.slice(10, -2)}`).then((answer) => answer.json())"
    with_place = (
        "Object.values(documents[0].fields).filter(({ boxes, value }) => boxes?.length && !Array.isArray(value))"
    )
    placed = await page.run(f"{fields}.then(({{ documents }}) => {with_place}.length)")
    assert placed > 5
    await page.wait_for(f"{cuts}.length === {placed}")
    assert "junto a «Total»" == await page.text("#reason-InvoiceTotal")
    shown = "[...document.querySelectorAll('.reason')].filter((one) => one.checkVisibility()).map((one) => one.id)"
    assert ["reason-InvoiceTotal"] == await page.run(shown)


async def test_a_file_is_cut_by_the_pages_of_each_document(page: Tab) -> None:
    """The pages as they are now stand in the form, and go back as they are written."""
    await page.run(
        """import('./page/validation_cut.js').then(({ cutting }) => {
            const form = cutting([{ pages: [1, 2, 4] }, { pages: [3] }], (parts) => { window.cut = parts; });
            document.querySelector('#ledger-view').append(form);
        })"""
    )
    assert "1-2,4; 3" == await page.run("document.querySelector('#cut-pages').value")
    await page.run("document.querySelector('#cut-pages').value = '1 - 2; 3,4;'")
    await page.run("document.querySelector('.cutting').requestSubmit()")

    assert [{"pages": "1-2"}, {"pages": "3,4"}] == await page.run("window.cut")


async def test_lines_are_added_split_merged_and_deleted_by_keyboard(page: Tab, tmp_path: Path) -> None:
    """Alt with a letter; Ctrl+Z takes each back."""
    await opened(page, tmp_path)
    texts = "[...document.querySelectorAll('[data-list=Items][data-column=Description]')].map((one) => one.value)"
    await page.run("document.querySelector('[data-list=Items][data-column=Description]').focus()")
    await page.run("document.activeElement.setSelectionRange(9, 9)")
    await hold(page, "s", 83, modifiers=1, name="KeyS")
    await page.wait_for(f"{texts}.length === 2")
    assert ["Tornillo", "M8"] == await page.run(texts)
    await hold(page, "j", 74, modifiers=1, name="KeyJ")
    await page.wait_for(f"{texts}.length === 1")
    assert ["Tornillo M8"] == await page.run(texts)
    await hold(page, "n", 78, modifiers=1, name="KeyN")
    await page.wait_for(f"{texts}.length === 2 && document.activeElement.dataset.row === '1'")
    await Keyboard(page).type("Portes")
    await page.press("Enter")
    await page.wait_for("!document.querySelector('#undo').disabled")
    await page.run("document.querySelector('[data-list=Items][data-column=Description]').focus()")
    await hold(page, "Delete", 46, modifiers=1)
    await page.wait_for(f"{texts}.join() === 'Portes'")
    await hold(page, "z", 90, modifiers=2)
    await page.wait_for(f"{texts}.join() === 'Tornillo M8,Portes'")


async def test_what_others_do_is_shown_at_once(page: Tab, services: Any, tmp_path: Path) -> None:
    """Who did it, and the value; what is being typed stays. A deletion is told, too."""
    await opened(page, tmp_path)
    document_id = await page.run("location.hash.slice(10, -2)")
    stored, owner = services.stored_documents, ANYBODY.owner
    await page.run("document.querySelector('#field-InvoiceId').focus()")
    await Keyboard(page).type("mio")
    await stored.correct(owner, "ana", document_id, 0, {"InvoiceTotal": "700"}, revision=None)
    await page.wait_for("document.querySelector('[data-kind=others]')")

    assert "Cambiado mientras tanto por ana" in await page.text("#ledger-notices")
    values = "['InvoiceTotal', 'InvoiceId'].map((name) => document.querySelector(`#field-${name}`).value)"
    assert ["700,00", "mio"] == await page.run(values)
    await require_legible(page)
    await page.press("Enter")
    await page.wait_for(f"{STATUS}.includes('no cuadra')")
    assert "mio" == (await stored.get(owner, document_id)).changes[-1].fields["InvoiceId"]["value"]
    await stored.delete(owner, document_id)
    await page.wait_for("document.querySelector('#ledger-notices [role=alert]')")
    assert "Alguien ha borrado este documento" in await page.text("#ledger-notices")


async def test_the_pages_of_a_locked_file(page: Tab, services: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Its password is asked for where it is not known, once; who does not give it can do so later."""

    async def locked(*_: Any, password: str | None = None) -> bytes:
        if password != "ábrete":
            raise PasswordRequired if password is None else WrongPassword
        return await draw_page()

    monkeypatch.setattr(services.stored_documents, "page_image", locked)
    await opened(page, tmp_path)
    await page.wait_for("document.querySelector('#secret').open")
    await page.click("#secret-cancel")
    await page.wait_for("document.querySelector('.failed-picture button')")
    for width_px, dark in ((390, False), (1440, True)):
        await page.show(width_px=width_px, dark=dark)
        await require_legible(page)
    await page.click(".failed-picture button")
    for password, told in (("no", "Esa contraseña no lo abre"), ("ábrete", "")):
        await page.wait_for("document.querySelector('#secret').open")
        await page.run(f"document.querySelector('#secret-value').value = '{password}'")
        await page.click("#secret button.primary")
        if told:
            await page.wait_for(f"document.querySelector('#secret-why').innerText.includes('{told}')")
    await page.wait_for("document.querySelector('#validation-pages img[src]')")

    assert await page.run("document.querySelector('.failed-picture') === null")


async def test_the_second_of_two_people_is_told(page: Tab, services: Any, tmp_path: Path) -> None:
    """A change on an older state is refused: what is there now is shown, with what to do."""
    services.stored_documents._watchers = Watchers(0)  # nothing tells the page before
    await opened(page, tmp_path)
    path = "`v1/documents/${location.hash.slice(10, -2)}/fields`"
    sent = "method: 'PATCH', headers: {'Content-Type': 'application/json'}"
    body = """JSON.stringify({fields: {InvoiceTotal: '700'}})"""
    assert 200 == await page.run(f"fetch({path}, {{{sent}, body: {body}}}).then((answer) => answer.status)")
    await Keyboard(page).type("605,10")
    await page.press("Enter")
    await page.wait_for("document.querySelector('#ledger-notices [role=alert]')")

    assert "Otra persona ha cambiado este documento" in await page.text("#ledger-notices")
    await page.wait_for("document.querySelector('#field-InvoiceTotal').value === '700,00'")
    await page.run("document.querySelector('#field-InvoiceTotal').focus()")
    await Keyboard(page).type("605")
    await page.press("Enter")
    await page.wait_for("document.querySelector('#ledger-notices [role=alert]') === null")


async def _used(page: Tab) -> dict[str, float]:
    """What the page's thread has done so far."""
    metrics = (await page.send("Performance.getMetrics"))["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


async def test_a_key_is_painted_in_50_ms(page: Tab, tmp_path: Path) -> None:
    """With all that is checked at every key; nothing is asked of the service before the value is whole."""
    await opened(page, tmp_path)
    await page.run("document.querySelector('#field-InvoiceTotal').focus()")
    await page.run("performance.clearResourceTimings()")
    await page.send("Performance.enable", timeDomain="threadTicks")
    before, keys = await _used(page), "605,10605,10605,10"
    await Keyboard(page).type(keys)
    await page.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    after = await _used(page)

    assert (after["TaskDuration"] - before["TaskDuration"]) / len(keys) < 0.05
    assert after["LayoutCount"] - before["LayoutCount"] <= 3 * len(keys)
    asked: list[str] = await page.run("performance.getEntriesByType('resource').map((one) => one.name)")
    assert [] == [name for name in asked if "/pages/" not in name]  # the paper's picture may still be on its way


async def test_500_documents(page: Tab, services: Any) -> None:
    """By one request, and by a few layouts of the page: not one for each row. The rest is drawn as one scrolls."""
    answer = wire_answer(wire_document(**INVOICE))
    with stored(b"%PDF") as content:
        for number in range(500):
            await services.stored_documents.add(ANYBODY.owner, content, f"{number}.pdf", answer)
    await page.run("location.hash = ''")
    await page.wait_for("!document.querySelector('#document-view').hidden")
    await page.run("performance.clearResourceTimings()")
    await page.send("Performance.enable", timeDomain="threadTicks")
    before = await _used(page)
    await page.run("location.hash = '#ledger'")
    await page.wait_for(f"{ROWS} === 100")
    after = await _used(page)

    logging.getLogger(__name__).info("500 documents: %.0f ms", (after["TaskDuration"] - before["TaskDuration"]) * 1000)
    assert after["LayoutCount"] - before["LayoutCount"] <= 20
    asked = await page.run("performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)")
    assert 1 == asked.count("/v1/documents/ledger")
    await page.click("#choose-all")
    for rows in (200, 300, 400, 500):
        await page.run("document.querySelector('#ledger-rows').lastChild.scrollIntoView()")
        await page.wait_for(f"{ROWS} >= {rows}")
    assert 500 == await page.run("document.querySelectorAll('#ledger-rows input:checked').length")
    assert await page.run("document.querySelector('#ledger-more').hidden")


async def test_other_papers_are_kept_beside_the_book(page: Tab, tmp_path: Path) -> None:
    """What is no invoice is no row, unless it is asked for; it leads to what was read."""
    letter = tmp_path / "carta.txt"
    letter.write_text("Estimada Ana: nos vemos el lunes en la oficina.")
    await drop(page, *written(tmp_path, 1), letter, rows=1)
    await page.wait_for("!document.querySelector('#filter-others').hidden")

    assert "Con otros papeles (1)" == await page.text("#filter-others")
    await page.click("#filter-others")
    await page.wait_for(f"{ROWS} === 2")
    links = "[...document.querySelectorAll('#ledger-rows a')].map((one) => /:0$/.test(one.hash)).sort()"
    assert [False, True] == await page.run(links)


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
