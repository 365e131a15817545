"""``/v1/documents/{id}``: documents that are kept with what was read from them, corrected and confirmed by people."""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import JsonBytes, answer_of, json_response, read_json, validate_query
from backend.api.parameters import (
    DPI_PARAMETER,
    NUMBER_PARAMETER,
    PASSWORD_PARAMETER,
    ListQuery,
    check_cursor,
    check_id,
    document_password,
    dots_per_inch,
    id_parameter,
    page_number,
    path_id,
)
from backend.api.request_context import Handle, call_within_limit, context_of, owner_of, services_of
from backend.api.request_fields import PAGES_PATTERN, WHOLE, OrAbsent, WireRequest, one_of
from backend.api.routes.document_answers import (
    FIELD_EXAMPLE,
    VALIDITY_EXAMPLE,
    DocumentAnswer,
    OneDocumentAnswer,
    documents_answer,
)
from backend.api.routes.files import BYTES_ANSWER, StoredFileResponse, list_answer
from backend.api.routing import REQUEST_TIMEOUT, action, delete, get, patch, post, query_parameters
from backend.documents.service import DocumentService
from backend.errors import InvalidField
from backend.invoices.corrections import LIST_COLUMNS, MAX_ROWS, PATTERNS, TEXT_CHARS, type_of
from backend.invoices.document_kind import Kind
from backend.invoices.records import FIELD_NAMES
from backend.invoices.structure import fields_of_parts
from backend.reasons import reasons_in
from backend.search.corrected_answer import KIND
from backend.search.document_sql import is_key, position_of
from backend.search.lessons import document_of
from backend.search.records import (
    DOCUMENT_STATES,
    DocumentAction,
    DocumentQuery,
    DocumentSort,
    DocumentState,
    ListPage,
    Position,
    StoredDocument,
)
from backend.search.stored_documents import KINDS, CheckedDocument, StoredDocuments

_documents_of: Handle[StoredDocuments] = Handle("stored_documents")
_reader_of: Handle[DocumentService] = Handle("documents")
_MAX_CUT = 1_000  # documents of a file


class ProblemAnswer(TypedDict):
    """What does not fit, as a code with parameters that a client words in its own language."""

    code: Literal["check_digits", "ambiguous_date", "arithmetic", "duplicate", "same_file"]
    document: NotRequired[Annotated[int, Field(description="Index in `documents`; absent where the file is meant.")]]
    field: NotRequired[str]
    value: NotRequired[str]
    equation: NotRequired[str]
    expected: NotRequired[Annotated[str, Field(description="What the equation's parts give, decimal.")]]
    printed: NotRequired[str]
    other: NotRequired[Annotated[str, Field(description="Id of a document of the same supplier, number and total.")]]
    others: NotRequired[Annotated[int, Field(description="How many there are.")]]


class CutAnswer(TypedDict):
    """A document that somebody cut out of a file."""

    pages: list[int]
    of: Annotated[int | None, Field(description="Its index before, where its pages stayed; null: read anew.")]


class ChangeAnswer(TypedDict):
    """What somebody did to one document of the file, or to how the file is cut into documents."""

    revision: Annotated[int, Field(description="That it made.")]
    action: DocumentAction
    document: Annotated[
        int | None, Field(description="Index among the documents that the file had then; null of a split.")
    ]
    at: Annotated[float, Field(description="Unix seconds.")]
    by: Annotated[str, Field(description="The name of the key.")]
    fields: Annotated[dict[str, Any], Field(description="Of a correction, as they were sent.")]
    documents: NotRequired[
        Annotated[list[CutAnswer], Field(description="Of a split: the pages of each document, and what it was before.")]
    ]


class StoredHead(TypedDict):
    """What is known of a stored document beside what was read. Times are Unix seconds."""

    id: Annotated[str, Field(description="That of its file, which GET /v1/files lists, too.")]
    filename: str
    bytes: int
    created_at: int
    expires_at: int | None
    state: Annotated[DocumentState, Field(description="confirmed: every document of the file is.")]
    revision: Annotated[int, Field(description="1 as it was read; each change makes the next one.")]
    updated_at: float
    problems: list[ProblemAnswer]


