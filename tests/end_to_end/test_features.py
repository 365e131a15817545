"""`curl -F file=@invoice.pdf`: everything there is to know of a scan and of a digital PDF, in Spanish and English."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from tests.clients.server import LiveServer
from tests.end_to_end.client import MARKS, answer_of, send, vector_of
from tests.end_to_end.papers import ENGLISH, INVOICES, SCAN_DPI, SPANISH, Invoice, Rectangle, pages_of

pytestmark = MARKS
_DARK = 128  # gray level of ink
_NEAR = 2.0  # points between what was drawn and what was read


@dataclass(frozen=True)
class Case:
    """A file and what the service said of it."""

    invoice: Invoice
    scanned: bool
    told: dict[str, Any]


@pytest.fixture(
    scope="module",
    params=[(invoice, scanned) for invoice in INVOICES for scanned in (False, True)],
    ids=lambda param: f"{'scan' if param[1] else 'digital'}-{param[0].language}",
)
def case(request: pytest.FixtureRequest, served: LiveServer) -> Iterator[Case]:
    """Each of the four files, sent once."""
    invoice, is_scan = request.param
    with served.client() as client:
        content = invoice.scanned_pdf if is_scan else invoice.digital
        yield Case(invoice, is_scan, answer_of(client, content, encoding_format="base64"))


def test_the_text_and_how_it_was_read(case: Case) -> None:
    """Every word as printed, and the reason why it was read so."""
    [page] = case.told["pages"]

    assert case.invoice.text.split() == case.told["text"].split()
    assert case.told["text"] == page["text"]
    source, engines = ("ocr", ("tesseract", "rapidocr")) if case.scanned else ("text_layer", ("pdfium",))
    assert source == page["source"]
    assert page["engine"].split()[0] in engines
    assert ("no text of its own" in page["why"]) == case.scanned
    assert ("pdf", 1, 1, []) == (case.told["kind"], case.told["page_count"], page["number"], case.told["failed_pages"])
    assert int(case.scanned) == case.told["usage"]["ocr_pages"]


def test_every_word_lies_on_its_ink(case: Case) -> None:
    """Each box has ink, no ink lies outside all of them, and places in the text are the words' own."""
    [page] = case.told["pages"]
    ink = np.asarray(case.invoice.scan) < _DARK
    outside = ink.copy()
    for word in page["words"]:
        rows, columns = _pixels(word["box"])
        assert ink[rows, columns].mean() > 0.05, word
        outside[rows, columns] = False
        assert page["text"][word["start"] : word["end"]] == word["text"]

    assert outside.sum() < 0.01 * ink.sum()


def test_entities_with_values_and_places(case: Case) -> None:
    """Names by the model, numbers by patterns and checksums; each box covers the ink of its entity, and no more."""
    entities = case.told["entities"]
    for kind, text, value in case.invoice.found:
        same = [one for one in entities if (one["type"], one["text"]) == (kind, text)]
        assert same, (kind, text, [(one["type"], one["text"]) for one in entities])
        assert case.told["text"][same[0]["start"] : same[0]["end"]] == text
        assert value == same[0]["value"]
        assert same[0]["valid"] in ((True,) if kind in ("IBAN", "NIF") else (True, None))
        [place] = same[0]["places"]
        assert 1 == place["page"]
        assert _covers(place["box"], case.invoice.place(text)), (text, place, case.invoice.place(text))
    assert 1.0 == case.told["coverage"]


def test_language_class_and_key_sentences(case: Case) -> None:
    """What it is, what it is about, and where that stands."""
    told = case.told
    sentences = told["key_sentences"]

    assert case.invoice.language == told["language"]["code"] == told["pages"][0]["language"]
    assert "invoice" == told["classes"]["prediction"]
    assert any(case.invoice.key in one["text"] for one in sentences)
    for one in sentences:
        assert one["text"] == told["text"][one["start"] : one["end"]]
        assert one["places"]
        if "\n" not in one["text"]:  # a line that ends without a full stop goes on in the next
            [place] = one["places"]
            assert _covers(place["box"], case.invoice.place(one["text"]))
    for one in told["key_phrases"]:
        assert one["places"]
        for place in one["places"]:
            assert one["text"].lower() == told["text"][place["start"] : place["end"]].lower()


