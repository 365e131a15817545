"""Background jobs of the running service: progress, cancellation, results."""

import io
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.end_to_end.client import MARKS, answer_of, events, metric, send
from tests.end_to_end.invoices import ENGLISH, SPANISH, scanned

pytestmark = MARKS


def job_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code in (200, 202), response.text
    job: dict[str, Any] = response.json()
    assert f"/v1/jobs/{job['id']}" == response.headers["location"]
    return job


def ended(client: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    """The job, once it has ended."""
    for _ in events(client, job["id"]):
        pass
    found: dict[str, Any] = client.get(f"/v1/jobs/{job['id']}").json()
    return found


def test_progress_page_by_page(client: httpx.Client) -> None:
    """Each page has its event before the next is done, the end comes last, and the result equals a direct answer."""
    file = scanned([SPANISH.strip, ENGLISH.strip] * 2)
    job = job_of(send(client, file, "/v1/jobs", name="scan.pdf", encoding_format="base64"))
    received = list(events(client, job["id"]))

    assert "end" == received[-1].name
    pages = [event.data for event in received if event.name == "page"]
    assert [1, 2, 3, 4] == sorted(page["number"] for page in pages)
    assert all("ocr" == page["source"] and page["words"] > 10 and page["text"] for page in pages)
    done = [event.data["pages_done"] for event in received if event.name == "progress"]
    assert done == sorted(done)
    first_page = next(index for index, event in enumerate(received) if event.name == "page")
    assert (
        max([event.data["pages_done"] for event in received[:first_page] if event.name == "progress"], default=0) <= 1
    )
    assert "succeeded" == received[-1].data["status"]
    result = client.get(f"/v1/jobs/{job['id']}").json()["result"]
    answer = answer_of(client, file, encoding_format="base64")
    same = ("pages", "text", "language", "classes", "entities", "key_sentences", "vector", "chunks")
    assert [answer[name] for name in same] == [result[name] for name in same]


def test_cancelling_in_the_middle_of_a_long_scan(client: httpx.Client) -> None:
    """The pages so far are kept, no further page is processed, and the lanes are free for the next document."""
    job = job_of(send(client, scanned([SPANISH.strip, ENGLISH.strip] * 30), "/v1/jobs", name="long.pdf"))
    stream = events(client, job["id"])
    assert any(event.name == "page" for event in stream)
    stream.close()
    answer = client.delete(f"/v1/jobs/{job['id']}")

    assert (200, "cancelled") == (answer.status_code, answer.json()["status"])
    read = metric(client, 'financia_pages_total{source="ocr"}')
    cut = SPANISH.scan.crop((0, 0, SPANISH.scan.width, 800))  # not cached yet
    assert "FACTURA" in answer_of(client, scanned([cut]), features="text")["text"]
    assert metric(client, 'financia_pages_total{source="ocr"}') == read + 1
    kept = client.get(f"/v1/jobs/{job['id']}").json()
    assert ("cancelled", True) == (kept["status"], kept["result"]["partial"])
    assert 1 <= len(kept["result"]["pages"]) < 60
    assert kept["progress"]["pages_done"] == len(kept["result"]["pages"])


def test_the_image_of_a_page_fits_its_words(client: httpx.Client) -> None:
    """A sideways page is shown upright, with ink in the box of each word."""
    job = job_of(send(client, scanned([SPANISH.scan.transpose(Image.Transpose.ROTATE_90)]), "/v1/jobs"))
    [page] = ended(client, job)["result"]["pages"]
    answer = client.get(f"/v1/jobs/{job['id']}/pages/1", params={"dpi": 100})
    picture = Image.open(io.BytesIO(answer.content)).convert("L")

    assert ("image/png", 90) == (answer.headers["content-type"], page["rotation"])
    scale = 100 / 72
    assert (page["width"] * scale, page["height"] * scale) == pytest.approx(picture.size, abs=2)
    for word in page["words"]:
        assert picture.crop([round(side * scale) for side in word["box"]]).getextrema()[0] < 160, word
