"""Bundled classifiers on an encoder that none was published for: learnt once from the examples that ship, and kept."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import InferenceFailed, InvalidField, Unavailable, UnknownModel
from backend.models.fingerprint import EncoderIdentity
from backend.text.classifier_files import FOLDER, BundledHeads
from tests.fakes import TEST_TIMEOUT_S
from tests.text.classification_setup import ClassificationSetup, build_classification, random_head, write_bundled_head
from tests.text.service_stack import FailingVectorEngine, GatedVectorEngine, VectorEngine, loaded_model

ROWS = [
    ("invoice", "la factura"), ("invoice", "factura de marzo"), ("contract", "el contrato"),
    ("contract", "the lease"), ("letter", "estimada señora"), ("letter", "dear sir"), ("(none)", "una receta"),
]  # fmt: skip
TEXTS = [text for label, text in ROWS if label != "(none)"]
EXPECTED = [label for label, _ in ROWS if label != "(none)"]
NAME = "document-type"  # the one that answers where a request names none
PUBLISHED_FOR = "c" * 64


def write_examples(root: Path, rows=ROWS) -> None:
    folder = root / "bundled" / "examples"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"label": label, "lang": "es", "text": text}) + "\n" for label, text in rows]
    (folder / f"{NAME}.jsonl").write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    """A published head of another encoder, and its examples."""
    write_bundled_head(tmp_path, NAME, random_head(PUBLISHED_FOR))
    write_examples(tmp_path)
    return tmp_path


def started(stack, root: Path) -> ClassificationSetup:
    """As the composition root starts it."""
    setup = build_classification(stack, root)
    setup.service.on_model_swap(stack.catalog.embedding())
    return setup


async def learnt(setup: ClassificationSetup) -> None:
    """Wait until training in the background has ended."""
    task = setup.service.retraining
    assert task is not None
    await asyncio.wait_for(asyncio.shield(task), TEST_TIMEOUT_S)


async def predictions_of(setup: ClassificationSetup, model: str | None = NAME) -> list[str | None]:
    return [row.predictions[0].label for row in (await setup.service.classify(TEXTS, model=model)).rows]


async def test_it_is_learnt_at_the_first_start(build, bundled):
    """Nothing is asked for: after the start it answers for this encoder, as a bundled one, also where it is unnamed."""
    setup = started(build(VectorEngine(budget=4096), lanes=2), bundled)
    await learnt(setup)

    [info] = setup.service.classifiers()

    assert (NAME, "bundled", ("invoice", "contract", "letter"), "ready", 7) == (
        info.name,
        info.kind,
        info.labels,
        info.status,
        info.examples,
    )
    assert EXPECTED == await predictions_of(setup) == await predictions_of(setup, None)


async def test_until_then_it_is_pending(build, bundled):
    """It is listed as such with its labels; who asks for it is told to come back, and nobody waits for readiness."""
    engine = GatedVectorEngine(budget=4096)
    setup = started(build(engine, lanes=2), bundled)

    [info] = setup.service.classifiers()
    assert (NAME, "pending", ("invoice", "contract", "letter")) == (info.name, info.status, info.labels)
    report = setup.service.report()
    assert ([], [NAME], []) == (report["names"], report["pending"], report["faults"])
    assert setup.service.can_classify()
    for model in (NAME, None):
        with pytest.raises(Unavailable, match="being learnt") as caught:
            await setup.service.classify(["una factura"], model=model)
        assert caught.value.retry_after_s > 0

    engine.gate.set()
    await learnt(setup)

    assert EXPECTED == await predictions_of(setup)


async def test_it_is_kept_for_the_next_start(build, bundled):
    """A restart embeds nothing, and gives the same scores."""
    setup = started(build(VectorEngine(budget=4096), lanes=2), bundled)
    await learnt(setup)
    before = await setup.service.classify(TEXTS, model=NAME)

    again = build_classification(setup.stack, bundled)

    assert [] == again.registry.pending()
    assert before.rows == (await again.service.classify(TEXTS, model=NAME)).rows


async def test_other_examples_are_learnt_anew(build, bundled):
    """A release with other examples does not serve what was learnt from the old ones."""
    setup = started(build(VectorEngine(budget=4096), lanes=2), bundled)
    await learnt(setup)
    write_examples(bundled, [*ROWS, ("letter", "querida tía")])

    again = started(setup.stack, bundled)

    assert [NAME] == again.registry.pending()
    await learnt(again)
    assert 8 == again.registry.find(NAME).head.info["examples"]


async def test_a_model_swap_learns_for_the_new_encoder(build, bundled):
    """And going back finds what was kept, without embedding again."""
    setup = started(build(VectorEngine(budget=4096), lanes=2), bundled)
    await learnt(setup)
    first, version = setup.stack.catalog.embedding(), setup.registry.find(NAME).head.version
    second = loaded_model(VectorEngine(budget=4096), sha256="b" * 64)

    setup.stack.catalog.replace(second)
    setup.service.on_model_swap(second)
    assert [NAME] == setup.registry.pending()
    await learnt(setup)

    assert second.spec.identity == setup.registry.find(NAME).head.trained_on

    setup.stack.catalog.replace(first)
    embedded = len(setup.stack.computed)
    setup.service.on_model_swap(first)
    await learnt(setup)

    assert (version, embedded) == (setup.registry.find(NAME).head.version, len(setup.stack.computed))


async def test_the_published_head_comes_first(build, bundled):
    """Where a head was published for the encoder nothing is learnt."""
    stack = build(VectorEngine(budget=4096), lanes=2)
    identity = stack.catalog.embedding().spec.identity
    head = replace(random_head(identity.sha256), encoder_fingerprint=identity.fingerprint)
    write_bundled_head(bundled, "topics", head)

    setup = started(stack, bundled)

    assert ([NAME], ["topics"]) == (setup.registry.pending(), setup.registry.names())
    assert head.version == setup.registry.find("topics").head.version


async def test_a_disk_that_refuses_keeps_it_in_memory(build, bundled, monkeypatch):
    """It serves until the process ends; the next start learns it again."""

    def refuse(*_args, **_more):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("backend.text.classifier_files.write_folder", refuse)
    setup = started(build(VectorEngine(budget=4096), lanes=2), bundled)
    await learnt(setup)

    assert EXPECTED == await predictions_of(setup)
    assert [NAME] == build_classification(setup.stack, bundled).registry.pending()


async def test_one_that_cannot_be_learnt_is_unknown(build, bundled):
    """An encoder that fails for good leaves a fault for GET /v1/system; nobody is told to come back for ever."""
    engine = FailingVectorEngine(error=InferenceFailed("broken"), budget=4096)
    setup = started(build(engine, lanes=2), bundled)
    await learnt(setup)

    assert [] == setup.service.classifiers()
    assert [f"{NAME}: broken"] == setup.registry.faults
    with pytest.raises(UnknownModel):
        await setup.service.classify(TEXTS, model=NAME)
    with pytest.raises(InvalidField, match="labels"):
        await setup.service.classify(TEXTS)


async def test_its_name_stays_taken(build, bundled):
    """Neither pending nor learnt here can it be replaced by examples of a caller."""
    setup = started(build(VectorEngine(budget=4096), lanes=2), bundled)
    with pytest.raises(InvalidField, match="bundled classifier"):
        await setup.service.train_classifier(NAME, {"a": ["x"], "b": ["y"]})
    await learnt(setup)
    with pytest.raises(InvalidField, match="bundled classifier"):
        await setup.service.train_classifier(NAME, {"a": ["x"], "b": ["y"]})


def test_heads_of_few_encoders_are_kept(bundled):
    """The oldest go, so that swapping models fills no disk; one that is damaged counts as none."""
    heads = BundledHeads(bundled / "bundled", bundled / "state")
    encoders = [EncoderIdentity(f"{number}" * 64, f"{number}" * 64) for number in range(6)]
    for number, encoder in enumerate(encoders):
        head = replace(random_head(encoder.sha256), name=NAME, encoder_fingerprint=encoder.fingerprint)
        heads.keep(replace(head, info=heads.info(NAME)))
        os.utime(bundled / "state" / FOLDER / encoder.fingerprint[:16], (number, number))

    kept = [encoder for encoder in encoders if heads.read(NAME, encoder) is not None]

    assert encoders[2:] == kept
    (bundled / "state" / FOLDER / encoders[5].fingerprint[:16] / NAME / "head.safetensors").write_bytes(b"half")
    assert heads.read(NAME, encoders[5]) is None
