"""docling-serve's API: files to Markdown, DoclingDocument, text, HTML and chunks, at once or as tasks, which are jobs.

A task of several files is several jobs; its id is theirs, so any replica answers for it.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from backend.api.json_io import JsonBytes, JsonPieces, joined_pieces, json_pieces, json_response, validate_fields
from backend.api.middleware import CLEARING_PATH
from backend.api.request_context import Handle, call_within_limit, limits_of, number_of, owner_of
from backend.api.request_fields import OrAbsent, WireRequest
from backend.api.routes.documents import process_upload, run_off_loop
from backend.api.routes.jobs import ID, ID_PARAMETER, submit_job
from backend.api.routing import JSON, Endpoint, PlainRoute, described, get, json_upload_route, upload_route
from backend.api.sse import MEDIA_TYPE as EVENTS
from backend.api.sse import EventStream, ServerEvent
from backend.api.upload import Upload, decoded_upload, read_json_with_file, receive_uploads
from backend.callers.event_watch import EventWatch
from backend.documents.chunks import CHUNK_TOKENS
from backend.documents.formats.docling_document import (
    Element,
    chunk_contexts,
    docling_document,
    docling_origin,
    elements,
)
from backend.documents.formats.html import stream_html
from backend.documents.formats.markdown import pages_markdown
from backend.documents.ocr_engines import print_languages
from backend.documents.records import PAGE_FEATURES, DocumentAnswer, DocumentOptions, Understood
from backend.errors import FinanciaError, InvalidField, NotFound
from backend.files.page_ranges import check_page_ranges
from backend.files.pages import PAGE_GAP, Document
from backend.files.text_files import RequestedSource
from backend.jobs.records import ENDED, Failure, Job, JobEvent
from backend.jobs.service import JobRequest, JobService
from backend.models.tokenizer import TextTokenizer
from backend.serving.catalog import Catalog, LoadedModel

_jobs_of: Handle[JobService] = Handle("jobs")
_catalog_of: Handle[Catalog] = Handle("catalog")

FORMATS = ("md", "json", "html", "text")
_NOT_SERVED = {"doctags": ": it has tokens for places that only docling's own models are trained on"}
_HEADING = re.compile(r"^#{1,3} ", re.MULTILINE)  # docling writes a section_header of level 1 with two marks
_HTML_HEAD = re.compile(r"\A<!doctype html>\n<html[^>]*>")
_LAST_PAGE = 999_999  # page_range ends with 2^63 - 1 where it has no end
_MAX_FILES = 64
_CHUNKERS = ("hybrid", "hierarchical")
_MIN_CHUNK_TOKENS = 16  # each chunk costs two tokens beside its own
_LATER = "/async"  # where an act is done in the background


def _refusal(name: str) -> str:
    return f"{name[:40]!r} is not served{_NOT_SERVED.get(name, '')}"


def _listed(value: Any) -> Any:
    """A value, a list of them, or such a list as JSON, as forms have them: a list."""
    if isinstance(value, str):
        if not value.strip().startswith("["):
            return [value] if value.strip() else None
        try:
            return orjson.loads(value)
        except ValueError:
            return [value]
    return value


_MAX_WORDS = 100  # of one list: languages, formats
Words = Annotated[
    Annotated[list[str], Field(max_length=_MAX_WORDS)] | None,
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]


class ConvertOptions(BaseModel):
    """docling's options, as far as they change something here; the others choose among docling's models."""

    model_config = ConfigDict(extra="ignore")

    to_formats: Words = Field(None, description="md, json, html, text; unset: md. Others are refused.")
    page_range: Annotated[list[int] | None, BeforeValidator(_listed)] = Field(
        None, description="First and last page, from 1."
    )
    do_ocr: OrAbsent[bool] = Field(True, description="false: text layers alone.")
    force_ocr: OrAbsent[bool] = Field(False, description="true: text layers never.")
    ocr_lang: Words = Field(None, description="Languages of the print: en, spa, …; unset: OCR_LANGUAGES.")
    md_page_break_placeholder: str | None = Field("", description="Stands between the pages of the Markdown.")

    def asked(self, target: str = "inbody", **chunks: Any) -> Asked:
        """How the result is written. Raises: InvalidField for formats that are not served."""
        formats = tuple(dict.fromkeys(self.to_formats or ("md",)))
        if not set(formats) & set(FORMATS):
            raise InvalidField(f"to_formats: {_refusal(formats[0])}; there are {', '.join(FORMATS)}")
        return Asked(formats, target, self.md_page_break_placeholder or "", **chunks)

    def options(self, *features: str, chunk_tokens: int) -> DocumentOptions:
        """The options of the document service."""
        source: RequestedSource = "ocr" if self.force_ocr else "auto" if self.do_ocr is not False else "text_layer"
        return DocumentOptions(
            features=frozenset((*PAGE_FEATURES, *features)),
            pages=self._pages(),
            source=source,
            languages=print_languages(self.ocr_lang or (), "ocr_lang"),
            chunk_tokens=chunk_tokens,
        )

    def _pages(self) -> str:
        if self.page_range is None:
            return ""
        if len(self.page_range) != 2:
            raise InvalidField("page_range: must be two numbers, the first and the last page")
        first, last = self.page_range
        pages = f"{first}-" if last >= _LAST_PAGE else f"{first}-{last}"
        check_page_ranges(pages)
        return "" if pages == "1-" else pages


class Asked(NamedTuple):
    """What the client asked for, kept with its jobs."""

    formats: tuple[str, ...]
    target: str = "inbody"
    page_break: str = ""
    chunks: bool = False
    with_document: bool = False  # beside chunks
    raw_text: bool = False  # of chunks
    max_tokens: int = 0  # of a chunk, special ones included; 0: CHUNK_TOKENS
    tokenizer: str = ""  # that max_tokens are meant of; ours counts them all the same, and the answer says so
    by_element: bool = False  # a chunk a paragraph, list or table, as docling's hierarchical chunker


class _Target(BaseModel):
    model_config = ConfigDict(extra="ignore")

    kind: str = "inbody"


class Source(WireRequest):
    """A file in a request's JSON."""

    kind: str = "file"
    base64_string: str | None = None
    filename: Annotated[str, Field(max_length=1000)] = "file"


