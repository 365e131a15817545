"""Azure Document Intelligence's ``analyzeResult``: pages, paragraphs, tables and documents in its words and units.

Polygons are inches of a PDF and pixels of an image, clockwise from the upper left of the text, on the page as a viewer
shows it; spans count what the client asked for.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import orjson

from backend.api.json_io import json_pieces
from backend.documents.formats.markdown import body_size, heading_level, place_in_markdown, stream_markdown
from backend.documents.records import DocumentAnswer, OwnField
from backend.files.file_types import IMAGES
from backend.files.pages import Box, Document, Page, Word, blocks_of, bounding_box
from backend.invoices.records import ExtractedFields, Field, Validity
from backend.tables.records import Table, TableCell

API_VERSION = "2024-11-30"
Span = dict[str, int]
Wire = dict[str, Any]

_ZERO_WIDTH_JOINER = 0x200D
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_EXTENDING = ("Mn", "Me", "Mc")
_LOWEST_EXTENDING = 0x300


class Asked(NamedTuple):
    """What the client asked for when it sent the file."""

    model: str
    string_index_type: str = "textElements"
    content_format: str = "text"


def analyze_result(answer: DocumentAnswer, asked: Asked) -> Iterator[bytes]:
    """The JSON of ``analyzeResult``, in pieces. Takes some milliseconds a page: in a thread where there are many."""
    document = answer.document
    tables = answer.understood.tables if "tables" in answer.options.features else None
    content = _markdown(document, tables) if asked.content_format == "markdown" else _plain(document)
    writer = _Writer(document, content, offsets(content.text, asked.string_index_type))
    result: Wire = {
        "apiVersion": API_VERSION,
        "modelId": asked.model,
        "stringIndexType": asked.string_index_type,
        "contentFormat": asked.content_format,
        "content": content.text,
        "pages": [writer.page(index) for index in range(len(document.pages))],
        "paragraphs": chain.from_iterable(map(writer.paragraphs, range(len(document.pages)))),
        "styles": [],
    }
    if language := answer.understood.language:
        whole = {"offset": 0, "length": writer.units[-1]}
        result["languages"] = [{"locale": language.code, "confidence": language.score, "spans": [whole]}]
    if tables is not None:
        result |= {"tables": [writer.table(table) for table in tables], "figures": []}
    own = [_own_field(field) for field in answer.understood.custom]
    if own or asked.model in _NAMES:
        names = _NAMES.get(asked.model, _ModelNames(asked.model, {}, {}))
        result["documents"] = writer.documents(answer.understood.fields, names, own)
    if answer.failed:
        result["warnings"] = [
            {"code": "PageNotRead", "message": str(failed.error), "target": f"page {failed.number}"}
            for failed in answer.failed
        ]
    yield from json_pieces(result)


def offsets(text: str, string_index_type: str) -> Sequence[int]:
    """How many of a client's units stand before each code point of ``text``, and before its end.

    Units are UTF-16 code units, or text elements: what a reader takes for one letter (Unicode's grapheme clusters, but
    for flags and Hangul written in parts).
    """
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    if string_index_type == "utf16CodeUnit" and codes.max(initial=0) > 0xFFFF:
        return _counted(1 + (codes > 0xFFFF))
    if string_index_type == "textElements" and codes.max(initial=0) >= _LOWEST_EXTENDING:
        extending = np.array([code for code in np.unique(codes).tolist() if _extends(code)], np.uint32)
        joined = np.isin(codes, extending)
        joined[1:] |= codes[:-1] == _ZERO_WIDTH_JOINER
        joined[:1] = False
        return _counted(~joined)
    return range(len(text) + 1)


def _extends(code: int) -> bool:
    return code == _ZERO_WIDTH_JOINER or code in _SKIN_TONES or unicodedata.category(chr(code)) in _EXTENDING


def _counted(units: Any) -> Sequence[int]:
    counted = array("q", np.cumsum(units, dtype=np.int64).tobytes())
    counted.insert(0, 0)
    return counted


class _Content(NamedTuple):
    """The text that spans are of, and where in it the words of the document stand, in reading order."""

    text: str
    starts: array[int]  # of each word in `Document.text`
    ends: array[int]
    firsts: array[int]  # of the same words in ``text``
    pasts: array[int]
    pages: list[tuple[int, int]]  # of each page in ``text``


def _plain(document: Document) -> _Content:
    """The document's own text; a page begins after an empty line."""
    pages = [(start, start + len(page.text)) for start, page in zip(document.page_starts, document.pages, strict=True)]
    starts, ends = _word_places(document)
    return _Content(document.text.replace("\f", "\n"), starts, ends, starts, ends, pages)


