"""A fake of the service's files and vector stores for the page, driven by the test; it finds words, not meanings."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.browser.drawn_documents import HEIGHT, WIDTH, DrawnPage

_MOST = 50  # hits of one search


@dataclass
class StoredDocument:
    """A file as the service reads it: drawn pages, or plain text, or the reason why it cannot be read."""

    pages: list[DrawnPage] = field(default_factory=list)
    text: str = ""
    language: str = "es"
    found: dict[str, list[str | float]] = field(default_factory=dict)
    failure: tuple[str, str] | None = None  # code and message
    reason: str = "unreadable_file"
    password: str = ""  # that opens it, where `failure` says that it is locked
    recording: bytes = b""  # in which the text is said, a word a quarter of a second

    def chunks(self) -> list[dict[str, Any]]:
        """A chunk a page; of plain text one a paragraph."""
        if not self.pages:
            starts = [match.start() for match in re.finditer(r"[^\n].*", self.text)]
            texts = [match[0] for match in re.finditer(r"[^\n].*", self.text)]
            page = 1 if self.recording else None  # a minute
            return [{"text": text, "start": start, "page": page} for text, start in zip(texts, starts, strict=True)]
        chunks, start = [], 0
        for number, page in enumerate(self.pages, 1):
            chunks.append({"text": page.text, "start": start, "page": number})
            start += len(page.text) + 2
        return chunks


@dataclass
class FakeLibrary:
    """Collections of one caller. Files whose name `documents` does not have fail; ``step_by_step`` ones wait."""

    documents: dict[str, StoredDocument] = field(default_factory=dict)
    step_by_step: bool = False
    encoder_is_current: bool = True
    stores: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # id -> name
    members: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # store -> file -> answer
    searches: list[dict[str, Any]] = field(default_factory=list)
    answers: list[list[dict[str, Any]]] = field(default_factory=list)  # hits of each search
    warnings: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)  # of the best hits, instead of their own
    hits_over_all_pages: bool = False  # of their documents, with the query's words on one
    late_lists: list[dict[str, Any]] = field(default_factory=list)  # a file as the next lists have it, one each
    store_reads: int = 0
    downloads: list[str] = field(default_factory=list)  # names of files whose bytes were asked for
    guard: Callable[[Request], Response | None] = lambda request: None  # e.g. asks for a key

    def __post_init__(self) -> None:
        self._numbers = 0

    def routes(self) -> list[Route]:
        stores, store = "/v1/vector_stores", "/v1/vector_stores/{id}"
        return [
            Route("/v1/files/{file}", self._delete_file, methods=["DELETE"]),
            Route("/v1/files/{file}", self._file),
            Route("/v1/files/{file}/content", self._content),
            Route("/v1/files/{file}/pages/{number:int}", self._picture),
            Route(stores, self._list_stores),
            Route(stores, self._create, methods=["POST"]),
            Route(store, self._read),
            Route(store, self._delete_store, methods=["DELETE"]),
            Route(f"{store}/reembed", self._reembed, methods=["POST"]),
            Route(f"{store}/files", self._list_files),
            Route(f"{store}/files", self._add, methods=["POST"]),
            Route(f"{store}/files/{{file}}", self._remove, methods=["DELETE"]),
            Route(f"{store}/files/{{file}}/content", self._chunks),
            Route(f"{store}/search", self._search, methods=["POST"]),
        ]

    def make_store(self, name: str, documents: Mapping[str, StoredDocument] | None = None) -> str:
        """A collection with these files, all of them read; returns its id."""
        self.documents |= documents or {}
        number = self._next()
        store_id = f"vs_{number}"
        self.stores[store_id] = {"id": store_id, "object": "vector_store", "name": name, "created_at": number}
        self.members[store_id] = {}
        for file_name in documents or {}:
            file_id = self._keep(file_name)
            self.members[store_id][file_id] = self._member(store_id, file_id)
            self.proceed(store_id, file_id, "done")
        return store_id

    def proceed(self, store_id: str, file_id: str, stage: str, done: int = 0, total: int | None = None) -> None:
        """Let the indexing of a file come to a stage."""
        member = self.members[store_id][file_id]
        document = self.documents.get(member["filename"])
        member["progress"] = {"stage": stage, "done": done, "total": total}
        if stage != "done":
            return
        if document is None or document.failure is not None:
            code, message = ("unsupported_file", "unknown kind") if document is None else document.failure or ("", "")
            ours = {"reason": document.reason if document else "wrong_media_type"}
            ours["retryable"] = ours["reason"] == "deadline_exceeded"
            member |= {"status": "failed", "last_error": {"code": code, "message": message, **ours}}
            return
        counts = {"chunks": len(document.chunks()), "page_count": len(document.pages)}
        member |= {"status": "completed", **counts}
        member |= {"language": document.language, "found_attributes": document.found}

    def id_of(self, name: str) -> str:
        """The file's id."""
        return next(file_id for file_id, file_name in self.files.items() if file_name == name)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _keep(self, name: str) -> str:
        file_id = f"file-{self._next()}"
        self.files[file_id] = name
        return file_id

    def _member(self, store_id: str, file_id: str) -> dict[str, Any]:
        return {
            "id": file_id, "object": "vector_store.file", "vector_store_id": store_id, "filename": self.files[file_id],
            "created_at": self._next(), "status": "in_progress", "last_error": None, "attributes": {}, "chunks": 0,
            "progress": {"stage": "queued", "done": 0, "total": None}, "found_attributes": {}, "page_count": 0,
            "language": None, "usage_bytes": 1000,
        }  # fmt: skip

    def _store(self, store_id: str) -> dict[str, Any]:
        members = self.members[store_id].values()
        states = ("in_progress", "completed", "failed", "cancelled")
        counts = {state: sum(member["status"] == state for member in members) for state in states}
        return {
            "reembedding": None, **self.stores[store_id], "file_counts": {**counts, "total": len(members)},
            "usage_bytes": 1000 * len(members), "chunks": sum(member["chunks"] for member in members),
            "encoder": {"name": "all-MiniLM-L6-v2", "width": 384, "fingerprint": "1f0c"} if members else None,
        }  # fmt: skip

    def _refused(self, request: Request) -> Response | None:
        if refused := self.guard(request):
            return refused
        if (
            request.path_params.get("id", next(iter(self.stores), "")) not in self.stores
            and "id" in request.path_params
        ):
            return _problem(404, "not_found", "no such vector store")
        return None

    def keep(self, name: str, file_id: str) -> None:
        """What a job does that has read a file."""
        if name in self.documents and self.documents[name].password:
            self.documents[name].failure = None
        self.files[file_id] = name

    async def _delete_file(self, request: Request) -> Response:
        file_id = request.path_params["file"]
        if self.files.pop(file_id, None) is None:
            return _problem(404, "not_found", "no such file")
        for members in self.members.values():
            members.pop(file_id, None)
        return JSONResponse({"id": file_id, "object": "file", "deleted": True})

    async def _file(self, request: Request) -> Response:
        name = self.files.get(request.path_params["file"])
        return JSONResponse({"filename": name}) if name else _problem(404, "not_found", "no such file")

    async def _content(self, request: Request) -> Response:
        name = self.files[request.path_params["file"]]
        self.downloads.append(name)
        document = self.documents.get(name, StoredDocument())
        return self._refused(request) or Response(document.recording or name)

    async def _picture(self, request: Request) -> Response:
        page = self.documents[self.files[request.path_params["file"]]].pages[request.path_params["number"] - 1]
        picture = await asyncio.to_thread(page.picture, float(request.query_params["dpi"]))
        return self._refused(request) or Response(picture, media_type="image/png")

    async def _list_stores(self, request: Request) -> Response:
        stores = [self._store(store_id) for store_id in reversed(self.stores)]
        return self._refused(request) or _part(request, stores)

    async def _create(self, request: Request) -> Response:
        return self._refused(request) or JSONResponse(self._store(self.make_store((await request.json())["name"])))

    async def _read(self, request: Request) -> Response:
        self.store_reads += 1
        return self._refused(request) or JSONResponse(self._store(request.path_params["id"]))

    async def _delete_store(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        del self.stores[request.path_params["id"]], self.members[request.path_params["id"]]
        return JSONResponse({"deleted": True})

    async def _reembed(self, request: Request) -> Response:
        store = self.stores[request.path_params["id"]]
        store["reembedding"] = {"chunks_done": 0, "chunks_total": 8}
        return JSONResponse(self._store(store["id"]))

    async def _list_files(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        members = sorted(self.members[request.path_params["id"]].values(), key=lambda one: -one["created_at"])
        if self.late_lists:
            late = self.late_lists.pop(0)
            members = [late if member["id"] == late["id"] else member for member in members]
        return _part(request, members)

    async def _add(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        store_id, file_id = request.path_params["id"], (await request.json())["file_id"]
        self.members[store_id][file_id] = self._member(store_id, file_id)
        if not self.step_by_step:
            self.proceed(store_id, file_id, "done")
        return JSONResponse(self.members[store_id][file_id])

    async def _remove(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        if self.members[request.path_params["id"]].pop(request.path_params["file"], None) is None:
            return _problem(404, "not_found", "no such file")
        return JSONResponse({"deleted": True})

    async def _chunks(self, request: Request) -> Response:
        document = self.documents[self.files[request.path_params["file"]]]
        data = [
            {"type": "text", "text": chunk["text"], "start": chunk["start"], "end": chunk["start"] + len(chunk["text"])}
            for chunk in document.chunks()
        ]
        for answer in data if document.recording else ():
            answer["words"] = _spoken_words(document, answer)
        return JSONResponse({"object": "vector_store.file_content.page", "data": data, "has_more": False})

    async def _search(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        body = await request.json()
        self.searches.append(body)
        weights = body.get("ranking_options", {}).get("hybrid_search", {})
        if not self.encoder_is_current and weights.get("embedding_weight") != 0:
            return _problem(409, "wrong_encoder", "the vectors are of another model")
        members = self.members[request.path_params["id"]].values()
        read = [member for member in members if member["status"] == "completed" and _fits(member, body.get("filters"))]
        hits = [hit for member in read for hit in self._hits(member, body["query"])]
        for hit in hits if self.hits_over_all_pages else ():
            hit["pages"] = [number for number, _ in enumerate(self.documents[hit["filename"]].pages, 1)]
        hits.sort(key=lambda hit: -hit["score"])
        for hit, score in zip(hits, self.scores, strict=False):
            hit["score"] = score
        limit = min(_MOST, body["max_num_results"])
        self.answers.append(hits[:limit])
        answer = {"data": hits[:limit], "has_more": len(hits) > limit, "warnings": self.warnings}
        return JSONResponse({"object": "vector_store.search_results.page", "search_query": body["query"], **answer})

    def _hits(self, member: dict[str, Any], query: str) -> list[dict[str, Any]]:
        document = self.documents[member["filename"]]
        words = [word.casefold() for word in re.findall(r"\w+", query)]
        hits = []
        for chunk in document.chunks():
            places = _words_of(document, chunk)
            found = [place for place in places if place["text"].casefold().strip(".,:;¿?") in words]
            if found:
                hits.append(_hit(member, chunk, places, found, len(words)))
        return hits


def _words_of(document: StoredDocument, chunk: dict[str, Any]) -> list[dict[str, Any]]:
    """The words of a chunk with their places in it and, on a page, their boxes."""
    if document.recording:
        return [{**word, "text": chunk["text"][word["start"] : word["end"]]} for word in _spoken_words(document, chunk)]
    if chunk["page"] is not None:
        number: int = chunk["page"]
        return document.pages[number - 1].words()
    matches = re.finditer(r"\S+", chunk["text"])
    return [{"text": match[0], "start": match.start(), "end": match.end(), "box": None} for match in matches]


def _spoken_words(document: StoredDocument, chunk: dict[str, Any]) -> list[dict[str, Any]]:
    """The words of a chunk with their seconds."""
    before = len(document.text[: chunk["start"]].split())
    matches = enumerate(re.finditer(r"\S+", chunk["text"]), before)
    return [
        {"start": match.start(), "end": match.end(), "start_s": 0.25 * index, "end_s": 0.25 * (index + 1)}
        for index, match in matches
    ]


def _hit(
    member: dict[str, Any], chunk: dict[str, Any], places: list[dict[str, Any]], found: list[dict[str, Any]], asked: int
) -> dict[str, Any]:
    is_spoken, page = "start_s" in places[0], chunk["page"]
    part = min(1.0, len({place["text"] for place in found}) / asked)

    def on_page(place: dict[str, Any]) -> list[dict[str, Any]]:
        if is_spoken:
            return [{"page": page, "start_s": place["start_s"], "end_s": place["end_s"]}]
        return [] if page is None else [{"page": page, "box": place["box"]}]

    return {
        "file_id": member["id"], "filename": member["filename"], "score": 0.5 + part / 2,
        "attributes": member["attributes"], "content": [{"type": "text", "text": chunk["text"]}],
        "page": page, "pages": [] if page is None else [page], "page_sizes": [] if page is None else [_size(page)],
        "boxes": [box for place in places for box in on_page(place)],
        "start": chunk["start"], "end": chunk["start"] + len(chunk["text"]),
        "highlights": [{"start": one["start"], "end": one["end"], "boxes": on_page(one)} for one in found],
        "start_s": found[0]["start_s"] if is_spoken else None, "end_s": places[-1]["end_s"] if is_spoken else None,
        "scores": {"vector": 0.61, "keyword": 7.25, "rerank": None},
    }  # fmt: skip


def _fits(member: dict[str, Any], wanted: dict[str, Any] | None) -> bool:
    """Whether a file passes a filter, as OpenAI's vector stores define it."""
    if wanted is None:
        return True
    if wanted["type"] in {"and", "or"}:
        joined = all if wanted["type"] == "and" else any
        return joined(_fits(member, one) for one in wanted["filters"])
    values, value = member["found_attributes"].get(wanted["key"], []), wanted["value"]
    tests: dict[str, Callable[[Any], bool]] = {
        "eq": lambda one: one == value,
        "in": lambda one: one in value,
        "gte": lambda one: one >= value,
        "lte": lambda one: one <= value,
        "lt": lambda one: one < value,
    }
    return any(tests[wanted["type"]](one) for one in values)


def _size(number: int) -> dict[str, Any]:
    return {"page": number, "width": WIDTH, "height": HEIGHT, "rotation": 0}


def _part(request: Request, items: list[dict[str, Any]]) -> Response:
    limit, after = int(request.query_params.get("limit", 20)), request.query_params.get("after")
    start = next((index + 1 for index, item in enumerate(items) if item["id"] == after), 0)
    part = items[start : start + limit]
    ends = {"first_id": part[0]["id"], "last_id": part[-1]["id"]} if part else {}
    return JSONResponse({"object": "list", "data": part, "has_more": start + limit < len(items), **ends})


def _problem(status: int, code: str, detail: str) -> Response:
    body = {"status": status, "code": code, "detail": detail, "request_id": "r-1"}
    return JSONResponse(body, status, media_type="application/problem+json")
