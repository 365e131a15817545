"""``POST /v1/ocr`` with JSON, in the shape of Mistral's OCR; files in tests/api/test_documents.py."""

import base64
import json
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiOptions
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

PDF = b"%PDF-1.7 of a test"
URL = f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}"


def asked(document: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "mistral-ocr-latest", "document": document, **more}


def wanted(schema: Any) -> dict[str, Any]:
    """A schema as Mistral's clients wrap it."""
    return {"type": "json_schema", "json_schema": {"name": "paper", "schema": schema, "strict": True}}


@pytest.mark.parametrize(
    "document",
    [
        {"type": "document_url", "document_url": URL},
        {"type": "image_url", "image_url": URL},
        {"type": "image_url", "image_url": {"url": URL}},
    ],
)
async def test_a_data_url(client: httpx.AsyncClient, services: FakeServices, document: dict[str, Any]) -> None:
    """Pages from 0 as Markdown, in the pixels of a picture of 200 dots an inch."""
    answer = (await client.post("/v1/ocr", json=asked(document, pages=[0, 2], include_image_base64=True))).json()

    [(content, options, _)] = services.documents.calls
    assert (PDF, "1,3") == (content, options.pages)
    assert [0, 1] == [page["index"] for page in answer["pages"]]
    assert "Total 1.284,50 €" in answer["pages"][0]["markdown"]
    assert {"dpi": 200, "width": round(595 / 72 * 200), "height": round(842 / 72 * 200)} == answer["pages"][0][
        "dimensions"
    ]
    assert ("mistral-ocr-latest", {"pages_processed": 2, "doc_size_bytes": len(PDF)}) == (
        answer["model"], answer["usage_info"],
    )  # fmt: skip