def _markdown(document: Document, tables: Sequence[Table] | None) -> _Content:
    """The Markdown; a word of a table that stands elsewhere than in the page's text is looked for around."""
    parts = [part.decode() for part in stream_markdown(document, tables)]
    firsts, pasts = array("q"), array("q")
    pages, offset = [], 0
    for page, part in zip(document.pages, parts, strict=True):
        cursor = 0
        for word in page.words:
            start, end = place_in_markdown(part, word.text, cursor)
            firsts.append(offset + start)
            pasts.append(offset + end)
            cursor = end if start < end else cursor
        pages.append((offset, offset + len(part)))
        offset += len(part)
    starts, ends = _word_places(document)
    return _Content("".join(parts), starts, ends, firsts, pasts, pages)


def _word_places(document: Document) -> tuple[array[int], array[int]]:
    pages = list(zip(document.page_starts, document.pages, strict=True))
    starts = array("q", (start + word.start for start, page in pages for word in page.words))
    return starts, array("q", (start + word.end for start, page in pages for word in page.words))


class _Writer:
    """Writes parts of one document. Offsets that it is given are those of ``Document.text``."""

    def __init__(self, document: Document, content: _Content, units: Sequence[int]) -> None:
        self._pages = document.pages
        self._starts = document.page_starts
        self._content, self.units = content, units
        self._by_number = {page.number: page for page in document.pages}
        self._in_pixels = document.kind in IMAGES  # all others in inches
        self._body_size = body_size(document)
        self._barcodes = {number: list(codes) for number, codes in groupby(document.barcodes, attrgetter("page"))}

    def page(self, index: int) -> Wire:
        page, start = self._pages[index], self._starts[index]
        turned = page.rotation in (90, 270)
        width, height = (page.height, page.width) if turned else (page.width, page.height)
        scale = 1.0 if self._in_pixels else 1 / page.units_per_inch
        return {
            "pageNumber": page.number,
            "angle": -page.rotation if page.rotation < 180 else 360 - page.rotation,
            "width": round(width * scale, 4),
            "height": round(height * scale, 4),
            "unit": "pixel" if self._in_pixels else "inch",
            "spans": [self._span_of(*self._content.pages[index])],
            "words": (
                {
                    "content": word.text,
                    "polygon": self._polygon(page, word.box),
                    "confidence": round(word.confidence, 4),
                    "span": self._span(start + word.start, start + word.end),
                }
                for word in page.words
            ),
            "lines": (
                {**self._stretch(page, start, line), "polygon": self._polygon(page, _box_of(line))}
                for block in blocks_of(page)
                for line in block
            ),
            "barcodes": [
                {
                    "kind": _BARCODES.get(code.kind, code.kind),
                    "value": code.text,
                    "polygon": self._polygon(page, code.box),
                    "confidence": 1.0,  # it is decoded whole, or not at all
                    "span": {"offset": self.units[self._content.pages[index][0]], "length": 0},  # it is no text
                }
                for code in self._barcodes.get(page.number, ())
            ],
        }

    def paragraphs(self, index: int) -> Iterable[Wire]:
        """A paragraph for each block; headings have a role."""
        page, start = self._pages[index], self._starts[index]
        for block in blocks_of(page):
            words = [word for line in block for word in line]
            region = self._region(page.number, _box_of(words))
            level = heading_level(page, block, self._body_size)
            role = {"role": "title" if level == 1 else "sectionHeading"} if level else {}
            yield {**role, **self._stretch(page, start, words), "boundingRegions": [region]}

    def table(self, table: Table) -> Wire:
        marks = [mark for cell in table.cells for mark in (cell.start, cell.end) if mark is not None]
        return {
            "rowCount": table.rows,
            "columnCount": table.columns,
            "cells": [self._cell(cell) for cell in table.cells],
            "boundingRegions": [
                self._region(number, box) for number, box in zip(table.pages, table.boxes, strict=True)
            ],
            "spans": self._spans(min(marks, default=None), max(marks, default=None)),
        }

    def documents(self, extracted: ExtractedFields | None, names: _ModelNames, own: Sequence[Field]) -> list[Wire]:
        """The documents of the file that have fields, by the names of the model that was asked.

        Args:
            own: those that the client named; without other fields the file is one document of them.
        """
        every = () if extracted is None else (extracted, *extracted.others)
        found = [one for one in every if one.fields and one.kind != "bank_statement"]
        alone = [ExtractedFields((), Validity(), "")] if own else []
        return [self._document(one, names, own) for one in found or alone]

    def _cell(self, cell: TableCell) -> Wire:
        return {
            "kind": "columnHeader" if cell.header else "content",
            "rowIndex": cell.row,
            "columnIndex": cell.column,
            "rowSpan": cell.rowspan,
            "columnSpan": cell.colspan,
            "content": cell.text,
            "boundingRegions": [self._region(cell.page, bounding_box(cell.boxes))] if cell.boxes else [],
            "spans": self._spans(cell.start, cell.end),
        }

    def _document(self, extracted: ExtractedFields, names: _ModelNames, own: Sequence[Field]) -> Wire:
        numbers = extracted.pages or tuple(self._by_number)
        own = [field for field in own if field.places and field.places[0].page in numbers]
        pages = [page for page in self._pages if page.number in numbers]
        currency = next((field.value for field in extracted.fields if field.name == "CurrencyCode"), "")
        fields: Wire = {}
        for field in extracted.fields:
            name = names.renamed.get(field.name, field.name)
            fields[name] = self._field(field, currency, names)
        scores = [field.score for field in (*extracted.fields, *own)]
        fields |= {field.name: self._field(field, "", _AS_TEXT) for field in own}
        if "IBAN" in fields:  # where Azure's invoice has it
            payment = {
                "type": "object",
                "valueObject": {"IBAN": fields["IBAN"]},
                "confidence": fields["IBAN"]["confidence"],
            }
            fields["PaymentDetails"] = {"type": "array", "valueArray": [payment]}
        return {
            "docType": names.doc_type,
            "boundingRegions": [self._region(page.number, Box(0, 0, page.width, page.height)) for page in pages],
            "spans": [
                self._span_of(*place)
                for page, place in zip(self._pages, self._content.pages, strict=True)
                if page.number in numbers
            ],
            "confidence": round(sum(scores) / max(1, len(scores)), 4),
            "fields": fields,
        }

    def _field(self, field: Field, currency: str, names: _ModelNames) -> Wire:
        if field.rows:
            rows = [
                {
                    "type": "object",
                    "valueObject": {
                        names.renamed.get(f"{field.name}.{cell.name}", cell.name): self._field(cell, currency, names)
                        for cell in row.fields
                    },
                    "confidence": round(min(cell.score for cell in row.fields), 4),
                }
                for row in field.rows
                if row.fields
            ]
            return {"type": "array", "valueArray": rows, "confidence": round(field.score, 4)}
        wire: Wire = {
            **names.values.get(field.name, _string)(field, currency),
            "content": field.text or field.value,
            "confidence": round(field.score, 4),
        }
        if field.places:
            wire["boundingRegions"] = [self._region(place.page, place.box) for place in field.places]
        if field.start is not None:
            wire["spans"] = self._spans(field.start, field.end)
        return wire

    def _region(self, number: int, box: Box) -> Wire:
        page = self._by_number.get(number)
        return {"pageNumber": number, "polygon": [] if page is None else self._polygon(page, box)}

    def _polygon(self, page: Page, box: Box) -> list[float]:
        """The corners on the page as a viewer shows it, clockwise from the upper left of the text."""
        corners = (box.left, box.top), (box.right, box.top), (box.right, box.bottom), (box.left, box.bottom)
        scale, digits = (1.0, 1) if self._in_pixels else (1 / page.units_per_inch, 4)
        return [round(side * scale, digits) for x, y in corners for side in _as_shown(page, x, y)]

    def _stretch(self, page: Page, start: int, words: Sequence[Word]) -> Wire:
        first, last = words[0], words[-1]
        return {
            "content": page.text[first.start : last.end],
            "spans": [self._span(start + first.start, start + last.end)],
        }

    def _spans(self, start: int | None, end: int | None) -> list[Span]:
        return [] if start is None or end is None else [self._span(start, end)]

    def _span(self, start: int, end: int) -> Span:
        """The span in the content of a stretch of the document's text, from its first word to its last."""
        content = self._content
        first, last = bisect_left(content.ends, start + 1), bisect_left(content.starts, end) - 1
        if not first <= last:
            return {
                "offset": self.units[-1] if first == len(content.ends) else self.units[content.firsts[first]],
                "length": 0,
            }
        begin, stop = content.firsts[first], content.pasts[last]
        return self._span_of(begin, stop if stop >= begin else content.pasts[first])

    def _span_of(self, start: int, end: int) -> Span:
        return {"offset": self.units[start], "length": self.units[end] - self.units[start]}


