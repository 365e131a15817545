"""Peers: each in a process of its own, with the environment it is named for, asked once for each page."""

import json
from types import SimpleNamespace

import pytest

from benchmarks import ocr_peers
from benchmarks.ocr_pages import slip
from benchmarks.ocr_peers import OcrResult, run_in_subprocess
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

    result = run_in_subprocess(name, [tmp_path / "page.png"])

    assert OcrResult(2.0, ("one",)) == result
    assert limit == started["env"].get("OMP_THREAD_LIMIT")
    assert ([str(tmp_path / "page.png")], name) == (started["files"], started["argv"][-1])


@pytest.mark.slow
@pytest.mark.tesseract
def test_pytesseract_reads_what_was_drawn(tmp_path):
    """The one real call: the pages are legible, and texts come in the order of the files."""
    pages = [slip(number) for number in range(2)]
    files = [tmp_path / f"{number}.png" for number in range(2)]
    for file, page in zip(files, pages, strict=True):
        file.write_bytes(page.png)

    result = run_in_subprocess("pytesseract-pool", files)

    assert result.seconds > 0
    assert all(score(text, page.text).recall > 0.8 for text, page in zip(result.texts, pages, strict=True))
