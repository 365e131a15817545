"""The document store on a PostgreSQL server with pgvector. Replicas share it; what one writes, all see."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from backend.files.limits import FileLimits
from backend.search.postgres.connections import ConnectionLimits, PostgresConnections
from backend.search.postgres.files import PostgresFiles
from backend.search.postgres.indexing import PostgresIndexing
from backend.search.postgres.ranking import PostgresRanking
from backend.search.postgres.stores import SQL, PostgresStores
from backend.supervision import Supervisor


class PostgresSearchStorage(PostgresFiles, PostgresStores, PostgresIndexing, PostgresRanking):
    """Of four parts, each of which knows its tables.

    The service starts without the server: calls raise Unavailable until it is there.

    Args:
        url: SEARCH_URL.
        limits: of files; one that is kept already may be larger.

    Raises: BadSettings for a bad URL.
    """

    def __init__(
        self,
        url: str,
        limits: FileLimits,
        *,
        connections: ConnectionLimits | None = None,
        supervisor: Supervisor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._postgres = PostgresConnections(url, connections or ConnectionLimits(), clock=clock)

        self._limits = limits
        super().__init__(self._postgres, SQL, supervisor)

    async def start(self) -> None:
        await self._postgres.start()
        if self._postgres.facts is not None:
            self._sweeper.wake()

    async def close(self) -> None:
        await self._sweeper.close()
        await self._postgres.close()

    def report(self) -> dict[str, Any]:
        facts = self._postgres.facts
        report: dict[str, Any] = {"kind": "postgres", "where": self._postgres.address, "writes": True}
        if facts is None:
            return {**report, "reached": False}
        versions = {"postgres": facts.version, "pgvector": facts.pgvector, "vectors": facts.vector_type}
        return {**report, "reached": True, **versions}
