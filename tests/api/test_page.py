"""The files of the web page at /: headers, access without a key, and checks of their source."""

import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.browser_files import PAGE_PATHS as PATHS
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

FOLDER = Path(__file__).resolve().parents[2] / "backend" / "api" / "page"
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")}
INDEX = (FOLDER / "index.html").read_text(encoding="utf-8")
STRINGS = "".join(
    SCRIPTS[name] for name in ("strings.js", "speech_strings.js", "library_strings.js", "ledger_strings.js")
)
# Prefixes of keys that are built from values of the service: error_too_large, failed_too_large, stage_ocr, not_date.
BUILT_KEYS = (
    *("error_", "failed_", "stage_", "key_", "password_", "source_"),
    *("not_", "problem_", "state_", "metadata_"),
)


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


async def test_index(client: httpx.AsyncClient) -> None:
    """The page is HTML, and its policy lets nothing in from elsewhere and nothing inline run."""
    response = await client.get("/")

    assert (200, "text/html; charset=utf-8") == (response.status_code, response.headers["content-type"])
    assert "<!doctype html>" in response.text
    policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
    assert {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' blob:",
        "media-src": "blob:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    } == policy
    assert "camera=(), geolocation=(), microphone=(self)" == response.headers["permissions-policy"]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(PATHS))
async def test_headers_of_every_file(client: httpx.AsyncClient, path: str) -> None:
    """Each file has the media type that browsers require under nosniff, and sends no referrer."""
    response = await client.get(path)

    types = {
        "": "text/html",
        "css": "text/css",
        "js": "text/javascript",
        "svg": "image/svg+xml",
        "pdf": "application/pdf",
    }
    assert types[path.rpartition(".")[2].strip("/")] == response.headers["content-type"].split(";")[0]
    assert "nosniff" == response.headers["x-content-type-options"]
    assert "no-referrer" == response.headers["referrer-policy"]
    assert "DENY" == response.headers["x-frame-options"]
    assert "no-cache" == response.headers["cache-control"]
    assert response.content


async def test_a_known_version_is_not_sent_again(client: httpx.AsyncClient) -> None:
    """A client with the current version gets 304 without a body; others get the file."""
    etag = (await client.get("/page/app.js")).headers["etag"]

    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        again = await client.get("/page/app.js", headers={"If-None-Match": known})
        assert (304, b"", etag) == (again.status_code, again.content, again.headers["etag"])
        assert "content-security-policy" in again.headers
    assert 200 == (await client.get("/page/app.js", headers={"If-None-Match": '"other"'})).status_code
    assert etag != (await client.get("/page/dom.js")).headers["etag"]


async def test_head_and_foreign_methods(client: httpx.AsyncClient) -> None:
    """HEAD answers as GET without the body; what is posted there is for embeddings, and nothing can be put."""
    full, head = await client.get("/"), await client.head("/")

    assert (200, b"") == (head.status_code, head.content)
    assert full.headers["content-length"] == head.headers["content-length"]
    assert 405 == (await client.put("/")).status_code


@pytest.mark.parametrize("path", ["/page/absent.js", "/page/..%2Findex.html", "/page/", "/page/__init__.py"])
async def test_no_other_file_is_served(client: httpx.AsyncClient, path: str) -> None:
    """Only the files that were read at the start are served; no path leads elsewhere."""
    response = await client.get(path)

    assert (404, "not_found") == (response.status_code, response.json()["code"])


async def test_the_page_needs_no_key(services: FakeServices) -> None:
    """The page is public, like /health; the routes it calls are not."""
    async with connect(services, ApiOptions(api_keys=("secret",))) as client:
        assert {200} == {(await client.get(path)).status_code for path in PATHS}
        assert 401 == (await client.get("/v1/models")).status_code


async def test_the_page_in_metrics_and_documentation(client: httpx.AsyncClient) -> None:
    """Files of the page count as two routes however many there are, and are no operations of the API."""
    await client.get("/")
    await client.get("/page/app.js")

    metrics = (await client.get("/metrics")).text
    assert 'financia_requests_total{route="/",status="200"} 1.0' in metrics
    assert 'financia_requests_total{route="/page/{name}",status="200"} 1.0' in metrics
    assert 'route="/page/app.js"' not in metrics
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert "/page/{name}" not in paths
    assert ["post"] == list(paths["/"])  # text-embeddings-inference's


