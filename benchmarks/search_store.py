"""This service's embedded storage as the search benchmark drives it: without models, the vectors are given."""

import asyncio
import hashlib
from collections.abc import Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.search.filters import Comparison
from backend.search.keywords import query_terms
from backend.search.records import (
    EncoderIdentity,
    FileRecord,
    IndexedFile,
    NewChunk,
    Ranked,
    StoredChunk,
    StoreFile,
    VectorStore,
)
from backend.search.retrieval import Ranking, fuse
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from benchmarks.search_corpus import CHUNKS_OF_A_FILE, Chunk, Corpus, Filter, Vectors, attributes_of

OWNER, STORE = "benchmark", "vs_benchmark"
_CANDIDATES = 100  # of each ranking, as `SearchService` takes
_LEASE_S = 600.0
_UNRELATED, _MIN_RANGE = 0.7, 0.06  # of the fusion: about what E5's calibration says
T = TypeVar("T")


class OurStore:
    """A `StoreUnderTest` (benchmarks/search_contestant.py). A file has CHUNKS_OF_A_FILE chunks."""

    keeps_words = True

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._encoder = EncoderIdentity(**corpus.encoder)
        self._storage = SqliteStorage(SqliteOptions(folder))
        self._run(self._storage.start())
        self._record = self._run(self._storage.store(OWNER, STORE))
        if self._record is None:
            self._run(self._storage.add_store(VectorStore(STORE, OWNER, "benchmark", 0.0, 0.0)))

    @staticmethod
    def version() -> str:
        return ""

    def close(self) -> None:
        self._run(self._storage.close())
        self._runner.close()

    def add(self, first: int, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        self._run(self._add(first, chunks, vectors))

    def count(self) -> int:
        self._record = self._run(self._storage.store(OWNER, STORE))
        return 0 if self._record is None else self._record.chunks

    def texts(self, rows: Sequence[int]) -> list[str | None]:
        """Chunk ids begin with 1 and have no gaps here: nothing was deleted, files were added in order."""
        found = {
            chunk.id - 1: chunk.text for chunk in self._run(self._storage.chunks(STORE, [row + 1 for row in rows]))
        }
        return [found.get(row) for row in rows]

    def vector(self, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        return self._run(self._hits(self._nearest(vector, where, limit), limit))

    def keyword(self, text: str, where: Filter | None, limit: int) -> list[int]:
        return self._run(self._hits(self._matching(text, where, limit), limit))

    def hybrid(self, text: str, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        return self._run(self._hits(self._fused(text, vector, where), limit))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _add(self, first: int, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        storage = self._storage
        attached = []
        for start in range(0, len(chunks), CHUNKS_OF_A_FILE):
            number = (first + start) // CHUNKS_OF_A_FILE
            file_id, content = (
                f"file-{number:07}",
                "\n\n".join(chunk.text for chunk in chunks[start : start + CHUNKS_OF_A_FILE]).encode(),
            )
            sha256 = hashlib.sha256(content).hexdigest()
            with closing(StoredFile.of(content, FileLimits())) as stored:
                record = FileRecord(file_id, OWNER, f"{number}.txt", len(content), sha256, "assistants", float(number))
                await storage.add_file(record, stored)
            attributes = attributes_of(first + start)
            attached.append(StoreFile(STORE, file_id, f"{number}.txt", float(number), attributes=attributes))
        await storage.attach(attached)
        for start in range(0, len(chunks), CHUNKS_OF_A_FILE):
            claim = await storage.claim(self._encoder, _LEASE_S)
            part = slice(start, start + CHUNKS_OF_A_FILE)
            assert claim is not None, "what was attached waits"
            if not await storage.finish(claim, self._indexed(chunks[part], vectors[part])):
                raise RuntimeError(f"{claim.file.file_id} was not stored")

    def _indexed(self, chunks: Sequence[Chunk], vectors: Vectors) -> IndexedFile:
        stored, start = [], 0
        for index, chunk in enumerate(chunks):
            end = start + len(chunk.text)
            stored.append(NewChunk(index, start, end, chunk.text, len(chunk.text) // 4, ()))
            start = end + 2
        return IndexedFile(stored, vectors, self._encoder, language=chunks[0].language)

    async def _nearest(self, vector: Vectors, where: Filter | None, limit: int) -> list[Ranked]:
        assert self._record is not None, "count() was called before"
        return await self._storage.nearest(self._record, vector, comparison(where), limit)

    async def _matching(self, text: str, where: Filter | None, limit: int) -> list[Ranked]:
        assert self._record is not None, "count() was called before"
        return await self._storage.matching(self._record, query_terms(text), comparison(where), limit)

    async def _fused(self, text: str, vector: Vectors, where: Filter | None) -> list[Ranked]:
        nearest, matching = await asyncio.gather(
            self._nearest(vector, where, _CANDIDATES), self._matching(text, where, _CANDIDATES)
        )
        return fuse([Ranking(nearest, 1.0, _UNRELATED, _MIN_RANGE), Ranking(matching)])

    async def _hits(self, ranking: Coroutine[Any, Any, list[Ranked]], limit: int) -> list[int]:
        """The rows of the best chunks, which are read with their texts."""
        ranked = await ranking
        chunks = await self._storage.chunks(STORE, [one.chunk_id for one in ranked[:limit]])
        return [_row(chunk) for chunk in chunks]


def _row(chunk: StoredChunk) -> int:
    return int(chunk.file_id.removeprefix("file-")) * CHUNKS_OF_A_FILE + chunk.index


def comparison(where: Filter | None) -> Comparison | None:
    """The filter as the storage and the service take it."""
    return where and Comparison(where.name, "eq", float(where.value))
