"""Answers about documents, as JSON. ``document_formats`` has the other formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, cast

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from backend.api.problems import openai_error, problem_of
from backend.api.responses.embeddings import Usage
from backend.api.responses.fields import (
    FieldsAnswer,
    TableAnswer,
    ValidityAnswer,
    fields_answer,
    table_answer,
    validity_answer,
)
from backend.api.responses.json_bytes import encoded_vector
from backend.api.responses.summaries import PlaceAnswer, Sides, SummaryFields, place_answer, summary_fields
from backend.api.responses.texts import (
    ClassesAnswer,
    EntityAnswer,
    classes_answer,
    entity_answer,
    key_phrase_answer,
    key_sentence_answer,
    language_answer,
)
from backend.documents import records
from backend.documents.formats.plain_json import document_fields, pages_fields
from backend.files.pages import Document, locate
from backend.invoices.records import Validity
from backend.speech.pages import KIND

_SECONDS_DIGITS = 4


class WordAnswer(TypedDict):
    """One word; `start` and `end` count code points of its page's text."""

    text: str
    box: NotRequired[Annotated[Sides, Field(description="Left, top, right, bottom, in page units.")]]
    start_s: NotRequired[Annotated[float, Field(description="Of a recording instead of its box: when it is said.")]]
    end_s: NotRequired[float]
    confidence: Annotated[float, Field(description="0 to 1; 1 for a text layer.")]
    start: int
    end: int
    line: int
    block: int


class PageAnswer(TypedDict):
    """One page as it stands upright, or one minute of a recording."""

    number: Annotated[int, Field(description="From 1, in the file.")]
    width: NotRequired[Annotated[float, Field(description="In page units: points of a PDF, pixels of an image.")]]
    height: NotRequired[float]
    units_per_inch: NotRequired[float]
    rotation: NotRequired[
        Annotated[Literal[0, 90, 180, 270], Field(description="Degrees clockwise that it was turned to stand upright.")]
    ]
    start_s: NotRequired[Annotated[float, Field(description="Of a recording, which has no width or height.")]]
    end_s: NotRequired[Annotated[float, Field(description="At the end of a segment.")]]
    source: Literal["text_layer", "ocr", "speech"]
    why: Annotated[str, Field(description="Why this source, and how it was read.")]
    engine: str
    confidence: float | None
    language: Annotated[str | None, Field(description="ISO 639-1.")]
    incomplete: Annotated[bool, Field(description="A part of it was not read: `why` says what.")]
    start: Annotated[int, Field(description="Where its text begins in the document's.")]
    text: NotRequired[Annotated[str, Field(description="Absent where `features` leaves it out, as words are.")]]
    words: NotRequired[list[WordAnswer]]


class FailedPageAnswer(TypedDict):
    """A page that could not be read."""

    number: int
    error: Annotated[Mapping[str, Any], Field(description="As in a problem: message, type, code, param.")]


class RepairAnswer(TypedDict):
    """What an id, a date or an amount must have been, where OCR read letters for digits; only offered."""

    value: str
    type: str
    score: float


class _Repair(TypedDict):
    repair: NotRequired[RepairAnswer | None]


class PlacedEntityAnswer(EntityAnswer):
    """An entity and where it stands."""

    places: list[PlaceAnswer]
    repair: NotRequired[
        Annotated[RepairAnswer | None, Field(default=None, description="Only on pages that were recognised.")]
    ]


class ChunkAnswer(TypedDict):
    """A stretch of the text that fits the embedding model; `vector` is what /v1/embeddings gives it."""

    index: int
    start: int
    end: int
    pages: list[int]
    tokens: int
    vector: list[float] | str


class SkippedAnswer(TypedDict):
    """A feature that was asked for and does not apply to the file."""

    feature: str
    why: str


class ImageClassesAnswer(ClassesAnswer):
    """The classes of a document by the picture of one of its pages."""

    model: str
    page: int


