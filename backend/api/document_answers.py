"""Writing what is known of a document as JSON. Some milliseconds a page: for a thread where there are many."""

from __future__ import annotations

from typing import Any

import orjson

from backend.api.answers import written
from backend.api.problems import openai_error, problem_of
from backend.api.text_answers import classes, entity, key_phrase, key_sentence, language
from backend.documents.formats.plain_json import document_fields, pages_fields, sides
from backend.documents.text_locations import TextLocation, locate
from backend.services.documents.records import Chunk, DocumentAnswer, FailedPage, PlacedEntity

_DIGITS = 4  # of seconds


def document_bytes(answer: DocumentAnswer, form: str = "float") -> bytes:
    """The answer as JSON.

    Args:
        form: of the vectors, of answers.FORMS.
    """
    return orjson.dumps(_fields(answer, form), option=orjson.OPT_SERIALIZE_NUMPY)


def failed_page(failed: FailedPage) -> dict[str, Any]:
    """A page that could not be read, and why."""
    return {"number": failed.number, "error": openai_error(problem_of(failed.error, ""))}


def _fields(answer: DocumentAnswer, form: str) -> dict[str, Any]:
    document, features = answer.document, answer.options.features
    pages = list(pages_fields(document))
    for page in pages:
        for feature in ("text", "words"):
            if feature not in features:
                del page[feature]
    told = {
        "object": "document",
        **document_fields(document),
        "pages": pages,
        "failed_pages": [failed_page(one) for one in answer.failed],
    }
    if "text" in features:
        told["text"] = answer.text
    return {**told, **_understood(answer, form), **_account(answer)}


def _understood(answer: DocumentAnswer, form: str) -> dict[str, Any]:
    """The features of the text, in their order; what could not be told is null or empty."""
    found, features = answer.understood, answer.options.features
    writers: dict[str, Any] = {
        "language": lambda: language(found.language),
        "classes": lambda: found.classes and classes(found.classes),
        "entities": lambda: [_entity(one) for one in found.entities],
        "key_phrases": lambda: [key_phrase(one) for one in found.key_phrases],
        "key_sentences": lambda: [
            {**key_sentence(one), "places": [_place(place) for place in locate(answer.document, one.start, one.end)]}
            for one in found.key_sentences
        ],
        "vector": lambda: None if found.vector is None else written(found.vector, form),
        "chunks": lambda: [_chunk(index, one, form) for index, one in enumerate(found.chunks)],
    }
    told = {feature: write() for feature, write in writers.items() if feature in features}
    return {**told, "coverage": found.coverage} if "entities" in features else told


def _entity(placed: PlacedEntity) -> dict[str, Any]:
    told = {**entity(placed.entity), "places": [_place(one) for one in placed.places]}
    if placed.repair is not None:
        told["repair"] = {"value": placed.repair.value, "type": placed.entity.type, "score": placed.repair.score}
    return told


def _place(place: TextLocation) -> dict[str, Any]:
    return {"page": place.page, "box": sides(place.box)}


def _chunk(index: int, chunk: Chunk, form: str) -> dict[str, Any]:
    return {
        "index": index,
        "start": chunk.start,
        "end": chunk.end,
        "pages": chunk.pages,
        "tokens": chunk.tokens,
        "vector": written(chunk.vector, form),
    }


def _account(answer: DocumentAnswer) -> dict[str, Any]:
    read, tokens = answer.extraction, answer.understood.tokens
    seconds = {
        "open_s": read.open_s,
        "read_s": read.read_s,
        "ocr_s": read.ocr_s,
        "understand_s": answer.understand_s,
        "total_s": answer.total_s,
    }
    return {
        "model": answer.understood.model or None,
        "device": answer.device,
        "timings": {name: round(value, _DIGITS) for name, value in seconds.items()},
        "usage": {
            "pages": len(answer.document.pages),
            "ocr_pages": read.ocr_pages,
            "prompt_tokens": tokens,
            "total_tokens": tokens,
        },
    }
