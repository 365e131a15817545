"""Classifiers learnt while the service runs: asked, kept, forgotten, and learnt again for another embedding model."""

from __future__ import annotations

import asyncio
import logging

import pytest

from backend.batching.work_item import Priority
from backend.errors import InvalidField, NotFound, Overloaded, Unavailable, UnknownModel
from backend.models.classifier_head import NONE
from backend.services.classifier_files import Example
from tests.services.desk import Desk, desk_of, head_of, keep_head
from tests.services.house import GatedVectorEngine, House, VectorEngine, loaded_model
from tests.services.loaded import embedding_model
from tests.tiny_models import spec_of

EXAMPLES = {"bill": ["la factura", "factura de marzo", "the invoice"], "letter": ["estimada señora", "dear sir"]}
TEXTS = [text for own in EXAMPLES.values() for text in own]
EXPECTED = [label for label, own in EXAMPLES.items() for _ in own]
OTHER = "b" * 64


def swap(desk: Desk, engine=None, sha256: str = OTHER) -> None:
    """Another embedding model takes the place of the one that serves, as the hot loader does it."""
    model = loaded_model(engine or VectorEngine(budget=4096), sha256=sha256)
    desk.house.catalog.replace(model)
    desk.service.follow(model)


async def learnt_again(desk: Desk) -> None:
    """Wait for the background."""
    task = desk.service._relearning
    assert task is not None
    await asyncio.wait_for(asyncio.shield(task), 10.0)


async def given(desk: Desk, name: str = "mail") -> list[str | None]:
    return [row.prediction for row in (await desk.service.classify(TEXTS, model=name)).rows]


@pytest.fixture
async def desk(build, tmp_path) -> Desk:
    return desk_of(build(VectorEngine(budget=4096), lanes=2), tmp_path)


async def test_learn_ask_restart_forget(desk: Desk, tmp_path):
    """A new service on the same folder knows it; forgotten it is gone from both memory and disk."""
    info = await desk.service.learn("mail", EXAMPLES)

    before = await desk.service.classify(TEXTS, model="mail")
    after = await desk_of(desk.house, tmp_path).service.classify(TEXTS, model="mail")

    assert EXPECTED == [row.prediction for row in before.rows]
    assert before.rows == after.rows
    assert ("mail", "learnt", ("bill", "letter"), 5) == (info.name, info.kind, info.labels, info.examples)
    assert [info] == desk.service.classifiers()

    await desk.service.forget("mail")

    with pytest.raises(UnknownModel):
        await desk.service.classify(TEXTS, model="mail")
    with pytest.raises(NotFound):
        await desk.service.forget("mail")
    assert [] == desk_of(desk.house, tmp_path).service.classifiers()


async def test_the_bundled_model_learns_from_three_texts_a_class(build, tmp_path):
    """True vectors: texts that it has not seen, in either language."""
    desk = desk_of(build(embedding_model("bundled"), lanes=2), tmp_path)
    examples = {
        "card": ["My card was swallowed by the machine.", "I lost my credit card.", "My card was declined in a shop."],
        "loan": ["I want to borrow money for a house.", "What is the interest on a mortgage?", "Can I get a loan?"],
    }
    await desk.service.learn("bank", examples)

    found = await desk.service.classify(
        [
            "The cash machine kept my bank card.",
            "How much is a mortgage for a flat?",
            "He perdido la tarjeta de crédito.",
        ],
        model="bank",
    )

    assert ["card", "loan", "card"] == [row.predictions[0].label for row in found.rows]


async def test_learning_again_replaces(desk: Desk):
    """The same name, other labels."""
    await desk.service.learn("mail", EXAMPLES)
    await desk.service.learn("mail", {"yes": ["la factura"], "no": ["dear sir"]})

    [row] = (await desk.service.classify(["la factura"], model="mail")).rows

    assert ({"yes", "no"}, "yes") == ({one.label for one in row.predictions}, row.prediction)


async def test_texts_of_no_class_are_learnt_and_never_named(desk: Desk):
    """The label ``(none)``: such a text gets no prediction, and no such label."""
    examples = {**EXAMPLES, NONE: [f"something else {number}" for number in range(6)]}
    info = await desk.service.learn("mail", examples)

    found = await desk.service.classify([*TEXTS, "something else 3"], model="mail")

    assert ("bill", "letter") == info.labels
    assert {"bill", "letter"} == {one.label for row in found.rows for one in row.predictions}
    assert sum(one.score for one in found.rows[-1].predictions) < 0.5


async def test_a_bundled_name_is_taken(build, tmp_path):
    """What came with the installation can neither be changed nor forgotten; nothing is computed for the refusal."""
    keep_head(tmp_path, "document-type", head_of(spec_of("bundled").sha256))
    desk = desk_of(build(VectorEngine()), tmp_path)

    with pytest.raises(InvalidField, match="'document-type' is a bundled classifier"):
        await desk.service.learn("document-type", EXAMPLES)
    with pytest.raises(InvalidField, match="'document-type' is a bundled classifier"):
        await desk.service.forget("document-type")

    assert [] == desk.house.engine.batches


async def test_bad_examples_cost_nothing(desk: Desk):
    """They are looked at before any of them is embedded."""
    with pytest.raises(InvalidField, match="at least two are needed"):
        await desk.service.learn("mail", {"bill": ["la factura"]})

    assert [] == desk.house.engine.batches


