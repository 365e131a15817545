"""The language data that come with the service: every language is unpacked, checked, and readable without Tesseract."""

import lzma
import shutil
from pathlib import Path

import pytest

from backend.errors import SetupError
from backend.models.fingerprint import file_digest
from backend.ocr import tessdata
from backend.ocr.tessdata import PACKED, SHIPPED, main, shipped_folder


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tessdata, "INSTALLED", tmp_path / "installed")


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One small file that is damaged by the tests, in place of the shipped ones."""
    folder = tmp_path / "packed"
    folder.mkdir()
    shutil.copy(PACKED / "fra.traineddata.xz", folder)
    monkeypatch.setattr(tessdata, "PACKED", folder)
    monkeypatch.setattr(tessdata, "SHIPPED", {"fra": SHIPPED["fra"]})
    return folder / "fra.traineddata.xz"


def test_every_packed_file_is_unpacked(tmp_path: Path):
    """Into the folder that is given, and found there by the next start."""
    folder = shipped_folder(tmp_path / "state")

    assert {f"{code}.traineddata": sha256 for code, sha256 in SHIPPED.items()} == {
        file.name: file_digest(file) for file in folder.iterdir()
    }
    assert {f"{code}.traineddata.xz" for code in SHIPPED} == {file.name for file in PACKED.glob("*.xz")}
    assert folder == shipped_folder(tmp_path / "state")
    assert folder.parent == tmp_path / "state"


def test_the_card_lists_every_file():
    card = (PACKED / "README.md").read_text(encoding="utf-8")

    assert [] == [code for code, sha256 in SHIPPED.items() if f"| `{code}` |" not in card or sha256 not in card]


def test_data_in_the_installation_serve_every_service(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """As in the images: unpacked when they are built, and nothing is written at a start."""
    assert 0 == main()
    packed.unlink()

    folder = shipped_folder(tmp_path / "state")

    assert str(folder) == capsys.readouterr().out.strip()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is damaged"), (b"no archive", "is damaged"), (lzma.compress(b"other data"), "expected ced037562e8c")],
    ids=["empty", "damaged", "other"],
)
def test_damaged_data_are_refused(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, reason: str
):
    """With one line, which fails the build of an image as well."""
    packed.write_bytes(content)

    with pytest.raises(SetupError, match=rf"fra\.traineddata\.xz .*{reason}.*; install the service again"):
        shipped_folder(tmp_path / "state")

    assert 1 == main()
    assert reason in capsys.readouterr().err
    assert [] == list((tmp_path / "state").glob("tessdata*"))


def test_absent_data_are_refused(packed: Path, tmp_path: Path):
    packed.unlink()

    with pytest.raises(SetupError, match=r"fra\.traineddata\.xz is not there; install the service again"):
        shipped_folder(tmp_path / "state")
