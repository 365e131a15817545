"""Reads an XML tree by local names, whatever namespaces its writer chose. Hostile XML is refused."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from backend.errors import UnreadableFile
from backend.files.pages import printable_line
from backend.files.text_files import decoded_as, narrowed

_DIGITS_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)")
_ISO_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MAX_CHARS = 2_000  # of a value: a description or a note may be long, but is no page
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,10})?|\.[0-9]{1,10})")  # xs:decimal; it has no exponents


def iso_date(text: str) -> str:
    """A date of XML ("20260312", "2026-03-12+01:00") as ISO 8601; empty where it is none."""
    match = _DIGITS_DATE.fullmatch(text[:8]) or _ISO_DATE.match(text)
    if match is None:
        return ""
    try:
        return date(*map(int, match.groups())).isoformat()
    except ValueError:
        return ""


def decimal_text(text: str) -> str:
    """A number of XML as a plain decimal; empty where it is none: "1e999999999" would have a gigabyte of zeros."""
    text = text.strip()
    return f"{Decimal(text):f}" if _DECIMAL.fullmatch(text) else ""


def decimal_at(element: Element | None, *paths: str) -> str:
    """`decimal_text` of `text_at`."""
    return decimal_text(text_at(element, *paths))


def sum_of(numbers: Iterable[str]) -> str:
    """The sum of decimals; empty for none."""
    parts = [Decimal(number) for number in numbers if number]
    return f"{sum(parts):f}" if parts else ""


def compact_id(text: str) -> str:
    """An id without separators, in capitals: "ES B-12345678" as "ESB12345678"."""
    return re.sub(r"[^0-9A-Za-z]", "", text).upper()[:_MAX_CHARS]


def one_line(*parts: str) -> str:
    """Parts of a name or an address joined with commas, without empty ones and repetitions."""
    return ", ".join(dict.fromkeys(part.strip() for part in parts if part.strip()))[:_MAX_CHARS]


def known(values: dict[str, str]) -> dict[str, str]:
    """The values that are there, each on one line and such that every format can hold it."""
    printable = {name: printable_line(value)[:_MAX_CHARS] for name, value in values.items()}
    return {name: value for name, value in printable.items() if value}


def tax_row(kind: str, rate: str, base: str, amount: str) -> dict[str, str]:
    """A row of `EInvoice.taxes`."""
    return known({"Type": kind, "Rate": rate, "Base": base, "Amount": amount})


def goods(lines: Iterable[dict[str, str]]) -> tuple[dict[str, str], ...]:
    """The lines that sell something: headings and notes come as lines of nothing for nothing."""
    rows = map(known, lines)
    return tuple(row for row in rows if row and (_is_some(row.get("Quantity", "1")) or _is_some(row.get("Amount", ""))))


def _is_some(number: str) -> bool:
    return bool(number.strip("-0."))


MAX_BYTES = 20_000_000  # an invoice of 50,000 lines has as many
_DECLARED = re.compile(rb"""\A(<\?xml[^>]{0,200}?\sencoding\s*=\s*["'])([\w.-]{1,40})""")
_UNICODE = re.compile(r"(?:utf|ucs)[-_]?(?:8|16|32)[\w-]{0,5}", re.IGNORECASE)
_MAX_DEPTH = 100
_MAX_ELEMENTS = 1_000_000


def parse_xml(data: bytes) -> Element:
    """The root element.

    Raises: UnreadableFile for what is no XML, declares entities or a document type, or is too large or too deep.
    """
    if len(data) > MAX_BYTES:
        raise UnreadableFile(f"xml: it has {len(data)} bytes; at most {MAX_BYTES} are read")
    data = narrowed(data).removeprefix(codecs.BOM_UTF8).lstrip()  # programs put blank lines before the declaration
    try:
        root: Element = fromstring(_in_utf8(data), forbid_dtd=True)
    except DefusedXmlException as error:
        raise UnreadableFile(
            "xml: it declares a document type or entities, which no invoice needs and attacks use; send it without"
        ) from error
    except (ParseError, ValueError, LookupError) as error:
        raise UnreadableFile(f"xml: it is not well-formed: {error}") from error
    _require_modest(root)
    return root


def _in_utf8(data: bytes) -> bytes:
    """The same in UTF-8, and declared so: expat asks for whatever codec of Python's a file names.

    Programs of .NET declare "utf-16" whatever they write.
    """
    declared = _DECLARED.match(data)
    if declared is None:
        return data
    name = declared[2].decode("ascii")
    if not _UNICODE.fullmatch(name):
        text = decoded_as(data, name)
        if text is None:
            raise UnreadableFile(f"xml: it declares the encoding '{name}', which it is not in, or which is not read")
        data = text.encode("utf-8", "replace")
    return _DECLARED.sub(rb"\1UTF-8", data, 1)


def local_name(element: Element) -> str:
    """The name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def children(element: Element | None, path: str) -> Iterator[Element]:
    """The elements at a path of local names ("Party/Name"); a name may have alternatives ("Name|RegistrationName")."""
    if element is None:
        return
    first, _, rest = path.partition("/")
    names = first.split("|")
    for child in element:
        if local_name(child) in names:
            if rest:
                yield from children(child, rest)
            else:
                yield child


def child(element: Element | None, path: str) -> Element | None:
    """The first element at a path; None where there is none."""
    return next(children(element, path), None)


def text_at(element: Element | None, *paths: str) -> str:
    """The text of the first path that has one, on one line; empty where none has."""
    for path in paths:
        for found in children(element, path):
            if text := " ".join("".join(found.itertext()).split())[:_MAX_CHARS]:
                return text
    return ""


def _require_modest(root: Element) -> None:
    level, elements = [root], 0
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        elements += len(level)
        if elements > _MAX_ELEMENTS:
            break
        level = [child for element in level for child in element]
    raise UnreadableFile(f"xml: it has more than {_MAX_ELEMENTS} elements, or is nested deeper than {_MAX_DEPTH}")
