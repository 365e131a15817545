"""The app over fake services, and a client that calls it in process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from backend.api.app import create_app
from backend.api.request_context import ApiOptions
from tests.api.fakes import FakeServices, fake_services


@pytest.fixture
async def services(request: pytest.FixtureRequest) -> AsyncIterator[FakeServices]:
    """Services that a test may change before or between requests; with the ``API_LIMITS`` of its module, if any."""
    limits = getattr(request.module, "API_LIMITS", None)
    services = fake_services() if limits is None else fake_services(limits=limits)
    yield services
    await services.storage.close()


@asynccontextmanager
async def connect(services: FakeServices, options: ApiOptions | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app over ``services``. An exception that leaves the app fails the test."""
    transport = httpx.ASGITransport(create_app(services, options))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client
    await services.storage.close()


@pytest.fixture
async def client(services: FakeServices) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app with default options."""
    async with connect(services) as client:
        yield client
