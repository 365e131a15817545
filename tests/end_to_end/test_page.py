"""The page of the running service in a browser: a dropped scan and its results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chrome import Chrome, open_tab
from tests.clients.server import LiveServer
from tests.end_to_end.client import MARKS
from tests.end_to_end.invoices import SPANISH

pytestmark = [*MARKS, pytest.mark.chromium, pytest.mark.slow]
DONE = "!document.querySelector('#forget').hidden"


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    browser = Chrome(tmp_path / "profile")
    yield browser
    browser.close()


async def test_a_dropped_scan(served: LiveServer, chrome: Chrome, tmp_path: Path) -> None:
    """Its image with words, its class and language, and its entities; keeps a screenshot."""
    scan = tmp_path / "factura.pdf"
    scan.write_bytes(SPANISH.scanned_pdf)
    async with open_tab(chrome) as tab:
        await tab.open(f"{served.url}/")
        await tab.drop_file(scan)
        await tab.wait_for(DONE)
        await tab.wait_for("document.querySelector('#page-1 img').naturalWidth")
        overview = await tab.text("#panel-overview")
        await tab.run("document.querySelector('#tab-entities').click()")
        entities = await tab.text("#panel-entities")
        (tmp_path / "dropped.png").write_bytes(await tab.screenshot())
        words = await tab.run("document.querySelectorAll('#page-1 .words rect').length")
        faults = tab.faults

    assert all(text in overview for text in ("Invoice", "Spanish"))
    assert all(text in entities for text in ("ES91 2100 0418 4502 0005 1332", "María García López", "12345678Z"))
    assert len(SPANISH.text.split()) == words
    assert (tmp_path / "dropped.png").stat().st_size > 10_000
    assert [] == faults
