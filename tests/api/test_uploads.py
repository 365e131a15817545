"""``/v1/uploads``."""

import hashlib
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.uploads import PartAnswer, UploadAnswer
from backend.errors import TooLarge
from tests.api.checks import problem, require_schema
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

PARTS = (b"The quick ", b"brown fox.")
WHOLE = b"".join(PARTS)
ANNOUNCED = {"bytes": len(WHOLE), "filename": "fox ñ.txt", "mime_type": "text/plain", "purpose": "assistants"}


async def _create(client: httpx.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/v1/uploads", json={**ANNOUNCED, **fields})
    assert 200 == answer.status_code, answer.text
    require_schema(UploadAnswer, answer.json())
    return str(answer.json()["id"])


async def _parts(client: httpx.AsyncClient, upload_id: str, *parts: bytes) -> list[str]:
    ids = []
    for part in parts:
        answer = await client.post(f"/v1/uploads/{upload_id}/parts", files={"data": ("upload", part)})
        assert 200 == answer.status_code, answer.text
        require_schema(PartAnswer, answer.json())
        ids.append(str(answer.json()["id"]))
    return ids


async def _complete(client: httpx.AsyncClient, upload_id: str, part_ids: list[str], **more: str) -> httpx.Response:
    return await client.post(f"/v1/uploads/{upload_id}/complete", json={"part_ids": part_ids, **more})


async def test_an_upload_becomes_a_file(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Of the parts in the order of complete; before, no list of files tells of it, and after, the parts are gone."""
    expires_after = {"anchor": "created_at", "seconds": 3600}
    upload_id = await _create(client, expires_after=expires_after)
    last, first = await _parts(client, upload_id, *PARTS[::-1])
    before = (await client.get("/v1/files")).json()["data"]
    answer = await _complete(client, upload_id, [first, last], md5=hashlib.md5(WHOLE).hexdigest())

    completed = answer.json()
    require_schema(UploadAnswer, completed)
    assert ("completed", len(WHOLE), "fox ñ.txt") == tuple(completed[key] for key in ("status", "bytes", "filename"))
    assert [] == before
    [file] = (await client.get("/v1/files")).json()["data"]
    assert completed["file"] == file
    assert file["created_at"] + 3600 == file["expires_at"]
    assert WHOLE == (await client.get(f"/v1/files/{file['id']}/content")).content
    assert 1 == (await services.storage.totals()).files


async def test_completed_again_it_is_the_same_file(client: httpx.AsyncClient) -> None:
    """As a client asks whose answer was lost; the parts are gone then."""
    upload_id = await _create(client)
    part_ids = await _parts(client, upload_id, WHOLE)
    first, second = [(await _complete(client, upload_id, part_ids)).json() for _ in range(2)]

    assert first["file"] == second["file"]
    assert 1 == len((await client.get("/v1/files")).json()["data"])
    problem(await client.post(f"/v1/uploads/{upload_id}/parts", files={"data": b"x"}), 404, "not_found", "upload_id")


async def test_a_cancelled_upload_is_gone(client: httpx.AsyncClient, services: FakeServices) -> None:
    """With its parts."""
    upload_id = await _create(client)
    part_ids = await _parts(client, upload_id, *PARTS)
    cancelled = await client.post(f"/v1/uploads/{upload_id}/cancel")

    assert ("cancelled", None) == (cancelled.json()["status"], cancelled.json()["file"])
    assert 0 == (await services.storage.totals()).files
    problem(await _complete(client, upload_id, part_ids), 404, "not_found", "upload_id")
    problem(await client.post(f"/v1/uploads/{upload_id}/cancel"), 404, "not_found", "upload_id")


@pytest.mark.parametrize(
    ("chosen", "more", "named"),
    [
        pytest.param([0], {}, "20", id="not-all-of-it"),
        pytest.param([0, 1, 1], {}, "20", id="too-much"),
        pytest.param([1, 0], {"md5": hashlib.md5(WHOLE).hexdigest()}, "md5", id="other-bytes"),
    ],
)
async def test_what_is_not_the_announced_file_is_refused(
    client: httpx.AsyncClient, chosen: list[int], more: dict[str, str], named: str
) -> None:
    """And can be completed rightly afterwards."""
    upload_id = await _create(client)
    part_ids = await _parts(client, upload_id, *PARTS)

    problem(await _complete(client, upload_id, [part_ids[index] for index in chosen], **more), 422, None, named)
    assert 200 == (await _complete(client, upload_id, part_ids)).status_code


async def test_parts_of_another_upload_are_refused(client: httpx.AsyncClient) -> None:
    """Also what is no part at all."""
    upload_id, other_id = await _create(client), await _create(client)
    part_ids = await _parts(client, other_id, WHOLE)

    for ids in (part_ids, ["part_x"], [upload_id]):
        problem(await _complete(client, upload_id, ids), 422, None, "part_ids[0]")
    problem(await _complete(client, upload_id, ["a\x00"]), 422, "invalid_field", "part_ids")


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        pytest.param({"bytes": 0}, 422, "bytes", id="nothing"),
        pytest.param({"bytes": 10**12}, 413, "LIMIT_FILE_BYTES", id="too-large"),
        pytest.param({"filename": ""}, 400, "filename", id="no-name"),
        pytest.param({"purpose": "x"}, 422, "purpose", id="purpose"),
        pytest.param({"expires_after": {"anchor": "created_at", "seconds": 5}}, 422, "expires_after", id="expiry"),
    ],
)
async def test_faults(client: httpx.AsyncClient, fields: dict[str, Any], status: int, named: str) -> None:
    problem(await client.post("/v1/uploads", json={**ANNOUNCED, **fields}), status, None, named)


async def test_a_full_storage_says_so(client: httpx.AsyncClient, services: FakeServices) -> None:
    """And is not taken for a file that is there already."""
    upload_id = await _create(client)
    part_ids = await _parts(client, upload_id, WHOLE)
    keep = services.files.upload

    async def full(*args: Any, **more: Any) -> Any:
        raise TooLarge("stored bytes", 2, 1, "LIMIT_STORED_BYTES")

    services.files.upload = full  # type: ignore[method-assign]
    problem(await _complete(client, upload_id, part_ids), 413, "too_large", "LIMIT_STORED_BYTES")
    services.files.upload = keep  # type: ignore[method-assign]
    assert 200 == (await _complete(client, upload_id, part_ids)).status_code


async def test_uploads_of_others(services: FakeServices) -> None:
    """Each key has its own."""
    async with connect(services, ApiOptions(api_keys=("one", "two"))) as client:
        client.headers["Authorization"] = "Bearer one"
        upload_id = await _create(client)
        client.headers["Authorization"] = "Bearer two"
        problem(await client.post(f"/v1/uploads/{upload_id}/cancel"), 404, "not_found", "upload_id")
