"""A browser for the session, and the web page on a real uvicorn over a fake service."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab, served
from tests.browser.fake_hearing import FakeHearing, tone
from tests.browser.fake_job_service import FakeJobService
from tests.browser.fake_library import FakeLibrary


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One browser for all tests; each opens a tab in a context of its own."""
    browser = Chrome(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
async def service() -> FakeJobService:
    """The service behind the page; a test changes it before or while the page is used."""
    return FakeJobService()


@pytest.fixture
def library(service: FakeJobService) -> FakeLibrary:
    """Its files and collections."""
    return service.library


@pytest.fixture
def hearing(service: FakeJobService) -> FakeHearing:
    """Its speech model."""
    return service.hearing


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A recording of eight seconds."""
    path = tmp_path / "llamada.wav"
    path.write_bytes(tone())
    return path


@pytest.fixture
async def url(service: FakeJobService) -> AsyncIterator[str]:
    """The page's URL."""
    async with served(service.app()) as url:
        yield url


@pytest.fixture
async def tab(chrome: Chrome, url: str) -> AsyncIterator[Tab]:
    """A tab with the page in English. Every test fails if the page threw an error or broke its own policy."""
    async with open_tab(chrome) as tab:
        await tab.open(url)
        yield tab
        assert [] == tab.faults


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a file of a name; the page does not read its content."""

    def write(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(b"%PDF-1.7 stands for a document")
        return path

    return write
