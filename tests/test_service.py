"""One real start of the service and one request of each task: what `make test` knows of the whole."""

import io
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.clients.server import QUICK, run_server

TEXT = "Factura 2024/017 de Aceros del Norte, S.A. (NIF A58818501): 1.284,50 €, vence el 12 de marzo de 2024."


@pytest.fixture(scope="module")
def client(state_dir: Path) -> Iterator[httpx.Client]:
    """`python -m backend.main` with the bundled models, in an arithmetic that needs no measuring."""
    with run_server(state_dir, **QUICK) as server, server.client() as client:
        yield client


def page(text: str) -> bytes:
    """A PNG of one line of print."""
    image = Image.new("L", (1400, 200), 255)
    ImageDraw.Draw(image).text((40, 60), text, font=ImageFont.load_default(48), fill=0)
    content = io.BytesIO()
    image.save(content, "PNG", dpi=(150, 150))
    return content.getvalue()


def test_texts(client: httpx.Client):
    """Vectors, entities, classes, rankings and analyses of the bundled models."""
    vectors = client.post("/v1/embeddings", json={"input": [TEXT, "hola"]}).json()["data"]
    entities = client.post("/v1/entities", json={"input": TEXT}).json()["data"][0]["entities"]
    labels = ["sports", "politics", "health"]
    classes = client.post("/v1/classify", json={"input": ["El equipo ganó la final."], "labels": labels}).json()[
        "data"
    ][0]
    ranking = client.post(
        "/v1/rerank", json={"query": "¿Cuándo vence?", "documents": ["Hola", "Vence en marzo"]}
    ).json()
    analysis = client.post("/v1/analyze", json={"input": TEXT}).json()

    assert [384, 384] == [len(vector["embedding"]) for vector in vectors]
    assert {"ORG", "MONEY", "DATE"} <= {entity["type"] for entity in entities}
    assert "sports" == classes["prediction"]
    assert 1 == ranking["results"][0]["index"]
    assert "es" == analysis["language"]["code"]


@pytest.mark.tesseract
def test_a_file(client: httpx.Client):
    """A picture of a page is read, and understood, with the place of each word."""
    answer = client.post(
        "/v1/documents", files={"file": ("a.png", page("Invoice 2024/017 of Acme Ltd, London"))}
    ).json()

    assert "Invoice" in answer["text"]
    assert answer["pages"][0]["words"][0]["box"]


def test_operations(client: httpx.Client):
    """Health, readiness, metrics, the page for people; an error that says what to do."""
    metrics = client.get("/metrics").text
    problem = client.post("/v1/embeddings", json={"input": []}).json()

    assert 200 == client.get("/health/ready").status_code
    assert "ready" == client.get("/health").json()["status"]
    assert "financia_requests_total{" in metrics
    assert "text/html" in client.get("/").headers["content-type"]
    assert "input" == problem["error"]["param"]
