"""Azure Document Intelligence's dialect: operations are jobs, results are in Azure's words, units and offsets."""

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from backend.api.routes.azure_answers import Asked, analyze_result, offsets
from backend.documents.records import DocumentAnswer, DocumentOptions, ExtractedDocument, OwnField, OwnValue, Understood
from backend.errors import UnreadableFile
from backend.files.pages import Barcode, Box, Document, RawWord, TextLocation, make_page
from backend.invoices.records import ExtractedFields, Field, FieldRow, Validity
from backend.tables.records import Table, TableCell
from tests.api.checks import problem
from tests.api.test_jobs import PDF, JobsApi, opened
from tests.jobs.replica import FakeProcess

MODELS = "/documentintelligence/documentModels"
MANY_NAMES = f"prebuilt-read:analyze?queryFields={','.join(map(str, range(201)))}"
SENT = {"base64Source": base64.b64encode(PDF).decode()}


def written(answer: DocumentAnswer, asked: Asked) -> dict[str, Any]:
    result: dict[str, Any] = orjson.loads(b"".join(analyze_result(answer, asked)))
    return result


async def ended(api: JobsApi, location: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The operation, once its job has ended."""
    await api.ended(location.partition("?")[0].rpartition("/")[2], headers)
    return (await api.client.get(location, headers=headers)).json()


@pytest.mark.parametrize("body", [{"json": SENT}, {"content": PDF, "headers": {"content-type": "application/pdf"}}])
async def test_an_analysis_is_a_job(body: dict[str, Any]) -> None:
    """Accepted with an absolute address, soon to be asked again; the file and its options reach the service."""
    process = FakeProcess()
    async with opened(process) as api:
        asked = "pages=1-2&locale=es-ES&features=barcodes,queryFields&queryFields=Pedido,Obra,Pedido"
        accepted = await api.client.post(f"{MODELS}/prebuilt-layout:analyze?{asked}", **body)
        operation = await ended(api, accepted.headers["operation-location"])

    assert (202, b"", "1") == (accepted.status_code, accepted.content, accepted.headers["retry-after"])
    assert accepted.headers["operation-location"].startswith(f"http://test{MODELS}/prebuilt-layout/analyzeResults/")
    [(content, options, _)] = process.calls
    assert (PDF, "1-2", ("es",), frozenset({"text", "words", "tables"}), '["Pedido","Obra"]') == (
        content,
        options.pages,
        options.languages,
        options.features,
        options.schema,
    )
    assert options.barcodes
    result = operation["analyzeResult"]
    assert ("succeeded", "prebuilt-layout", "page1\n\npage2", [], []) == (
        operation["status"], result["modelId"], result["content"], result["tables"], result["figures"],
    )  # fmt: skip


async def test_the_service_by_its_name_until_2023() -> None:
    """As azure-ai-formrecognizer asks, and so Haystack's converter: results are at the same name."""
    async with opened(FakeProcess()) as api:
        accepted = await api.client.post("/formrecognizer/documentModels/prebuilt-read:analyze", json=SENT)
        operation = await ended(api, accepted.headers["operation-location"])
        refused = await api.client.post("/formrecognizer/documentModels/other:analyze", json=SENT)

    assert (
        "http://test/formrecognizer/documentModels/prebuilt-read/analyzeResults/"
        in (accepted.headers["operation-location"])
    )
    assert "succeeded" == operation["status"]
    assert "ModelNotFound" == refused.json()["error"]["innererror"]["code"]


def test_roles_of_headings() -> None:
    """By their size beside the body's, as Markdown has them."""
    blocks = [
        [[RawWord(word, Box(50, top, 50 + 8 * len(word), top + height), 0.9)]]
        for word, top, height in (
            ("Título", 20, 30),
            ("Apartado", 80, 19),
            ("cuerpo" * 5, 120, 12),
            ("pie" * 9, 160, 12),
        )
    ]
    page = make_page(blocks, number=1, width=595.0, height=842.0, source="ocr", why="", engine="", confidence=0.9)
    read = ExtractedDocument(Document("pdf", (page,), 1, "ab" * 32), (), 1, 0.0, 0.0, 0.0)
    answer = DocumentAnswer(read, page.text, Understood(), DocumentOptions(), "cpu", 0.0, 0.0)

    paragraphs = written(answer, Asked("prebuilt-layout"))["paragraphs"]

    assert ["title", "sectionHeading", None, None] == [paragraph.get("role") for paragraph in paragraphs]


async def test_a_turned_page() -> None:
    """Corners are those of the page as a viewer shows it, from the upper left of the text, in inches of a PDF."""
    async with opened(FakeProcess(pages=1)) as api:
        accepted = await api.client.post(f"{MODELS}/prebuilt-read:analyze", json=SENT)
        [page] = (await ended(api, accepted.headers["operation-location"]))["analyzeResult"]["pages"]

    assert (1, "inch", -90, round(200 / 72, 4), round(100 / 72, 4)) == (
        page["pageNumber"], page["unit"], page["angle"], page["width"], page["height"],
    )  # fmt: skip
    # upright (1, 2), (30, 2), (30, 12), (1, 12) on a page 100 wide: turned by 90 degrees clockwise from (y, 100 - x)
    corners = [2, 99, 2, 70, 12, 70, 12, 99]
    assert [round(side / 72, 4) for side in corners] == page["words"][0]["polygon"] == page["lines"][0]["polygon"]
    assert {"offset": 0, "length": 5} == page["words"][0]["span"] == page["spans"][0]


async def test_the_same_question_again() -> None:
    """One file asked twice in the same way is one operation; asked in another way it is another."""
    async with opened(FakeProcess()) as api:
        first, again, other = [
            (await api.client.post(f"{MODELS}/{question}", json=SENT)).headers["operation-location"]
            for question in (
                "prebuilt-read:analyze",
                "prebuilt-read:analyze",
                "prebuilt-read:analyze?stringIndexType=utf16CodeUnit",
            )
        ]

    assert first == again != other


async def test_a_file_that_cannot_be_read() -> None:
    """The operation fails with Azure's code and cause, and our message."""
    async with opened(FakeProcess(pages=0, error=UnreadableFile("file: broken"))) as api:
        accepted = await api.client.post(f"{MODELS}/prebuilt-read:analyze", json=SENT)
        operation = await ended(api, accepted.headers["operation-location"])

    error = operation["error"]
    assert ("failed", "InvalidRequest", "file: broken") == (operation["status"], error["code"], error["message"])
    assert {"code": "InvalidContent", "message": "file: broken"} == error["innererror"]
    assert "analyzeResult" not in operation


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "cause", "named"),
    [
        ("prebuilt-read:analyze", {"urlSource": "https://a/b.pdf"}, 422, "InvalidRequest", "InvalidParameter", "fetch"),
        ("prebuilt-read:analyze", {"base64Source": "??"}, 422, "InvalidRequest", "InvalidParameter", "base64Source"),
        ("prebuilt-read:analyze", {}, 422, "InvalidRequest", "InvalidParameter", "base64Source"),
        ("prebuilt-read:analyze", {"base64Source": "AAAA"}, 415, "InvalidRequest", "InvalidContent", "not read here"),
        ("prebuilt-read:analyze?features=formulas", SENT, 422, "InvalidRequest", "InvalidParameter", "formulas"),
        ("prebuilt-read:analyze?pages=x", SENT, 422, "InvalidRequest", "InvalidParameter", "pages"),
        (MANY_NAMES, SENT, 413, "InvalidRequest", "InvalidContentLength", "queryFields"),
        ("my-model:analyze", SENT, 404, "NotFound", "ModelNotFound", "prebuilt-receipt"),
    ],
)  # fmt: skip
async def test_errors(path: str, body: Any, status: int, code: str, *, cause: str, named: str) -> None:
    """In the words that Microsoft's SDKs show."""
    async with opened(FakeProcess()) as api:
        answer = await api.client.post(f"{MODELS}/{path}", json=body)

    error = answer.json()["error"]
    assert (status, code, cause) == (answer.status_code, error["code"], error["innererror"]["code"]), error
    assert named in error["message"]


