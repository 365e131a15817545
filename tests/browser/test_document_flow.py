"""The way from a file to its results on the page."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.drawn_documents import invoice, letter
from tests.browser.fake_job_service import JOB, FakeJobService, problem

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]
DONE = "!document.querySelector('#forget').hidden"


async def test_a_chosen_file_shows_what_the_service_found(tab: Tab, service: FakeJobService, file: File) -> None:
    """Class, language, sentences, device and timings are shown; only options that were set are sent."""
    await tab.choose_file(file("factura.pdf"))
    await tab.wait_for(DONE)

    overview = await tab.text("#panel-overview")
    for words in ("Invoice", "93%", "Spanish", "El pago vence", "harina de trigo", "cpu", "all-MiniLM-L6-v2", "740 ms"):
        assert words in overview
    assert "factura.pdf" == await tab.text("#file-name")
    assert "PDF · 1 page" == await tab.text("#file-facts")
    [form] = service.forms
    features = "text,words,language,classes,entities,fields,tables,key_phrases,key_sentences"
    assert {"name": "factura.pdf", "features": features, "source": "auto", "engine": "auto", "store": "true"} == form


async def test_a_dropped_file(tab: Tab, service: FakeJobService, file: File) -> None:
    """A file may be dropped anywhere on the page."""
    await tab.drop_file(file("dropped.png"))
    await tab.wait_for(DONE)

    assert ["dropped.png"] == [form["name"] for form in service.forms]
    assert await tab.run("document.querySelector('#dragging').hidden")


async def test_a_pasted_picture(tab: Tab, service: FakeJobService) -> None:
    """A picture from the clipboard is a file as any other; pasted text is left alone."""
    paste = """(data => dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, cancelable: true})))"""
    text_passed = await tab.run(
        f"{paste}((() => {{ const d = new DataTransfer(); d.setData('text', 'a'); return d; }})())"
    )
    picture = "(() => { const d = new DataTransfer(); d.items.add(new File(['a'], 'shot.png')); return d; })()"
    picture_taken = not await tab.run(f"{paste}({picture})")
    await tab.wait_for(DONE)

    assert (True, True) == (text_passed, picture_taken)
    assert ["shot.png"] == [form["name"] for form in service.forms]


async def test_options_are_sent(tab: Tab, service: FakeJobService, file: File) -> None:
    """The options reach the service under the API's field names."""
    await tab.run("document.querySelector('.options').open = true")
    for field, text in (("#pages", "1-3, 7"), ("#language", "en")):
        await tab.click(field)
        await tab.type(text)
    await tab.run("document.querySelector('#engine').value = 'rapidocr'")
    await tab.run("document.querySelector('#source').value = 'ocr'")
    await tab.click("[value=vector]")
    await tab.click("[value=key_phrases]")
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)

    [form] = service.forms
    sent = {name: form[name] for name in ("pages", "language", "engine", "source", "features")}
    features = "text,words,language,classes,entities,fields,tables,key_sentences,vector"
    expected = {"pages": "1-3,7", "language": "en", "engine": "rapidocr", "source": "ocr", "features": features}
    assert expected == sent


async def test_each_page_appears_when_it_is_read(tab: Tab, service: FakeJobService, file: File) -> None:
    """Pages, their text and the progress are shown while the job runs; boxes come with the result."""
    service.pages, service.step_by_step = [letter(1), letter(2), invoice()], True
    await tab.choose_file(file("three.pdf"))
    await tab.wait_for("document.querySelector('#progress-text').innerText.startsWith('Waiting')")
    await service.read_page()
    await tab.wait_for("document.querySelector('#progress').value > 0.3")

    assert "Reading: 1 of 3 pages" == await tab.text("#progress-text")
    assert "Page 1 Text of the file 390 words" == " ".join((await tab.text("#page-1 .page-head")).split())
    assert await tab.run("document.querySelector('#page-2') === null")
    await tab.wait_for("document.querySelector('#page-1 img').naturalWidth > 0")
    await service.read_page()
    await service.read_page()
    await service.finish()
    await tab.wait_for(DONE)

    await tab.run("document.querySelector('#page-3').scrollIntoView()")
    await tab.wait_for("document.querySelectorAll('#page-3 .words rect').length === 76")
    assert 7 == await tab.run("document.querySelectorAll('#page-3 .words rect.low').length")
    assert "Done: 3 pages read." == await tab.run("document.querySelector('#status').textContent")


