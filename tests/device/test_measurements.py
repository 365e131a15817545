"""The tuning file: whole or not at all, and never the reason for a start that fails."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.measurements import TunedSettings, fingerprint

ENTRY = {"runtime": "onnx", "budget": 512, "rows": [1, 2.5, None], "why": ["ñ"]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tuning.json"


def test_what_was_kept_is_found(file):
    """By a later process, and only under its own key."""
    TunedSettings(file).save("key", ENTRY)

    assert ENTRY == TunedSettings(file).load("key")
    assert TunedSettings(file).load("another key") is None


def test_entries_of_other_models_stay(file):
    """A second entry joins the first; the same key is replaced."""
    settings = TunedSettings(file)
    settings.save("one", ENTRY)
    settings.save("two", {"budget": 1})
    settings.save("one", {"budget": 2})

    assert ({"budget": 2}, {"budget": 1}) == (settings.load("one"), settings.load("two"))


def test_no_file_is_no_fault(file, caplog):
    """The first start says nothing about it."""
    caplog.set_level(logging.WARNING)

    assert TunedSettings(file).load("key") is None
    assert "" == caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "cannot be read", id="empty"),
        pytest.param(b'{"version": 1, "entr', "cannot be read", id="cut-short"),
        pytest.param(b"\xff\xfe\x00", "cannot be read", id="not-text"),
        pytest.param(b"[]", "another layout", id="a-list"),
        pytest.param(b"null", "another layout", id="null"),
        pytest.param(b"{}", "another layout", id="no-version"),
        pytest.param(b'{"version": 2, "entries": {"key": {}}}', "another layout", id="of-a-later-version"),
        pytest.param(b'{"version": 0, "entries": {"key": {}}}', "another layout", id="of-an-earlier-version"),
        pytest.param(b'{"version": 1, "entries": []}', "another layout", id="entries-in-a-list"),
    ],
)
def test_a_file_that_cannot_be_used(file, caplog, content, words):
    """It is said once, measured again, and replaced."""
    file.parent.mkdir()
    file.write_bytes(content)
    settings = TunedSettings(file)

    assert settings.load("key") is None
    assert words in caplog.text
    settings.save("key", ENTRY)
    assert ENTRY == settings.load("key")


def test_an_entry_that_is_no_record(file):
    """It counts as absent."""
    file.parent.mkdir()
    file.write_text(json.dumps({"version": 1, "entries": {"key": [1]}}))

    assert TunedSettings(file).load("key") is None


@pytest.mark.parametrize("obstacle", ["folder-is-a-file", "file-is-a-folder"])
def test_a_place_that_cannot_be_written(file, caplog, obstacle):
    """The start goes on, a line in the log says so, and nothing is left lying about."""
    if obstacle == "folder-is-a-file":
        file.parent.write_text("")
    else:
        file.mkdir(parents=True)
    before = sorted(file.parent.parent.rglob("*"))

    TunedSettings(file).save("key", ENTRY)

    assert "the tuning file cannot be written; the next start measures again" in caplog.text
    assert before == sorted(file.parent.parent.rglob("*"))


def test_nothing_but_the_file_is_left(file):
    """The file is written beside itself and moved into place."""
    settings = TunedSettings(file)
    for number in range(3):
        settings.save(str(number), ENTRY)

    assert [file] == list(file.parent.iterdir())


def test_a_reader_never_sees_half_a_file(file, caplog):
    """One writes large and small entries in turn while another reads: every reading is whole."""
    settings, stop, seen = TunedSettings(file), threading.Event(), list[int]()
    settings.save("key", {"padding": "x"})

    def read() -> None:
        while not stop.is_set():
            entry = TunedSettings(file).load("key")
            seen.append(-1 if entry is None else len(entry["padding"]))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(60):
        settings.save("key", {"padding": "x" * (200_000 if turn % 2 else 1)})
    stop.set()
    reader.join(10)

    assert seen
    assert set(seen) <= {1, 200_000}
    assert "" == caplog.text


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_fingerprints_differ_exactly_where_facts_do(first, second):
    """The order of the fields does not count; any value does."""
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)

    assert fingerprint(first) == fingerprint(dict(reversed(first.items())))
    assert same == (fingerprint(first) == fingerprint(second))
