"""The steps of the search benchmark over our storage with a small corpus, and processes that are killed."""

import json
from functools import partial

import numpy as np
import pytest

from benchmarks.search_contestant import add, ask, batches, check, searches_timed
from benchmarks.search_corpus import Corpus
from benchmarks.search_peers import StepFailed, add_and_ask, crash, ours, run_json
from benchmarks.search_store import OurStore, OurStoreOfKnownParts

CHUNKS = 400


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Chunks with a word of their own each, random vectors, and queries for some of them."""
    folder = tmp_path_factory.mktemp("corpus")
    numbers = np.random.default_rng(3).standard_normal((CHUNKS, 16)).astype(np.float32)
    vectors = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
    lines = [json.dumps([[f"The invoice word{row}x of the year."], "en"]) for row in range(CHUNKS)]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "query_vectors.npy", vectors[[5, 150]])
    (folder / "queries.json").write_text(json.dumps(["word5x", "word150x"]), encoding="utf-8")
    (folder / "encoder.json").write_text(json.dumps({"fingerprint": "f", "name": "test", "width": 16}))
    return Corpus(folder, CHUNKS)


@pytest.mark.parametrize("kind", [OurStore, OurStoreOfKnownParts])
def test_added_chunks_are_found(corpus, tmp_path, kind):
    """By vector, by word and by both; also where terms were joined from those of parts."""
    add(partial(kind, tmp_path, corpus), corpus)
    store = OurStore(tmp_path, corpus)

    assert store.count() == CHUNKS
    assert 150 == store.vector(corpus.query_vectors[1], None, 10)[0]
    assert [150] == store.keyword("word150x", None, 10)
    assert 150 == store.hybrid("word150x", corpus.query_vectors[1], None, 10)[0]
    store.close()


def test_asking(corpus, tmp_path):
    """Every kind of search is timed; hits are exact, and under the filter there are as many as there are chunks."""
    add(partial(OurStore, tmp_path, corpus), corpus)
    result = ask(partial(OurStore, tmp_path, corpus), corpus)

    kinds = {f"{mode}{suffix}" for mode in ("vector", "keyword", "hybrid") for suffix in ("", ", 1 % kept")}
    assert kinds == set(result["searches"])
    assert (CHUNKS, 1.0, 1.0) == (result["chunks"], result["recall"], result["recall_filtered"])
    assert {"there": 20, "least": 20, "mean": 20.0, "wrong": 0} == result["under_filter"]


def test_check_counts_what_is_gone(corpus, tmp_path):
    """A chunk that was acknowledged and is not there is lost, and cannot be found."""
    add(partial(OurStore, tmp_path, corpus), Corpus(corpus.folder, 100))
    kept = check(partial(OurStore, tmp_path, corpus), Corpus(corpus.folder, 100))
    more = check(partial(OurStore, tmp_path, corpus), Corpus(corpus.folder, 120))

    assert (100, 0, 0) == (kept["chunks"], kept["lost"], kept["unfound"])
    assert 20 == more["lost"]
    assert more["unfound"] > 0


def test_batches_cover_the_corpus(corpus):
    """The last batch is what remains."""
    assert [(0, 300), (300, 100)] == [(first, len(chunks)) for first, chunks, _ in batches(corpus, 300)]


def test_searches_timed():
    """The median of the rounds' percentiles."""
    times = searches_timed([[1.0, 1.0], [3.0, 3.0], [2.0, 2.0]])

    assert {"median": 2.0, "min": 1.0, "max": 3.0, "n": 3} == times["p50_s"]


def test_steps_in_processes(corpus, tmp_path):
    """A store that is added to, restarted and asked, each in a process of its own."""
    result = add_and_ask(ours(), corpus, tmp_path / "store")

    assert 1.0 == result["recall"]
    assert result["disk_bytes"] > CHUNKS * 32


def test_a_killed_process_has_lost_nothing(corpus, tmp_path):
    """Killed in the middle of adding: all that was acknowledged is there and found."""
    summary = crash(ours(), corpus, tmp_path / "store", trials=1)

    assert (1, 0, 0, 0, 0) == tuple(summary[name] for name in ("trials", "failed", "lost", "gone", "unfound"))
    assert summary["acknowledged"] >= 100


def test_a_step_that_fails_tells_its_last_words():
    """A library that is not there, say."""
    with pytest.raises(StepFailed, match="No module named 'nothing'"):
        run_json(["python3", "-c", "import nothing"], {})
