"""Memory of a batch by length and count: the line above measured peaks, and nothing beyond the last bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.memory.memory_table import COUNT_MAX, LENGTHS, Affine, MemoryTable, lengths_to

MIB = 2**20
TABLE = MemoryTable({512: Affine(8 * MIB, 4 * MIB), 64: Affine(2 * MIB, MIB), 128: Affine(4 * MIB, 2 * MIB)})
LINES = st.builds(Affine, st.integers(0, 2**40), st.integers(1, 2**34))
TABLES = st.builds(MemoryTable, st.dictionaries(st.integers(1, 10_000), LINES, min_size=1, max_size=6))


@given(TABLES, st.integers(1, 12_000), st.integers(0, 2**44))
def test_max_count_is_the_maximum(table, length, free):
    """What it allows fits, and one more does not."""
    max_count = table.max_count(length, free)
    peak = table.peak_bytes(length, max_count)

    if peak is None:
        assert max_count == 1
    elif max_count:
        assert peak <= free
    if peak is not None and max_count < COUNT_MAX:
        assert (table.peak_bytes(length, max_count + 1) or 0) > free


@pytest.mark.parametrize(
    ("peaks", "safety", "expected"),
    [
        pytest.param({1: 110, 2: 120}, 1.0, Affine(100, 10), id="two-probes"),
        pytest.param({1: 110, 2: 120}, 1.25, Affine(125, 13), id="with-safety-rounded-up"),
        pytest.param({2: 120, 1: 110, 4: 140}, 1.0, Affine(100, 10), id="three-on-a-line-in-any-order"),
        pytest.param({1: 110, 2: 112, 4: 140}, 1.0, Affine(96, 14), id="the-steepest-rise"),
        pytest.param({1: 110}, 1.0, Affine(0, 110), id="one-probe-is-proportional"),
        pytest.param({1: 110, 2: 110}, 1.0, Affine(0, 110), id="a-coarse-meter-is-proportional"),
        pytest.param({1: 10, 2: 30}, 1.0, Affine(0, 20), id="no-negative-intercept"),
    ],
)
def test_a_line_through_probes(peaks, safety, expected):
    """Exact where the probes lie on a line, above them where they do not."""
    assert expected == Affine.through(peaks, safety=safety)


@given(st.dictionaries(st.integers(1, 64), st.integers(1, 2**40), min_size=1, max_size=5), st.floats(1.0, 2.0))
def test_no_probe_lies_above_its_line(peaks, safety):
    """The line never underestimates a measured peak."""
    line = Affine.through(peaks, safety=safety)

    assert all(peak <= line.peak_bytes(count) * (1 + 1e-9) for count, peak in peaks.items())


@pytest.mark.parametrize("peaks", [{}, {1: 0}, {1: 0, 2: 0}], ids=["no-probe", "blind-meter", "blind-twice"])
def test_no_line_without_memory(peaks):
    """A meter that reads 0 must not give a table that allows everything."""
    with pytest.raises(ValueError, match="no memory model"):
        Affine.through(peaks)


def record(**changes: object) -> dict[str, object]:
    """A good record with some fields changed."""
    return {**TABLE.to_json(), **changes}


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(None, id="nothing"),
        pytest.param([], id="a-list"),
        pytest.param(record(version=0), id="another-version"),
        pytest.param(record(buckets={}), id="buckets-in-a-record"),
        pytest.param(record(buckets=[]), id="no-bucket"),
        pytest.param(record(buckets=[[64, 1]]), id="too-short"),
        pytest.param(record(buckets=[[64, 1, 2.5]]), id="a-fraction"),
        pytest.param(record(buckets=[["64", 1, 2]]), id="a-word"),
        pytest.param(record(buckets=[[0, 1, 2]]), id="no-length"),
        pytest.param(record(buckets=[[64, -1, 2]]), id="negative"),
    ],
)
def test_a_foreign_record(foreign):
    with pytest.raises(ValueError, match="memory"):
        MemoryTable.from_json(foreign)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        pytest.param(512, (64, 128, 256, 512), id="a-power-of-two"),
        pytest.param(514, (64, 128, 256, 512, 514), id="roberta"),
        pytest.param(32, (32,), id="a-short-model"),
        pytest.param(32768, (*LENGTHS, 32768), id="longer-still"),
    ],
)
def test_lengths_of_a_model(longest, expected):
    """Doubling, and the model's own maximum last."""
    assert expected == lengths_to(longest)
