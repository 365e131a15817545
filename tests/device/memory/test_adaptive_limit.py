"""Limits that are learnt: lowered by what went wrong, recovered by what went well, never above what was measured."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.device.memory.adaptive_limit import LearntLimits
from backend.device.memory.memory_table import COUNT_MAX, Affine, MemoryTable

TABLE = MemoryTable({64: Affine(100, 10), 128: Affine(200, 20), 512: Affine(800, 80)})
PLENTY = 10**9
CLEAN = 64  # batches before a recovery


def grown(limits: LearntLimits, length: int, times: int) -> list[int]:
    """The limit after each of so many rounds of full, clean batches."""
    seen = []
    for _ in range(times):
        for _ in range(CLEAN):
            limits.succeeded(length, limits.most(length, PLENTY))
        seen.append(limits.most(length, PLENTY))
    return seen


@pytest.mark.parametrize(
    ("length", "headroom", "expected"),
    [
        pytest.param(64, 1100, 100, id="the-tables"),
        pytest.param(60, 1100, 100, id="the-next-bucket-up"),
        pytest.param(64, 0, 1, id="a-lone-item-is-always-tried"),
        pytest.param(9999, PLENTY, 1, id="beyond-the-table-one-alone"),
    ],
)
def test_before_anything_went_wrong(length, headroom, expected):
    """What was measured, at least one."""
    assert expected == LearntLimits(TABLE).most(length, headroom)


def test_without_a_table_nothing_limits():
    """A CPU: the token budget alone decides, until something fails."""
    assert COUNT_MAX == LearntLimits(None).most(512, 0)


@pytest.mark.parametrize("table", [TABLE, None], ids=["measured", "unmeasured"])
def test_a_miss_halves_its_bucket(table):
    """From what failed, and again from what is allowed now; never below one."""
    limits = LearntLimits(table)

    seen = []
    for count in (40, 20, 40, 3, 1, 1):  # the third is a batch that was packed before the first miss
        limits.missed(128, count)
        seen.append(limits.most(128, PLENTY))

    assert [20, 10, 5, 1, 1, 1] == seen
    assert {128: 1} == limits.caps


def test_misses_beyond_the_table():
    """However many lengths there are, the buckets stay few."""
    limits = LearntLimits(None)
    for length in range(10_000, 40_000, 7):
        limits.missed(length, 8)

    assert [16_384, 32_768, 65_536] == list(limits.caps)
    assert 1 == limits.most(20_000, PLENTY)


def test_a_miss_and_its_neighbours():
    """Longer batches need no less, so they follow; shorter ones keep theirs."""
    limits = LearntLimits(TABLE)
    limits.missed(128, 40)

    assert 20 == limits.most(500, PLENTY)
    assert TABLE.most(64, 10_000) == limits.most(64, 10_000)


def test_the_table_stays_the_upper_bound():
    """A learnt limit above what fits now does not count."""
    limits = LearntLimits(TABLE, caps={64: 50})

    assert (50, 5) == (limits.most(64, PLENTY), limits.most(64, 150))


def test_recovery_is_slow():
    """An eighth, at least one, after each 64 clean batches; not a batch earlier."""
    limits = LearntLimits(TABLE)
    limits.missed(64, 32)
    for _ in range(CLEAN - 1):
        limits.succeeded(64, 16)

    assert 16 == limits.most(64, PLENTY)
    limits.succeeded(64, 16)
    assert 18 == limits.most(64, PLENTY)
    assert [20, 22, 25] == grown(limits, 64, 3)
    assert [2, 3, 4] == grown(LearntLimits(TABLE, caps={64: 1}), 64, 3)


def test_a_miss_starts_the_count_anew():
    """63 clean batches before it earn nothing after it."""
    limits = LearntLimits(TABLE, caps={64: 32})
    for _ in range(CLEAN - 1):
        limits.succeeded(64, 32)
    limits.missed(64, 32)
    limits.succeeded(64, 16)

    assert 16 == limits.most(64, PLENTY)


def test_small_batches_prove_nothing():
    """Light load must not raise a limit that it never touched."""
    limits = LearntLimits(TABLE, caps={64: 32})
    for _ in range(10 * CLEAN):
        limits.succeeded(64, 15)

    assert 32 == limits.most(64, PLENTY)


def test_what_fits_at_a_length_fits_at_shorter_ones():
    """So a long bucket that a short one's miss had lowered recovers with it."""
    limits = LearntLimits(TABLE, caps={64: 16})

    assert [18] == grown(limits, 512, 1)
    assert {64: 18} == limits.caps


