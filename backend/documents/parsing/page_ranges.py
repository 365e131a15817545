"""Which pages a request means: "1-3,7", "5-", "-2"."""

from __future__ import annotations

import re

from backend.documents.parsing.limits import FileLimits
from backend.errors import InvalidField, TooLarge

_RANGE = re.compile(r"(\d{0,9})(-?)(\d{0,9})", re.ASCII)
_EXAMPLE = 'write numbers and ranges such as "1-3,7" or "5-"'


def select_pages(wish: str, page_count: int, limits: FileLimits) -> tuple[int, ...]:
    """The page numbers that a wish names, rising, each once; all pages for an empty wish.

    "7" is a page, "1-3" a range with both ends, "5-" goes to the last page, "-2" from the first; commas join. Ranges
    that overlap or stand in another order are not an error: a page is read once, and pages are answered in the order
    of the file. A range may end behind the last page ("1-10" of a file of 4), but must begin before.

    Raises:
        InvalidField: not a list of ranges, a page 0, a range that runs backwards, or that begins behind the last page.
        TooLarge: more pages than one request may read.
    """
    ranges = [_bounds(part.strip(), page_count) for part in wish.split(",")] if wish.strip() else [(1, page_count)]
    # counted before they are listed: a damaged file may claim millions
    if len(ranges) == 1:
        _check_count(ranges[0][1] - ranges[0][0] + 1, limits)
    numbers: set[int] = set()
    for first, last in ranges:
        numbers.update(range(first, min(last, first + limits.pages) + 1))
        _check_count(len(numbers), limits)
    return tuple(sorted(numbers))


def _bounds(part: str, page_count: int) -> tuple[int, int]:
    found = _RANGE.fullmatch(part)
    if not found or not (found[1] or found[3]):
        raise InvalidField(f"pages: '{part[:40]}' is no page and no range; {_EXAMPLE}", param="pages")
    first = int(found[1]) if found[1] else 1
    last = int(found[3]) if found[3] else (page_count if found[2] else first)
    if first < 1 or (found[3] and last < 1):
        raise InvalidField(f"pages: '{part}' names page 0; pages count from 1", param="pages")
    if found[1] and first > page_count:
        raise InvalidField(f"pages: '{part}' begins behind the last page; the file has {page_count}", param="pages")
    if last < first:
        raise InvalidField(f"pages: '{part}' runs backwards; did you mean {last}-{first}?", param="pages")
    return first, min(last, page_count)


def _check_count(count: int, limits: FileLimits) -> None:
    if count > limits.pages:
        raise TooLarge(
            "pages", count, limits.pages, "LIMIT_PAGES", advice='Ask for some of them: pages="1-50".', param="pages"
        )