NUMBER, LIST = {"type": "integer"}, {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": NUMBER, "b": LIST}}, {}),
        ({"properties": {"a": NUMBER, "b": LIST, "c": NUMBER}, "required": ["a", "b"]}, {"a": None, "b": []}),
        ({"properties": {"a": {"properties": {"b": NUMBER}, "required": ["b"]}}}, {}),
        (
            {"properties": {"a": {"properties": {"b": NUMBER, "c": LIST}, "required": ["b"]}}, "required": ["a"]},
            {"a": {"b": None}},
        ),
        ({"properties": {"a": {**NUMBER, "required": True}}}, {}),
    ],
)
async def test_annotation(
    client: httpx.AsyncClient, services: FakeServices, schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Of what the file does not say it has what objects must have, as null or an empty list, and no more."""
    body = asked({"document_url": URL}, document_annotation_format=wanted(schema))

    answer = (await client.post("/v1/ocr", json=body)).json()
    plain = (await client.post("/v1/ocr", json=asked({"document_url": URL}))).json()

    assert expected == json.loads(answer["document_annotation"])
    assert plain["document_annotation"] is None
    assert schema == json.loads(services.documents.calls[0][1].schema)


async def test_blocks_and_confidence(client: httpx.AsyncClient) -> None:
    """Each block with its Markdown and its box in the pixels of the page."""
    body = asked({"document_url": URL}, include_blocks=True, confidence_scores_granularity="page")

    page = (await client.post("/v1/ocr", json=body)).json()["pages"][0]

    [block] = page["blocks"]
    assert ("text", page["markdown"], 0, 0, round(145 / 72 * 200), round(32 / 72 * 200)) == (
        block["type"], block["content"], *(block[name] for name in ("top_left_x", "top_left_y")),
        *(block[name] for name in ("bottom_right_x", "bottom_right_y")),
    )  # fmt: skip
    assert 0.9 == page["confidence_scores"]["average_page_confidence_score"]


async def test_confidence_of_words_and_blocks(client: httpx.AsyncClient) -> None:
    """Each word with its place in the Markdown, behind what escapes it; each block with the mean of its words."""
    by_word = asked({"document_url": URL}, confidence_scores_granularity="word")
    by_block = asked({"document_url": URL}, confidence_scores_granularity="block", include_blocks=True)

    first, second = (await client.post("/v1/ocr", json=by_word)).json()["pages"]
    [block] = (await client.post("/v1/ocr", json=by_block)).json()["pages"][0]["blocks"]

    words = first["confidence_scores"]["word_confidence_scores"]
    assert ["IBAN", "ES91", "2100", "Total", "1.284,50", "€"] == [word["text"] for word in words]
    assert all(first["markdown"].startswith(word["text"], word["start_index"]) for word in words)
    [escaped, _] = second["confidence_scores"]["word_confidence_scores"]
    assert second["markdown"].startswith("<b>", escaped["start_index"])
    assert {"average_content_confidence_score": 0.9, "minimum_content_confidence_score": 0.9} == block[
        "confidence_scores"
    ]


@pytest.mark.parametrize(
    ("pages", "expected"), [("0-1,4", "1-2,5"), ([0], "1"), (None, ""), ("0, 2", "1,3"), ([*range(8), 9, 0], "1-8,10")]
)
async def test_pages_count_from_0(client: httpx.AsyncClient, services: FakeServices, pages: Any, expected: str) -> None:
    """Neighbours are one range, so that a list may reach behind the last page as Mistral's own examples do."""
    await client.post("/v1/ocr", json=asked({"document_url": URL}, pages=pages))

    assert expected == services.documents.calls[0][1].pages


async def test_a_kept_file(client: httpx.AsyncClient, services: FakeServices) -> None:
    """By its id, or by the address that the service gave for it: the way of Open WebUI's loader."""
    kept = (await client.post("/v1/files", files={"file": ("a.pdf", PDF)}, data={"purpose": "ocr"})).json()
    address = (await client.get(f"/v1/files/{kept['id']}/url", params={"expiry": 1})).json()["url"]

    for document in ({"type": "file", "file_id": kept["id"]}, {"type": "document_url", "document_url": address}):
        assert 200 == (await client.post("/v1/ocr", json=asked(document))).status_code

    assert ("ocr_input", "upload", "ocr") == (kept["sample_type"], kept["source"], kept["purpose"])
    assert [PDF, PDF] == [content for content, *_ in services.documents.calls]
    assert PDF == (await client.get(address)).content


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        (asked({"document_url": "https://arxiv.org/pdf/1.pdf"}), 422, "fetches no addresses"),
        (asked({"type": "document_url"}), 422, "needs document_url"),
        (asked({"document_url": "data:application/pdf;base64,??"}), 422, "no base64"),
        (asked({"file_id": "file-none"}), 404, "file-none"),
        (asked({"document_url": "https://a/v1/files/file-none/content"}), 404, "file-none"),
        (asked({"document_url": URL}, pages=[-1]), 422, "pages"),
        (asked({"document_url": URL}, pages="5-1"), 422, "pages"),
        (asked({"document_url": URL}, document_annotation_format={"type": "json_object"}), 422, "JSON Schema"),
        (asked({"document_url": URL}, document_annotation_format=wanted(None)), 422, "JSON Schema"),
        (asked({"document_url": URL}, document_annotation_format=wanted({"type": "object"})), 422, "JSON Schema"),
        (
            asked({"document_url": URL}, document_annotation_format=wanted({"properties": {"km": {"type": "x"}}})),
            422,
            "document_annotation_format km: type 'x'",
        ),
        (asked({"document_url": URL}, bbox_annotation_format=wanted({"properties": {"a": {}}})), 422, "no pictures"),
        (asked({"document_url": URL}, document_annotation_prompt="Be brief."), 422, "not served"),
        (asked({"document_url": URL}, table_format="csv"), 422, "table_format"),
        ({"model": "mistral-large", "document": {"document_url": URL}}, 404, "mistral-ocr-latest"),
        ({"model": "mistral-ocr-latest"}, 422, "document"),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, body: dict[str, Any], status: int, named: str) -> None:
    problem(await client.post("/v1/ocr", json=body), status, None, named)


async def test_files_of_other_keys(services: FakeServices) -> None:
    """Are not there, by their address neither."""
    async with connect(services, ApiOptions(api_keys=("one", "two"))) as client:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        kept = (
            await client.post("/v1/files", files={"file": ("a.pdf", PDF)}, data={"purpose": "ocr"}, headers=one)
        ).json()
        address = f"http://test/v1/files/{kept['id']}/content"
        own, other = [
            await client.post("/v1/ocr", json=asked({"document_url": address}), headers=key) for key in (one, two)
        ]

    assert 200 == own.status_code
    problem(other, 404, "not_found", kept["id"])
