"""Fsync of files and folders, and atomic JSON files (more in device/test_tuning_cache.py)."""

import pytest

from backend.durable_files import flush


@pytest.mark.slow
def test_files_and_folders_are_flushed(tmp_path):
    """A missing file raises."""
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    flush(tmp_path / "a.json")
    flush(tmp_path)

    with pytest.raises(FileNotFoundError):
        flush(tmp_path / "b.json")
