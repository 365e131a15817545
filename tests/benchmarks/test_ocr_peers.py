"""Peers: each in a process of its own, with the environment it is named for, asked once for each page."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import ocr_peers
from benchmarks.ocr_pages import slip
from benchmarks.ocr_peers import READERS, Reading, kept_texts, read_apart
from benchmarks.ocr_scores import score


@pytest.mark.parametrize(
    ("name", "limit"), [("pytesseract", None), ("pytesseract-one-thread", "1"), ("pytesseract-pool", "1")]
)
def test_a_peer_gets_the_threads_it_is_named_for(monkeypatch, tmp_path, name, limit):
    """Whatever the shell says: the plain loop runs as Tesseract starts by itself."""
    started = {}

    def run(argv, *, input, env, **others):  # noqa: A002 - subprocess.run's own name
        started.update(argv=argv, files=json.loads(input), env=env)
        return SimpleNamespace(returncode=0, stdout='{"seconds": 2.0, "texts": ["one"]}')

    monkeypatch.setenv("OMP_THREAD_LIMIT", "7")
    monkeypatch.setattr(ocr_peers.subprocess, "run", run)

    reading = read_apart(name, [tmp_path / "page.png"])

    assert Reading(2.0, ("one",)) == reading
    assert limit == started["env"].get("OMP_THREAD_LIMIT")
    assert ([str(tmp_path / "page.png")], name) == (started["files"], started["argv"][-1])


def test_a_peer_that_fails_says_why(monkeypatch):
    """Its last words are in the error."""
    done = subprocess.CompletedProcess([], 1, stdout="", stderr="no such language")
    monkeypatch.setattr(ocr_peers.subprocess, "run", lambda *args, **fields: done)

    with pytest.raises(RuntimeError, match="rapidocr ended with status 1: no such language"):
        read_apart("rapidocr", [])


def test_what_was_read_is_kept(monkeypatch, tmp_path):
    """By content, peer and version: a page is read once, a changed one anew."""
    asked = []

    def read(name, files):
        asked.append([file.name for file in files])
        return Reading(1.0, tuple(file.read_text(encoding="utf-8").upper() for file in files))

    monkeypatch.setattr(ocr_peers, "read_apart", read)
    pages = [tmp_path / name for name in ("a.png", "b.png")]
    for page in pages:
        page.write_text(page.name, encoding="utf-8")
    folder = tmp_path / "kept"

    kept_texts("rapidocr", pages[:1], "3.10.0", folder)
    both = kept_texts("rapidocr", pages, "3.10.0", folder)
    pages[0].write_text("new", encoding="utf-8")
    changed = kept_texts("rapidocr", pages, "3.10.0", folder)
    kept_texts("rapidocr", pages[:1], "3.11.0", folder)

    assert (["A.PNG", "B.PNG"], ["NEW", "B.PNG"]) == (both, changed)
    assert [["a.png"], ["b.png"], ["a.png"], ["a.png"]] == asked


@pytest.mark.tesseract
def test_pytesseract_reads_what_was_drawn(tmp_path):
    """The one real call: the pages are legible, and texts come in the order of the files."""
    pages = [slip(number) for number in range(2)]
    files = [tmp_path / f"{number}.png" for number in range(2)]
    for file, page in zip(files, pages, strict=True):
        file.write_bytes(page.png)

    reading = read_apart("pytesseract-pool", files)

    assert reading.seconds > 0
    assert all(score(text, page.text).recall > 0.8 for text, page in zip(reading.texts, pages, strict=True))


def test_readers_are_known_by_their_names():
    """The table is what the command line of a peer's process is looked up in."""
    assert all(name == reader.name for name, reader in READERS.items())