class ConvertSourceRequest(WireRequest):
    """`POST /v1/convert/source`."""

    sources: Annotated[list[Source], Field(min_length=1, max_length=_MAX_FILES)]
    options: ConvertOptions = Field(default_factory=ConvertOptions)
    target: _Target = Field(default_factory=_Target)

    def read(self) -> tuple[ConvertOptions, Asked]:
        """How to read the files, and how to answer."""
        return self.options, self.options.asked(_checked_target(self.target.kind))


class _ChunkingOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_raw_text: OrAbsent[bool] = False
    max_tokens: OrAbsent[int] = Field(
        None, ge=_MIN_CHUNK_TOKENS, description="Of a hybrid chunk, up to the model's length; unset: 256."
    )
    tokenizer: Annotated[str | None, Field(max_length=1000)] = Field(
        None, description="The embedding model's own counts; `errors` say so where another is named."
    )

    def asked(self) -> dict[str, Any]:
        """What `Asked` keeps of them."""
        return {
            "raw_text": bool(self.include_raw_text),
            "max_tokens": self.max_tokens or 0,
            "tokenizer": self.tokenizer or "",
        }


class ChunkSourceRequest(WireRequest):
    """`POST /v1/chunk/{chunker}/source`."""

    sources: Annotated[list[Source], Field(min_length=1, max_length=_MAX_FILES)]
    convert_options: ConvertOptions = Field(default_factory=ConvertOptions)
    chunking_options: _ChunkingOptions = Field(default_factory=_ChunkingOptions)
    include_converted_doc: bool | None = False
    target: _Target = Field(default_factory=_Target)

    def read(self) -> tuple[ConvertOptions, Asked]:
        """How to read the files, and how to answer."""
        return self.convert_options, self.convert_options.asked(
            _checked_target(self.target.kind),
            chunks=True,
            with_document=bool(self.include_converted_doc),
            **self.chunking_options.asked(),
        )


