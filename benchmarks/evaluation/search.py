"""Evaluates hybrid search: vectors alone, words alone, and both, on questions and the paragraphs that answer them.

Each collection is one vector store of the embedded storage. How rankings are joined was chosen with every other
question; rows are of the others. Reciprocal rank fusion joins the same two rankings, for comparison.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.bootstrap.services import Services
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.search.document_chunks import PASSAGE, QUERY, identity_of
from backend.search.keywords import query_terms
from backend.search.limits import SearchLimits
from backend.search.records import FileRecord, IndexedFile, NewChunk, Ranked, StoreFile, VectorStore
from backend.search.retrieval import SearchOptions, SearchService
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.vector_stores import VectorStoreService
from backend.text.neutral_vectors import NeutralVectors
from backend.training.metrics import retrieval_scores
from benchmarks.evaluation.records import SEARCH, Evaluation, EvaluationContext, Row
from benchmarks.evaluation.text_tasks import RankingSet, RankingTask, ranking_task, run_all

GAIN = 0.02  # of MRR@10 over vectors alone and over words alone, on all questions of a language
ALL_QUESTIONS = "all questions"
COLLECTIONS = (
    RankingSet("es", "XQuAD, 120 paragraphs", "retr_xquad", "es", "es"),
    RankingSet("en", "XQuAD, 120 paragraphs", "retr_xquad", "en", "en"),
    RankingSet("finance", "TAT-QA, 1,575 tables and paragraphs", "retr_tatqa", "en", "en"),
)
_OWNER = "benchmark"
_DEPTH = 100  # chunks of a ranking
_RRF_K = 60  # Cormack, Clarke and Büttcher 2009


async def evaluate_search(context: EvaluationContext) -> list[Row]:
    """A row for each collection, and one for all questions of each language. Raises: NotMeasured."""
    with TemporaryDirectory(prefix="search-quality-") as folder:
        storage = SqliteStorage(SqliteOptions(Path(folder)))
        await storage.start()
        try:
            rows = [await _row(context, storage, collection) for collection in COLLECTIONS]
        finally:
            await storage.close()
    return [*rows, *(_together([row for row in rows if row.language == language]) for language in ("es", "en"))]


async def _row(context: EvaluationContext, storage: SqliteStorage, collection: RankingSet) -> Row:
    services, task = context.services, ranking_task(context, collection, None)
    await _index(services, storage, collection, task)
    ranked = await _rankings(services, storage, collection, task)
    parts = {method: _mrr(rankings[1::2], task.relevant[1::2]) for method, rankings in ranked.items()}
    model, count = services.catalog.embedding().name, len(task.relevant[1::2])
    parts["tuning"] = _mrr(ranked["served"][::2], task.relevant[::2])
    served = parts.pop("served")
    return Row(SEARCH, collection.title, collection.language, "MRR@10", served, count, None, model, parts)


def _mrr(rankings: Sequence[Sequence[int]], relevant: Sequence[set[int]]) -> float:
    return retrieval_scores(rankings, relevant, cutoffs=(1, 10)).scores["mrr@10"]


def _together(rows: Sequence[Row]) -> Row:
    """Over all questions of the rows' language; what is to be reached is `GAIN` over the better half."""
    count = sum(row.examples for row in rows)

    def mean(scores: Sequence[float]) -> float:
        return sum(score * row.examples for score, row in zip(scores, rows, strict=True)) / count

    parts = {method: mean([row.parts[method] for row in rows]) for method in rows[0].parts}
    score, target = mean([row.score for row in rows]), max(parts["vectors"], parts["words"]) + GAIN
    return Row(SEARCH, ALL_QUESTIONS, rows[0].language, "MRR@10", score, count, target, rows[0].model, parts)


async def _index(services: Services, storage: SqliteStorage, collection: RankingSet, task: RankingTask) -> None:
    """The paragraphs as the chunks of one file."""
    model, name, texts = services.catalog.embedding(), collection.name, task.corpus
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
        raise RuntimeError(f"{name} was not indexed")


async def _rankings(
    services: Services, storage: SqliteStorage, collection: RankingSet, task: RankingTask
) -> Mapping[str, Sequence[Sequence[int]]]:
    """Of each method, the paragraphs of each question, best first: the storage's rankings, and the service's answer."""
    store = await storage.store(_OWNER, collection.name)
    assert store is not None, "it was added"
    index_of = {chunk.id: chunk.index async for chunk in storage.file_chunks(store.id, f"file-{store.id}")}
    search = _search_service(services, storage)
    embedded = await services.embeddings.embed_in_chunks(services.catalog.embedding(), task.queries, QUERY, Urgency())

    def indices(ranked: Sequence[Ranked]) -> list[int]:
        return [index_of[one.chunk_id] for one in ranked]

    vectors = [indices(await storage.nearest(store, vector, None, _DEPTH)) for vector in embedded.vectors]
    words = [indices(await storage.matching(store, query_terms(query), None, _DEPTH)) for query in task.queries]
    calls = [partial(search.search, _OWNER, store.id, [query], SearchOptions(), Urgency()) for query in task.queries]
    answers = await run_all(calls)
    return {
        "vectors": vectors,
        "words": words,
        "rrf": [reciprocal_rank_fusion(pair) for pair in zip(vectors, words, strict=True)],
        "served": [[hit.chunk.index for hit in answer.hits] for answer in answers],
    }


def _search_service(services: Services, storage: SqliteStorage) -> SearchService:
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


def reciprocal_rank_fusion(rankings: Sequence[Sequence[int]], k: int = _RRF_K) -> list[int]:
    """The sum of 1/(k + rank) decides."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] += 1 / (k + rank)
    return sorted(scores, key=lambda item: -scores[item])


EVALUATIONS = (Evaluation(SEARCH, SEARCH, evaluate_search),)
