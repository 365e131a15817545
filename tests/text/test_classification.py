"""Classification by heads on vectors and by sequence classifiers: thresholds, names, counts."""

import threading

import numpy as np
import pytest

from backend.errors import InvalidField, UnknownModel
from backend.lanes.inference import Urgency
from backend.lanes.work_queue import Priority
from backend.models.numpy_layers import sigmoid, softmax
from backend.serving.engines.heads import CLASSIFIER
from backend.text import classification
from tests.serving.loaded_models import scoring_model
from tests.text.classification_setup import (
    LABELS,
    ClassificationSetup,
    build_classification,
    random_head,
    write_bundled_head,
)
from tests.text.service_stack import VectorEngine
from tests.tiny_models import spec_of
from tests.tiny_scorers import NLI, TinyScorers, reference_logits, reference_scores

TEXTS = ["la factura", "", "the total is due", "la factura"]
LONG = "la factura de marzo, número 12; " * 200


@pytest.fixture
async def setup(build, tmp_path) -> ClassificationSetup:
    """A bundled head and no other model."""
    write_bundled_head(tmp_path, "document-type", random_head(spec_of("minilm").sha256))
    return build_classification(build(VectorEngine(budget=4096), lanes=2), tmp_path)


def scores_of(row) -> dict[str, float]:
    return {prediction.label: prediction.score for prediction in row.predictions}


# Heads


