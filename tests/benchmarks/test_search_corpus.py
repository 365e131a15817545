"""The chunks of the search benchmark, and what counts as found."""

import json

import numpy as np
import pytest

from benchmarks.search_corpus import CHUNKS_OF_A_FILE, FILTERS, Chunk, Corpus, attributes_of, nearest_rows, recall


@pytest.fixture
def corpus(tmp_path):
    """Three chunks of two parts each, and one query."""
    vectors = np.eye(3, 4, dtype=np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    np.save(tmp_path / "query_vectors.npy", vectors[1:2])
    lines = [json.dumps([[f"Factura {row}.", "Más."], "es"]) for row in range(3)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Corpus(tmp_path, 3)


def test_chunks_are_read_from_a_row_on(corpus):
    """A text is its parts joined; what is behind the count is not read."""
    assert [Chunk(("Factura 1.", "Más."), "es")] == list(Corpus(corpus.folder, 2).chunks(first=1))
    assert "Factura 0. Más." == next(corpus.chunks()).text


def test_exact_hits(corpus):
    """Float32 products decide; equal ones stand by their row."""
    assert [[1, 0, 2]] == corpus.exact().tolist()


def test_nearest_rows_does_not_depend_on_the_blocks():
    """The best of blocks are the best of all."""
    numbers = np.random.default_rng(1)
    vectors, queries = (numbers.standard_normal((count, 8)).astype(np.float32) for count in (100, 5))
    rows = np.arange(3, 100, 2)
    expected = rows[np.argsort(-(queries @ vectors[rows].T), axis=1)[:, :4]]

    assert expected.tolist() == nearest_rows(vectors, rows, queries, depth=4, at_once=7).tolist()


def test_filters_keep_whole_files():
    """A filter by attribute keeps the rows that `keeps` says."""
    where = FILTERS["hundredth"]
    rows = np.arange(300 * CHUNKS_OF_A_FILE)
    kept = [row for row in rows.tolist() if attributes_of(row)[where.name] == where.value]

    assert kept == np.flatnonzero(where.keeps(rows)).tolist()
    assert len(rows) == 100 * len(kept)


def test_recall():
    """The share of all exact hits, whatever their order."""
    assert 0.75 == recall([[2, 1], [3, 9]], np.array([[1, 2], [3, 4]]))
    assert 1.0 == recall([[]], np.zeros((1, 0), np.int64))
