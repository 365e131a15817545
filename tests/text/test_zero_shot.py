"""Zero-shot classification: equal to transformers' pipeline with an NLI model, else by the embedding model."""

import asyncio

import numpy as np
import pytest

from backend.errors import InvalidField, TooLarge, UnknownModel
from backend.lanes.cache.store import NullCache
from backend.serving.engines.heads import CLASSIFIER
from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS
from backend.serving.engines.zero_shot import (
    LabelVectors,
    common_label_texts,
    label_texts,
    label_vectors,
    reference_of,
    scores,
)
from backend.text import zero_shot
from backend.text.embeddings import EmbedOptions
from tests.serving.loaded_models import embedding_model, scoring_model
from tests.text.classification_setup import build_classification
from tests.text.service_stack import PROMPTS, GatedVectorEngine, VectorEngine, loaded_model
from tests.tiny_scorers import NLI, TinyScorers, pipeline_of

TEXTS = ["la factura de zürich is due", "the invoice total is 12,50 €", "de la " * 60]
CLASSES = ["la factura", "zürich", "the total is due"]


def scores_of(row) -> dict[str, float]:
    return {prediction.label: prediction.score for prediction in row.predictions}


@pytest.fixture
def nli(scorers: TinyScorers, build, tmp_path):
    """Makes a setup with an NLI model."""

    def make(labels=NLI):
        return build_classification(
            build(VectorEngine(), others=[scoring_model(scorers.folder("bert", labels), CLASSIFIER)], lanes=2), tmp_path
        )

    return make


# NLI


@pytest.mark.parametrize("multi_label", [True, False])
@pytest.mark.parametrize("template", [None, "Esto trata de {}."])
@pytest.mark.parametrize("labels", [NLI, ("entailment", "not_entailment")])
async def test_an_nli_model_has_transformers_scores(scorers: TinyScorers, nli, labels, template, multi_label):
    """Scores equal those of the zero-shot-classification pipeline, also of a truncated text."""
    folder = scorers.folder("bert", labels)
    reference = pipeline_of(folder, "zero-shot-classification")
    options = {"hypothesis_template": template} if template else {}

    result = await nli(labels).service.classify(TEXTS, labels=CLASSES, multi_label=multi_label, **options)

    for row, text in zip(result.rows, TEXTS, strict=True):
        expected = reference(text, CLASSES, multi_label=multi_label, **options)
        assert expected["labels"] == [prediction.label for prediction in row.predictions]
        assert expected["scores"] == pytest.approx([prediction.score for prediction in row.predictions], abs=1e-4)
    assert [False, False, True] == [row.truncated for row in result.rows]
    assert multi_label == result.multi_label


async def test_a_single_label_is_scored_by_itself(scorers: TinyScorers, nli):
    """A softmax over one label would always be 1."""
    folder = scorers.folder("bert", NLI)
    expected = pipeline_of(folder, "zero-shot-classification")(TEXTS[0], CLASSES[:1])

    [row] = (await nli().service.classify(TEXTS[:1], labels=CLASSES[:1])).rows

    assert expected["scores"][0] == pytest.approx(row.score, abs=1e-4)
    assert row.score < 1.0


async def test_equal_pairs_run_once(nli):
    """Pairs of equal texts run once; a text's tokens are those of all its pairs."""
    setup = nli()
    engine = setup.stack.catalog.of(CLASSIFIER).engine

    result = await setup.service.classify([*TEXTS, TEXTS[0]], labels=CLASSES)

    assert 9 == engine.inputs
    assert result.rows[0] == result.rows[3]
    assert sum(payload.shape[-1] for batch in engine.batches for payload in batch) == sum(
        row.tokens for row in result.rows[:3]
    )


