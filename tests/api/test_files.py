"""``/v1/files``."""

import hashlib

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.files import FileAnswer
from backend.errors import Unavailable
from tests.api.checks import problem, require_list, require_schema
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

PURPOSE = {"purpose": "assistants"}
NAMES = ['factura "ñ" 契約.pdf', "a\\b%20c;.txt", "e\u0301 🧾.pdf", "x" * 300, "..", "line\nbreak"]


async def _upload(client: httpx.AsyncClient, name: str = "a.txt", content: bytes = b"text", **fields: str) -> str:
    answer = await client.post("/v1/files", files={"file": (name, content)}, data={**PURPOSE, **fields})
    assert 200 == answer.status_code, answer.text
    return str(answer.json()["id"])


async def test_a_file(client: httpx.AsyncClient) -> None:
    """It is kept with its name, size, hash and purpose, and answered the same when asked for."""
    created = await client.post("/v1/files", files={"file": ("a.txt", b"text")}, data={"purpose": "user_data"})
    asked = await client.get(f"/v1/files/{created.json()['id']}")

    require_schema(FileAnswer, created.json())
    assert created.json() == asked.json()
    assert {
        "object": "file",
        "bytes": 4,
        "created_at": 1767225600,
        "filename": "a.txt",
        "purpose": "user_data",
        "status": "processed",
        "expires_at": None,
        "sha256": hashlib.sha256(b"text").hexdigest(),
    }.items() <= asked.json().items()


async def test_a_file_alone_as_the_body(client: httpx.AsyncClient) -> None:
    """The purpose is in the query then."""
    answer = await client.post("/v1/files?purpose=batch", content=b"text")

    assert (200, "batch", "file") == (answer.status_code, answer.json()["purpose"], answer.json()["filename"])


async def test_expiry(client: httpx.AsyncClient) -> None:
    """In OpenAI's two fields of the form."""
    fields = {**PURPOSE, "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    answer = await client.post("/v1/files", files={"file": b"a"}, data=fields)

    assert 1767225600 + 3600 == answer.json()["expires_at"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param({}, ["purpose", "required"], id="no-purpose"),
        pytest.param({"purpose": "tea"}, ["purpose", "assistants", "evals"], id="unknown-purpose"),
        pytest.param({"expires_after[seconds]": "3600", **PURPOSE}, ["expires_after[anchor]"], id="no-anchor"),
        pytest.param(
            {"expires_after[anchor]": "created_at", "expires_after[seconds]": "9", **PURPOSE}, ["3600"], id="too-soon"
        ),
        pytest.param(
            {"expires_after[anchor]": "now", "expires_after[seconds]": "3600", **PURPOSE}, ["created_at"], id="anchor"
        ),
    ],
)
async def test_bad_fields(client: httpx.AsyncClient, fields: dict[str, str], named: list[str]) -> None:
    """The message says what is wrong and what is known."""
    problem(await client.post("/v1/files", files={"file": b"a"}, data=fields), 422, "invalid_field", *named)


async def test_no_file(client: httpx.AsyncClient) -> None:
    """Nothing is kept of an empty file or of JSON."""
    problem(await client.post("/v1/files", files={"file": ("a", b"")}, data=PURPOSE), 400, "bad_input", "empty")
    problem(await client.post("/v1/files", json=PURPOSE), 415, "wrong_media_type")
    problem(await client.post("/v1/files", files={"file": b"a" * 100_001}, data=PURPOSE), 413, "too_large")

    assert [] == (await client.get("/v1/files")).json()["data"]


@pytest.mark.parametrize("name", NAMES)
async def test_names(client: httpx.AsyncClient, name: str) -> None:
    """Any name comes back as it was, but for control characters; also in the header of the download, which is ASCII."""
    file_id = await _upload(client, name)
    content = await client.get(f"/v1/files/{file_id}/content")

    kept = (await client.get(f"/v1/files/{file_id}")).json()["filename"]
    assert name.replace("\n", "\ufffd")[:255] == kept
    disposition = content.headers["content-disposition"]
    assert disposition.isascii()
    assert kept == httpx.URL(f"http://a/?n={disposition.partition(chr(39) * 2)[2]}").params["n"]


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        pytest.param(b"filename*=UTF-8''%e5%a5%91%20a.pdf", "契 a.pdf", id="whole-name-alone"),
        pytest.param(b"filename=\"a.pdf\"; filename*=utf-8'es'%c3%b1.pdf", "ñ.pdf", id="beside-a-plain-one"),
        pytest.param(b"filename*=ISO-8859-1''%f1.pdf", "ñ.pdf", id="latin-1"),
        pytest.param(b"filename=\"; filename*=UTF-8''b\"", "; filename*=UTF-8''b", id="within-quotes-it-is-a-name"),
        pytest.param(b"filename*=UTF-8''%ff%00", "\ufffd\ufffd", id="no-characters"),
        pytest.param(b'filename="' + b"n" * 10_000 + b'"', "n" * 255, id="very-long"),
        pytest.param(b'filename="%22q%22.txt"', '"q".txt', id="quotation-marks-as-browsers-send-them"),
        pytest.param(b'filename="a%0D%0Ab.txt"', "a\ufffd\ufffdb.txt", id="lines-as-browsers-send-them"),
        pytest.param(b'filename="50%25 %41 %00 %0d %2522.txt"', "50%25 %41 %00 %0d %2522.txt", id="no-other-escapes"),
        pytest.param('filename="ñ.pdf"'.encode(), "ñ.pdf", id="utf-8-as-browsers-send-it"),
    ],
)
async def test_names_in_headers(client: httpx.AsyncClient, disposition: bytes, name: str) -> None:
    """RFC 5987's form, which older Python clients send, and browsers' plain UTF-8."""
    body = b'--b\r\nContent-Disposition: form-data; name="file"; %s\r\n\r\nx\r\n--b--\r\n' % disposition
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = await client.post("/v1/files?purpose=batch", content=body, headers=headers)

    assert 200 == answer.status_code
    assert name == answer.json()["filename"]


