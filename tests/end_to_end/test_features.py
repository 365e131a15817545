"""All features of `/v1/documents` for a scan and a digital PDF, in Spanish and English."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from tests.clients.server import LiveServer
from tests.end_to_end.client import MARKS, answer_of, send, vector_of
from tests.end_to_end.invoices import ENGLISH, INVOICES, SCAN_DPI, SPANISH, Invoice, Rectangle, pages_of

pytestmark = MARKS
_DARK = 128  # gray level of ink
_NEAR = 2.0  # points between the drawn and the recognised place


@dataclass(frozen=True)
class Case:
    """A file and the answer for it."""

    invoice: Invoice
    scanned: bool
    document: dict[str, Any]


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


def test_the_text_and_its_source(case: Case) -> None:
    """Every word as printed, and the reason for the source."""
    [page] = case.document["pages"]

    assert case.invoice.text.split() == case.document["text"].split()
    assert case.document["text"] == page["text"]
    source, engines = ("ocr", ("tesseract", "rapidocr")) if case.scanned else ("text_layer", ("pdfium",))
    assert source == page["source"]
    assert page["engine"].split()[0] in engines
    assert ("no text of its own" in page["why"]) == case.scanned
    assert ("pdf", 1, 1, []) == (
        case.document["kind"],
        case.document["page_count"],
        page["number"],
        case.document["failed_pages"],
    )
    assert int(case.scanned) == case.document["usage"]["ocr_pages"]


def test_every_word_lies_on_its_ink(case: Case) -> None:
    """Each box has ink, no ink lies outside all of them, and offsets in the text are those of the words."""
    [page] = case.document["pages"]
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
    entities = case.document["entities"]
    for kind, text, value in case.invoice.entities:
        same = [entity for entity in entities if (entity["type"], entity["text"]) == (kind, text)]
        assert same, (kind, text, [(entity["type"], entity["text"]) for entity in entities])
        assert case.document["text"][same[0]["start"] : same[0]["end"]] == text
        assert value == same[0]["value"]
        assert same[0]["valid"] in ((True,) if kind in ("IBAN", "NIF") else (True, None))
        [place] = same[0]["places"]
        assert 1 == place["page"]
        assert _covers(place["box"], case.invoice.place(text)), (text, place, case.invoice.place(text))
    assert 1.0 == case.document["coverage"]


def test_language_class_and_key_sentences(case: Case) -> None:
    """What the page is and what it is about, with places."""
    document = case.document
    sentences = document["key_sentences"]

    assert case.invoice.language == document["language"]["code"] == document["pages"][0]["language"]
    assert "invoice" == document["classes"]["prediction"]
    assert any(case.invoice.key in sentence["text"] for sentence in sentences)
    for sentence in sentences:
        assert sentence["text"] == document["text"][sentence["start"] : sentence["end"]]
        assert sentence["places"]
        if "\n" not in sentence["text"]:  # a line that ends without a full stop goes on in the next
            [place] = sentence["places"]
            assert _covers(place["box"], case.invoice.place(sentence["text"]))
    for phrase in document["key_phrases"]:
        assert phrase["places"]
        for place in phrase["places"]:
            assert phrase["text"].lower() == document["text"][place["start"] : place["end"]].lower()


def test_the_vector_is_that_of_the_text(case: Case, client: httpx.Client) -> None:
    """As `/v1/embeddings` computes it."""
    expected = _embeddings(client, [case.document["text"]])[0]

    assert 1.0 == pytest.approx(float(vector_of(case.document["vector"]) @ expected), abs=1e-4)
    assert 1.0 == pytest.approx(float(np.linalg.norm(vector_of(case.document["vector"]))), abs=1e-4)


def test_answers_to_questions(case: Case, client: httpx.Client) -> None:
    """Of a digital file and of a scan alike, each where its words are printed; or nothing."""
    asked = {"es": ["¿Dónde se firmó el pedido?"], "en": ["Where was the order signed?"]}
    where = {"es": "Alcalá de Henares", "en": "Manchester"}[case.invoice.language]
    questions = [*asked[case.invoice.language], "Who invented soap?"]
    file = case.invoice.scanned_pdf if case.scanned else case.invoice.digital

    answer = client.post("/v1/answer", files={"file": ("a.pdf", file)}, data={"questions": questions}).json()

    *_, place, nothing = answer["data"]
    assert (where, 1) == (place["answer"]["text"], place["answer"]["page"])
    [box] = place["answer"]["boxes"]
    assert _covers(box, case.invoice.place(where))
    assert (None, "not_there", []) == (nothing["answer"], nothing["reason"], answer["failed_pages"])


def test_answers_from_a_long_text(client: httpx.Client) -> None:
    """Of some sixty windows the right ones are read, in the question's language or in the other."""
    chapter = (
        "The committee met on Tuesday and talked about the garden, its hedges and who waters them in August. " * 150
    )
    lease = "El contrato dura dos años y entra en vigor el 1 de marzo de 2026. La renta es de 950 euros al mes. "
    body = {"questions": ["¿Cuánto dura el contrato?", "How much is the rent?"], "input": chapter + lease + chapter}

    answer = client.post("/v1/answer", json=body).json()

    assert ["dos años", "950 euros"] == [row["answer"]["text"] for row in answer["data"]]


