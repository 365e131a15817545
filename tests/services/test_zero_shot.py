"""Labels in words: transformers' zero-shot pipeline where an NLI model is loaded, the embedding model otherwise."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from backend.cache.store import NullCache
from backend.engines.scoring import CLASSIFIER
from backend.engines.zero_shot import COMMON_LABELS, LabelVectors, label_texts, label_vectors, scores
from backend.errors import InvalidField, TooLarge, UnknownModel
from backend.services import zero_shot
from backend.services.embedding_options import EmbedOptions
from tests.services.desk import desk_of
from tests.services.house import GatedVectorEngine, VectorEngine, loaded_model
from tests.services.loaded import embedding_model, scoring_model
from tests.tiny_scorers import NLI, TinyScorers, pipeline_of

TEXTS = ["la factura de zürich is due", "the invoice total is 12,50 €", "de la " * 60]
CLASSES = ["la factura", "zürich", "the total is due"]


def scores_of(row) -> dict[str, float]:
    return {one.label: one.score for one in row.predictions}


@pytest.fixture
def nli(scorers: TinyScorers, build, tmp_path):
    """A desk with an NLI model."""

    def make(labels=NLI):
        return desk_of(
            build(VectorEngine(), others=[scoring_model(scorers.folder("bert", labels), CLASSIFIER)], lanes=2), tmp_path
        )

    return make


# NLI


@pytest.mark.parametrize("multi_label", [True, False])
@pytest.mark.parametrize("template", [None, "Esto trata de {}."])
@pytest.mark.parametrize("labels", [NLI, ("entailment", "not_entailment")])
async def test_an_nli_model_has_transformers_scores(scorers: TinyScorers, nli, labels, template, multi_label):
    """Its zero-shot-classification pipeline, a text longer than the model among others."""
    folder = scorers.folder("bert", labels)
    reference = pipeline_of(folder, "zero-shot-classification")
    asked = {"hypothesis_template": template} if template else {}

    found = await nli(labels).service.classify(TEXTS, labels=CLASSES, multi_label=multi_label, **asked)

    for row, text in zip(found.rows, TEXTS, strict=True):
        expected = reference(text, CLASSES, multi_label=multi_label, **asked)
        assert expected["labels"] == [one.label for one in row.predictions]
        assert expected["scores"] == pytest.approx([one.score for one in row.predictions], abs=1e-4)
    assert [False, False, True] == [row.truncated for row in found.rows]
    assert multi_label == found.multi_label


async def test_one_label_alone_is_judged_by_itself(scorers: TinyScorers, nli):
    """One of one would always be sure."""
    folder = scorers.folder("bert", NLI)
    expected = pipeline_of(folder, "zero-shot-classification")(TEXTS[0], CLASSES[:1])

    [row] = (await nli().service.classify(TEXTS[:1], labels=CLASSES[:1])).rows

    assert expected["scores"][0] == pytest.approx(row.score, abs=1e-4)
    assert row.score < 1.0


async def test_all_pairs_of_a_request_wait_together(nli):
    """Each once, equal texts too; tokens are those of every pair of a text."""
    desk = nli()
    engine = desk.house.catalog.of(CLASSIFIER).engine

    found = await desk.service.classify([*TEXTS, TEXTS[0]], labels=CLASSES)

    assert 9 == engine.jobs
    assert found.rows[0] == found.rows[3]
    assert sum(payload.shape[-1] for batch in engine.batches for payload in batch) == sum(
        row.tokens for row in found.rows[:3]
    )


async def test_too_many_pairs_are_refused_before_any_work(nli, monkeypatch):
    """With the numbers."""
    monkeypatch.setattr(zero_shot, "PAIRS_MAX", 8)
    desk = nli()

    with pytest.raises(TooLarge, match="texts times labels: 9 is over the limit of 8") as caught:
        await desk.service.classify(TEXTS, labels=CLASSES)

    assert ("labels", 0) == (caught.value.param, desk.house.catalog.of(CLASSIFIER).engine.jobs)
    assert 3 == len((await desk.service.classify(TEXTS, labels=CLASSES[:2])).rows)


async def test_a_template_without_a_place_for_the_label(nli):
    """Would ask the same of every label."""
    with pytest.raises(InvalidField, match="hypothesis_template"):
        await nli().service.classify(TEXTS, labels=CLASSES, hypothesis_template="This is it.")


@pytest.mark.parametrize(("name", "by"), [(None, "nli"), ("classifier", "nli"), ("bundled", "vectors")])
async def test_either_model_may_be_named(nli, name, by):
    """The NLI model unless the embedding model is; a name of neither lists both."""
    desk = nli()

    found = await desk.service.classify(TEXTS, labels=CLASSES, model=name)

    names = {"nli": desk.house.catalog.of(CLASSIFIER).name, "vectors": desk.house.catalog.embedding().name}
    assert names[by] == found.model
    with pytest.raises(UnknownModel, match=r"'other' is not loaded here; loaded are .*classifier, .*all-MiniLM"):
        await desk.service.classify(TEXTS, labels=CLASSES, model="other")


# Vectors


@pytest.mark.parametrize("multi_label", [True, False])
async def test_without_one_vectors_are_compared(build, tmp_path, multi_label):
    """Of the texts, whole, with those of the labels' prompts; the arithmetic is ml/zero_shot's."""
    house = build(VectorEngine(budget=4096))
    desk = desk_of(house, tmp_path)
    texts = ["la factura", "de " * 700]

    found = await desk.service.classify(texts, labels=CLASSES, multi_label=multi_label)

    whole = await house.service.embed_whole(texts)

    async def vectors(labels) -> LabelVectors:
        normal = EmbedOptions(normalize=True)
        return label_vectors([(await house.service.embed(own, normal)).vectors for own in label_texts(labels)])

    common = await vectors(COMMON_LABELS)
    expected = scores(whole.vectors, await vectors(CLASSES), common, multi_label=multi_label)
    for row, values, tokens in zip(found.rows, expected, whole.tokens, strict=True):
        assert dict(zip(CLASSES, values.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-6)
        assert (tokens, False) == (row.tokens, row.truncated)


async def test_the_bundled_model_knows_what_words_mean(build, tmp_path):
    """True vectors: the label that says what the text is about, in either language."""
    desk = desk_of(build(embedding_model("bundled"), lanes=2), tmp_path)
    texts = ["The team scored twice in the second half.", "El paciente acudió al hospital con fiebre alta."]

    rows = (await desk.service.classify(texts, labels=["sports", "health", "travel"])).rows

    assert ["sports", "health"] == [row.prediction for row in rows]


async def test_a_thousand_labels(build, tmp_path):
    """As many as a request may have: all are scored, the best ones given."""
    desk = desk_of(build(VectorEngine(budget=8192), lanes=2), tmp_path)
    labels = [f"class {number}" for number in range(1000)]

    found = await desk.service.classify(["la factura", "de"], labels=labels, top_k=5)
    every = await desk.service.classify(["la factura", "de"], labels=labels)

    assert [5, 5] == [len(row.predictions) for row in found.rows]
    assert [row.predictions[:5] for row in every.rows] == [row.predictions for row in found.rows]
    assert 1.0 == pytest.approx(sum(one.score for one in every.rows[0].predictions), abs=1e-4)
    assert set(labels) == {one.label for one in every.rows[0].predictions}


async def test_a_template_is_for_nli_models(build, tmp_path):
    """A wish that vectors cannot grant is no silence."""
    with pytest.raises(InvalidField, match="hypothesis_template: is for NLI models"):
        await desk_of(build(VectorEngine()), tmp_path).service.classify(
            TEXTS, labels=CLASSES, hypothesis_template="This is {}."
        )


async def test_the_common_labels_are_embedded_once_a_model(build, tmp_path):
    """Without a cache too, and only where labels are judged one by one; another model makes its own."""
    house = build(VectorEngine(budget=8192), cache=NullCache())
    desk, counts = desk_of(house, tmp_path), list[int]()
    other = loaded_model(house.engine, sha256="b" * 64)

    for multi_label, model in ((False, None), (True, None), (True, None), (True, other), (True, None)):
        if model is not None:
            house.catalog.replace(model)
        before = len(house.computed)
        await desk.service.classify(["la"], labels=CLASSES, multi_label=multi_label)
        counts.append(len(house.computed) - before)

    plain, common = counts[0], sum(map(len, label_texts(COMMON_LABELS)))
    assert [plain, plain + common, plain, plain + common, plain] == counts


@pytest.mark.parametrize("at_once", [1, 7, 2048])
async def test_prompts_are_embedded_in_parts(build, tmp_path, monkeypatch, at_once):
    """A thousand labels of several names each are tens of thousands of prompts; each label keeps its own."""
    monkeypatch.setattr("backend.services.inference._PART", at_once)
    desk = desk_of(build(VectorEngine(budget=8192)), tmp_path)

    [row] = (await desk.service.classify(["la"], labels=["science/technology", "travel", "a and b or c"])).rows
    monkeypatch.undo()
    [expected] = (await desk.service.classify(["la"], labels=["science/technology", "travel", "a and b or c"])).rows

    assert expected.predictions == row.predictions


async def test_one_model_judges_texts_and_labels(build, tmp_path):
    """Another that takes its place meanwhile is for the next request: vectors of two never meet."""
    house = build(GatedVectorEngine(budget=8192))
    desk, old = desk_of(house, tmp_path), house.catalog.embedding()
    task = asyncio.create_task(desk.service.classify(["la"], labels=CLASSES))
    await house.entered()
    new = VectorEngine()
    house.catalog.replace(loaded_model(new, sha256="b" * 64))
    house.engine.gate.set()

    found = await task

    assert (old.name, 0) == (found.model, len(new.batches))
    assert np.isfinite([one.score for one in found.rows[0].predictions]).all()


async def test_only_the_callers_texts_are_counted(build, tmp_path):
    """Prompts are ours."""
    house = build(VectorEngine(budget=8192))

    found = await desk_of(house, tmp_path).service.classify(["la", "de la"], labels=CLASSES)

    assert (2.0, float(found.tokens)) == (
        house.metric("inputs_total", task=CLASSIFIER),
        house.metric("tokens_total", task=CLASSIFIER),
    )
    assert 0.0 == house.metric("inputs_total", task="embeddings")
