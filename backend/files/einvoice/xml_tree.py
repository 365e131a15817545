"""Reads an XML tree by local names, whatever namespaces its writer chose. Hostile XML is refused."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from backend.errors import UnreadableFile

MOST_BYTES = 20_000_000  # an invoice of 50,000 lines has as many
_MOST_DEPTH = 100
_MOST_ELEMENTS = 1_000_000
_MOST_CHARS = 2_000  # of a value: a description or a note may be long, but no page


def parse_xml(data: bytes) -> Element:
    """The root element.

    Raises: UnreadableFile for what is no XML, declares entities or a document type, or is too large or too deep.
    """
    if len(data) > MOST_BYTES:
        raise UnreadableFile(f"xml: it has {len(data)} bytes; at most {MOST_BYTES} are read")
    data = data.removeprefix(codecs.BOM_UTF8).lstrip()  # programs put blank lines before the declaration
    try:
        root: Element = fromstring(data, forbid_dtd=True)
    except DefusedXmlException as error:
        raise UnreadableFile(
            "xml: it declares a document type or entities, which no invoice needs and attacks use; send it without"
        ) from error
    except (ParseError, ValueError, LookupError) as error:
        raise UnreadableFile(f"xml: it is not well-formed: {error}") from error
    _require_modest(root)
    return root


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
            if text := " ".join("".join(found.itertext()).split())[:_MOST_CHARS]:
                return text
    return ""


def _require_modest(root: Element) -> None:
    level, elements = [root], 0
    for _ in range(_MOST_DEPTH):
        if not level:
            return
        elements += len(level)
        if elements > _MOST_ELEMENTS:
            break
        level = [child for element in level for child in element]
    raise UnreadableFile(f"xml: it has more than {_MOST_ELEMENTS} elements, or is nested deeper than {_MOST_DEPTH}")