def _box_of(words: Iterable[Word]) -> Box:
    return bounding_box(word.box for word in words)


def _as_shown(page: Page, x: float, y: float) -> tuple[float, float]:
    """A point of the upright page on the page as a viewer shows it, which was turned clockwise by ``page.rotation``."""
    if page.rotation == 90:
        return y, page.width - x
    if page.rotation == 180:
        return page.width - x, page.height - y
    if page.rotation == 270:
        return page.height - y, x
    return x, y


_OF_RECEIPT = {
    "VendorName": "MerchantName", "VendorAddress": "MerchantAddress", "InvoiceDate": "TransactionDate",
    "InvoiceTotal": "Total", "SubTotal": "Subtotal", "Items.UnitPrice": "Price", "Items.Amount": "TotalPrice",
}  # fmt: skip
_OF_INVOICE = {"MerchantName": "VendorName", "TransactionDate": "InvoiceDate", "Total": "InvoiceTotal"}
_BARCODES = {"DataBarOmni": "DataBar", "DataBarExp": "DataBarExpanded"}  # Azure's names of zxing's
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d\d:\d\d)(:\d\d)?")


def _string(field: Field, _currency: str) -> Wire:
    return {"type": "string", "valueString": field.value}


def _number(field: Field, _currency: str) -> Wire:
    return {"type": "number", **({} if (number := _decimal(field.value)) is None else {"valueNumber": number})}