def _checked_target(kind: str) -> str:
    if kind == "presigned_url":  # docling's client tries it first, and takes these words as the advice to ask inbody
        raise InvalidField(
            "Presigned URL target requires artifact storage to be configured and enabled on the server.", param="target"
        )
    if kind not in ("inbody", "zip"):
        raise InvalidField(f"target: '{kind[:40]}' is not served; there are inbody and zip")
    return kind


class _Received(NamedTuple):
    uploads: Sequence[Upload]
    options: DocumentOptions
    asked: Asked


@asynccontextmanager
async def _form(request: Request, *, chunks: bool) -> AsyncIterator[_Received]:
    """What a form asks for; of chunks the fields have prefixes."""
    async with receive_uploads(request, field="files") as uploads:
        for upload in uploads:
            upload.require_pages()
        values = {name: texts if len(texts) > 1 else texts[0] for name, texts in uploads[0].repeated.items() if texts}
        prefix = "convert_" if chunks else ""
        form = validate_fields(
            ConvertOptions, {name.removeprefix(prefix): value for name, value in values.items() if prefix in name}
        )
        target = _checked_target(str(values.get("target_type", "inbody")))
        if not chunks:
            yield _received(request, uploads, form, form.asked(target))
            return
        chunking = validate_fields(
            _ChunkingOptions,
            {name.removeprefix("chunking_"): value for name, value in values.items() if name.startswith("chunking_")},
        )
        with_document = str(values.get("include_converted_doc", "")).lower() in ("true", "1")
        asked = form.asked(target, chunks=True, with_document=with_document, **chunking.asked())
        yield _received(request, uploads, form, asked)


@asynccontextmanager
async def _json(request: Request, schema: type[ConvertSourceRequest | ChunkSourceRequest]) -> AsyncIterator[_Received]:
    """What JSON asks for, with its files decoded."""
    body = await read_json_with_file(request, schema)
    options, asked = body.read()
    async with AsyncExitStack() as stack:
        uploads = []
        for index, source in enumerate(body.sources):
            place = f"sources[{index}]"
            if source.kind != "file" or source.base64_string is None:
                raise InvalidField(
                    f"{place}: kind '{source.kind[:40]}' is not served, for nothing is fetched; send the file as "
                    '{"kind": "file", "base64_string": …, "filename": …}',
                    param="sources",
                )
            decoded = decoded_upload(request, source.base64_string, f"{place}.base64_string", name=source.filename)
            uploads.append(await stack.enter_async_context(decoded))
            uploads[-1].require_pages()
        yield _received(request, uploads, options, asked)


def _received(request: Request, uploads: Sequence[Upload], options: ConvertOptions, asked: Asked) -> _Received:
    asked = asked._replace(by_element=request.path_params.get("chunker") == "hierarchical")
    needs_tables = asked.chunks or asked.formats != ("text",)
    needed = {"tables": needs_tables, "chunks": asked.chunks and not asked.by_element}
    features = (name for name, is_needed in needed.items() if is_needed)
    return _Received(uploads, options.options(*features, chunk_tokens=asked.max_tokens or CHUNK_TOKENS), asked)


async def convert_files(request: Request) -> Response:
    """Files in other formats: one in the answer's body, several, or with `target_type=zip`, as a zip.

    Options that choose among docling's own models are accepted and change nothing. At `…/async` it is done in the
    background, and the answer is a task.
    """
    return await _answered(request, _form(request, chunks=False))