class DocumentClassesAnswer(ClassesAnswer):
    """The classes of a document; what they were made of where IMAGE_MODEL is set."""

    combined: NotRequired[Annotated[bool, Field(description="Whether the scores are of text and picture together.")]]
    why: NotRequired[Annotated[str, Field(description="How they were combined, or why they are of one alone.")]]
    text: NotRequired[Annotated[ClassesAnswer | None, Field(default=None, description="By the text.")]]
    image: NotRequired[Annotated[ImageClassesAnswer | None, Field(default=None, description="By the picture.")]]


class DocumentUsage(Usage):
    """What was read."""

    pages: int
    ocr_pages: int


class DocumentAnswer(TypedDict):
    """`POST /v1/documents`; of `POST /v1/ocr` the pages and what is about them."""

    object: Literal["document"]
    kind: str
    page_count: Annotated[int, Field(description="Of the file, also where fewer pages were read.")]
    sha256: str
    duration_s: NotRequired[Annotated[float, Field(description="Of a recording, as far as it was heard.")]]
    metadata: dict[str, str]
    pages: list[PageAnswer]
    failed_pages: list[FailedPageAnswer]
    text: NotRequired[Annotated[str, Field(description="Of all pages, a line break and a form feed between them.")]]
    language: NotRequired[Annotated[Mapping[str, Any] | None, Field(default=None)]]
    classes: NotRequired[Annotated[DocumentClassesAnswer | None, Field(default=None)]]
    entities: NotRequired[Annotated[list[PlacedEntityAnswer] | None, Field(default=None)]]
    coverage: NotRequired[Annotated[float | None, Field(default=None)]]
    key_phrases: NotRequired[Annotated[list[Mapping[str, Any]] | None, Field(default=None)]]
    key_sentences: NotRequired[Annotated[list[Mapping[str, Any]] | None, Field(default=None)]]
    vector: NotRequired[Annotated[list[float] | str | None, Field(default=None)]]
    chunks: NotRequired[Annotated[list[ChunkAnswer] | None, Field(default=None)]]
    fields: NotRequired[
        Annotated[FieldsAnswer, Field(description="Of an invoice, a receipt or a bank statement; `fields_why` tells.")]
    ]
    fields_why: NotRequired[
        Annotated[str, Field(description="What the document was read as, or why it has no fields.")]
    ]
    valid: NotRequired[ValidityAnswer]
    tables: NotRequired[list[TableAnswer]]
    summary: NotRequired[Annotated[SummaryFields | None, Field(default=None)]]
    skipped: NotRequired[
        Annotated[list[SkippedAnswer], Field(description="Why features are empty: a recording has no layout.")]
    ]
    model: str | None
    device: str
    timings: Annotated[
        dict[str, float], Field(description="Seconds; ocr_s is the sum over pages, which are read side by side.")
    ]
    usage: DocumentUsage


def document_bytes(answer: records.DocumentAnswer, encoding: str = "float") -> bytes:
    """The answer as JSON. Takes some milliseconds a page: call it in a thread where there are many.

    Args:
        encoding: of the vectors, of VECTOR_ENCODINGS.
    """
    omitted = set(records.FEATURES) - answer.options.features
    if "entities" in omitted:
        omitted.add("coverage")
    if "fields" in omitted:
        omitted |= {"fields_why", "valid"}
    fields = {name: value for name, value in _document_answer(answer, encoding).items() if name not in omitted}
    if answer.document.kind == KIND:
        fields["duration_s"] = round(max((page.width for page in answer.document.pages), default=0.0), 3)
    if answer.understood.skipped:
        fields["skipped"] = [skipped._asdict() for skipped in answer.understood.skipped]
    return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)


