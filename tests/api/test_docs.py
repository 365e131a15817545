"""The documentation at /docs: its files come from this service alone, and nothing else may be loaded by it."""

import hashlib
from pathlib import Path

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.browser_files import DOCS_PATHS as PATHS
from tests.api.conftest import connect
from tests.api.fakes import FakeServices
from tests.api.test_page import Tags

FOLDER = Path(__file__).resolve().parents[2] / "backend" / "api" / "swagger_ui"
# Of swagger-ui-dist 5.35.0, as the npm registry has it.
CHECKSUMS = {
    "swagger-ui-bundle.js": "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
    "swagger-ui.css": "5ed08757e53da3e026d6cbecc61fe5d43585c9560b302d534ad56692519a273d",
}


async def test_every_address_in_the_page_is_served(client: httpx.AsyncClient) -> None:
    """What /docs links to is relative, and this service has it."""
    response = await client.get("/docs")
    tags = Tags(response.text).tags
    links = [value for _, found in tags for name, value in found.items() if name in {"href", "src"} and value]

    assert (200, "text/html; charset=utf-8") == (response.status_code, response.headers["content-type"])
    assert set(PATHS) - {"/docs"} <= {f"/{link}" for link in links}
    assert [] == [link for link in links if ":" in link or link.startswith("/")]
    assert {200} == {(await client.get(f"/{link}")).status_code for link in links}


@pytest.mark.parametrize("path", sorted(PATHS))
async def test_headers_of_every_file(client: httpx.AsyncClient, path: str) -> None:
    """The policy lets nothing in from elsewhere, no file may be framed or sniffed, and a known version is not sent."""
    response = await client.get(path)
    again = await client.get(path, headers={"If-None-Match": response.headers["etag"]})

    policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
    sources = {word for words in policy.values() for word in words.split()}
    assert {"'none'", "'self'", "'unsafe-inline'", "data:", "blob:"} == sources
    assert ("'self'", "'self'") == (policy["script-src"], policy["connect-src"])
    assert ("nosniff", "DENY") == (response.headers["x-content-type-options"], response.headers["x-frame-options"])
    assert (304, b"") == (again.status_code, again.content)


@pytest.mark.parametrize("name", sorted(CHECKSUMS))
def test_foreign_files_are_unchanged(name: str) -> None:
    """The files of others are as their package has them, with its licences beside them."""
    found = hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()

    assert CHECKSUMS[name] == found
    assert "Apache License" in (FOLDER / "LICENSE").read_text(encoding="utf-8")
    assert "SmartBear" in (FOLDER / "NOTICE").read_text(encoding="utf-8")


async def test_the_documentation_needs_no_key(services: FakeServices) -> None:
    """It is public, like /health; its files count as one route, and are no operations of the API."""
    async with connect(services, ApiOptions(api_keys=("secret",))) as client:
        assert {200} == {(await client.get(path)).status_code for path in PATHS}
        metrics = (await client.get("/metrics")).text
        assert 'financia_requests_total{route="/docs/{name}",status="200"} 3.0' in metrics
        assert not {path for path in (await client.get("/openapi.json")).json()["paths"] if path.startswith("/docs")}
