"""Quality of hybrid search: MRR@10 of vectors alone, words alone, and both, on questions and their paragraphs.

    python -m benchmarks.search_quality                       # XQuAD and TAT-QA, with the embedded storage; two minutes
    python -m benchmarks.search_quality --sets xquad-es

Each collection is one vector store. How rankings are joined was chosen with every other question (`tuning`); the
table shows the others. Reciprocal rank fusion joins the same two rankings, for comparison. Exit status 1 when a
language misses the goal: 0.02 more than vectors alone and than words alone.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from backend.bootstrap.services import Services, build
from backend.config import load_settings
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.search.encoder import PASSAGE, QUERY, identity_of
from backend.search.keywords import query_terms
from backend.search.limits import SearchLimits
from backend.search.records import FileRecord, IndexedFile, NewChunk, Ranked, StoreFile, VectorStore
from backend.search.retrieval import SearchService
from backend.search.search_records import SearchOptions
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.vector_stores import VectorStoreService
from backend.text.neutral_vectors import NeutralVectors
from backend.training.data.texts import read_rows
from backend.training.metrics import retrieval_scores
from benchmarks.machine import facts
from benchmarks.search_quality_tables import GAIN, gains_by_language, search_quality_section
from benchmarks.texts import DATA

RESULT = Path(__file__).parent / "results" / "search_quality.json"
_OWNER = "benchmark"
_DEPTH = 100  # chunks of a ranking
_RRF_K = 60  # Cormack, Clarke and Büttcher 2009
_CONCURRENT = 8


@dataclass(frozen=True, slots=True)
class Collection:
    """Paragraphs of one language, and questions that they answer."""

    name: str
    title: str  # in tables
    folder: str
    language: str


COLLECTIONS = (
    Collection("xquad-es", "XQuAD, 120 paragraphs", "retr_xquad", "es"),
    Collection("xquad-en", "XQuAD, 120 paragraphs", "retr_xquad", "en"),
    Collection("tatqa", "TAT-QA, 1,575 tables and paragraphs", "retr_tatqa", "en"),
)


@dataclass(frozen=True, slots=True)
class Score:
    """MRR@10 of one method on half of the questions of a collection."""

    collection: str
    title: str
    language: str
    half: str  # "tuning" or "held out"
    method: str  # "vectors", "words", "rrf", "hybrid"
    mrr: float
    questions: int


async def measure(collections: Sequence[Collection], data: Path, folder: Path) -> dict[str, Any]:
    """Index and search all collections; the content of the result file beside ``facts``."""
    services = await build(load_settings(state_dir=folder / "state"))
    storage = SqliteStorage(SqliteOptions(folder / "search"))
    await storage.start()
    search = _service(services, storage)
    try:
        scores = [score for one in collections for score in await _scores_of(services, storage, search, one, data)]
        model = services.catalog.embedding()
        return {"model": model.name, "storage": storage.report()["kind"], "rows": [asdict(score) for score in scores]}
    finally:
        await storage.close()
        await services.close()


def _service(services: Services, storage: SqliteStorage) -> SearchService:
    stores = VectorStoreService(
        storage, services.catalog, SearchLimits(), on_added=lambda: None, on_reembed=lambda: None, now=lambda: 0.0
    )
    return SearchService(
        stores,
        storage,
        services.catalog,
        services.embeddings,
        neutral=NeutralVectors(services.embeddings),
        reranking=services.reranking,
        telemetry=services.telemetry,
        now=lambda: 0.0,
    )


async def _scores_of(
    services: Services, storage: SqliteStorage, search: SearchService, collection: Collection, data: Path
) -> list[Score]:
    folder = data / collection.folder
    paragraphs = _texts(folder / f"{collection.language}_corpus.jsonl")
    questions = _texts(folder / f"{collection.language}_queries.jsonl")
    index_of = {name: index for index, name in enumerate(paragraphs)}
    relevant: dict[str, set[int]] = defaultdict(set)
    for _, row in read_rows(folder / "qrels.tsv"):
        relevant[str(row["query_id"])].add(index_of[str(row["doc_id"])])
    await _index(services, storage, collection, list(paragraphs.values()))
    asked = [(text, relevant[name]) for name, text in questions.items() if relevant[name]]
    started_s = time.perf_counter()
    ranked = await _rankings(services, storage, search, collection, [text for text, _ in asked])
    print(f"{collection.name}: {len(asked)} questions, {time.perf_counter() - started_s:.1f} s", file=sys.stderr)
    return [
        Score(collection.name, collection.title, collection.language, half, method, *_mrr(rankings, asked, first))
        for method, rankings in ranked.items()
        for half, first in (("tuning", 0), ("held out", 1))
    ]


def _texts(file: Path) -> dict[str, str]:
    return {str(row["id"]): str(row["text"]) for _, row in read_rows(file)}


def _mrr(rankings: Sequence[Sequence[int]], asked: Sequence[tuple[str, set[int]]], first: int) -> tuple[float, int]:
    wanted = [answers for _, answers in asked[first::2]]
    return retrieval_scores(rankings[first::2], wanted, cutoffs=(1, 10)).scores["mrr@10"], len(wanted)


async def _index(services: Services, storage: SqliteStorage, collection: Collection, texts: Sequence[str]) -> None:
    """The paragraphs as the chunks of one file."""
    model, name = services.catalog.embedding(), collection.name
    embedded = await services.embeddings.embed_in_chunks(model, texts, PASSAGE, Urgency())
    encoder = identity_of(model)
    chunks = [NewChunk(index, 0, len(text), text, len(text.split()), ()) for index, text in enumerate(texts)]
    indexed = IndexedFile(chunks, embedded.vectors, encoder, language=collection.language)
    await storage.add_store(VectorStore(name, _OWNER, name, 0.0, 0.0))
    with closing(StoredFile.of(b"", FileLimits())) as content:
        await storage.add_file(FileRecord(f"file-{name}", _OWNER, name, 0, "", "assistants", 0.0), content)
    await storage.attach([StoreFile(name, f"file-{name}", name, 0.0)])
    claim = await storage.claim(encoder, 600.0)
    if claim is None or not await storage.finish(claim, indexed):
        sys.exit(f"{name} was not indexed")


async def _rankings(
    services: Services, storage: SqliteStorage, search: SearchService, collection: Collection, questions: Sequence[str]
) -> dict[str, list[list[int]]]:
    """Of each method, the paragraphs of each question, best first: the storage's rankings, and the service's answer."""
    store = await storage.store(_OWNER, collection.name)
    if store is None:
        sys.exit(f"{collection.name} was not indexed")
    index_of = {chunk.id: chunk.index async for chunk in storage.file_chunks(store.id, f"file-{store.id}")}
    model, turns = services.catalog.embedding(), asyncio.Semaphore(_CONCURRENT)
    embedded = await services.embeddings.embed_in_chunks(model, questions, QUERY, Urgency())

    async def served(question: str) -> list[int]:
        async with turns:
            answer = await search.search(_OWNER, store.id, [question], SearchOptions(), Urgency())
        return [hit.chunk.index for hit in answer.hits]

    def indices(ranked: Sequence[Ranked]) -> list[int]:
        return [index_of[one.chunk_id] for one in ranked]

    vectors = [indices(await storage.nearest(store, vector, None, _DEPTH)) for vector in embedded.vectors]
    words = [indices(await storage.matching(store, query_terms(question), None, _DEPTH)) for question in questions]
    return {
        "vectors": vectors,
        "words": words,
        "rrf": [reciprocal_rank_fusion(pair) for pair in zip(vectors, words, strict=True)],
        "hybrid": await asyncio.gather(*map(served, questions)),
    }


def reciprocal_rank_fusion(rankings: Sequence[Sequence[int]], k: int = _RRF_K) -> list[int]:
    """The sum of 1/(k + place) decides."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for place, item in enumerate(ranking, 1):
            scores[item] += 1 / (k + place)
    return sorted(scores, key=lambda item: -scores[item])


def main() -> None:
    """Measure, print the table, write the result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [collection.name for collection in COLLECTIONS]
    parser.add_argument("--sets", nargs="+", choices=names, default=names)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of sets (default: %(default)s)")
    parser.add_argument("--out", type=Path, help=f"where the result goes (default for all sets: results/{RESULT.name})")
    flags = parser.parse_args()
    environment = facts()
    collections = [collection for collection in COLLECTIONS if collection.name in flags.sets]
    with (
        tempfile.TemporaryDirectory(prefix="search-quality-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        result = {**environment, **runner.run(measure(collections, flags.data, Path(folder)))}
    print(search_quality_section(result))
    if out := flags.out or (RESULT if flags.sets == names else None):
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(any(gain < GAIN for gain in gains_by_language(result).values()))


if __name__ == "__main__":
    main()
