"""The page when the key, the file, the service or the network fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.drawn_documents import invoice, letter
from tests.browser.fake_job_service import JOB, FakeJobService, problem

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]
DONE = "!document.querySelector('#forget').hidden"
ALERT = "document.querySelector('[role=alert]')"
ASKED = "document.querySelector('#secret').open"


async def _answer(tab: Tab, secret: str) -> None:
    await tab.wait_for(ASKED)
    await tab.type(secret)
    await tab.press("Enter")


async def test_the_key_is_asked_for_when_the_service_wants_one(tab: Tab, service: FakeJobService, file: File) -> None:
    """401 brings up the key's field, a wrong key brings it up again; the key stays in this tab's session only."""
    service.key = "right"
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(ASKED)
    assert "A key is needed" == await tab.text("#secret-title")
    await _answer(tab, "wrong")
    await tab.wait_for(f"{ASKED} && document.querySelector('#secret-why').innerText.includes('not accepted')")
    await _answer(tab, "right")
    await tab.wait_for(DONE)
    await tab.wait_for("document.querySelector('#page-1 img').naturalWidth")

    assert "right" == await tab.run("sessionStorage.getItem('api-key')")
    assert 0 == await tab.run("localStorage.length + document.cookie.length")


async def test_without_a_key_nothing_is_lost(tab: Tab, service: FakeJobService, file: File) -> None:
    """After closing the dialog the file is still there and can be sent again."""
    service.key = "right"
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(ASKED)
    await tab.press("Escape")
    await tab.wait_for("!document.querySelector('#again').hidden")
    await tab.click("#again")
    await _answer(tab, "right")
    await tab.wait_for(DONE)

    assert ["a.pdf"] == [form["name"] for form in service.forms]


async def test_a_large_file_waits_for_the_key(tab: Tab, service: FakeJobService, tmp_path: Path) -> None:
    """A refusal in the middle of a long upload would look like a broken line, so the key is proved before it."""
    service.key = "right"
    large = tmp_path / "large.pdf"
    large.write_bytes(bytes(300_000))
    await tab.choose_file(large)
    await tab.wait_for(ASKED)

    assert [] == [url for url in tab.requests if url.endswith("/v1/jobs")]
    await _answer(tab, "right")
    await tab.wait_for(DONE)


async def test_the_password_is_asked_for_when_the_file_wants_one(tab: Tab, service: FakeJobService, file: File) -> None:
    """A locked document asks for its password until one opens it; the file is sent again with it."""
    service.password = "sésamo"
    await tab.choose_file(file("locked.pdf"))
    await tab.wait_for(ASKED)
    assert "locked.pdf is locked" == await tab.text("#secret-title")
    await _answer(tab, "wrong")
    await tab.wait_for(f"{ASKED} && document.querySelector('#secret-why').innerText.includes('does not open')")
    await _answer(tab, "sésamo")
    await tab.wait_for("document.querySelector('.bars')")

    assert [None, "wrong", "sésamo"] == [form.get("password") for form in service.forms]
    assert "sésamo" not in await tab.run("location.href + JSON.stringify({...sessionStorage, ...localStorage})")


async def test_a_refusal_is_explained(tab: Tab, service: FakeJobService, file: File) -> None:
    """The page says what is wrong and what to do, quotes the service where one asks, and can send the file again."""
    service.refusals.append(problem(413, "too_large", "pages: 300 is over the limit of 200 (LIMIT_PAGES)"))
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(ALERT)

    assert "300 is over" not in await tab.text("[role=alert]")
    await tab.click("[role=alert] summary")
    alert = await tab.text("[role=alert]")
    for words in ("over a limit", "Send fewer pages", "300 is over the limit of 200", "r-1"):
        assert words in alert
    await tab.click("#again")
    await tab.wait_for(DONE)
    assert await tab.run(f"{ALERT} === null")


async def test_a_wrong_option_can_be_corrected(tab: Tab, service: FakeJobService, file: File) -> None:
    """After a refused option the options are there, open, and the same file goes again with what was changed."""
    service.refusals.append(problem(422, "invalid_field", "pages: 9-7 runs backwards"))
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#pages').checkVisibility()")
    await tab.click("#pages")
    await tab.type("7-9")
    await tab.click("#again")
    await tab.wait_for(DONE)

    assert [None, "7-9"] == [form.get("pages") for form in service.forms]
    assert await tab.run("!document.querySelector('#pages').checkVisibility()")


async def test_an_unknown_error(tab: Tab, service: FakeJobService, file: File) -> None:
    """An error code that the page does not know is shown with the service's message."""
    service.refusals.append(problem(500, "something_new", "the flux is low"))
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(ALERT)

    await tab.click("[role=alert] summary")
    assert "the flux is low" in await tab.text("[role=alert]")


