"""A page classifier from its training to its answers: fine-tuned, published, served by IMAGE_MODEL."""

import base64
import io
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from transformers import AutoImageProcessor, pipeline

from tests.clients.server import QUICK, ROOT, run_server
from tests.drawn_pages import KINDS, page
from tests.end_to_end.client import problem_of
from tests.files.pdfs import pdf, text
from tests.tiny_image_models import TinyImageModels, image_models

__all__ = ["image_models"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # the first test waits for a training and a start


def written(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    target = io.BytesIO()
    image.save(target, form, **options)
    return target.getvalue()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, image_models: TinyImageModels) -> Path:
    """What ``python -m backend.training document-images`` writes: seconds on a quiet machine."""
    root = tmp_path_factory.mktemp("images")
    for kind in KINDS:
        (root / "data" / kind).mkdir(parents=True)
        for number in range(20):
            page(kind, number).save(root / "data" / kind / f"{number:02}.png")
    base, output = image_models.folder("resnet"), root / "page-kinds"
    options = "--image-size 32 32 --augment none --epochs 12 --batch-size 12 --learning-rate 0.01 --device cpu"
    command = [sys.executable, "-m", "backend.training", "document-images", "--data", str(root / "data"),
               "--base", str(base), "--output", str(output), *options.split()]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return output


@pytest.fixture(scope="module")
def client(published: Path, state_dir: Path) -> Iterator[httpx.Client]:
    """The service with the published folder."""
    settings = {**QUICK, "NER_MODEL": "none", "SPEECH_MODEL": "none", "IMAGE_MODEL": str(published)}
    with run_server(state_dir, **settings) as server, server.client() as client:
        yield client


def classes_of(answer: httpx.Response) -> dict[str, float]:
    """The scores of the first item."""
    assert 200 == answer.status_code, answer.text
    return {row["label"]: row["score"] for row in answer.json()["data"][0]["predictions"]}


def test_pages_get_the_classes_that_were_learnt(client: httpx.Client, published: Path) -> None:
    """Pages that training never saw; with the scores of transformers' pipeline on the same folder."""
    processor = AutoImageProcessor.from_pretrained(published, backend="pil")
    reference = pipeline("image-classification", model=str(published), image_processor=processor)
    pages = [(kind, page(kind, 100 + number)) for kind in KINDS for number in range(5)]

    def ask(content: bytes) -> dict[str, float]:
        return classes_of(client.post("/v1/classify", files={"file": ("page.png", content)}))

    with ThreadPoolExecutor(5) as pool:  # so that pages meet on the lanes
        answers = list(pool.map(ask, [written(image) for _, image in pages]))

    assert [kind for kind, _ in pages] == [max(scores, key=lambda label: scores[label]) for scores in answers]
    for scores, expected in zip(answers, reference([image for _, image in pages]), strict=True):
        assert scores == pytest.approx({row["label"]: row["score"] for row in expected}, abs=1e-4)


def test_the_same_page_however_it_is_sent(client: httpx.Client) -> None:
    """As a form, alone as the body, in base64, as a data URL; a TIFF page by page; a PDF of it."""
    image = page("invoice", 7)
    content = written(image)
    encoded = base64.b64encode(content).decode()
    tiff = written(image, "TIFF", save_all=True, append_images=[page("form", 1), page("letter", 1)])
    as_form = client.post("/v1/classify", files={"file": content}, data={"top_k": "1"})
    as_body = client.post("/v1/classify?top_k=1", content=content, headers={"content-type": "image/png"})
    as_json = client.post(
        "/v1/classify", json={"input": [{"image": encoded}, {"image": f"data:image/png;base64,{encoded}"}], "top_k": 1}
    )
    pages = client.post("/v1/classify", files={"file": tiff}, data={"pages": "1-3"}).json()
    as_pdf = client.post("/v1/classify", files={"file": written(image, "PDF", resolution=72.0)}).json()
    [item] = as_form.json()["data"]

    assert ("invoice", 1, 1) == (item["prediction"], item["page"], len(item["predictions"]))
    assert as_form.json() == as_body.json()
    assert [item, {**item, "index": 1}] == as_json.json()["data"]
    assert {"prompt_tokens": 0, "total_tokens": 0, "pages": 2} == as_json.json()["usage"]
    assert [("invoice", 1), ("form", 2), ("letter", 3)] == [(row["prediction"], row["page"]) for row in pages["data"]]
    assert "invoice" == as_pdf["data"][0]["prediction"]


def test_documents_combine_text_and_picture(client: httpx.Client) -> None:
    """Where both know the label, their scores meet; both parts and the rule are told."""
    content = pdf(text(b"INVOICE 2024-017  Invoice date 2024-03-01  Amount due 1.284,50 EUR  VAT 21 %"))
    classes = client.post("/v1/documents", files={"file": content}, data={"features": "classes"}).json()["classes"]
    blank = client.post("/v1/documents", files={"file": written(Image.new("L", (90, 128), 255))}).json()["classes"]
    named = client.post(
        "/v1/documents", files={"file": content}, data={"features": "classes", "classifier": "document-type"}
    ).json()["classes"]

    assert {"text", "image", "combined", "why", "reasons", "prediction", "score", "predictions"} == set(classes)
    assert (1, "page-kinds") == (classes["image"]["page"], classes["image"]["model"])
    assert "invoice" == classes["text"]["prediction"]
    assert classes["combined"] == ("average of the logarithms" in classes["why"])
    assert (None, False) == (blank["text"], blank["combined"])
    assert blank["image"]["predictions"] == blank["predictions"]
    assert "image" not in named


def test_it_is_told(client: httpx.Client, published: Path) -> None:
    """Models, health, system and metrics know it."""
    content = written(page("form", 3))
    for _ in range(2):  # the second from the cache
        client.post("/v1/classify", files={"file": content})
    [card] = [card for card in client.get("/v1/models").json()["data"] if card["task"] == "images"]
    system = client.get("/v1/system").json()["images"]
    [health] = [row for row in client.get("/health").json()["models"] if row["task"] == "images"]
    metrics = client.get("/metrics").text

    assert (list(KINDS), 32, 32) == (card["labels"], card["height"], card["width_px"])
    assert card == client.get("/v1/models/page-kinds").json()
    assert ("page-kinds", "page lanes", str(published)) == (system["model"], system["lanes"], system["source"])
    assert (True, "torch", "fp32") == (health["is_loaded"], health["runtime"], health["dtype"])
    assert 'financia_batch_duration_seconds_count{engine="images"}' in metrics
    assert 'financia_inputs_total{task="images"}' in metrics
    assert 'financia_model_loaded{model="page-kinds"} 1.0' in metrics


SOUND = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00"
PAGE = written(page("form", 1))


@pytest.mark.parametrize(
    ("content", "fields", "expected", "words"),
    [
        pytest.param(b"hello", {}, (415, "wrong_media_type"), "which is text", id="text"),
        pytest.param(SOUND, {}, (415, "wrong_media_type"), "recording", id="sound"),
        pytest.param(b"\x89PNG\r\n\x1a\nxx", {}, (422, "unreadable_file"), "broken", id="broken"),
        pytest.param(PAGE, {"pages": "2"}, (422, "invalid_field"), "pages", id="no-such-page"),
        pytest.param(PAGE, {"model": "other"}, (404, "model_not_found"), "page-kinds", id="model"),
        pytest.param(PAGE, {"labels": "a,b"}, (422, "invalid_field"), "is for texts", id="labels"),
        pytest.param(PAGE, {"top_k": "0"}, (422, "invalid_field"), "top_k", id="top_k"),
    ],
)
def test_refused(
    client: httpx.Client, content: bytes, fields: dict[str, str], expected: tuple[int, str], words: str
) -> None:
    """Bad uploads say what is wrong."""
    answer = client.post("/v1/classify", files={"file": content}, data=fields)

    assert expected == problem_of(answer)
    assert words in answer.json()["detail"]


def test_texts_are_classified_as_ever(client: httpx.Client) -> None:
    """IMAGE_MODEL changes nothing for them."""
    answer = client.post("/v1/classify", json={"input": "Factura 2024/017. Total a pagar: 120 EUR. IVA 21 %"}).json()

    assert ("document-type", "invoice") == (answer["model"], answer["data"][0]["prediction"])
    assert "pages" not in answer["usage"]
