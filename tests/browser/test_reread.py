"""Reading a doubtful scan again, in another language or by another engine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.drawn_documents import DrawnPage, invoice, letter
from tests.browser.fake_job_service import JOB, FakeJobService, problem
from tests.browser.test_access import require_legible, require_names

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]
DONE = "!document.querySelector('#forget').hidden"
OFFER = "document.querySelector('#reread')"


def _blank() -> DrawnPage:
    return DrawnPage([])


async def _read(tab: Tab, path: Path) -> None:
    await tab.choose_file(path)
    await tab.wait_for(DONE)


async def test_nothing_found_is_read_again(tab: Tab, service: FakeJobService, file: File) -> None:
    """A scan without text: the other engine is proposed, the same file goes again, and its job replaces the first."""
    service.pages = [_blank()]
    await _read(tab, file("scan.png"))
    await tab.wait_for(OFFER)

    assert "No text was found on these pages." == await tab.text("#reread-title")
    assert "rapidocr" == await tab.run("document.querySelector('#reread-engine').value")
    await tab.run("document.querySelector('#reread-language').value = 'de'")
    service.pages = [invoice()]
    await tab.click("#reread")
    await tab.wait_for(f"{OFFER} === null && {DONE}")

    assert "Invoice" in await tab.text("#panel-overview")
    sent = [(form["engine"], form.get("language"), form["source"], form["name"]) for form in service.forms]
    assert [("auto", None, "auto", "scan.png"), ("rapidocr", "de", "auto", "scan.png")] == sent
    assert [JOB] == service.deleted_ids


async def test_the_wishes_are_for_one_document(tab: Tab, service: FakeJobService, file: File) -> None:
    """The next document is read as the options say, not as the last one was corrected."""
    service.pages = [_blank()]
    await _read(tab, file("scan.png"))
    await tab.wait_for(OFFER)
    await tab.click("#reread")
    await tab.wait_for("location.hash === '#document=file-job-2'")
    await tab.wait_for(OFFER)
    await _read(tab, file("next.png"))
    await tab.wait_for("location.hash === '#document=file-job-3'")

    assert ["auto", "rapidocr", "auto"] == [form["engine"] for form in service.forms]
    assert [JOB] == service.deleted_ids


@pytest.mark.parametrize(
    ("found", "title"),
    [
        pytest.param({"confidence": 0.5}, "1 page was hard to read: 50% sure.", id="unsure"),
        pytest.param({"entities": False}, "No entities were found.", id="no-entities"),
        pytest.param({}, None, id="good"),
    ],
)
async def test_what_is_doubtful(
    tab: Tab, service: FakeJobService, file: File, found: dict[str, Any], title: str | None
) -> None:
    """Unsure scans and scans without entities are; a text layer and a good scan are not."""
    service.pages = [invoice(), letter(2)]
    for name, value in found.items():
        setattr(service, name, value)
    await _read(tab, file("scan.pdf"))
    if title is None:
        await tab.wait_for("document.querySelector('#status').textContent.startsWith('Done')")
        assert await tab.run(f"{OFFER} === null")
        return
    await tab.wait_for(OFFER)

    assert title == await tab.text("#reread-title")
    expected = f"{title} You can read the document again in another way."
    assert expected == await tab.run("document.querySelector('#status').textContent")


async def test_a_text_layer_that_says_nothing_is_read_as_a_picture(
    tab: Tab, service: FakeJobService, file: File
) -> None:
    """Another engine alone would change nothing: no page was recognised."""
    service.pages = [replace(_blank(), source="text_layer")]
    await _read(tab, file("a.pdf"))
    await tab.wait_for(OFFER)
    await tab.click("#reread")
    await tab.wait_for("location.hash === '#document=file-job-2'")

    assert ["auto", "ocr"] == [form["source"] for form in service.forms]


async def test_languages_are_those_of_the_engine(tab: Tab, service: FakeJobService, file: File) -> None:
    """By name, after the service's own; a document that looks Spanish where that is usual changes nothing."""
    service.pages = [_blank()]
    await _read(tab, file("a.png"))
    await tab.wait_for(OFFER)
    options = "[...document.querySelectorAll('#reread-language option')].map(one => one.innerText)"

    assert ["Spanish, English (usual here)", "English", "French", "German", "Spanish"] == await tab.run(options)
    assert "" == await tab.run("document.querySelector('#reread-language').value")
    engines = "[...document.querySelectorAll('#reread-engine option')].map(one => one.innerText)"
    assert ["Choose for each page", "Tesseract", "RapidOCR"] == await tab.run(engines)
    await tab.run(
        """(engine => { engine.value = 'tesseract'; engine.dispatchEvent(new Event('change')); })(
        document.querySelector('#reread-engine'))"""
    )
    assert "German" not in await tab.run(options)


async def test_the_language_found_is_proposed(tab: Tab, service: FakeJobService, file: File) -> None:
    """Where it is not one of the service's own: those were tried."""
    service.usual_languages, service.confidence = ("en",), 0.5
    await _read(tab, file("a.png"))
    await tab.wait_for(OFFER)

    assert "es" == await tab.run("document.querySelector('#reread-language').value")


async def test_without_the_file_it_says_what_to_do(
    chrome: Chrome, url: str, service: FakeJobService, tab: Tab, file: File
) -> None:
    """After a reload the page has no file to send again."""
    service.pages = [_blank()]
    await _read(tab, file("a.png"))
    async with open_tab(chrome) as other:
        await other.open(f"{url}#job={JOB}")
        await other.wait_for("document.querySelector('#reread-title')")

        assert "send the file again" in await other.text("#notices")
        assert await other.run(f"{OFFER} === null")
        assert [] == other.faults


@pytest.mark.parametrize("answer", [problem(403, "forbidden", "not yours"), problem(503, "unavailable", "not now")])
async def test_a_service_that_does_not_tell_its_engines(
    tab: Tab, service: FakeJobService, file: File, answer: Response
) -> None:
    """The result stays as it is, without an offer and without an error."""
    service.pages, service.system = [_blank()], answer
    await _read(tab, file("a.png"))
    await tab.wait_for("document.querySelector('#status').textContent.startsWith('Done')")

    assert await tab.run(f"{OFFER} === null && document.querySelector('[role=alert]') === null")


@pytest.mark.parametrize("width_px", [1280, 360])
async def test_the_offer_is_accessible(tab: Tab, service: FakeJobService, file: File, width_px: int) -> None:
    """Labels, contrast, targets; the keyboard alone is enough; it follows the language of the page."""
    await tab.show(width_px=width_px, height_px=740)
    service.pages = [_blank()]
    await _read(tab, file("a.png"))
    await tab.wait_for(OFFER)
    nodes = await require_names(tab)
    await require_legible(tab)

    assert {"Language of the print", "OCR engine"} <= {node["name"] for node in nodes if node["role"] == "combobox"}
    assert "No text was found on these pages." in {node["name"] for node in nodes if node["role"] == "group"}
    await tab.click("[data-language=es]")
    assert "Español, Inglés (lo habitual)" == await tab.run(
        "document.querySelector('#reread-language option').innerText"
    )
    await tab.run("document.querySelector('#reread').focus()")
    await tab.press("Enter")
    await tab.wait_for("location.hash === '#document=file-job-2'")