async def convert_sources(request: Request) -> Response:
    """The same for files in JSON. Addresses are refused: the service fetches nothing."""
    return await _answered(request, _json(request, ConvertSourceRequest))


async def chunk_files(request: Request) -> Response:
    """Files as chunks: `hybrid` ones fit the embedding model, a `hierarchical` one is a paragraph, a list or a table.

    At `…/async` it is done in the background. `text` has the headings over it that stand in a chunk before, `raw_text`
    has not. `doc_items` refer to the DoclingDocument of `include_converted_doc`.
    """
    return await _answered(request, _form(request, chunks=True))


async def chunk_sources(request: Request) -> Response:
    """The same for files in JSON."""
    return await _answered(request, _json(request, ChunkSourceRequest))


_Receiving = AbstractAsyncContextManager[_Received]


async def _answered(request: Request, receiving: _Receiving) -> Response:
    """The contents of the files, or the task that makes them."""
    if request.path_params.get("chunker", _CHUNKERS[0]) not in _CHUNKERS:
        raise NotFound(f"chunker: there are {' and '.join(_CHUNKERS)}", param="chunker")
    if request.url.path.endswith(_LATER):
        return await _submitted(request, receiving)
    started_s = time.monotonic()
    async with receiving as (uploads, options, asked):
        results: list[_Result] = []
        for upload in uploads:
            try:
                results.append(_Result(upload.name, await process_upload(request, upload, options)))
            except FinanciaError as error:
                if len(uploads) == 1:
                    raise
                results.append(_Result(upload.name, None, Failure.of(error)))
    return await _response(request, results, asked, time.monotonic() - started_s)


async def _submitted(request: Request, receiving: _Receiving) -> Response:
    async with receiving as (uploads, options, asked):
        answer = {"dialect": "docling", **asked._asdict()}
        jobs = [
            (await submit_job(request, JobRequest(upload.stored, upload.name, options, answer=answer)))[0]
            for upload in uploads
        ]
    return json_response(await _status(request, jobs))


async def poll(request: Request) -> Response:
    """How far a task is; `wait` seconds are waited for its end, at most until LIMIT_REQUEST_S."""
    jobs = await _task_of(request)
    wait_s = number_of(request.query_params.get("wait", "0"))
    if not wait_s >= 0:
        raise InvalidField("wait: must be a number of seconds from 0")
    if wait_s and not all(job.ended for job in jobs):
        await call_within_limit(request, _wait(request, jobs, min(wait_s, limits_of(request).request_s - 1)))
        jobs = await _task_of(request)
    return json_response(await _status(request, jobs))


async def _wait(request: Request, jobs: Sequence[Job], wait_s: float) -> None:
    """Return when all jobs have ended, or after ``wait_s``."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            for job in jobs:
                watch = _jobs_of(request).events(job, "")
                try:
                    async for _ in watch:
                        pass
                finally:
                    await watch.aclose()


async def watch(request: Request) -> Response:
    """How far a task is, whenever that changes, until it has ended: over a WebSocket a message each, else an event.

    A WebSocket's key may be the query's `api_key`. Every text of the client is answered with the last message.
    """
    jobs = await _task_of(request)
    waiting = _jobs_of(request).events(jobs[0], "")
    return EventStream(
        _changes(request, jobs, waiting), request.app.state.streams, resumes=False, on_end=waiting.aclose
    )


async def _changes(
    request: Request, jobs: Sequence[Job], waiting: EventWatch[JobEvent]
) -> AsyncGenerator[ServerEvent, None]:
    status = await _status(request, jobs)
    yield _told("connection", status)
    yield _told("update", status)
    for job in jobs:
        async with aclosing(waiting if job is jobs[0] else _jobs_of(request).events(job, "")) as events:
            async for _ in events:
                last, status = status, await _status(request, await _task_of(request))
                if status != last:
                    yield _told("update", status)


def _told(message: str, status: dict[str, Any]) -> ServerEvent:
    """docling's WebsocketMessage."""
    return ServerEvent("", message, orjson.dumps({"message": message, "task": status, "error": None}))