async def test_content(client: httpx.AsyncClient) -> None:
    """The very bytes, of no type that a browser would run."""
    content = bytes(range(256)) * 300
    answer = await client.get(f"/v1/files/{await _upload(client, 'a.html', content)}/content")

    assert content == answer.content
    assert ("application/octet-stream", "nosniff") == (
        answer.headers["content-type"],
        answer.headers["x-content-type-options"],
    )
    assert str(len(content)) == answer.headers["content-length"]


async def test_lists(client: httpx.AsyncClient) -> None:
    """The newest first, part by part behind a cursor, and of one purpose."""
    ids = [await _upload(client, purpose=purpose) for purpose in ("batch", "vision", "batch")]
    whole = (await client.get("/v1/files")).json()
    first = (await client.get("/v1/files?limit=2&order=asc&after=")).json()
    second = (await client.get(f"/v1/files?limit=2&order=asc&after={first['last_id']}")).json()
    batch = (await client.get("/v1/files?purpose=batch")).json()

    require_list(FileAnswer, whole)
    assert (ids[::-1], False) == ([file["id"] for file in whole["data"]], whole["has_more"])
    assert (ids[:2], True) == ([file["id"] for file in first["data"]], first["has_more"])
    assert (ids[2:], False, ids[2], ids[2]) == (
        [file["id"] for file in second["data"]],
        second["has_more"],
        second["first_id"],
        second["last_id"],
    )
    assert [ids[2], ids[0]] == [file["id"] for file in batch["data"]]


async def test_an_empty_list(client: httpx.AsyncClient) -> None:
    answer = (await client.get("/v1/files")).json()

    assert {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False} == answer


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"), ("limit=10001", "limit"), ("order=up", "order"), ("after=file-9", "after"),
        ("after=%00", "after"), ("before=a/b", "before"),
    ],
)  # fmt: skip
async def test_bad_lists(client: httpx.AsyncClient, query: str, named: str) -> None:
    problem(await client.get(f"/v1/files?{query}"), 422, "invalid_field", named)


async def test_delete(client: httpx.AsyncClient) -> None:
    """A file that was deleted is gone."""
    file_id = await _upload(client)
    deleted = await client.delete(f"/v1/files/{file_id}")

    assert {"id": file_id, "object": "file", "deleted": True} == deleted.json()
    problem(await client.get(f"/v1/files/{file_id}"), 404, "not_found", file_id)
    problem(await client.delete(f"/v1/files/{file_id}"), 404, "not_found")


@pytest.mark.parametrize("file_id", ["file-9", "%00", "x" * 300, "ñ", "'; DROP"])
async def test_unknown_ids(client: httpx.AsyncClient, file_id: str) -> None:
    """What no id looks like reaches no storage."""
    for path in (f"/v1/files/{file_id}", f"/v1/files/{file_id}/content", f"/v1/files/{file_id}/pages/1"):
        problem(await client.get(path), 404, "not_found")


async def test_pages(client: httpx.AsyncClient) -> None:
    """A page as a PNG, as fine as asked for."""
    path = f"/v1/files/{await _upload(client)}/pages"
    usual, fine = await client.get(f"{path}/1"), await client.get(f"{path}/2?dpi=300")

    assert ("image/png", b"\x89PNG page 1 at 110") == (usual.headers["content-type"], usual.content)
    assert b"\x89PNG page 2 at 300" == fine.content
    for wrong, named in (("3", "there is no page 3"), ("0", "number"), ("1?dpi=9", "dpi"), ("1?dpi=nan", "dpi")):
        problem(await client.get(f"{path}/{wrong}"), 422, "invalid_field", named)


async def test_pages_of_an_encrypted_file(client: httpx.AsyncClient) -> None:
    """The password comes in a header, with percent signs for what is not ASCII."""
    headers = {"X-Document-Password": "contrase%C3%B1a"}
    path = f"/v1/files/{await _upload(client)}/pages/1"
    page = await client.get(path, headers=headers)
    longer = await client.get(path, headers={"X-Document-Password": "a" * 3001})

    assert page.content.endswith("contraseña".encode())
    problem(longer, 422, "invalid_field", "X-Document-Password")


async def test_files_of_another_key(services: FakeServices) -> None:
    """They are not there: 404, and in no list."""
    mine, yours = ({"Authorization": f"Bearer {key}"} for key in ("team-a", "team-b"))
    async with connect(services, ApiOptions(api_keys=("team-a", "team-b"))) as client:
        created = await client.post("/v1/files", files={"file": b"a"}, data=PURPOSE, headers=mine)
        path = f"/v1/files/{created.json()['id']}"

        for suffix in ("", "/content", "/pages/1"):
            problem(await client.get(path + suffix, headers=yours), 404, "not_found")
        problem(await client.delete(path, headers=yours), 404, "not_found")
        assert [] == (await client.get("/v1/files", headers=yours)).json()["data"]
        assert 200 == (await client.get(path, headers=mine)).status_code


async def test_a_storage_that_is_away(client: httpx.AsyncClient, services: FakeServices) -> None:
    """503 with when to come back."""
    services.storage.error = Unavailable("the disk is full", retry_after_s=5.0)

    answer = await client.post("/v1/files", files={"file": b"a"}, data=PURPOSE)
    problem(answer, 503, "unavailable", "disk")
    assert "5" == answer.headers["retry-after"]
