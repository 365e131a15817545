"""Fields in the caller's words by examples: in a request, and taught for good with /v1/extractors."""

import json
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.extractors import ExtractorAnswer, ExtractorList, ForgottenExtractor
from tests.api.checks import require_schema
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

URL = "/v1/extractors"
FILE = {"file": ("a.pdf", b"%PDF-1.7", "application/pdf")}
EXAMPLES = [
    {"input": "Placa: 1234 BCD\nLectura: 87.500 km", "values": {"plate": "1234 BCD", "car": {"km": 87500}}},
    {"input": "Placa: 7777 XYZ\nLectura: 9.120 km", "values": {"plate": "7777 XYZ", "car": {"km": 9120}}},
]
TEXT = "Lectura: 5.310 km\nPlaca: 8080 FGH"
EXPECTED = {"plate": "8080 FGH", "km": 5310}


def read(answer: dict[str, Any]) -> dict[str, Any]:
    custom = answer["custom"]
    return {"plate": custom["plate"]["value"], "km": custom["car"]["km"]["value"]}


async def test_examples_of_a_request(client: httpx.AsyncClient) -> None:
    """Examples alone tell what to find: names, kinds, and where such values stand."""
    answer = (await client.post("/v1/fields", json={"input": TEXT, "examples": EXAMPLES})).json()

    assert EXPECTED == read(answer)
    assert "as in the examples; after 'Placa'" == answer["custom"]["plate"]["why"]
    assert ["like_examples", "own_label"] == [reason["code"] for reason in answer["custom"]["plate"]["reasons"]]


async def test_taught_for_good(client: httpx.AsyncClient) -> None:
    """An extractor is taught, shown, listed, used and deleted."""
    taught = await client.put(f"{URL}/notes", json={"examples": EXAMPLES})
    shown, listed = await client.get(f"{URL}/notes"), await client.get(URL)
    answer = await client.post("/v1/fields", json={"input": TEXT, "extractor": "notes"})
    forgotten = await client.delete(f"{URL}/notes")
    gone = await client.post("/v1/fields", json={"input": TEXT, "extractor": "notes"})

    require_schema(ExtractorAnswer, taught.json())
    require_schema(ExtractorList, listed.json())
    require_schema(ForgottenExtractor, forgotten.json())
    assert [
        {"name": "plate", "type": "string", "list": False, "places": 2},
        {"name": "car.km", "type": "number", "list": False, "places": 2},
    ] == taught.json()["labels"]
    assert taught.json() == shown.json() == listed.json()["data"][0]
    assert EXPECTED == read(answer.json())
    assert (404, "extractor") == (gone.status_code, gone.json()["error"]["param"])


