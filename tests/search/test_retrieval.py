"""Search over a real storage: what is found and where, what is refused, and what a failing part costs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.errors import InferenceFailed, InvalidField, NotFound, Unavailable, WrongEncoder
from backend.lanes.inference import Urgency
from backend.search.document_chunks import PASSAGE, identity_of
from backend.search.filters import Comparison
from backend.search.limits import SearchLimits
from backend.search.records import EncoderIdentity, VectorStore
from backend.search.retrieval import SearchAnswer, SearchOptions, SearchService
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.vector_stores import VectorStoreService
from backend.serving.engines.heads import RERANKER
from backend.text.neutral_vectors import NeutralVectors
from backend.text.reranking import RerankService
from backend.text.scoring import ScoringService
from tests.fakes import TEST_TIMEOUT_S, longest_step_s
from tests.search.samples import add_indexed, vector_store
from tests.serving.loaded_models import scoring_model
from tests.text.service_stack import GatedVectorEngine, ServiceStack, VectorEngine
from tests.tiny_scorers import TinyScorers

_TEXTS = [
    "La factura FA-2024/0017 asciende a 1.284,50 €",
    "El contrato de alquiler termina en marzo",
    "The invoice is due within thirty days",
]
_NOW_S = 5_000.0


class _World:
    """A store of one owner with `_TEXTS`, and the service that searches it."""

    def __init__(self, stack: ServiceStack, storage: SqliteStorage) -> None:
        self.stack, self.storage, self.now_s = stack, storage, _NOW_S
        neutral, scoring = NeutralVectors(stack.service), ScoringService(stack.inference)
        self.reranking = RerankService(stack.catalog, stack.service, neutral, scoring, stack.telemetry)
        stores = VectorStoreService(
            storage,
            stack.catalog,
            SearchLimits(),
            on_added=lambda: None,
            on_reembed=lambda: None,
            now=lambda: self.now_s,
        )
        self.service = SearchService(
            stores,
            storage,
            stack.catalog,
            stack.service,
            neutral=neutral,
            reranking=self.reranking,
            telemetry=stack.telemetry,
            now=lambda: self.now_s,
        )

    async def add(self, file_id: str, texts: Sequence[str], **options: Any) -> None:
        embedded = await self.stack.service.embed_with_model(self.stack.catalog.embedding(), texts, PASSAGE, Urgency())
        encoder = identity_of(self.stack.catalog.embedding())
        await add_indexed(self.storage, file_id, texts, vectors=embedded.vectors, encoder=encoder, **options)

    async def search(self, *queries: str, owner: str = "ana", **options: Any) -> SearchAnswer:
        return await self.service.search(owner, "vs_1", queries, SearchOptions(**options), Urgency())

    async def store(self) -> VectorStore:
        store = await self.storage.store("ana", "vs_1")
        assert store is not None
        return store


@pytest.fixture
async def world_of(build: Callable[..., ServiceStack], tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Make a world: ``await world_of(engine, others=[…])``."""
    storages = []

    async def make(engine: Any = None, **options: Any) -> _World:
        storage = SqliteStorage(SqliteOptions(tmp_path / "search"))
        await storage.start()
        storages.append(storage)
        world = _World(build(engine or VectorEngine(), lanes=2, **options), storage)
        await storage.add_store(vector_store())
        return world

    yield make
    for storage in storages:
        await storage.close()


@pytest.fixture
async def world(world_of) -> _World:
    """A world with one indexed file."""
    world: _World = await world_of()
    await world.add("file-1", _TEXTS, attributes={"kind": "letters", "year": 2024.0}, found={"person": ["Ana"]})
    return world


def _texts(answer: SearchAnswer) -> list[str]:
    return [hit.chunk.text for hit in answer.hits]


