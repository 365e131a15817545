"""Answers about texts: entities, classes, ranks and analyses."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.requests.texts import FEATURES, Source
from backend.api.responses.embeddings import TruncatedInputs, Usage, usage
from backend.api.responses.json_bytes import echoed_json, encoded_vector
from backend.images.page_choice import ClassifiedPage
from backend.text.analysis import Analysis, KeySentence
from backend.text.classification import ClassificationResult, ClassifiedText, ClassifierInfo, Prediction
from backend.text.entities import EntityResult, TextEntities
from backend.text.entity_merge import Entity, Lost
from backend.text.key_phrases import KeyPhrase
from backend.text.language import Language
from backend.text.reranking import RankedDocument, RerankResult

_UNIT_DOCUMENTS = 100  # a search unit of Cohere's is a query with up to so many documents


class EntityAnswer(TypedDict):
    """One entity in a text."""

    type: Annotated[
        str, Field(description="PER, ORG, LOC, … as the model names it; DATE, MONEY, IBAN, … of a pattern.")
    ]
    text: Annotated[str, Field(description="As the caller wrote it.")]
    start: Annotated[int, Field(description="First code point in the caller's text.")]
    end: Annotated[int, Field(description="The code point after its last.")]
    score: Annotated[
        float, Field(description="How sure its finder is, 0 to 1; of a model the mean probability of its words.")
    ]
    source: Literal["model", "pattern"]
    value: Annotated[
        str | None, Field(description="Normalised: ISO date, decimal and currency, compact number; null for names.")
    ]
    valid: Annotated[bool | None, Field(description="Whether checksum or calendar agree; null where nothing can tell.")]


class LostEntity(TypedDict):
    """What was found and gave way to another that overlaps it."""

    entity: EntityAnswer
    to: EntityAnswer
    why: str


class EntitiesItem(TypedDict):
    """The entities of one text, in its order; they never overlap."""

    index: Annotated[int, Field(description="Place of its input in the request.")]
    entities: list[EntityAnswer]
    coverage: Annotated[float, Field(description="Share of the text's characters, blanks aside, that could be read.")]
    lost: NotRequired[
        Annotated[list[LostEntity] | None, Field(default=None, description="Only where `explain` was asked for.")]
    ]


class EntitiesAnswer(TypedDict):
    """`POST /v1/entities`."""

    object: Literal["list"]
    data: list[EntitiesItem]
    model: str
    usage: Usage


def entity_answer(entity: Entity) -> EntityAnswer:
    """An entity; ``start`` and ``end`` count code points of the caller's text."""
    return {
        "type": entity.type,
        "text": entity.text,
        "start": entity.start,
        "end": entity.end,
        "score": entity.score,
        "source": cast("Source", entity.source),
        "value": entity.value,
        "valid": entity.valid,
    }


def entities_answer(result: EntityResult, *, explain: bool) -> EntitiesAnswer:
    """The entities of each text; with ``explain`` also those that gave way to others."""
    return {
        "object": "list",
        "data": [_entities_item(index, row, explain=explain) for index, row in enumerate(result.rows)],
        "model": result.model,
        "usage": usage(result.tokens),
    }


def _entities_item(index: int, row: TextEntities, *, explain: bool) -> EntitiesItem:
    item: EntitiesItem = {
        "index": index,
        "entities": [entity_answer(entity) for entity in row.entities],
        "coverage": row.coverage,
    }
    if explain:
        item["lost"] = [_lost_entity(lost) for lost in row.lost]
    return item


def _lost_entity(lost: Lost) -> LostEntity:
    return {"entity": entity_answer(lost.entity), "to": entity_answer(lost.to), "why": lost.why}


class PredictionAnswer(TypedDict):
    """One class and how well it fits."""

    label: str
    score: Annotated[float, Field(description="0 to 1; with one label a text they add up to 1.")]