async def test_too_many_pairs_are_refused_before_any_work(nli, monkeypatch):
    """The error has the numbers, and no pair runs."""
    monkeypatch.setattr(zero_shot, "PAIRS_MAX", 8)
    setup = nli()

    with pytest.raises(TooLarge, match="texts times labels: 9 is over the limit of 8") as caught:
        await setup.service.classify(TEXTS, labels=CLASSES)

    assert ("labels", 0) == (caught.value.param, setup.stack.catalog.of(CLASSIFIER).engine.inputs)
    assert 3 == len((await setup.service.classify(TEXTS, labels=CLASSES[:2])).rows)


@pytest.mark.parametrize(("name", "used"), [(None, "nli"), ("classifier", "nli"), ("bundled", "vectors")])
async def test_either_model_may_be_named(nli, name, used):
    """The NLI model unless the embedding model is; a name of neither lists both."""
    setup = nli()

    result = await setup.service.classify(TEXTS, labels=CLASSES, model=name)

    names = {"nli": setup.stack.catalog.of(CLASSIFIER).name, "vectors": setup.stack.catalog.embedding().name}
    assert names[used] == result.model
    with pytest.raises(UnknownModel, match=r"'other' is not loaded here; loaded are .*classifier, .*all-MiniLM"):
        await setup.service.classify(TEXTS, labels=CLASSES, model="other")


# Vectors