async def test_files(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A form has examples as JSON, or the name of an extractor; the document is read with what they teach."""
    await client.put(f"{URL}/notes", json={"examples": EXAMPLES})
    for route, data in (("/v1/documents", {"examples": json.dumps(EXAMPLES)}), ("/v1/fields", {"extractor": "notes"})):
        assert 200 == (await client.post(route, files=FILE, data=data)).status_code
    by_examples, by_name = [options for _, options, _ in services.documents.calls]

    assert by_examples.lessons == by_name.lessons != ""
    assert by_examples.schema == by_name.schema != ""


async def test_papers_as_pages(client: httpx.AsyncClient) -> None:
    """An example may be pages with words and boxes, as a document was answered, or with no more than these."""
    rows = {14: ("Placa:", "1234", "BCD"), 28: ("Lectura:", "87.500", "km")}
    words = [
        {"text": text, "box": [left, top, left + 40, top + 10]}
        for top, row in rows.items()
        for left, text in zip((50, 95, 140), row, strict=True)
    ]
    example = {"pages": [{"words": words}], "values": EXAMPLES[0]["values"]}

    answer = await client.post("/v1/fields", json={"input": TEXT, "examples": [example]})

    assert EXPECTED == read(answer.json())


PAGE = {"words": [{"text": "a", "box": [0, 0, 1, 1]}]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"examples": []}, "examples: must not be empty"),
        ({"examples": EXAMPLES * 9}, "examples: list should have at most 16 items"),
        ({"examples": [{"values": {"a": "b"}}]}, "examples[0]: needs one of input, pages and document, got none"),
        ({"examples": [{"document": "file-9", "values": {"a": "b"}}]}, "there is no stored document 'file-9'"),
        ({"examples": [{"input": "a: b", "values": {"a": "c"}}]}, "none of their values is printed"),
        ({"examples": [{"input": "a: b", "values": {"a": None}}]}, "none of their values is printed"),
        ({"examples": [{"input": "a: b", "values": {"a": " "}}]}, "examples[0].values.a: must not be empty"),
        ({"examples": [{"input": "a: b", "values": {"a": [["b"]]}}]}, "examples[0].values.a: must be a text, a number"),
        ({"examples": [{"input": "a: b", "values": {}}]}, "schema: must name at least one thing"),
        ({"schema": ["x"], "examples": EXAMPLES}, "'plate' is not in the schema (x)"),
        ({"examples": [{"pages": [], "values": {"a": "a"}}]}, "examples[0].pages: 0"),
        ({"examples": [{"pages": [PAGE] * 21, "values": {"a": "a"}}]}, "21 is over the limit of 20"),
        ({"examples": [{"pages": [{"words": [{}]}], "values": {"a": "a"}}]}, "pages[0].words[0]: must be {text, box}"),
        ({"examples": [{"input": "a: " + "b" * 200_000, "values": {"a": "b"}}]}, "examples[0].input"),
        ({"examples": [{"input": "a " * 50_001, "values": {"a": "a"}}]}, "words of all examples: 50001 is over the"),
        (  # counted before anything is learnt: 40,000 took seconds
            {"examples": [{"input": TEXT, "values": {f"k{number}": "v" for number in range(40_000)}}]},
            "examples[0].values: 201 is over the limit of 200",
        ),
        ({"schema": ["x"], "extractor": "notes"}, "schema: an extractor has its own"),
        ({"extractor": "notes"}, "extractor: there is no 'notes'; there are: none"),
    ],
)
async def test_what_cannot_be_learnt(client: httpx.AsyncClient, body: Any, message: str) -> None:
    """A wrong example is refused with its place and what to change."""
    response = await client.post("/v1/fields", json={"input": TEXT, **body})

    assert response.status_code in (400, 404, 413, 422)
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ("{", "examples: is no JSON"),
        ("[]", "examples: list should have at least 1 item"),
        ('[{"values": 1}]', "examples[0].values: input should be a valid dictionary"),
    ],
)
async def test_examples_in_a_form(client: httpx.AsyncClient, examples: str, message: str) -> None:
    """Faults of the JSON in a form are told as those of a body are."""
    response = await client.post("/v1/documents", files=FILE, data={"examples": examples})

    assert 422 == response.status_code
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["Notes", "-a", "a" * 65])
async def test_names(client: httpx.AsyncClient, name: str) -> None:
    """A name is that of a file, and says so."""
    response = await client.put(f"{URL}/{name}", json={"examples": EXAMPLES})

    assert (422, "name") == (response.status_code, response.json()["error"]["param"])


async def test_whose_they_are(services: FakeServices) -> None:
    """Every key uses what one has taught; only that one, and admins, replace and delete it."""
    options = ApiOptions(api_keys=("one=first-secret", "two=second-secret"), admin_keys=("ops=admin-secret",))
    one, two, ops = ({"Authorization": f"Bearer {name}-secret"} for name in ("first", "second", "admin"))
    async with connect(services, options) as client:
        await client.put(f"{URL}/notes", json={"examples": EXAMPLES}, headers=one)
        used = await client.post("/v1/fields", json={"input": TEXT, "extractor": "notes"}, headers=two)
        refused = [
            await client.put(f"{URL}/notes", json={"examples": EXAMPLES}, headers=two),
            await client.delete(f"{URL}/notes", headers=two),
        ]
        deleted = await client.delete(f"{URL}/notes", headers=ops)

    assert EXPECTED == read(used.json())
    assert [403, 403, 200] == [response.status_code for response in (*refused, deleted)]