async def result(request: Request) -> Response:
    """What came of a task, as the request in the foreground would have been answered; of a failed one its failure."""
    jobs = await _task_of(request)
    if not all(job.ended for job in jobs):
        raise NotFound("Task result not found. Please wait for a completion status.", param="id")
    results = []
    for job in jobs:
        stored = await _jobs_of(request).result(job)
        answer = None if stored is None else stored.answer
        results.append(_Result(job.file.name, answer, job.failure))
    if all(result.answer is None for result in results):
        failure = {**_failure(jobs[0]), "phase": "execution", "details": {}}
        return json_response({"kind": "TaskFailureResult", "failure": failure})
    seconds = max(job.ended_s or 0.0 for job in jobs) - min(job.started_s or job.created_s for job in jobs)
    return await _response(request, results, _asked_of(jobs[0]), max(0.0, seconds))


async def _task_of(request: Request) -> list[Job]:
    """The jobs of the task that the path names. Raises: NotFound, in the words that docling's client knows."""
    try:
        ids = request.path_params["id"].split("-")[:_MAX_FILES]
        jobs = [await _jobs_of(request).find(one, owner_of(request)) for one in ids]
    except NotFound:
        jobs = []
    if not jobs or any(job.options.get("answer", {}).get("dialect") != "docling" for job in jobs):
        raise NotFound("Task not found.", param="id")
    return jobs


def _asked_of(job: Job) -> Asked:
    values = {name: value for name, value in job.options["answer"].items() if name in Asked._fields}
    return Asked(**{**values, "formats": tuple(values["formats"])})


async def clear_results(request: Request) -> Response:
    """Delete this key's tasks that ended `older_then` seconds ago, as docling spells it; those of other routes stay."""
    older_than_s = number_of(request.query_params.get("older_then", "3600"))
    if not older_than_s >= 0:
        raise InvalidField("older_then: must be a number of seconds from 0")
    jobs = _jobs_of(request)
    await call_within_limit(request, jobs.forget_ended(owner_of(request), "docling", older_than_s=older_than_s))
    return json_response({"status": "ok"})


async def clear_converters(_: Request) -> Response:
    """Nothing to clear: readers and models are shared with every request, and leave memory by MODEL_KEEP_ALIVE_S."""
    return json_response({"status": "ok"})


async def _status(request: Request, jobs: Sequence[Job]) -> dict[str, Any]:
    """docling's TaskStatusResponse."""
    waits = all(job.status == "queued" for job in jobs)
    return {**_state_of(jobs), "task_position": await _jobs_of(request).position(jobs[0]) if waits else None}


def _state_of(jobs: Sequence[Job]) -> dict[str, Any]:
    states = [job.status for job in jobs]
    ended = [state for state in states if state in ENDED]
    succeeded = states.count("succeeded")
    if len(ended) < len(states):
        status = "started" if ended or "running" in states else "pending"
    else:
        status = "success" if succeeded else "failure"
    failed = next((job for job in jobs if job.status in ("failed", "cancelled")), None)
    failure = None if succeeded or failed is None or status != "failure" else _failure(failed)
    return {
        "task_id": "-".join(job.id for job in jobs),
        "task_type": "chunk" if _asked_of(jobs[0]).chunks else "convert",
        "task_status": status,
        "task_meta": {
            "num_docs": len(jobs),
            "num_processed": len(ended),
            "num_succeeded": succeeded,
            "num_failed": len(ended) - succeeded,
        },
        "error_message": None if failure is None else failure["message"],
        "failure": None if failure is None else {**failure, "phase": "execution", "details": {}},
    }


