"""Hostile text in documents: it must not run, become markup, or be sent elsewhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.drawn_documents import HOSTILE
from tests.browser.fake_job_service import FakeJobService, problem

pytestmark = pytest.mark.chromium
File = Callable[[str], Path]
DONE = "!document.querySelector('#forget').hidden"
NAME = "<img src=x onerror=document.title='owned'>.pdf"


async def test_markup_in_a_document_is_text(tab: Tab, url: str, file: File) -> None:
    """Markup in the name, text, entities, classes, phrases and properties is shown as it is and never runs."""
    await tab.choose_file(file(NAME))
    await tab.wait_for(DONE)
    await tab.wait_for("document.querySelector('#page-1 img').naturalWidth")

    assert NAME == await tab.text("#file-name")
    assert f"{NAME} · FinancIA" == await tab.run("document.title")
    for name, times in (("overview", 4), ("entities", 1), ("text", 1)):
        await tab.click(f"#tab-{name}")
        text = await tab.run(f"document.querySelector('#panel-{name}').textContent")
        assert times == text.count(HOSTILE), name
    pictures = await tab.run("[...document.querySelectorAll('img')].map(one => one.src).filter(Boolean)")
    assert [] == [source for source in pictures if not source.startswith(("blob:", url))]
    assert [] == [address for address in tab.requests if not address.startswith(("blob:", url))]


async def test_markup_in_an_error_is_text(tab: Tab, service: FakeJobService, file: File) -> None:
    """Markup in the service's message is shown as text too."""
    service.refusals.append(problem(422, "unreadable_file", f"the file {HOSTILE} is broken"))
    await tab.choose_file(file("a.pdf"))
    await tab.wait_for("document.querySelector('[role=alert]')")

    await tab.click("[role=alert] summary")
    assert HOSTILE in await tab.text("[role=alert]")
    assert 0 == await tab.run("document.querySelectorAll('[role=alert] img').length")


async def test_the_policy_blocks_mistakes(chrome: Chrome, url: str) -> None:
    """The policy blocks strings as HTML, inline scripts and foreign addresses, should the page ever use them."""
    async with open_tab(chrome) as tab:
        await tab.open(url)
        refusals = [
            "document.body.innerHTML = '<b>'",
            "document.body.setAttribute('onclick', 'window.owned = 1')",
            "eval('window.owned = 1')",
            "document.body.append(Object.assign(document.createElement('script'), {text: 'window.owned = 1'}))",
        ]
        for mistake in refusals:
            assert await tab.run(
                f"(() => {{ try {{ {mistake}; return ''; }} catch (error) {{ return error.name; }} }})()"
            ), mistake
        picture = """new Promise(settle => {
            const image = document.createElement('img');
            image.onload = () => settle("loaded");
            image.onerror = () => settle("refused");
            image.src = "http://127.0.0.1:9/x.png";
        })"""

        assert "refused" == await tab.run(picture)
        assert "TypeError" == await tab.run("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)")
        assert await tab.run("window.owned === undefined")
        for directive in ("img-src", "connect-src"):
            assert [fault for fault in tab.faults if directive in fault], directive
