"""Jobs as bytes, and back: records, options, pages and results. No JSON of the API: routes write that."""

from __future__ import annotations

import types
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import orjson

from backend.documents.formats.plain_json import document_fields
from backend.documents.records import DocumentAnswer, DocumentOptions, ExtractedDocument, FailedPage, Understood
from backend.errors import FinanciaError, JobOfAnotherRelease
from backend.files.page_codec import pack_document, pack_page, unpack_document, unpack_page
from backend.files.pages import Document, Page
from backend.invoices.records import ExtractedFields
from backend.jobs.records import Failure, Job, JobFile, PageRecord, Progress, Status

_FAST = 1  # zlib's level: a page of 20 KB in under a millisecond, to a fifth
_EXTRACTION_NUMBERS = ("ocr_pages", "open_s", "read_s", "ocr_s")
_ANSWER_VALUES = ("device", "understand_s", "total_s")
# Raised when a release changes the meaning of a job, of its options, or of its result. Fields that readers may ignore
# change nothing. A release reads its own format and the one before, so that old and new replicas can share a Redis; a
# job in another format is left to replicas that can read it.
RECORD_FORMAT = 2
OLDEST_FORMAT = 2  # that this release reads; format 1 was never released


class _StoredError(FinanciaError):
    """The error of a page that failed when the job ran, with everything that an answer says of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.code, self.status, self.param = failure.code, failure.status, failure.param


def option_fields(options: DocumentOptions) -> dict[str, Any]:
    """Options as JSON values, without the password."""
    values = {field.name: getattr(options, field.name) for field in fields(options) if field.name != "password"}
    return {**values, "features": sorted(options.features)}


def options_of(values: Mapping[str, Any], password: str | None) -> DocumentOptions:
    """The options that `option_fields` wrote; those that an earlier release did not know have their defaults.

    Raises: JobOfAnotherRelease for options that this release does not know: what they ask for would be left out.
    """
    try:
        as_tuples = {name: tuple(values[name]) for name in ("languages", "labels") if values.get(name) is not None}
        features = frozenset(values["features"])
        return DocumentOptions(**{**values, **as_tuples, "features": features, "password": password})
    except (TypeError, KeyError) as error:
        raise JobOfAnotherRelease("the job, by its options,") from error


def page_record(page: Page) -> PageRecord:
    """A page as a job's store keeps it, and the data of its "page" event."""
    event = {
        "number": page.number,
        "source": page.source,
        "why": page.why,
        "engine": page.engine,
        "confidence": page.confidence,
        "words": len(page.words),
        "text": page.text,
        "rotation": page.rotation,
        "width": page.width,
        "height": page.height,
    }
    return PageRecord(page.number, pack_page(page), orjson.dumps(event))


_LINES = ("Items", "Movements")  # most of a long document; the result has them


def fields_event(found: ExtractedFields) -> bytes:
    """The data of a "fields" event: the fields of the first document of a file, without its lines."""
    short = tuple(field for field in found.fields if field.name not in _LINES)
    return orjson.dumps(replace(found, fields=short, others=()), default=_json_value)


def fields_of_event(data: bytes) -> ExtractedFields | None:
    """What `fields_event` wrote; None for what another release has written otherwise."""
    try:
        found: ExtractedFields = _restored(ExtractedFields, orjson.loads(data))
        return found
    except (ValueError, TypeError, KeyError):
        return None


def partial_document(job: Job, packed: Mapping[int, bytes]) -> Document:
    """The document that the pages extracted so far make. ``packed``: pages by number, from `page_record`."""
    pages = [page for number in sorted(packed) if (page := unpack_page(packed[number])) is not None]
    page_count = max([job.progress.pages_total or 0, *packed])
    return Document(job.file.kind, tuple(pages), page_count, job.file.sha256)