def test_a_document_of_many_pages(client: httpx.Client) -> None:
    """Chunks together are the text, each with the vector of `/v1/embeddings`, bit for bit; places are on their page."""
    document = answer_of(client, pages_of(SPANISH, ENGLISH, SPANISH, ENGLISH), encoding_format="base64")
    text, chunks = document["text"], document["chunks"]
    chunk_texts = [text[chunk["start"] : chunk["end"]] for chunk in chunks]

    assert len(chunks) > 1
    assert "".join(text.split()) == "".join("".join(chunk_texts).split())
    assert [1, 2, 3, 4] == sorted({page for chunk in chunks for page in chunk["pages"]})
    assert all(chunk["tokens"] <= 256 for chunk in chunks)
    for chunk, expected in zip(chunks, _embeddings(client, chunk_texts), strict=True):
        assert expected.tobytes() == vector_of(chunk["vector"]).tobytes()
    for page, language in zip(document["pages"], ("es", "en", "es", "en"), strict=True):
        assert page["text"] == text[page["start"] : page["start"] + len(page["text"])]
        assert language == page["language"]
    ibans = [(iban["places"][0]["page"], iban["value"][:2]) for iban in document["entities"] if iban["type"] == "IBAN"]
    assert [(1, "ES"), (2, "GB"), (3, "ES"), (4, "GB")] == ibans


def test_ocr_route(client: httpx.Client) -> None:
    """`POST /v1/ocr` gives the pages of `/v1/documents`, and nothing else."""
    document = answer_of(client, SPANISH.scanned_pdf)
    pages_only = send(client, SPANISH.scanned_pdf, "/v1/ocr").json()

    assert document["pages"] == pages_only["pages"]
    assert not {"entities", "vector", "classes"} & set(pages_only)


def _embeddings(client: httpx.Client, texts: list[str]) -> list[np.ndarray]:
    answer = client.post("/v1/embeddings", json={"input": texts, "encoding_format": "base64"})
    return [vector_of(row["embedding"]) for row in answer.json()["data"]]


def _pixels(box: Rectangle) -> tuple[slice, slice]:
    """Rows and columns of the scan under a box in points, with a margin of a pixel."""
    left, top, right, bottom = (side * SCAN_DPI / 72 for side in box)
    return slice(int(top) - 1, int(bottom) + 2), slice(int(left) - 1, int(right) + 2)


def _covers(box: Rectangle, ink: Rectangle) -> bool:
    """Whether the box is tight around the ink; boxes of a text layer are as high as the font."""
    grown = (box[0] - _NEAR, box[1] - _NEAR, box[2] + _NEAR, box[3] + _NEAR)
    inside = grown[0] <= ink[0] and grown[1] <= ink[1] and grown[2] >= ink[2] and grown[3] >= ink[3]
    close = abs(box[0] - ink[0]) < 2 * _NEAR and abs(box[2] - ink[2]) < 2 * _NEAR
    return inside and close and box[3] - box[1] < 2.5 * (ink[3] - ink[1])
