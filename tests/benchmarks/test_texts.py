"""The texts of the benchmarks: the same each time, never a repeat that was not asked for."""

from pathlib import Path

import pytest

from benchmarks.peers import model_folder
from benchmarks.texts import DATA, LANGUAGES, distinct_texts, mix, sentences

NOWHERE = Path("/nowhere")
SOURCES = [
    pytest.param(NOWHERE, id="generated"),
    pytest.param(DATA, id="shared-data", marks=pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data")),
]


@pytest.mark.parametrize("data", SOURCES)
def test_distinct_texts_are_the_same_each_time(data):
    """Two runs send the same texts, so their numbers can be compared."""
    assert distinct_texts(500, data=data) == distinct_texts(500, data=data)


@pytest.mark.parametrize("data", SOURCES)
def test_distinct_texts_never_repeat(data):
    """No cache can help a run, nor a run after it that takes the next range."""
    first, second = distinct_texts(9000, data=data), distinct_texts(1000, 9000, data=data)

    assert 10_000 == len(set(first) | set(second))


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_of_one_language(language):
    """A load in Spanish holds no English sentence: encoders differ most there."""
    other = sentences(NOWHERE)[1 - LANGUAGES.index(language)]

    texts = distinct_texts(40, data=NOWHERE, languages=(language,))

    assert 40 == len(set(texts))
    assert not [text for text in texts if any(sentence in text for sentence in other)]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "mean"), [("bundled", 36), ("minilm", 39)])
@pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data")
def test_mean_tokens_of_a_text(source, mean):
    """The documented mean length of the benchmark texts."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(model_folder(source) / "tokenizer.json"))
    tokenizer.no_padding()

    encoded = tokenizer.encode_batch(list(distinct_texts(2000)))

    assert mean == pytest.approx(sum(len(text.ids) for text in encoded) / 2000, abs=1.5)


@pytest.mark.parametrize("hit_ratio", [0.0, 0.5, 0.9])
def test_mix_has_exactly_the_hits_asked_for(hit_ratio):
    """The share of known texts is exact, and every other text is new."""
    texts_mix = mix(1000, hit_ratio, hot_count=64, data=NOWHERE)
    misses = [text for text in texts_mix.texts if text not in texts_mix.hot]

    assert 1000 * (1 - hit_ratio) == pytest.approx(len(misses))
    assert len(misses) == len(set(misses))
    assert 64 == len(set(texts_mix.hot))
