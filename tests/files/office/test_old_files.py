"""Old Word and PowerPoint files, which LibreOffice turns into new ones where it is installed."""

import subprocess
import time
from pathlib import Path

import pytest

from backend.errors import DeadlineExceeded, UnreadableFile
from backend.files import office_converter
from backend.files.file_readers import FileReaders
from tests.files.office.office_files import SAMPLES, document_of

DOC = SAMPLES / "writer_letter.doc"


def test_without_libreoffice(readers: FileReaders, monkeypatch: pytest.MonkeyPatch):
    """Refused with the reason."""
    monkeypatch.setattr(office_converter, "program", lambda: None)
    with pytest.raises(UnreadableFile, match=r"where LibreOffice is installed .* OFFICE=1"):
        readers.open(DOC)


needs_office = pytest.mark.skipif(office_converter.program() is None, reason="LibreOffice is not installed")


@needs_office
@pytest.mark.slow
def test_an_old_document(readers: FileReaders):
    """It stays of its own kind."""
    document = document_of(readers, DOC)

    assert "doc" == document.kind
    assert "Contrato de suministro" in document.pages[0].text
    assert "Tuercas de acero inoxidable 250 1.159,50" in document.text


@needs_office
@pytest.mark.slow
def test_an_old_presentation(readers: FileReaders, tmp_path: Path):
    command = [office_converter.program(), f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}", "--headless"]
    command += ["--convert-to", "ppt", "--outdir", str(tmp_path), str(SAMPLES / "pandoc_contract.pptx")]
    subprocess.run(command, check=True, capture_output=True)
    document = document_of(readers, tmp_path / "pandoc_contract.ppt")

    assert ("ppt", 3) == (document.kind, len(document.pages))
    assert "Contrato de suministro" in document.pages[0].text


@needs_office
def test_a_caller_who_stops_waiting(readers: FileReaders):
    """LibreOffice ends with the caller's time."""
    readers.start()
    with pytest.raises(DeadlineExceeded):
        readers.open(DOC, deadline_s=time.monotonic() + 0.5)


@needs_office
@pytest.mark.slow
def test_a_document_that_libreoffice_cannot_read(readers: FileReaders):
    """A compound file that only claims to be one."""
    data = bytearray(DOC.read_bytes())
    place = data.find("WordDocument".encode("utf-16-le"))
    stream_start = int.from_bytes(data[place + 116 : place + 120], "little")
    data[512 * (stream_start + 1) : 512 * (stream_start + 1) + 64] = bytes(64)
    with pytest.raises(UnreadableFile, match="LibreOffice cannot read it as doc"):
        readers.open(bytes(data))
