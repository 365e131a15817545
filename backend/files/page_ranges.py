"""Ranges of numbers as people write them: "1-3,7". Of a request's pages also "5-" and "-2"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from backend.errors import InvalidField, TooLarge
from backend.files.limits import FileLimits

_RANGE = re.compile(r"(\d{0,9})(-?)(\d{0,9})", re.ASCII)
_MAX_PAGES = 10**9  # more than nine digits can say
SPLITS = ("auto", "none", "pages")  # how to cut a file into documents, beside ranges
_EXAMPLE = 'write {}numbers and ranges such as "1-3,7" or "5-"'


def select_pages(ranges: str, page_count: int, limits: FileLimits) -> tuple[int, ...]:
    """The page numbers of a list of ranges, ascending, each once; all pages for an empty string.

    "7" is a page, "1-3" includes both ends, "5-" goes to the last page, "-2" starts at the first; commas separate.
    Ranges may overlap and come in any order: each page is read once, in the order of the file. A range may end
    beyond the last page ("1-10" of a file of 4), but must begin on an existing one.

    Raises:
        InvalidField: no list of ranges, page 0, a descending range, or one that begins after the last page.
        TooLarge: more pages than one request may read.
    """
    bounds = [_bounds(item.strip(), page_count) for item in ranges.split(",")] if ranges.strip() else [(1, page_count)]
    # counted before they are listed: a damaged file may claim millions of pages
    if len(bounds) == 1:
        _check_count(bounds[0][1] - bounds[0][0] + 1, limits)
    numbers: set[int] = set()
    for first, last in bounds:
        numbers.update(range(first, min(last, first + limits.pages) + 1))
        _check_count(len(numbers), limits)
    return tuple(sorted(numbers))


def check_page_ranges(ranges: str) -> str:
    """The same list of ranges, checked before the file is open. Raises: InvalidField, as `select_pages`."""
    for item in ranges.split(",") if ranges.strip() else []:
        _bounds(item.strip(), _MAX_PAGES)
    return ranges


def check_split(split: str) -> None:
    """What can be said of documents' pages before the file is open. Raises: InvalidField, as `split_ranges`."""
    split_ranges(split)


def split_ranges(split: str, page_count: int = _MAX_PAGES) -> list[tuple[int, int]]:
    """First and last page of each document, in the order of the list; none where no list says it.

    Args:
        split: "auto", "none", "pages", or ranges such as "1-2,3", each the pages of one document.

    Raises: InvalidField, as `select_pages`, and for a page in two documents.
    """
    if split in SPLITS:
        return []
    bounds = [_bounds(item.strip(), page_count, "split") for item in split.split(",")]
    for (_, last), (first, _) in pairwise(sorted(bounds)):
        if first <= last:
            raise InvalidField(f"split: page {first} stands in two documents; name each page once", param="split")
    return bounds


def check_documents(split: str, page_count: int, numbers: Sequence[int]) -> None:
    """Raise InvalidField for documents that an open file does not have, or of whose pages none is to be read."""
    for first, last in split_ranges(split, page_count):
        if not any(first <= number <= last for number in numbers):
            raise InvalidField(f"split: of pages {first}-{last} none is read; name some in 'pages', too", param="split")


def written_ranges(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers, neighbours as one range: "0-4", "7"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]


def _bounds(item: str, page_count: int, param: str = "pages") -> tuple[int, int]:
    match = _RANGE.fullmatch(item)
    if not match or not (match[1] or match[3]):
        words = f"{', '.join(SPLITS)} or " if param == "split" else ""
        raise InvalidField(f"{param}: '{item[:40]}' is no page and no range; {_EXAMPLE.format(words)}", param=param)
    first = int(match[1]) if match[1] else 1
    last = int(match[3]) if match[3] else (page_count if match[2] else first)
    if first < 1 or (match[3] and last < 1):
        raise InvalidField(f"{param}: '{item}' names page 0; pages count from 1", param=param)
    if match[1] and first > page_count:
        raise InvalidField(f"{param}: '{item}' begins behind the last page; the file has {page_count}", param=param)
    if last < first:
        raise InvalidField(f"{param}: '{item}' runs backwards; did you mean {last}-{first}?", param=param)
    return first, min(last, page_count)


def _check_count(count: int, limits: FileLimits) -> None:
    if count > limits.pages:
        raise TooLarge(
            "pages", count, limits.pages, "LIMIT_PAGES", advice='Ask for some of them: pages="1-50".', param="pages"
        )