async def test_a_busy_service_is_waited_for(tab: Tab, service: FakeJobService, file: File) -> None:
    """429 and 503 are no errors: the page says so and tries again, at once if asked to."""
    service.refusals.append(problem(503, "unavailable", "loading", Retry_After="30"))
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('[data-kind=wait]')")
    assert "The service is busy. Trying again in 30 sec." == await tab.text("[data-kind=wait] p")
    await tab.click("[data-kind=wait] button")
    await tab.wait_for(DONE)

    assert 2 == len(service.forms)
    assert await tab.run("document.querySelector('[data-kind=wait]') === null")


async def test_a_lost_network_loses_nothing(tab: Tab, service: FakeJobService, file: File) -> None:
    """Without a network the file waits; when it is back the file is sent."""
    await tab.offline(on=True)
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('[data-kind=wait]')")
    assert "nothing is lost" in await tab.text("[data-kind=wait]")
    await tab.offline(on=False)
    await tab.wait_for(DONE)

    assert ["a.pdf"] == [form["name"] for form in service.forms]


async def test_a_broken_stream_goes_on_where_it_was(tab: Tab, service: FakeJobService, file: File) -> None:
    """A stream that ends too soon is opened again with the id of the last event."""
    service.pages, service.cut_after = [letter(1), letter(2), invoice()], 3
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)

    assert [None, "3"] == service.resumed_from
    assert 3 == await tab.run("document.querySelectorAll('.page').length")


async def test_a_stream_that_broke_at_the_end(tab: Tab, service: FakeJobService, file: File) -> None:
    """204 to a stream that resumes means that nothing more comes: the page fetches the result."""
    service.pages, service.cut_after, service.ended_meanwhile = [letter(1), invoice()], 2, True
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)

    assert [None, "2"] == service.resumed_from
    assert 2 == await tab.run("document.querySelectorAll('.page').length")


async def test_cancelling_keeps_what_was_read(tab: Tab, service: FakeJobService, file: File) -> None:
    """Cancel ends the job in the service; the pages read until then stay, and can be saved."""
    service.pages, service.step_by_step = [invoice(), letter(2)], True
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#progress-text').innerText.startsWith('Waiting')")
    await service.read_page()
    await tab.wait_for("document.querySelector('#page-1')")
    await tab.click("#cancel")
    await tab.wait_for(DONE)

    assert [JOB] == service.deleted_ids
    assert "Cancelled. What was read until then is shown." == await tab.text("[data-kind=ended]")
    assert 1 == await tab.run("document.querySelectorAll('.page').length")
    await tab.click("#tab-entities")
    assert "This was not looked for." == await tab.text("#panel-entities")
    await tab.click("#tab-downloads")
    assert 9 == await tab.run("document.querySelectorAll('.download').length")
    assert await tab.run("!document.querySelector('#again').hidden")


async def test_pages_that_could_not_be_read_are_listed(tab: Tab, service: FakeJobService, file: File) -> None:
    """A page that failed is listed with its reason; the others are shown."""
    service.pages, service.failed = [invoice(), letter(2), letter(3)], (3,)
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for(DONE)

    await tab.click("[data-kind=pages] summary")
    alert = await tab.text("[data-kind=pages]")
    assert "1 page could not be read" in alert
    assert "Page 3: The file is broken or incomplete." in alert
    assert "page 3: the picture is cut off" in alert
    assert 2 == await tab.run("document.querySelectorAll('.page').length")
    status = await tab.run("document.querySelector('#status').textContent")
    assert "Done: 2 pages read, 1 could not be read." == status


async def test_a_job_that_fails_keeps_its_pages(tab: Tab, service: FakeJobService, file: File) -> None:
    """A job that ends with an error shows both the error and what it had read."""
    service.pages, service.step_by_step = [invoice(), letter(2)], True
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('#progress-text').innerText.startsWith('Waiting')")
    await service.read_page()
    await service.finish("failed", {"message": "not ended within 5 s", "code": "deadline_exceeded", "status": 504})
    await tab.wait_for(ALERT)

    await tab.click("[role=alert] summary")
    assert "not ended within 5 s" in await tab.text("[role=alert]")
    assert 1 == await tab.run("document.querySelectorAll('.page').length")


async def test_an_address_of_a_forgotten_job(chrome: Chrome, url: str, service: FakeJobService, file: File) -> None:
    """The page says that a job has expired, and takes the next document."""
    service.forgotten = True
    async with open_tab(chrome) as tab:
        await tab.open(f"{url}#job=long-ago")
        await tab.wait_for(ALERT)

        assert "does not have this any more" in await tab.text("[role=alert]")
        service.forgotten = False
        await tab.choose_file(file("next.pdf"))
        await tab.wait_for(DONE)
        assert [] == tab.faults
