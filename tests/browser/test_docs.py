"""The documentation at /docs in a browser without internet: it draws itself, and a request can be tried."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from backend.api.app import create_app
from backend.api.request_context import ApiOptions
from tests.api.fakes import fake_services
from tests.browser.chrome import Chrome, open_tab, served

pytestmark = pytest.mark.chromium
LIVE = "#operations-operations-live_health_live_get"
OPENED = "#/operations/live_health_live_get"  # Swagger UI draws what is in view alone, of so many operations


@pytest.fixture
async def docs_url() -> AsyncIterator[str]:
    """The documentation of a whole app over fake services."""
    async with served(create_app(fake_services(), ApiOptions())) as url:
        yield f"{url}docs"


async def test_it_needs_nothing_from_elsewhere(chrome: Chrome, docs_url: str) -> None:
    """An operation is opened by its address and sent, and nobody but the service was asked for anything."""
    async with open_tab(chrome) as tab:
        await tab.send("Page.navigate", url=f"{docs_url}{OPENED}")
        await tab.wait_for(f"document.querySelector('{LIVE}')")
        for button in (".try-out__btn", ".execute"):
            await tab.wait_for(f"document.querySelector('{LIVE} {button}')")
            await tab.run(f"document.querySelector('{LIVE} {button}').click()")
        await tab.wait_for(f"document.querySelector('{LIVE} .live-responses-table tbody')")

        status = await tab.text(f"{LIVE} .live-responses-table tbody .response-col_status")
        assert "200" == status.split()[0]
        hosts = {urlsplit(url).netloc for url in tab.requests if not url.startswith("data:")}
        assert {urlsplit(docs_url).netloc} == hosts
        assert [] == tab.faults