def _failure(job: Job) -> dict[str, Any]:
    failure = job.failure
    if failure is None:
        return {"category": "policy", "message": "the task was cancelled", "retryable": True}
    category = "timeout" if failure.status == 504 else "source_unavailable" if failure.status < 500 else "internal"
    return {"category": category, "message": failure.message, "retryable": failure.retryable}


class _Result(NamedTuple):
    """What came of one file."""

    name: str
    answer: DocumentAnswer | None
    failure: Failure | None = None


async def _response(request: Request, results: Sequence[_Result], asked: Asked, seconds: float) -> Response:
    if asked.chunks:
        model = _catalog_of(request).embedding(None)
        return JsonBytes(await asyncio.to_thread(_chunked, results, asked, seconds, model))
    if asked.target == "zip" or len(results) > 1:
        content = await asyncio.to_thread(_zipped, results, asked)
        return Response(
            content,
            media_type="application/zip",
            headers={"Content-Disposition": 'attachment; filename="converted_docs.zip"'},
        )
    [one] = results
    assert one.answer is not None, "a file that failed alone was answered before"
    write = partial(_converted, one, asked, seconds)
    return JsonPieces(await run_off_loop(one.answer.document, write))


def _converted(result: _Result, asked: Asked, seconds: float) -> list[bytes]:
    return joined_pieces(json_pieces({**_outcome(result, asked), "processing_time": round(seconds, 4)}))


def _unserved(option: str, why: str) -> dict[str, Any]:
    return {"component_type": "user_input", "module_name": option, "error_message": why}


def _outcome(result: _Result, asked: Asked) -> dict[str, Any]:
    """A document in every format asked for, and what could not be read or written."""
    errors: list[dict[str, Any]] = [
        _unserved("to_formats", _refusal(name)) for name in asked.formats if name not in FORMATS
    ]
    if result.answer is None:
        message = result.failure.message if result.failure else "cancelled"
        errors.append({"component_type": "document_backend", "module_name": "reader", "error_message": message})
        return {"document": {"filename": result.name}, "status": "failure", "errors": errors, "timings": {}}
    errors += [
        {
            "component_type": "document_backend",
            "module_name": "reader",
            "error_message": str(page.error),
            "page_no": page.number,
        }
        for page in result.answer.failed
    ]
    status = "partial_success" if result.answer.failed else "success"
    document = {"filename": result.name, **_contents(result.name, result.answer, asked)}
    return {"document": document, "status": status, "errors": errors, "timings": {}}


def _contents(name: str, answer: DocumentAnswer, asked: Asked) -> dict[str, Any]:
    """The document by docling's names of formats; null in those that were not asked for or are not served."""
    document, tables = answer.document, answer.understood.tables
    contents: dict[str, Any] = dict.fromkeys(
        ("md_content", "json_content", "html_content", "text_content", "doctags_content")
    )
    if "md" in asked.formats:
        page_break = f"\n\n{asked.page_break}\n\n" if asked.page_break else "\n\n"
        contents["md_content"] = _HEADING.sub(r"#\g<0>", page_break.join(pages_markdown(document, tables)))
    if "json" in asked.formats:
        contents["json_content"] = docling_document(document, tables, name)
    if "html" in asked.formats:
        html = b"".join(stream_html(document, tables)).decode()
        contents["html_content"] = _HTML_HEAD.sub("<!DOCTYPE html>\n<html>", html, count=1)
    if "text" in asked.formats:
        contents["text_content"] = document.text.replace(PAGE_GAP, "\n\n")
    return contents


def _chunked(results: Sequence[_Result], asked: Asked, seconds: float, model: LoadedModel) -> bytes:
    chunks = [chunk for result in results for chunk in _chunks(result, asked, model.tokenizer)]
    documents = []
    for result in results:
        outcome = _outcome(result, asked if asked.with_document else asked._replace(formats=()))
        if asked.tokenizer not in ("", *model.names):
            why = f"{asked.tokenizer[:100]!r} is not loaded here: tokens are those of {model.name}"
            outcome["errors"].append(_unserved("tokenizer", why))
        documents.append({"kind": "ExportResult", "content": outcome.pop("document"), **outcome})
    return orjson.dumps({"chunks": chunks, "documents": documents, "processing_time": round(seconds, 4)})


