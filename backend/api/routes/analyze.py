"""``POST /v1/analyze``: every feature of one text in one request."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Annotated, Literal, NotRequired, get_args

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import answer_of, encoded_vector, read_json, written_json
from backend.api.request_context import Handle, call_service_timed, limits_of
from backend.api.request_fields import (
    TextItem,
    TwoLabels,
    UpTo100,
    WireRequest,
    check_labels,
    check_limits,
    require_two_labels,
)
from backend.api.routes.classify import CLASSES_EXAMPLE, ClassesAnswer, classes_answer
from backend.api.routes.embeddings import Usage, usage
from backend.api.routes.entities import ENTITY_EXAMPLES, EntityAnswer, entity_answer
from backend.api.routing import post
from backend.text.analysis import Analysis, AnalysisService, KeySentence
from backend.text.key_phrases import KeyPhrase
from backend.text.language import Language

_analysis_of: Handle[AnalysisService] = Handle("analysis")

Feature = Literal["language", "key_phrases", "key_sentences", "classes", "entities", "vector"]
FEATURES: tuple[Feature, ...] = get_args(Feature)


class AnalyzeRequest(WireRequest):
    """`POST /v1/analyze`."""

    input: TextItem = Field(description="One text up to LIMIT_TEXT_CHARS, as it is or as {text}; nothing is cut.")
    features: Annotated[list[Feature], Field(min_length=1)] | None = Field(
        None, description="What to answer with; unset: all that can be told. Less is faster."
    )
    labels: TwoLabels = Field(
        None, description="Classes to choose from, in words (zero-shot), two or more; unset: the classifier's."
    )
    classifier: str | None = Field(None, description="A name that GET /v1/classifiers lists; unset: the default one.")
    top_phrases: UpTo100 = Field(10, description="Most key phrases to answer with.")
    top_sentences: UpTo100 = Field(3, description="Most key sentences to answer with.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="How the vector is written; base64: little-endian float32, a third of the bytes."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> AnalyzeRequest:
        require_two_labels(self.labels)
        return self


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
    return answer_of(KeySentenceAnswer, sentence)


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


async def analyze(request: Request) -> Response:
    """Language, key phrases, key sentences, classes, entities and a vector of one text of any length.

    `features` picks among them; what is not asked for is absent from the answer, what could not be told is null.
    `start` and `end` count Unicode code points of the text as it was sent.
    """
    body = await read_json(request, AnalyzeRequest)
    characters = check_limits([body.input], limits_of(request), "input")
    check_labels(body.labels, limits_of(request))
    analysis = await call_service_timed(
        request,
        partial(
            _analysis_of(request).analyze,
            body.input,
            features=body.features,
            top_phrases=body.top_phrases,
            top_sentences=body.top_sentences,
            labels=body.labels,
            classifier=body.classifier,
        ),
        characters=characters,
    )
    answer = partial(analyze_answer, analysis, body.features or FEATURES, body.encoding_format or "float")
    return await written_json(answer, len(analysis.entities) + sum(phrase.count for phrase in analysis.key_phrases))


_TEXT = "Factura de Aceros del Norte, S.A., a Juan Pérez: 1.284,50 €."
ROUTES = (
    post(
        "/v1/analyze",
        analyze,
        tag="texts",
        request=AnalyzeRequest,
        examples={
            "everything": {"input": _TEXT},
            "what it is about": {"input": _TEXT, "features": ["language", "key_phrases"], "top_phrases": 2},
            "classes of your own": {"input": _TEXT, "features": ["classes"], "labels": ["factura", "contrato"]},
        },
        schema=AnalyzeAnswer,
        example={
            "object": "analysis",
            "language": {"code": "es", "score": 0.9998},
            "key_phrases": [{"text": "Aceros del Norte", "score": 0.8121, "places": [{"start": 11, "end": 27}]}],
            "key_sentences": [{"text": _TEXT, "start": 0, "end": len(_TEXT), "score": 1.0}],
            "classes": CLASSES_EXAMPLE,
            "entities": list(ENTITY_EXAMPLES),
            "coverage": 1.0,
            "vector": [0.0123, -0.0456, 0.0789],
            "model": "intfloat/multilingual-e5-small",
            "usage": {"prompt_tokens": 26, "total_tokens": 26},
        },
    ),
)
