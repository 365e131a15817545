"""Apache Tika's clients: tika-client, with which Paperless-ngx asks it, and tika-python."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tika_client import TikaClient

from tests.clients.server import MARKS, LiveServer
from tests.files.pdfs import pdf, text

pytestmark = MARKS
# In a process of its own, as it reads its settings and opens its log when it is imported.
TIKA_PYTHON = """
import json, sys
from tika import detector, parser
file = sys.argv[1]
whole, as_html = parser.from_file(file), parser.from_file(file, xmlContent=True)
metadata = parser.from_file(file, service="meta")["metadata"]
print(json.dumps([whole, as_html["content"], metadata, detector.from_file(file), detector.from_buffer("plain text")]))
"""


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
    [whole_as_html] = client.rmeta.as_html.from_file(file)

    assert ("application/pdf", 1) == (as_text.type, as_text.page_count)
    assert "Total 1.284,50 EUR" == as_text.content == whole.content
    assert "<p>Total 1.284,50 EUR</p>" in as_html.content == whole_as_html.content
    assert (None, "factura ñ.pdf") == (metadata.content, metadata.data["resourceName"])


def test_bytes(client: TikaClient) -> None:
    content = pdf(text(b"Payment is due in 30 days."), size=(595, 842))

    assert "Payment is due" in client.tika.as_text.from_buffer(content, "application/pdf").content


def test_tika_python(live_server: LiveServer, tmp_path: Path) -> None:
    """Text, HTML, metadata and media types."""
    file = tmp_path / "factura.pdf"
    file.write_bytes(pdf(text(b"Total 1.284,50 EUR"), size=(595, 842)))
    settings = {"TIKA_CLIENT_ONLY": "1", "TIKA_SERVER_ENDPOINT": live_server.url, "TIKA_LOG_PATH": str(tmp_path)}

    printed = subprocess.run(
        [sys.executable, "-c", TIKA_PYTHON, file], env={**os.environ, **settings}, capture_output=True, check=True
    ).stdout
    whole, as_html, metadata, kind, kind_of_bytes = json.loads(printed.splitlines()[-1])

    assert (200, "Total 1.284,50 EUR") == (whole["status"], whole["content"])
    assert "<p>Total 1.284,50 EUR</p>" in as_html
    assert ("application/pdf", "1") == (metadata["Content-Type"], metadata["xmpTPg:NPages"])
    assert ("application/pdf", "text/plain") == (kind, kind_of_bytes)
