"""The library: from dropped files to hits marked on their pages."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.drawn_documents import HEIGHT, HOSTILE, WIDTH, DrawnPage, Line, invoice, letter
from tests.browser.fake_job_service import FakeJobService, problem
from tests.browser.fake_library import FakeLibrary, StoredDocument
from tests.browser.test_access import require_legible

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]
NOTES = "Notas del proyecto.\nEl pago de la harina vence el viernes.\nFin de las notas."
STATUS = "document.querySelector('#status').textContent"


def three_documents() -> dict[str, StoredDocument]:
    """A digital invoice, a scan of two pages, and a text."""
    found: dict[str, list[str | float]] = {
        "document_type": ["invoice"],
        "vendor_name": ["Suministros Ibéricos S.L."],
        "invoice_date": ["2026-03-12"],
        "invoice_total": [1368.4],
        "person": ["Ana Núñez"],
    }
    scanned = DrawnPage([Line("Recibo de harina", 60, 80, 14), Line("Total 12,50 €", 60, 120)])
    receipt: dict[str, list[str | float]] = {
        "document_type": ["receipt"],
        "invoice_date": ["2026-05-01"],
        "invoice_total": [12.5],
    }
    return {
        "factura.pdf": StoredDocument([invoice()], found=found),
        "escaneo.png": StoredDocument([letter(1), scanned], found=receipt),
        "notas.txt": StoredDocument(text=NOTES, found={"document_type": ["article"]}),
    }


@pytest.fixture
def store(library: FakeLibrary) -> str:
    """A collection with three documents, read."""
    return library.make_store("Facturas 2026", three_documents())


async def open_library(tab: Tab, url: str) -> None:
    """Go to the library and wait for its collection."""
    await tab.open(f"{url}#library")
    await tab.wait_for("document.querySelector('#store')?.value && document.querySelector('.file-row')")


async def search(tab: Tab, query: str) -> None:
    """Type a query, press Enter, and wait for the answer."""
    await tab.run("document.querySelector('#query').value = ''; document.querySelector('#query').focus()")
    await tab.type(query)
    await tab.press("Enter")
    await tab.wait_for(
        "!document.querySelector('#panel-results').hidden && !document.querySelector('#panel-results').ariaBusy"
    )


async def names(tab: Tab, selector: str) -> list[str]:
    """The visible texts of all elements that match."""
    found: list[str] = await tab.run(f"[...document.querySelectorAll('{selector}')].map(one => one.innerText.trim())")
    return found


async def test_dropped_files_become_a_collection_that_is_searched(
    tab: Tab, url: str, library: FakeLibrary, file: File
) -> None:
    """Nothing is there; three files are dropped, watched while they are read, found, and opened at their place."""
    library.documents |= three_documents()
    library.step_by_step = True
    await tab.open(f"{url}#library")
    await tab.wait_for("document.querySelector('#store-facts')?.innerText.startsWith('No collection yet')")
    await tab.drop_file(*(file(name) for name in three_documents()))
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 3")
    [store] = library.stores
    library.proceed(store, library.id_of("escaneo.png"), "reading", 1, 2)
    await tab.wait_for("document.querySelector('#panel-files').innerText.includes('Reading: 1 of 2 pages')")
    library.proceed(store, library.id_of("escaneo.png"), "embedding", 3, 4)
    await tab.wait_for("document.querySelector('#panel-files').innerText.includes('Indexing: 3 of 4 passages')")
    for name in three_documents():
        library.proceed(store, library.id_of(name), "done")
    await tab.wait_for(f"{STATUS} === 'Every file is read.'")

    assert "My documents" == library.stores[store]["name"]
    assert f"{url}#library={store}" == await tab.run("location.href")
    assert "3 files · 6 passages · 3 kB" == await tab.text("#store-facts")
    facts = f"[...document.querySelectorAll('[data-file={library.id_of('escaneo.png')}] .row-facts span')]"
    assert ["Receipt", "Spanish", "2 pages", "2 passages"] == await tab.run(f"{facts}.map(one => one.innerText)")
    await search(tab, "harina")
    assert {"factura.pdf", "escaneo.png", "notas.txt"} == set(await names(tab, ".hit-open"))
    assert [{"query": "harina", "max_num_results": 10}] == library.searches


async def test_the_cards_show_what_was_found(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """Name, page, score, and the text around the query's words, which are marked."""
    await open_library(tab, url)
    await search(tab, "recibo harina")

    hits = library.answers[-1]
    assert [hit["filename"] for hit in hits] == await names(tab, ".hit-open")
    card = " ".join((await names(tab, ".hit"))[0].split())
    for words in ("escaneo.png", "Page 2", "Score 100%", "Recibo de harina Total 12,50 €"):
        assert words in card
    assert ["Recibo", "harina"] == await tab.run(
        "[...document.querySelector('.hit').querySelectorAll('mark')].map(one => one.textContent)"
    )


