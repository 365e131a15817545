"""Answers with a summary, as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.problems import openai_error, problem_of
from backend.api.responses.embeddings import Usage, usage
from backend.api.responses.texts import LanguageAnswer, language_answer
from backend.documents import records
from backend.documents.formats.plain_json import sides
from backend.files.pages import Document, TextLocation, locate
from backend.speech.pages import KIND, seconds_of
from backend.summaries.records import Method, Source, Summary, WrittenSentence
from backend.summaries.remarks import NO_TEXT
from backend.text.analysis import KeySentence

Sides = tuple[float, float, float, float]


class PlaceAnswer(TypedDict):
    """One line's part of a stretch of text, or when it is said."""

    page: int
    box: NotRequired[Annotated[Sides, Field(description="In page units; of a recording there are seconds instead.")]]
    start_s: NotRequired[Annotated[float, Field(description="Of a recording, from the beginning of the file.")]]
    end_s: NotRequired[float]


class SourceAnswer(TypedDict):
    """A sentence of the text that a written one rests on."""

    text: str
    start: int
    end: int
    cosine: Annotated[float, Field(description="Of the embedding model's vectors of the two sentences.")]
    places: NotRequired[Annotated[list[PlaceAnswer], Field(description="Of a file: one a line.")]]


class SummarySentenceAnswer(TypedDict):
    """A sentence of a summary: one of the text with its place, or a written one with what it rests on."""

    text: str
    start: NotRequired[int]
    end: NotRequired[int]
    score: NotRequired[Annotated[float, Field(description="0 to 1; comparable within one text.")]]
    places: NotRequired[Annotated[list[PlaceAnswer], Field(description="Of a file: one a line.")]]
    based_on: NotRequired[
        Annotated[list[SourceAnswer], Field(description="Of a written sentence: the nearest of the text, best first.")]
    ]
    unsupported: NotRequired[
        Annotated[bool, Field(description="No sentence of the text is near, or a number is in none of `based_on`.")]
    ]
    why: NotRequired[Annotated[str, Field(description="Why it is unsupported.")]]


class SummaryFields(TypedDict):
    """A summary and how it was made."""

    method: Method
    model: Annotated[str, Field(description="The embedding model that chose the sentences, or the one that wrote.")]
    generated: Annotated[bool, Field(description="A model wrote it: it may say what the text does not.")]
    text: str
    sentences: Annotated[list[SummarySentenceAnswer], Field(description="An extract's are in the text's order.")]
    language: Annotated[LanguageAnswer | None, Field(description="Null where the text is too short to tell.")]
    coverage: Annotated[
        float,
        Field(description="Share of the text that the writing model read; of a long text it reads an extract."),
    ]
    warnings: Annotated[list[str], Field(description="Why the text is empty; which options were not used.")]


class SummaryAnswer(SummaryFields):
    """`POST /v1/summarize`."""

    object: Literal["summary"]
    pages: NotRequired[Annotated[int, Field(description="Of a file: pages that were read.")]]
    failed_pages: NotRequired[list[dict[str, Any]]]
    usage: Usage


def summary_answer(summary: Summary, tokens: int) -> SummaryAnswer:
    """The summary of a text."""
    fields = summary_fields(summary)
    return {"object": "summary", **fields, "usage": usage(tokens)}  # type: ignore[typeddict-item] # mypy wants optional keys


def document_summary_answer(answer: records.DocumentAnswer) -> SummaryAnswer:
    """The summary of a file; one without text has an empty one."""
    understood = answer.understood
    summary = understood.summary or Summary("extractive", understood.model, "", None, warnings=(NO_TEXT,))
    return {
        "object": "summary",
        **summary_fields(summary, answer.document),
        "pages": len(answer.document.pages),
        "failed_pages": [
            {"number": failed.number, "error": openai_error(problem_of(failed.error, ""))} for failed in answer.failed
        ],
        "usage": usage(understood.tokens),
    }


def summary_fields(summary: Summary, document: Document | None = None) -> SummaryFields:
    """A summary; with the places of its sentences in ``document``."""
    return {
        "method": summary.method,
        "model": summary.model,
        "generated": summary.generated,
        "text": summary.text,
        "sentences": [
            *(_extracted(sentence, document) for sentence in summary.sentences),
            *(_written(sentence, document) for sentence in summary.written),
        ],
        "language": language_answer(summary.language),
        "coverage": round(summary.coverage, 4),
        "warnings": list(summary.warnings),
    }


def place_answer(place: TextLocation, document: Document) -> PlaceAnswer:
    """One line of a stretch of text; of a recording one segment of it."""
    if document.kind == KIND:
        start_s, end_s = seconds_of(place.box)
        return {"page": place.page, "start_s": round(start_s, 3), "end_s": round(end_s, 3)}
    return {"page": place.page, "box": cast("Sides", sides(place.box))}


def _places(document: Document, start: int, end: int) -> list[PlaceAnswer]:
    return [place_answer(place, document) for place in locate(document, start, end)]


def _extracted(sentence: KeySentence, document: Document | None) -> SummarySentenceAnswer:
    answer: SummarySentenceAnswer = {
        "text": sentence.text,
        "start": sentence.start,
        "end": sentence.end,
        "score": round(sentence.score, 4),
    }
    if document is not None:
        answer["places"] = _places(document, sentence.start, sentence.end)
    return answer


def _written(sentence: WrittenSentence, document: Document | None) -> SummarySentenceAnswer:
    answer: SummarySentenceAnswer = {
        "text": sentence.text,
        "based_on": [_source(source, document) for source in sentence.based_on],
        "unsupported": sentence.unsupported,
    }
    if sentence.unsupported:
        answer["why"] = sentence.why
    return answer


def _source(source: Source, document: Document | None) -> SourceAnswer:
    answer: SourceAnswer = {
        "text": source.text,
        "start": source.start,
        "end": source.end,
        "cosine": source.cosine,
    }
    if document is not None:
        answer["places"] = _places(document, source.start, source.end)
    return answer


SUMMARY_EXAMPLE = {
    "method": "extractive",
    "model": "intfloat/multilingual-e5-small",
    "generated": False,
    "text": "El contrato de suministro se prorroga por un año.",
    "sentences": [
        {"text": "El contrato de suministro se prorroga por un año.", "start": 0, "end": 49, "score": 0.9312}
    ],
    "language": {"code": "es", "score": 0.9998},
    "coverage": 1.0,
    "warnings": [],
}
SCHEMAS: tuple[type, ...] = (SummaryAnswer,)
