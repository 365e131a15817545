"""Mistral's client: OCR of a data URL and of a kept file."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from mistralai.azure.client import MistralAzure
from mistralai.client import Mistral
from mistralai.client.errors import SDKError
from mistralai.client.models import BaseModelCard
from mistralai.extra.utils.response_format import response_format_from_pydantic_model
from pydantic import BaseModel

from tests.clients.server import MARKS, LiveServer
from tests.files.pdfs import pdf, text

pytestmark = MARKS
MODEL = "mistral-ocr-latest"
FILE = pdf(text(b"Total 1.284,50 EUR"), text(b"Page two"), size=(595, 842))
URL = f"data:application/pdf;base64,{base64.b64encode(FILE).decode()}"


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[Mistral]:
    with Mistral(api_key="not-needed", server_url=live_server.url) as client:
        yield client


def test_a_data_url(client: Mistral) -> None:
    """Pages as Markdown with blocks, which the client wants by default."""
    answer = client.ocr.process(model=MODEL, document={"type": "document_url", "document_url": URL})

    first, second = answer.pages
    assert (0, "Total 1.284,50 EUR", 1, "Page two") == (first.index, first.markdown, second.index, second.markdown)
    assert (MODEL, 2, len(FILE)) == (answer.model, answer.usage_info.pages_processed, answer.usage_info.doc_size_bytes)
    [block] = first.blocks
    assert ("text", first.markdown) == (block.type, block.content)
    assert 0 < block.top_left_x < block.bottom_right_x < first.dimensions.width


def test_a_kept_file(client: Mistral) -> None:
    """As Mistral's documentation and Open WebUI do it: upload, signed address, OCR, delete."""
    file = client.files.upload(file={"file_name": "factura.pdf", "content": FILE}, purpose="ocr")
    address = client.files.get_signed_url(file_id=file.id)
    by_url = client.ocr.process(model=MODEL, document={"type": "document_url", "document_url": address.url}, pages=[1])
    by_id = client.ocr.process(model=MODEL, document={"type": "file", "file_id": file.id}, pages="1")

    assert ["Page two"] == [page.markdown for page in by_url.pages] == [page.markdown for page in by_id.pages]
    assert (False, len(FILE)) == ((kept := client.files.retrieve(file_id=file.id)).deleted, kept.size_bytes)
    assert client.files.delete(file_id=file.id).deleted


def test_tables_beside_the_markdown(client: Mistral) -> None:
    """With ``table_format``, as RAGFlow asks: each has an id that stands in its place."""
    page = "<p>Before</p><table><tr><th>Item</th><th>Price</th></tr><tr><td>Bolt</td><td>2.50</td></tr></table>"
    url = f"data:text/html;base64,{base64.b64encode(page.encode()).decode()}"
    answer = client.ocr.process(model=MODEL, document={"document_url": url}, table_format="html", include_blocks=True)

    [first] = answer.pages
    [table] = first.tables
    assert ("tbl-0.html", "html", "Before\n\n[tbl-0.html](tbl-0.html)") == (table.id, table.format_, first.markdown)
    assert "<th>Item</th><th>Price</th>" in table.content
    assert ("table", "tbl-0.html", table.content) == (
        first.blocks[1].type,
        first.blocks[1].table_id,
        first.blocks[1].content,
    )


def test_headers_and_footers(client: Mistral) -> None:
    """What recurs at the top and the bottom of pages leaves the Markdown; what stands there once does not."""
    pages = [
        text(b"ACME yearly report", y=810) + text(b"Body %d" % number, y=400) + text(b"Page %d of 3" % number, y=20)
        for number in (1, 2, 3)
    ]
    once = [text(b"A letter", y=810) + text(b"Body", y=400)]
    recurring, single = (
        client.ocr.process(
            model=MODEL,
            document={
                "document_url": "data:application/pdf;base64,"
                + base64.b64encode(pdf(*contents, size=(595, 842))).decode()
            },
            extract_header=True,
            extract_footer=True,
        )
        for contents in (pages, once)
    )

    assert [("ACME yearly report", f"Body {number}", f"Page {number} of 3") for number in (1, 2, 3)] == [
        (page.header, page.markdown, page.footer) for page in recurring.pages
    ]
    assert (None, "A letter\n\nBody") == (single.pages[0].header, single.pages[0].markdown)