def test_the_vector_is_that_of_the_text(case: Case, client: httpx.Client) -> None:
    """As `/v1/embeddings` computes it."""
    expected = _embeddings(client, [case.told["text"]])[0]

    assert 1.0 == pytest.approx(float(vector_of(case.told["vector"]) @ expected), abs=1e-4)
    assert 1.0 == pytest.approx(float(np.linalg.norm(vector_of(case.told["vector"]))), abs=1e-4)


def test_what_it_cost(case: Case, client: httpx.Client) -> None:
    """Timings of every stage, in the answer and in the header."""
    timings = case.told["timings"]

    assert {"open_s", "read_s", "ocr_s", "understand_s", "total_s"} == set(timings)
    assert timings["total_s"] >= timings["read_s"] > 0
    header = send(client, case.invoice.digital).headers["server-timing"]
    assert ["open", "read", "understand", "total"] == [part.split(";")[0].strip() for part in header.split(",")]


def test_a_document_of_many_pages(client: httpx.Client) -> None:
    """Chunks together are the text, each with the vector of `/v1/embeddings`, bit for bit; places are on their page."""
    told = answer_of(client, pages_of(SPANISH, ENGLISH, SPANISH, ENGLISH), encoding_format="base64")
    text, chunks = told["text"], told["chunks"]
    cut = [text[one["start"] : one["end"]] for one in chunks]

    assert len(chunks) > 1
    assert "".join(text.split()) == "".join("".join(cut).split())
    assert [1, 2, 3, 4] == sorted({page for one in chunks for page in one["pages"]})
    assert all(one["tokens"] <= 256 for one in chunks)
    for chunk, expected in zip(chunks, _embeddings(client, cut), strict=True):
        assert expected.tobytes() == vector_of(chunk["vector"]).tobytes()
    for page, one in zip(told["pages"], ("es", "en", "es", "en"), strict=True):
        assert page["text"] == text[page["start"] : page["start"] + len(page["text"])]
        assert one == page["language"]
    ibans = [(one["places"][0]["page"], one["value"][:2]) for one in told["entities"] if one["type"] == "IBAN"]
    assert [(1, "ES"), (2, "GB"), (3, "ES"), (4, "GB")] == ibans


def test_only_what_was_asked_for(client: httpx.Client) -> None:
    """`features` picks; labels in words are chosen from."""
    told = answer_of(client, ENGLISH.digital, features="language,classes", labels="invoice, love letter")

    assert {"invoice", "love letter"} == {one["label"] for one in told["classes"]["predictions"]}
    assert "invoice" == told["classes"]["prediction"]
    assert not {"text", "entities", "coverage", "vector", "chunks", "key_phrases", "key_sentences"} & set(told)
    assert not {"text", "words"} & set(told["pages"][0])


def test_pages_and_nothing_else(client: httpx.Client) -> None:
    """`POST /v1/ocr` gives what `/v1/documents` gives of the pages."""
    whole = answer_of(client, SPANISH.scanned_pdf)
    read = send(client, SPANISH.scanned_pdf, "/v1/ocr").json()

    assert whole["pages"] == read["pages"]
    assert not {"entities", "vector", "classes"} & set(read)


def _embeddings(client: httpx.Client, texts: list[str]) -> list[np.ndarray]:
    answer = client.post("/v1/embeddings", json={"input": texts, "encoding_format": "base64"})
    return [vector_of(one["embedding"]) for one in answer.json()["data"]]


def _pixels(box: Rectangle) -> tuple[slice, slice]:
    """What a box in points covers of the scan, a pixel more on each side."""
    left, top, right, bottom = (side * SCAN_DPI / 72 for side in box)
    return slice(int(top) - 1, int(bottom) + 2), slice(int(left) - 1, int(right) + 2)


def _covers(box: Rectangle, ink: Rectangle) -> bool:
    """Whether the ink is in the box, which is hardly larger; a text layer's boxes are as high as the font."""
    grown = (box[0] - _NEAR, box[1] - _NEAR, box[2] + _NEAR, box[3] + _NEAR)
    inside = grown[0] <= ink[0] and grown[1] <= ink[1] and grown[2] >= ink[2] and grown[3] >= ink[3]
    close = abs(box[0] - ink[0]) < 2 * _NEAR and abs(box[2] - ink[2]) < 2 * _NEAR
    return inside and close and box[3] - box[1] < 2.5 * (ink[3] - ink[1])
