"""Headers that list numbers stay short, and say when they do not list all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.api.json_io import index_headers

NAME = "X-Truncated"


def numbers_of(listed: str) -> list[int]:
    """The numbers of a list, as a client reads them."""
    numbers: list[int] = []
    for part in listed.removesuffix(",...").split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param([3], "3", id="one"),
        pytest.param([0, 2, 3, 4, 9], "0,2-4,9", id="mixed"),
        pytest.param(list(range(2048)), "0-2047", id="all-of-a-full-request"),
    ],
)
def test_ranges(numbers, expected):
    """Neighbours are one range; the count is of the numbers."""
    assert {NAME: expected, f"{NAME}-Count": str(len(numbers))} == index_headers(NAME, numbers)


def test_nothing_to_list():
    """No header, as before."""
    assert {} == index_headers(NAME, [])


def test_every_other_of_a_full_request_is_cut_short():
    """The list was 9 KB, over what nginx takes; the count is still of all."""
    headers = index_headers(NAME, range(0, 2048, 2))

    assert "1024" == headers[f"{NAME}-Count"]
    assert headers[NAME].endswith(",...")
    assert list(range(0, 2 * len(numbers_of(headers[NAME])), 2)) == numbers_of(headers[NAME])
    assert len(numbers_of(headers[NAME])) > 100


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=300))
def test_any_numbers(numbers):
    """Whole numbers in their order, all of them unless it says otherwise; both headers are under 600 bytes."""
    ordered = sorted(numbers)
    headers = index_headers(NAME, ordered)

    listed = numbers_of(headers[NAME])
    assert ordered[: len(listed)] == listed
    assert headers[NAME].endswith("...") == (listed != ordered)
    assert sum(len(name) + len(value) for name, value in headers.items()) < 600