class StoredDocumentAnswer(DocumentAnswer, StoredHead):
    """A stored document: the answer of `POST /v1/documents` with corrections in place of what was read."""

    changes: NotRequired[Annotated[list[ChangeAnswer], Field(description="The oldest first.")]]


class ListedDocumentAnswer(StoredHead):
    """A stored document without its pages, words and tables."""

    object: Literal["document"]
    kind: str
    page_count: int
    sha256: str
    documents: list[OneDocumentAnswer]
    changes: NotRequired[Annotated[list[ChangeAnswer], Field(description="The oldest first; absent in lists.")]]


class DocumentListAnswer(TypedDict):
    """Stored documents, a part of their list."""

    object: Literal["list"]
    data: list[ListedDocumentAnswer]
    first_id: Annotated[str | None, Field(description="Of a list sorted by a field with its value: for `before`.")]
    last_id: Annotated[str | None, Field(description="The same of the last one: for `after`.")]
    has_more: bool


class DeletedDocumentAnswer(TypedDict):
    """What was deleted."""

    id: str
    object: Literal["document.deleted"]
    deleted: Literal[True]


def stored_head(stored: StoredDocument, problems: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What an answer about a stored document has beside what was read."""
    file = stored.file
    return {
        "id": stored.id,
        "object": "document",
        "filename": file.name,
        "bytes": file.size_bytes,
        "created_at": int(file.created_s),
        "expires_at": None if file.expires_s is None else int(file.expires_s),
        "state": stored.state,
        "revision": stored.revision,
        "updated_at": stored.updated_s,
        "problems": problems,
    }


def revision_headers(stored: StoredDocument) -> dict[str, str]:
    return {"ETag": f'"{stored.revision}"'}


def change_answers(stored: StoredDocument) -> list[ChangeAnswer]:
    """The history of a document, the oldest first."""
    cut = [list(document["pages"]) for document in stored.answer["documents"]]
    answers: list[ChangeAnswer] = []
    for change in stored.changes:
        fields = {} if change.action == "split" else dict(change.fields)
        answer = answer_of(ChangeAnswer, change, at=change.at_s, fields=fields)
        if change.action == "split":
            of = [document.get("of") for document in change.fields["documents"]]
            anew = [document.get("pages") for document in change.fields["documents"]]
            cut = [list(pages) if index is None else cut[index] for index, pages in zip(of, anew, strict=True)]
            answer["documents"] = [{"pages": pages, "of": index} for pages, index in zip(cut, of, strict=True)]
        answers.append(answer)
    return answers


def _whole(answer: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The corrected answer with its pages, and each document's tables."""
    answer = {**answer, **content}
    tables = content.get("tables", [])
    for document in answer["documents"]:
        document["tables"] = [table for table in tables if table["page"] in document["pages"]]
    return answer


def _listed(checked: CheckedDocument) -> dict[str, Any]:
    parts = {name: checked.answer[name] for name in _LISTED_PARTS}
    return {**parts, **stored_head(checked.stored, checked.problems)}


_LISTED_PARTS = ("kind", "page_count", "sha256", "documents")


async def _changed(request: Request, change: Coroutine[Any, Any, StoredDocument]) -> Response:
    """The document after a change, without its pages; what confirming one teaches takes seconds of a long document."""
    with closing(change):
        async with in_turn(request):
            stored = await call_within_limit(request, change)
            [checked] = await _documents_of(request).checked(stored.owner, [stored])
    answer = {**_listed(checked), "changes": change_answers(stored)}
    return json_response(answer, headers=revision_headers(stored))


_MAX_LISTED = 500
_DATE = r"^(\d{4}-\d\d-\d\d)?$"
_TEXT_CHARS = 200
Number = Annotated[
    OrAbsent[Annotated[Decimal, Field(allow_inf_nan=False)]],
    WithJsonSchema({"type": "number"}),
]
Date = Annotated[
    OrAbsent[Annotated[str, Field(pattern=_DATE)]],
    WithJsonSchema({"type": "string", "pattern": _DATE}),
]
Text = Annotated[
    OrAbsent[Annotated[str, Field(max_length=_TEXT_CHARS)]],
    WithJsonSchema({"type": "string", "maxLength": _TEXT_CHARS}),
]


class DocumentConditions(BaseModel):
    """Which stored documents; an empty value counts as absent."""

    state: Annotated[OrAbsent[DocumentState], one_of(DOCUMENT_STATES)] = Field(
        None, description="Only documents in this state."
    )
    kind: Annotated[OrAbsent[Kind], one_of(KINDS)] = Field(None, description="Only documents of this kind.")
    supplier: Text = Field(None, description="A part of the supplier's name in any case, or its tax id.")
    date_from: Date = Field(None, description="Of this date or later.")
    date_to: Date = Field(None, description="Of this date or earlier.")


class DocumentListQuery(ListQuery, DocumentConditions):
    """`GET /v1/documents`. What is said of a document holds for one and the same of a file."""

    limit: int = Field(20, ge=1, le=_MAX_LISTED, description="How many to answer with at most.")
    sort: DocumentSort = Field(
        "created_at", description="By what; of a file of several its first document. Without it comes lowest."
    )
    supplier_tax_id: Text = Field(None, description="The supplier's tax id, without separators.")
    number: Text = Field(None, description="The document's number; separators do not count.")
    due_from: Date = Field(None, description="Due on this date or later.")
    due_to: Date = Field(None, description="Due on this date or earlier.")
    total_from: Number = Field(None, description="Of this total or more.")
    total_to: Number = Field(None, description="Of this total or less.")

    def query(self) -> DocumentQuery:
        """As the service asks the storage."""
        return DocumentQuery(**self.model_dump(exclude=set(ListQuery.model_fields)))

    def page(self) -> ListPage:
        """Raises: InvalidField for what is neither an id nor a `_cursor` of a list that is sorted so."""
        after, before = (_place(getattr(self, name), name, self.sort) for name in ("after", "before"))
        return ListPage(self.limit, self.order, after, before)


def _cursor(stored: StoredDocument, sort: DocumentSort) -> str:
    """Where a list goes on: an id, and in one that is sorted by a field its value, which goes with the document."""
    if sort == "created_at":
        return stored.id
    key = orjson.dumps(position_of(stored, sort).created_s)
    return f"{stored.id}~{urlsafe_b64encode(key).decode()}"


def _place(cursor: str | None, param: str, sort: DocumentSort) -> str | Position | None:
    """What a `_cursor` says, or the id of a document that is still there. Raises: InvalidField."""
    file_id, mark, written = (cursor or "").partition("~")
    if not mark:
        return check_cursor(cursor, param)
    with suppress(ValueError):
        key = orjson.loads(urlsafe_b64decode(written))
        if sort != "created_at" and is_key(key, sort):
            return Position(key, check_id(file_id, param))
    raise InvalidField(f"{param}: is of a list that is sorted in another way")


@asynccontextmanager
async def in_turn(request: Request) -> AsyncIterator[None]:
    """Waits until this key has few enough answers of documents in the making. Raises: as `call_within_limit`."""
    turn = _documents_of(request).turn(owner_of(request))
    await call_within_limit(request, turn.acquire())
    try:
        yield
    finally:
        turn.release()


async def list_documents(request: Request) -> Response:
    """The stored documents of this key, by default the newest first, without their pages and lines.

    `after` and `before` are `last_id` and `first_id` of the same list, sorted in the same way, with the same filters:
    it goes on there also where that document was changed or deleted meanwhile. Ids of its documents do, too.
    """
    query = validate_query(DocumentListQuery, request)
    owner, service = owner_of(request), _documents_of(request)
    page = query.page()
    async with in_turn(request):
        listed, has_more = await call_within_limit(request, service.list_documents(owner, query.query(), page))
        checked = await call_within_limit(request, service.checked(owner, listed))
        return JsonBytes(await asyncio.to_thread(_list_bytes, checked, query.sort, has_more=has_more))


_LINES = ("Items", "Movements")  # are most of a document, and nothing that a list shows


def _list_bytes(listed: Sequence[CheckedDocument], sort: DocumentSort, *, has_more: bool) -> bytes:
    """The list as JSON, written one by one: the writer holds Python's lock to its end."""
    ends = [{"id": _cursor(checked.stored, sort)} for checked in (*listed[:1], *listed[-1:])]
    data = []
    for checked in listed:
        answer = _listed(checked)
        for document in answer["documents"]:
            document["fields"] = {name: field for name, field in document["fields"].items() if name not in _LINES}
        data.append(orjson.Fragment(orjson.dumps(answer)))
    return orjson.dumps({**list_answer(ends, has_more=has_more), "data": data})


async def retrieve_document(request: Request) -> Response:
    """A stored document: what was read, corrections in their place, its pages, what does not fit, who changed what.

    `ETag` is the revision, for `If-Match` of changes.
    """
    service, owner = _documents_of(request), owner_of(request)
    async with in_turn(request):
        stored = await call_within_limit(request, service.get(owner, path_id(request, "document")))
        return await whole_document(request, stored)


async def whole_document(
    request: Request, stored: StoredDocument, headers: Mapping[str, str] | None = None
) -> Response:
    """A stored document with its pages."""
    service, owner = _documents_of(request), owner_of(request)
    content = await call_within_limit(request, service.content(stored))
    [checked] = await call_within_limit(request, service.checked(owner, [stored]))
    changes = change_answers(stored)
    head = {**stored_head(stored, checked.problems), "changes": changes}
    written = await asyncio.to_thread(lambda: orjson.dumps({**_whole(checked.answer, content), **head}))
    return JsonBytes(written, headers={**revision_headers(stored), **(headers or {})})


async def delete_document(request: Request) -> Response:
    """Delete a document with its file, what people changed and what it taught, also from every vector store."""
    document_id = path_id(request, "document")
    await call_within_limit(request, _documents_of(request).delete(owner_of(request), document_id))
    return json_response(DeletedDocumentAnswer(id=document_id, object="document.deleted", deleted=True))


async def retrieve_original(request: Request) -> Response:
    """The bytes of the document's file, as they were sent."""
    call = _documents_of(request).original(owner_of(request), path_id(request, "document"))
    stored, content = await call_within_limit(request, call)
    return StoredFileResponse(content, stored.file.name)


async def retrieve_page(request: Request) -> Response:
    """A page of a document as a PNG, turned to stand upright as it was read: boxes of words and fields fit it."""
    number, dpi = page_number(request.path_params["number"]), dots_per_inch(request.query_params.get("dpi"))
    document_id = path_id(request, "document")
    password = document_password(request)
    call = _documents_of(request).page_image(owner_of(request), document_id, number, dpi, password=password)
    return Response(await call_within_limit(request, call), media_type="image/png")


def _value_schema(name: str) -> dict[str, Any]:
    """What OpenAPI says of a corrected value."""
    kind = type_of(name)
    text = {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS, "pattern": PATTERNS[kind]}
    side = {"type": "number", "minimum": -1e6, "maximum": 1e6}
    box = {"type": "array", "minItems": 4, "maxItems": 4, "items": side}
    whole = {"type": ["integer", "null"], "minimum": 0, "maximum": 10**8}
    place = {"page": whole, "start": whole, "end": whole}
    boxes = {"type": ["array", "null"], "maxItems": 100, "items": box}
    placed = {"type": "object", "required": ["value"], "properties": {"value": text, **place, "boxes": boxes}}
    return {"anyOf": [text, placed, {"type": "null"}]}


def _fields_schema() -> dict[str, Any]:
    properties: dict[str, Any] = {KIND: {"enum": [*KINDS, None]}}
    for name in FIELD_NAMES:
        if name in LIST_COLUMNS:
            columns = {column: _value_schema(column) for column in LIST_COLUMNS[name]}
            row = {"type": "object", "properties": columns, "additionalProperties": False}
            rows = {"type": "array", "maxItems": MAX_ROWS, "items": row}
            properties[name] = {"anyOf": [rows, {"type": "null"}]}
        else:
            properties[name] = _value_schema(name)
    return {"type": "object", "minProperties": 1, "properties": properties, "additionalProperties": False}


class CorrectionRequest(WireRequest):
    """`PATCH /v1/documents/{id}/fields`."""

    fields: Annotated[dict[str, Any], WithJsonSchema(_fields_schema())] = Field(
        description="Each field's value by name: ISO 8601 dates, decimals with a point, a text; an object with `value` "
        "and where it stands (`page`, `boxes`, `start`, `end`); a list of rows for Items, TaxDetails and Movements, in "
        "place of all rows; null for a field that the document does not have. `kind` is the document's."
    )
    document: Annotated[int, WHOLE] = Field(0, ge=0, le=100_000, description="Index of the document in the file.")
    revision: Annotated[int | None, WHOLE] = Field(
        None,
        ge=1,
        le=10**9,
        description="That you have seen; If-Match says the same. Without it the latest is changed.",
    )


_ETAG = re.compile(r'(?:W/)?"(\d{1,9})"')


def _revision(request: Request, own: int | None) -> int | None:
    """The revision that the caller has seen, by its body or query, or by If-Match. Raises: InvalidField."""
    header = context_of(request).headers.get(b"if-match", b"").decode("latin-1").strip()
    if own is not None or not header or header == "*":
        return own
    matched = _ETAG.fullmatch(header)
    if matched is None:
        raise InvalidField(f'If-Match: must be the ETag of the document, such as "3", got {header[:60]}')
    return int(matched[1])


async def correct_fields(request: Request) -> Response:
    """Write values in place of those that were read. The answer says what does not fit (`problems`).

    A value that contradicts its check digits or the arithmetic is kept and marked. A confirmed document is to be
    reviewed again. With `revision` or `If-Match` the change is refused (409) where somebody else was faster, and the
    message says who changed what.
    """
    body = await read_json(request, CorrectionRequest)
    caller, revision = context_of(request).caller, _revision(request, body.revision)
    call = _documents_of(request).correct(
        caller.owner, caller.name, path_id(request, "document"), body.document, body.fields, revision=revision
    )
    return await _changed(request, call)


class CutRequest(WireRequest):
    """One document of a file."""

    pages: str = Field(
        min_length=1,
        max_length=1000,
        json_schema_extra={"pattern": PAGES_PATTERN},
        description="Its pages in the file, such as 1-3,7.",
    )


class SplitRequest(WireRequest):
    """`POST /v1/documents/{id}/split`."""

    documents: list[CutRequest] = Field(
        min_length=1,
        max_length=_MAX_CUT,
        description="The documents of the file from now on: fewer than before to join them, more to split. A page "
        "belongs to one document at most.",
    )
    revision: Annotated[int | None, WHOLE] = Field(
        None, ge=1, le=10**9, description="That you have seen; If-Match says the same. Without it the latest is cut."
    )


async def split_document(request: Request) -> Response:
    """Cut a stored file into documents by hand, or join what was cut wrongly.

    A document whose pages stay as they were keeps its corrections and whether it is confirmed. The fields of others are
    read anew from the pages as they are kept; what was corrected in a document that is no more stays in `changes`.
    """
    body = await read_json(request, SplitRequest)
    caller, revision = context_of(request).caller, _revision(request, body.revision)
    text_work, examples = services_of(request).text_work, _reader_of(request).examples

    async def read(
        stored: StoredDocument, content: Mapping[str, Any], parts: Sequence[Sequence[int]]
    ) -> list[OneDocumentAnswer]:
        document = document_of(stored, content)
        known = await examples.of(caller.owner, document)
        read_parts = partial(fields_of_parts, document, parts, known)
        found = await text_work.run_long(read_parts, document.characters)
        return documents_answer(found, None, ())

    cut = [document.pages for document in body.documents]
    call = _documents_of(request).split(
        caller.owner, caller.name, path_id(request, "document"), cut, read, revision=revision
    )
    return await _changed(request, call)


class ReviewQuery(BaseModel):
    """`POST /v1/documents/{id}/confirm` and `/reopen`."""

    model_config = ConfigDict(extra="ignore")

    document: Annotated[
        OrAbsent[Annotated[int, Field(ge=0)]],
        WithJsonSchema({"type": "integer", "minimum": 0}),
    ] = Field(None, description="Index of one document in the file; without it all of them.")
    revision: Annotated[
        OrAbsent[Annotated[int, Field(ge=1)]],
        WithJsonSchema({"type": "integer", "minimum": 1}),
    ] = Field(None, description="That you have seen; If-Match says the same.")


async def _review(request: Request, act: Literal["confirm", "reopen"]) -> Response:
    query = validate_query(ReviewQuery, request)
    caller, revision = context_of(request).caller, _revision(request, query.revision)
    service = _documents_of(request)
    call = (service.confirm if act == "confirm" else service.reopen)(
        caller.owner, caller.name, path_id(request, "document"), query.document, revision=revision
    )
    return await _changed(request, call)


async def confirm_document(request: Request) -> Response:
    """Say that a document is right as it is now: one of the file, or all."""
    return await _review(request, "confirm")


async def reopen_document(request: Request) -> Response:
    """Say that a document is to be reviewed again: one of the file, or all."""
    return await _review(request, "reopen")


_DOCUMENT_ID = "file-5f0c2b8e9d3a4c71"
_CORRECTED = {
    **FIELD_EXAMPLE,
    "score": 1.0,
    "source": "person",
    "why": "corrected by ana",
    "reasons": reasons_in("corrected by ana"),
    "corrected": {"by": "ana", "at": 1767225700.5, "read": "1234.50"},
}
_ONE: dict[str, Any] = {
    "pages": [1], "kind": "invoice", "fields": {"InvoiceTotal": _CORRECTED},
    "fields_why": "read as invoice: title invoice, id, total",
    "fields_reasons": reasons_in("read as invoice: title invoice, id, total"), "valid": VALIDITY_EXAMPLE,
    "confirmed": False, "confirmed_by": None, "confirmed_at": None,
}  # fmt: skip
_CHANGE: ChangeAnswer = {
    "revision": 2, "action": "correct", "document": 0, "at": 1767225700.5, "by": "ana",
    "fields": {"InvoiceTotal": {"value": "1284.50"}},
}  # fmt: skip
_LISTED = {
    "id": _DOCUMENT_ID,
    "object": "document",
    "filename": "factura-017.pdf",
    "bytes": 48213,
    "created_at": 1767225600,
    "expires_at": None,
    "state": "to_review",
    "revision": 2,
    "updated_at": 1767225700.5,
    "problems": [
        {"code": "arithmetic", "document": 0, "equation": "SubTotal + TotalTax = InvoiceTotal", "expected": "1284.00",
         "printed": "1284.50"}
    ],
    "kind": "pdf",
    "page_count": 1,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "documents": [_ONE],
}  # fmt: skip
_WHOLE = {
    **_LISTED,
    "metadata": {},
    "fields": _ONE["fields"],
    "fields_why": _ONE["fields_why"],
    "fields_reasons": _ONE["fields_reasons"],
    "valid": VALIDITY_EXAMPLE,
    "pages": [],
    "failed_pages": [],
    "text": "Total 1.284,50 €",
    "model": "intfloat/multilingual-e5-small",
    "device": "cpu",
    "timings": {"total_s": 0.4},
    "usage": {"pages": 1, "ocr_pages": 1, "prompt_tokens": 17, "total_tokens": 17},
    "changes": [_CHANGE],
}
_CHANGED = {**_LISTED, "changes": [_CHANGE]}
_ID = id_parameter(_DOCUMENT_ID)
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string", "pattern": r'^(\*|(W/)?"[0-9]{1,9}")$'},
    "description": "The ETag of the document that you have seen.",
}
_OF_DOCUMENT: dict[str, Any] = {"errors": (404, 422, 504), "parameters": (_ID, REQUEST_TIMEOUT)}
_CHANGED_ANSWER: dict[str, Any] = {"schema": ListedDocumentAnswer, "example": _CHANGED, "headers": ("ETag",)}
_CHANGES: dict[str, Any] = {
    **_CHANGED_ANSWER,
    "tag": "documents",
    "errors": (400, 404, 409, 413, 415, 422, 429, 504),
    "parameters": (_ID, _IF_MATCH, REQUEST_TIMEOUT),
}
_get, _delete, _action = (partial(make, tag="documents") for make in (get, delete, action))
_REVIEW: dict[str, Any] = {
    **_CHANGED_ANSWER,
    "errors": (404, 409, 413, 422, 504),
    "parameters": (_ID, *query_parameters(ReviewQuery), _IF_MATCH, REQUEST_TIMEOUT),
}
ROUTES = (
    _get(
        "/v1/documents",
        list_documents,
        schema=DocumentListAnswer,
        example=list_answer([_LISTED], has_more=False),
        errors=(422, 504),
        parameters=(*query_parameters(DocumentListQuery), REQUEST_TIMEOUT),
    ),
    _get(
        "/v1/documents/{id}",
        retrieve_document,
        schema=StoredDocumentAnswer,
        example=_WHOLE,
        headers=("ETag",),
        **_OF_DOCUMENT,
    ),
    _delete(
        "/v1/documents/{id}",
        delete_document,
        schema=DeletedDocumentAnswer,
        example={"id": _DOCUMENT_ID, "object": "document.deleted", "deleted": True},
        **_OF_DOCUMENT,
    ),
    _get("/v1/documents/{id}/content", retrieve_original, **BYTES_ANSWER, **_OF_DOCUMENT),
    _get(
        "/v1/documents/{id}/pages/{number}.png",
        retrieve_page,
        example="(the bytes of a PNG)",
        media_type="image/png",
        errors=(404, 413, 415, 422, 429, 504),
        parameters=(_ID, NUMBER_PARAMETER, DPI_PARAMETER, PASSWORD_PARAMETER, REQUEST_TIMEOUT),
    ),
    patch(
        "/v1/documents/{id}/fields",
        correct_fields,
        request=CorrectionRequest,
        examples={
            "a total": {"fields": {"InvoiceTotal": "1284.50"}, "revision": 1},
            "with its place": {
                "fields": {"DueDate": {"value": "2026-04-12", "page": 1, "boxes": [[56.7, 60.2, 98.4, 72.0]]}}
            },
            "lines": {"fields": {"Items": [{"Description": "Tornillos", "Quantity": "100", "Amount": "12.50"}]}},
        },
        **_CHANGES,
    ),
    post(
        "/v1/documents/{id}/split",
        split_document,
        request=SplitRequest,
        examples={
            "two of one": {"documents": [{"pages": "1"}, {"pages": "2"}]},
            "one of two": {"documents": [{"pages": "1-2"}]},
        },
        **_CHANGES,
    ),
    _action("/v1/documents/{id}/confirm", confirm_document, **_REVIEW),
    _action("/v1/documents/{id}/reopen", reopen_document, **_REVIEW),
)
