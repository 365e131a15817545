"""The command that converts at installation time."""

from pathlib import Path

import pytest

from backend.models.bundled_encoders import __main__ as command
from backend.models.bundled_encoders import converted_folder
from backend.models.bundled_encoders.converted_folder import is_sound
from tests.models.bundled_encoders import packed_files


@pytest.fixture
def packed(tmp_path: Path, monkeypatch) -> Path:
    """A small packed file, converted into a folder of the test's own; this release has no student."""
    (tmp_path / "package").mkdir()
    file = packed_files.packed_file(tmp_path / "package").file
    monkeypatch.setattr(converted_folder, "packed_file", lambda: file)
    monkeypatch.setattr(command, "INSTALLED", tmp_path / "installed")
    monkeypatch.setattr(command, "FULL", packed_files.recipe_of(file, tmp_path / "once"))
    monkeypatch.setattr(command, "STUDENT", tmp_path / "nothing")
    return file


def test_it_converts_into_the_installation(packed: Path, capsys):
    """And says where."""
    assert 0 == command.main()

    folder = Path(capsys.readouterr().out.strip())
    assert is_sound(folder, command.FULL)
    assert folder.parent == command.INSTALLED


def test_a_damaged_package_fails_the_build(packed: Path, capsys):
    """With one line that says what to do, and no traceback."""
    packed.write_bytes(packed.read_bytes()[:-1])

    assert 1 == command.main()

    assert "has SHA-256" in capsys.readouterr().err