async def test_hybrid_finds_by_words_and_vectors(world):
    """The chunk that both find is first, with the scores of both, its lines, and the query's words."""
    answer = await world.search(_TEXTS[0])
    best = answer.hits[0]

    assert _TEXTS[0] == best.chunk.text
    assert 1.0 == pytest.approx(best.score)
    assert 1.0 == pytest.approx(best.scores.vector, abs=0.02)  # vectors may be kept as bytes
    assert best.scores.keyword is not None
    assert best.scores.keyword > 0
    assert best.scores.rerank is None
    assert "file-1" == best.file.file_id
    assert {"kind": "letters", "year": 2024.0} == dict(best.file.attributes)
    assert (1,) == best.pages
    assert [1] * len(best.places) == [place.page for place in best.places]
    assert "factura" in [best.chunk.text[one.start : one.end] for one in best.highlights]
    assert all(one.places for one in best.highlights)
    assert 3 == len(answer.hits)
    assert not answer.has_more
    assert () == answer.warnings
    assert answer.tokens > 0
    assert 1 == world.stack.metric("search_duration_seconds_count", stage="total")


@pytest.mark.parametrize("query", ["fa20240017", "FA-2024", "FA 2024 0017", "1284.5", "facturas"])
async def test_words_alone_need_no_encoder(world, query):
    """With no weight on vectors nothing is embedded, and only chunks with a term are hits."""
    computed = len(world.stack.computed)

    answer = await world.search(query, vector_weight=0.0)

    assert [_TEXTS[0]] == _texts(answer)
    assert computed == len(world.stack.computed)
    assert 0 == answer.tokens
    assert answer.hits[0].scores.vector is None


async def test_vectors_alone(world):
    """With no weight on words every chunk is a hit, by its cosine."""
    answer = await world.search(_TEXTS[2], keyword_weight=0.0)

    assert _TEXTS[2] == answer.hits[0].chunk.text
    assert 3 == len(answer.hits)
    assert [None] * 3 == [hit.scores.keyword for hit in answer.hits]


async def test_several_queries_are_joined(world):
    """The chunks that each query finds are the first two."""
    answer = await world.search(_TEXTS[0], _TEXTS[2], limit=2)

    assert {_TEXTS[0], _TEXTS[2]} == set(_texts(answer))
    assert answer.has_more
    assert (_TEXTS[0], _TEXTS[2]) == answer.queries


async def test_threshold_cuts_and_counts(world):
    """Hits below the threshold are left out, also of has_more."""
    answer = await world.search(_TEXTS[0], limit=1, score_threshold=0.9)

    assert [_TEXTS[0]] == _texts(answer)
    assert not answer.has_more


async def test_filter_leaves_out_files(world):
    """Only files whose attributes fit, also those found in the document; as many hits as there are."""
    await world.add("file-2", ["otra factura"], attributes={"kind": "invoice"})

    by_caller = await world.search("factura", filters=Comparison("kind", "eq", "invoice"))
    by_document = await world.search("factura", filters=Comparison("person", "eq", "Ana"))

    assert ["otra factura"] == _texts(by_caller)
    assert {"file-1"} == {hit.file.file_id for hit in by_document.hits}
    assert 3 == len(by_document.hits)


async def test_unknown_attribute_is_told(world):
    """A filter on an attribute that no file has finds nothing, and says which there are."""
    answer = await world.search("factura", filters=Comparison("knd", "eq", "letters"))

    assert () == tuple(answer.hits)
    assert ("filters: no file of this store has the attribute 'knd'; they have kind, person, year",) == answer.warnings


async def test_a_value_of_another_type_is_told(world):
    """A filter that compares texts with a number finds nothing, and says which type there is."""
    answer = await world.search("factura", filters=Comparison("kind", "eq", 1.0))

    expected = "filters: 'kind' holds texts in this store, and is compared with numbers, which no value equals"
    assert (expected,) == answer.warnings


async def test_an_id_is_found_however_the_filter_writes_it(world):
    """Ids are kept without separators; a caller's filter may have them."""
    await world.add("file-2", ["otra factura"], found={"vendor_tax_id": ["B12345674"]})

    for written in ("B12345674", "b-12345674", "ESB12345674"):
        answer = await world.search("factura", filters=Comparison("vendor_tax_id", "eq", written))

        assert ["otra factura"] == _texts(answer)
        assert () == answer.warnings


async def test_empty_store_is_empty(world_of):
    """Nothing is embedded for a store without chunks."""
    world = await world_of()

    answer = await world.search("factura")

    assert () == tuple(answer.hits)
    assert [] == world.stack.computed


