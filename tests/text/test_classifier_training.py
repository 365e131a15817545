"""Classifiers trained while the service runs: used, saved, deleted, and retrained after a model swap."""

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.callers.callers import ANYBODY, read_key_ring
from backend.errors import Forbidden, InvalidField, NotFound, Overloaded, Unavailable, UnknownModel
from backend.lanes.work_queue import Priority
from backend.models import logistic
from backend.models.classifier_head import NONE
from backend.replicas.folder_records import FolderRecords
from backend.text import classifier_training
from backend.text.classifier_files import Example
from tests.fakes import TEST_TIMEOUT_S
from tests.serving.loaded_models import embedding_model
from tests.text.classification_setup import ClassificationSetup, build_classification, random_head, write_bundled_head
from tests.text.service_stack import GatedVectorEngine, ServiceStack, VectorEngine, loaded_model
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
    task = setup.service.retraining
    assert task is not None
    await asyncio.wait_for(asyncio.shield(task), 10.0)


async def predictions_of(setup: ClassificationSetup, name: str = "mail") -> list[str | None]:
    return [row.prediction for row in (await setup.service.classify(TEXTS, model=name)).rows]


async def restarted_on(stack: ServiceStack, root: Path) -> ClassificationSetup:
    """The service with what was taught before."""
    again = build_classification(stack, root)
    await again.service.store.refresh()
    return again


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
    assert [] == (await restarted_on(setup.stack, tmp_path)).service.classifiers()


async def test_the_bundled_model_can_be_trained_from_three_texts_a_class(build, tmp_path):
    """With real vectors, unseen texts are classified right, in either language."""
    setup = build_classification(build(embedding_model("minilm"), lanes=2), tmp_path)
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
    write_bundled_head(tmp_path, "document-type", random_head(spec_of("minilm").sha256))
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


async def test_a_disk_that_refuses_costs_no_learning(setup, monkeypatch):
    """A head that was learnt again serves, and is learnt again at the next start."""
    await setup.service.train_classifier("mail", EXAMPLES)

    def refusing(*_arguments):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(FolderRecords, "_replace", refusing)
    swap(setup)
    await retrained(setup)

    assert EXPECTED == await predictions_of(setup)
    with pytest.raises(Unavailable, match="Read-only file system"):
        await setup.service.train_classifier("mail", EXAMPLES)


async def test_retraining_is_bulk_work(setup: ClassificationSetup):
    """Retraining submits bulk items; training on request interactive ones."""
    submitted = setup.stack.spy_on_submissions()
    await setup.service.train_classifier("mail", EXAMPLES)
    swap(setup)
    await retrained(setup)

    assert [Priority.INTERACTIVE, Priority.BULK] == [priority for priority, _ in submitted]