@pytest.mark.parametrize("multi_label", [True, False])
@pytest.mark.parametrize("prompts", [{}, PROMPTS], ids=["no-prompts", "prompts"])
async def test_without_an_nli_model_vectors_are_compared(build, tmp_path, multi_label, prompts):
    """Of the texts in their language and of the labels' sentences, both with the prompt for queries if there is one."""
    stack = build(VectorEngine(budget=4096), spec={"prompts": prompts})
    setup = build_classification(stack, tmp_path)
    texts = ["La factura vence a finales de mes.", "The invoice is due at the end of the month.", "de " * 700]

    result = await setup.service.classify(texts, labels=CLASSES, multi_label=multi_label)

    embedded = await stack.service.embed_untruncated(texts, prompts=("query",))
    options = EmbedOptions(prompt_name="query" if prompts else None, normalize=True)

    async def vectors(labels) -> LabelVectors:
        return label_vectors([(await stack.service.embed(sentences, options)).vectors for sentences in labels])

    neutral = (await stack.service.embed(ALL_NEUTRAL_TEXTS, options)).vectors
    reference = reference_of(await vectors(common_label_texts()), neutral)
    languages = ["es", "en", None]
    labels = await vectors(label_texts(CLASSES))
    expected = scores(embedded.vectors, languages, labels, reference, multi_label=multi_label)
    for row, values, tokens in zip(result.rows, expected, embedded.tokens, strict=True):
        assert dict(zip(CLASSES, values.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-6)
        assert (tokens, False) == (row.tokens, row.truncated)


async def test_the_bundled_model_finds_the_topic(build, tmp_path):
    """With real vectors, the label of the text's topic scores best, in either language."""
    setup = build_classification(build(embedding_model("minilm"), lanes=2), tmp_path)
    texts = ["The team scored twice in the second half.", "El paciente acudió al hospital con fiebre alta."]

    rows = (await setup.service.classify(texts, labels=["sports", "health", "travel"])).rows

    assert ["sports", "health"] == [row.prediction for row in rows]


@pytest.mark.slow
async def test_the_sentences_of_labels_are_counted(build, tmp_path):
    """What is read for a request's labels is told, and so charged: eight names of a label are 48 sentences."""
    stack = build(VectorEngine(budget=8192))
    labels = ["/".join(f"factura {number} {name}" for name in range(8)) for number in range(3)]

    result = await build_classification(stack, tmp_path).service.classify(["la"], labels=labels)

    sentences = [sentence for of_label in label_texts(labels) for sentence in of_label]
    embedded = await stack.service.embed(sentences, EmbedOptions(normalize=True))
    assert result.tokens == result.rows[0].tokens + sum(embedded.tokens)
    assert float(result.tokens) == stack.metric("tokens_total", task=CLASSIFIER)


async def test_a_thousand_labels(build, tmp_path):
    """As many as a request may have: all are scored, the best are returned."""
    setup = build_classification(build(VectorEngine(budget=8192), lanes=2), tmp_path)
    labels = [f"class {number}" for number in range(1000)]

    result = await setup.service.classify(["la factura", "de"], labels=labels, top_k=5)
    every = await setup.service.classify(["la factura", "de"], labels=labels)

    assert [5, 5] == [len(row.predictions) for row in result.rows]
    assert [row.predictions[:5] for row in every.rows] == [row.predictions for row in result.rows]
    assert 1.0 == pytest.approx(sum(prediction.score for prediction in every.rows[0].predictions), abs=1e-4)
    assert set(labels) == {prediction.label for prediction in every.rows[0].predictions}


async def test_a_template_is_for_nli_models(build, tmp_path):
    """Refused without an NLI model, not ignored."""
    with pytest.raises(InvalidField, match="hypothesis_template: is for NLI models"):
        await build_classification(build(VectorEngine()), tmp_path).service.classify(
            TEXTS, labels=CLASSES, hypothesis_template="This is {}."
        )


async def test_a_model_is_measured_once(build, tmp_path):
    """Common labels and neutral texts are embedded at the first request, also without a cache; after a swap anew."""
    stack = build(VectorEngine(budget=8192), cache=NullCache())
    setup, counts = build_classification(stack, tmp_path), list[int]()
    other = loaded_model(stack.engine, sha256="b" * 64)

    for multi_label, model in ((False, None), (True, None), (False, other), (True, None)):
        if model is not None:
            stack.catalog.replace(model)
        before = len(stack.computed)
        await setup.service.classify(["la"], labels=CLASSES, multi_label=multi_label)
        counts.append(len(stack.computed) - before)

    plain = 1 + sum(map(len, label_texts(CLASSES)))
    first = plain + sum(map(len, common_label_texts())) + len(ALL_NEUTRAL_TEXTS)
    assert [first, plain, first, plain] == counts


@pytest.mark.parametrize("at_once", [1, 7, 2048])
async def test_prompts_are_embedded_in_chunks(build, tmp_path, monkeypatch, at_once):
    """A thousand labels of several names each are tens of thousands of prompts; each label keeps its own."""
    monkeypatch.setattr("backend.lanes.inference.CHUNK_INPUTS", at_once)
    setup = build_classification(build(VectorEngine(budget=8192)), tmp_path)

    [row] = (await setup.service.classify(["la"], labels=["science/technology", "travel", "a and b or c"])).rows
    monkeypatch.undo()
    [expected] = (await setup.service.classify(["la"], labels=["science/technology", "travel", "a and b or c"])).rows

    assert expected.predictions == row.predictions


async def test_one_model_embeds_texts_and_labels(build, tmp_path):
    """A swap meanwhile affects the next request: vectors of two models are never compared."""
    stack = build(GatedVectorEngine(budget=8192))
    setup, old = build_classification(stack, tmp_path), stack.catalog.embedding()
    task = asyncio.create_task(setup.service.classify(["la"], labels=CLASSES))
    await stack.entered()
    new = VectorEngine()
    stack.catalog.replace(loaded_model(new, sha256="b" * 64))
    stack.engine.gate.set()

    result = await task

    assert (old.name, 0) == (result.model, len(new.batches))
    assert np.isfinite([prediction.score for prediction in result.rows[0].predictions]).all()


async def test_only_the_callers_texts_are_counted(build, tmp_path):
    """Label prompts are not counted as inputs."""
    stack = build(VectorEngine(budget=8192))

    result = await build_classification(stack, tmp_path).service.classify(["la", "de la"], labels=CLASSES)

    assert (2.0, float(result.tokens)) == (
        stack.metric("inputs_total", task=CLASSIFIER),
        stack.metric("tokens_total", task=CLASSIFIER),
    )
    assert 0.0 == stack.metric("inputs_total", task="embeddings")