def test_nothing_is_inline_or_foreign() -> None:
    """The page works offline: every address is a file of its own, and no script, style or listener is in the HTML."""
    for tag, attributes in Tags(INDEX).tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        assert tag != "style"
        assert tag != "script" or attributes.get("src"), attributes
        for name in ("src", "href"):
            if address := attributes.get(name):
                assert address.startswith("#") or address == "docs" or f"/{address}" in PATHS, (tag, address)
    addresses = [url for text in (INDEX, *SCRIPTS.values()) for url in re.findall(r"https?://[^\s\"'`]+", text)]
    assert {"http://www.w3.org/2000/svg"} == set(addresses)


def test_every_import_is_a_file_of_the_page() -> None:
    """A module that is missing would leave a blank page."""
    imported = {
        name for text in SCRIPTS.values() for name in re.findall(r'(?:from |import |import\()"\./([\w.]+)"', text)
    }

    assert imported <= SCRIPTS.keys()
    assert SCRIPTS.keys() - imported == {"app.js"}


@pytest.mark.parametrize(
    "word",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc", "DOMParser"],
)
def test_no_text_becomes_html(word: str) -> None:
    """Text of documents is hostile: nothing on the page turns text into markup or code."""
    assert [] == [name for name, text in SCRIPTS.items() if word in text]


def strings_of(language: str, table: str = "STRINGS") -> dict[str, str]:
    """The page's strings of one language, by key."""
    block = STRINGS.partition(f"export const {table} =")[2].partition("\n};")[0]
    block = block.partition(f"\n  {language}: {{")[2].partition("\n  },")[0]
    return dict(re.findall(r'\b(\w+): "([^"]*)"', block))


def test_library_and_ledger_are_loaded_when_they_are_opened() -> None:
    """Who reads one document fetches nothing of them: they are imported by a call alone, with their own style."""
    static = {name: set(re.findall(r'(?:from|import) "\./([\w.]+)"', text)) for name, text in SCRIPTS.items()}
    loaded, waiting = set(), {"app.js"}
    while waiting:
        loaded |= waiting
        waiting = set().union(*(static[name] for name in waiting)) - loaded

    assert {"views.js", "strings.js"} <= loaded
    assert set() == loaded & {"library.js", "library_strings.js", "collections.js", "hit_view.js", "facets.js"}
    assert set() == loaded & {"ledger.js", "ledger_strings.js", "document_calls.js", "validation.js"}
    assert "library.css" not in INDEX
    assert "ledger.css" not in INDEX


@pytest.mark.parametrize(
    "table", ["STRINGS", "SPEECH_STRINGS", "LIBRARY_STRINGS", "LEDGER_STRINGS", "TYPES", "CLASSES"]
)
def test_both_languages_have_the_same_strings(table: str) -> None:
    """Each key is in both languages, with the same placeholders."""
    english, spanish = strings_of("en", table), strings_of("es", table)

    assert english.keys() == spanish.keys()
    assert len(english) > 10
    for key, text in english.items():
        assert set(re.findall(r"\{(\w+)[:}]", text)) == set(re.findall(r"\{(\w+)[:}]", spanish[key])), key
        assert spanish[key].strip(), key


def test_every_string_is_used_and_every_used_key_exists() -> None:
    """No string is unused, and none that the page uses is missing."""
    source = INDEX + "".join(text for name, text in SCRIPTS.items() if not name.endswith("strings.js"))
    keys = {
        key
        for table in ("STRINGS", "SPEECH_STRINGS", "LIBRARY_STRINGS", "LEDGER_STRINGS")
        for key in strings_of("en", table)
    }

    stages = {"queued", "opening", "reading", "understanding"}  # of a job's progress
    dead = [key for key in keys - stages if f'"{key}"' not in source and not key.startswith(BUILT_KEYS)]
    assert [] == dead
    assert set(re.findall(r'data-t(?:-[a-z-]+)?="(\w+)"', INDEX)) <= keys
    assert stages <= keys
