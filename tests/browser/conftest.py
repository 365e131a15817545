"""A browser for the session, and the page served to it by a real uvicorn over a service that a test plays."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import uvicorn

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.stand_in import StandIn


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One browser for all tests; each opens a tab in a context of its own."""
    browser = Chrome(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
async def service() -> StandIn:
    """The service behind the page; a test changes it before or while the page is used."""
    return StandIn()


@pytest.fixture
async def url(service: StandIn) -> AsyncIterator[str]:
    """Where the page is."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(service.app(), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    )
    serving = asyncio.create_task(server._serve([listening]))  # serve() would take the signals of the test run
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    await serving
    listening.close()


@pytest.fixture
async def tab(chrome: Chrome, url: str) -> AsyncIterator[Tab]:
    """The page in English, open. A test fails if the page threw or broke its own policy, whatever else it checked."""
    async with open_tab(chrome) as tab:
        await tab.open(url)
        yield tab
        assert [] == tab.faults


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """A file of this name; what is in it does not matter to the page."""

    def write(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(b"%PDF-1.7 stands for a document")
        return path

    return write