async def test_a_result_is_of_its_model_and_its_key() -> None:
    """Under another model, with another key or after its deletion it is not there."""
    headers = {"Ocp-Apim-Subscription-Key": "one"}
    async with opened(FakeProcess(), keys=("one", "two")) as api:
        path = f"{MODELS}/prebuilt-read:analyze?api-version=2024-11-30"
        accepted = await api.client.post(path, json=SENT, headers=headers)
        location = accepted.headers["operation-location"]
        await ended(api, location, headers)
        problem_of_none = await api.client.get(location)
        others = [
            await api.client.get(location.replace("prebuilt-read", "prebuilt-layout"), headers=headers),
            await api.client.get(location, headers={"api-key": "two"}),
        ]
        deleted = await api.client.delete(location, headers=headers)
        others.append(await api.client.get(location, headers=headers))

    assert (401, "Unauthorized") == (problem_of_none.status_code, problem_of_none.json()["error"]["code"])
    assert 204 == deleted.status_code
    assert [404] * 3 == [answer.status_code for answer in others]


async def test_jobs_of_other_routes_are_no_results() -> None:
    async with opened(FakeProcess()) as api:
        job = (await api.client.post("/v1/jobs", files={"file": ("a.pdf", PDF)})).json()
        answer = await api.client.get(f"{MODELS}/prebuilt-read/analyzeResults/{job['id']}")

    assert 404 == answer.status_code


