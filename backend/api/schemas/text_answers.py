"""The answers of the routes that understand text, for OpenAPI only, like those of answers.py."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from backend.api.schemas.answers import Usage


class EntityAnswer(BaseModel):
    """One entity in a text."""

    type: str = Field(description="PER, ORG, LOC, … as the model names it; DATE, MONEY, IBAN, … of a pattern.")
    text: str = Field(description="As the caller wrote it.")
    start: int = Field(description="First code point in the caller's text.")
    end: int = Field(description="The code point after its last.")
    score: float = Field(description="How sure its finder is, 0 to 1; of a model the mean probability of its words.")
    source: Literal["model", "pattern"]
    value: str | None = Field(description="Normalised: ISO date, decimal and currency, compact number; null for names.")
    valid: bool | None = Field(description="Whether checksum or calendar agree; null where nothing can tell.")


class LostEntity(BaseModel):
    """What was found and gave way to another that overlaps it."""

    entity: EntityAnswer
    to: EntityAnswer
    why: str


class EntitiesItem(BaseModel):
    """The entities of one text, in its order; they never overlap."""

    index: int = Field(description="Place of its input in the request.")
    entities: list[EntityAnswer]
    coverage: float = Field(description="Share of the text's characters, blanks aside, that could be read.")
    lost: list[LostEntity] | None = Field(None, description="Only where `explain` was asked for.")


class EntitiesAnswer(BaseModel):
    """`POST /v1/entities`."""

    object: Literal["list"]
    data: list[EntitiesItem]
    model: str
    usage: Usage


class PredictionAnswer(BaseModel):
    """One class and how well it fits."""

    label: str
    score: float = Field(description="0 to 1; with one label a text they add up to 1.")


class ClassesAnswer(BaseModel):
    """The classes of a text."""

    prediction: str | None = Field(description="The best label; null where the classifier abstains.")
    score: float = Field(description="Of the best label, given or not.")
    predictions: list[PredictionAnswer] = Field(description="Best first.")


class ClassifyItem(ClassesAnswer):
    """The classes of one text of a request."""

    object: Literal["classification"]
    index: int = Field(description="Place of its input in the request.")


class ClassifyAnswer(BaseModel):
    """`POST /v1/classify`, in Jina's shape."""

    object: Literal["list"]
    data: list[ClassifyItem]
    model: str
    usage: Usage
    truncated: list[int] | None = Field(None, description="Indices of inputs that were cut; absent when none was.")


class ClassifierAnswer(BaseModel):
    """A classifier that `POST /v1/classify` can be asked for."""

    object: Literal["classifier"]
    name: str
    kind: Literal["bundled", "configured", "learnt", "model"]
    labels: list[str]
    multi_label: bool
    examples: int | None = Field(description="Texts it was learnt from; null where that is not known.")
    threshold: float = Field(description="Least score at which it gives a prediction; below it abstains.")
    accuracy: float | None = Field(description="Cross-validated; null with too few examples to tell.")
    created: int | None = Field(description="Unix seconds at which it was learnt.")


class ClassifierList(BaseModel):
    """`GET /v1/classifiers`."""

    object: Literal["list"]
    data: list[ClassifierAnswer]


class ForgottenClassifier(BaseModel):
    """`DELETE /v1/classifiers/{name}`, in OpenAI's shape of deletions."""

    object: Literal["classifier"]
    name: str
    deleted: Literal[True]


class RankedAnswer(BaseModel):
    """One document and how much it says about the query."""

    index: int = Field(description="Place of the document in the request.")
    relevance_score: float = Field(description="0 to 1.")
    document: dict[str, Any] | None = Field(None, description="As it was sent, a text as {text}; absent if not wanted.")


class RerankAnswer(BaseModel):
    """`POST /v1/rerank`, in the shape of Jina's and Cohere's clients."""

    id: str = Field(description="The request's id, as in X-Request-Id.")
    object: Literal["list"]
    model: str
    results: list[RankedAnswer] = Field(description="Best first.")
    usage: Usage
    truncated: list[int] | None = Field(None, description="Indices of documents that were cut; absent when none was.")
    meta: dict[str, Any] = Field(description="What Cohere's clients read: API version, search units, tokens.")


class TextRank(BaseModel):
    """text-embeddings-inference's ``Rank``."""

    index: int
    score: float
    text: str | None = Field(None, description="Absent unless `return_text` is true.")


class Span(BaseModel):
    """A place in the caller's text, in code points."""

    start: int
    end: int


class LanguageAnswer(BaseModel):
    """The language of a text."""

    code: str = Field(description="ISO 639-1.")
    score: float


class KeyPhraseAnswer(BaseModel):
    """A phrase that says what a text is about."""

    text: str
    score: float
    places: list[Span] = Field(description="Where it stands, in the order of the text.")


class KeySentenceAnswer(Span):
    """A sentence that tells much of a text."""

    text: str = Field(description="As the caller wrote it.")
    score: float


class AnalyzeAnswer(BaseModel):
    """`POST /v1/analyze`. What was not asked for is absent."""

    object: Literal["analysis"]
    language: LanguageAnswer | None = Field(None, description="Null where the text is too short to tell.")
    key_phrases: list[KeyPhraseAnswer] | None = Field(None, description="Best first.")
    key_sentences: list[KeySentenceAnswer] | None = Field(None, description="In the order of the text: a summary.")
    classes: ClassesAnswer | None = None
    entities: list[EntityAnswer] | None = None
    coverage: float | None = Field(
        description="Share of the text's characters, blanks aside, that could be read for entities; null without them."
    )
    vector: list[float] | str | None = Field(None, description="Numbers, or base64 of little-endian float32.")
    model: str
    usage: Usage


ANSWERS: tuple[type[BaseModel], ...] = (
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