async def test_hits_that_fit_far_less_wait_until_they_are_asked_for(
    tab: Tab, url: str, library: FakeLibrary, store: str
) -> None:
    """Below a quarter of the best score they are behind a button, and no second search is made for them."""
    library.scores = [0.9, 0.3, 0.03]
    await open_library(tab, url)
    await search(tab, "harina")

    assert 2 == len(await names(tab, ".hit-open"))
    assert "2 hits that fit; others fit far less" == await tab.text("#hits-told")
    await tab.click("#more-hits")
    await tab.wait_for("document.querySelectorAll('.hit-open').length === 3")
    assert 1 == len(library.searches)
    assert await tab.run("document.querySelector('#more-hits').hidden")


async def test_a_hit_over_pages_names_that_of_the_words(tab: Tab, url: str, library: FakeLibrary) -> None:
    """In its card and above its pages."""
    scanned = DrawnPage([Line("Recibo de harina", 60, 80, 14)])
    library.make_store("Recibos", {"tres.pdf": StoredDocument([letter(1), scanned, letter(3)])})
    library.hits_over_all_pages = True
    await open_library(tab, url)
    await search(tab, "recibo harina")
    [card] = await names(tab, ".hit-place")
    await tab.run("document.querySelector('.hit-open').click()")
    await tab.wait_for("document.querySelector('#hit-body .spot rect')")

    assert "Page 2" in card
    assert "tres.pdf, page 2" in (await names(tab, "#hit-title"))[0]
    assert 3 == await tab.run("document.querySelectorAll('#hit-body .surface').length")