async def test_newer_examples_win_over_retraining(setup: ClassificationSetup):
    """A classifier saved during retraining is not overwritten."""
    await setup.service.train_classifier("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(setup, engine)
    await asyncio.to_thread(engine.entered.wait, 10.0)
    newer = [Example("la", ("yes",)), Example("de", ("no",))]
    head = replace(random_head(OTHER, ("yes", "no")), encoder_fingerprint=setup.registry.encoder.fingerprint)
    await setup.service.store.save("mail", head, newer, ANYBODY)
    engine.gate.set()

    await retrained(setup)

    assert ("yes", "no") == setup.registry.find("mail").head.labels
    assert newer == await setup.service.store.examples("mail")


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
    next(tmp_path.glob("state/*/lost.record")).unlink()

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
    first = setup.service.retraining
    await asyncio.to_thread(engine.entered.wait, 10.0)
    swap(setup, sha256="c" * 64)
    engine.gate.set()

    await retrained(setup)

    assert first.cancelled()
    assert "c" * 64 == setup.registry.find("mail").head.encoder_sha256


async def test_closing_cancels_retraining(setup: ClassificationSetup):
    """Nothing is left running."""
    await setup.service.train_classifier("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(setup, engine)
    task = setup.service.retraining
    await asyncio.to_thread(engine.entered.wait, 10.0)

    await setup.service.close()
    engine.gate.set()

    with pytest.raises(asyncio.CancelledError):
        await task  # type: ignore[misc]


async def test_another_callers_classifier(setup: ClassificationSetup):
    """Nothing is computed for a name that belongs to another; and what one learns is told in tokens."""
    team, other = read_key_ring(("team=one", "other=two")).callers
    info = await setup.service.train_classifier("mail", EXAMPLES, caller=team)
    computed = len(setup.stack.computed)
    with pytest.raises(Forbidden):
        await setup.service.train_classifier("mail", EXAMPLES, caller=other)
    with pytest.raises(Forbidden):
        await setup.service.delete_classifier("mail", other)
    assert info.tokens > 0
    assert computed == len(setup.stack.computed)
    assert "mail" in [one.name for one in setup.service.classifiers()]


async def test_a_caller_that_leaves_ends_the_fit_and_nothing_is_kept(setup: ClassificationSetup, monkeypatch):
    """Cancelled inside the solver, training ends at its next step, before the next one in line may begin."""
    in_solver, caller_left, steps = threading.Event(), threading.Event(), []
    loss = logistic._Problem._loss

    def slow_loss(self: logistic._Problem, *arguments: Any) -> Any:
        steps.append(1)
        in_solver.set()
        assert caller_left.wait(TEST_TIMEOUT_S)
        return loss(self, *arguments)

    monkeypatch.setattr(logistic._Problem, "_loss", slow_loss)
    training = asyncio.create_task(setup.service.train_classifier("mail", EXAMPLES))
    assert await asyncio.to_thread(in_solver.wait, TEST_TIMEOUT_S)
    training.cancel()
    await asyncio.sleep(0)
    caller_left.set()
    with pytest.raises(asyncio.CancelledError):
        await training

    assert 1 == len(steps)
    assert not setup.service._trainer._fit_lock.locked()
    assert [] == setup.service.classifiers()


async def test_few_requests_wait_to_be_trained(setup: ClassificationSetup, monkeypatch):
    """One is fitted at a time; one more than may wait is told to come again, and those that waited are trained."""
    go_on, fitting = threading.Event(), []
    fit = classifier_training.fit_head_beside

    def gated_fit(*arguments: Any, **options: Any) -> Any:
        fitting.append(1)
        assert go_on.wait(TEST_TIMEOUT_S)
        assert 1 == len(fitting)
        fitting.pop()
        return fit(*arguments, **options)

    monkeypatch.setattr(classifier_training, "fit_head_beside", gated_fit)
    names = [f"mail-{number}" for number in range(classifier_training.IN_LINE_MAX)]
    waiting = [asyncio.create_task(setup.service.train_classifier(name, EXAMPLES)) for name in names]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="8 classifiers are being learnt") as refused:
        await setup.service.train_classifier("one-more", EXAMPLES)
    go_on.set()
    await asyncio.gather(*waiting)

    assert refused.value.retry_after_s > 0
    assert names == sorted(info.name for info in setup.service.classifiers())


async def test_a_caller_that_leaves_while_it_is_written_keeps_the_lock_to_the_end(setup, monkeypatch):
    """The file is complete when the next writer's turn comes."""
    writing, go_on, written = threading.Event(), threading.Event(), []
    replace_file = FolderRecords._replace

    def slow_replace(*arguments: Any) -> None:
        writing.set()
        assert go_on.wait(TEST_TIMEOUT_S)
        written.append(1)
        replace_file(*arguments)

    monkeypatch.setattr(FolderRecords, "_replace", slow_replace)
    training = asyncio.create_task(setup.service.train_classifier("mail", EXAMPLES))
    assert await asyncio.to_thread(writing.wait, TEST_TIMEOUT_S)
    training.cancel()
    await asyncio.sleep(0)

    assert setup.service._trainer._write_lock.locked()

    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await training

    await setup.service.store.refresh()

    assert [1] == written
    assert ["mail"] == [info.name for info in setup.service.classifiers()]