# Another embedding model


async def test_what_was_learnt_is_learnt_again_for_another_model(desk: Desk):
    """In the background; until then it says when to come back: the old head is never asked about new vectors."""
    await desk.service.learn("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(desk, engine)
    with pytest.raises(Unavailable, match="'mail' is being learnt again for this embedding model"):
        await desk.service.classify(TEXTS, model="mail")
    engine.gate.set()

    await learnt_again(desk)

    assert EXPECTED == await given(desk)
    assert OTHER == desk.classifiers.find("mail").head.encoder_sha256
    assert [] == desk.classifiers.stale()


async def test_it_is_learnt_again_at_the_start_too(desk: Desk, build, tmp_path):
    """The folder was made with another model."""
    await desk.service.learn("mail", EXAMPLES)

    house: House = build(VectorEngine(budget=4096), spec={"sha256": OTHER})
    restarted = desk_of(house, tmp_path)
    assert ["mail"] == restarted.classifiers.stale()
    restarted.service.follow(house.catalog.embedding())
    await learnt_again(restarted)

    assert EXPECTED == await given(restarted)


async def test_learning_again_gives_way_to_everybody_else(desk: Desk, monkeypatch):
    """Its jobs are bulk; a user's are not."""
    priorities = list[Priority]()
    submit = desk.house.batcher.submit

    def spied(*arguments, **options):
        priorities.append(options["priority"])
        return submit(*arguments, **options)

    monkeypatch.setattr(desk.house.batcher, "submit", spied)
    await desk.service.learn("mail", EXAMPLES)
    swap(desk)
    await learnt_again(desk)

    assert [Priority.INTERACTIVE, Priority.BULK] == priorities


async def test_newer_examples_win_over_learning_again(desk: Desk):
    """A user who teaches it while the old examples are being learnt again is not undone."""
    await desk.service.learn("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(desk, engine)
    await asyncio.to_thread(engine.entered.wait, 10.0)
    newer = [Example("la", ("yes",)), Example("de", ("no",))]
    desk.classifiers.save("mail", head_of(OTHER, ("yes", "no")), newer)
    engine.gate.set()

    await learnt_again(desk)

    assert ("yes", "no") == desk.classifiers.find("mail").head.labels
    assert newer == desk.classifiers.examples("mail")


async def test_what_is_forgotten_meanwhile_stays_forgotten(desk: Desk):
    """Learning it again does not bring it back."""
    await desk.service.learn("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(desk, engine)
    await asyncio.to_thread(engine.entered.wait, 10.0)
    await desk.service.forget("mail")
    engine.gate.set()

    await learnt_again(desk)

    assert [] == desk.classifiers.names() == desk.classifiers.stale()


async def test_a_model_that_comes_while_learning_is_learnt_for(build, tmp_path):
    """The head answers when the caller is told so: it is of the model that serves then."""
    desk = desk_of(build(GatedVectorEngine(budget=4096)), tmp_path)
    task = asyncio.create_task(desk.service.learn("mail", EXAMPLES))
    await desk.house.entered()
    swap(desk)
    desk.house.engine.gate.set()

    await task

    assert OTHER == desk.classifiers.find("mail").head.encoder_sha256
    assert EXPECTED == await given(desk)


async def test_a_full_queue_only_delays_learning_again(desk: Desk, monkeypatch, caplog):
    """It is tried again when the queue said there would be room."""
    await desk.service.learn("mail", EXAMPLES)
    embed_whole, refusals = desk.house.service.embed_whole, [Overloaded(900, 1000, 0.0)] * 2

    async def busy(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return await embed_whole(*arguments, **options)

    monkeypatch.setattr(desk.house.service, "embed_whole", busy)
    with caplog.at_level(logging.WARNING):
        swap(desk)
        await learnt_again(desk)

    assert 2 == caplog.text.count("a classifier could not be learnt again")
    assert EXPECTED == await given(desk)


async def test_lost_examples_are_told_and_stop_nobody(desk: Desk, tmp_path, caplog):
    """The others are learnt again."""
    for name in ("lost", "mail"):
        await desk.service.learn(name, EXAMPLES)
    next(tmp_path.glob("state/*/lost/examples.jsonl")).unlink()

    with caplog.at_level(logging.WARNING):
        swap(desk)
        await learnt_again(desk)

    assert ["mail"] == desk.classifiers.names()
    assert 1 == caplog.text.count("a classifier could not be learnt again")


async def test_a_second_swap_ends_the_first_ones_background(desk: Desk):
    """Only the model that serves is learnt for."""
    await desk.service.learn("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(desk, engine)
    first = desk.service._relearning
    await asyncio.to_thread(engine.entered.wait, 10.0)
    swap(desk, sha256="c" * 64)
    engine.gate.set()

    await learnt_again(desk)

    assert first is not None
    assert first.cancelled()
    assert "c" * 64 == desk.classifiers.find("mail").head.encoder_sha256


async def test_closing_lets_the_background_go(desk: Desk):
    """Nothing is left running."""
    await desk.service.learn("mail", EXAMPLES)
    engine = GatedVectorEngine(budget=4096)
    swap(desk, engine)
    task = desk.service._relearning
    await asyncio.to_thread(engine.entered.wait, 10.0)

    desk.service.close()
    engine.gate.set()

    with pytest.raises(asyncio.CancelledError):
        await task  # type: ignore[misc]