def pack_answer(answer: DocumentAnswer) -> bytes:
    """A finished document. Its options are left out: the job has them. Takes milliseconds a page: call it on a thread.

    Two lines of compressed JSON: what is known of the document, then the document as `page_codec` packs it. Vectors
    are base64 of their bytes, and floats keep their shortest exact decimals, so that nothing is lost.
    """
    extraction = answer.extraction
    head = {
        "understood": answer.understood,
        "extraction": {name: getattr(extraction, name) for name in _EXTRACTION_NUMBERS},
        "failed": [[page.number, asdict(Failure.of(page.error))] for page in extraction.failed],
        **{name: getattr(answer, name) for name in _ANSWER_VALUES},
    }
    metadata = document_fields(answer.document)["metadata"]  # without characters that JSON cannot hold
    document = pack_document(replace(answer.document, metadata=metadata))
    return zlib.compress(orjson.dumps(head, default=_json_value) + b"\n" + document, _FAST)


def unpack_answer(packed: bytes, options: Mapping[str, Any]) -> DocumentAnswer:
    """The document that `pack_answer` packed, without fields that this release does not know. Call it on a thread.

    Args:
        options: of the job, from `option_fields`.

    Raises: JobOfAnotherRelease for bytes or options that it cannot read.
    """
    try:
        first, _, second = zlib.decompress(packed).partition(b"\n")
        head, document = orjson.loads(first), unpack_document(second)
        failed = tuple(FailedPage(number, _StoredError(Failure(**failure))) for number, failure in head["failed"])
        numbers = {name: head["extraction"][name] for name in _EXTRACTION_NUMBERS}
        return DocumentAnswer(
            extraction=ExtractedDocument(document=document, failed=failed, **numbers),
            text=document.text,
            understood=_restored(Understood, head["understood"]),
            options=options_of(options, None),
            **{name: head[name] for name in _ANSWER_VALUES},
        )
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise JobOfAnotherRelease("the result of the job") from error


def _json_value(value: Any) -> Any:
    """What orjson does not write by itself: arrays, numbers of NumPy, named tuples."""
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": value.shape, "data": b64encode(value.tobytes()).decode()}
    if isinstance(value, np.generic):
        return orjson.Fragment(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"a result holds a {type(value).__name__}, which has no JSON")


def _restored(hint: Any, value: Any) -> Any:
    """A value of the type ``hint`` from its JSON: dataclasses, named tuples, tuples and arrays, nested at will."""
    if value is None:
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _restored(next(argument for argument in arguments if argument is not types.NoneType), value)
    if origin is np.ndarray:
        return np.frombuffer(b64decode(value["data"]), value["dtype"]).reshape(value["shape"])
    if origin is tuple:
        return tuple(_restored(arguments[0], item) for item in value)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _field_types(hint)
        return hint(**{name: _restored(hints[name], item) for name, item in value.items() if name in hints})
    if isinstance(hint, type) and issubclass(hint, tuple):
        return hint(*value)
    return value


@cache
def _field_types(record: Any) -> dict[str, Any]:
    return get_type_hints(record)


def pack_job(job: Job) -> bytes:
    """A job without its progress, which changes more often."""
    record = asdict(job)
    del record["progress"]
    return orjson.dumps({"format": RECORD_FORMAT, **record})


def pack_progress(progress: Progress) -> bytes:
    """The progress of a job as JSON; also the data of a "progress" event."""
    return orjson.dumps(asdict(progress))


def unpack_job(job_id: str, packed: bytes, progress: bytes) -> Job:
    """The job of these bytes, without fields that this release does not know.

    Raises: JobOfAnotherRelease for a format that it cannot read.
    """
    try:
        stored: dict[str, Any] = orjson.loads(packed)
        if not OLDEST_FORMAT <= stored["format"] <= RECORD_FORMAT or stored["status"] not in get_args(Status):
            raise JobOfAnotherRelease(f"job '{job_id}'")
        job = Job(
            **{
                **_known(Job, stored),
                "file": JobFile(**_known(JobFile, stored["file"])),
                "failure": None if stored["failure"] is None else Failure(**_known(Failure, stored["failure"])),
                "progress": Progress(**_known(Progress, orjson.loads(progress))),
            }
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise JobOfAnotherRelease(f"job '{job_id}'") from error
    return job if job.ended else replace(job, expires_s=None)  # earlier releases let jobs expire while they waited


def _known(record: type, stored: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(record)}
    return {name: value for name, value in stored.items() if name in names}
