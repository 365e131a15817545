"""Accessibility of the library: keyboard, screen reader, contrast, a telephone, two languages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.fake_library import FakeLibrary, StoredDocument
from tests.browser.test_access import require_legible, require_names
from tests.browser.test_library import open_library, search, three_documents

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]


@pytest.fixture
def store(library: FakeLibrary) -> str:
    """A collection with three documents that are read and one that failed."""
    broken = StoredDocument(failure=("unsupported_file", "this kind cannot be read"), reason="wrong_media_type")
    return library.make_store("Facturas 2026", {**three_documents(), "roto.bin": broken})


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width_px", [1280, 360])
async def test_it_is_legible_and_named(tab: Tab, url: str, library: FakeLibrary, dark: bool, width_px: int) -> None:
    """Contrast, sizes of targets, names of controls, nothing wider than the window: in each state."""
    await tab.show(width_px=width_px, height_px=740, dark=dark)
    [members] = library.members.values()
    members[library.id_of("roto.bin")]["last_error"]["retryable"] = True
    await open_library(tab, url)
    library.warnings = ["no file has the attribute x"]
    nodes = await require_names(tab)
    await require_legible(tab, 15)
    assert {"Collection"} <= {node["name"] for node in nodes if node["role"] == "combobox"}
    assert {"Search this collection"} <= {node["name"] for node in nodes if node["role"] == "searchbox"}
    assert {"Delete roto.bin", "Try roto.bin again"} <= {node["name"] for node in nodes if node["role"] == "button"}
    await search(tab, "harina pago")
    await require_names(tab)
    await require_legible(tab, 15)
    await tab.click("#filters-button")
    await tab.click("#filters label:has(input[type=checkbox])")
    await tab.wait_for("document.querySelector('.chip')")
    nodes = await require_names(tab)
    await require_legible(tab, 20)
    assert "Remove the filter Kind of document: Article" in {node["name"] for node in nodes if node["role"] == "button"}
    await tab.run("document.querySelector('#delete-store').click()")
    await require_legible(tab, 15)


async def test_on_a_telephone_a_hit_covers_the_page(tab: Tab, url: str, library: FakeLibrary, store: str) -> None:
    """It opens when it is touched, as wide as the window, and gives the list back."""
    await tab.show(width_px=360, height_px=740)
    await open_library(tab, url)
    await search(tab, "harina pago")
    assert not await tab.run("document.querySelector('#hit-view').open")
    await tab.click(".hit-open")
    await tab.wait_for("document.querySelector('#hit-view:modal')")
    await tab.wait_for(
        "document.querySelector('#hit-body img:not([hidden])')?.naturalWidth || document.querySelector('.hit-plain')"
    )
    await require_legible(tab, 5)
    widths = await tab.run(
        "['#hit-view', '#hit-body'].map(one => document.querySelector(one).getBoundingClientRect())"
        ".map(box => [box.left, box.right])"
    )
    assert (0, 360) == (widths[0][0], widths[0][1])
    assert 0 <= widths[1][0] <= widths[1][1] <= 360
    await tab.click("#hit-next")
    assert "2 of 3" == await tab.text("#hit-number")
    await tab.press("Escape")

    assert not await tab.run("document.querySelector('#hit-view').open")
    assert await tab.run("document.activeElement === document.querySelectorAll('.hit-open')[1]")


async def test_by_keyboard_alone(tab: Tab, url: str, store: str) -> None:
    """Tab goes through the library in the order it reads, with a focus that can be seen."""
    await open_library(tab, url)
    await tab.run("document.querySelector('[data-language=en]').focus()")
    order = []
    for _ in range(9):
        await tab.press("Tab")
        order.append(await tab.run("document.activeElement.id"))
        assert "3px" == await tab.run("getComputedStyle(document.activeElement).outlineWidth")
    expected = [
        "choose",
        "store",
        "new-store",
        "delete-store",
        "query",
        "",
        "filters-button",
        "tab-files",
        "panel-files",
    ]
    assert expected == order
    await tab.run("document.querySelector('#tab-files').focus()")
    await tab.press("ArrowRight")
    assert "tab-results" == await tab.run("document.activeElement.id")
    assert await tab.run("document.querySelector('#panel-results').checkVisibility()")


async def test_spanish_and_back(chrome: Chrome, url: str, store: str) -> None:
    """Everything that is shown follows the switch of language."""
    async with open_tab(chrome, languages="es-ES,es") as tab:
        await open_library(tab, url)
        await search(tab, "harina")
        await tab.click("#filters-button")
        await tab.wait_for("document.querySelector('#filters legend')")
        await tab.click("#filters label:has(input[type=checkbox])")
        await tab.wait_for("document.querySelector('.chip')")
        assert "Clase de documento: Artículo" == await tab.text(".chip")
        await tab.wait_for("document.querySelector('#hits-told').innerText === '1 resultado, el mejor primero'")
        assert "Ha fallado: esta clase de archivo no se puede leer." in await tab.run(
            "document.querySelector('#file-rows').textContent"
        )
        await tab.click("[data-language=en]")

        assert "Kind of document: Article" == await tab.text(".chip")
        assert "1 hit, the best first" == await tab.text("#hits-told")
        assert "Results (1)" == await tab.text("#tab-results")
        assert "Documents · FinancIA" == await tab.run("document.title")
        assert [] == tab.faults


async def test_progress_is_announced(tab: Tab, url: str, library: FakeLibrary, store: str, file: File) -> None:
    """How many files are read is told politely; each file's bar has a name."""
    library.step_by_step = True
    library.documents["a.pdf"] = three_documents()["factura.pdf"]
    await open_library(tab, url)
    await tab.drop_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#status').textContent === '4 of 5 files read'")
    library.proceed(store, library.id_of("a.pdf"), "reading", 1, 4)
    await tab.wait_for("document.querySelector('.file-row progress').checkVisibility()")
    nodes = await require_names(tab)
    assert {"Files read", "Progress of a.pdf"} <= {node["name"] for node in nodes if node["role"] == "progressbar"}
    library.proceed(store, library.id_of("a.pdf"), "done")
    await tab.wait_for("document.querySelector('#status').textContent.startsWith('Every file is read, but 1 file')")