def _chunks(result: _Result, asked: Asked, tokenizer: TextTokenizer) -> Iterable[dict[str, Any]]:
    if result.answer is None:
        return
    document, understood = result.answer.document, result.answer.understood
    origin = docling_origin(document, result.name)
    for index, (tokens, (start, end, pages, context)) in enumerate(_cut(document, understood, asked)):
        text = result.answer.text[start:end]
        before = "".join(f"{heading.text}\n" for heading in context.headings if heading.start < start)
        before_tokens = len(tokenizer.read_all(before).ids) if before else 0
        text_tokens = len(tokenizer.read_all(text).ids) if tokens is None else tokens
        if asked.max_tokens and text_tokens + before_tokens > asked.max_tokens:  # they stand in `headings` alone
            before, before_tokens = "", 0
        yield {
            "filename": result.name,
            "chunk_index": index,
            "text": before + text,
            "raw_text": text if asked.raw_text else None,
            "num_tokens": text_tokens + before_tokens,
            "headings": [heading.text for heading in context.headings] or None,
            "captions": None,
            "doc_items": context.items,
            "page_numbers": pages,
            "metadata": {"origin": origin, "start": start, "end": end},
        }


def _cut(document: Document, understood: Understood, asked: Asked) -> Iterable[tuple[int | None, Element]]:
    """The parts of a document that are chunks, with their tokens where these were counted."""
    if asked.by_element:
        return ((None, element) for element in elements(document, understood.tables))
    chunks = understood.chunks
    contexts = chunk_contexts(document, understood.tables, [(chunk.start, chunk.end) for chunk in chunks])
    rows = zip(chunks, contexts, strict=True)
    return ((chunk.tokens, Element(chunk.start, chunk.end, chunk.pages, context)) for chunk, context in rows)


_SUFFIXES = {"md_content": "md", "json_content": "json", "html_content": "html", "text_content": "txt"}


def _zipped(results: Sequence[_Result], asked: Asked) -> bytes:
    """Each file's formats as files of its name; of one that failed why."""
    target = io.BytesIO()
    taken: set[str] = set()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for index, result in enumerate(results):
            stem = re.sub(r"[/\\]", "_", result.name.rpartition(".")[0] or result.name or "file")
            stem = f"{stem}_{index}" if stem in taken else stem
            taken.add(stem)
            if result.answer is None:
                archive.writestr(f"{stem}.error.json", orjson.dumps(_outcome(result, asked)))
                continue
            for name, content in _contents(result.name, result.answer, asked).items():
                if content is not None:
                    data = content if isinstance(content, str) else orjson.dumps(content)
                    archive.writestr(f"{stem}.{_SUFFIXES[name]}", data)
    return target.getvalue()


class ConvertForm(ConvertOptions):
    """`POST /v1/convert/file`, beside the files."""

    target_type: Literal["inbody", "zip", "presigned_url"] = Field(
        "inbody", description="zip always with several files; presigned_url is refused."
    )


class ChunkForm(BaseModel):
    """`POST /v1/chunk/{chunker}/file`, beside the files: docling's options with the prefix convert_."""

    include_converted_doc: bool = False
    chunking_include_raw_text: bool = False
    chunking_max_tokens: int | None = Field(None, ge=_MIN_CHUNK_TOKENS, description="Of a hybrid chunk; unset: 256.")
    chunking_tokenizer: str | None = Field(None, max_length=1000, description="The embedding model's own counts.")
    target_type: Literal["inbody"] = "inbody"


