"""Records of the quality benchmark: samples of examples, targets, summed scores."""

from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.text.patterns import PATTERN_TYPES
from benchmarks.evaluation.patterns import CHECKSUMS, total
from benchmarks.evaluation.records import EvaluationContext, Row
from tests.text.marked import Score

SERVICES = cast("Any", None)


@given(st.integers(0, 500), st.integers(1, 500), st.booleans())
def test_some_examples_come_from_all_over_the_set(count, at_most, is_quick):
    """In order, without repeats, first one included, and no two neighbours further apart than need be."""
    chosen = EvaluationContext(SERVICES, Path(), is_quick).some(range(count), at_most)
    wanted = min(count, at_most, 60 if is_quick else count)

    assert wanted == len(chosen) == len(set(chosen))
    assert sorted(chosen) == chosen
    gaps = [later - earlier for earlier, later in pairwise(chosen)]
    assert not chosen or (chosen[0] == 0 and all(abs(gap - count / wanted) < 1 for gap in gaps))


@pytest.mark.parametrize(("target", "expected"), [(None, False), (0.7, False), (0.71, True)])
def test_what_misses_its_target(target, expected):
    """A score that equals its target reaches it; without one nothing is missed."""
    assert expected is Row("names", "set", "en", "F1", 0.7, 10, target).is_short


def test_counts_of_several_types_add_up():
    """Micro averages, as of one type."""
    whole = total([Score(10, 8, 8, 8), Score(30, 32, 30, 20)])

    assert (40, 40, 38, 28) == (whole.marked, whole.found, whole.right, whole.values)
    assert (0.95, 0.95) == (whole.precision, whole.recall)


def test_the_types_with_a_checksum_exist():
    """A renamed type would leave the target without its subject."""
    assert set(CHECKSUMS) <= set(PATTERN_TYPES)
