"""Models of a hub that cannot be reached: the bundled ones serve, and the ones that were set come later."""

import asyncio
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from backend.api.routes.models import model_card
from backend.bootstrap.models import PROFILES
from backend.bootstrap.shared_state import TAUGHT
from backend.callers.callers import ANYBODY
from backend.errors import ModelPending, ModelUnavailable, Unavailable
from backend.models import model_files as hub_module
from backend.models.classifier_head import unpack_head, write_head
from backend.replicas.folder_records import FolderRecords
from backend.retry import Backoff
from backend.serving import pending_models
from backend.serving.engines.answers import LABEL_TASK
from backend.serving.engines.answers import TASK as ANSWERS
from backend.serving.engines.heads import CLASSIFIER, EMBEDDINGS, NER
from backend.text.classifier_store import HEAD_FORMAT, KIND
from tests.bootstrap.conftest import QUICK
from tests.tiny_models import TinyModels, reference_of, spec_of
from tests.tiny_scorers import NLI, TinyScorers
from tests.tiny_taggers import TinyTaggers

WANTED = "owner/wanted"


class Hub:
    """A hub that is away until ``open``: then it gives ``folders`` by repository, and 404 for others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.folders: dict[str, Path] = {}
        self.is_open = False
        self.asked: list[str] = []

    def __call__(self, repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        del revision, allow_patterns
        self.asked.append(repository)
        if not self.is_open:
            raise LocalEntryNotFoundError("not in the cache") from httpx2.ConnectError("no name")
        if repository not in self.folders:
            response = httpx2.Response(404, request=httpx2.Request("GET", "https://hub.test"))
            raise RepositoryNotFoundError("404", response=response)
        snapshot = self._folder / repository / "0123abcd"
        if not snapshot.is_dir():
            shutil.copytree(self.folders[repository], snapshot)
        return str(snapshot)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: TinyModels) -> Hub:
    """In place of the real one; tried again at once."""
    made = Hub(tmp_path / "hub")
    made.folders[WANTED] = tiny.folder("bert")
    monkeypatch.setattr(hub_module, "snapshot_download", made)
    monkeypatch.setattr(pending_models, "PAUSE", Backoff(0.02, 0.02))
    return made


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tiny: TinyModels, taggers: TinyTaggers) -> str:
    """Small models in place of the bundled ones, which take seconds; the name of the encoder."""
    folder = tiny.folder("roberta")
    monkeypatch.setitem(PROFILES, "bundled", {EMBEDDINGS: str(folder), NER: str(taggers.folder("roberta"))})  # type: ignore[misc]
    return folder.name


async def until(holds: Callable[[], Any]) -> None:
    """Wait for what a background task does."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - the task under test has no event to wait for
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_the_bundled_model_serves_until_the_hub_is_back(start, hub, caplog):
    """Ready and degraded; its own names only; then the model that was set, without a lost request."""
    services = await start(embedding_model=WANTED, model_aliases="an-alias", cache_enabled=False, **QUICK)
    before = await services.embeddings.embed(["la factura"])
    readiness, [sentence] = await services.health.ready(), services.health.degraded()
    [pending] = json.loads(json.dumps(services.system()))["pending_models"]

    assert readiness.ready
    assert spec_of("bundled").name == before.model.name == pending["serving"]
    assert (WANTED, EMBEDDINGS) == (pending["source"], pending["task"])
    assert "ConnectError" in pending["reason"]
    assert all(words in sentence for words in (WANTED, spec_of("bundled").name, "ConnectError"))
    assert "a model could not be fetched; trying again" in caplog.messages
    assert 'financia_model_pending{task="embeddings"} 1.0' in services.telemetry.render().decode()
    for name in (WANTED, "wanted", "an-alias"):
        with pytest.raises(ModelPending):
            await services.embeddings.embed(["la factura"], model=name)
    assert 384 == (await services.embeddings.embed(["la factura"], model="bundled")).vectors.shape[1]

    answers: list[str] = []
    swapped = asyncio.Event()

    async def keep_embedding() -> None:
        while not swapped.is_set():
            result = await services.embeddings.embed(["la factura"])
            assert result.model.spec.width == result.vectors.shape[1]
            answers.append(result.model.name)

    clients = [asyncio.create_task(keep_embedding()) for _ in range(3)]
    hub.is_open = True
    await until(lambda: WANTED in answers)
    swapped.set()
    await asyncio.gather(*clients)
    after = await services.embeddings.embed(["la factura"], model="an-alias")

    assert {spec_of("bundled").name, WANTED} == set(answers)
    assert (after.vectors * reference_of(hub.folders[WANTED]).encode(["la factura"])).sum() >= 0.9999
    assert [] == services.health.degraded() == services.system()["pending_models"]
    assert 'financia_model_pending{task="embeddings"} 0.0' in services.telemetry.render().decode()


@pytest.mark.slow
async def test_a_hub_that_is_back_before_the_model_is(start, hub, small):
    """A repository that is not there yet is asked for again; at the start it would be an error."""
    services = await start(embedding_model="owner/later", **QUICK)
    hub.is_open = True
    await until(lambda: "is not on the hub" in str(services.system()["pending_models"]))
    hub.folders["owner/later"] = hub.folders[WANTED]
    await until(lambda: not services.system()["pending_models"])

    assert "owner/later" == services.catalog.embedding().name


