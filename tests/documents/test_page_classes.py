"""One prediction of what text and picture say: when they are combined, how, and what is told of both."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from backend.documents.page_classes import ImagePart, combine, same_label
from backend.documents.records import DocumentOptions
from backend.documents.understanding import Understanding
from backend.files.pages import Document
from backend.images.classification import ClassifiedPage
from backend.lanes.inference import Urgency
from backend.lanes.text_work import TextWork
from backend.telemetry import Telemetry
from backend.text.classification import ClassifiedText, Prediction


def classes(*, least: float = 0.0, multi_label: bool = False, **scores: float) -> ClassifiedText:
    """Labels with these scores; no prediction below ``least``."""
    predictions = tuple(
        sorted((Prediction(label, score) for label, score in scores.items()), key=lambda each: -each.score)
    )
    best = predictions[0]
    prediction = best.label if best.score >= least else None
    return ClassifiedText(predictions, prediction, best.score, 5, truncated=False, multi_label=multi_label)


def seen(row: ClassifiedText | None, *, fault: str = "") -> ImagePart:
    return ImagePart(3, "page-kinds", None if row is None else ClassifiedPage(3, row), fault)


def scores_of(row: ClassifiedText | None) -> dict[str, float]:
    return {each.label: each.score for each in row.predictions}


def test_the_average_of_logarithms() -> None:
    """Where both know all labels: the geometric mean, as shares of 1."""
    text, picture = classes(invoice=0.6, receipt=0.4), classes(invoice=0.1, receipt=0.9)

    combined, parts = combine(text, seen(picture))
    invoice, receipt = math.sqrt(0.6 * 0.1), math.sqrt(0.4 * 0.9)

    assert scores_of(combined) == pytest.approx(
        {"receipt": receipt / (invoice + receipt), "invoice": invoice / (invoice + receipt)}
    )
    assert ("receipt", 5) == (combined.prediction, combined.tokens)
    assert (True, text, picture, 3, "page-kinds") == (
        parts.combined, parts.text, parts.image, parts.page, parts.model,
    )  # fmt: skip


def test_agreement_keeps_its_confidence() -> None:
    """Two equal opinions are that opinion, not twice as sure."""
    combined, _ = combine(classes(a=0.7, b=0.3), seen(classes(a=0.7, b=0.3)))

    assert scores_of(combined) == pytest.approx({"a": 0.7, "b": 0.3})


def test_labels_of_one_alone_count_as_another_class() -> None:
    """They are in no answer, and take their part of the whole."""
    text, picture = classes(invoice=0.5, receipt=0.3, contract=0.2), classes(Invoice=0.6, letter=0.4)

    combined, parts = combine(text, seen(picture))
    both, rest = math.sqrt(0.5 * 0.6), math.sqrt(0.5 * 0.4)

    assert parts.combined
    assert scores_of(combined) == pytest.approx({"invoice": both / (both + rest)})


@pytest.mark.parametrize(
    ("text", "image", "expected", "why"),
    [
        pytest.param(None, seen(classes(a=1.0)), "image", "no classes of a text", id="no-text"),
        pytest.param(classes(a=1.0), seen(None, fault="broken"), "text", "broken", id="no-picture"),
        pytest.param(classes(a=0.2, b=0.1, least=0.5), seen(classes(a=1.0)), "image", "the text's best", id="abstains"),
        pytest.param(classes(a=1.0), seen(classes(a=0.2, least=0.5)), "text", "the picture's best", id="unsure"),
        pytest.param(classes(a=1.0), seen(classes(c=1.0)), "text", "other names", id="other-labels"),
        pytest.param(classes(a=0.7, b=0.3), seen(classes(c=0.9, a=0.1)), "text", "other names", id="best-unknown"),
        pytest.param(classes(a=1.0), seen(classes(a=1.0, multi_label=True)), "text", "page any number", id="any-seen"),
        pytest.param(
            classes(a=0.95, b=0.93, c=0.9, multi_label=True), seen(classes(a=0.6, b=0.4)), "text", "text any number",
            id="any-number-of-a-text",
        ),
        pytest.param(classes(a=0.2, least=0.5), seen(classes(a=0.3, least=0.5)), "text", "too low", id="both-abstain"),
        pytest.param(None, seen(None, fault="broken"), "nothing", "broken", id="neither"),
    ],
)  # fmt: skip
def test_one_of_them_alone(text: ClassifiedText | None, image: ImagePart, expected: str, why: str) -> None:
    """What cannot be combined is not; the reason is told, with both parts."""
    combined, parts = combine(text, image)

    assert {"text": text, "image": image.classes, "nothing": None}[expected] == combined
    assert not parts.combined
    assert why in parts.why
    assert (text, image.classes) == (parts.text, parts.image)


LETTER = classes(a=0.1, b=0.3, letter=0.6)
TAGS = classes(a=0.7, b=0.4, signed=0.9, least=0.5, multi_label=True)


@pytest.mark.parametrize(
    ("text", "picture", "labels", "expected", "prediction"),
    [
        pytest.param(None, LETTER, ("Letter", "B", "z"), {"Letter": 0.6, "B": 0.3}, "Letter", id="best-asked-for"),
        pytest.param(None, LETTER, ("a", "b", "z"), {"b": 0.3, "a": 0.1}, None, id="best-is-another"),
        pytest.param(None, TAGS, ("A", "b"), {"A": 0.7, "b": 0.4}, "A", id="each-by-itself"),
        pytest.param(None, TAGS, ("b", "z"), {"b": 0.4}, None, id="each-by-itself-too-low"),
        pytest.param(None, LETTER, ("y", "z"), {}, None, id="none-known"),
        pytest.param(None, LETTER, (), {"letter": 0.6, "b": 0.3, "a": 0.1}, "letter", id="any"),
        pytest.param(classes(a=0.2, z=0.1, least=0.5), LETTER, ("a", "z"), {"a": 0.2, "z": 0.1}, None, id="abstains"),
        pytest.param(classes(a=0.8, z=0.2), LETTER, ("a", "z"), {"a": 0.8, "z": 0.2}, "a", id="text"),
    ],
)
def test_labels_of_the_request(
    text: ClassifiedText | None, picture: ClassifiedText, labels: tuple[str, ...], expected: Any, prediction: str | None
) -> None:
    """The answer names no other, in the request's spelling; the part tells all that the picture says."""
    row, parts = combine(text, seen(picture), labels)

    assert list(expected.items()) == [(each.label, each.score) for each in row.predictions]
    assert (prediction, next(iter(expected.values()), 0.0)) == (row.prediction, row.score)
    assert (False, picture) == (parts.combined, parts.image)
    if labels and text is not None:
        assert "none of the labels asked for" in parts.why


async def test_labels_of_a_document_without_text() -> None:
    """A scan that was not read by OCR has the classes of its picture among those asked for alone."""

    class Images:
        async def look(self, *_: Any) -> ImagePart:
            return seen(LETTER)

    options = DocumentOptions(features=frozenset({"classes"}), labels=("letter", "complaint"))
    services = SimpleNamespace(text_work=TextWork(Telemetry()), embeddings=None, answers=None)
    understanding = Understanding(services, options, Urgency(), images=Images())  # type: ignore[arg-type]

    understood = await understanding.finish(Document("pdf", (), 1, "0"), "")

    assert {"letter": 0.6} == scores_of(understood.classes)


def test_names_of_labels() -> None:
    """Capitals, hyphens and underscores do not count."""
    assert 1 == len({same_label(label) for label in ("Bank Statement", "bank_statement", "bank-statement")})
    assert same_label("invoice") != same_label("invoices")


def test_a_score_of_zero_is_no_veto() -> None:
    """Rounding of one part silences the other as little as it can."""
    combined, _ = combine(classes(a=1.0, b=0.0), seen(classes(a=0.0, b=1.0)))

    assert scores_of(combined) == pytest.approx({"a": 0.5, "b": 0.5})