def _money(field: Field, currency: str) -> Wire:
    amount = _decimal(field.value)
    code = {"currencyCode": currency} if currency else {}
    return {"type": "currency", **({} if amount is None else {"valueCurrency": {"amount": amount, **code}})}


def _date(field: Field, _currency: str) -> Wire:
    return {"type": "date", **({"valueDate": field.value} if _DATE.fullmatch(field.value) else {})}


def _time(field: Field, _currency: str) -> Wire:
    match = _TIME.fullmatch(field.value)
    return {"type": "time", **({"valueTime": f"{match[1]}{match[2] or ':00'}"} if match else {})}


def _address(field: Field, _currency: str) -> Wire:
    return {"type": "address", "valueAddress": {"streetAddress": field.value}}


def _decimal(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


_Value = Callable[[Field, str], Wire]


class _ModelNames(NamedTuple):
    """What a model of Azure's calls a document and its fields."""

    doc_type: str
    renamed: Mapping[str, str]
    values: Mapping[str, _Value]  # how fields are written that are no strings


_VALUES: Mapping[str, _Value] = {  # names of fields that are no strings
    **dict.fromkeys(
        (
            *("SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "AmountDue", "Total", "Tip"),
            *("WithholdingAmount", "EquivalenceSurcharge", "OpeningBalance", "ClosingBalance"),
            *("Amount", "UnitPrice", "Base", "Balance"),
        ),
        _money,
    ),
    **dict.fromkeys(
        ("InvoiceDate", "DueDate", "TransactionDate", "PeriodStart", "PeriodEnd", "Date", "ValueDate"), _date
    ),
    **dict.fromkeys(("VendorAddress", "CustomerAddress"), _address),
    **dict.fromkeys(("Quantity", "WithholdingRate"), _number),
    "TransactionTime": _time,
}
_NAMES: Mapping[str, _ModelNames] = {
    "prebuilt-invoice": _ModelNames("invoice", _OF_INVOICE, _VALUES),
    "prebuilt-receipt": _ModelNames("receipt", _OF_RECEIPT, _VALUES),
}
_AS_TEXT = _ModelNames("", {}, {})


def _own_field(field: OwnField) -> Field:
    """What was found of a name that the client asked for, as a field."""
    value = field.values[0]
    said = str(orjson.loads(value.value))
    return Field(field.path[-1], said, value.text, value.score, "text", value.why, value.start, value.end, value.places)
