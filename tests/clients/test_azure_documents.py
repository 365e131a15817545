"""Microsoft's SDK for Azure Document Intelligence, and what Paperless-ngx' remote parser does with it."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from azure.ai.documentintelligence import DocumentIntelligenceClient
from azure.ai.documentintelligence.models import AnalyzeDocumentRequest, AnalyzeOutputOption, DocumentContentFormat
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from tests.clients.server import MARKS, LiveServer
from tests.files.pdfs import pdf, text

pytestmark = MARKS
LINES = (
    b"Aceros del Norte, S.L.   NIF B12345674", b"FACTURA N. 2026/017", b"Fecha: 12/03/2026",
    b"Base imponible: 1.061,57 EUR", b"IVA 21 %: 222,93 EUR", b"Total factura: 1.284,50 EUR",
)  # fmt: skip
INVOICE = pdf(b"".join(text(line, 50, 780 - 40 * row) for row, line in enumerate(LINES)), size=(595, 842))


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[DocumentIntelligenceClient]:
    with closing(DocumentIntelligenceClient(live_server.url, AzureKeyCredential("not-needed"))) as client:
        yield client


def test_paperless(client: DocumentIntelligenceClient) -> None:
    """The steps of paperless-ngx 3's parsers/remote.py: text, and the searchable PDF by the operation's id."""
    poller = client.begin_analyze_document(
        model_id="prebuilt-read",
        body=AnalyzeDocumentRequest(bytes_source=INVOICE),
        output_content_format=DocumentContentFormat.TEXT,
        output=[AnalyzeOutputOption.PDF],
        content_type="application/json",
    )
    poller.wait()
    result_id = poller.details["operation_id"]
    content = poller.result().content
    archive = b"".join(client.get_analyze_result_pdf(model_id="prebuilt-read", result_id=result_id))

    assert "Total factura: 1.284,50 EUR" in content
    assert archive.startswith(b"%PDF")


def test_invoice(client: DocumentIntelligenceClient) -> None:
    """Fields by Azure's types, and words whose spans and corners point at the content."""
    result = client.begin_analyze_document("prebuilt-invoice", INVOICE, string_index_type="unicodeCodePoint").result()

    [document], [page] = result.documents, result.pages
    total = document.fields["InvoiceTotal"]
    assert ("invoice", 1284.5, "EUR") == (
        document.doc_type, total.value_currency.amount, total.value_currency.currency_code,
    )  # fmt: skip
    assert "2026-03-12" == document.fields["InvoiceDate"].value_date.isoformat()
    assert "B12345674" == document.fields["VendorTaxId"].value_string
    assert "1.284,50" in result.content[total.spans[0].offset :][: total.spans[0].length]
    assert ("inch", 8) == (page.unit, len(total.bounding_regions[0].polygon))
    for word in page.words:
        assert word.content == result.content[word.span.offset : word.span.offset + word.span.length]


def test_layout_as_markdown(client: DocumentIntelligenceClient) -> None:
    """As LangChain's loader asks for it; what is named is found beside."""
    result = client.begin_analyze_document(
        "prebuilt-layout",
        body=INVOICE,
        pages="1",
        locale="es-ES",
        output_content_format="markdown",
        features=["queryFields"],
        query_fields=["Fecha", "Obra"],
    ).result()

    assert ("markdown", 1, []) == (result.content_format, len(result.pages), result.figures)
    assert "Total factura" in result.content
    assert {"Fecha": "12/03/2026"} == {name: field.value_string for name, field in result.documents[0].fields.items()}


def test_errors_are_its_own(client: DocumentIntelligenceClient) -> None:
    """At once or as the operation's end, with Azure's codes and our message."""
    with pytest.raises(ResourceNotFoundError, match="prebuilt-receipt"):
        client.begin_analyze_document("my-model", INVOICE)
    with pytest.raises(HttpResponseError, match="fetches no addresses"):
        client.begin_analyze_document("prebuilt-read", AnalyzeDocumentRequest(url_source="https://a/b.pdf"))
    with pytest.raises(HttpResponseError, match="too damaged to open") as caught:
        client.begin_analyze_document("prebuilt-read", b"%PDF-1.7 broken").result()

    assert ("InvalidRequest", "InvalidContent") == (caught.value.error.code, caught.value.error.innererror["code"])


def test_keys(guarded_server: LiveServer) -> None:
    """The key travels in Azure's header."""
    with closing(DocumentIntelligenceClient(guarded_server.url, AzureKeyCredential("right-key"))) as client:
        assert "1.284,50" in client.begin_analyze_document("prebuilt-read", INVOICE).result().content
    with closing(DocumentIntelligenceClient(guarded_server.url, AzureKeyCredential("wrong-key"))) as client:
        with pytest.raises(HttpResponseError, match="API_KEYS"):
            client.begin_analyze_document("prebuilt-read", INVOICE)
