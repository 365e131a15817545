"""One real service for all client tests, and one that requires a key."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.server import QUICK, LiveServer, run_server


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    """Close connections by garbage collection: LangChain's and LlamaIndex' clients never do."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def live_server(state_dir: Path) -> Iterator[LiveServer]:
    """The service as ``make serve`` starts it, with a fixed runtime and precision."""
    with run_server(state_dir, **QUICK) as server:
        yield server


@pytest.fixture(scope="session")
def guarded_server(state_dir: Path, live_server: LiveServer) -> Iterator[LiveServer]:
    """The service with a key, small limits, and the measurement of the first one."""
    del live_server  # started before, so that its measurement is there
    limits = {"LIMIT_INPUTS": "8", "LIMIT_BODY_BYTES": "100000"}
    with run_server(state_dir, API_KEYS="right-key", **limits, **QUICK) as server:
        yield server
