"""The saved choice: it is loaded as it was saved, and an invalid file costs one warning."""

import json
import logging

import pytest

from backend.device.choice.saved_choice import ChoiceFile, SavedChoice

CHOICE = SavedChoice("GPU-a", "NVIDIA GeForce RTX 4090", 25_757_220_864, "580.95.05", "2026-11-20T10:00:00+00:00")


def test_forget(tmp_path):
    """The file is deleted; deleting it again is no error."""
    file = ChoiceFile(tmp_path / "gpu.json")
    file.save(CHOICE)

    assert file.forget()
    assert file.load() is None
    assert not file.forget()


def _with(**changes):
    content = {"version": 1, "uuid": "GPU-a", "name": "x", "total_bytes": 1, "driver": "", "chosen_at": "2026"}
    return json.dumps({**content, **changes}).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "cannot be read", id="empty"),
        pytest.param(b'{"version": 1, "uuid": "GPU', "cannot be read", id="cut-short"),
        pytest.param(b"[" * 100_000, "cannot be read", id="a-hundred-thousand-brackets"),
        pytest.param(b"null", "another layout", id="null"),
        pytest.param(_with(version=2), "another layout", id="a-later-version"),
        pytest.param(_with(uuid=1), "another layout", id="a-number-for-a-uuid"),
        pytest.param(_with(total_bytes=True), "another layout", id="true-for-bytes"),
    ],
)
def test_an_invalid_file(tmp_path, caplog, content, words):
    """It is ignored with one warning, and saving replaces it."""
    path = tmp_path / "gpu.json"
    path.write_bytes(content)

    with caplog.at_level(logging.WARNING):
        assert ChoiceFile(path).load() is None

    assert 1 == len(caplog.records)
    assert words in caplog.text
    assert ChoiceFile(path).save(CHOICE)
    assert CHOICE == ChoiceFile(path).load()


def test_unknown_keys(tmp_path):
    """A file of a later release may have more keys."""
    path = tmp_path / "gpu.json"
    path.write_bytes(_with(reason="because"))

    assert "GPU-a" == ChoiceFile(path).load().uuid


def test_a_folder_in_the_way(tmp_path, caplog):
    """Every call logs a warning and raises nothing; no temporary file is left."""
    (tmp_path / "gpu.json").mkdir()
    file = ChoiceFile(tmp_path / "gpu.json")

    assert file.load() is None
    assert not file.save(CHOICE)
    assert not file.forget()
    assert 3 == len(caplog.records)
    assert ["gpu.json"] == [path.name for path in tmp_path.iterdir()]