_TAG = "docling-serve"
_CONVERTED = {
    "document": {"filename": "invoice.pdf", "md_content": "## Factura\n\nTotal 1.284,50 €"},
    "status": "success",
    "errors": [],
    "timings": {},
    "processing_time": 0.61,
}
_CHUNKED = {
    "chunks": [
        {
            "filename": "a.pdf",
            "chunk_index": 0,
            "text": "Factura …",
            "num_tokens": 17,
            "headings": ["Factura"],
            "page_numbers": [1],
            "doc_items": ["#/texts/1"],
        }
    ],
    "documents": [],
    "processing_time": 0.61,
}
_TASK = {
    "task_id": ID, "task_type": "convert", "task_status": "pending", "task_position": 1,
    "task_meta": {"num_docs": 1, "num_processed": 0, "num_succeeded": 0, "num_failed": 0}, "error_message": None,
    "failure": None,
}  # fmt: skip
_UPDATE = {"message": "update", "task": _TASK, "error": None}
_OBJECT = {"type": "object"}
_ZIP = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
_CHUNKER = {"name": "chunker", "in": "path", "required": True, "schema": {"enum": list(_CHUNKERS)}, "example": "hybrid"}
_WAIT = {"name": "wait", "in": "query", "schema": {"type": "number", "minimum": 0, "default": 0}}
_OLDER = {"name": "older_then", "in": "query", "schema": {"type": "number", "minimum": 0, "default": 3600}}
_SOURCES = {"sources": [{"kind": "file", "base64_string": "JVBERi0xLjcK", "filename": "invoice.pdf"}]}


def _answers(example: dict[str, Any], more: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {200: described({JSON: {"schema": _OBJECT, "example": example}, **more})}


def _routes(
    path: str,
    of_form: Endpoint,
    of_json: Endpoint,
    form: type[BaseModel],
    body: type[BaseModel],
    *parameters: dict[str, Any],
) -> Iterable[PlainRoute]:
    """An act on files in forms and in JSON, at once and later."""
    now = _answers(_CHUNKED, {}) if body is ChunkSourceRequest else _answers(_CONVERTED, _ZIP)
    for suffix, answers in (("", now), (_LATER, _answers(_TASK, {}))):
        yield upload_route(
            f"{path}/file{suffix}",
            of_form,
            tag=_TAG,
            request=form,
            answers=answers,
            field="files",
            several=True,
            parameters=parameters,
        )
        yield json_upload_route(
            f"{path}/source{suffix}",
            of_json,
            tag=_TAG,
            request=body,
            examples={"a file": _SOURCES},
            answers=answers,
            parameters=parameters,
        )


ROUTES = (
    *_routes("/v1/convert", convert_files, convert_sources, ConvertForm, ConvertSourceRequest),
    *_routes("/v1/chunk/{chunker}", chunk_files, chunk_sources, ChunkForm, ChunkSourceRequest, _CHUNKER),
    get(
        "/v1/status/poll/{id}", poll, tag=_TAG, example=_TASK, errors=(404, 422, 429, 504),
        parameters=(ID_PARAMETER, _WAIT),
    ),
    get(
        "/v1/status/ws/{id}", watch, tag=_TAG, example=f"event: update\ndata: {orjson.dumps(_UPDATE).decode()}\n\n",
        media_type=EVENTS, errors=(404, 429), parameters=(ID_PARAMETER,),
    ),
    get(
        "/v1/result/{id}", result, tag=_TAG, example=_CONVERTED, more=_answers(_CONVERTED, _ZIP), errors=(404,),
        parameters=(ID_PARAMETER,),
    ),
    get(CLEARING_PATH, clear_results, tag=_TAG, example={"status": "ok"}, errors=(403, 422, 504), parameters=(_OLDER,)),
    get("/v1/clear/converters", clear_converters, tag=_TAG, example={"status": "ok"}),
)  # fmt: skip
