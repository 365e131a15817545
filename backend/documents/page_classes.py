"""Makes one prediction of what a document's text and its picture say. Pure.

Both are classifiers with calibrated scores, which see different things of the same document. Their logarithms are
averaged, so that one that is unsure moves little, and neither can be overruled by a guess of the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.documents.records import ClassParts, DocumentOptions
from backend.errors import InferenceFailed, TooLarge, Unavailable, UnreadableFile
from backend.files.file_types import is_recording
from backend.files.pages import SET, Document
from backend.files.stored_file import StoredFile
from backend.images.classification import ClassifiedPage, ImageClassificationService, PageChoice
from backend.lanes.inference import Urgency
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.reasons import because
from backend.text.classification import ClassifiedText, Prediction

_LEAST = 1e-6  # a score of 0 is rounding: the other part could not be heard against it


@dataclass(frozen=True, slots=True)
class ImagePart:
    """What the picture of a document's first page says; ``page`` is None where it could not be seen."""

    number: int
    model: str
    page: ClassifiedPage | None
    fault: str = ""  # why it could not be seen

    @property
    def classes(self) -> ClassifiedText | None:
        return None if self.page is None else self.page.classes


def same_label(label: str) -> str:
    """What two models' names of a class have in common: capitals, hyphens and underscores do not count."""
    return " ".join(label.casefold().replace("_", " ").replace("-", " ").split())


def combine(
    text: ClassifiedText | None, image: ImagePart, labels: Sequence[str] | None = None
) -> tuple[ClassifiedText | None, ClassParts]:
    """The classes of a document, and what they were made of.

    1. Where one of both says nothing (no text, a classifier that abstains, a page that cannot be drawn, or whose best
       label is none of ``labels``), the other's classes stand alone.
    2. Where one of both scores each label by itself, its scores are no shares of 1: the text's classes stand.
    3. Where the best label of each is known to both, the scores are combined over the labels they share: the average
       of their logarithms, as shares of 1. What either gives to labels of its own counts as one further class.
    4. Else they do not speak of the same things: the text's classes stand, and both are told.

    Args:
        labels: the only ones that were asked for; None or none: any.
    """
    if image.classes is None:
        why = because("picture_unseen", page=image.number, fault=image.fault)
        return text, _parts(text, image, why)
    seen = _asked_for(image.classes, labels) if labels else image.classes
    if text is None:
        return seen, _parts(text, image, because("picture_alone", page=image.number))
    if seen.prediction is None:
        fault = "picture_low" if image.classes.prediction is None else "picture_not_asked"
        return text, _parts(text, image, because(fault))
    if text.prediction is None:
        return seen, _parts(text, image, because("text_low"))
    if text.multi_label or seen.multi_label:
        return text, _parts(text, image, because("picture_many_labels" if seen.multi_label else "text_many_labels"))
    shared = _shared(text, seen)
    if same_label(text.prediction) not in shared or same_label(seen.prediction) not in shared:
        why = f"{because('other_names', model=image.model)}; {because('see_both')}"
        return text, _parts(text, image, why)
    why = because("text_and_picture", page=image.number)
    return _pooled(text, shared), _parts(text, image, why, combined=True)


def _parts(text: ClassifiedText | None, image: ImagePart, why: str, *, combined: bool = False) -> ClassParts:
    return ClassParts(text, image.classes, image.number, image.model, combined, why)


def _asked_for(seen: ClassifiedText, labels: Sequence[str]) -> ClassifiedText:
    """Of the picture's classes those that were asked for, spelt as there; no prediction where the best is another."""
    names = {same_label(label): label for label in labels}
    predictions = tuple(
        Prediction(names[name], each.score) for each in seen.predictions if (name := same_label(each.label)) in names
    )
    if not predictions:
        return replace(seen, predictions=(), prediction=None, score=0.0)
    best = predictions[0]
    stands = best.score >= MULTI_LABEL_THRESHOLD if seen.multi_label else best.score == seen.score
    prediction = best.label if stands and seen.prediction is not None else None
    return replace(seen, predictions=predictions, prediction=prediction, score=best.score)


def _shared(text: ClassifiedText, seen: ClassifiedText) -> dict[str, tuple[float, float]]:
    """The scores of both for each label that both know."""
    of_picture = {same_label(each.label): each.score for each in seen.predictions}
    return {
        name: (each.score, of_picture[name])
        for each in text.predictions
        if (name := same_label(each.label)) in of_picture
    }


def _pooled(text: ClassifiedText, shared: dict[str, tuple[float, float]]) -> ClassifiedText:
    """The text's labels that the picture knows too, with the scores of both together."""
    rest = [max(0.0, 1.0 - sum(scores[side] for scores in shared.values())) for side in (0, 1)]
    weights = {
        name: math.sqrt(max(of_text, _LEAST) * max(of_page, _LEAST)) for name, (of_text, of_page) in shared.items()
    }
    total = sum(weights.values()) + math.sqrt(rest[0] * rest[1])
    predictions = sorted(
        (
            Prediction(each.label, weights[name] / total)
            for each in text.predictions
            if (name := same_label(each.label)) in weights
        ),
        key=lambda prediction: -prediction.score,
    )
    best = predictions[0]
    return ClassifiedText(tuple(predictions), best.label, best.score, text.tokens, text.truncated)


_PAGE_ERRORS = (UnreadableFile, TooLarge, InferenceFailed, Unavailable)  # the text has its classes all the same


@dataclass(frozen=True, slots=True)
class DocumentImages:
    """The image model, and the file of one document."""

    service: ImageClassificationService
    upload: StoredFile

    async def look(self, document: Document, options: DocumentOptions, urgency: Urgency) -> ImagePart | None:
        """The classes of the first page that was read; None for what is no paper: a page that was set here.

        Raises: Overloaded, DeadlineExceeded; what concerns this page alone is told in the result.
        """
        if not document.pages or document.pages[0].engine == SET:
            return None
        engines, first = self.service.require(), document.pages[0]
        choice = PageChoice(str(first.number), options.password, first.rotation)
        page: ClassifiedPage | None = None
        fault = ""
        try:
            page = (await self.service.classify(self.upload, choice, urgency)).pages[0]
        except _PAGE_ERRORS as error:
            fault = str(error)
        return ImagePart(first.number, engines.model.name, page, fault)


def images_for(
    service: ImageClassificationService | None, upload: StoredFile, options: DocumentOptions
) -> DocumentImages | None:
    """What looks at a document; None where classes are of its text alone.

    That is where there is no image model, and where a classifier of texts was asked for by name, or labels of which the
    image model knows none.
    """
    if service is None or service.engines is None or "classes" not in options.features:
        return None
    if is_recording(upload.head):
        return None
    if options.classifier is not None and options.classifier not in service.names:
        return None
    known = set(map(same_label, service.labels))
    if options.labels and known.isdisjoint(map(same_label, options.labels)):
        return None
    return DocumentImages(service, upload)
