"""What a confirmed document teaches about its supplier's next one, from what is stored of it. Pure.

Also the file as it was read, for documents that are cut out of it by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.files.einvoice.records import EInvoice
from backend.files.pages import Box, Document, Page, TextLocation, Word
from backend.files.visual_rows import page_rows
from backend.invoices.corrections import LIST_COLUMNS
from backend.invoices.records import Field, FieldRow
from backend.invoices.structure import example_of
from backend.invoices.taught.examples import ANY
from backend.reasons import reasons_in
from backend.search.records import ConfirmedDocument, StoredDocument, WireFields
from backend.speech.pages import TIME_HEIGHT, time_box


def lesson_of(confirmed: ConfirmedDocument) -> tuple[Sequence[str], Mapping[str, Any]] | None:
    """The keys of the document's supplier, and the example that is kept; None where it teaches nothing."""
    read = confirmed.stored.parts[confirmed.document].read
    if confirmed.kind is None or confirmed.kind == "bank_statement":
        return None
    own = [page for page in confirmed.pages if page["number"] in read["pages"]]
    pages = [page_rows(page_of(page)) for page in own if page.keys() >= {"words", "width"}]  # minutes have no width
    was = _fields(read["fields"])
    example = example_of(pages, confirmed.kind, was, _confirmed(confirmed.fields, read["fields"]))
    return None if example is None else ((ANY, *example.keys()), example.as_json())


def document_of(stored: StoredDocument, content: Mapping[str, Any]) -> Document:
    """The file as it was read, for its fields to be read again; with the values of its tax QR code."""
    pages, answer = tuple(page_of(page) for page in content["pages"]), stored.answer
    return Document(answer["kind"], pages, answer["page_count"], stored.file.sha256, einvoice=_code(stored))


def _code(stored: StoredDocument) -> EInvoice | None:
    """What a code on a page said, from the fields that have it; None where there is none."""
    fields = {
        name: field
        for part in stored.parts
        for name, field in part.read["fields"].items()
        if field["source"] == "qr" and name not in LIST_COLUMNS
    }
    reasons = (one for field in fields.values() for one in field.get("reasons") or reasons_in(field["why"]))
    said = [one["params"] for one in reasons if one["code"] == "qr_code"]
    if not said:
        return None
    box = next((tuple(field["boxes"][0]) for field in fields.values() if field["boxes"] and not field["text"]), None)
    values = {name: field["value"] for name, field in fields.items()}
    return EInvoice(said[0]["format"], values, page=said[0]["page"], box=box)


def page_of(wire: Mapping[str, Any]) -> Page:
    """A page as it was read, or a minute as it was heard, from its answer."""
    words = tuple(
        Word(w["text"], _box(w), w["confidence"], w["start"], w["end"], w["line"], w["block"]) for w in wire["words"]
    )
    of_minute = {"width": wire.get("end_s"), "height": TIME_HEIGHT, "units_per_inch": 1.0, "rotation": 0}
    plain = {name: wire.get(name, value) for name, value in of_minute.items()}
    return Page(
        wire["number"],
        **plain,
        text=wire["text"],
        words=words,
        source=wire["source"],
        why=wire["why"],
        engine=wire["engine"],
    )


def _box(word: Mapping[str, Any]) -> Box:
    return Box(*word["box"]) if "box" in word else time_box(word["start_s"], word["end_s"])


def _confirmed(fields: WireFields, read: WireFields) -> dict[str, Field]:
    """Fields as they are right; one that was corrected without a place does not stand where the reader looked."""
    found = _fields(fields)
    for name, field in fields.items():
        moved = name in read and name not in LIST_COLUMNS and field["value"] != read[name]["value"]
        if moved and field["boxes"] == read[name]["boxes"]:
            found[name] = Field(name, field["value"], "", 1.0, "text", "")
    return found


def _fields(wire: WireFields) -> dict[str, Field]:
    return {name: _field(name, field) for name, field in wire.items()}


def _field(name: str, wire: Mapping[str, Any]) -> Field:
    if name in LIST_COLUMNS:
        rows = (FieldRow(tuple(_field(column, cell) for column, cell in row.items())) for row in wire["value"])
        return Field(name, "", "", 1.0, "text", wire["why"], rows=tuple(rows))
    places = tuple(TextLocation(wire["page"], Box(*box)) for box in wire["boxes"] if wire["page"] is not None)
    return Field(name, wire["value"], wire["text"], 1.0, "text", wire["why"], places=places, valid=wire["valid"])