class ClassesAnswer(TypedDict):
    """The classes of a text."""

    prediction: Annotated[str | None, Field(description="The best label; null where the classifier abstains.")]
    score: Annotated[float, Field(description="Of the best label, given or not.")]
    predictions: Annotated[list[PredictionAnswer], Field(description="Best first.")]


class ClassifyItem(ClassesAnswer):
    """The classes of one text of a request, or of one page of a file."""

    object: Literal["classification"]
    index: Annotated[int, Field(description="Place of its input in the request; of a file's pages from 0.")]
    page: NotRequired[Annotated[int, Field(description="Of an image or a file: the page that was looked at.")]]
    incomplete: NotRequired[Annotated[str, Field(description="What of a damaged image could not be read.")]]


class ClassifyUsage(Usage):
    """What was read."""

    pages: NotRequired[Annotated[int, Field(description="Of images and files; they have no tokens.")]]


class ClassifyAnswer(TypedDict):
    """`POST /v1/classify`, in Jina's shape."""

    object: Literal["list"]
    data: list[ClassifyItem]
    model: str
    usage: ClassifyUsage
    truncated: NotRequired[TruncatedInputs]


def tei_predictions(predictions: Sequence[Prediction]) -> list[PredictionAnswer]:
    """Classes with their scores, in their order, as text-embeddings-inference answers ``/predict``."""
    return [{"score": prediction.score, "label": prediction.label} for prediction in predictions]


def classes_answer(row: ClassifiedText) -> ClassesAnswer:
    """The classes of a text; ``prediction`` is null where the classifier abstains."""
    predictions: list[PredictionAnswer] = [
        {"label": prediction.label, "score": prediction.score} for prediction in row.predictions
    ]
    return {"prediction": row.prediction, "score": row.score, "predictions": predictions}


def classify_answer(classified: ClassificationResult) -> ClassifyAnswer:
    """The classes of each text."""
    answer: ClassifyAnswer = {
        "object": "list",
        "data": [_classify_item(index, row) for index, row in enumerate(classified.rows)],
        "model": classified.model,
        "usage": {"prompt_tokens": classified.tokens, "total_tokens": classified.tokens},
    }
    if truncated := [index for index, row in enumerate(classified.rows) if row.truncated]:
        answer["truncated"] = truncated
    return answer


def classify_pages_answer(model: str, pages: Sequence[ClassifiedPage]) -> ClassifyAnswer:
    """The classes of each page, in order."""
    return {
        "object": "list",
        "data": [_classify_page_item(index, page) for index, page in enumerate(pages)],
        "model": model,
        "usage": {"prompt_tokens": 0, "total_tokens": 0, "pages": len(pages)},
    }


def _classify_item(index: int, row: ClassifiedText) -> ClassifyItem:
    classes = classes_answer(row)
    return {
        "object": "classification",
        "index": index,
        "prediction": classes["prediction"],
        "score": classes["score"],
        "predictions": classes["predictions"],
    }


def _classify_page_item(index: int, page: ClassifiedPage) -> ClassifyItem:
    item = _classify_item(index, page.classes)
    item["page"] = page.number
    if page.incomplete:
        item["incomplete"] = page.incomplete
    return item


class ClassifierAnswer(TypedDict):
    """A classifier that `POST /v1/classify` can be asked for."""

    object: Literal["classifier"]
    name: str
    kind: Literal["bundled", "configured", "learnt", "model"]
    labels: list[str]
    multi_label: bool
    examples: Annotated[int | None, Field(description="Texts it was learnt from; null where that is not known.")]
    threshold: Annotated[float, Field(description="Least score at which it gives a prediction; below it abstains.")]
    accuracy: Annotated[float | None, Field(description="Cross-validated; null with too few examples to tell.")]
    created: Annotated[int | None, Field(description="Unix seconds at which it was learnt.")]
    status: Annotated[
        Literal["ready", "pending"],
        Field(description="Pending: it is being learnt for the embedding model; until then it answers 503."),
    ]