async def test_behind_a_proxy_the_address_is_the_clients() -> None:
    """TLS ends before the service."""
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "ocr.example.org"}
    async with opened(FakeProcess()) as api:
        accepted = await api.client.post(f"{MODELS}/prebuilt-read:analyze", json=SENT, headers=forwarded)

    assert accepted.headers["operation-location"].startswith(f"https://ocr.example.org{MODELS}/prebuilt-read/")


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("añ€", "textElements", [0, 1, 2, 3]), ("e\u0301a", "textElements", [0, 1, 1, 2]),
        ("👍🏽x", "textElements", [0, 1, 1, 2]), ("👩\u200d🔬x", "textElements", [0, 1, 1, 1, 2]),
        ("\u0301a", "textElements", [0, 1, 2]), ("a👍b", "utf16CodeUnit", [0, 1, 3, 4]),
        ("a👍b", "unicodeCodePoint", [0, 1, 2, 3]), ("", "textElements", [0]),
    ],
)  # fmt: skip
def test_offsets(text: str, kind: str, expected: list[int]) -> None:
    """How many of the client's units stand before each code point."""
    assert expected == list(offsets(text, kind))


NAMES = ("VendorName", "InvoiceDate", "InvoiceTotal", "CurrencyCode", "Items")


def invoice() -> DocumentAnswer:
    """An invoice of one page with a table of two cells and a word outside the first plane."""
    words = (("Factura", "👍", "7"), ("Total", "10,50", "€"))
    lines = [
        [RawWord(word, Box(72.0 * at, 72.0 * row, 72.0 * at + 36, 72.0 * row + 12)) for at, word in enumerate(line)]
        for row, line in enumerate(words)
    ]
    page = make_page([lines], number=1, width=595, height=842, source="ocr", why="fake", engine="fake")
    total = page.text.index("10,50")
    place = TextLocation(1, Box(72, 72, 108, 84))
    cells = (
        TableCell(0, 0, "Total", header=True, page=1, boxes=(Box(0, 72, 36, 84),), start=12, end=17),
        TableCell(0, 1, "", page=1),
    )
    cell = Field("Amount", "10.50", "10,50", 0.9, "text", "why")
    fields = ExtractedFields(
        (
            Field("VendorName", "Aceros", "Aceros, S.L.", 0.8, "text", "why"),
            Field("InvoiceDate", "2026-03-12", "12/03/2026", 0.9, "text", "why"),
            Field("InvoiceTotal", "10.50", "10,50", 0.9, "text", "why", total, total + 5, (place,)),
            Field("CurrencyCode", "EUR", "€", 1.0, "text", "why"),
            Field("Items", "", "", 0.9, "text", "why", rows=(FieldRow((cell,)),)),
        ),
        Validity(),
        "why",
        kind="invoice",
        pages=(1,),
    )
    table = Table((1,), (Box(0, 72, 200, 84),), 1, 2, cells, "ruled", 0.9)
    options = DocumentOptions(features=frozenset({"text", "words", "fields", "tables"}))
    code = Barcode(1, "DataBarExp", "(01)9889", Box(72, 72, 144, 144))
    read = ExtractedDocument(Document("pdf", (page,), 1, "ab" * 32, barcodes=(code,)), (), 1, 0.0, 0.0, 0.0)
    return DocumentAnswer(read, page.text, Understood(fields=fields, tables=(table,)), options, "cpu", 0.0, 0.0)


