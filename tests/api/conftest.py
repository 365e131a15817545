"""The app over services that answer without a model, and a client that talks to it in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from backend.api.app import create_app
from backend.api.deps import ApiOptions
from tests.api.fakes import FakeServices, fake_services

Connect = Callable[..., Any]  # async context manager -> httpx.AsyncClient


@pytest.fixture
def services() -> FakeServices:
    """Services that a test may turn before or between requests."""
    return fake_services()


@asynccontextmanager
async def connect(services: FakeServices, options: ApiOptions | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app over ``services``. An exception that leaves the app fails the test."""
    transport = httpx.ASGITransport(create_app(services, options))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.fixture
async def client(services: FakeServices) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app as it is by default."""
    async with connect(services) as client:
        yield client
