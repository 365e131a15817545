"""The adaptive limit: lowered by out-of-memory errors, raised by clean batches, never above the measured table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.device.memory.memory_table import Affine, MemoryTable
from backend.models.batch_limits import AdaptiveCountLimit

TABLE = MemoryTable({64: Affine(100, 10), 128: Affine(200, 20), 512: Affine(800, 80)})
PLENTY = 10**9
CLEAN = 64  # batches before a recovery


def grown(limits: AdaptiveCountLimit, length: int, times: int) -> list[int]:
    """The limit after each of so many rounds of full, clean batches."""
    seen = []
    for _ in range(times):
        for _ in range(CLEAN):
            limits.succeeded(length, limits.max_count(length, PLENTY))
        seen.append(limits.max_count(length, PLENTY))
    return seen


@pytest.mark.parametrize(
    ("length", "headroom", "expected"),
    [
        pytest.param(60, 1100, 100, id="the-next-bucket-up"),
        pytest.param(64, 0, 1, id="a-lone-item-is-always-tried"),
        pytest.param(9999, PLENTY, 1, id="beyond-the-table-one-alone"),
    ],
)
def test_initial_limit(length, headroom, expected):
    assert expected == AdaptiveCountLimit(TABLE).max_count(length, headroom)


@pytest.mark.parametrize("table", [TABLE, None], ids=["measured", "unmeasured"])
def test_out_of_memory_halves_its_bucket(table):
    """Half of the failed count or of the current cap, never below one."""
    limits = AdaptiveCountLimit(table)

    seen = []
    for count in (40, 20, 40, 3, 1, 1):  # the third batch was packed before the first error
        limits.out_of_memory(128, count)
        seen.append(limits.max_count(128, PLENTY))

    assert [20, 10, 5, 1, 1, 1] == seen
    assert {128: 1} == limits.caps


def test_out_of_memory_beyond_the_table():
    """However many lengths there are, the buckets stay few."""
    limits = AdaptiveCountLimit(None)
    for length in range(10_000, 40_000, 7):
        limits.out_of_memory(length, 8)

    assert [16_384, 32_768, 65_536] == list(limits.caps)
    assert 1 == limits.max_count(20_000, PLENTY)


def test_out_of_memory_limits_longer_buckets():
    """Longer buckets follow; shorter ones keep their limit."""
    limits = AdaptiveCountLimit(TABLE)
    limits.out_of_memory(128, 40)

    assert 20 == limits.max_count(500, PLENTY)
    assert TABLE.max_count(64, 10_000) == limits.max_count(64, 10_000)


def test_recovery_is_slow():
    """An eighth, at least one, after each 64 clean batches; not a batch earlier."""
    limits = AdaptiveCountLimit(TABLE)
    limits.out_of_memory(64, 32)
    for _ in range(CLEAN - 1):
        limits.succeeded(64, 16)

    assert 16 == limits.max_count(64, PLENTY)
    limits.succeeded(64, 16)
    assert 18 == limits.max_count(64, PLENTY)
    assert [20, 22, 25] == grown(limits, 64, 3)
    assert [2, 3, 4] == grown(AdaptiveCountLimit(TABLE, caps={64: 1}), 64, 3)


def test_small_batches_do_not_count():
    """Light load does not raise a limit that it never reached."""
    limits = AdaptiveCountLimit(TABLE, caps={64: 32})
    for _ in range(10 * CLEAN):
        limits.succeeded(64, 15)

    assert 32 == limits.max_count(64, PLENTY)


def test_what_fits_at_a_length_fits_at_shorter_ones():
    """Clean batches of a long bucket raise the caps of shorter ones."""
    limits = AdaptiveCountLimit(TABLE, caps={64: 16})

    assert [18] == grown(limits, 512, 1)
    assert {64: 18} == limits.caps


def test_shorter_batches_do_not_raise_longer_buckets():
    """A clean short batch says nothing about a longer one."""
    limits = AdaptiveCountLimit(TABLE, caps={512: 16})
    for _ in range(CLEAN):
        limits.succeeded(64, 100)

    assert 16 == limits.max_count(512, PLENTY)


def test_thrash():
    """One batch that made the allocator flush its cache changes nothing; two in a row lower all limits."""
    limits = AdaptiveCountLimit(TABLE, caps={512: 8})

    limits.retried()
    assert (100, 8) == (limits.max_count(64, 1100), limits.max_count(512, PLENTY))
    limits.retried()
    assert (86, 7) == (limits.max_count(64, 1100), limits.max_count(512, PLENTY))


def test_a_clean_batch_between_is_no_thrash():
    limits = AdaptiveCountLimit(TABLE)
    for _ in range(10):
        limits.retried()
        limits.succeeded(64, 1)

    assert 100 == limits.max_count(64, 1100)


def test_thrash_ends():
    """However long it lasts an eighth of the headroom stays, and clean batches bring the rest back."""
    limits = AdaptiveCountLimit(TABLE)
    for _ in range(100):
        limits.retried()
    assert 3 == limits.max_count(64, 1100)

    for _ in range(40 * CLEAN):
        limits.succeeded(64, 1)

    assert 100 == limits.max_count(64, 1100)


def test_caps_of_an_earlier_process():
    """They are restored as saved; invalid ones are left out."""
    limits = AdaptiveCountLimit(TABLE)
    limits.out_of_memory(64, 32)
    limits.out_of_memory(512, 4)

    assert limits.caps == AdaptiveCountLimit(TABLE, caps=limits.caps).caps
    assert {} == AdaptiveCountLimit(TABLE, caps={64: 0, 128: -3}).caps


def packed(lengths: list[int], limits: AdaptiveCountLimit, headroom: int) -> list[list[int]]:
    """The simplest packer: longest first, each batch as many as the limits allow for its longest."""
    waiting, batches = sorted(lengths, reverse=True), []
    while waiting:
        max_count = limits.max_count(waiting[0], headroom)
        batches.append(waiting[:max_count])
        waiting = waiting[max_count:]
    return batches


EVENTS = st.lists(
    st.tuples(st.sampled_from(["out_of_memory", "retried", "succeeded"]), st.integers(1, 600), st.integers(1, 64)),
    max_size=60,
)


@settings(deadline=None)
@given(st.lists(st.integers(1, 700), max_size=60), st.integers(0, 6000), EVENTS)
def test_packed_batches_never_exceed_the_budget(lengths, headroom, events):
    """For any mix of lengths, any free memory and any history: a batch of several fits what was measured."""
    limits = AdaptiveCountLimit(TABLE)
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
    """A card with a tenth less memory than measured, as when another process has started."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.errors, self.items = capacity, 0, 0

    def run(self, limits: AdaptiveCountLimit, length: int) -> None:
        """Run one full batch and report its outcome to the limits."""
        count = limits.max_count(length, 1100)
        if (TABLE.peak_bytes(length, count) or 0) > self.capacity:
            self.errors += 1
            limits.out_of_memory(length, count)
        else:
            self.items += count
            limits.succeeded(length, count)


def test_another_process_causes_few_errors():
    """Of ten thousand batches under 2 % run out of memory, at more than half of the count that fits."""
    card, limits = Card(1000), AdaptiveCountLimit(TABLE)
    for _ in range(10_000):
        card.run(limits, 64)

    assert 0 < card.errors < 200
    assert card.items > 10_000 * 90 / 2
