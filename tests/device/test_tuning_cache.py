"""The tuning file: replaced atomically, and never the reason for a failed start."""

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.tuning_cache import TuningCache, fingerprint

ENTRY = {"runtime": "onnx", "budget": 512, "rows": [1, 2.5, None], "why": ["ñ"]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tuning.json"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "cannot be read", id="empty"),
        pytest.param(b'{"version": 1, "entr', "cannot be read", id="cut-short"),
        pytest.param(b"\xff\xfe\x00", "cannot be read", id="not-text"),
        pytest.param(b"[]", "another layout", id="a-list"),
        pytest.param(b"{}", "another layout", id="no-version"),
        pytest.param(b'{"version": 2, "entries": {"key": {}}}', "another layout", id="of-a-later-version"),
        pytest.param(b'{"version": 1, "entries": []}', "another layout", id="entries-in-a-list"),
    ],
)
def test_a_file_that_cannot_be_used(file, caplog, content, words):
    """The fault is logged, and the next save replaces the file."""
    file.parent.mkdir()
    file.write_bytes(content)
    cache = TuningCache(file)

    assert cache.load("key") is None
    assert words in caplog.text
    cache.save("key", ENTRY)
    assert ENTRY == cache.load("key")


@pytest.mark.parametrize("obstacle", ["folder-is-a-file", "file-is-a-folder"])
def test_a_file_that_cannot_be_written(file, caplog, obstacle):
    """The failure is logged, and no temporary file is left."""
    if obstacle == "folder-is-a-file":
        file.parent.write_text("")
    else:
        file.mkdir(parents=True)
    before = sorted(file.parent.parent.rglob("*"))

    TuningCache(file).save("key", ENTRY)

    assert "the tuning file cannot be written; the next start measures again" in caplog.text
    assert before == sorted(file.parent.parent.rglob("*"))


def test_a_reader_never_sees_half_a_file(file, caplog):
    """A thread reads while another writes large and small entries in turn."""
    cache, stop, lengths = TuningCache(file), threading.Event(), list[int]()
    cache.save("key", {"padding": "x"})

    def read() -> None:
        while not stop.is_set():
            entry = TuningCache(file).load("key")
            lengths.append(-1 if entry is None else len(entry["padding"]))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(60):
        cache.save("key", {"padding": "x" * (200_000 if turn % 2 else 1)})
    stop.set()
    reader.join(10)

    assert lengths
    assert set(lengths) <= {1, 200_000}
    assert "" == caplog.text


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_fingerprints_differ_exactly_when_facts_do(first, second):
    """The order of the keys does not count; every value does."""
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)

    assert fingerprint(first) == fingerprint(dict(reversed(first.items())))
    assert same == (fingerprint(first) == fingerprint(second))