async def test_a_head_scores_the_vectors_of_embed(setup: ClassificationSetup):
    """Every label's probability, best first, texts in their order."""
    head = setup.registry.find("document-type").head
    vectors = (await setup.stack.service.embed(TEXTS)).vectors

    result = await setup.service.classify(TEXTS)

    expected = softmax(vectors @ head.weight.T + head.bias)
    for row, scores in zip(result.rows, expected, strict=True):
        assert dict(zip(LABELS, scores.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-6)
        assert sorted((prediction.score for prediction in row.predictions), reverse=True) == [
            prediction.score for prediction in row.predictions
        ]
        assert (row.predictions[0].label, row.predictions[0].score) == (row.prediction, row.score)
    assert result.rows[0] == result.rows[3]
    assert ("document-type", False) == (result.model, result.multi_label)


async def test_a_long_text_is_classified_untruncated(setup: ClassificationSetup):
    """The whole text counts, and it is not reported as truncated."""
    head = setup.registry.find("document-type").head
    [vector] = (await setup.stack.service.embed_untruncated([LONG])).vectors

    [row] = (await setup.service.classify([LONG])).rows

    assert dict(zip(LABELS, head.probabilities(vector[None])[0].tolist(), strict=True)) == pytest.approx(scores_of(row))
    assert not row.truncated
    assert row.tokens > 2 * 256


async def test_a_head_abstains_below_its_threshold(build, tmp_path):
    """The best score is returned without a prediction; the request's threshold overrides the head's."""
    sha256 = spec_of("minilm").sha256
    write_bundled_head(tmp_path, "document-type", random_head(sha256, threshold=0.9))
    setup = build_classification(build(VectorEngine()), tmp_path)
    texts = [f"text {number}" for number in range(40)]

    rows = (await setup.service.classify(texts)).rows
    rows_of_any = (await setup.service.classify(texts, min_score=0.0)).rows
    none = (await setup.service.classify(texts, min_score=1.0)).rows

    predictions = [row.prediction for row in rows]
    assert None in predictions
    assert set(predictions) - {None}
    assert [row.score >= 0.9 for row in rows] == [prediction is not None for prediction in predictions]
    assert [row.predictions[0].label for row in rows] == [row.prediction for row in rows_of_any]
    assert {None} == {row.prediction for row in none}
    assert [row.predictions for row in rows] == [row.predictions for row in none]


async def test_a_multi_label_head(build, tmp_path):
    """Each label is scored by itself; a ``multi_label`` that differs from the head's is refused."""
    sha256 = spec_of("minilm").sha256
    write_bundled_head(tmp_path, "document-type", random_head(sha256))
    write_bundled_head(tmp_path, "tags", random_head(sha256, ("paid", "urgent"), multiple=True, threshold=0.5))
    setup = build_classification(build(VectorEngine()), tmp_path)
    head = setup.registry.find("tags").head
    vectors = (await setup.stack.service.embed(TEXTS)).vectors

    result = await setup.service.classify(TEXTS, model="tags", multi_label=True)

    for row, scores in zip(result.rows, sigmoid(vectors @ head.weight.T + head.bias), strict=True):
        assert {"paid": scores[0], "urgent": scores[1]} == pytest.approx(scores_of(row), abs=1e-6)
    assert result.multi_label
    assert all(row.multi_label for row in result.rows)
    with pytest.raises(
        InvalidField, match="tags was made to give a text any number of its labels; leave multi_label out"
    ):
        await setup.service.classify(TEXTS, model="tags", multi_label=False)
    with pytest.raises(InvalidField, match="document-type was made to give a text one of its labels"):
        await setup.service.classify(TEXTS, multi_label=True)


async def test_urgency_reaches_the_lanes(setup: ClassificationSetup, clock):
    """Priority and deadline reach every work item, vectors of labels included."""
    submitted = setup.stack.spy_on_submissions()
    for labels in (None, ["factura", "contrato"]):
        await setup.service.classify(["nuevo", LONG], labels=labels, urgency=Urgency(Priority.BULK, clock() + 9))

    assert {(Priority.BULK, clock() + 9)} == set(submitted)
    assert 5 == len(submitted)  # a text, a long one's windows; labels, the labels and texts that scale them


# Models


@pytest.mark.parametrize(
    ("problem", "multi_label"),
    [
        pytest.param("single_label_classification", None, id="one"),
        pytest.param("multi_label_classification", None, id="expected_multi"),
        pytest.param("single_label_classification", True, id="several-because-requested"),
        pytest.param("multi_label_classification", False, id="one-because-requested"),
    ],
)
async def test_a_sequence_classifier_has_transformers_scores(
    scorers: TinyScorers, build, tmp_path, problem, multi_label
):
    """Scored by its own activation unless the request overrides it; a truncated text is reported."""
    folder = scorers.folder("bert", problem_type=problem)
    setup = build_classification(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)
    texts = [*TEXTS, "de la " * 60]

    result = await setup.service.classify(texts, multi_label=multi_label)

    expected_multi = problem.startswith("multi") if multi_label is None else multi_label
    logits = np.stack(await _logits(setup, texts))
    expected = sigmoid(logits) if expected_multi else softmax(logits)
    if multi_label is None:
        np.testing.assert_allclose(expected, reference_scores(folder, texts), atol=1e-4)
    for row, scores in zip(result.rows, expected, strict=True):
        assert dict(zip(LABELS, scores.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-4)
    assert expected_multi == result.multi_label
    assert [False] * 4 + [True] == [row.truncated for row in result.rows]


async def _logits(setup: ClassificationSetup, texts) -> list[np.ndarray]:
    raw = await setup.service.predict(texts, raw_scores=True)
    return [np.array([scores_of(row)[label] for label in LABELS]) for row in raw.rows]


async def test_a_multi_label_model_abstains(scorers: TinyScorers, build, tmp_path):
    """A multi-label model predicts nothing where no score reaches 0.5."""
    folder = scorers.folder("bert", problem_type="multi_label_classification")
    setup = build_classification(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)

    rows = (await setup.service.classify([f"the {number}" for number in range(30)])).rows

    assert [row.score >= 0.5 for row in rows] == [row.prediction is not None for row in rows]


# Names


async def test_the_default_classifier(scorers: TinyScorers, build, tmp_path):
    """The configured model is the default before the bundled head, which can still be named."""
    write_bundled_head(tmp_path, "document-type", random_head(spec_of("minilm").sha256))
    model = scoring_model(scorers.folder("bert"), CLASSIFIER)
    setup = build_classification(build(VectorEngine(), others=[model]), tmp_path)

    named = {
        name: (await setup.service.classify(["la"], model=name)).model for name in (None, "classifier", "document-type")
    }

    assert {None: model.name, "classifier": model.name, "document-type": "document-type"} == named
    assert ["document-type", model.name] == [info.name for info in setup.service.classifiers()]
    assert ["bundled", "model"] == [info.kind for info in setup.service.classifiers()]


async def test_an_unknown_name_lists_the_known(scorers: TinyScorers, build, tmp_path):
    """The error lists heads and the model's names."""
    write_bundled_head(tmp_path, "document-type", random_head(spec_of("minilm").sha256))
    setup = build_classification(
        build(VectorEngine(), others=[scoring_model(scorers.folder("bert"), CLASSIFIER)]), tmp_path
    )

    with pytest.raises(UnknownModel, match=r"'other' is not loaded here; loaded are document-type, .*classifier"):
        await setup.service.classify(["la"], model="other")


@pytest.mark.parametrize("nli", [True, False])
async def test_without_a_usable_classifier_labels_are_required(scorers: TinyScorers, build, tmp_path, nli):
    """A head of another encoder does not count, nor does an NLI model, which has no classes of its own."""
    write_bundled_head(tmp_path, "document-type", random_head("a" * 64))
    others = [scoring_model(scorers.folder("bert", NLI), CLASSIFIER)] if nli else []
    setup = build_classification(build(VectorEngine(), others=others), tmp_path)

    assert not setup.service.can_classify()
    with pytest.raises(InvalidField, match="give labels to choose from") as caught:
        await setup.service.classify(["la"])
    assert "labels" == caught.value.param
    if nli:
        with pytest.raises(InvalidField, match="needs labels to choose from"):
            await setup.service.classify(["la"], model="classifier")


# Existing vectors


async def test_vectors_do_not_help_a_model_that_reads_texts(scorers: TinyScorers, build, tmp_path):
    """None: the model has to run."""
    setup = build_classification(
        build(VectorEngine(), others=[scoring_model(scorers.folder("bert"), CLASSIFIER)]), tmp_path
    )

    assert setup.service.classify_vectors(["la"], await setup.stack.service.embed_untruncated(["la"])) is None


# Predict


@pytest.mark.parametrize("raw_scores", [True, False])
async def test_predict_gives_every_label_of_a_pair(scorers: TinyScorers, build, tmp_path, raw_scores):
    """The model's logits or scores, for texts and pairs mixed."""
    folder = scorers.folder("bert")
    setup = build_classification(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)

    result = await setup.service.predict([("la", "factura"), "la factura", ("la", "")], raw_scores=raw_scores)

    logits = reference_logits(folder, [("la", "factura"), ("la", "")], "longest_first")
    for row, expected in zip(result.rows[::2], logits if raw_scores else softmax(logits), strict=True):
        assert dict(zip(LABELS, expected.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-3)
    assert 3 == len(result.rows)


async def test_predict_by_a_head(setup: ClassificationSetup):
    """Logits where raw scores are requested; pairs are refused, naming the setting."""
    head = setup.registry.find("document-type").head
    vectors = (await setup.stack.service.embed(TEXTS)).vectors

    raw = await setup.service.predict(TEXTS, raw_scores=True)

    for row, logits in zip(raw.rows, vectors @ head.weight.T + head.bias, strict=True):
        assert dict(zip(LABELS, logits.tolist(), strict=True)) == pytest.approx(scores_of(row), abs=1e-4)
    assert (await setup.service.predict(TEXTS)).rows == (await setup.service.classify(TEXTS)).rows
    with pytest.raises(InvalidField, match="document-type classifies single texts; set CLASSIFIER_MODEL"):
        await setup.service.predict(["la", ("la", "de")])


async def test_pairs_go_to_an_nli_model_and_texts_to_the_head(scorers: TinyScorers, build, tmp_path):
    """An NLI model scores pairs; a single text is classified by the head."""
    write_bundled_head(tmp_path, "document-type", random_head(spec_of("minilm").sha256))
    folder = scorers.folder("bert", NLI)
    setup = build_classification(build(VectorEngine(), others=[scoring_model(folder, CLASSIFIER)]), tmp_path)

    [pair] = (await setup.service.predict([("la factura", "the total")])).rows
    [text] = (await setup.service.predict(["la factura"])).rows

    expected = softmax(reference_logits(folder, [("la factura", "the total")], "longest_first"))[0]
    assert dict(zip(NLI, expected.tolist(), strict=True)) == pytest.approx(scores_of(pair), abs=1e-4)
    assert set(LABELS) == set(scores_of(text))


# Counts, and the loop


async def test_inputs_are_counted_once(setup: ClassificationSetup):
    """Counted for the classifier task, cached ones included, and not for the embedding task."""
    result = await setup.service.classify([*TEXTS, LONG])
    await setup.service.classify(TEXTS)

    metric = setup.stack.metric
    assert 9.0 == metric("inputs_total", task=CLASSIFIER)
    tokens = result.tokens + sum(row.tokens for row in result.rows[:4])
    assert (float(tokens), 0.0) == (metric("tokens_total", task=CLASSIFIER), metric("inputs_total", task="embeddings"))


@pytest.mark.parametrize(("texts", "inline"), [(2, True), (300, False)])
async def test_large_tables_are_sorted_off_the_loop(build, tmp_path, monkeypatch, texts, inline):
    """Many scores are sorted on a thread, few inline."""
    labels = tuple(f"label-{number}" for number in range(100))
    write_bundled_head(tmp_path, "document-type", random_head(spec_of("minilm").sha256, labels))
    setup = build_classification(build(VectorEngine(budget=4096)), tmp_path)
    threads, sort = list[bool](), classification.predictions_of

    def spied(*arguments):
        threads.append(threading.current_thread() is threading.main_thread())
        return sort(*arguments)

    monkeypatch.setattr(classification, "predictions_of", spied)
    result = await setup.service.classify([f"text {number}" for number in range(texts)])

    assert [inline] == threads
    assert {100} == {len(row.predictions) for row in result.rows}
