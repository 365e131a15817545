"""tika-client, with which Paperless-ngx asks Apache Tika."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tika_client import TikaClient

from tests.clients.server import MARKS, LiveServer
from tests.files.pdfs import pdf, text

pytestmark = MARKS


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[TikaClient]:
    with TikaClient(live_server.url) as client:
        yield client


def test_a_file(client: TikaClient, tmp_path: Path) -> None:
    """As text, as HTML, and its metadata alone."""
    file = tmp_path / "factura ñ.pdf"
    file.write_bytes(pdf(text(b"Total 1.284,50 EUR"), size=(595, 842)))

    as_text, as_html = client.tika.as_text.from_file(file), client.tika.as_html.from_file(file)
    metadata, [whole] = client.metadata.from_file(file), client.rmeta.as_text.from_file(file)

    assert ("application/pdf", 1) == (as_text.type, as_text.page_count)
    assert "Total 1.284,50 EUR" == as_text.content == whole.content
    assert "<p>Total 1.284,50 EUR</p>" in as_html.content
    assert (None, "factura ñ.pdf") == (metadata.content, metadata.data["resourceName"])


def test_bytes(client: TikaClient) -> None:
    content = pdf(text(b"Payment is due in 30 days."), size=(595, 842))

    assert "Payment is due" in client.tika.as_text.from_buffer(content, "application/pdf").content
