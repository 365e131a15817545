"""Answers about documents as JSON: pages, fields, tables, summaries. ``documents`` has the other formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from backend.api.json_io import WrittenJson, answer_of, encoded_vector, joined_pieces, json_pieces
from backend.api.problems import openai_error, problem_of
from backend.api.routes.analyze import LanguageAnswer, key_phrase_answer, key_sentence_answer, language_answer
from backend.api.routes.classify import ClassesAnswer, classes_answer
from backend.api.routes.embeddings import Usage
from backend.api.routes.entities import EntityAnswer, entity_answer
from backend.documents import records
from backend.documents.formats.plain_json import document_fields, sides, written_pages
from backend.files.pages import Box, Document, TextLocation, locate
from backend.invoices.records import ExtractedFields, FieldRow, Validity
from backend.invoices.records import Field as InvoiceField
from backend.reasons import ReasonAnswer, reasons_in
from backend.speech.pages import KIND, seconds_of
from backend.summaries.records import Method, Source, Summary, WrittenSentence
from backend.tables.records import Table, TableCell, TableSource
from backend.text.analysis import KeySentence

Sides = tuple[float, float, float, float]
_LISTS = ("Items", "TaxDetails", "Movements")
ReasonsAnswer = Annotated[list[ReasonAnswer], Field(description="`why` as codes with parameters (docs/reasons.md).")]


FieldSourceAnswer = Literal["text", "xml", "qr", "computed", "person"]


class CorrectedAnswer(TypedDict):
    """Who wrote a value of a stored document in place of the one that was read."""

    by: Annotated[str, Field(description="The name of the key.")]
    at: Annotated[float, Field(description="Unix seconds.")]
    read: Annotated[str | None, Field(description="The value that was read; null where there was none, or a list.")]


class FieldValueAnswer(TypedDict):
    """One value and where it stands."""

    value: Annotated[str, Field(description="ISO 8601 date, decimal, id without separators, or text.")]
    text: Annotated[str, Field(description="As printed; empty where it is not.")]
    score: float
    page: Annotated[int | None, Field(description="Number of the page; null for a text, or what is not printed.")]
    boxes: Annotated[list[Sides], Field(description="One for each printed line, in page units.")]
    start: Annotated[int | None, Field(description="Code points of the document's `text`.")]
    end: int | None
    source: Annotated[FieldSourceAnswer, Field(description="person: it was corrected.")]
    why: Annotated[str, Field(description="By what it was found.")]
    reasons: ReasonsAnswer
    valid: Annotated[bool | None, Field(description="By check digits or the calendar; null where neither applies.")]
    repair: Annotated[str | None, Field(description="The likely value of an id whose check digits fail; an offer.")]
    ambiguous: Annotated[bool, Field(description="Day and month of this date cannot be told apart.")]
    corrected: NotRequired[CorrectedAnswer]


class FieldListAnswer(TypedDict):
    """A list of goods, rates of tax or movements: each a value by name."""

    value: list[dict[str, FieldValueAnswer]]
    score: float
    source: FieldSourceAnswer
    why: str
    reasons: ReasonsAnswer
    corrected: NotRequired[CorrectedAnswer]


class DifferenceAnswer(TypedDict):
    """An equation that does not hold."""

    equation: str
    expected: Annotated[str, Field(description="What its parts give, decimal.")]
    printed: str


class ValidityAnswer(TypedDict):
    """What could be checked; null where a part for it is missing."""

    totals: bool | None
    VendorTaxId: bool | None
    CustomerTaxId: bool | None
    IBAN: bool | None
    differences: list[DifferenceAnswer]


FieldsAnswer = dict[str, FieldValueAnswer | FieldListAnswer]


class TableCellAnswer(TypedDict):
    """One cell."""

    row: int
    column: int
    rowspan: int
    colspan: int
    text: str
    value: Annotated[str | None, Field(description="Of a number or a date: decimal or ISO 8601.")]
    header: bool
    page: int
    boxes: list[Sides]
    start: int | None
    end: int | None


class TableAnswer(TypedDict):
    """One table; one that goes on over several pages is joined, its header given once."""

    page: Annotated[int, Field(description="The first of its pages.")]
    pages: list[int]
    boxes: Annotated[list[Sides], Field(description="Its outline on each of its pages, in page units.")]
    rows: int
    columns: int
    source: TableSource
    score: float
    cells: list[TableCellAnswer]


class OneDocumentAnswer(TypedDict):
    """One document of a file: nothing of one is told of another."""

    pages: Annotated[list[int], Field(description="Numbers of its pages in the file.")]
    kind: Annotated[str | None, Field(description="invoice, receipt, bank_statement, …; null where it is none.")]
    fields: FieldsAnswer
    fields_why: str
    fields_reasons: Annotated[list[ReasonAnswer], Field(description="`fields_why` as codes with parameters.")]
    valid: ValidityAnswer
    tables: NotRequired[list[TableAnswer]]
    confirmed: NotRequired[Annotated[bool, Field(description="Of a stored document, as what follows.")]]
    confirmed_by: NotRequired[str | None]
    confirmed_at: NotRequired[Annotated[float | None, Field(description="Unix seconds.")]]


def documents_answer(
    extracted: ExtractedFields, tables: list[TableAnswer] | None, pages: Sequence[int]
) -> list[OneDocumentAnswer]:
    """The documents of a file, each with the tables that begin on pages of its own.

    Args:
        tables: None where nobody asked for them.
        pages: numbers of the file's pages, of which is what could not be read for a fault.
    """
    documents = []
    shared = Counter(number for one in (extracted, *extracted.others) for number in one.pages)
    for one in (extracted, *extracted.others):
        own: OneDocumentAnswer = {
            "pages": list(one.pages or pages),
            "kind": one.kind,
            "fields": fields_answer(one),
            "fields_why": one.why,
            "fields_reasons": reasons_in(one.why),
            "valid": validity_answer(one.validity),
        }
        if tables is not None:
            alone = {number for number in own["pages"] if shared[number] <= 1}  # rows go across papers side by side
            own["tables"] = [table for table in tables if table["page"] in alone]
        documents.append(own)
    return documents


class CustomValueAnswer(TypedDict):
    """A value that was found for a name of `schema`."""

    value: Annotated[str | float | bool, Field(description="Of the type that was asked for; dates are ISO 8601.")]
    text: Annotated[str, Field(description="As printed.")]
    score: float
    page: int | None
    boxes: list[Sides]
    start: int
    end: int
    why: Annotated[str, Field(description="By what it was found.")]
    reasons: ReasonsAnswer
    valid: Annotated[bool | None, Field(description="By check digits or the calendar; null where neither applies.")]


def custom_answer(fields: Sequence[records.OwnField]) -> dict[str, Any]:
    """The fields by name, nested as in the schema; of a list `value` has all, and `items` each with its place."""
    answer: dict[str, Any] = {}
    for field in fields:
        inner = answer
        for name in field.path[:-1]:
            inner = inner.setdefault(name, {})
        values = [_custom_value(value) for value in field.values]
        listed = {"value": [value["value"] for value in values], "items": values}
        inner[field.path[-1]] = listed if field.many else values[0]
    return answer


def _custom_value(found: records.OwnValue) -> CustomValueAnswer:
    value, reasons = orjson.loads(found.value), reasons_in(found.why)
    return answer_of(CustomValueAnswer, found, value=value, reasons=reasons, **_place_of(found.places))


def fields_answer(extracted: ExtractedFields) -> FieldsAnswer:
    """The fields by name; empty where none were found."""
    return {field.name: _field_answer(field) for field in extracted.fields}


def validity_answer(validity: Validity) -> ValidityAnswer:
    return {
        "totals": validity.totals,
        "VendorTaxId": validity.vendor_tax_id,
        "CustomerTaxId": validity.customer_tax_id,
        "IBAN": validity.iban,
        "differences": [answer_of(DifferenceAnswer, difference) for difference in validity.differences],
    }


def table_answer(table: Table) -> TableAnswer:
    cells = [_cell_answer(cell) for cell in table.cells]
    pages, boxes = list(table.pages), _boxes(table.boxes)
    return answer_of(TableAnswer, table, page=pages[0], pages=pages, boxes=boxes, cells=cells)


def _field_answer(field: InvoiceField) -> FieldValueAnswer | FieldListAnswer:
    if field.name in _LISTS:
        rows = [_row_answer(row) for row in field.rows]
        return answer_of(FieldListAnswer, field, value=rows, reasons=reasons_in(field.why))
    return _value_answer(field)


def _row_answer(row: FieldRow) -> dict[str, FieldValueAnswer]:
    return {field.name: _value_answer(field) for field in row.fields}


def _value_answer(field: InvoiceField) -> FieldValueAnswer:
    return answer_of(FieldValueAnswer, field, reasons=reasons_in(field.why), **_place_of(field.places))


def _cell_answer(cell: TableCell) -> TableCellAnswer:
    """Written out: there may be tens of thousands, and `answer_of` takes four times as long."""
    return {
        "row": cell.row,
        "column": cell.column,
        "rowspan": cell.rowspan,
        "colspan": cell.colspan,
        "text": cell.text,
        "value": cell.value,
        "header": cell.header,
        "page": cell.page,
        "boxes": _boxes(cell.boxes),
        "start": cell.start,
        "end": cell.end,
    }


def _place_of(places: Sequence[Any]) -> dict[str, Any]:
    boxes = _boxes(tuple(place.box for place in places))
    return {"page": places[0].page if places else None, "boxes": boxes}


def _boxes(boxes: tuple[Box, ...]) -> list[Sides]:
    return [cast("Sides", tuple(sides(box))) for box in boxes]


CUSTOM_EXAMPLE = {
    "value": "1234 BCD", "text": "1234 BCD", "score": 0.97, "page": 1, "boxes": [[110.2, 60.2, 158.4, 72.0]],
    "start": 17, "end": 25, "why": "after 'Matrícula'", "reasons": reasons_in("after 'Matrícula'"), "valid": None,
}  # fmt: skip
FIELD_EXAMPLE: FieldValueAnswer = {
    "value": "1284.50", "text": "1.284,50 €", "score": 0.97, "page": 1, "boxes": [(430.2, 610.5, 492.8, 622.1)],
    "start": 190, "end": 200, "source": "text", "why": 'beside "Total factura"',
    "reasons": reasons_in('beside "Total factura"'), "valid": None, "repair": None, "ambiguous": False,
}  # fmt: skip
VALIDITY_EXAMPLE: ValidityAnswer = {
    "totals": True, "VendorTaxId": True, "CustomerTaxId": None, "IBAN": None, "differences": [],
}  # fmt: skip
TABLE_EXAMPLE: TableAnswer = {
    "page": 1,
    "pages": [1],
    "boxes": [(56.7, 180.0, 538.6, 420.0)],
    "rows": 1,
    "columns": 1,
    "source": "ruled",
    "score": 0.98,
    "cells": [
        {
            "row": 0, "column": 0, "rowspan": 1, "colspan": 1, "text": "1.284,50 €", "value": "1284.50",
            "header": False, "page": 1, "boxes": [(430.2, 310.5, 492.8, 322.1)], "start": 90, "end": 100,
        }
    ],
}  # fmt: skip
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
    reasons: ReasonsAnswer
    engine: str
    confidence: float | None
    language: Annotated[str | None, Field(description="ISO 639-1.")]
    incomplete: Annotated[bool, Field(description="A part of it was not read: `why` says what.")]
    part: NotRequired[
        Annotated[str, Field(description="Of a file of several: the sheet, slide, chapter, picture or attachment.")]
    ]
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
    reasons: ReasonsAnswer


class ImageClassesAnswer(ClassesAnswer):
    """The classes of a document by the picture of one of its pages."""

    model: str
    page: int


class DocumentClassesAnswer(ClassesAnswer):
    """The classes of a document; what they were made of where IMAGE_MODEL is set."""

    combined: NotRequired[Annotated[bool, Field(description="Whether the scores are of text and picture together.")]]
    why: NotRequired[Annotated[str, Field(description="How they were combined, or why they are of one alone.")]]
    reasons: NotRequired[ReasonsAnswer]
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
    fields_reasons: NotRequired[list[ReasonAnswer]]
    valid: NotRequired[ValidityAnswer]
    documents: NotRequired[
        Annotated[
            list[OneDocumentAnswer],
            Field(description="Each document of a file that holds several; `fields` and `valid` are the first one's."),
        ]
    ]
    custom: NotRequired[
        Annotated[
            dict[str, Any],
            Field(description="What `schema` asks for and the file says, nested as there; what is absent is left out."),
        ]
    ]
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


def document_json(answer: records.DocumentAnswer, encoding: str = "float") -> dict[str, Any]:
    """The answer as a client reads it. Takes as long as `document_pieces`."""
    read: dict[str, Any] = orjson.loads(b"".join(document_pieces(answer, encoding)))
    return read


def document_pieces(answer: records.DocumentAnswer, encoding: str = "float") -> list[bytes]:
    """The answer as JSON, in pieces. Takes some milliseconds a page: call it in a thread where there are many.

    Args:
        encoding: of the vectors, of VECTOR_ENCODINGS.
    """
    omitted = set(records.FEATURES) - answer.options.features
    if "entities" in omitted:
        omitted.add("coverage")
    if "fields" in omitted:
        omitted |= {"fields_why", "fields_reasons", "valid", "documents"}
    if not answer.options.schema:
        omitted.add("custom")
    answered = _document_answer(answer, encoding)
    fields: dict[str, Any] = {name: value for name, value in answered.items() if name not in omitted}
    if answer.document.kind == KIND:
        fields["duration_s"] = round(max((page.width for page in answer.document.pages), default=0.0), 3)
    if answer.understood.skipped:
        skipped = answer.understood.skipped
        fields["skipped"] = [answer_of(SkippedAnswer, one, reasons=reasons_in(one.why)) for one in skipped]
    return joined_pieces(json_pieces(fields))


def _document_answer(answer: records.DocumentAnswer, encoding: str) -> DocumentAnswer:
    """Every feature; null or empty where nothing was found or it was not requested."""
    understood, document = answer.understood, answer.document
    head = document_fields(document)
    tables = [table_answer(table) for table in understood.tables]
    found = understood.fields or ExtractedFields(
        (), Validity(), "", pages=tuple(page.number for page in document.pages)
    )
    return {
        "object": "document",
        "kind": head["kind"],
        "page_count": head["page_count"],
        "sha256": head["sha256"],
        "metadata": head["metadata"],
        "pages": _written_pages(answer),
        "failed_pages": [failed_page_answer(failed) for failed in answer.failed],
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
        "fields": fields_answer(found),
        "fields_why": found.why,
        "fields_reasons": reasons_in(found.why),
        "valid": validity_answer(found.validity),
        "documents": documents_answer(
            found, tables if "tables" in answer.options.features else None, [page.number for page in document.pages]
        ),
        "custom": custom_answer(understood.custom),
        "tables": tables,
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


def _written_pages(answer: records.DocumentAnswer) -> list[PageAnswer]:
    """Typed as what the JSON holds."""
    omitted = [feature for feature in records.PAGE_FEATURES if feature not in answer.options.features]
    return cast("list[PageAnswer]", WrittenJson(written_pages(answer.document, omitted)))


def failed_page_answer(failed: records.FailedPage) -> FailedPageAnswer:
    """A page that could not be read, and why."""
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
        answer["reasons"] = reasons_in(parts.why)
        answer["text"] = None if parts.text is None else classes_answer(parts.text)
        image = parts.image
        answer["image"] = None if image is None else {**classes_answer(image), "model": parts.model, "page": parts.page}
    return answer


def _chunk_answer(index: int, chunk: records.Chunk, encoding: str) -> ChunkAnswer:
    vector = encoded_vector(chunk.vector, encoding)
    return answer_of(ChunkAnswer, chunk, index=index, pages=list(chunk.pages), vector=vector)


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
    reasons: NotRequired[Annotated[list[ReasonAnswer], Field(description="`why` as codes with parameters.")]]


class SummaryFields(TypedDict):
    """A summary and how it was made."""

    method: Method
    model: Annotated[str, Field(description="The embedding model that chose the sentences, or the one that wrote.")]
    generated: Annotated[bool, Field(description="A model wrote it: it may say what the text does not.")]
    text: str
    sentences: Annotated[list[SummarySentenceAnswer], Field(description="An extract's are in the text's order.")]
    language: Annotated[LanguageAnswer | None, Field(description="Null where the text is too short to tell.")]
    coverage: Annotated[
        float, Field(description="Share of the text that the writing model read; of a long text it reads an extract.")
    ]
    warnings: Annotated[list[str], Field(description="Why the text is empty; which options were not used.")]
    warning_reasons: Annotated[list[ReasonAnswer], Field(description="`warnings` as codes with parameters.")]


def summary_fields(summary: Summary, document: Document | None = None) -> SummaryFields:
    """A summary; with the places of its sentences in ``document``."""
    return answer_of(
        SummaryFields,
        summary,
        sentences=[
            *(_extracted(sentence, document) for sentence in summary.sentences),
            *(_written(sentence, document) for sentence in summary.written),
        ],
        language=language_answer(summary.language),
        coverage=round(summary.coverage, 4),
        warnings=list(summary.warnings),
        warning_reasons=[reason for warning in summary.warnings for reason in reasons_in(warning)],
    )


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
        answer["why"], answer["reasons"] = sentence.why, reasons_in(sentence.why)
    return answer


def _source(source: Source, document: Document | None) -> SourceAnswer:
    places = {} if document is None else {"places": _places(document, source.start, source.end)}
    return answer_of(SourceAnswer, source, **places)


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
    "warning_reasons": [],
}
