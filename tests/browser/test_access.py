"""Accessibility: keyboard, screen reader, contrast, small windows, two languages."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.drawn_documents import invoice, letter
from tests.browser.fake_job_service import FakeJobService, problem

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]
DONE = "!document.querySelector('#forget').hidden"
AXE = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
AUDIT = (Path(__file__).parent / "audit.js").read_text(encoding="utf-8")
TABS = ("overview", "fields", "tables", "entities", "text", "downloads")
NAMED = {
    *("button", "link", "textbox", "combobox", "checkbox", "tab", "tabpanel", "dialog", "region", "navigation"),
    *("progressbar", "table", "group", "toolbar", "tablist", "searchbox", "DisclosureTriangle"),
}


async def require_names(tab: Tab) -> list[dict[str, Any]]:
    """Every control and region has a name, and the page one main heading. Returns the accessibility tree."""
    nodes = await tab.accessible()
    assert [] == [node for node in nodes if node["role"] in NAMED and not node["name"].strip()]
    assert 1 == len([node for node in nodes if node["role"] == "heading" and node.get("level") == 1])
    return nodes


async def require_legible(tab: Tab, least_texts: int = 10) -> None:
    """No rule of axe is broken; contrast as WCAG AA asks, targets of 24 pixels, and nothing wider than the window."""
    await tab.wait_for(f"({AUDIT}).looked >= {least_texts}")
    assert [] == await _violations(tab)
    audit = await tab.run(AUDIT)
    assert {"faint": [], "small": []} == {name: audit[name] for name in ("faint", "small")}
    assert audit["wide"] <= 0


async def _violations(tab: Tab) -> list[str]:
    """What axe finds on the page as it is: each rule with the elements that break it."""
    if not await tab.run("'axe' in window"):
        await tab.run(f"{AXE}; null")
    found: list[str] = await tab.run(
        """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.map(
            ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" | ")}`
        ))"""
    )
    return found


def _named(nodes: list[dict[str, Any]], role: str) -> list[str]:
    return [node["name"] for node in nodes if node["role"] == role]


async def test_the_start_has_landmarks_names_and_labels(tab: Tab) -> None:
    """A screen reader finds its way: landmarks, one heading, a label for every field."""
    await tab.run("document.querySelector('.options').open = true")
    nodes = await require_names(tab)

    assert {"banner", "main", "navigation", "status"} <= {node["role"] for node in nodes}
    assert ["See everything a document says"] == _named(nodes, "heading")
    assert {"Pages", "Languages of the document"} <= {*_named(nodes, "textbox"), *_named(nodes, "combobox")}
    assert {"Where text comes from", "OCR engine"} <= set(_named(nodes, "combobox"))
    assert 11 == len(_named(nodes, "checkbox"))
    assert "What to find" in _named(nodes, "group")
    [pages] = [node for node in await tab.accessible() if node["name"] == "Pages" and node["role"] == "textbox"]
    assert pages["focusable"]


async def test_a_result_has_names_and_roles(tab: Tab, service: FakeJobService, file: File) -> None:
    """Tabs, pages, entities and pictures have roles and names."""
    service.pages = [invoice(), letter(2)]
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    await tab.wait_for("document.querySelector('#page-1 img').naturalWidth")
    await tab.click("#tab-entities")
    nodes = await require_names(tab)

    assert ["Overview", "Fields", "Tables", "Entities", "Text", "Downloads"] == _named(nodes, "tab")
    assert ["Entities"] == [node["name"] for node in nodes if node["role"] == "tab" and node.get("selected")]
    assert "Entities by type" in _named(nodes, "table")
    assert {"Found", "Page", "Score"} <= set(_named(nodes, "columnheader"))
    assert "Picture of page 1" in _named(nodes, "image")
    assert {"Page 1", "Page 2"} <= set(_named(nodes, "article"))
    buttons = _named(nodes, "button")
    assert {"Go to page 2", "Copy 1180.00 EUR", "B12345674", "Larger"} <= set(buttons)
    assert "CIF: B12345674. Page 1. Enter or Escape goes back to the list." in buttons


async def test_progress_is_announced_politely(tab: Tab, service: FakeJobService, file: File) -> None:
    """Progress has a name and a value, and a status that does not interrupt."""
    service.pages, service.step_by_step = [letter(1), letter(2)], True
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#progress-text').innerText.startsWith('Waiting')")
    await service.read_page()
    await tab.wait_for("document.querySelector('#status').textContent === 'Reading: 1 of 2 pages'")
    nodes = await require_names(tab)

    assert ["Reading: 1 of 2 pages"] == _named(nodes, "progressbar")
    assert {"polite"} == {node["live"] for node in nodes if node["role"] == "status"}
    await service.read_page()
    await service.finish()
    await tab.wait_for(DONE)


async def test_everything_by_keyboard(tab: Tab, file: File) -> None:
    """Tab goes through the page in the order it reads, with a focus that can be seen; arrows move between tabs."""
    order = []
    for _ in range(11):
        await tab.press("Tab")
        order.append(await tab.run("document.activeElement.innerText"))
        assert "3px" == await tab.run("getComputedStyle(document.activeElement).outlineWidth")
    assert [
        "Skip to the content",
        "Documents",
        "Ledger",
        "API",
        "Español",
        "English",
        "Choose files",
        "Record",
        "Try an example invoice",
        "Collections, and search in what documents say",
        "Options",
    ] == order

    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    assert "file-name" == await tab.run("document.activeElement.id")
    await tab.run("document.querySelector('#tab-overview').focus()")
    for key, name in (
        ("ArrowRight", "fields"),
        ("End", "downloads"),
        ("ArrowRight", "overview"),
        ("ArrowLeft", "downloads"),
    ):
        await tab.press(key)
        assert f"tab-{name}" == await tab.run("document.activeElement.id")
        assert [f"panel-{name}"] == await tab.run(
            "[...document.querySelectorAll('[role=tabpanel]')].filter(one => !one.hidden).map(one => one.id)"
        )
    assert 1 == await tab.run("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width_px", [390, 1440])
async def test_contrast(tab: Tab, service: FakeJobService, file: File, width_px: int, dark: bool) -> None:
    """Every state is accessible in both schemes, narrow and wide: start, result, notices, dialog."""
    await tab.show(width_px=width_px, dark=dark)
    assert dark == await tab.run("matchMedia('(prefers-color-scheme: dark)').matches")
    await tab.run("document.querySelector('.options').open = true")
    await require_legible(tab, 25)
    service.pages, service.failed = [invoice(), letter(2), letter(3)], (3,)
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    for name in TABS:
        await tab.click(f"#tab-{name}")
        await require_legible(tab, 20)
    service.refusals = [problem(413, "too_large", "pages: 300 is over the limit of 200 (LIMIT_PAGES)")]
    await tab.choose_file(file("b.pdf"))
    await tab.wait_for("document.querySelector('[role=alert]')")
    await require_legible(tab)
    service.key = "secret"
    await tab.click("#again")
    await tab.wait_for("document.querySelector('#secret').open")
    await require_legible(tab)


@pytest.mark.parametrize(("width_px", "height_px"), [(360, 740), (640, 430)], ids=["phone", "200-percent"])
async def test_small_windows(tab: Tab, service: FakeJobService, file: File, width_px: int, height_px: int) -> None:
    """On a telephone and at 200 % zoom nothing is cut off at the side and every target can be hit."""
    await tab.show(width_px=width_px, height_px=height_px)
    await tab.run("document.querySelector('.options').open = true")
    await require_legible(tab, 25)
    service.pages = [invoice(), letter(2)]
    await tab.choose_file(file("a-file-with-a-name-that-is-far-too-long-for-a-small-window-and-has-no-space-in-it.pdf"))
    await tab.wait_for(DONE)
    for name in TABS:
        await tab.click(f"#tab-{name}")
        await require_legible(tab, 20)
        cut = "(one => one.scrollWidth - one.clientWidth)(document.querySelector('[role=tabpanel]:not([hidden])'))"
        assert 0 == await tab.run(cut), name


async def test_reduced_motion(tab: Tab) -> None:
    """Animations and transitions are off where the system asks for reduced motion."""
    await tab.run("document.querySelectorAll('[hidden]').forEach(one => { one.hidden = false; })")
    animation = "getComputedStyle(document.querySelector('#progress')).animationName"
    assert "slide" == await tab.run(animation)
    reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    await tab.send("Emulation.setEmulatedMedia", features=reduced)

    assert "none" == await tab.run(animation)


async def test_the_dialog_keeps_the_focus_and_gives_it_back(tab: Tab, service: FakeJobService, file: File) -> None:
    """The dialog has its reason as a label, Tab stays inside it, and the focus returns afterwards."""
    service.key = "secret"
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#secret').open")
    nodes = await tab.accessible()

    assert ["A key is needed"] == _named(nodes, "dialog")
    assert ["API key"] == _named(nodes, "textbox")
    assert "secret-value" == await tab.run("document.activeElement.id")
    for _ in range(4):
        await tab.press("Tab")
        assert await tab.run("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    await tab.run("document.querySelector('#secret-cancel').click()")
    await tab.wait_for("!document.querySelector('#again').hidden")
    assert "file-name" == await tab.run("document.activeElement.id")


async def test_spanish_and_english(chrome: Chrome, url: str, file: File) -> None:
    """The browser's language decides, the switch overrides it for good, and everything on the page follows."""
    async with open_tab(chrome, languages="es-ES,es") as tab:
        await tab.open(url)
        assert "es" == await tab.run("document.documentElement.lang")
        await tab.choose_file(file("a.pdf"))
        await tab.wait_for(DONE)
        await tab.click("#tab-entities")
        assert "PDF · 1 página" == await tab.text("#file-facts")
        assert "Organización (2)" in await tab.text(".entity-table")
        await tab.click("[data-language=en]")

        assert "en" == await tab.run("document.documentElement.lang")
        assert "PDF · 1 page" == await tab.text("#file-facts")
        assert "Organisation (2)" in await tab.text(".entity-table")
        await tab.click("#tab-overview")
        overview = await tab.text("#panel-overview")
        assert "Invoice" in overview
        assert "Spanish" in overview
        label = "document.querySelector('[data-entity=\"1\"]').getAttribute('aria-label')"
        assert (await tab.run(label)).endswith("Enter or Escape goes back to the list.")
        await tab.open(url)
        assert "Choose files" == await tab.text("#choose")
        assert [] == tab.faults


async def test_another_language_gets_english(chrome: Chrome, url: str) -> None:
    """A browser in a language that the page does not have reads English."""
    async with open_tab(chrome, languages="de-DE") as tab:
        await tab.open(url)

        assert "Choose files" == await tab.text("#choose")


@pytest.mark.parametrize("width_px", [360, 390, 430, 640, 768])
async def test_the_views_stand_beside_the_languages(tab: Tab, width_px: int) -> None:
    """On a telephone, too, whose scroll bars take no room: no link is covered, in either language."""
    await tab.send("Emulation.setScrollbarsHidden", hidden=True)
    await tab.show(width_px=width_px)
    for language in ("en", "es"):
        await tab.run(f"document.querySelector('[data-language={language}]').click()")
        covered = """[...document.querySelectorAll(".top :is(a, button)")].filter((one) => {
            const { left, right, top, bottom } = one.getBoundingClientRect();
            const at = (x) => one.contains(document.elementFromPoint(x, (top + bottom) / 2));
            return right > innerWidth || !at((left + right) / 2) || !at(right - 3);
        }).map((one) => one.innerText)"""
        assert [] == await tab.run(covered)
