"""Classifiers trained while the service runs: used, saved, deleted, and retrained after a model swap."""

from __future__ import annotations

import asyncio
import logging

import pytest

from backend.batching.work_item import Priority
from backend.errors import InvalidField, NotFound, Overloaded, Unavailable, UnknownModel
from backend.models.classifier_head import NONE
from backend.services.classifier_files import Example
from tests.services.classification_setup import (
    ClassificationSetup,
    build_classification,
    random_head,
    write_bundled_head,
)
from tests.services.loaded_models import embedding_model
from tests.services.service_stack import GatedVectorEngine, ServiceStack, VectorEngine, loaded_model
from tests.tiny_models import spec_of

EXAMPLES = {"bill": ["la factura", "factura de marzo", "the invoice"], "letter": ["estimada señora", "dear sir"]}
TEXTS = [text for texts in EXAMPLES.values() for text in texts]
EXPECTED = [label for label, texts in EXAMPLES.items() for _ in texts]
OTHER = "b" * 64


def swap(setup: ClassificationSetup, engine=None, sha256: str = OTHER) -> None:
    """Swap the embedding model, as ModelSwapper does."""
    model = loaded_model(engine or VectorEngine(budget=4096), sha256=sha256)
    setup.stack.catalog.replace(model)
    setup.service.on_model_swap(model)


async def retrained(setup: ClassificationSetup) -> None:
    """Wait until retraining in the background has ended."""
    task = setup.service._retraining
    assert task is not None
    await asyncio.wait_for(asyncio.shield(task), 10.0)


async def predictions_of(setup: ClassificationSetup, name: str = "mail") -> list[str | None]:
    return [row.prediction for row in (await setup.service.classify(TEXTS, model=name)).rows]


@pytest.fixture
async def setup(build, tmp_path) -> ClassificationSetup:
    return build_classification(build(VectorEngine(budget=4096), lanes=2), tmp_path)


async def test_train_classify_restart_delete(setup: ClassificationSetup, tmp_path):
    """It survives a restart; deleted, it is gone from memory and disk."""
    info = await setup.service.train_classifier("mail", EXAMPLES)

    before = await setup.service.classify(TEXTS, model="mail")
    after = await build_classification(setup.stack, tmp_path).service.classify(TEXTS, model="mail")

    assert EXPECTED == [row.prediction for row in before.rows]
    assert before.rows == after.rows
    assert ("mail", "learnt", ("bill", "letter"), 5) == (info.name, info.kind, info.labels, info.examples)
    assert [info] == setup.service.classifiers()

    await setup.service.delete_classifier("mail")

    with pytest.raises(UnknownModel):
        await setup.service.classify(TEXTS, model="mail")
    with pytest.raises(NotFound):
        await setup.service.delete_classifier("mail")
    assert [] == build_classification(setup.stack, tmp_path).service.classifiers()


async def test_the_bundled_model_can_be_trained_from_three_texts_a_class(build, tmp_path):
    """With real vectors, unseen texts are classified right, in either language."""
    setup = build_classification(build(embedding_model("bundled"), lanes=2), tmp_path)
    examples = {
        "card": ["My card was swallowed by the machine.", "I lost my credit card.", "My card was declined in a shop."],
        "loan": ["I want to borrow money for a house.", "What is the interest on a mortgage?", "Can I get a loan?"],
    }
    await setup.service.train_classifier("bank", examples)

    result = await setup.service.classify(
        [
            "The cash machine kept my bank card.",
            "How much is a mortgage for a flat?",
            "He perdido la tarjeta de crédito.",
        ],
        model="bank",
    )

    assert ["card", "loan", "card"] == [row.predictions[0].label for row in result.rows]


async def test_training_again_replaces(setup: ClassificationSetup):
    """The same name with other labels replaces the classifier."""
    await setup.service.train_classifier("mail", EXAMPLES)
    await setup.service.train_classifier("mail", {"yes": ["la factura"], "no": ["dear sir"]})

    [row] = (await setup.service.classify(["la factura"], model="mail")).rows

    assert ({"yes", "no"}, "yes") == ({prediction.label for prediction in row.predictions}, row.prediction)


async def test_texts_of_no_class_get_no_prediction(setup: ClassificationSetup):
    """Examples labelled ``(none)`` lower the scores of such texts; it is never a label."""
    examples = {**EXAMPLES, NONE: [f"something else {number}" for number in range(6)]}
    info = await setup.service.train_classifier("mail", examples)

    result = await setup.service.classify([*TEXTS, "something else 3"], model="mail")

    assert ("bill", "letter") == info.labels
    assert {"bill", "letter"} == {prediction.label for row in result.rows for prediction in row.predictions}
    assert sum(prediction.score for prediction in result.rows[-1].predictions) < 0.5


async def test_a_bundled_name_is_taken(build, tmp_path):
    """A bundled classifier can be neither replaced nor deleted; nothing is computed before the refusal."""
    write_bundled_head(tmp_path, "document-type", random_head(spec_of("bundled").sha256))
    setup = build_classification(build(VectorEngine()), tmp_path)

    with pytest.raises(InvalidField, match="'document-type' is a bundled classifier"):
        await setup.service.train_classifier("document-type", EXAMPLES)
    with pytest.raises(InvalidField, match="'document-type' is a bundled classifier"):
        await setup.service.delete_classifier("document-type")

    assert [] == setup.stack.engine.batches


async def test_bad_examples_cost_nothing(setup: ClassificationSetup):
    """Examples are checked before any of them is embedded."""
    with pytest.raises(InvalidField, match="at least two are needed"):
        await setup.service.train_classifier("mail", {"bill": ["la factura"]})

    assert [] == setup.stack.engine.batches


