"""``POST /v1/answer``: questions over a text, pages or a stored document."""

from typing import Any

import httpx
import pytest

from backend.api.routes.answer import MIN_SCORE, AnswersAnswer
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices

URL = "/v1/answer"
PDF = {"file": ("a.pdf", b"%PDF-1.7")}


def words(*rows: str) -> list[dict[str, Any]]:
    return [
        {"text": word, "box": [50 + 60 * column, 20 * row, 100 + 60 * column, 20 * row + 10]}
        for row, line in enumerate(rows)
        for column, word in enumerate(line.split())
    ]


async def test_a_text(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Each question has its answer with code points of the text that was sent; a text has no pages."""
    body = {"questions": ["¿Qué?", "Who?"], "input": "Zürich 👍 pays."}

    answer = await client.post(URL, json=body)

    require_schema(AnswersAnswer, answer.json())
    found = {"text": "Zürich", "start": 0, "end": 6, "page": None, "boxes": []}
    assert [{"index": index, "answer": found, "score": 0.75, "reason": None} for index in range(2)] == answer.json()[
        "data"
    ]
    assert MIN_SCORE == services.answers.calls[0][1]["min_score"]


async def test_pages(client: httpx.AsyncClient) -> None:
    """Of pages an answer has the number and the box of its line."""
    body = {"questions": ["¿Qué?"], "pages": [{"words": words("Factura 17", "Total 9")}]}

    [row] = (await client.post(URL, json=body)).json()["data"]

    assert {"text": "Factura", "start": 0, "end": 7, "page": 1, "boxes": [[50, 0, 100, 10]]} == row["answer"]


@pytest.mark.parametrize("block", [[], {}, "a", 1.5])
async def test_what_others_call_a_block(client: httpx.AsyncClient, block: Any) -> None:
    """Words keep what another program told beside text and box; a list there was an internal error."""
    sent = [{**word, "line": 0, "block": block} for word in words("Factura 17")]

    answer = await client.post(URL, json={"questions": ["¿Qué?"], "pages": [{"words": sent}]})

    assert 200 == answer.status_code


async def test_pages_are_no_way_around_the_limit_of_a_text(client: httpx.AsyncClient) -> None:
    """A word of 15 MB took 0.9 GB and held the interpreter for seconds."""
    body = {"questions": ["¿Qué?"], "pages": [{"words": words("a" * 150_000)}, {"words": words("b" * 150_000)}]}

    answer = await client.post(URL, json=body)

    problem(answer, 413, None, "LIMIT_TEXT_CHARS")


async def test_a_file(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Each question is a field of its own; answers have pages and boxes, and pages that failed are named."""
    form = {"questions": ["¿Qué, cuándo?", "Who?"], "min_score": "0.5", "pages": "1-2"}

    answer = await client.post(URL, files=PDF, data=form)

    require_schema(AnswersAnswer, answer.json())
    found = {"text": "IBAN", "start": 0, "end": 4, "page": 1, "boxes": [[0, 0, 45, 12]]}
    assert [(0, found), (1, found)] == [(row["index"], row["answer"]) for row in answer.json()["data"]]
    assert [3] == [page["number"] for page in answer.json()["failed_pages"]]
    [(asked, options)] = services.answers.calls
    assert (["¿Qué, cuándo?", "Who?"], 0.5) == (asked[:2], options["min_score"])
    assert "1-2" == services.documents.calls[0][1].pages


async def test_a_file_as_the_body(client: httpx.AsyncClient) -> None:
    """Its questions are in the query."""
    answer = await client.post(URL, params={"questions": ["a", "b", "c"]}, content=b"%PDF-1.7")

    assert ["IBAN"] * 3 == [row["answer"]["text"] for row in answer.json()["data"]]


@pytest.mark.parametrize(
    ("form", "status", "words"),
    [
        ({}, 422, "questions"),
        ({"questions": ["a", " "]}, 400, "questions[1]: must not be empty"),
        ({"questions": ["a"] * 51}, 422, "at most 50"),
        ({"question": ["a"]}, 422, "did you mean 'questions'"),
        ({"questions": ["a"], "format": "csv"}, 422, "comes as json"),
        ({"questions": ["a"], "model": "other"}, 404, "other"),
    ],
)
async def test_refused_forms(
    client: httpx.AsyncClient, services: FakeServices, form: dict[str, Any], status: int, words: str
) -> None:
    """What a form lacks is told before its file is read."""
    problem(await client.post(URL, files=PDF, data=form), status, None, words)

    assert [] == services.documents.calls


@pytest.mark.parametrize(("text", "reason"), [("x is not there", "not_there"), ("   ", "empty_text")])
async def test_nothing(client: httpx.AsyncClient, text: str, reason: str) -> None:
    """Null, with the reason."""
    [row] = (await client.post(URL, json={"questions": ["Who?"], "input": text})).json()["data"]

    assert (None, reason) == (row["answer"], row["reason"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": "a"}, "questions"),
        ({"questions": [], "input": "a"}, "questions: must not be empty"),
        ({"questions": ["q"] * 51, "input": "a"}, "at most 50"),
        ({"questions": ["q" * 1001], "input": "a"}, "at most 1000"),
        ({"questions": ["q", " "], "input": "a"}, "questions[1]: must not be empty"),
        ({"questions": ["q"]}, "needs one of input, pages and document, got none"),
        ({"questions": ["q"], "input": "a", "document": "b"}, "got input and document"),
        ({"questions": ["q"], "pages": [{"words": [{}]}]}, "pages[0].words[0]: must be {text, box}"),
        ({"questions": ["q"], "pages": []}, "pages: 0"),
        ({"questions": ["q"], "document": "file-9"}, "document: there is no stored document 'file-9'"),
        ({"questions": ["q"], "input": "a", "min_score": 2}, "min_score"),
    ],
)
async def test_refusals(client: httpx.AsyncClient, body: dict[str, Any], words: str) -> None:
    """What is refused names the field."""
    answer = await client.post(URL, json=body)

    assert answer.status_code in (400, 404, 413, 422)
    problem(answer, answer.status_code, None, words)
