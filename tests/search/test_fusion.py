"""Fusion of rankings: scales, weights, ties, and scores from 0 to 1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.search.records import Ranked
from backend.search.retrieval import Ranking, fuse

_RANKINGS = st.lists(
    st.builds(
        lambda scores, weight, floor, least: Ranking(
            [Ranked(index, score) for index, score in enumerate(sorted(scores, reverse=True))], weight, floor, least
        ),
        st.lists(st.floats(-1, 40), max_size=20),
        st.floats(0, 1e300, allow_subnormal=False),
        st.floats(-1, 1),
        st.floats(0, 1),
    ),
    max_size=5,
)


def _ranking(weight: float = 1.0, floor: float = 0.0, least_range: float = 0.0, **scores: float) -> Ranking:
    """Chunks named a, b, c … by their scores."""
    ranked = sorted((Ranked(ord(name), score) for name, score in scores.items()), key=lambda one: -one.score)
    return Ranking(ranked, weight, floor, least_range)


def _names(rankings: list[Ranking]) -> str:
    return "".join(chr(chunk_id) for chunk_id, _ in fuse(rankings))


@pytest.mark.parametrize(
    ("rankings", "expected"),
    [
        pytest.param([], "", id="no-rankings"),
        pytest.param([_ranking(), _ranking(c=2, a=1)], "ca", id="an-empty-ranking-changes-no-order"),
        pytest.param([_ranking(a=9, b=8, c=7), _ranking(c=9, b=8, d=7)], "bcad", id="in-both-before-in-one"),
        pytest.param([_ranking(a=2, b=1), _ranking(b=2, a=1)], "ab", id="ties-as-the-first-ranking-has-them"),
        pytest.param([_ranking(a=2, b=1), _ranking(3.0, b=2, a=1)], "ba", id="heavier-ranking-decides"),
        pytest.param([_ranking(a=2, b=1), _ranking(0.0, c=2)], "ab", id="no-weight-adds-nothing"),
        pytest.param([_ranking(a=9.0, b=8.9), _ranking(b=9, a=1)], "ba", id="a-narrow-lead-yields-to-a-wide-one"),
        pytest.param([_ranking(floor=0.8, a=0.9, b=0.82), _ranking(b=9, a=5)], "ab", id="scores-count-from-the-floor"),
        pytest.param(
            [_ranking(floor=0.8, least_range=0.05, a=0.81, b=0.8), _ranking(b=9, a=5)], "ba", id="all-unrelated"
        ),
        pytest.param([_ranking(floor=0.8, a=0.7, b=0.6)], "ab", id="below-the-floor-in-their-order"),
    ],
)
def test_order(rankings, expected):
    """Chunks come in the order of their weighted, scaled scores."""
    assert expected == _names(rankings)


def test_best_hit_of_every_ranking_has_one():
    """The scale ends at 1; the best of one of two equal rankings has half."""
    fused = fuse([_ranking(2.0, a=7, b=3.5), _ranking(2.0, a=0.9), _ranking(0.0, c=1)])

    assert [("a", 1.0), ("b", 0.25)] == [(chr(chunk_id), score) for chunk_id, score in fused]


@given(_RANKINGS)
def test_scores_fall_from_one_to_zero(rankings):
    """Each chunk stands once, in order of its score, whatever the weights."""
    fused = fuse(rankings)
    ids, scores = [one.chunk_id for one in fused], [one.score for one in fused]

    assert {one.chunk_id for ranking in rankings if ranking.weight > 0 for one in ranking.ranked} == set(ids)
    assert len(ids) == len(set(ids))
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
