"""``POST /v1/documents`` and ``/v1/fields``: what the pages of an uploaded file say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

import orjson
from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import Response

from backend.api.api_keys import require_writing
from backend.api.json_io import JsonBytes, JsonPieces, index_headers, is_json, read_json, validate_fields
from backend.api.parameters import IDEMPOTENCY_KEY, idempotency_key
from backend.api.request_context import (
    Handle,
    ServiceCall,
    call_service,
    call_within_limit,
    context_of,
    limits_of,
    owner_of,
    services_of,
)
from backend.api.request_fields import (
    OWN_LABELS,
    SPLIT_PATTERN,
    OrAbsent,
    PageRanges,
    Password,
    StrictForm,
    TextItem,
    TextOrAbsent,
    WireRequest,
    check_chars,
    check_labels,
    one_of,
    require_labels,
    require_two_labels,
    text_like,
)
from backend.api.routes.classify import CLASSES_EXAMPLE
from backend.api.routes.document_answers import (
    CUSTOM_EXAMPLE,
    FIELD_EXAMPLE,
    SUMMARY_EXAMPLE,
    TABLE_EXAMPLE,
    VALIDITY_EXAMPLE,
    DocumentAnswer,
    document_json,
    document_pieces,
)
from backend.api.routes.entities import ENTITY_EXAMPLES
from backend.api.routes.extractors import EXAMPLES_EXAMPLE, OwnExamples, examples_in_form, own_words
from backend.api.routes.stored_documents import StoredDocumentAnswer, revision_headers, stored_head, whole_document
from backend.api.routing import UPLOAD_ERRORS, described, upload_route
from backend.api.upload import ExpiryForm, Upload, receive_upload
from backend.documents import records
from backend.documents.formats.registry import FORMAT_NAMES, FORMATS, Format, negotiate, stream_of
from backend.documents.ocr_engines import print_languages
from backend.documents.own_fields import OwnFields
from backend.documents.records import (
    DEFAULT_FEATURES,
    FEATURES,
    PAGE_FEATURES,
    DocumentEvent,
    DocumentFeature,
    DocumentOptions,
)
from backend.documents.service import DocumentService
from backend.documents.text_fields import find_text_fields, with_own_fields
from backend.errors import InvalidField
from backend.files.page_ranges import check_split
from backend.files.pages import Document
from backend.files.text_files import RequestedSource
from backend.lanes.inference import Urgency, offload
from backend.ocr.engine_choice import OcrEngineName
from backend.reasons import reasons_in
from backend.search.stored_documents import StoredDocuments, keyed_id
from backend.serving.engines.answers import LABEL_TASK
from backend.summaries.records import RequestedMethod
from backend.text.answers import AnswerService
from backend.text.embeddings import EmbeddingService
from backend.text.own_labels import labels_json, types_json

_documents_of: Handle[DocumentService] = Handle("documents")
_stored_documents_of: Handle[StoredDocuments] = Handle("stored_documents")
_embeddings_of: Handle[EmbeddingService] = Handle("embeddings")
_answers_of: Handle[AnswerService] = Handle("answers")

MAX_SENTENCES = 100
MIN_TOKENS, MAX_TOKENS = 8, 2048
MAX_BEAMS = 8


def _whole_or_empty(least: int, most: int) -> WithJsonSchema:
    whole = {"type": "integer", "minimum": least, "maximum": most}
    return WithJsonSchema({"anyOf": [whole, {"const": ""}]})


SentencesOrEmpty = Annotated[
    OrAbsent[Annotated[int, Field(ge=1, le=MAX_SENTENCES)]],
    _whole_or_empty(1, MAX_SENTENCES),
]
MaxTokensOrEmpty = Annotated[
    OrAbsent[Annotated[int, Field(ge=MIN_TOKENS, le=MAX_TOKENS)]],
    _whole_or_empty(MIN_TOKENS, MAX_TOKENS),
]


def require_min_below_max(least: int, most: int | None, prefix: str = "") -> None:
    """Raise InvalidField (422) where fewer tokens are allowed than wanted.

    Args:
        prefix: of the two fields' names.
    """
    if most is not None and least > most:
        raise InvalidField(
            f"{prefix}min_tokens: {least} is more than {prefix}{'max_tokens' if not prefix else 'tokens'}, {most}",
            param=f"{prefix}min_tokens",
        )


def _split_words(value: Any) -> Any:
    """A text such as "es, en" and "spa+eng" as a list; an empty field as one that is absent."""
    if not isinstance(value, str):
        return value
    return [word.strip() for word in value.replace("+", ",").split(",") if word.strip()] or None


def _understood(value: Any, param: str, as_kept: Callable[[Any, str], str]) -> Any:
    """The JSON of a field of own words, once it is known to be understood; empty stays empty."""
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        asked = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidField(f"{param}: is no JSON: {error}", param=param) from error
    return as_kept(asked, param)


_schema_text = partial(_understood, param="schema", as_kept=labels_json)
_entity_labels_text = partial(_understood, param="entity_labels", as_kept=types_json)


def _split_labels(value: Any) -> Any:
    """Labels one a line, or separated by commas where there is one line; a list stays as it is."""
    if not isinstance(value, str):
        return value
    separator = "\n" if "\n" in value.strip() else ","
    return [label.strip() for label in value.strip().split(separator) if label.strip()] or None


_LANGUAGE = "[A-Za-z][A-Za-z_/-]*"  # es, spa, chi_sim, script/Latin
_TWO_LABELS = r"^\s*$|[^\s,][\s\S]*[,\n][\s\S]*[^\s,]"


def _listed(word: str) -> str:
    """The pattern of words between commas or plus signs; none at all counts as absent."""
    return f"^ *(({word})( *[,+] *({word}))* *)?$"


class ReadRequest(StrictForm):
    """`POST /v1/ocr`: how to read a file."""

    model_config = ConfigDict(extra="ignore")

    pages: PageRanges = Field("", description="Pages to read, such as 1-3,7 or 5-; empty: all.")
    language: Annotated[
        list[Annotated[str, Field(pattern=f"^{_LANGUAGE}$")]] | None,
        BeforeValidator(_split_words),
        text_like(_listed(_LANGUAGE)),
    ] = Field(None, description="Languages of the print, most likely first: es,en or spa+eng; unset: OCR_LANGUAGES.")
    source: Annotated[OrAbsent[RequestedSource], one_of(get_args(RequestedSource))] = Field(
        None, description="auto decides page by page; text_layer never recognises, ocr always does."
    )
    engine: Annotated[OrAbsent[OcrEngineName], one_of(get_args(OcrEngineName))] = Field(
        None, description="What recognises; auto chooses page by page, and the answer says which and why."
    )
    password: Password = Field(None, description="Of an encrypted PDF.")
    format: Annotated[OrAbsent[str], one_of(FORMAT_NAMES)] = Field(
        None,
        description="json, text, markdown, html, csv, xlsx, hocr, alto or pdf (searchable); of a recording "
        "json, text, markdown, srt or vtt; unset: by Accept.",
    )

    def options(self) -> DocumentOptions:
        """The options of the document service."""
        return DocumentOptions(
            features=frozenset(PAGE_FEATURES),
            pages=self.pages,
            source=self.source or "auto",
            engine=self.engine or "auto",
            languages=print_languages(self.language or ()),
            password=self.password or None,
        )


class JsonReadRequest(ReadRequest):
    """How to read a file of which JSON alone is answered."""

    format: Annotated[OrAbsent[str], one_of(("json",))] = Field(
        None, description="json, which the answer always comes as."
    )

    @field_validator("format")
    @classmethod
    def _is_json(cls, name: str | None) -> str | None:
        if name not in (None, "json"):
            raise InvalidField(f"format: the answer comes as json, not as {name}")
        return name


class DocumentRequest(ReadRequest):
    """`POST /v1/documents`: how to read a file, and what to answer of it."""

    features: Annotated[
        list[DocumentFeature] | None, BeforeValidator(_split_words), text_like(_listed("|".join(FEATURES)))
    ] = Field(None, description="What to answer with, with commas between; unset: everything but summary.")
    labels: Annotated[list[str] | None, BeforeValidator(_split_labels), text_like(_TWO_LABELS)] = Field(
        None, description="Classes to choose from, in words (zero-shot), with commas between or one a line."
    )
    classifier: TextOrAbsent = Field(None, description="A name that GET /v1/classifiers lists; unset: the default one.")
    split: str = Field(
        "auto",
        max_length=1000,
        json_schema_extra={"pattern": SPLIT_PATTERN},
        description="Which pages are one document, for fields: auto cuts where another one begins, none takes the file"
        " for one, pages takes every page for one; or their ranges, such as 1-2,3.",
    )
    top_phrases: int = Field(10, ge=1, le=100, description="Most key phrases to answer with.")
    top_sentences: int = Field(3, ge=1, le=100, description="Most key sentences to answer with.")
    xml: TextOrAbsent = Field(
        None, description="The electronic invoice (Factur-X, UBL or Facturae XML) that belongs to the file."
    )
    summary_method: Annotated[OrAbsent[RequestedMethod], one_of(get_args(RequestedMethod))] = Field(
        None, description="Who makes the summary, as `method` of POST /v1/summarize."
    )
    summary_sentences: SentencesOrEmpty = Field(None, description="Most sentences of the summary; unset: 3 or any.")
    summary_tokens: MaxTokensOrEmpty = Field(None, description="Most tokens of the summary.")
    summary_min_tokens: int = Field(0, ge=0, le=MAX_TOKENS, description="Fewest tokens that SUMMARY_MODEL writes.")
    summary_beams: int = Field(1, ge=1, le=MAX_BEAMS, description="Beams of SUMMARY_MODEL; 1: greedy.")
    own_schema: Annotated[str, BeforeValidator(_schema_text), WithJsonSchema({"type": "string"})] = Field(
        "",
        alias="schema",
        description="What to find in your own words, as JSON: names with descriptions, or a JSON Schema of an object;"
        " `custom` answers.",
    )
    examples: Annotated[OwnExamples | None, BeforeValidator(examples_in_form), WithJsonSchema({"type": "string"})] = (
        Field(
            None, description="1 to 16 papers with the values that they have, as JSON, as of PUT /v1/extractors/{name}."
        )
    )
    extractor: TextOrAbsent = Field(
        None, description="A name that GET /v1/extractors lists, in place of schema and examples."
    )
    entity_labels: Annotated[str, BeforeValidator(_entity_labels_text), WithJsonSchema({"type": "string"})] = Field(
        "",
        description="Types of entities in your own words, as JSON: names, or an object of names and descriptions;"
        " `entities` has what they name instead of names, numbers and dates.",
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="How vectors are written; base64: little-endian float32, a third of the bytes."
    )

    @field_validator("split")
    @classmethod
    def _is_split(cls, split: str) -> str:
        split = split.strip() or "auto"
        check_split(split)
        return split

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DocumentRequest:
        require_labels(self.labels or (), "labels")
        require_two_labels(self.labels)
        if self.entity_labels and self.features is not None and "entities" not in self.features:
            raise InvalidField("entity_labels: features leaves entities out; add it, or leave entity_labels out")
        require_min_below_max(self.summary_min_tokens, self.summary_tokens, "summary_")
        return self

    def options(self) -> DocumentOptions:
        """The options of the document service."""
        return replace(
            ReadRequest.options(self),
            features=frozenset(self.features or DEFAULT_FEATURES),
            split=self.split,
            labels=tuple(self.labels) if self.labels else None,
            classifier=self.classifier,
            top_phrases=self.top_phrases,
            top_sentences=self.top_sentences,
            xml=self.xml,
            summary_method=self.summary_method or "extractive",
            summary_sentences=self.summary_sentences,
            summary_tokens=self.summary_tokens,
            summary_min_tokens=self.summary_min_tokens,
            summary_beams=self.summary_beams,
            schema=self.own_schema,
            entity_labels=self.entity_labels,
        )


class NewDocumentRequest(DocumentRequest, ExpiryForm):
    """`POST /v1/documents`: how to read a file, and whether to keep it with what was read."""

    store: Annotated[bool, BeforeValidator(lambda value: value or False)] = Field(
        False, description="Keep the file and the answer as a document that can be corrected, until it is deleted."
    )

    @model_validator(mode="after")
    def _is_kept(self) -> NewDocumentRequest:
        if self.seconds is not None and not self.store:
            raise InvalidField("expires_after: is for documents that are kept; send store=true")
        return self


class FieldsRequest(WireRequest):
    """`POST /v1/fields` with a text."""

    input: TextItem = Field(
        description="The text of an invoice, a receipt or a statement, its lines and columns as they are set on paper."
    )
    own_schema: Annotated[Any, BeforeValidator(labels_json), WithJsonSchema(OWN_LABELS)] = Field(
        None,
        alias="schema",
        description="What to find in your own words: names with descriptions, or a JSON Schema of an object; `custom`"
        " answers.",
    )
    examples: OwnExamples | None = Field(
        None, description="1 to 16 papers with the values that they have, from which to learn where such stand."
    )
    extractor: str | None = Field(
        None, description="A name that GET /v1/extractors lists, in place of schema and examples."
    )


Result = TypeVar("Result")
INLINE_CHARS = 3_000  # a page: about a millisecond's work; a megabyte of one word has 2,000 chunks with vectors


async def formatted_document(
    request: Request,
    document: Document,
    document_format: Format,
    headers: Mapping[str, str],
    searchable_pdf: ServiceCall[bytes],
) -> Response:
    """The document in this format.

    Args:
        searchable_pdf: makes the PDF from the file itself, where that is the format.
    """
    stream = stream_of(document_format, document)
    if stream is None:
        body = await call_service(request, searchable_pdf)
    else:
        text_work = services_of(request).text_work  # finding tables takes milliseconds a page
        work = text_work.run_long(lambda: b"".join(stream(document)), document.characters)
        body = await call_within_limit(request, work)
    disposition = {"Content-Disposition": f'inline; filename="document.{document_format.extension}"'}
    return Response(body, media_type=document_format.content_type, headers={**disposition, **headers})


async def run_off_loop(document: Document, write: Callable[[], Result]) -> Result:
    """Call ``write`` here where the document is short, in a thread where it would block the event loop."""
    return await offload(write, document.characters, INLINE_CHARS)


def accept_header(request: Request) -> str | None:
    """The Accept header; None where there is none."""
    accept = context_of(request).headers.get(b"accept")
    return None if accept is None else accept.decode("latin-1")


async def create_document(request: Request) -> Response:
    """Everything there is to know of a file: pages, words, class, entities on paper, key sentences, vectors.

    `features` picks among them. `start` and `end` count Unicode code points of `text`; boxes are in the units of their
    page (points of a PDF, pixels of an image) as it stands upright. A page that cannot be read is listed in
    `failed_pages` and costs the others nothing. The pages of a recording are its minutes, and seconds stand where boxes
    do. For long files see `POST /v1/jobs`. With `store=true` the document is kept: the answer has its `id`, state and
    `revision`, see `GET /v1/documents/{id}`; the same file again with the same `Idempotency-Key` is the same document.
    """
    async with receive_upload(request) as upload:
        form = validate_fields(NewDocumentRequest, upload.fields)
        check_labels(form.labels, limits_of(request))
        document_format = negotiate(accept_header(request), form.format)
        upload.require_format(document_format)
        options = await with_own_words(request, form)
        upload.require_options(options)
        if document_format.name != "json":
            options = replace(options, features=frozenset(PAGE_FEATURES) | document_format.features)
        if form.store:
            return await _stored(request, upload, form, options, document_format)
        answer = await process_upload(request, upload, options)
        return await respond_in(
            request, upload, answer, document_format, partial(document_pieces, answer, form.encoding_format)
        )


# Of what is stored, whatever features are asked for.
KEPT_FEATURES = frozenset({"text", "words", "fields", "tables", "classes", "language"})


async def with_own_words(request: Request, form: DocumentRequest) -> DocumentOptions:
    """The form's options, with what an extractor or examples ask for and teach.

    Raises: as `own_words`; UnknownModel where nothing can read own types of entities.
    """
    options = form.options()
    if options.entity_labels:
        _answers_of(request).require(None, LABEL_TASK)
    if not form.examples and form.extractor is None:
        return options
    asked = own_words(request, options.schema, form.examples, form.extractor)
    schema, lessons = await call_within_limit(request, asked)
    return replace(options, schema=schema, lessons=lessons)


def require_storing(request: Request, document_format: Format) -> None:
    """Raise Forbidden where the key may not store documents, InvalidField for a format other than JSON."""
    require_writing(request, f"POST {request.url.path} with store=true")
    if document_format.name != "json":
        raise InvalidField(
            f"format: a document is stored with format=json, got {document_format.name}; other formats are answered "
            "without store=true"
        )


async def _stored(
    request: Request, upload: Upload, form: NewDocumentRequest, options: DocumentOptions, document_format: Format
) -> Response:
    """Read the upload, keep it, and answer with all of it; with the document that its Idempotency-Key gave before."""
    require_storing(request, document_format)
    owner, service, key = owner_of(request), _stored_documents_of(request), idempotency_key(request)
    file_id = None if key is None else keyed_id(owner, key)
    if file_id is not None:
        before = await call_within_limit(request, service.kept_before(owner, file_id, upload.stored))
        if before is not None:
            return await whole_document(request, before, {"Idempotent-Replay": "true"})
    answer = await process_upload(request, upload, replace(options, features=options.features | KEPT_FEATURES))
    read = await run_off_loop(answer.document, partial(document_json, answer, form.encoding_format))
    name, expires_after_s = upload.name or "file", form.seconds
    call = service.add(owner, upload.stored, name, read, expires_after_s=expires_after_s, file_id=file_id)
    stored = await call_within_limit(request, call)
    [checked] = await service.checked(owner, [stored])
    written = await run_off_loop(answer.document, partial(orjson.dumps, read | stored_head(stored, checked.problems)))
    return JsonBytes(written, headers=revision_headers(stored))


async def process_upload(request: Request, upload: Upload, options: DocumentOptions) -> records.DocumentAnswer:
    """The pages of an upload and what they say; the caller is charged for them."""
    process, context = _documents_of(request).process, context_of(request)

    def charge_page(event: DocumentEvent) -> None:
        if event.page is not None:
            context.meter.charge("pages", 1)

    async def call(*, urgency: Urgency) -> records.DocumentAnswer:
        return await process(upload.stored, options, urgency, charge_page, owner=owner_of(request))

    answer = await call_service(request, call)
    context.meter.charge("tokens", answer.understood.tokens)
    read = answer.extraction
    context.stages = (("open", read.open_s), ("read", read.read_s), ("understand", answer.understand_s))
    return answer


async def respond_in(
    request: Request,
    upload: Upload,
    answer: records.DocumentAnswer,
    document_format: Format,
    to_json: Callable[[], list[bytes]],
) -> Response:
    """The answer in the requested format."""
    if document_format.name == "json":
        return JsonPieces(await run_off_loop(answer.document, to_json))

    async def searchable_pdf(*, urgency: Urgency) -> bytes:
        reader, password = _documents_of(request).extractor, answer.options.password
        return await reader.searchable_pdf(
            upload.stored, answer.document, password=password, deadline_s=urgency.deadline_s
        )

    headers = index_headers("X-Failed-Pages", [page.number for page in answer.failed])
    return await formatted_document(request, answer.document, document_format, headers, searchable_pdf)


_TEXT = "Factura 2024-017\nTotal 1.284,50 €"
_WORD = {
    "text": "Factura", "box": [56.7, 60.2, 98.4, 72.0], "confidence": 0.9612, "start": 0, "end": 7, "line": 0,
    "block": 0,
}  # fmt: skip
_PAGE = {
    "number": 1, "width": 595.28, "height": 841.89, "units_per_inch": 72.0, "rotation": 0, "source": "ocr",
    "why": "it has no text of its own; RapidOCR read it",
    "reasons": reasons_in("it has no text of its own; RapidOCR read it"), "engine": "tesseract 5.5.4",
    "confidence": 0.9541, "language": "es", "incomplete": False, "start": 0, "text": _TEXT, "words": [_WORD],
}  # fmt: skip
READ_EXAMPLE = {
    "object": "document", "kind": "pdf", "page_count": 1,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "metadata": {"producer": "Scanner"},
    "pages": [_PAGE], "failed_pages": [], "text": _TEXT, "model": None, "device": "cpu",
    "timings": {"open_s": 0.012, "read_s": 0.61, "ocr_s": 0.55, "understand_s": 0.0, "total_s": 0.622},
    "usage": {"pages": 1, "ocr_pages": 1, "prompt_tokens": 0, "total_tokens": 0},
}  # fmt: skip
DOCUMENT_EXAMPLE = {
    **READ_EXAMPLE,
    "language": {"code": "es", "score": 0.9998},
    "classes": CLASSES_EXAMPLE,
    "entities": [{**ENTITY_EXAMPLES[0], "places": [{"page": 1, "box": [56.7, 80.0, 120.3, 92.1]}]}],
    "coverage": 1.0,
    "key_phrases": [{"text": "Factura 2024-017", "score": 0.81, "places": [{"start": 0, "end": 16}]}],
    "key_sentences": [{"text": "Total 1.284,50 €", "start": 17, "end": 33, "score": 1.0, "places": []}],
    "vector": [0.0123, -0.0456, 0.0789],
    "chunks": [{"index": 0, "start": 0, "end": 33, "pages": [1], "tokens": 17, "vector": [0.0123, -0.0456]}],
    "fields": {"InvoiceTotal": FIELD_EXAMPLE},
    "fields_why": "read as invoice: title invoice, id, total",
    "fields_reasons": reasons_in("read as invoice: title invoice, id, total"),
    "valid": VALIDITY_EXAMPLE,
    "documents": [
        {
            "pages": [1], "kind": "invoice", "fields": {"InvoiceTotal": FIELD_EXAMPLE},
            "fields_why": "read as invoice: title invoice, id, total",
            "fields_reasons": reasons_in("read as invoice: title invoice, id, total"), "valid": VALIDITY_EXAMPLE,
            "tables": [TABLE_EXAMPLE],
        }
    ],
    "custom": {"matrícula": CUSTOM_EXAMPLE},
    "tables": [TABLE_EXAMPLE],
    "summary": SUMMARY_EXAMPLE,
    "model": "intfloat/multilingual-e5-small",
    "usage": {"pages": 1, "ocr_pages": 1, "prompt_tokens": 17, "total_tokens": 17},
}  # fmt: skip


def answers_of(example: dict[str, Any], *more: type) -> dict[str, dict[str, Any]]:
    """What OpenAPI says of an answer in any format.

    Args:
        example: the JSON one.
        more: schemas that the JSON may have instead of DocumentAnswer.
    """
    json_content = {"schema": {"anyOf": [DocumentAnswer, *more]} if more else DocumentAnswer, "example": example}
    others = {
        other.media_type: {"schema": {"type": "string", "format": "binary"}}
        for other in FORMATS
        if other.name != "json"
    }
    return {"application/json": json_content, **others}


HEADERS = ("X-Failed-Pages", "X-Failed-Pages-Count", "Content-Disposition")  # of other formats than JSON
ROUTES = (
    upload_route(
        "/v1/documents",
        create_document,
        tag="documents",
        request=NewDocumentRequest,
        answers={200: described(answers_of(DOCUMENT_EXAMPLE, StoredDocumentAnswer), (*HEADERS, "Idempotent-Replay"))},
        errors=(*UPLOAD_ERRORS, 403),
        parameters=(IDEMPOTENCY_KEY,),
    ),
)
_FIELDS = frozenset({"fields"})


async def find_fields(request: Request) -> Response:
    """Who sold what to whom, for how much, when it is due: from a file, or from a text as JSON.

    Names are those of Azure's prebuilt invoice. XML in the file or beside it wins, then a tax QR code, then what is
    printed: by labels, places and arithmetic, without templates. A document that is no invoice, receipt or statement
    has no fields, and `fields_why` says so. The answer is that of `POST /v1/documents` with `features=fields`; a text
    counts as a page set by a typewriter.
    """
    return await (_of_text(request) if is_json(request) else _of_file(request))


async def _of_file(request: Request) -> Response:
    async with receive_upload(request) as upload:
        form = validate_fields(DocumentRequest, upload.fields)
        upload.require_pages()
        document_format = negotiate(accept_header(request), form.format)
        features = _FIELDS if document_format.name == "json" else _FIELDS | frozenset(PAGE_FEATURES)
        options = await with_own_words(request, form)
        answer = await process_upload(request, upload, replace(options, features=features))
        return await respond_in(request, upload, answer, document_format, partial(document_pieces, answer))


async def _of_text(request: Request) -> Response:
    meter = context_of(request).meter
    meter.require("pages")
    body = await read_json(request, FieldsRequest)
    characters = check_chars([body.input], limits_of(request), "input")
    text_work, examples = services_of(request).text_work, _documents_of(request).examples

    own_fields = OwnFields(_embeddings_of(request), text_work, _answers_of(request))

    async def call(*, urgency: Urgency) -> records.DocumentAnswer:
        schema, lessons = await own_words(request, body.own_schema or "", body.examples, body.extractor)
        answer = await find_text_fields(text_work, body.input, examples, owner_of(request))
        if not schema:
            return answer
        return await with_own_fields(answer, own_fields, schema, lessons, urgency)

    answer = await call_service(request, call, characters=characters)
    meter.charge("pages", 1)
    meter.charge("tokens", answer.understood.tokens)
    return JsonPieces(await run_off_loop(answer.document, partial(document_pieces, answer)))


_INVOICE_TEXT = """Aceros del Norte, S.L.    FACTURA
NIF B12345674    N.º 2026/017    Fecha 12/03/2026
Base imponible  1.061,57 €
IVA 21 %  222,93 €
Total  1.284,50 €"""
_OWN_EXAMPLE = {
    "input": "PARTE DE TRABAJO\nMatrícula: 1234 BCD    Kilometraje: 87.500 km\nAvería: ruido en los frenos",
    "schema": {
        "matrícula": "placa del vehículo",
        "kilometraje": {"type": "number", "description": "kilómetros recorridos"},
        "avería": {"type": "list"},
    },
}
_FIELDS_EXAMPLE = {
    name: value for name, value in DOCUMENT_EXAMPLE.items() if name not in {"coverage", *FEATURES} - _FIELDS
}
_TAUGHT_EXAMPLE = {"input": _OWN_EXAMPLE["input"], "examples": EXAMPLES_EXAMPLE}
FIELD_ROUTES = (
    upload_route(
        "/v1/fields",
        find_fields,
        tag="documents",
        request=DocumentRequest,
        json_request=(
            FieldsRequest,
            {"a text": {"input": _INVOICE_TEXT}, "in your own words": _OWN_EXAMPLE, "by examples": _TAUGHT_EXAMPLE},
        ),
        answers={200: described(answers_of(_FIELDS_EXAMPLE), HEADERS)},
    ),
)
