"""Apache Tika's server and Open WebUI's external loader: a file in, its text and metadata out."""

from __future__ import annotations

import asyncio
import csv
from contextlib import AbstractAsyncContextManager
from io import StringIO
from typing import Any, Literal
from urllib.parse import unquote

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from backend import __version__
from backend.api.api_keys import TIKA_CONTENTS
from backend.api.json_io import json_response, require_body_bytes
from backend.api.request_context import ApiLimits, context_of, limits_of
from backend.api.request_fields import check_limits
from backend.api.routes.documents import accept_header, process_upload
from backend.api.routing import JSON, Endpoint, PlainRoute, body_route, described, get, upload_route
from backend.api.upload import Upload, receive_upload
from backend.documents.formats.html import stream_html
from backend.documents.formats.markdown import pages_markdown
from backend.documents.records import PAGE_FEATURES, DocumentAnswer, DocumentOptions
from backend.errors import UnreadableFile
from backend.files.file_types import media_type_of, sniff
from backend.files.pages import PAGE_GAP
from backend.text.language import Language
from backend.text.language import detect as detect_code

_CONTENT = "X-TIKA:content"
_NAMES = {  # of a file's metadata in Tika's words
    "title": "dc:title",
    "author": "dc:creator",
    "subject": "dc:subject",
    "creator": "xmp:CreatorTool",
    "producer": "pdf:producer",
    "created": "dcterms:created",
    "modified": "dcterms:modified",
}
_PARSER = "financia-inference"
_FORM = ""  # Tika takes the file from whichever part has a file name
Content = Literal["text", "html", "none"]


async def _read(request: Request, content: Content) -> tuple[dict[str, Any], str]:
    """The metadata of the request's file and its content."""
    async with _uploaded(request) as upload:
        if content == "html":
            upload.require_pages()
        answer = await process_upload(request, upload, DocumentOptions(features=frozenset(PAGE_FEATURES)))
        metadata = _metadata(upload, answer)
    written = "" if content == "none" else await asyncio.to_thread(_content, answer, content)
    return metadata, written


def _uploaded(request: Request) -> AbstractAsyncContextManager[Upload]:
    field = _FORM if "form" in request.url.path.split("/") else "file"
    return receive_upload(request, field=field, name=_file_name(request))


def _content(answer: DocumentAnswer, content: Content) -> str:
    if content == "html":
        return b"".join(stream_html(answer.document)).decode()
    return answer.document.text.replace(PAGE_GAP, "\n\n")


def _metadata(upload: Upload, answer: DocumentAnswer) -> dict[str, Any]:
    document = answer.document
    languages = [page.language for page in document.pages if page.language]
    return {
        "Content-Type": media_type_of(document.kind, upload.name),
        "Content-Length": str(upload.stored.size_bytes),
        "X-TIKA:Parsed-By": [_PARSER],
        "xmpTPg:NPages": str(document.page_count),
        **({"resourceName": upload.name} if upload.name else {}),
        **({"dc:language": max(set(languages), key=languages.count)} if languages else {}),
        **{_NAMES.get(name, name): value for name, value in document.metadata.items()},
    }


def _file_name(request: Request) -> str:
    """The name that a header gives the body: X-Filename, or that of Content-Disposition."""
    headers = context_of(request).headers
    if name := headers.get(b"x-filename", b""):
        return unquote(name.decode("latin-1"))
    _, _, name = headers.get(b"content-disposition", b"").partition(b"filename=")
    return unquote(name.partition(b";")[0].strip(b' "').decode("latin-1"))


def _prefers(request: Request, *media_types: str) -> str:
    """The first of ``media_types`` that Accept names; empty where it names none."""
    accept = (accept_header(request) or "").lower()
    return next((media_type for media_type in media_types if media_type in accept), "")


def _wanted(request: Request) -> Content:
    """The content that the path's last part asks for; HTML where it asks for none."""
    last = request.url.path.rpartition("/")[2]
    return "text" if last == "text" else "none" if last == "ignore" else "html"


async def parse(request: Request) -> Response:
    """A file's text; as `Accept` says, HTML or JSON with both HTML and metadata."""
    wanted = _prefers(request, JSON, "text/html", "text/xml", "application/xhtml+xml", "application/xml")
    metadata, content = await _read(request, "html" if wanted else "text")
    if wanted == JSON:
        return json_response({**metadata, _CONTENT: content})
    return Response(content, media_type="text/html" if wanted else "text/plain")


async def parse_whole(request: Request) -> Response:
    """A file's metadata with its text or HTML as JSON, or the text alone where `Accept` names text/plain."""
    wanted = _wanted(request)
    metadata, content = await _read(request, wanted)
    if wanted == "text" and _prefers(request, "text/plain"):
        return PlainTextResponse(content)
    return json_response({**metadata, **({} if wanted == "none" else {_CONTENT: content})})


async def parse_recursively(request: Request) -> Response:
    """The same as a list of one, for files in the file are read as its parts."""
    wanted = _wanted(request)
    metadata, content = await _read(request, wanted)
    return json_response([{**metadata, **({} if wanted == "none" else {_CONTENT: content})}])