async def test_the_time_is_counted_while_a_page_is_read(tab: Tab, service: FakeJobService, file: File) -> None:
    """A scan of one page has no share to show: the bar moves, and the seconds so far stand beside it, unannounced."""
    service.step_by_step = True
    await tab.choose_file(file("scan.png"))
    await tab.wait_for("/^· [1-9] sec so far$/.test(document.querySelector('#elapsed').innerText)")

    assert await tab.run("!document.querySelector('#progress').hasAttribute('value')")
    assert "so far" not in await tab.run("document.querySelector('#status').textContent")
    await service.read_page()
    await service.finish()
    await tab.wait_for(DONE)
    assert await tab.run("!document.querySelector('#elapsed').checkVisibility()")


async def test_the_time_goes_on_after_a_reload(
    chrome: Chrome, url: str, tab: Tab, service: FakeJobService, file: File
) -> None:
    """It counts from when the service got the document."""
    service.step_by_step, service.age_s = True, 70
    await tab.choose_file(file("scan.png"))
    await tab.wait_for("document.querySelector('#progress-text').innerText.startsWith('Waiting')")
    async with open_tab(chrome) as other:
        await other.open(f"{url}#job={JOB}")
        await other.wait_for("document.querySelector('#elapsed').innerText.startsWith('· 1 min 1')")


async def test_marks_lie_on_their_words(tab: Tab, file: File) -> None:
    """A box in page units lies over the same place of the picture, whatever the zoom."""
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('.entity') && document.querySelector('#page-1 img').naturalWidth")
    await tab.click("#show-entities")
    measure = """(() => {
        const sheet = document.querySelector('#page-1 img').getBoundingClientRect();
        const mark = document.querySelector('[data-entity="6"] rect').getBoundingClientRect();
        return [(mark.left - sheet.left) / sheet.width * 595, (mark.top - sheet.top) / sheet.height * 842];
    })()"""
    for _ in range(2):  # as it comes, and larger
        left, top = await tab.run(measure)
        assert left == pytest.approx(440 - 1.5, abs=1.5)  # the box of "1.368,40 €" with its margin
        assert top == pytest.approx(400 - 1.5, abs=1.5)
        await tab.click("#zoom-in")
    assert "150%" == await tab.text("#zoom-level")


async def test_layers_are_shown_when_they_are_asked_for(tab: Tab, file: File) -> None:
    """The paper comes clean; words and entities each have a switch."""
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('.entity')")
    shown = "['.words', '.entities'].map(one => getComputedStyle(document.querySelector(one)).display !== 'none')"

    assert [False, False] == await tab.run(shown)
    await tab.click("#show-words")
    assert [True, False] == await tab.run(shown)
    await tab.click("#show-entities")
    assert [True, True] == await tab.run(shown)


async def test_from_an_entity_to_its_mark_and_back(tab: Tab, file: File) -> None:
    """Enter on a row goes to the box on the page; Enter there comes back to the row."""
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    await tab.click("#tab-entities")
    await tab.run("document.querySelector('#entity-8').focus()")
    await tab.press("Enter")

    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
    label = "IBAN: ES91 21OO 0418 4502 0005 1332. Page 1. Enter or Escape goes back to the list."
    assert label == await tab.run(focused)
    await tab.wait_for("document.activeElement.getBoundingClientRect().top < innerHeight")
    await tab.click("#tab-overview")
    await tab.run("document.querySelector('[data-entity=\"8\"]').focus()")
    await tab.press("Escape")
    assert "ES91 21OO 0418 4502 0005 1332" == await tab.run(focused)
    assert await tab.run("!document.querySelector('#panel-entities').hidden")


async def test_entities_are_listed_by_type_with_their_checks(tab: Tab, file: File) -> None:
    """The table shows value, validity and the suggested repair."""
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    await tab.click("#tab-entities")

    heads = await tab.run("[...document.querySelectorAll('.type-row')].map(row => row.innerText.trim())")
    expected = [
        "Organisation (2)",
        "CIF (1)",
        "Invoice number (1)",
        "Amount (3)",
        "Place (1)",
        "IBAN (1)",
        "Person (1)",
    ]
    assert expected == heads
    table = await tab.text(".entity-table")
    for words in ("Perhaps ES9121000418450200051332", "Not valid", "Valid", "97%"):
        assert words in table


async def test_a_key_sentence_lights_up_on_its_page(tab: Tab, file: File) -> None:
    """A click on a sentence marks it on its page."""
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    await tab.click(".sentences button")

    assert 1 == await tab.run("document.querySelectorAll('.spot rect').length")


