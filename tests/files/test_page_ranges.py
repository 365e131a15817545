"""Parsing of page ranges."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import InvalidField, TooLarge
from backend.files.limits import FileLimits
from backend.files.page_ranges import check_documents, check_page_ranges, check_split, select_pages, split_ranges

LIMITS = FileLimits(pages=10)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param("", (1, 2, 3, 4, 5, 6, 7), id="all"),
        pytest.param("  ", (1, 2, 3, 4, 5, 6, 7), id="blank-is-all"),
        pytest.param("3", (3,), id="one"),
        pytest.param("1-3,7", (1, 2, 3, 7), id="a-range-and-a-page"),
        pytest.param(" 1 , 3 ", (1, 3), id="blanks-around"),
        pytest.param("5-", (5, 6, 7), id="to-the-end"),
        pytest.param("-2", (1, 2), id="from-the-beginning"),
        pytest.param("6-99", (6, 7), id="a-range-may-end-behind"),
        pytest.param("7,1-2,2", (1, 2, 7), id="order-of-the-file-each-once"),
    ],
)
def test_select_pages(ranges: str, expected: tuple[int, ...]):
    """Page numbers in ascending order, each once; without a file nothing is wrong with them."""
    check_page_ranges(ranges)

    assert expected == select_pages(ranges, 7, LIMITS)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        pytest.param("0", "pages count from 1", id="zero"),
        pytest.param("1-0", "pages count from 1", id="to-zero"),
        pytest.param("8", "begins behind the last page; the file has 7", id="behind-the-end"),
        pytest.param("999999999", "the file has 7", id="behind-this-files-end-alone"),
        pytest.param("3-1", "did you mean 1-3?", id="backwards"),
        pytest.param("-", "'-' is no page", id="a-dash"),
        pytest.param("1,,2", "'' is no page", id="nothing-between-commas"),
        pytest.param("one", "write numbers and ranges", id="words"),
        pytest.param("1-2-3", "'1-2-3' is no page", id="two-dashes"),
        pytest.param("\u0661", "is no page", id="digits-of-other-scripts"),
        pytest.param("9" * 400, "is no page", id="a-number-without-end"),
    ],
)
def test_invalid_ranges(ranges: str, message: str):
    """The message names the faulty item and the syntax; what no file can have is refused without one."""
    with pytest.raises(InvalidField, match=message.replace("?", r"\?")) as caught:
        select_pages(ranges, 7, LIMITS)
    with contextlib.nullcontext() if "the file has" in message else pytest.raises(InvalidField, match="pages: "):
        check_page_ranges(ranges)

    assert caught.value.param == "pages"


@pytest.mark.parametrize("ranges", ["", "1-", "1-11", "1-6,8-15"])
def test_too_many_pages(ranges: str):
    """Requested pages count, not those of the file; a file that claims billions costs nothing."""
    with pytest.raises(TooLarge, match="LIMIT_PAGES"):
        select_pages(ranges, 2_000_000_000, LIMITS)


@given(st.sets(st.integers(1, 50), min_size=1, max_size=10))
def test_any_list_of_pages(pages: set[int]):
    """The listed pages are selected."""
    assert tuple(sorted(pages)) == select_pages(",".join(map(str, pages)), 50, LIMITS)


@pytest.mark.parametrize("split", ["auto", "none", "pages", "1", "4-5,1-2", "5-,1-4"])
def test_documents_that_some_file_may_have(split: str):
    check_split(split)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        pytest.param("1-3,3-5", "split: page 3 stands in two documents", id="a-page-twice"),
        pytest.param("1-,4", "split: page 4 stands in two documents", id="behind-an-open-range"),
        pytest.param("each", "split: 'each' is no page and no range; write auto, none, pages or", id="words"),
        pytest.param("2-1", "split: '2-1' runs backwards", id="backwards"),
        pytest.param("0", "split: '0' names page 0", id="zero"),
    ],
)
def test_documents_that_no_file_can_have(split: str, message: str):
    """Refused without a file, with the parameter's name."""
    with pytest.raises(InvalidField, match=message) as caught:
        check_split(split)

    assert caught.value.param == "split"


def test_documents_must_be_in_the_file():
    assert split_ranges("3-9,1", 4) == [(3, 4), (1, 1)]
    check_documents("3-9,1", 4, [1, 4])
    with pytest.raises(InvalidField, match="split: '5' begins behind the last page; the file has 4"):
        check_documents("1,5", 4, [1, 2])
    with pytest.raises(InvalidField, match="split: of pages 3-4 none is read; name some in 'pages', too"):
        check_documents("1,3-", 4, [1, 2])
