"""Classes of texts: by heads on vectors, by sequence classifiers, with thresholds, names and counts."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from backend.batching.work_item import Priority
from backend.engines.scoring import CLASSIFIER
from backend.errors import InvalidField, UnknownModel
from backend.models.numpy_layers import sigmoid, softmax
from backend.services import classification
from tests.services.desk import LABELS, Desk, desk_of, head_of, keep_head
from tests.services.house import VectorEngine, loaded_model
from tests.services.loaded import scoring_model
from tests.tiny_models import spec_of
from tests.tiny_scorers import NLI, TinyScorers, reference_logits, reference_scores

TEXTS = ["la factura", "", "the total is due", "la factura"]
LONG = "la factura de marzo, número 12; " * 200


@pytest.fixture
async def desk(build, tmp_path) -> Desk:
    """A bundled head and no other model."""
    keep_head(tmp_path, "document-type", head_of(spec_of("bundled").sha256))
    return desk_of(build(VectorEngine(budget=4096), lanes=2), tmp_path)


def scores_of(row) -> dict[str, float]:
    return {one.label: one.score for one in row.predictions}


# Heads


async def test_a_head_judges_the_vectors_of_embed(desk: Desk):
    """Every label's probability, best first, texts in their order."""
    head = desk.classifiers.find("document-type").head
    vectors = (await desk.house.service.embed(TEXTS)).vectors

    found = await desk.service.classify(TEXTS)

    expected = softmax(vectors @ head.weight.T + head.bias)
    for row, scores in zip(found.rows, expected, strict=True):
        assert dict(zip(LABELS, scores.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-6)
        assert sorted((one.score for one in row.predictions), reverse=True) == [one.score for one in row.predictions]
        assert (row.predictions[0].label, row.predictions[0].score) == (row.prediction, row.score)
    assert found.rows[0] == found.rows[3]
    assert ("document-type", False) == (found.model, found.multi_label)


async def test_a_long_text_is_classified_whole(desk: Desk):
    """What its end says counts, and it is not told to be cut."""
    head = desk.classifiers.find("document-type").head
    [vector] = (await desk.house.service.embed_whole([LONG])).vectors

    [row] = (await desk.service.classify([LONG])).rows

    assert dict(zip(LABELS, head.probabilities(vector[None])[0].tolist(), strict=True)) == pytest.approx(scores_of(row))
    assert not row.truncated
    assert row.tokens > 2 * 256


async def test_a_head_abstains_below_its_threshold(build, tmp_path):
    """The score says how sure it would have been; the request's own threshold goes before."""
    sha256 = spec_of("bundled").sha256
    keep_head(tmp_path, "document-type", head_of(sha256, threshold=0.9))
    desk = desk_of(build(VectorEngine()), tmp_path)
    texts = [f"text {number}" for number in range(40)]

    rows = (await desk.service.classify(texts)).rows
    rows_of_any = (await desk.service.classify(texts, min_score=0.0)).rows
    none = (await desk.service.classify(texts, min_score=1.0)).rows

    given = [row.prediction for row in rows]
    assert None in given
    assert set(given) - {None}
    assert [row.score >= 0.9 for row in rows] == [one is not None for one in given]
    assert [row.predictions[0].label for row in rows] == [row.prediction for row in rows_of_any]
    assert {None} == {row.prediction for row in none}
    assert [row.predictions for row in rows] == [row.predictions for row in none]


@pytest.mark.parametrize("top_k", [1, 2, 3, 50])
async def test_the_best_labels(desk: Desk, top_k):
    """The first of all; what is given and its score stay."""
    everything = await desk.service.classify(TEXTS)
    best = await desk.service.classify(TEXTS, top_k=top_k)

    assert [row.predictions[:top_k] for row in everything.rows] == [row.predictions for row in best.rows]
    assert [(row.prediction, row.score) for row in everything.rows] == [
        (row.prediction, row.score) for row in best.rows
    ]


async def test_a_head_of_several_labels(build, tmp_path):
    """Each label by itself; asking it for one of its labels is refused, as the other way round is."""
    sha256 = spec_of("bundled").sha256
    keep_head(tmp_path, "document-type", head_of(sha256))
    keep_head(tmp_path, "tags", head_of(sha256, ("paid", "urgent"), multiple=True, threshold=0.5))
    desk = desk_of(build(VectorEngine()), tmp_path)
    head = desk.classifiers.find("tags").head
    vectors = (await desk.house.service.embed(TEXTS)).vectors

    found = await desk.service.classify(TEXTS, model="tags", multi_label=True)

    for row, scores in zip(found.rows, sigmoid(vectors @ head.weight.T + head.bias), strict=True):
        assert {"paid": scores[0], "urgent": scores[1]} == pytest.approx(scores_of(row), abs=1e-6)
    assert found.multi_label
    with pytest.raises(
        InvalidField, match="tags was made to give a text any number of its labels; leave multi_label out"
    ):
        await desk.service.classify(TEXTS, model="tags", multi_label=False)
    with pytest.raises(InvalidField, match="document-type was made to give a text one of its labels"):
        await desk.service.classify(TEXTS, multi_label=True)


async def test_urgency_reaches_the_lanes(desk: Desk, clock):
    """Of vectors too."""
    submitted = list[tuple[Priority, float]]()
    submit = desk.house.batcher.submit

    def spied(*arguments, **options):
        submitted.append((options["priority"], options["deadline_s"]))
        return submit(*arguments, **options)

    desk.house.batcher.submit = spied  # type: ignore[method-assign]
    for labels in (None, ["factura", "contrato"]):
        await desk.service.classify(["nuevo", LONG], labels=labels, priority=Priority.BULK, deadline_s=clock() + 9)

    assert {(Priority.BULK, clock() + 9)} == set(submitted)
    assert 3 == len(submitted)  # a text, a long one's windows, labels


# Models


@pytest.mark.parametrize(
    ("problem", "multi_label"),
    [
        pytest.param("single_label_classification", None, id="one"),
        pytest.param("multi_label_classification", None, id="several"),
        pytest.param("single_label_classification", True, id="several-because-asked-for"),
        pytest.param("multi_label_classification", False, id="one-because-asked-for"),
    ],
)
async def test_a_sequence_classifier_has_transformers_scores(
    scorers: TinyScorers, build, tmp_path, problem, multi_label
):
    """By its own activation unless the request says otherwise; a text beyond its length is cut and told so."""
    folder = scorers.folder("bert", problem_type=problem)
    desk = desk_of(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)
    texts = [*TEXTS, "de la " * 60]

    found = await desk.service.classify(texts, multi_label=multi_label)

    several = problem.startswith("multi") if multi_label is None else multi_label
    logits = np.stack(await _logits(desk, texts))
    expected = sigmoid(logits) if several else softmax(logits)
    if multi_label is None:
        np.testing.assert_allclose(expected, reference_scores(folder, texts), atol=1e-4)
    for row, scores in zip(found.rows, expected, strict=True):
        assert dict(zip(LABELS, scores.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-4)
    assert several == found.multi_label
    assert [False] * 4 + [True] == [row.truncated for row in found.rows]


async def _logits(desk: Desk, texts) -> list[np.ndarray]:
    raw = await desk.service.predict(texts, raw_scores=True)
    return [np.array([scores_of(row)[label] for label in LABELS]) for row in raw.rows]


async def test_an_unsure_tagger_gives_nothing(scorers: TinyScorers, build, tmp_path):
    """Of labels that each may be right none is where no score reaches a half."""
    folder = scorers.folder("bert", problem_type="multi_label_classification")
    desk = desk_of(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)

    rows = (await desk.service.classify([f"the {number}" for number in range(30)])).rows

    assert [row.score >= 0.5 for row in rows] == [row.prediction is not None for row in rows]


# Names


async def test_who_answers_unless_named(scorers: TinyScorers, build, tmp_path):
    """The model that was configured goes before the bundled head, which keeps its name."""
    keep_head(tmp_path, "document-type", head_of(spec_of("bundled").sha256))
    model = scoring_model(scorers.folder("bert"), CLASSIFIER)
    desk = desk_of(build(VectorEngine(), others=[model]), tmp_path)

    named = {
        name: (await desk.service.classify(["la"], model=name)).model for name in (None, "classifier", "document-type")
    }

    assert {None: model.name, "classifier": model.name, "document-type": "document-type"} == named
    assert ["document-type", model.name] == [one.name for one in desk.service.classifiers()]
    assert ["bundled", "model"] == [one.kind for one in desk.service.classifiers()]


async def test_an_unknown_name_lists_the_known(scorers: TinyScorers, build, tmp_path):
    """Heads and the model's names."""
    keep_head(tmp_path, "document-type", head_of(spec_of("bundled").sha256))
    desk = desk_of(build(VectorEngine(), others=[scoring_model(scorers.folder("bert"), CLASSIFIER)]), tmp_path)

    with pytest.raises(UnknownModel, match=r"'other' is not loaded here; loaded are document-type, .*classifier"):
        await desk.service.classify(["la"], model="other")


@pytest.mark.parametrize("nli", [True, False])
async def test_where_nothing_can_answer_without_labels_that_is_said(scorers: TinyScorers, build, tmp_path, nli):
    """A head of another encoder does not count, nor does an NLI model, which has no classes of its own."""
    keep_head(tmp_path, "document-type", head_of("a" * 64))
    others = [scoring_model(scorers.folder("bert", NLI), CLASSIFIER)] if nli else []
    desk = desk_of(build(VectorEngine(), others=others), tmp_path)

    assert not desk.service.can_classify()
    with pytest.raises(InvalidField, match="give labels to choose from") as caught:
        await desk.service.classify(["la"])
    assert "labels" == caught.value.param
    if nli:
        with pytest.raises(InvalidField, match="needs labels to choose from"):
            await desk.service.classify(["la"], model="classifier")


# Whole vectors that are there


async def test_classes_of_vectors_that_are_there(desk: Desk):
    """As classify finds them, without asking anybody; another encoder's vectors are refused."""
    whole = await desk.house.service.embed_whole(["la factura"])
    desk.house.engine.batches.clear()

    found = desk.service.of_whole(["la factura"], whole)
    foreign = replace(whole, model=loaded_model(VectorEngine(), sha256="b" * 64))

    assert found is not None
    assert (await desk.service.classify(["la factura"])).rows == found.rows
    assert desk.service.of_whole(["la factura"], foreign) is None
    assert [] == desk.house.engine.batches


async def test_vectors_do_not_help_a_model_that_reads_texts(scorers: TinyScorers, build, tmp_path):
    """It has to be asked."""
    desk = desk_of(build(VectorEngine(), others=[scoring_model(scorers.folder("bert"), CLASSIFIER)]), tmp_path)

    assert desk.service.of_whole(["la"], await desk.house.service.embed_whole(["la"])) is None


# Predict


@pytest.mark.parametrize("raw_scores", [True, False])
async def test_predict_gives_every_label_of_a_pair(scorers: TinyScorers, build, tmp_path, raw_scores):
    """By the model, texts and pairs mixed: its logits or its scores."""
    folder = scorers.folder("bert")
    desk = desk_of(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)

    found = await desk.service.predict([("la", "factura"), "la factura", ("la", "")], raw_scores=raw_scores)

    logits = reference_logits(folder, [("la", "factura"), ("la", "")], "longest_first")
    for row, expected in zip(found.rows[::2], logits if raw_scores else softmax(logits), strict=True):
        assert dict(zip(LABELS, expected.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-3)
    assert 3 == len(found.rows)


async def test_predict_by_a_head(desk: Desk):
    """Its logits where raw scores are asked for; pairs are refused with the way to a model for them."""
    head = desk.classifiers.find("document-type").head
    vectors = (await desk.house.service.embed(TEXTS)).vectors

    raw = await desk.service.predict(TEXTS, raw_scores=True)

    for row, logits in zip(raw.rows, vectors @ head.weight.T + head.bias, strict=True):
        assert dict(zip(LABELS, logits.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-4)
    assert (await desk.service.predict(TEXTS)).rows == (await desk.service.classify(TEXTS)).rows
    with pytest.raises(InvalidField, match="document-type classifies single texts; set CLASSIFIER_MODEL"):
        await desk.service.predict(["la", ("la", "de")])


async def test_pairs_go_to_an_nli_model_and_texts_to_the_head(scorers: TinyScorers, build, tmp_path):
    """Whether one text entails another is what it was made to tell; of a text alone it says nothing."""
    keep_head(tmp_path, "document-type", head_of(spec_of("bundled").sha256))
    folder = scorers.folder("bert", NLI)
    desk = desk_of(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)

    [pair] = (await desk.service.predict([("la factura", "the total")])).rows
    [text] = (await desk.service.predict(["la factura"])).rows

    expected = softmax(reference_logits(folder, [("la factura", "the total")], "longest_first"))[0]
    assert dict(zip(NLI, expected.tolist(), strict=True)) == pytest.approx(scores_of(pair), abs=1e-4)
    assert set(LABELS) == set(scores_of(text))


# Counts, and the loop


async def test_inputs_are_counted_once(desk: Desk):
    """As the classifier's, windows and hits aside; the embedding task has no part in it."""
    found = await desk.service.classify([*TEXTS, LONG])
    await desk.service.classify(TEXTS)

    metric = desk.house.metric
    assert 9.0 == metric("inputs_total", task=CLASSIFIER)
    tokens = found.tokens + sum(row.tokens for row in found.rows[:4])
    assert (float(tokens), 0.0) == (metric("tokens_total", task=CLASSIFIER), metric("inputs_total", task="embeddings"))


@pytest.mark.parametrize(("texts", "inline"), [(2, True), (300, False)])
async def test_large_tables_are_sorted_off_the_loop(build, tmp_path, monkeypatch, texts, inline):
    """A hundred labels of many texts are work for a thread."""
    labels = tuple(f"label-{number}" for number in range(100))
    keep_head(tmp_path, "document-type", head_of(spec_of("bundled").sha256, labels))
    desk = desk_of(build(VectorEngine(budget=4096)), tmp_path)
    threads, sort = list[bool](), classification._classified

    def spied(*arguments):
        threads.append(threading.current_thread() is threading.main_thread())
        return sort(*arguments)

    monkeypatch.setattr(classification, "_classified", spied)
    found = await desk.service.classify([f"text {number}" for number in range(texts)])

    assert [inline] == threads
    assert {100} == {len(row.predictions) for row in found.rows}
