"""Language data are those that come with the service and the machine's further ones, or where the setting says."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from backend.errors import SetupError
from backend.ocr import tessdata
from backend.ocr.tessdata import find_system_tessdata, find_tessdata


def put(folder: Path, *codes: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for code in codes:
        (folder / f"{code}.traineddata").write_bytes(b"data")
    return folder


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hides the Tesseract of this machine."""
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", ())
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the unpacked data that come with the service."""
    folder = put(tmp_path / "shipped", "eng", "spa")
    monkeypatch.setattr(tessdata, "SHIPPED", {"spa": "", "eng": ""})
    monkeypatch.setattr(tessdata, "shipped_folder", lambda _keep_in: folder)
    return folder


@pytest.fixture
def nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_keep_in: Path | None) -> Path:
        raise SetupError("the packed data are damaged")

    monkeypatch.setattr(tessdata, "shipped_folder", damaged)


def test_shipped_data_need_no_tesseract_on_the_machine(shipped: Path):
    found = find_tessdata()

    assert (shipped, ("eng", "spa"), ("en", "es", "eu")) == (found.folder, found.codes, found.languages)


def test_shipped_data_come_before_those_of_the_machine(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every machine reads the same words."""
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", (str(put(tmp_path / "usual", "eng", "osd")),))

    found = find_tessdata()

    assert shipped == found.folder


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("links", [True, False])
def test_further_languages_of_the_machine_join_them(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool, links: bool
):
    """Tesseract reads one folder. Windows may refuse links, and STATE_DIR may be read-only."""
    usual = put(tmp_path / "usual", "eng", "pol", "osd")
    (usual / "eng.traineddata").write_bytes(b"other data")
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", (str(usual),))
    state = tmp_path / "state"
    if not writable:
        state.touch()
        monkeypatch.setattr(tessdata, "temporary_place", lambda: tmp_path / "temporary")
    if not links:
        monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=OSError("not allowed")))

    found = find_tessdata(keep_in=state / "models")
    again = find_tessdata(keep_in=state / "models")

    assert found == again
    assert (tmp_path / ("state" if writable else "temporary")) in found.folder.parents
    assert (("eng", "pol", "spa"), ("en", "pl", "es", "eu")) == (found.codes, found.languages)
    assert {"eng": b"data", "pol": b"data", "spa": b"data"} == {
        file.name.removesuffix(".traineddata"): file.read_bytes() for file in found.folder.iterdir()
    }


def test_changed_data_of_the_machine_are_used(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Copies are made anew, too; links of an older state do not disturb."""
    usual = put(tmp_path / "usual", "pol")
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", (str(usual),))
    monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=OSError("not allowed")))
    before = find_tessdata(keep_in=tmp_path / "state")
    (usual / "pol.traineddata").write_bytes(b"better data")

    after = find_tessdata(keep_in=tmp_path / "state")

    assert b"better data" == (after.folder / "pol.traineddata").read_bytes()
    assert before.digest() != after.digest()


@pytest.mark.usefixtures("nothing_shipped")
def test_without_shipped_data_the_machine_s_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", (str(put(tmp_path / "usual", "eng")),))

    found = find_tessdata()

    assert tmp_path / "usual" == found.folder


@pytest.mark.usefixtures("nothing_shipped")
def test_no_data():
    """None is no error: another engine may be usable."""
    assert find_tessdata() is None


@pytest.mark.parametrize("above", [pytest.param(False, id="the-folder"), pytest.param(True, id="the-one-above")])
def test_the_setting_names_the_folder(tmp_path: Path, above: bool):
    """TESSDATA_PREFIX meant the parent folder in Tesseract 3, and the folder itself since."""
    folder = put(tmp_path / "tessdata", "spa", "eng", "osd")

    found = find_tessdata(str(tmp_path if above else folder))

    assert (folder, ("eng", "spa"), ("en", "es", "eu")) == (found.folder, found.codes, found.languages)
    assert "TESSDATA_PREFIX" in found.why


def test_a_wrong_setting_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Data elsewhere do not replace a setting without data."""
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", (str(put(tmp_path / "usual", "eng")),))
    (tmp_path / "osd.traineddata").write_bytes(b"no language")

    with pytest.raises(SetupError, match="TESSDATA_PREFIX"):
        find_tessdata(str(tmp_path))


def test_the_python_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A conda environment has data that fit its library."""
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", (str(put(tmp_path / "usual", "eng")),))
    conda = put(tmp_path / "prefix" / "share" / "tessdata", "deu")

    found = find_system_tessdata()

    assert conda == found.folder


def test_an_empty_file_is_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An interrupted download leaves one."""
    (put(tmp_path / "usual", "eng") / "spa.traineddata").write_bytes(b"")
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", (str(tmp_path / "usual"),))

    found = find_system_tessdata()

    assert ("eng",) == found.codes


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the program")
def test_the_program_comes_last(tmp_path: Path):
    folder = put(tmp_path / "far away", "glg", "eng")
    program = tmp_path / "tesseract"
    program.write_text(f"#!/bin/sh\necho 'List of available languages in \"{folder}/\" (2):'\necho eng\n")
    program.chmod(0o755)

    found = find_system_tessdata(str(program))

    assert (folder, ("en", "gl")) == (found.folder, found.languages)


def test_other_data_of_the_same_names_have_another_digest(tmp_path: Path):
    """Cached pages are of the data that read them: names, sizes, and contents, those of orientation too."""
    folder = put(tmp_path, "spa", "eng", "osd")
    (folder / "eng.user-words").write_bytes(b"not read")
    found = find_tessdata(str(folder))
    before = found.digest()

    digests = {before}
    for file, content in (("eng", b"DATA"), ("spa", b"data, the best"), ("osd", b"atad"), ("fra", b"data")):
        (folder / f"{file}.traineddata").write_bytes(content)
        digests.add(found.digest())

    assert 5 == len(digests)
    (folder / "eng.user-words").write_bytes(b"not read either")
    assert found.digest() in digests
