"""Fixtures: files, vector stores and indexing over an engine of fixed vectors and an embedded storage."""

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from backend.search.limits import SearchLimits
from tests.documents.conftest import documents, file_readers
from tests.search.search_stack import SearchStack, open_stack
from tests.text.conftest import build, scorers
from tests.text.service_stack import ServiceStack, VectorEngine

__all__ = ["build", "documents", "file_readers", "scorers"]

Open = Callable[..., Coroutine[Any, Any, SearchStack]]


@pytest.fixture
async def open_search(build: Callable[..., ServiceStack], tmp_path: Path) -> AsyncIterator[Open]:
    """Build the services: ``await open_search(engine, limits=SearchLimits(…))``."""
    opened: list[SearchStack] = []

    async def run(engine: Any = None, *, limits: SearchLimits | None = None, **changes: Any) -> SearchStack:
        stack = build(engine or VectorEngine(budget=10_000), **changes)
        opened.append(await open_stack(stack, tmp_path, limits or SearchLimits()))
        return opened[-1]

    yield run
    for search in opened:
        await search.close()


@pytest.fixture
async def search(open_search: Open) -> SearchStack:
    return await open_search()
