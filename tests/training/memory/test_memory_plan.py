"""What fits: the largest micro-batch of each way, by arithmetic that can be followed."""

from __future__ import annotations

import pytest

from backend.device.memory.probe import PREDICTION_SAFETY
from backend.training.memory.footprint import Footprint
from backend.training.memory.memory_plan import refusal, table, way_of, ways_of

MB = 2**20
FULL = Footprint(False, False, 100 * MB, 25_000_000, 100 * MB, {1: 10 * MB, 8: 80 * MB})
LEAN = Footprint(True, False, 100 * MB, 25_000_000, 100 * MB, {1: 10 * MB, 8: 24 * MB})
LORA = Footprint(False, True, 101 * MB, 250_000, 1 * MB, {1: 12 * MB, 8: 96 * MB})


def test_the_numbers():
    """Weights, two moments of what is trained, and the peak with its margin."""
    way = ways_of([FULL], 10**12, most=8)[0]

    assert 300 * MB == way.fixed_bytes
    assert {1: 300 * MB + int(PREDICTION_SAFETY * 10 * MB), 8: 300 * MB + int(PREDICTION_SAFETY * 80 * MB)} == way.needs
    assert 8 == way.fits


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        pytest.param(299, 0, id="not-even-the-weights"),
        pytest.param(300 + 13, 1, id="one"),
        pytest.param(300 + 12, 0, id="not-quite-one"),
        pytest.param(300 + 39, 3, id="three-by-the-line-between"),
        pytest.param(1000, 8, id="all"),
    ],
)
def test_the_largest_that_fits(room: int, expected: int):
    """By the straight line between what was foreseen: 13 MiB an item here."""
    assert expected == ways_of([FULL], room * MB, most=8)[0].fits


def test_never_more_than_makes_sense():
    """The micro-batch is a part of the batch."""
    assert 5 == ways_of([FULL], 10**12, most=5)[0].fits


def test_eight_bits():
    """Another row a way, whose moments take a byte and a share of a scale each."""
    plain, small = ways_of([FULL], 10**12, most=8, eight_bit=True)

    assert (False, True) == (plain.eight_bit, small.eight_bit)
    assert 100 * MB + 2 * int(25_000_000 * (1 + 4 / 256)) == small.fixed_bytes


def test_names_and_flags():
    """What a row is called, and how to ask for it."""
    ways = ways_of([FULL, LEAN, LORA], 10**12, most=8, eight_bit=True)

    assert [
        "full",
        "8-bit optimizer",
        "checkpointing",
        "8-bit optimizer, checkpointing",
        "LoRA",
        "LoRA, 8-bit optimizer",
    ] == [one.name for one in ways]
    assert "--use-8-bit-optimizer --use-gradient-checkpointing" == ways[3].flags
    assert "--lora-rank 8" == ways[4].flags


def test_one_way():
    """None where it was not foreseen, none fitting where it does not fit: two different things."""
    ways = ways_of([FULL, LORA], 200 * MB, most=8)
    full, lora = (way_of(ways, checkpointing=False, lora=lora, eight_bit=False) for lora in (False, True))

    assert full
    assert lora
    assert (0, 6) == (full.fits, lora.fits)
    assert None is way_of(ways, checkpointing=True, lora=False, eight_bit=False)


def test_the_table():
    """GiB a micro-batch; "-" and "none" where it does not fit."""
    lines = table(ways_of([FULL, LORA], 200 * MB, most=8), 200 * MB).splitlines()

    assert "of 0.2 GiB" in lines[0]
    assert ["way", "weights", "that", "learn", "1", "8", "largest"] == lines[1].split()
    assert ["full", "25,000,000", "-", "-", "none"] == lines[2].split()
    assert ["LoRA", "250,000", "0.12", "-", "6"] == lines[3].split()
    assert 1 == len({len(line) for line in lines[1:]})


def test_the_refusal():
    """Says what is needed, what there is, and what would fit."""
    full, lora = ways_of([FULL, LORA], 200 * MB, most=8)

    assert (
        "one item alone needs 0.3 GiB (full) on cuda:0, where 0.2 GiB may be taken; "
        "these would fit: LoRA (--lora-rank 8) 6 at once. Shorter or smaller items help as well"
    ) == refusal(full, [full, lora], "cuda:0", 200 * MB)
    assert "no other way would fit" in refusal(full, [full], "cuda:0", 200 * MB)