def test_query_fields() -> None:
    """What the client named is text in the document on whose page it stands, or alone in one of the whole file."""
    answer = invoice()
    start = answer.text.index("10,50")
    value = OwnValue('"10,50"', "10,50", start, start + 5, 0.7, "why", (TextLocation(1, Box(72, 72, 108, 84)),))
    answer = replace(answer, understood=replace(answer.understood, custom=(OwnField(("Total",), (value,)),)))

    [beside] = written(answer, Asked("prebuilt-invoice"))["documents"]
    answer = replace(answer, understood=replace(answer.understood, fields=None))
    [alone] = written(answer, Asked("prebuilt-layout"))["documents"]

    assert ("invoice", "prebuilt-layout", 0.7) == (beside["docType"], alone["docType"], alone["confidence"])
    assert {"Total"} == alone["fields"].keys() == beside["fields"].keys() - set(NAMES)
    total = alone["fields"]["Total"]
    assert total == beside["fields"]["Total"]
    assert ("string", "10,50", 1.0) == (total["type"], total["valueString"], total["boundingRegions"][0]["polygon"][0])


@pytest.mark.parametrize("content_format", ["text", "markdown"])
def test_spans_of_an_invoice(content_format: str) -> None:
    """Every span is that of its content, in UTF-16 here, in the text and in the Markdown."""
    result = written(invoice(), Asked("prebuilt-invoice", "utf16CodeUnit", content_format))

    units = result["content"].encode("utf-16-le")
    [page], [document], [table] = result["pages"], result["documents"], result["tables"]
    spans = [(word["content"], word["span"]) for word in page["words"]]
    spans.append(("10,50", document["fields"]["InvoiceTotal"]["spans"][0]))
    spans.append(("Total", table["cells"][0]["spans"][0]))
    for text, span in spans:
        assert text == units[2 * span["offset"] : 2 * (span["offset"] + span["length"])].decode("utf-16-le")


def test_fields_and_tables() -> None:
    """Fields have Azure's types; a receipt's model gives the same by a receipt's names."""
    result = written(invoice(), Asked("prebuilt-invoice"))
    receipt = written(invoice(), Asked("prebuilt-receipt"))["documents"][0]

    [document], [table] = result["documents"], result["tables"]
    [code] = result["pages"][0]["barcodes"]
    assert ("DataBarExpanded", "(01)9889", [1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 2.0]) == (
        *(code[name] for name in ("kind", "value", "polygon")),
    )
    fields = document["fields"]
    assert ("invoice", [1]) == (document["docType"], [region["pageNumber"] for region in document["boundingRegions"]])
    assert ("string", "Aceros", "Aceros, S.L.", 0.8) == (
        *(fields["VendorName"][name] for name in ("type", "valueString", "content", "confidence")),
    )
    assert ("date", "2026-03-12") == (fields["InvoiceDate"]["type"], fields["InvoiceDate"]["valueDate"])
    assert {"amount": 10.5, "currencyCode": "EUR"} == fields["InvoiceTotal"]["valueCurrency"]
    assert [{"pageNumber": 1, "polygon": [1.0, 1.0, 1.5, 1.0, 1.5, 1.1667, 1.0, 1.1667]}] == (
        fields["InvoiceTotal"]["boundingRegions"]
    )
    [row] = fields["Items"]["valueArray"]
    assert 10.5 == row["valueObject"]["Amount"]["valueCurrency"]["amount"]
    assert ("receipt", {"MerchantName", "TransactionDate", "Total", "CurrencyCode", "Items"}) == (
        receipt["docType"], set(receipt["fields"]),
    )  # fmt: skip
    assert "TotalPrice" in receipt["fields"]["Items"]["valueArray"][0]["valueObject"]
    assert (1, 2, "columnHeader", []) == (
        table["rowCount"], table["columnCount"], table["cells"][0]["kind"], table["cells"][1]["boundingRegions"],
    )  # fmt: skip


async def test_keys_in_other_headers() -> None:
    """A key is found in each; a forgotten Bearer is told."""
    async with opened(FakeProcess(), keys=("right",)) as api:
        for name in ("Ocp-Apim-Subscription-Key", "X-Api-Key", "api-key"):
            assert 404 == (await api.client.get("/v1/jobs/none", headers={name: "right"})).status_code
        bare = await api.client.get("/v1/jobs/none", headers={"Authorization": "right"})

    problem(bare, 401, "unauthorized", "without the word Bearer")