def _document_answer(answer: records.DocumentAnswer, encoding: str) -> DocumentAnswer:
    """Every feature; null or empty where nothing was found or it was not requested."""
    understood, document = answer.understood, answer.document
    head = document_fields(document)
    return {
        "object": "document",
        "kind": head["kind"],
        "page_count": head["page_count"],
        "sha256": head["sha256"],
        "metadata": head["metadata"],
        "pages": _page_answers(answer),
        "failed_pages": [_failed_page_answer(failed) for failed in answer.failed],
        "text": answer.text,
        "language": language_answer(understood.language),
        "classes": _document_classes(understood),
        "entities": [_placed_entity_answer(placed, document) for placed in understood.entities],
        "key_phrases": [key_phrase_answer(phrase) for phrase in understood.key_phrases],
        "key_sentences": [
            {
                **key_sentence_answer(sentence),
                "places": [place_answer(place, document) for place in locate(document, sentence.start, sentence.end)],
            }
            for sentence in understood.key_sentences
        ],
        "vector": None if understood.vector is None else encoded_vector(understood.vector, encoding),
        "chunks": [_chunk_answer(index, chunk, encoding) for index, chunk in enumerate(understood.chunks)],
        "coverage": understood.coverage,
        "fields": fields_answer(understood.fields),
        "fields_why": understood.fields.why if understood.fields else "",
        "valid": validity_answer(understood.fields.validity if understood.fields else Validity()),
        "tables": [table_answer(table) for table in understood.tables],
        "summary": None if understood.summary is None else summary_fields(understood.summary, document),
        "model": understood.model or None,
        "device": answer.device,
        "timings": _timings(answer),
        "usage": {
            "pages": len(document.pages),
            "ocr_pages": answer.extraction.ocr_pages,
            "prompt_tokens": understood.tokens,
            "total_tokens": understood.tokens,
        },
    }


def _page_answers(answer: records.DocumentAnswer) -> list[PageAnswer]:
    # Written one by one: the writer holds Python's lock to its end, and 200 pages in one call blocked all threads
    # for 0.3 s, the event loop's too. Typed as what the JSON holds.
    omitted = [feature for feature in records.PAGE_FEATURES if feature not in answer.options.features]
    written = []
    for page in pages_fields(answer.document):
        for feature in omitted:
            del page[feature]
        written.append(orjson.Fragment(orjson.dumps(page)))
    return cast("list[PageAnswer]", written)


def _failed_page_answer(failed: records.FailedPage) -> FailedPageAnswer:
    return {"number": failed.number, "error": openai_error(problem_of(failed.error, ""))}


def _placed_entity_answer(placed: records.PlacedEntity, document: Document) -> PlacedEntityAnswer:
    repair: _Repair = {}
    if placed.repair is not None:
        repair = {"repair": {"value": placed.repair.value, "type": placed.entity.type, "score": placed.repair.score}}
    return {
        **entity_answer(placed.entity),
        "places": [place_answer(place, document) for place in placed.places],
        **repair,
    }


def _document_classes(understood: records.Understood) -> DocumentClassesAnswer | None:
    parts = understood.class_parts
    if understood.classes is None:
        return None
    classes = classes_answer(understood.classes)
    answer: DocumentClassesAnswer = {
        "prediction": classes["prediction"],
        "score": classes["score"],
        "predictions": classes["predictions"],
    }
    if parts is not None:
        answer["combined"], answer["why"] = parts.combined, parts.why
        answer["text"] = None if parts.text is None else classes_answer(parts.text)
        image = parts.image
        answer["image"] = None if image is None else {**classes_answer(image), "model": parts.model, "page": parts.page}
    return answer


def _chunk_answer(index: int, chunk: records.Chunk, encoding: str) -> ChunkAnswer:
    return {
        "index": index,
        "start": chunk.start,
        "end": chunk.end,
        "pages": list(chunk.pages),
        "tokens": chunk.tokens,
        "vector": encoded_vector(chunk.vector, encoding),
    }


def _timings(answer: records.DocumentAnswer) -> dict[str, float]:
    read = answer.extraction
    seconds = {
        "open_s": read.open_s,
        "read_s": read.read_s,
        "ocr_s": read.ocr_s,
        "understand_s": answer.understand_s,
        "total_s": answer.total_s,
    }
    return {name: round(value, _SECONDS_DIGITS) for name, value in seconds.items()}


SCHEMAS: tuple[type, ...] = (DocumentAnswer,)