async def test_boxes_lie_on_the_words(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """The marks of the open hit are the answer's boxes, at any size of the page."""
    await open_library(tab, url)
    await search(tab, "harina transporte")
    await tab.run("[...document.querySelectorAll('.hit-open')].find(one => one.innerText === 'factura.pdf').click()")
    await tab.wait_for("document.querySelector('#hit-body img:not([hidden])')?.naturalWidth")

    hit = next(hit for hit in library.answers[-1] if hit["filename"] == "factura.pdf")
    expected = [place["box"] for highlight in hit["highlights"] for place in highlight["boxes"]]
    measure = f"""(() => {{
        const page = document.querySelector('#hit-body img').getBoundingClientRect();
        return [...document.querySelectorAll('#hit-body .spot rect')].map(rect => {{
            const box = rect.getBoundingClientRect();
            return [(box.left - page.left) / page.width * {WIDTH}, (box.top - page.top) / page.height * {HEIGHT},
                (box.right - page.left) / page.width * {WIDTH}, (box.bottom - page.top) / page.height * {HEIGHT}];
        }});
    }})()"""
    for _ in range(2):  # as it comes, and larger
        boxes = await tab.run(measure)
        assert 2 == len(boxes)
        for box, of_word in zip(boxes, expected, strict=True):
            margins = (-2, -2, 2, 2)
            assert box == pytest.approx([side + by for side, by in zip(of_word, margins, strict=True)], abs=1.5)
        await tab.click("#hit-larger")
    assert len(hit["boxes"]) == await tab.run("document.querySelectorAll('#hit-body .passage rect').length")
    seen = "[document.querySelector('#hit-scroll'), document.querySelector('#hit-body .spot rect')]"
    area, mark = await tab.run(
        f"{seen}.map(one => [one.getBoundingClientRect().top, one.getBoundingClientRect().bottom])"
    )
    assert area[0] <= mark[0] <= mark[1] <= area[1]


async def test_a_picture_is_asked_for_when_its_hit_is_opened(
    tab: Tab, url: str, library: FakeLibrary, store: str
) -> None:
    """The first hit opens by itself where there is room; the others wait."""
    await open_library(tab, url)
    await search(tab, "harina")
    await tab.wait_for("document.querySelector('#hit-view').open")

    scan = library.id_of(library.answers[-1][0]["filename"])
    page = library.answers[-1][0]["page"]
    pictures = [address for address in tab.requests if "/pages/" in address]
    assert [f"{url}v1/files/{scan}/pages/{page}?dpi=130"] == pictures


async def test_plain_text_shows_what_stands_around(tab: Tab, url: str, store: str) -> None:
    """A hit of a text stands between its neighbours, with the words marked."""
    await open_library(tab, url)
    await search(tab, "viernes")
    await tab.wait_for("document.querySelectorAll('.hit-plain > .quiet').length === 2")

    assert NOTES.split("\n") == [line for line in (await tab.text(".hit-plain")).split("\n") if line]
    assert "viernes" in await tab.text(".hit-plain mark")
    assert "notas.txt" == await tab.text("#hit-title")


async def test_the_next_hit_and_back(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """The keyboard alone: from the query to a hit, through the hits, and back to the list."""
    await open_library(tab, url)
    await search(tab, "harina")
    hits = [hit["filename"] for hit in library.answers[-1]]
    focused = "document.activeElement.innerText"
    await tab.run("document.querySelector('.hit-open').focus()")
    await tab.press("ArrowDown")
    assert hits[1] == await tab.run(focused)
    await tab.press("Enter")
    await tab.wait_for("document.activeElement.id === 'hit-title'")
    assert hits[1] in await tab.text("#hit-title")
    assert "2 of 3" == await tab.text("#hit-number")
    await tab.press("ArrowRight")
    assert hits[2] in await tab.text("#hit-title")
    assert await tab.run("document.querySelector('#hit-next').disabled")
    assert "Hit 3 of 3" == await tab.run(STATUS)
    await tab.press("ArrowLeft")
    await tab.press("ArrowLeft")
    await tab.press("Escape")

    assert not await tab.run("document.querySelector('#hit-view').open")
    assert hits[0] == await tab.run(focused)


async def test_filters_become_openai_filters(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """Kind, date and amount narrow the search; chips take them away again."""
    await open_library(tab, url)
    await search(tab, "harina")
    await tab.click("#filters-button")
    legends = await names(tab, "#filters legend")
    assert ["Kind of document", "Supplier", "Date", "Total"] == legends
    await tab.click("#filters label:has(input[type=checkbox])")  # every kind once: by name, the article first
    await tab.wait_for("document.querySelectorAll('.hit').length === 1")
    assert {"type": "eq", "key": "document_type", "value": "article"} == library.searches[-1]["filters"]
    assert ["notas.txt"] == await names(tab, ".hit-open")
    assert ["Kind of document: Article"] == await names(tab, ".chip")
    await tab.click(".chip")
    await tab.wait_for("document.querySelectorAll('.hit').length === 3")
    assert "filters" not in library.searches[-1]
    assert "query" == await tab.run("document.activeElement.id")

    fill = """((selector, value) => { const input = document.querySelector(selector); input.value = value;
        input.dispatchEvent(new Event('change')); })"""
    await tab.run(f"{fill}('#filters input[type=number]', '100')")
    await tab.run(f"{fill}('#filters input[type=date]', '2026-03-01')")
    await tab.run(f"{fill}('#filters .range input[type=date]:last-of-type', '2026-03-31')")
    await tab.wait_for("document.querySelectorAll('.hit').length === 1")
    assert ["factura.pdf"] == await names(tab, ".hit-open")
    wanted = [
        {"type": "gte", "key": "invoice_total", "value": 100},
        {"type": "gte", "key": "invoice_date", "value": "2026-03-01"},
        {"type": "lt", "key": "invoice_date", "value": "2026-04-01"},
    ]
    assert {"type": "and", "filters": wanted} == library.searches[-1]["filters"]
    assert ["Total: from 100", "Date: 2026-03-01 to 2026-03-31"] == await names(tab, ".chip")
    await tab.run(f"{fill}('#filters input[type=number]', '9000')")
    await tab.wait_for("document.querySelector('#hits-told').innerText === 'Nothing was found with these filters.'")


async def test_other_attributes_are_asked_for(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """Attributes that people seldom filter by are in a list."""
    await open_library(tab, url)
    await search(tab, "harina")
    await tab.click("#filters-button")
    await tab.run(
        """(list => { list.value = 'person'; list.dispatchEvent(new Event('change')); })(
        document.querySelector('#filter-more'))"""
    )
    await tab.press(" ")
    await tab.wait_for("document.querySelectorAll('.hit').length === 1")

    assert {"type": "eq", "key": "person", "value": "Ana Núñez"} == library.searches[-1]["filters"]


async def test_a_failing_file_is_tried_again(tab: Tab, url: str, library: FakeLibrary, store: str, file: File) -> None:
    """It fails with its reason, the others stay, and a second try may succeed."""
    library.documents["roto.pdf"] = StoredDocument([letter(1)], failure=("server_error", "not indexed within 9 s"))
    library.documents["roto.pdf"].reason = "deadline_exceeded"
    await open_library(tab, url)
    await tab.drop_file(file("roto.pdf"))
    await tab.wait_for("document.querySelector('.file-row.failed')?.innerText.includes('What the service itself said')")

    row = await tab.text(".file-row.failed")
    assert "Failed: it took longer than allowed." in row
    assert "not indexed" not in row
    await tab.click(".file-row.failed summary")
    assert "not indexed within 9 s" in await tab.text(".file-row.failed")
    library.documents["roto.pdf"].failure = None
    await tab.click(".file-row.failed .small")
    await tab.wait_for("!document.querySelector('.file-row.failed')")
    await tab.wait_for("document.querySelector('.file-row').innerText.includes('1 page')")
    assert 4 == len(library.files)  # it was not sent again


async def test_a_locked_file_asks_for_its_password(tab: Tab, url: str, library: FakeLibrary, file: File) -> None:
    """When it is dropped here; what came otherwise by its button, and is replaced by what the password opens."""
    locked = StoredDocument([letter(1)], failure=("invalid_file", "encrypted"), reason="password_required")
    library.make_store("Facturas 2026", {"nomina.pdf": replace(locked, password="clave")})
    library.documents["baja.pdf"] = replace(locked, password="clave")
    await open_library(tab, url)
    assert "The file is locked: it needs its password." in await tab.text(".file-row.failed")
    before = library.id_of("nomina.pdf")
    await tab.click("[aria-label='Give the password of nomina.pdf']")
    await _unlock(tab, "nomina.pdf", "otra", "clave")
    await tab.wait_for("!document.querySelector('.file-row.failed')")
    await tab.wait_for("document.querySelector('.file-row').innerText.includes('1 page')")
    assert before not in library.files
    await tab.drop_file(file("baja.pdf"))
    await _unlock(tab, "baja.pdf", "clave")
    await tab.wait_for("document.querySelectorAll('[data-status=completed]').length === 2")

    await search(tab, "committee")
    assert 2 == len(await names(tab, ".hit"))


async def _unlock(tab: Tab, name: str, *passwords: str) -> None:
    """Type the passwords for a file, one after the other."""
    for password in passwords:
        await tab.wait_for("document.querySelector('#secret').open && document.activeElement.id === 'secret-value'")
        assert f"{name} is locked" == await tab.text("#secret-title")
        await tab.type(password)
        await tab.press("Enter")
        await tab.wait_for("document.querySelector('#secret-value').value === ''")


async def test_a_stored_document_joins_collections(
    tab: Tab, url: str, library: FakeLibrary, store: str, file: File
) -> None:
    """From where it is shown, by keyboard; a collection's row leads back to it."""
    library.documents["a.pdf"] = StoredDocument([letter(1)])
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#collect summary')")
    await tab.run("document.querySelector('#collect summary').focus()")
    await tab.press("Enter")
    await tab.wait_for("document.querySelectorAll('#collect li').length === 2")
    assert ["Facturas 2026", "New collection"] == await names(tab, "#collect li")
    for width_px, dark in ((390, False), (1440, True)):
        await tab.show(width_px=width_px, dark=dark)
        await require_legible(tab)
    await tab.press("Tab")
    await tab.press("Enter")
    await tab.wait_for("document.querySelector('#notices [data-kind=collected]')")
    document = library.id_of("a.pdf")
    assert document in library.members[store]
    assert "1 document added to the collection Facturas 2026." in await tab.text("#notices")

    await tab.click("#notices [data-kind=collected] a")
    await tab.wait_for("document.querySelectorAll('.file-row').length === 4")
    link = f".file-row a[href='#document={document}']"
    assert "a.pdf" == await tab.text(link)
    await tab.click(link)
    await tab.wait_for("!document.querySelector('#work').hidden")


@pytest.mark.usefixtures("store")
async def test_a_file_that_a_program_sent_is_read_when_it_is_opened(
    tab: Tab, url: str, service: FakeJobService, library: FakeLibrary
) -> None:
    """It came by POST /v1/files and is no document before."""
    await open_library(tab, url)
    await tab.click(f".file-row a[href='#document={library.id_of('factura.pdf')}']")
    await tab.wait_for("document.querySelector('#collect summary')")

    assert ("factura.pdf", "true") == (await tab.text("#file-name"), service.forms[-1]["store"])
    assert await tab.run("location.hash.startsWith('#document=file-')")


@pytest.mark.usefixtures("store")
async def test_a_refused_upload_is_tried_again(
    tab: Tab, url: str, service: FakeJobService, library: FakeLibrary, file: File
) -> None:
    """A file that the service does not take stays with its reason until it is dropped or sent again."""
    service.refusals = [problem(500, "internal_error", "the service failed") for _ in range(2)]
    library.documents["a.pdf"] = StoredDocument([letter(1)])
    await open_library(tab, url)
    await tab.drop_file(file("a.pdf"), file("b.pdf"))
    await tab.wait_for("document.querySelectorAll('#sending .failed').length === 2")
    await tab.click("#sending summary")
    assert "the service failed" in await tab.text("#sending")
    await tab.run("document.querySelector('[aria-label=\"Leave b.pdf out\"]').click()")
    await tab.run("document.querySelector('[aria-label=\"Try a.pdf again\"]').click()")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 4")

    assert await tab.run("document.querySelector('#sending li') === null")


@pytest.mark.usefixtures("store")
async def test_three_uploads_at_once(
    tab: Tab, url: str, service: FakeJobService, library: FakeLibrary, file: File
) -> None:
    """However many files are dropped; the rest waits its turn."""
    library.documents |= {f"{number}.pdf": StoredDocument([letter(1)]) for number in range(7)}
    service.hold_uploads = asyncio.Event()
    await open_library(tab, url)
    await tab.choose_file(*(file(f"{number}.pdf") for number in range(7)))
    await tab.wait_for("document.querySelectorAll('#sending li').length === 7")
    await tab.wait_for("document.querySelector('#sending').innerText.match(/Waiting to be sent/g).length === 4")
    service.hold_uploads.set()
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 10")

    assert 3 == service.most_uploads


async def test_a_file_is_deleted_after_a_question(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """Escape keeps it; the answer decides whether the file goes too; until the next deletion it can come back."""
    await open_library(tab, url)
    scan, notes = library.id_of("escaneo.png"), library.id_of("notas.txt")
    await tab.click("[aria-label='Delete escaneo.png']")
    await tab.wait_for("document.querySelector('#question')?.open")
    assert "Delete escaneo.png?" in await tab.text("#question")
    await tab.press("Escape")
    await tab.wait_for("document.querySelector('#question') === null")
    assert scan in library.members[store]
    await tab.click("[aria-label='Delete escaneo.png']")
    await tab.click("#question .danger")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 2")
    assert scan in library.members[store]
    await tab.click("#undo-deletion")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 3")
    await tab.click("[aria-label='Delete notas.txt']")
    await tab.click("#question .danger")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 2")
    await tab.click("[aria-label='Delete escaneo.png']")
    await tab.click("#question-option")
    await tab.click("#question .danger")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 1")
    focused = await tab.run("document.activeElement.getAttribute('aria-label')")
    await tab.run("dispatchEvent(new Event('pagehide'))")  # as if the page were closed
    there = f"(await fetch('v1/files/{scan}/content')).ok"
    await tab.run(f"(async () => {{ while ({there}) await new Promise((then) => setTimeout(then, 20)); }})()")

    assert {"factura.pdf"} == {member["filename"] for member in library.members[store].values()}
    assert scan not in library.files
    assert notes in library.files
    assert "Delete factura.pdf" == focused


async def test_collections_are_made_chosen_and_deleted(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """Each with its own files; the address names the one that is shown."""
    await open_library(tab, url)
    await tab.click("#new-store")
    await tab.wait_for("document.querySelector('#question')?.open")
    await tab.type("Contratos")
    await tab.press("Enter")
    await tab.wait_for("document.querySelector('#no-files')?.checkVisibility()")
    assert ["All documents", "Facturas 2026", "Contratos"] == await names(tab, "#store option")
    await tab.run(
        f"""(list => {{ list.value = '{store}'; list.dispatchEvent(new Event('change')); }})(
        document.querySelector('#store'))"""
    )
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 3")
    assert f"#library={store}" == await tab.run("location.hash")
    await tab.click("#delete-store")
    await tab.wait_for("document.querySelector('#question')?.open")
    assert "Its index of 3 files is deleted." in await tab.text("#question")
    await tab.click("#question-option")
    await tab.click("#question .danger")
    await tab.wait_for("document.querySelector('#store-facts').innerText.startsWith('0 files')")

    assert ["Contratos"] == [one["name"] for one in library.stores.values()]
    assert {} == library.files


async def test_the_address_brings_a_collection_back(
    chrome: Chrome, url: str, library: FakeLibrary, store: str, file: File
) -> None:
    """In another window too; one that is gone is told, and another is shown."""
    other = library.make_store("Otra")
    async with open_tab(chrome) as tab:
        await tab.open(f"{url}#library={store}")
        await tab.wait_for("document.querySelectorAll('[data-file]').length === 3")
        assert "Facturas 2026" == await tab.run("document.querySelector('#store').selectedOptions[0].innerText")
        assert "Documents · FinancIA" == await tab.run("document.title")
    async with open_tab(chrome) as tab:
        await tab.open(f"{url}#library=vs_gone")
        await tab.wait_for("document.querySelector('#library-notices').innerText.includes('not there any more')")

        assert f"#library={other}" == await tab.run("location.hash")
        assert [] == tab.faults


async def test_a_collection_that_somebody_else_deleted(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """It is told, and another one is shown."""
    other = library.make_store("Otra")
    await tab.open(f"{url}#library={store}")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 3")
    await tab.click("#to-document")
    await tab.wait_for("document.querySelector('#to-library').checkVisibility()")
    del library.stores[store], library.members[store]
    await tab.click("#to-library")
    await tab.wait_for("document.querySelector('#library-notices').innerText.includes('not there any more')")

    assert other == await tab.run("document.querySelector('#store').value")
    assert ["All documents", "Otra"] == await names(tab, "#store option")
    assert f"#library={other}" == await tab.run("location.hash")


async def test_a_lost_network_is_waited_for(tab: Tab, url: str, library: FakeLibrary, store: str, file: File) -> None:
    """Files that were dropped meanwhile go out when it is back."""
    library.documents["a.pdf"] = StoredDocument([letter(1)])
    await open_library(tab, url)
    await tab.offline(on=True)
    await tab.drop_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#queue-notices').innerText.includes('The connection is lost')")
    await tab.offline(on=False)
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 4")
    await tab.wait_for("document.querySelector('#queue-notices').innerText === ''")


async def test_from_the_library_to_the_document_and_back(tab: Tab, url: str, store: str, file: File) -> None:
    """Each view keeps what it shows; a document that is read meanwhile does not take the address."""
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("!document.querySelector('#forget').hidden")
    await tab.click("#to-document")
    await tab.click("#to-library")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 3")
    assert not await tab.run("document.querySelector('#work').checkVisibility()")
    assert "page" == await tab.run("document.querySelector('#to-document').getAttribute('aria-current')")
    await tab.run("history.go(-2)")
    await tab.wait_for("document.querySelector('#work').checkVisibility()")
    assert "#document=file-job-1" == await tab.run("location.hash")
    assert "a.pdf · FinancIA" == await tab.run("document.title")
    await tab.run("history.go(2)")
    await tab.wait_for("document.querySelector('#library-view').checkVisibility()")

    assert f"#library={store}" == await tab.run("location.hash")
    assert 3 == await tab.run("document.querySelectorAll('[data-file]').length")


@pytest.mark.usefixtures("store")
async def test_all_documents_stand_over_the_collections(tab: Tab, url: str, file: File) -> None:
    """The first choice leads to all that is stored, where the next file is read alone and shown."""
    await open_library(tab, url)
    await tab.run(
        "(list => { list.value = ''; list.dispatchEvent(new Event('change')); })(document.querySelector('#store'))"
    )
    await tab.wait_for("document.querySelector('#to-library').checkVisibility()")
    assert "#documents" == await tab.run("location.hash")
    await tab.drop_file(file("a.pdf"))
    await tab.wait_for("!document.querySelector('#forget').hidden")

    assert "#document=file-job-1" == await tab.run("location.hash")
    assert not await tab.run("document.querySelector('#intake').checkVisibility()")


async def test_another_models_vectors_are_made_anew(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """The search goes by words meanwhile, says why, and offers to change that."""
    library.encoder_is_current = False
    await open_library(tab, url)
    await search(tab, "harina")
    assert 3 == len(await names(tab, ".hit"))
    assert "vectors of this collection are of all-MiniLM-L6-v2" in await tab.text("#library-notices")
    await tab.click("#reembed")
    await tab.wait_for("document.querySelector('#library-notices').innerText.includes('0 of 8 passages')")
    library.stores[store]["reembedding"] = {"chunks_done": 4, "chunks_total": 8}
    await tab.wait_for("document.querySelector('#library-notices progress').value === 0.5")
    library.stores[store]["reembedding"], library.encoder_is_current = None, True
    await tab.wait_for("document.querySelector('#library-notices').innerText === ''")

    assert "The vectors are made anew." == await tab.run(STATUS)


async def test_nothing_is_asked_while_nothing_happens(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """A collection whose files are all read is looked at once, and not again while the tab is hidden."""
    await open_library(tab, url)
    await tab.wait_for("document.querySelector('#store-facts').innerText.startsWith('3 files')")
    reads = library.store_reads
    await tab.run("new Promise(settle => setTimeout(settle, 1500))")  # twice the first pause

    assert reads == library.store_reads


async def test_the_key_is_asked_for(tab: Tab, url: str, service: FakeJobService, store: str) -> None:
    """By the same dialog as everywhere on the page."""
    service.key = "secret"
    await tab.click("#to-library")
    await tab.wait_for("document.querySelector('#secret').open")
    await tab.type("secret")
    await tab.press("Enter")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 3")


async def test_hostile_text_is_text(tab: Tab, url: str, library: FakeLibrary) -> None:
    """Markup in names, passages, attributes and warnings is shown as it is."""
    found: dict[str, list[str | float]] = {"vendor_name": [HOSTILE], HOSTILE: ["x"]}
    library.make_store(HOSTILE, {f"{HOSTILE}.txt": StoredDocument(text=f"factura {HOSTILE}", found=found)})
    library.warnings = [HOSTILE]
    await open_library(tab, url)
    await search(tab, "factura")
    await tab.click("#filters-button")
    await tab.wait_for("document.querySelector('#filters input')")

    assert HOSTILE in await tab.text("#search-warnings")
    assert HOSTILE in await tab.text("#filters")
    assert HOSTILE in await tab.text(".hit-text")
    assert HOSTILE in await tab.text(".hit-plain")
    assert f"{HOSTILE}.txt" == await tab.text(".hit-name")
    assert 0 == await tab.run("document.querySelectorAll('img[src=x]').length")
    assert "Documents · FinancIA" == await tab.run("document.title")


async def test_long_passages_are_cut_where_the_words_are(tab: Tab, url: str, library: FakeLibrary) -> None:
    """The snippet shows the words, also behind letters that JavaScript counts twice."""
    text = "😀 palabra " * 100 + "aquí está el tesoro escondido " + "relleno " * 100
    library.make_store("Larga", {"larga.txt": StoredDocument(text=text)})
    await open_library(tab, url)
    await search(tab, "tesoro")

    snippet = await tab.text(".hit-text")
    assert "aquí está el tesoro escondido" in snippet
    assert (True, True) == (snippet.startswith("… "), snippet.endswith(" …"))
    assert ["tesoro"] == await names(tab, ".hit-text mark")
    assert len(snippet) < 350


async def test_many_files_come_in_parts(tab: Tab, url: str, library: FakeLibrary) -> None:
    """A hundred at a time; filters look at more."""
    documents: dict[str, Any] = {
        f"{number:03}.txt": StoredDocument(text="harina", found={"lote": [number % 2]}) for number in range(150)
    }
    library.make_store("Muchos", documents)
    await open_library(tab, url)
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 100")
    await tab.click("#more-files")
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 150")

    shown = await tab.run("[...document.querySelectorAll('.row-name')].map(one => one.textContent)")
    assert [f"{number:03}.txt" for number in reversed(range(150))] == shown
    assert not await tab.run("document.querySelector('#more-files').checkVisibility()")
    await search(tab, "harina")
    assert 10 == len(await names(tab, ".hit"))
    await tab.click("#more-hits")
    await tab.wait_for("document.querySelectorAll('.hit').length === 25")
    assert 10 == await tab.run("[...document.querySelectorAll('.hit-open')].indexOf(document.activeElement)")


async def test_files_behind_the_newest_hundred_are_watched(
    tab: Tab, url: str, library: FakeLibrary, file: File
) -> None:
    """Files that were added since have pushed one in progress out of the list that is read at each look."""
    documents = {f"{number:03}.txt": StoredDocument(text="harina") for number in range(100)}
    store = library.make_store("Muchos", documents)
    oldest = library.id_of("000.txt")
    library.members[store][oldest] |= {"status": "in_progress", "chunks": 0}
    await open_library(tab, url)
    await tab.wait_for("document.querySelectorAll('[data-file]').length === 100")
    await tab.drop_file(file("001.txt"), file("002.txt"))
    await tab.wait_for("document.querySelectorAll('[data-status=completed]').length === 101")
    library.proceed(store, oldest, "done")
    await tab.wait_for(f"document.querySelector('[data-file={oldest}]').dataset.status === 'completed'")

    await tab.wait_for(f"{STATUS} === 'Every file is read.'")


async def test_a_count_that_is_newer_than_the_list(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """The service counted a file as read after it listed it as being read: the page asks again."""
    scan = library.id_of("escaneo.png")
    listed = library.members[store][scan]
    library.late_lists = [{**listed, "status": "in_progress"}]
    await open_library(tab, url)
    await tab.wait_for(f"document.querySelector('[data-file={scan}]').dataset.status === 'completed'")

    assert [] == library.late_lists


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (("unsupported_file", "wrong_media_type"), "Ha fallado: esta clase de archivo no se puede leer."),
        (("invalid_file", "unreadable_file"), "Ha fallado: el archivo está vacío, roto o incompleto."),
        (("invalid_file", "a_new_one"), "Ha fallado: el archivo está roto, protegido o supera un límite."),
    ],
)
async def test_a_file_that_will_never_be_read(
    chrome: Chrome, url: str, library: FakeLibrary, failure: tuple[str, str], words: str
) -> None:
    """It says why in the language of the page alone, and offers no second try."""
    code, reason = failure
    broken = StoredDocument(failure=(code, "file: in the words of the service"), reason=reason)
    library.make_store("Facturas 2026", {**three_documents(), "roto.pdf": broken})
    async with open_tab(chrome, languages="es") as tab:
        await open_library(tab, url)
        await tab.wait_for("document.querySelector('.file-row.failed')")

        assert words in await tab.text(".file-row.failed .row-facts")
        assert "in the words of the service" not in await tab.text(".file-row.failed")  # unless one asks for it
        assert [] == await names(tab, ".file-row.failed .small:not([hidden])")
        assert [] == tab.faults


async def test_a_refused_upload_that_will_never_be_taken(
    tab: Tab, url: str, service: FakeJobService, store: str, file: File
) -> None:
    """Over a limit: it can only be dropped."""
    service.refusals = [problem(413, "too_large", "bytes: 3 is over the limit of 2")]
    await open_library(tab, url)
    await tab.drop_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#sending .failed')")

    await tab.click("#sending summary")
    assert "bytes: 3 is over the limit of 2" in await tab.text("#sending")
    assert [] == await names(tab, "#sending .small:not([hidden])")


@pytest.mark.parametrize(("width_px", "height_px"), [(1280, 900), (360, 640)])
async def test_the_search_stays_in_view(
    tab: Tab, url: str, library: FakeLibrary, width_px: int, height_px: int
) -> None:
    """After a search, and at the end of many hits; nothing that takes the focus lies under it."""
    documents = {f"{number:03}.txt": StoredDocument(text="Recibo de harina. " * 9) for number in range(12)}
    library.make_store("Recibos", documents)
    await tab.show(width_px=width_px, height_px=height_px)
    await open_library(tab, url)
    box = "document.querySelector('#query').getBoundingClientRect()"
    visible = f"(({{top, bottom}}) => top >= 0 && bottom <= innerHeight)({box})"
    for query in ("harina", "recibo"):
        await search(tab, query)
        assert await tab.run(visible)
        await tab.run("scrollTo(0, document.body.scrollHeight)")
        assert await tab.run(visible)
    if width_px < 1000:
        return  # a hit covers the page there
    for index in (9, 0):
        covered = await tab.run(
            f"""(() => {{
                const hit = document.querySelectorAll('.hit-open')[{index}];
                hit.focus();
                const {{left, top}} = hit.getBoundingClientRect();
                return document.elementFromPoint(left + 5, top + 5).closest('#search') !== null;
            }})()"""
        )
        assert not covered
