"""What judges share: files that may be absent, and fewer examples that still stand for all."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.documents.patterns import PATTERN_TYPES
from benchmarks.judging.patterns import CHECKSUMS, judge, total
from benchmarks.judging.records import Bench, Row, Unmeasured
from tests.documents.marked import Score, read_marked

SERVICES = cast("Any", None)


@given(st.integers(0, 500), st.integers(1, 500), st.booleans())
def test_some_examples_come_from_all_over_the_set(count, at_most, is_quick):
    """In order, without repeats, first one included, and no two neighbours further apart than need be."""
    chosen = Bench(SERVICES, Path(), is_quick).some(range(count), at_most)
    wanted = min(count, at_most, 60 if is_quick else count)

    assert wanted == len(chosen) == len(set(chosen))
    assert sorted(chosen) == chosen
    gaps = [later - earlier for earlier, later in pairwise(chosen)]
    assert not chosen or (chosen[0] == 0 and all(abs(gap - count / wanted) < 1 for gap in gaps))


def test_an_absent_file_is_said_without_the_machine(tmp_path):
    """Which file, but not where on this machine it was looked for."""
    with pytest.raises(Unmeasured, match=r"^set/a\.tsv is not") as caught:
        Bench(SERVICES, tmp_path).file("set", "a.tsv")

    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(("target", "expected"), [(None, False), (0.7, False), (0.71, True)])
def test_what_misses_its_target(target, expected):
    """A score that equals its target reaches it; without one nothing is missed."""
    assert expected is Row("names", "set", "en", "F1", 0.7, 10, target).is_short


def test_counts_of_several_types_add_up():
    """Micro averages, as of one type."""
    whole = total([Score(10, 8, 8, 8), Score(30, 32, 30, 20)])

    assert (40, 40, 38, 28) == (whole.marked, whole.found, whole.right, whole.values)
    assert (0.95, 0.95) == (whole.precision, whole.recall)


async def test_patterns_are_asked_of_the_service():
    """A service that finds what is marked is perfect, a deaf one recalls nothing; other types are left out."""
    marked = {one.text: one.entities for one in read_marked()}

    async def find(texts):
        return SimpleNamespace(rows=[SimpleNamespace(entities=marked[text]) for text in texts])

    async def nothing(texts):
        return SimpleNamespace(rows=[SimpleNamespace(entities=()) for _ in texts])

    perfect = await judge(Bench(cast("Any", SimpleNamespace(entities=SimpleNamespace(find=find))), Path()))
    deaf = await judge(Bench(cast("Any", SimpleNamespace(entities=SimpleNamespace(find=nothing))), Path()))

    assert [1.0] * 4 == [row.score for row in perfect]
    assert [0.0, 0.0] == [row.score for row in deaf if row.measure == "recall"]
    assert set(CHECKSUMS) == set(perfect[0].parts)
    assert sum(len(entities) for entities in marked.values()) == perfect[0].examples + perfect[2].examples


def test_the_types_with_a_checksum_exist():
    """A renamed type would leave the target without its subject."""
    assert set(CHECKSUMS) <= set(PATTERN_TYPES)