class ClassifierList(TypedDict):
    """`GET /v1/classifiers`."""

    object: Literal["list"]
    data: list[ClassifierAnswer]


class ForgottenClassifier(TypedDict):
    """`DELETE /v1/classifiers/{name}`, in OpenAI's shape of deletions."""

    object: Literal["classifier"]
    name: str
    deleted: Literal[True]


def classifier_answer(info: ClassifierInfo) -> ClassifierAnswer:
    """A classifier and how it was trained."""
    return {
        "object": "classifier",
        "name": info.name,
        "kind": info.kind,
        "labels": list(info.labels),
        "multi_label": info.multi_label,
        "examples": info.examples,
        "threshold": info.threshold,
        "accuracy": info.accuracy,
        "created": None if info.created_s is None else int(info.created_s),
        "status": info.status,
    }


class RankedAnswer(TypedDict):
    """One document and how much it says about the query."""

    index: Annotated[int, Field(description="Place of the document in the request.")]
    relevance_score: Annotated[float, Field(description="0 to 1.")]
    document: NotRequired[
        Annotated[
            dict[str, Any] | None,
            Field(default=None, description="As it was sent, a text as {text}; absent if not wanted."),
        ]
    ]


class RerankAnswer(TypedDict):
    """`POST /v1/rerank`, in the shape of Jina's and Cohere's clients."""

    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
    object: Literal["list"]
    model: str
    results: Annotated[list[RankedAnswer], Field(description="Best first.")]
    usage: Usage
    truncated: NotRequired[
        Annotated[
            list[int] | None,
            Field(default=None, description="Indices of documents that were cut; absent when none was."),
        ]
    ]
    meta: Annotated[dict[str, Any], Field(description="What Cohere's clients read: API version, search units, tokens.")]


class TextRank(TypedDict):
    """text-embeddings-inference's ``Rank``."""

    index: int
    score: float
    text: NotRequired[Annotated[str | None, Field(default=None, description="Absent unless `return_text` is true.")]]


def tei_ranks(scores: Iterable[tuple[int, float]], texts: Sequence[str] | None) -> list[TextRank]:
    """Indices with their scores, in their order, each with its text unless ``texts`` is None."""
    if texts is None:
        return [{"index": index, "score": score} for index, score in scores]
    return [{"index": index, "score": score, "text": texts[index]} for index, score in scores]


class _Truncated(TypedDict):
    truncated: NotRequired[list[int] | None]


def rerank_answer(
    request_id: str, reranked: RerankResult, documents: Sequence[Any] | None, meta: dict[str, Any]
) -> RerankAnswer:
    """The ranked documents, best first.

    Args:
        documents: those of the request, of ``echoed_documents``, where results carry them, else None.
        meta: of ``cohere_meta``.
    """
    truncated: _Truncated = {"truncated": list(reranked.truncated)} if reranked.truncated else {}
    return {
        "id": request_id,
        "object": "list",
        "model": reranked.model,
        "results": [_ranked_answer(ranked, documents) for ranked in reranked.results],
        "usage": usage(reranked.tokens),
        **truncated,
        "meta": meta,
    }


def echoed_documents(documents: Sequence[str | dict[str, Any]]) -> list[Any]:
    """What results say of each document: an object as it was sent, a text as {text}.

    Raises: InvalidField for an object with a number that JSON cannot say.
    """
    return [
        {"text": document} if isinstance(document, str) else echoed_json(document, f"documents[{index}]")
        for index, document in enumerate(documents)
    ]


def _ranked_answer(ranked: RankedDocument, documents: Sequence[Any] | None) -> RankedAnswer:
    answer: RankedAnswer = {"index": ranked.index, "relevance_score": ranked.score}
    if documents is not None:
        answer["document"] = documents[ranked.index]
    return answer


