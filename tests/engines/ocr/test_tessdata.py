"""Language data are found in the usual folders, or where the setting says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backend.engines.ocr import tessdata
from backend.engines.ocr.tessdata import find_tessdata
from backend.errors import SetupError


def put(folder: Path, *codes: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for code in codes:
        (folder / f"{code}.traineddata").write_bytes(b"data")
    return folder


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hides the Tesseract of this machine."""
    monkeypatch.setattr(tessdata, "_USUAL_FOLDERS", ())
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))


def test_no_data():
    """None is no error: another engine may be usable."""
    assert find_tessdata(program="no-such-program") is None


@pytest.mark.parametrize("above", [pytest.param(False, id="the-folder"), pytest.param(True, id="the-one-above")])
def test_the_setting_names_the_folder(tmp_path: Path, above: bool):
    """TESSDATA_PREFIX meant the parent folder in Tesseract 3, and the folder itself since."""
    folder = put(tmp_path / "tessdata", "spa", "eng", "osd")

    found = find_tessdata(str(tmp_path if above else folder))

    assert found is not None
    assert (folder, ("eng", "spa"), ("en", "es")) == (found.folder, found.codes, found.languages)
    assert "TESSDATA_PREFIX" in found.why


def test_a_wrong_setting_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Data elsewhere do not replace a setting without data."""
    monkeypatch.setattr(tessdata, "_USUAL_FOLDERS", (str(put(tmp_path / "usual", "eng")),))
    (tmp_path / "osd.traineddata").write_bytes(b"no language")

    with pytest.raises(SetupError, match="TESSDATA_PREFIX"):
        find_tessdata(str(tmp_path))


def test_the_python_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A conda environment has data that fit its library."""
    monkeypatch.setattr(tessdata, "_USUAL_FOLDERS", (str(put(tmp_path / "usual", "eng")),))
    conda = put(tmp_path / "prefix" / "share" / "tessdata", "deu")

    found = find_tessdata()

    assert found is not None
    assert conda == found.folder


def test_an_empty_file_is_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An interrupted download leaves one."""
    (put(tmp_path / "usual", "eng") / "spa.traineddata").write_bytes(b"")
    monkeypatch.setattr(tessdata, "_USUAL_FOLDERS", (str(tmp_path / "usual"),))

    found = find_tessdata()

    assert found is not None
    assert ("eng",) == found.codes


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the program")
def test_the_program_comes_last(tmp_path: Path):
    folder = put(tmp_path / "far away", "glg", "eng")
    program = tmp_path / "tesseract"
    program.write_text(f"#!/bin/sh\necho 'List of available languages in \"{folder}/\" (2):'\necho eng\n")
    program.chmod(0o755)

    found = find_tessdata(program=str(program))

    assert found is not None
    assert (folder, ("en", "gl")) == (found.folder, found.languages)


def test_other_data_of_the_same_names_have_another_digest(tmp_path: Path):
    """Cached pages are of the data that read them: names, sizes, and contents, those of orientation too."""
    folder = put(tmp_path, "spa", "eng", "osd")
    (folder / "eng.user-words").write_bytes(b"not read")
    found = find_tessdata(str(folder))
    assert found is not None
    before = found.digest()

    digests = {before}
    for file, content in (("eng", b"DATA"), ("spa", b"data, the best"), ("osd", b"atad"), ("fra", b"data")):
        (folder / f"{file}.traineddata").write_bytes(content)
        digests.add(found.digest())

    assert 5 == len(digests)
    (folder / "eng.user-words").write_bytes(b"not read either")
    assert found.digest() in digests