@pytest.mark.parametrize(("owner", "store_id"), [("eva", "vs_1"), ("ana", "vs_2")])
async def test_somebody_elses_store_is_not_found(world, owner, store_id):
    """A store of another key is as absent as one that never was."""
    with pytest.raises(NotFound):
        await world.service.search(owner, store_id, ["factura"], SearchOptions(), Urgency())


async def test_long_query_is_told(world):
    """A query that the model reads only in part has a warning, and is answered."""
    answer = await world.search("factura " * 2000)

    assert _TEXTS[0] == answer.hits[0].chunk.text
    assert 1 == len(answer.warnings)
    assert answer.warnings[0].startswith("query[0]: longer than the ")


async def test_another_models_store_is_refused(world):
    """409 with what to do; words alone still answer."""
    stored = EncoderIdentity("another", "other-model", 384)
    await world.storage.add_store(vector_store("vs_2"))
    await add_indexed(world.storage, "file-9", ["una factura"], store_id="vs_2", encoder=stored)
    search = world.service.search

    with pytest.raises(WrongEncoder, match=r"other-model.*POST /v1/vector_stores/vs_2/reembed.*embedding_weight to 0"):
        await search("ana", "vs_2", ["factura"], SearchOptions(), Urgency())
    await world.storage.begin_reembedding("vs_2", identity_of(world.stack.catalog.embedding()))
    with pytest.raises(WrongEncoder, match=r"being re-embedded \(0 of 1 chunks\)"):
        await search("ana", "vs_2", ["factura"], SearchOptions(), Urgency())
    answer = await search("ana", "vs_2", ["factura"], SearchOptions(vector_weight=0.0), Urgency())

    assert ["una factura"] == _texts(answer)


async def test_activity_is_written_once_a_minute(world, monkeypatch):
    """A busy store is not written at each search; a storage that cannot be written is searched all the same."""
    await world.search("factura")
    await world.service.close()
    first = (await world.store()).last_active_s
    world.now_s += 59
    await world.search("factura")
    await world.service.close()
    second = (await world.store()).last_active_s
    world.now_s += 61

    async def fails(_store_id: str, _now_s: float) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(world.storage, "touch_store", fails)
    answer = await world.search("factura")

    await world.service.close()
    assert (_NOW_S, _NOW_S) == (first, second)
    assert answer.hits


async def test_no_search_waits_for_its_activity_to_be_written(world, monkeypatch):
    """Whoever deletes a large store keeps the storage's writer busy for seconds."""
    is_written = asyncio.Event()

    async def waits(_store_id: str, _now_s: float) -> None:
        await is_written.wait()

    monkeypatch.setattr(world.storage, "touch_store", waits)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        answer = await world.search("factura")
    is_written.set()
    await world.service.close()

    assert answer.hits


async def test_chunks_deleted_meanwhile_are_passed_over(world, monkeypatch):
    """The next ones take their places."""
    read, gone = world.storage.chunks, _TEXTS[0]

    async def without_one(store_id: str, ids: Sequence[int]) -> list[Any]:
        return [chunk for chunk in await read(store_id, ids) if chunk.text != gone]

    monkeypatch.setattr(world.storage, "chunks", without_one)

    answer = await world.search(_TEXTS[0], limit=2)

    assert 2 == len(answer.hits)
    assert gone not in _texts(answer)


async def test_cancelled_search_leaves_no_work(world_of):
    """A caller who leaves while the query is embedded ends the search in the storage too."""
    engine = GatedVectorEngine()
    engine.gate.set()
    world = await world_of(engine)
    await world.add("file-1", _TEXTS)
    engine.gate.clear()
    engine.entered.clear()
    search = asyncio.create_task(world.search("algo nuevo"))
    await world.stack.entered()

    search.cancel()
    (outcome,) = await asyncio.gather(search, return_exceptions=True)
    engine.gate.set()

    assert isinstance(outcome, asyncio.CancelledError)
    assert 1 == len([task for task in asyncio.all_tasks() if "_by_" in repr(task) or "test_" in repr(task)])


