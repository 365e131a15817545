"""The chunks of the search benchmark are made of real texts, the same every time."""

import numpy as np
import pytest

from benchmarks.search_corpus import Corpus
from benchmarks.search_data import SENTENCES, Sources, sources, write_chunks
from benchmarks.texts import DATA


@pytest.fixture
def texts():
    """Two paragraphs, and sentences of both languages."""
    paragraphs = [("Un párrafo.", "es"), ("A paragraph.", "en")]
    return Sources(paragraphs, {name: [f"{name} {row}." for row in range(SENTENCES)] for name in ("es", "en")}, [])


def vectors_of(texts):
    """Random vectors of unit length."""
    numbers = np.random.default_rng(0)
    counts = {"paragraphs": len(texts.paragraphs), "es": SENTENCES, "en": SENTENCES}
    made = {name: numbers.standard_normal((count, 8)).astype(np.float32) for name, count in counts.items()}
    return {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in made.items()}


def test_chunks_are_the_same_every_time(texts, tmp_path):
    """Texts and vectors follow from a fixed seed; vectors have unit length and are near their paragraph's."""
    vectors = vectors_of(texts)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_chunks(tmp_path / name, 50, texts, vectors)
    first, second = Corpus(tmp_path / "first", 50), Corpus(tmp_path / "second", 50)

    assert list(first.chunks()) == list(second.chunks())
    assert np.array_equal(first.vectors, second.vectors)
    assert np.allclose(1.0, np.linalg.norm(first.vectors, axis=1), atol=1e-5)
    for chunk, vector in zip(first.chunks(), first.vectors, strict=True):
        own = [text for text, _ in texts.paragraphs].index(chunk.parts[0])
        assert vector @ vectors["paragraphs"][own] > 0.7
        assert all(part.startswith(chunk.language) for part in chunk.parts[1:3])


def test_every_tenth_chunk_has_a_number_of_its_own(texts, tmp_path):
    """What is looked up by its code is there once."""
    write_chunks(tmp_path, 31, texts, vectors_of(texts))
    coded = [row for row, chunk in enumerate(Corpus(tmp_path, 31).chunks()) if "FA-" in chunk.text]

    assert [0, 10, 20, 30] == coded


@pytest.mark.skipif(not (DATA / "retr_xquad").is_dir(), reason="needs ../shared/data")
def test_sources():
    """Paragraphs of both sets and languages, and as many questions as asked for."""
    texts = sources()

    assert 120 + 120 + 1575 == len(texts.paragraphs)
    assert 200 == len(texts.queries)
    assert {"es", "en"} == {language for _, language in texts.paragraphs}