@pytest.mark.slow
async def test_what_the_hub_is_sure_of_stops_the_start(start, hub):
    """404 is no failure of the network."""
    hub.is_open = True

    with pytest.raises(ModelUnavailable, match="owner/unknown is not on the hub"):
        await start(embedding_model="owner/unknown", **QUICK)


@pytest.mark.slow
async def test_every_model_of_the_profile_comes_later(start, hub, small, taggers: TinyTaggers, scorers: TinyScorers):
    """The bundled tagger serves in place of the profile's; nothing does in place of its classifier."""
    profile = PROFILES["multilingual"]
    hub.folders |= {
        profile[EMBEDDINGS]: hub.folders[WANTED],
        profile[NER]: taggers.folder("bert"),
        profile[CLASSIFIER]: scorers.folder("bert", NLI),
    }
    services = await start(model_profile="multilingual", ner_model=None, **QUICK)
    serving = {pending["task"]: pending["serving"] for pending in services.system()["pending_models"]}
    entities = await services.entities.find(["Acme Ltd in London"], sources=["model"])
    classes = await services.classification.classify(["la factura"], labels=["a", "b"])

    assert {EMBEDDINGS: small, NER: entities.model, CLASSIFIER: None} == serving
    assert small == classes.model
    with pytest.raises(ModelPending, match="none serves in its place"):
        await services.classification.classify(["la factura"], labels=["a", "b"], model=profile[CLASSIFIER])
    with pytest.raises(ModelPending):
        await services.entities.find(["la factura"], model=profile[NER])

    hub.is_open = True
    await until(lambda: not services.system()["pending_models"])

    served = {model.task: model.name for model in services.catalog.models()}
    assert {task: source for task, source in profile.items() if task not in (ANSWERS, LABEL_TASK)} == served


@pytest.mark.slow
async def test_questions_are_answered_as_it_comes(start):
    """No setting names a model; a lane that a first question waits for has nothing to load."""
    services = await start(answer_model=None, **QUICK)
    await services.loader.finish_start()
    model = services.catalog.of(ANSWERS)
    loaded = [resident.is_loaded for resident in model.residents]
    text = "El contrato dura dos años."
    result = await services.answers.answer(["¿Cuánto dura?"], text, min_score=0.0)

    assert [True] == loaded
    assert {"answer": True} == model_card(model)["capabilities"]
    assert "dos años" in text[result.answers[0].start : result.answers[0].end]


@pytest.mark.slow
async def test_classifiers_follow(start, hub, small, state_dir, tmp_path):
    """One that was taught meanwhile is learnt again; a configured one of the model that was set waits for it."""
    examples = {"bill": ["la factura", "the invoice"], "mail": ["la carta", "the letter"]}
    hub.is_open = True
    wanted = await start(embedding_model=WANTED, **QUICK)
    await wanted.classification.train_classifier("theirs", examples, caller=ANYBODY)
    records = FolderRecords(state_dir / TAUGHT)
    version = (await records.index(KIND)).entries["theirs"].version
    part = f"head:{wanted.catalog.embedding().spec.fingerprint}:{HEAD_FORMAT}"
    packed = await records.part(KIND, "theirs", version, part)
    assert packed is not None
    (head := tmp_path / "theirs").mkdir()
    write_head(head, unpack_head(packed))
    await wanted.classification.delete_classifier("theirs")
    hub.is_open = False
    services = await start(embedding_model=WANTED, classifier_model=str(head), **QUICK)
    await services.classification.train_classifier("ours", examples, caller=ANYBODY)
    with pytest.raises(Unavailable, match="waits for its embedding model"):
        await services.classification.classify(["la factura"], model="theirs")
    hub.is_open = True
    await until(lambda: {"theirs", "ours"} <= set(services.classification.report()["names"]))  # type: ignore[call-overload]
    results = [await services.classification.classify(["la factura"], model=name) for name in ("theirs", "ours")]

    assert WANTED == services.catalog.embedding().name
    await services.classification.delete_classifier("ours")
    assert ["bill", "bill"] == [result.rows[0].prediction for result in results]


@pytest.mark.slow
async def test_vectors_of_the_two_models_share_no_key(start, hub, small):
    """What was cached while the other model served is never answered as the wanted model's."""
    services = await start(embedding_model=WANTED, **QUICK)
    await services.embeddings.embed(["la factura"])
    hub.is_open = True
    await until(lambda: not services.system()["pending_models"])
    result = await services.embeddings.embed(["la factura"])

    assert 0 == result.cache_hits
    assert np.allclose(reference_of(hub.folders[WANTED]).encode(["la factura"]), result.vectors, atol=1e-5)


@pytest.mark.slow
async def test_closing_stops_the_tries(start, hub, small, caplog):
    """Nothing is asked of the hub after it."""
    caplog.set_level(logging.WARNING)
    services = await start(embedding_model=WANTED, **QUICK)
    await services.close()
    asked = len(hub.asked)
    hub.is_open = True
    await asyncio.sleep(0.1)

    assert asked >= len(hub.asked) - 1  # one may have been under way
    assert small == services.catalog.embedding().name