def test_a_recording(client: Mistral) -> None:
    """Their client names no format: it asks for segments, and reads them."""
    file = {"file_name": "jfk.ogg", "content": (Path(__file__).parent / "data" / "jfk.ogg").read_bytes()}
    answer = client.audio.transcriptions.complete(model="whisper-base", file=file, timestamp_granularities=["segment"])

    assert "your country" in answer.text
    assert answer.text == "".join(segment.text for segment in answer.segments or ()).strip()
    assert all(0 <= segment.start < segment.end <= 11 for segment in answer.segments or ())


def test_where_azure_has_it(live_server: LiveServer) -> None:
    """Mistral's client for Azure, under a name that Azure gives the model."""
    with MistralAzure(api_key="not-needed", server_url=live_server.url) as client:
        answer = client.ocr.process(
            model="mistral-document-ai-2505", document={"type": "document_url", "document_url": URL}
        )

    assert ["Total 1.284,50 EUR", "Page two"] == [page.markdown for page in answer.pages]


def test_models(client: Mistral) -> None:
    """Their list, and one by its name, as cards of models that nobody fine-tuned."""
    cards = [*(client.models.list().data or ()), client.models.retrieve(model_id="multilingual-e5-small")]

    assert all(isinstance(card, BaseModelCard) for card in cards)
    assert {"intfloat/multilingual-e5-small", "multilingual-e5-small"} <= {card.id for card in cards}


class Car(BaseModel):
    """An object in the schema."""

    plate: str
    kilometres: int | None


class Delivery(BaseModel):
    """What a user wants of a paper, as Mistral's documentation has it."""

    car: Car
    hirer: Car | None = None
    colour: str | None
    insurer: str = "unknown"
    damages: list[str]


def test_annotation(client: Mistral) -> None:
    """A model of pydantic's comes back filled: values typed, and null, empty or the default where there are none."""
    lines = (b"Delivery note", b"Plate: 1234 BCD", b"Kilometres: 87.500")
    paper = pdf(b"".join(text(line, 50, 780 - 40 * row) for row, line in enumerate(lines)), size=(595, 842))
    url = f"data:application/pdf;base64,{base64.b64encode(paper).decode()}"

    answer = client.ocr.process(
        model=MODEL,
        document={"type": "document_url", "document_url": url},
        document_annotation_format=response_format_from_pydantic_model(Delivery),
    )

    expected = Delivery(car=Car(plate="1234 BCD", kilometres=87500), colour=None, damages=[])
    assert expected == Delivery.model_validate_json(answer.document_annotation or "")

    with pytest.raises(SDKError, match="no pictures are cut out"):
        client.ocr.process(
            model=MODEL,
            document={"type": "document_url", "document_url": url},
            bbox_annotation_format=response_format_from_pydantic_model(Car),
        )


def test_errors_are_its_own(client: Mistral) -> None:
    """With our message."""
    for url, named in (("https://a/b.pdf", "fetches no addresses"), ("data:;base64,AAAA", "not read here")):
        with pytest.raises(SDKError, match=named):
            client.ocr.process(model=MODEL, document={"type": "document_url", "document_url": url})


def test_keys(guarded_server: LiveServer) -> None:
    with Mistral(api_key="wrong-key", server_url=guarded_server.url) as client:
        with pytest.raises(SDKError, match="API_KEYS"):
            client.ocr.process(model=MODEL, document={"type": "document_url", "document_url": URL})