def cohere_meta(version: str, document_count: int, tokens: int) -> dict[str, Any]:
    """What Cohere's clients read beside the results."""
    return {
        "api_version": {"version": version},
        "billed_units": {"search_units": math.ceil(document_count / _UNIT_DOCUMENTS)},
        "tokens": {"input_tokens": tokens},
    }


class Span(TypedDict):
    """A place in the caller's text, in code points."""

    start: int
    end: int


class LanguageAnswer(TypedDict):
    """The language of a text."""

    code: Annotated[str, Field(description="ISO 639-1.")]
    score: float


class KeyPhraseAnswer(TypedDict):
    """A phrase that says what a text is about."""

    text: str
    score: float
    places: Annotated[list[Span], Field(description="Where it stands, in the order of the text.")]


class KeySentenceAnswer(Span):
    """A sentence that tells much of a text."""

    text: Annotated[str, Field(description="As the caller wrote it.")]
    score: float


class AnalyzeAnswer(TypedDict):
    """`POST /v1/analyze`. What was not asked for is absent."""

    object: Literal["analysis"]
    language: NotRequired[
        Annotated[LanguageAnswer | None, Field(default=None, description="Null where the text is too short to tell.")]
    ]
    key_phrases: NotRequired[Annotated[list[KeyPhraseAnswer] | None, Field(default=None, description="Best first.")]]
    key_sentences: NotRequired[
        Annotated[
            list[KeySentenceAnswer] | None, Field(default=None, description="In the order of the text: a summary.")
        ]
    ]
    classes: NotRequired[Annotated[ClassesAnswer | None, Field(default=None)]]
    entities: NotRequired[Annotated[list[EntityAnswer] | None, Field(default=None)]]
    coverage: Annotated[
        float | None,
        Field(
            description="Share of the text's characters, blanks aside, that could be read for entities; null without "
            "them."
        ),
    ]
    vector: NotRequired[
        Annotated[
            list[float] | str | None, Field(default=None, description="Numbers, or base64 of little-endian float32.")
        ]
    ]
    model: str
    usage: Usage


def language_answer(language: Language | None) -> LanguageAnswer | None:
    """A language; null where the text is too short to tell."""
    return None if language is None else {"code": language.code, "score": language.score}


def key_phrase_answer(phrase: KeyPhrase) -> KeyPhraseAnswer:
    """A phrase with every place where it occurs."""
    places: list[Span] = [{"start": int(start), "end": int(end)} for start, end in phrase.places]
    return {"text": phrase.text, "score": phrase.score, "places": places}


def key_sentence_answer(sentence: KeySentence) -> KeySentenceAnswer:
    """A sentence and its place."""
    return {"text": sentence.text, "start": sentence.start, "end": sentence.end, "score": sentence.score}


def analyze_answer(analysis: Analysis, features: Collection[str], encoding: str) -> AnalyzeAnswer:
    """The requested ``features``; the vector in ``encoding`` (of VECTOR_ENCODINGS)."""
    answer: AnalyzeAnswer = {
        "object": "analysis",
        "language": language_answer(analysis.language),
        "key_phrases": [key_phrase_answer(phrase) for phrase in analysis.key_phrases],
        "key_sentences": [key_sentence_answer(sentence) for sentence in analysis.key_sentences],
        "classes": None if analysis.classes is None else classes_answer(analysis.classes),
        "entities": [entity_answer(entity) for entity in analysis.entities],
        "vector": None if analysis.vector is None else encoded_vector(analysis.vector, encoding),
        "coverage": analysis.coverage,
        "model": analysis.model,
        "usage": usage(analysis.tokens),
    }
    for feature in FEATURES:
        if feature not in features:
            del answer[feature]
    return answer


SCHEMAS: tuple[type, ...] = (
    EntitiesAnswer,
    PredictionAnswer,
    ClassifyAnswer,
    ClassifierAnswer,
    ClassifierList,
    ForgottenClassifier,
    RerankAnswer,
    TextRank,
    AnalyzeAnswer,
)