# Another embedding model


async def test_a_swap_retrains_classifiers(setup: ClassificationSetup):
    """In the background; until then requests get 503: the old head never scores new vectors."""
    await setup.service.train_classifier("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(setup, engine)
    with pytest.raises(Unavailable, match="'mail' is being learnt again for this embedding model"):
        await setup.service.classify(TEXTS, model="mail")
    engine.gate.set()

    await retrained(setup)

    assert EXPECTED == await predictions_of(setup)
    assert OTHER == setup.registry.find("mail").head.encoder_sha256
    assert [] == setup.registry.stale()


async def test_a_start_with_another_model_retrains(setup: ClassificationSetup, build, tmp_path):
    """A restart with another embedding model retrains what is saved."""
    await setup.service.train_classifier("mail", EXAMPLES)

    stack: ServiceStack = build(VectorEngine(budget=4096), spec={"sha256": OTHER})
    restarted = build_classification(stack, tmp_path)
    assert ["mail"] == restarted.registry.stale()
    restarted.service.on_model_swap(stack.catalog.embedding())
    await retrained(restarted)

    assert EXPECTED == await predictions_of(restarted)


async def test_retraining_is_bulk_work(setup: ClassificationSetup, monkeypatch):
    """Retraining submits bulk items; training on request interactive ones."""
    priorities = list[Priority]()
    submit = setup.stack.batcher.submit

    def spied(*arguments, **options):
        priorities.append(options["priority"])
        return submit(*arguments, **options)

    monkeypatch.setattr(setup.stack.batcher, "submit", spied)
    await setup.service.train_classifier("mail", EXAMPLES)
    swap(setup)
    await retrained(setup)

    assert [Priority.INTERACTIVE, Priority.BULK] == priorities


async def test_newer_examples_win_over_retraining(setup: ClassificationSetup):
    """A classifier saved during retraining is not overwritten."""
    await setup.service.train_classifier("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(setup, engine)
    await asyncio.to_thread(engine.entered.wait, 10.0)
    newer = [Example("la", ("yes",)), Example("de", ("no",))]
    setup.registry.save("mail", random_head(OTHER, ("yes", "no")), newer)
    engine.gate.set()

    await retrained(setup)

    assert ("yes", "no") == setup.registry.find("mail").head.labels
    assert newer == setup.registry.examples("mail")


async def test_a_classifier_deleted_meanwhile_stays_deleted(setup: ClassificationSetup):
    """Retraining does not restore it."""
    await setup.service.train_classifier("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(setup, engine)
    await asyncio.to_thread(engine.entered.wait, 10.0)
    await setup.service.delete_classifier("mail")
    engine.gate.set()

    await retrained(setup)

    assert [] == setup.registry.names() == setup.registry.stale()


async def test_a_swap_during_training_trains_again(build, tmp_path):
    """The head that is returned fits the model that serves then."""
    setup = build_classification(build(GatedVectorEngine(budget=4096)), tmp_path)
    task = asyncio.create_task(setup.service.train_classifier("mail", EXAMPLES))
    await setup.stack.entered()
    swap(setup)
    setup.stack.engine.gate.set()

    await task

    assert OTHER == setup.registry.find("mail").head.encoder_sha256
    assert EXPECTED == await predictions_of(setup)


async def test_a_full_queue_only_delays_retraining(setup: ClassificationSetup, monkeypatch, caplog):
    """It is tried again after the queue's Retry-After."""
    await setup.service.train_classifier("mail", EXAMPLES)
    embed_untruncated, refusals = setup.stack.service.embed_untruncated, [Overloaded(900, 1000, 0.0)] * 2

    async def busy(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return await embed_untruncated(*arguments, **options)

    monkeypatch.setattr(setup.stack.service, "embed_untruncated", busy)
    with caplog.at_level(logging.WARNING):
        swap(setup)
        await retrained(setup)

    assert 2 == caplog.text.count("a classifier could not be learnt again")
    assert EXPECTED == await predictions_of(setup)


async def test_lost_examples_are_logged_and_stop_no_other(setup: ClassificationSetup, tmp_path, caplog):
    """The other classifiers are retrained."""
    for name in ("lost", "mail"):
        await setup.service.train_classifier(name, EXAMPLES)
    next(tmp_path.glob("state/*/lost/examples.jsonl")).unlink()

    with caplog.at_level(logging.WARNING):
        swap(setup)
        await retrained(setup)

    assert ["mail"] == setup.registry.names()
    assert 1 == caplog.text.count("a classifier could not be learnt again")


async def test_a_second_swap_cancels_the_first_retraining(setup: ClassificationSetup):
    """Heads are retrained only for the model that serves."""
    await setup.service.train_classifier("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(setup, engine)
    first = setup.service._retraining
    await asyncio.to_thread(engine.entered.wait, 10.0)
    swap(setup, sha256="c" * 64)
    engine.gate.set()

    await retrained(setup)

    assert first is not None
    assert first.cancelled()
    assert "c" * 64 == setup.registry.find("mail").head.encoder_sha256


async def test_closing_cancels_retraining(setup: ClassificationSetup):
    """Nothing is left running."""
    await setup.service.train_classifier("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(setup, engine)
    task = setup.service._retraining
    await asyncio.to_thread(engine.entered.wait, 10.0)

    setup.service.close()
    engine.gate.set()

    with pytest.raises(asyncio.CancelledError):
        await task  # type: ignore[misc]
