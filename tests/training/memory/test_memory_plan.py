"""The largest micro-batch of each way to train, checked by hand-made arithmetic."""

import pytest

from backend.training.memory import Footprint
from backend.training.planner import does_not_fit_message, format_table, memory_plans

MB = 2**20
FULL = Footprint(False, False, 100 * MB, 25_000_000, 100 * MB, {1: 10 * MB, 8: 80 * MB})
LEAN = Footprint(True, False, 100 * MB, 25_000_000, 100 * MB, {1: 10 * MB, 8: 24 * MB})
LORA = Footprint(False, True, 101 * MB, 250_000, 1 * MB, {1: 12 * MB, 8: 96 * MB})


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        pytest.param(299, 0, id="not-even-the-weights"),
        pytest.param(300 + 13, 1, id="one"),
        pytest.param(300 + 12, 0, id="not-quite-one"),
        pytest.param(300 + 39, 3, id="three-by-the-line-between"),
        pytest.param(1000, 8, id="all"),
    ],
)
def test_the_largest_that_fits(capacity: int, expected: int):
    """By the straight line between two estimates: 13 MiB an item here."""
    assert expected == memory_plans([FULL], capacity * MB, limit=8)[0].max_micro_batch


def test_eight_bits():
    """A second plan a footprint, whose moments take a byte and a share of a scale each."""
    plain, small = memory_plans([FULL], 10**12, limit=8, eight_bit=True)

    assert (False, True) == (plain.eight_bit, small.eight_bit)
    assert 100 * MB + 2 * int(25_000_000 * (1 + 4 / 256)) == small.fixed_bytes


def test_names_and_flags():
    """What a row is called, and how to ask for it."""
    plans = memory_plans([FULL, LEAN, LORA], 10**12, limit=8, eight_bit=True)

    assert [
        "full",
        "8-bit optimizer",
        "checkpointing",
        "8-bit optimizer, checkpointing",
        "LoRA",
        "LoRA, 8-bit optimizer",
    ] == [plan.name for plan in plans]
    assert "--use-8-bit-optimizer --use-gradient-checkpointing" == plans[3].flags
    assert "--lora-rank 8" == plans[4].flags


def test_the_table():
    """GiB a micro-batch; "-" and "none" where it does not fit."""
    lines = format_table(memory_plans([FULL, LORA], 200 * MB, limit=8), 200 * MB).splitlines()

    assert "of 0.2 GiB" in lines[0]
    assert ["way", "weights", "that", "learn", "1", "8", "largest"] == lines[1].split()
    assert ["full", "25,000,000", "-", "-", "none"] == lines[2].split()
    assert ["LoRA", "250,000", "0.12", "-", "6"] == lines[3].split()
    assert 1 == len({len(line) for line in lines[1:]})


def test_the_refusal():
    """Says what is needed, what there is, and what would fit."""
    full, lora = memory_plans([FULL, LORA], 200 * MB, limit=8)

    assert (
        "one item alone needs 0.3 GiB (full) on cuda:0, where 0.2 GiB may be taken; "
        "these would fit: LoRA (--lora-rank 8) 6 at once. Shorter or smaller items help as well"
    ) == does_not_fit_message(full, [full, lora], "cuda:0", 200 * MB)
    assert "no other way would fit" in does_not_fit_message(full, [full], "cuda:0", 200 * MB)