async def read_metadata(request: Request) -> Response:
    """A file's metadata; as CSV where `Accept` names text/csv."""
    metadata, _ = await _read(request, "none")
    if not _prefers(request, "text/csv"):
        return json_response(metadata)
    rows = StringIO()
    csv.writer(rows, quoting=csv.QUOTE_ALL).writerows(
        (name, *(value if isinstance(value, list) else [value])) for name, value in metadata.items()
    )
    return Response(rows.getvalue(), media_type="text/csv")


async def detect_language(request: Request) -> Response:
    """The language of a text, such as `es`; empty where it has too few letters to tell."""
    async with _uploaded(request) as upload:
        language = await asyncio.to_thread(_language, upload, limits_of(request))
    return PlainTextResponse("" if language is None else language.code)


def _language(upload: Upload, limits: ApiLimits) -> Language | None:
    """Raises: TooLarge for what is larger than a request with a text may be."""
    require_body_bytes(upload.stored.size_bytes, limits.body_bytes)
    text = upload.stored.content().decode("utf-8", "replace")
    check_limits([text], limits, "text")
    return detect_code(text)


async def version(_request: Request) -> Response:
    """This service's version, which docling-serve's clients ask for too."""
    return json_response({"financia-inference": __version__})


async def detect(request: Request) -> Response:
    """The media type of a file, by its bytes."""
    async with _uploaded(request) as upload:
        return PlainTextResponse(media_type_of(sniff(upload.stored.head).value, upload.name))


async def greet(_request: Request) -> Response:
    """What Tika's clients look for to see that a server is there."""
    return PlainTextResponse("This is FinancIA Inference in place of a Tika Server. PUT a file here for its text.\n")


async def process(request: Request) -> Response:
    """A file's pages as Markdown, for Open WebUI's external loader; `page` counts from 0, as it shows one more."""
    async with receive_upload(request, name=_file_name(request)) as upload:
        upload.require_pages()
        answer = await process_upload(request, upload, DocumentOptions(features=frozenset(PAGE_FEATURES)))
        pages = await asyncio.to_thread(_pages, upload, answer)
    if not pages:
        raise UnreadableFile("file: No extractable text: no page of it has any")  # words at which it reads by itself
    return json_response(pages)


def _pages(upload: Upload, answer: DocumentAnswer) -> list[dict[str, Any]]:
    document = answer.document
    return [
        {
            "page_content": markdown,
            "metadata": {
                "source": upload.name,
                "page": page.number - 1,
                "page_label": str(page.number),
                "total_pages": document.page_count,
                "Content-Type": media_type_of(document.kind, upload.name),
            },
        }
        for page, markdown in zip(document.pages, pages_markdown(document), strict=True)
        if markdown.strip()
    ]


_TAG = "Tika and Open WebUI"
_METADATA = {"Content-Type": "application/pdf", "X-TIKA:Parsed-By": [_PARSER], "xmpTPg:NPages": "1"}
_PARSED = {**_METADATA, _CONTENT: "Factura 2024-017\nTotal 1.284,50 €"}
_TEXT = {"text/plain": {"schema": {"type": "string"}, "example": "Factura 2024-017"}}


def _json(example: Any, kind: str = "object") -> dict[str, Any]:
    return {JSON: {"schema": {"type": kind}, "example": example}}


class _NoFields(BaseModel):
    """A form with a file alone."""


def _put(path: str, endpoint: Endpoint, answers: dict[str, Any]) -> PlainRoute:
    return body_route("PUT", path, endpoint, tag=_TAG, answers={200: described(answers)})


def _form(path: str, endpoint: Endpoint, answers: dict[str, Any]) -> PlainRoute:
    return upload_route(path, endpoint, tag=_TAG, request=_NoFields, answers={200: described(answers)}, field="upload")


_HTML = {"text/html": {"schema": {"type": "string"}}}
_CSV = {"text/csv": {"schema": {"type": "string"}}}
_ANY = {**_TEXT, **_HTML, **_json(_PARSED)}
_WHOLE = {**_json(_PARSED), **_TEXT}
_LIST = _json([_PARSED], "array")
ROUTES = (
    _put("/tika", parse, _ANY),
    *(_put(f"/tika{content}", parse_whole, _WHOLE) for content in TIKA_CONTENTS[1:]),
    *(_put(f"/rmeta{content}", parse_recursively, _LIST) for content in TIKA_CONTENTS),
    _put("/meta", read_metadata, {**_json(_METADATA), **_CSV}),
    _put("/detect/stream", detect, _TEXT),
    _form("/tika/form", parse, _ANY),
    *(_form(f"/tika/form{content}", parse_whole, _WHOLE) for content in TIKA_CONTENTS[1:]),
    *(_form(f"/rmeta/form{content}", parse_recursively, _LIST) for content in TIKA_CONTENTS),
    _form("/meta/form", read_metadata, {**_json(_METADATA), **_CSV}),
    *(
        body_route(
            "PUT", f"/language/{source}", detect_language, tag=_TAG,
            answers={200: described({"text/plain": {"schema": {"type": "string"}, "example": "es"}})}, file="A text.",
        )
        for source in ("stream", "string")
    ),
    get("/version", version, tag=_TAG, example={"financia-inference": __version__}),
    get("/tika", greet, tag=_TAG, example="This is …", media_type="text/plain"),
    _put(
        "/process",
        process,
        _json([{"page_content": "## Factura", "metadata": {"source": "a.pdf", "page": 0, "total_pages": 1}}], "array"),
    ),
)  # fmt: skip