async def test_cross_encoder_decides(world_of, scorers: TinyScorers):
    """Hits are in the order of the cross-encoder's scores, which are theirs; ranker none leaves it out."""
    model = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    world = await world_of(others=[model])
    await world.add("file-1", _TEXTS)
    expected = await world.reranking.rerank("the invoice", _TEXTS)

    answer = await world.search("the invoice")
    without = await world.search("the invoice", ranker="none")

    assert [_TEXTS[row.index] for row in expected.results] == _texts(answer)
    assert [row.score for row in expected.results] == pytest.approx([hit.score for hit in answer.hits])
    assert [hit.score for hit in answer.hits] == [hit.scores.rerank for hit in answer.hits]
    assert answer.tokens > without.tokens
    assert [None] * 3 == [hit.scores.rerank for hit in without.hits]


async def test_cross_encoder_does_not_reorder_identifiers(world_of, scorers: TinyScorers):
    """The chunk that holds the whole identifier asked for stays before those that the cross-encoder prefers."""
    model = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    world = await world_of(others=[model])
    query, texts = "factura FA-2024/0017", [*_TEXTS, "La factura FA-2024/0018 asciende a 20 €", "factura factura"]
    read = await world.reranking.rerank(query, texts)
    worst = texts[read.results[-1].index]  # of the cross-encoder: it is made to hold what is asked for
    texts = [text.replace("FA-2024/0017", "otra") for text in texts if text != worst] + [f"{worst} FA-2024/0017"]
    await world.add("file-1", texts)

    answer = await world.search(query, limit=5)

    assert "FA-2024/0017" in answer.hits[0].chunk.text
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    assert answer.hits[0].scores.rerank < max(hit.scores.rerank for hit in answer.hits)
    assert all(hit.score <= 1 / 3 for hit in answer.hits[1:])


async def test_failing_cross_encoder_costs_its_order_only(world_of, scorers: TinyScorers, monkeypatch):
    """The hits are those without it, with a warning."""
    model = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    world = await world_of(others=[model])
    await world.add("file-1", _TEXTS)

    async def fails(*_: Any, **__: Any) -> Any:
        raise InferenceFailed("NaN")

    monkeypatch.setattr(world.reranking, "rerank", fails)

    answer = await world.search(_TEXTS[0])
    without = await world.search(_TEXTS[0], ranker="none")

    assert without.hits == answer.hits
    assert answer.warnings[0].startswith("the cross-encoder failed")
    assert replace(without, warnings=answer.warnings) == answer


@pytest.mark.parametrize(
    "query", ["B12345674", "B 12345674", "12345674", "ESB12345674", "B-12.345.674", "4521KLM", "4521 KLM", "1850"]
)
async def test_exact_identifier_stands_first(world, query):
    """The chunk that holds it is first with a full score, whatever is nearest; the others have at most half."""
    held = "Renta 1.850,00 euros, CIF B12345674, furgoneta 4521 KLM " + "y otras cosas del local " * 20
    await world.add("file-2", [held, "clientes 1 2 3", "B7", "K 4521"])

    answer = await world.search(query)

    assert held == answer.hits[0].chunk.text
    assert 1.0 == pytest.approx(answer.hits[0].score)
    assert all(hit.score <= 0.5 for hit in answer.hits[1:])


@pytest.mark.parametrize("query", ["?", "\U0001f600", "\0"])
async def test_query_without_words_is_refused(world, query):
    """There is nothing to look for."""
    with pytest.raises(InvalidField, match=r"query\[0\].*no letter and no digit"):
        await world.search(query)


async def test_others_run_while_a_query_is_searched_for_words(world):
    """Looking for a letter in a megabyte of dots took the event loop 0.05 to 0.1 s."""

    async def refused() -> None:
        with pytest.raises(InvalidField, match="no letter and no digit"):
            await world.search("." * 5_000_000)

    assert await longest_step_s(refused()) < 0.1


async def test_absent_identifier_has_no_score(world):
    """What is nearest to a code that no chunk holds is no hit."""
    answer = await world.search("Z98765432")

    assert all(hit.score == 0 for hit in answer.hits if hit.scores.keyword is None)
