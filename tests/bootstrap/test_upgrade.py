"""An upgrade from the encoder of the release before to today's: one Redis and one STATE_DIR, and nothing is mixed."""

import asyncio
from typing import Any

import numpy as np
import pytest

from backend.bootstrap.models import TUNING_FILE
from backend.bootstrap.services import Services
from backend.documents.records import DocumentOptions
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.jobs.records import Job
from backend.jobs.service import JobRequest
from backend.lanes.cache.redis_tier import decode, encode
from backend.lanes.cache.store import CachedVector
from backend.serving.engines.heads import EMBEDDINGS
from tests.bootstrap.conftest import QUICK, measured
from tests.files.pdfs import pdf, text
from tests.redis_server import RedisServer
from tests.tiny_models import reference_of

OLD: dict[str, Any] = {"embedding_model": "minilm", **QUICK}
NEW: dict[str, Any] = {"embedding_model": "bundled", **QUICK}
TEXTS = ["la factura de marzo", "the invoice is due", "zürich 👍"]
EXAMPLES = {"bill": ["la factura de marzo", "the invoice is due"], "letter": ["estimada señora", "dear madam"]}
FILE = pdf(text(b"The invoice of March is due on Friday."))  # once: each writing has another id
pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.timeout(600)]


def planted(redis_server: RedisServer) -> int:
    """Replace every cached vector by another valid one; the number of them."""
    names = redis_server.client.keys("financia:vector:*")
    for name in names:
        key = bytes.fromhex(name.decode().rsplit(":", 1)[1])
        value = decode(key, redis_server.client.get(name))
        wrong = np.zeros_like(value.vector)
        wrong[0] = 1.0
        redis_server.client.set(name, encode(key, CachedVector(wrong, value.tokens, value.truncated)))
    return len(names)


def agreement(vectors: np.ndarray, source: str) -> float:
    """The least cosine with sentence-transformers' vectors of TEXTS."""
    return float((vectors * reference_of(source).encode(TEXTS)).sum(axis=1).min())


async def retrained(services: Services) -> None:
    """Wait until taught classifiers have been learnt again."""
    task = services.classification.retraining
    assert task is not None
    await asyncio.wait_for(asyncio.shield(task), 60)


async def test_no_vector_of_the_old_encoder_is_answered(start, redis_server):
    """Both are 384 wide: whatever the old one left in Redis, the new one computes its own."""
    old = await start(redis_url=redis_server.url, **OLD)
    await old.embeddings.embed(TEXTS)
    await old.close()
    assert len(TEXTS) == planted(redis_server)

    again = await start(redis_url=redis_server.url, **OLD)
    trapped = await again.embeddings.embed(TEXTS)
    new = await start(redis_url=redis_server.url, **NEW)
    result = await new.embeddings.embed(TEXTS)
    similar, _ = await new.embeddings.similarity(TEXTS[0], TEXTS[1:])

    assert (len(TEXTS), 1.0) == (trapped.cache_hits, trapped.vectors[:, 0].min()), "the trap does not work"
    assert 0 == result.cache_hits
    assert agreement(result.vectors, "bundled") >= 0.9999
    assert max(similar) < 0.9999


async def test_both_serve_side_by_side(start, redis_server):
    """A rolling upgrade, and the way back: each hits what it has computed itself, and nothing else."""
    old, new = [await start(redis_url=redis_server.url, **settings) for settings in (OLD, NEW)]
    results = [await services.embeddings.embed(TEXTS) for services in (old, new, new, old)]
    for services in (old, new):
        await services.close()  # what was computed is in Redis then

    assert [0, 0, 3, 3] == [result.cache_hits for result in results]
    assert agreement(results[3].vectors, "minilm") >= 0.9999
    assert agreement(results[2].vectors, "bundled") >= 0.9999
    assert 2 * len(TEXTS) == len(redis_server.client.keys("financia:vector:*"))


async def test_taught_classifiers_are_learnt_again(start):
    """From the examples that were kept; the old release reads its own head on, and learns again on the way back."""
    old = await start(**OLD)
    await old.classification.train_classifier("upgraded", EXAMPLES)
    new = await start(**NEW)
    await retrained(new)
    registry = new.classification.store.registry
    head = registry.find("upgraded").head
    results = [await services.classification.classify(TEXTS[:1], model="upgraded") for services in (old, new)]
    back = await start(**OLD)
    await retrained(back)
    head_again = back.classification.store.registry.find("upgraded").head
    examples = await back.classification.store.examples("upgraded")
    await back.classification.delete_classifier("upgraded")

    assert new.catalog.embedding().spec.identity == head.trained_on
    assert old.catalog.embedding().spec.identity == head_again.trained_on
    assert sorted(text for texts in EXAMPLES.values() for text in texts) == sorted(each.text for each in examples)
    assert ["bill", "bill"] == [result.rows[0].prediction for result in results]


async def test_the_new_encoder_is_measured_once(start, tmp_path, rest):
    """tuning.json of the old one is kept beside it: neither measures again."""
    unmeasured = []
    for settings in (OLD, NEW, NEW, OLD):
        services = await start(state_dir=tmp_path, **settings)
        unmeasured.append(services.catalog.embedding().choice.is_provisional)
        await measured(services)
        await services.close()

    assert [True, True, False, False] == unmeasured
    assert (tmp_path / TUNING_FILE).is_file()


async def test_a_finished_job_is_not_the_answer_to_a_new_request(start, redis_server):
    """Its vectors are the old encoder's. Asked by its id or its Idempotency-Key it is answered as it was made."""
    old = await start(redis_url=redis_server.url, **OLD)
    made, _ = await _submit(old, key="one")
    await _ended(old, made)
    equal, existed = await _submit(old)
    assert (made.id, True) == (equal.id, existed)
    await old.close()
    new = await start(redis_url=redis_server.url, **NEW)
    keyed, _ = await _submit(new, key="one")
    anew, existed = await _submit(new)
    await _ended(new, anew)
    results = [await new.jobs.result(await new.jobs.find(each.id, "")) for each in (keyed, anew)]
    models = [result.answer.understood.model for result in results if result is not None and result.answer is not None]

    assert made.id == keyed.id
    assert (False, True) == (existed, anew.id != made.id)
    assert [services.catalog.of(EMBEDDINGS).name for services in (old, new)] == models


async def _submit(services: Services, key: str | None = None) -> tuple[Job, bool]:
    stored = StoredFile.of(FILE, FileLimits())
    try:
        options = DocumentOptions(features=frozenset({"text", "chunks", "vector"}))
        return await services.jobs.submit(JobRequest(stored, "a.pdf", options, key=key))
    finally:
        stored.close()


async def _ended(services: Services, job: Job) -> None:
    async with asyncio.timeout(120):
        async for _ in services.jobs.events(job, ""):
            pass
    ended = await services.jobs.find(job.id, "")
    assert "succeeded" == ended.status, ended.failure
