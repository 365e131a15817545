"""One real service for all tests of this folder: `python -m backend.main`, its engines, its reader processes."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser.chrome import Chrome
from tests.clients.server import QUICK, LiveServer, run_server


@pytest.fixture(scope="session")
def served(state_dir: Path) -> Iterator[LiveServer]:
    """The service with its defaults, and quick arithmetic."""
    with run_server(state_dir, **QUICK) as server:
        yield server


@pytest.fixture
def client(served: LiveServer) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    """A browser of its own: what one test stores another does not see."""
    browser = Chrome(tmp_path / "profile")
    yield browser
    browser.close()