def test_shorter_batches_prove_nothing_of_longer_ones():
    """The other way round it does not hold."""
    limits = LearntLimits(TABLE, caps={512: 16})
    for _ in range(CLEAN):
        limits.succeeded(64, 100)

    assert 16 == limits.most(512, PLENTY)


def test_thrash():
    """One batch that made the allocator flush its cache is nothing; two in a row shrink what batches may take."""
    limits = LearntLimits(TABLE, caps={512: 8})

    limits.retried()
    assert (100, 8) == (limits.most(64, 1100), limits.most(512, PLENTY))
    limits.retried()
    assert (0.875, 86, 7) == (limits.headroom_share, limits.most(64, 1100), limits.most(512, PLENTY))


def test_a_clean_batch_between_is_no_thrash():
    """Only two in a row count."""
    limits = LearntLimits(TABLE)
    for _ in range(10):
        limits.retried()
        limits.succeeded(64, 1)

    assert 1.0 == limits.headroom_share


def test_thrash_ends():
    """However long it lasts an eighth of the headroom stays, and clean batches bring the rest back."""
    limits = LearntLimits(TABLE)
    for _ in range(100):
        limits.retried()
    assert 0.125 == limits.headroom_share

    for _ in range(40 * CLEAN):
        limits.succeeded(64, 1)

    assert 1.0 == limits.headroom_share


def test_what_an_earlier_process_had_learnt():
    """Its caps go in as they came out; nonsense is left out."""
    limits = LearntLimits(TABLE)
    limits.missed(64, 32)
    limits.missed(512, 4)

    assert limits.caps == LearntLimits(TABLE, caps=limits.caps).caps
    assert {} == LearntLimits(TABLE, caps={64: 0, 128: -3}).caps


def packed(lengths: list[int], limits: LearntLimits, headroom: int) -> list[list[int]]:
    """The simplest packer: longest first, each batch as many as the limits allow for its longest."""
    waiting, batches = sorted(lengths, reverse=True), []
    while waiting:
        most = limits.most(waiting[0], headroom)
        batches.append(waiting[:most])
        waiting = waiting[most:]
    return batches


EVENTS = st.lists(
    st.tuples(st.sampled_from(["missed", "retried", "succeeded"]), st.integers(1, 600), st.integers(1, 64)), max_size=60
)


@settings(deadline=None)
@given(st.lists(st.integers(1, 700), max_size=60), st.integers(0, 6000), EVENTS)
def test_packed_batches_never_exceed_the_budget(lengths, headroom, events):
    """For any mix of lengths, any free memory and any history: a batch of several fits what was measured."""
    limits = LearntLimits(TABLE)
    for event, length, count in events:
        if event == "retried":
            limits.retried()
        else:
            getattr(limits, event)(length, count)

    batches = packed(lengths, limits, headroom)

    assert sorted(lengths) == sorted(length for batch in batches for length in batch)
    for batch in batches:
        peak = TABLE.peak_bytes(max(batch), len(batch))
        assert len(batch) == 1 or (peak is not None and peak <= headroom)


class Card:
    """A card that holds a tenth less than was measured: what a neighbour's arrival looks like."""

    def __init__(self, room: int) -> None:
        self.room, self.misses, self.items = room, 0, 0

    def run(self, limits: LearntLimits, length: int) -> None:
        """One full batch; told to the limits as a lane tells it."""
        count = limits.most(length, 1100)
        if (TABLE.peak_bytes(length, count) or 0) > self.room:
            self.misses += 1
            limits.missed(length, count)
        else:
            self.items += count
            limits.succeeded(length, count)


def test_a_neighbour_costs_few_misses():
    """Ten thousand batches beside a neighbour that nobody told of: under 2 % miss, at over half of what fits."""
    card, limits = Card(1000), LearntLimits(TABLE)
    for _ in range(10_000):
        card.run(limits, 64)

    assert 0 < card.misses < 200
    assert card.items > 10_000 * 90 / 2


def test_any_thread_may_ask_and_tell():
    """Lanes share one: nothing is lost or torn."""
    limits = LearntLimits(TABLE, caps={64: 8})
    errors: list[BaseException] = []

    def use() -> None:
        try:
            for turn in range(500):
                limits.succeeded(64, limits.most(64, PLENTY))
                if turn % 50 == 0:
                    limits.missed(turn + 1, 64)
                    limits.retried()
                assert limits.caps[64] >= 1
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [] == errors
