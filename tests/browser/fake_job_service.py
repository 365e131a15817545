"""A fake of the service's job routes for the page, driven by the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from backend.api.routes.browser_files import PAGE_ROUTES
from tests.browser.drawn_documents import DrawnPage, document_json, invoice
from tests.browser.fake_hearing import FakeHearing
from tests.browser.fake_library import FakeLibrary

JOB = "job-1"  # the first; each upload makes another
ENGINES = {"tesseract": ["es", "en", "fr"], "pytesseract": ["es", "en", "fr"], "rapidocr": ["es", "en", "fr", "de"]}


@dataclass
class FakeJobService:
    """One job at a time. ``step_by_step`` jobs proceed when the test calls, others are done at once."""

    pages: list[DrawnPage] = field(default_factory=lambda: [invoice()])
    key: str | None = None
    password: str | None = None
    failed: tuple[int, ...] = ()
    refusals: list[Response] = field(default_factory=list)  # answers to the next uploads, instead of a job
    hold_uploads: asyncio.Event | None = None  # uploads wait for it
    most_uploads: int = 0  # at the same time
    forgotten: bool = False  # no job is known any more
    step_by_step: bool = False
    cut_after: int | None = None  # events after which the first stream breaks off
    ended_meanwhile: bool = False  # a stream that resumes gets 204: nothing more comes
    forms: list[dict[str, Any]] = field(default_factory=list)  # every upload: its fields, and its file's name
    resumed_from: list[str | None] = field(default_factory=list)  # Last-Event-ID of every stream
    pictures: list[str] = field(default_factory=list)  # "number?dpi=…" of every requested picture
    deleted_ids: list[str] = field(default_factory=list)
    deleted_documents: list[str] = field(default_factory=list)
    confidence: float | None = None  # of every scanned page, instead of the drawn pages' own
    entities: bool = True  # False: none is found
    data: dict[str, Any] = field(default_factory=dict)  # more of the document: fields, tables
    usual_languages: tuple[str, ...] = ("es", "en")  # OCR_LANGUAGES
    system: Response | None = None  # to GET /v1/system, instead of its engines
    earlier: str = "earlier.pdf"  # the name of a job's file that no upload of the test made
    age_s: float = 0  # of the job, as its created_at tells
    library: FakeLibrary = field(default_factory=FakeLibrary)
    hearing: FakeHearing = field(default_factory=FakeHearing)

    def __post_init__(self) -> None:
        self._uploads = 0
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._changed = asyncio.Condition()
        self._status, self._error, self._done = "queued", None, 0
        self._document_json: dict[str, Any] | None = None
        self.library.guard = self.hearing.guard = self._without_key

    def app(self) -> Starlette:
        routes = [
            *PAGE_ROUTES,
            Route("/v1/models", self._models),
            Route("/v1/system", self._system),
            Route("/v1/audio/transcriptions", self.hearing.transcribe, methods=["POST"]),
            Route("/v1/documents/{id}", self._stored),
            Route("/v1/documents/{id}", self._delete_stored, methods=["DELETE"]),
            Route("/v1/documents/{id}/pages/{number:int}.png", self._picture),
            Route("/v1/jobs", self._post, methods=["POST"]),
            Route("/v1/jobs/{id}", self._get),
            Route("/v1/jobs/{id}", self._delete, methods=["DELETE"]),
            Route("/v1/jobs/{id}/events", self._stream),
            Route("/v1/jobs/{id}/result", self._result),
            Route("/v1/jobs/{id}/pages/{number:int}", self._picture),
            *self.library.routes(),
        ]
        return Starlette(routes=routes)

    async def read_page(self) -> None:
        """Emit the events of the next page."""
        self._done += 1
        page_json = next(item for item in self._document()["pages"] if item["number"] == self._done)
        fields = ("number", "source", "why", "engine", "confidence", "text", "rotation", "width", "height")
        told = {name: page_json[name] for name in fields if name in page_json}
        await self._emit("page", told | {"words": len(page_json["words"])})
        await self._emit("progress", self._progress("reading"))

    async def read_fields(self) -> None:
        """Emit the fields, before anything else of the whole document is known."""
        await self._emit("fields", {name: self._document()[name] for name in ("fields", "valid")})

    async def finish(self, status: str = "succeeded", error: dict[str, Any] | None = None) -> None:
        """End the job."""
        self._status, self._error = status, error
        await self._emit("end", self._job(with_result=False))

    async def _emit(self, name: str, data: dict[str, Any]) -> None:
        async with self._changed:
            self._events.append((name, data))
            self._changed.notify_all()

    def _document(self) -> dict[str, Any]:
        if self._document_json is None:
            self._document_json = {**document_json(self.pages, self.failed), **self.data}
            if not self.entities:
                self._document_json["entities"] = []
            for page_json in self._document_json["pages"]:
                if self.confidence is not None and page_json["source"] == "ocr":
                    page_json["confidence"] = self.confidence
        return self._document_json

    def _id(self) -> str:
        return f"job-{len(self.forms)}" if self.forms else JOB

    def _progress(self, stage: str) -> dict[str, Any]:
        total = len(self._document()["pages"]) + len(self.failed)
        return {"stage": stage, "pages_done": self._done, "pages_total": total, "failed_pages": 0}

    def _job(self, *, with_result: bool) -> dict[str, Any]:
        stage = "done" if self._status == "succeeded" else "queued"
        name = self.forms[-1]["name"] if self.forms else self.earlier
        return {
            "id": self._id(),
            "created_at": datetime.now(UTC).timestamp() - self.age_s,
            "object": "job",
            "status": self._status,
            "file": {"name": name, "bytes": 1, "sha256": "0" * 64},
            "progress": self._progress(stage),
            "error": self._error,
            "result": self._answer() if with_result else None,
        }

    def _answer(self) -> dict[str, Any] | None:
        if self._status == "succeeded":
            return self._document()
        if self._status in {"failed", "cancelled"} and self._done:
            document = self._document()
            known = {name: document[name] for name in ("object", "kind", "page_count", "metadata")}
            pages = document["pages"][: self._done]
            text = "\n\f".join(page["text"] for page in pages)
            return {**known, "partial": True, "pages": pages, "failed_pages": [], "text": text}
        return None

    def _without_key(self, request: Request) -> Response | None:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return problem(401, "unauthorized", "a key is needed")
        return None

    def _refused(self, request: Request) -> Response | None:
        if refused := self._without_key(request):
            return refused
        if self.forgotten:
            return problem(404, "not_found", "no such job; jobs are forgotten after 86400 s")
        return None

    async def _post(self, request: Request) -> Response:
        async with request.form() as form:
            upload = form["file"]
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            fields["name"] = getattr(upload, "filename", "")
        self._uploads += 1
        self.most_uploads = max(self.most_uploads, self._uploads)
        if self.hold_uploads is not None:
            await self.hold_uploads.wait()
        self._uploads -= 1
        if refused := self._refused(request):
            return refused
        self.forms.append(fields)
        if self.refusals:
            return self.refusals.pop(0)
        self._events, self._status, self._error, self._done = [], "running", None, 0
        self._document_json = None
        locked = self.library.documents.get(fields["name"])
        password = locked.password if locked and locked.password else self.password
        if password is not None and fields.get("password") != password:
            code = "wrong_password" if "password" in fields else "password_required"
            await self.finish("failed", {"message": "the file is encrypted", "code": code, "status": 422})
        elif not self.step_by_step:
            for number in range(1, self._progress("reading")["pages_total"] + 1):
                if number in self.failed:
                    self._done += 1
                else:
                    await self.read_page()
            if fields.get("store"):
                self.library.keep(fields["name"], f"file-{self._id()}")
            await self.finish()
        return JSONResponse(self._job(with_result=False), 202)

    async def _models(self, request: Request) -> Response:
        return self._refused(request) or JSONResponse({"object": "list", "data": self.hearing.models()})

    async def _system(self, request: Request) -> Response:
        engines = {name: {"version": f"{name} 1.0", "languages": codes} for name, codes in ENGINES.items()}
        if self.system is not None:
            return self.system
        return self._refused(request) or JSONResponse({"ocr": {"engines": engines, "languages": self.usual_languages}})

    async def _get(self, request: Request) -> Response:
        if not self.forms and f"file-{request.path_params['id']}" in self.library.files:
            return problem(404, "not_found", "no such job: a program sent this file")
        return self._refused(request) or JSONResponse(
            self._job(with_result=request.query_params.get("result") != "false")
        )

    async def _stored(self, request: Request) -> Response:
        if request.path_params["id"] != f"file-{self._id()}" or self._status != "succeeded":
            return problem(404, "not_found", "there is no such document")
        if refused := self._without_key(request):
            return refused
        name = self.forms[-1]["name"] if self.forms else self.earlier
        head = {"id": request.path_params["id"], "filename": name, "bytes": 1, "state": "to_review", "revision": 1}
        return JSONResponse({**self._document(), **head})

    async def _delete(self, request: Request) -> Response:
        self.deleted_ids.append(request.path_params["id"])
        if request.path_params["id"] != self._id() or self._status != "running":
            return Response(status_code=204)
        await self.finish("cancelled")
        return JSONResponse(self._job(with_result=False))

    async def _delete_stored(self, request: Request) -> Response:
        self.deleted_documents.append(request.path_params["id"])
        return JSONResponse({"id": request.path_params["id"], "object": "document.deleted", "deleted": True})

    async def _result(self, request: Request) -> Response:
        return self._refused(request) or Response(f"as {request.query_params['format']}")

    async def _picture(self, request: Request) -> Response:
        number = request.path_params["number"]
        self.pictures.append(f"{number}?{request.url.query}")
        picture = await asyncio.to_thread(self.pages[number - 1].picture, float(request.query_params["dpi"]))
        return self._refused(request) or Response(picture, media_type="image/png")

    async def _stream(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        last = request.headers.get("last-event-id")
        self.resumed_from.append(last)
        if last is not None and self.ended_meanwhile:
            return Response(status_code=204)
        cut, self.cut_after = self.cut_after, None
        return StreamingResponse(self._since(int(last or 0), cut), media_type="text/event-stream")

    async def _since(self, position: int, cut: int | None) -> AsyncIterator[str]:
        yield ": here\n\n"
        while True:
            async with self._changed:
                while len(self._events) <= position:
                    await self._changed.wait()
            name, data = self._events[position]
            position += 1
            yield f"event: {name}\nid: {position}\ndata: {json.dumps(data)}\n\n"
            if name == "end" or position == cut:
                return


def problem(status: int, code: str, detail: str, **headers: str) -> Response:
    """An error as the service writes it."""
    body = {"status": status, "code": code, "detail": detail, "request_id": "r-1"}
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse(body, status, http_headers, "application/problem+json")