async def test_text_and_downloads(tab: Tab, service: FakeJobService, file: File) -> None:
    """The text can be copied; every format is asked for under its own name and saved under the document's."""
    await tab.choose_file(file("mi factura.pdf"))
    await tab.wait_for(DONE)
    await tab.run(
        """(() => { window.saved = []; window.copied = null;
        HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
        navigator.clipboard.writeText = async text => { copied = text; }; })()"""
    )
    await tab.click("#tab-text")
    await tab.click("#copy-text")
    await tab.wait_for("copied")
    await tab.click("#tab-downloads")
    await tab.run("document.querySelectorAll('.download').forEach(button => button.click())")
    await tab.wait_for("saved.length === 9")

    assert invoice().text == await tab.run("copied")
    endings = [".alto.xml", ".csv", ".hocr", ".html", ".json", ".md", ".searchable.pdf", ".txt", ".xlsx"]
    assert [f"mi factura{ending}" for ending in endings] == sorted(await tab.run("saved"))
    formats = sorted(url.partition("format=")[2] for url in tab.requests if "/result?" in url)
    assert ["alto", "csv", "hocr", "html", "json", "markdown", "pdf", "text", "xlsx"] == formats


async def test_two_hundred_pages_stay_light(tab: Tab, service: FakeJobService, file: File) -> None:
    """Pictures and boxes exist for what is near the view only, wherever in the document that is."""
    service.pages = [letter(number, lines=6) for number in range(1, 201)]
    await tab.choose_file(file("long.pdf"))
    await tab.wait_for(DONE)
    await tab.run("document.querySelector('#page-150').scrollIntoView()")
    await tab.wait_for(
        "document.querySelector('#page-150 img').naturalWidth && document.querySelector('#page-150 .words')"
    )
    await tab.wait_for("document.querySelector('#thumbnails [aria-current]').innerText === '150'")

    assert 200 == await tab.run("document.querySelectorAll('.page').length")
    assert await tab.run("document.querySelectorAll('.page img[src]').length") < 10
    assert await tab.run("document.querySelectorAll('.marks').length") < 10
    requested = {int(picture.partition("?")[0]) for picture in service.pictures}
    assert len(requested) < 60  # of both sizes: pages that were scrolled past were never requested
    await tab.wait_for("document.querySelectorAll('#page-1 img[src]').length === 0")


async def test_the_address_keeps_the_document(chrome: Chrome, url: str, service: FakeJobService, file: File) -> None:
    """After a reload, or in another window, the address alone brings everything back: of the stored document alone."""
    async with open_tab(chrome) as tab:
        await tab.open(url)
        await tab.choose_file(file("a.pdf"))
        await tab.wait_for(DONE)
        address = await tab.run("location.href")
    service.forgotten = True
    async with open_tab(chrome) as tab:
        await tab.open(address)
        await tab.wait_for(DONE)

        assert f"{url}#document=file-{JOB}" == address
        assert "Invoice" in await tab.text("#panel-overview")
        assert 1 == len(service.forms)
        assert [] == tab.faults


async def test_a_document_can_be_deleted_from_the_service(tab: Tab, service: FakeJobService, file: File) -> None:
    """Deleting forgets the document and its job there and here; the page is ready for the next document."""
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    await tab.click("#forget")
    await tab.wait_for("!document.querySelector('#intake').hidden")

    assert ([JOB], [f"file-{JOB}"]) == (service.deleted_ids, service.deleted_documents)
    assert "" == await tab.run("location.hash")
    assert "The document was deleted from the server." == await tab.run("document.querySelector('#status').textContent")


async def test_a_key_that_may_not_store(tab: Tab, service: FakeJobService, file: File) -> None:
    """Its document is read all the same, and lives as long as its job."""
    service.refusals.append(problem(403, "forbidden", "this key may not write"))
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)

    assert ["true", None] == [form.get("store") for form in service.forms]
    assert "#job=job-2" == await tab.run("location.hash")
    assert await tab.run("document.querySelector('#check').hidden")


async def test_one_click_reads_the_example(tab: Tab, service: FakeJobService) -> None:
    """Who has no invoice at hand sees what the page does with one."""
    await tab.click("#example")
    await tab.wait_for(DONE)

    assert ["example-invoice.pdf"] == [form["name"] for form in service.forms]


async def test_the_same_value_is_listed_once(tab: Tab, service: FakeJobService, file: File) -> None:
    """With how often it stands there; each click leads to the next place."""
    service.data["entities"] = [
        {
            "type": "ORG",
            "text": "Aceros",
            "value": None,
            "score": 0.9,
            "places": [{"page": 1, "box": [60, 60 + 40 * at, 120, 80 + 40 * at]}],
        }
        for at in range(2)
    ]
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)
    await tab.click("#tab-entities")
    assert "Aceros 2\u00d7" == await tab.text(".entity-table tr:not(.type-row) td")
    assert "Organisation (1)" == (await tab.text(".type-row")).strip()

    marks = []
    for _ in range(3):
        await tab.run("document.querySelector('#entity-0').click()")
        marks.append(await tab.run("document.activeElement.dataset.entity"))
    assert ["0", "1", "0"] == marks
