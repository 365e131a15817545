"""Documents for the page to show: their pictures and the service's JSON, made from the same words."""

import io
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 595.0, 842.0  # points of an A4 page
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
_UNSURE = frozenset(("l2/O3/2026", "ES91", "21OO", "0418", "4502", "0005", "1332"))


@cache
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Debian's font, which has accents; or Pillow's own, which draws boxes for them."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


@dataclass(frozen=True)
class Line:
    text: str
    left: float
    top: float
    size: float = 11.0


@dataclass
class DrawnPage:
    """One page: lines to draw, and the entities in them as (type, text, further fields)."""

    lines: list[Line]
    entities: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    source: str = "ocr"

    def words(self) -> list[dict[str, Any]]:
        """Every word with its box; offsets count from the start of the page."""
        words, start = [], 0
        for number, line in enumerate(self.lines):
            font = _font(line.size)
            left = line.left
            for text in line.text.split(" "):
                right = left + font.getlength(text)
                box = [left, line.top, right, line.top + line.size * 1.3]
                confidence = 0.41 if text in _UNSURE else 0.96
                place = {"start": start, "end": start + len(text), "line": number, "block": number}
                words.append({"text": text, "box": box, "confidence": confidence, **place})
                left, start = right + font.getlength(" "), start + len(text) + 1
        return words

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    def picture(self, dpi: float) -> bytes:
        scale = dpi / 72
        image = Image.new("RGB", (round(WIDTH * scale), round(HEIGHT * scale)), "white")
        pen = ImageDraw.Draw(image)
        for line in self.lines:
            font = _font(line.size * scale)
            pen.text((line.left * scale, line.top * scale), line.text, "#1b2530", font)
        stream = io.BytesIO()
        image.save(stream, "png")
        return stream.getvalue()


def invoice() -> DrawnPage:
    """An invoice in Spanish with a misread account number."""
    lines = [
        Line("Suministros Ibéricos S.L.", 60, 60, 20),
        Line("Calle Mayor 12, 28013 Madrid", 60, 92),
        Line("CIF B12345674 · facturas@iberica.example", 60, 110),
        Line("FACTURA F-2026/0117", 60, 165, 16),
        Line("Fecha: l2/O3/2026", 60, 200),
        Line("Cliente: Panadería Núñez e Hijos", 60, 218),
        Line("Concepto", 60, 270),
        Line("Importe", 440, 270),
        Line("Harina de trigo, 40 sacos de 25 kg", 60, 295),
        Line("1.180,00 €", 440, 295),
        Line("Transporte hasta Alcalá de Henares", 60, 315),
        Line("64,00 €", 440, 315),
        Line("Base imponible", 320, 355),
        Line("1.244,00 €", 440, 355),
        Line("IVA 10 %", 320, 375),
        Line("124,40 €", 440, 375),
        Line("Total", 320, 400, 14),
        Line("1.368,40 €", 440, 400, 14),
        Line("El pago vence a los treinta días de la fecha de esta factura.", 60, 460),
        Line("Transferencia a ES91 21OO 0418 4502 0005 1332", 60, 480),
        Line(HOSTILE, 60, 520),
    ]
    repair = {"value": "ES9121000418450200051332", "type": "IBAN", "score": 0.99}
    entities: list[tuple[str, str, dict[str, Any]]] = [
        ("ORG", "Suministros Ibéricos S.L.", {}),
        ("CIF", "B12345674", {"valid": True}),
        ("INVOICE_NUMBER", "F-2026/0117", {}),
        ("ORG", "Panadería Núñez e Hijos", {}),
        ("MONEY", "1.180,00 €", {"value": "1180.00 EUR"}),
        ("MONEY", "64,00 €", {"value": "64.00 EUR"}),
        ("MONEY", "1.368,40 €", {"value": "1368.40 EUR"}),
        ("LOC", "Alcalá de Henares", {}),
        ("IBAN", "ES91 21OO 0418 4502 0005 1332", {"valid": False, "repair": repair}),
        ("PER", HOSTILE, {}),
    ]
    return DrawnPage(lines, entities)


def letter(number: int, lines: int = 30) -> DrawnPage:
    """A page with nothing on it but sentences."""
    sentences = [f"Page {number}, line {line}: the committee met and took note of the report." for line in range(lines)]
    return DrawnPage([Line(text, 60, 60 + 22 * line) for line, text in enumerate(sentences)], [], "text_layer")


def page_json(drawn: DrawnPage, number: int, start: int) -> dict[str, Any]:
    """A page of the answer; offsets count from the start of the document's text."""
    words = [{**word, "start": word["start"] + start, "end": word["end"] + start} for word in drawn.words()]
    scanned = drawn.source == "ocr"
    why = "no text layer: the page is a picture" if scanned else "the text layer is sound: 2,040 characters, all mapped"
    return {
        "number": number,
        "width": WIDTH,
        "height": HEIGHT,
        "units_per_inch": 72,
        "rotation": 0,
        "source": drawn.source,
        "why": why,
        "engine": "tesseract 5.5.1" if scanned else "pdfium",
        "confidence": 0.91 if scanned else None,
        "language": "es",
        "start": start,
        "text": drawn.text,
        "words": words,
    }


def document_json(drawn_pages: list[DrawnPage], failed: tuple[int, ...] = ()) -> dict[str, Any]:
    """The service's answer for a document of these pages; ``failed`` pages could not be read."""
    pages, start = [], 0
    entities = []
    for number, drawn in enumerate(drawn_pages, 1):
        if number in failed:
            continue
        pages.append(page_json(drawn, number, start))
        entities += [_entity_json(entity, drawn, number, start) for entity in drawn.entities]
        start += len(drawn.text) + 2
    error = {"message": "page 3: the picture is cut off", "type": "x", "code": "unreadable_file", "param": "file"}
    sentence = "El pago vence a los treinta días de la fecha de esta factura."
    return {
        "object": "document",
        "kind": "pdf",
        "page_count": len(drawn_pages),
        "sha256": "0" * 64,
        "metadata": {"Title": HOSTILE, "Producer": "scanner 3"},
        "pages": pages,
        "failed_pages": [{"number": number, "error": error} for number in failed],
        "text": "\n\f".join(page["text"] for page in pages),
        "language": {"code": "es", "score": 0.998},
        "classes": {
            "prediction": "invoice",
            "score": 0.93,
            "predictions": [
                {"label": "invoice", "score": 0.93},
                {"label": "receipt", "score": 0.04},
                {"label": "utility_bill", "score": 0.02},
                {"label": HOSTILE, "score": 0.01},
            ],
        },
        "entities": entities,
        "coverage": 1.0,
        "key_phrases": [
            {"text": text, "score": 0.5, "places": []}
            for text in ("harina de trigo", "base imponible", "factura", HOSTILE)
        ],
        "key_sentences": [
            {"text": sentence, "start": 0, "end": 9, "score": 0.7, "places": _places(sentence, drawn_pages[0], 1)},
            {"text": HOSTILE, "start": 0, "end": 9, "score": 0.6, "places": []},
        ],
        "model": "all-MiniLM-L6-v2",
        "device": "cpu",
        "timings": {"open_s": 0.031, "read_s": 0.9, "ocr_s": 0.74, "understand_s": 0.12, "total_s": 1.06},
        "usage": {"pages": len(pages), "ocr_pages": 1, "prompt_tokens": 412, "total_tokens": 412},
    }


def invoice_data() -> dict[str, Any]:
    """Fields and tables of `invoice`, as the service answers them: its amounts do not add up."""
    drawn = invoice()

    def value(text: str, normalized: str | None = None, **more: Any) -> dict[str, Any]:
        places = _places(text, drawn, 1)
        boxes = [place["box"] for place in places]
        return {
            "value": normalized or text, "text": text, "score": 0.96, "page": 1, "boxes": boxes,
            "start": 0, "end": 9, "source": "text", "why": "beside its label", "valid": None, "repair": None,
            "ambiguous": False, **more,
        }  # fmt: skip

    items = [
        {"Description": value("Harina de trigo, 40 sacos de 25 kg"), "Amount": value("1.180,00 €", "1180.00")},
        {"Description": value(HOSTILE), "Amount": value("64,00 €", "64.00")},
    ]
    fields = {
        "VendorName": value("Suministros Ibéricos S.L."),
        "VendorTaxId": value("B12345674", valid=True),
        "InvoiceDate": value("l2/O3/2026", "2026-03-12", ambiguous=True),
        "IBAN": value("ES91 21OO 0418 4502 0005 1332", valid=False, repair="ES9121000418450200051332"),
        "InvoiceTotal": value("1.368,40 €", "1368.40", source="qr"),
        "CustomerName": value(HOSTILE),
        "Items": {"value": items, "score": 0.9, "source": "text", "why": "under their header"},
    }
    differences = [{"equation": "SubTotal + TotalTax = InvoiceTotal", "expected": "1368.41", "printed": "1368.40"}]
    valid = {"totals": False, "VendorTaxId": True, "CustomerTaxId": None, "IBAN": False, "differences": differences}
    return {"fields": fields, "fields_why": "read as invoice", "valid": valid, "tables": [_table_json(drawn)]}


def _table_json(drawn: DrawnPage) -> dict[str, Any]:
    texts = [("Concepto", "Importe"), ("Harina de trigo, 40 sacos de 25 kg", "1.180,00 €")]

    def cell(row: int, column: int, text: str, **more: Any) -> dict[str, Any]:
        boxes = [place["box"] for place in _places(text, drawn, 1)]
        return {
            "row": row, "column": column, "rowspan": 1, "colspan": 1, "text": text, "value": None, "header": row == 0,
            "page": 1, "boxes": boxes, "start": 0, "end": 1, **more,
        }  # fmt: skip

    cells = [cell(row, column, text) for row, line in enumerate(texts) for column, text in enumerate(line)]
    cells.append(cell(2, 0, HOSTILE, colspan=2))
    return {
        "page": 1, "pages": [1], "boxes": [[60, 260, 520, 330]], "rows": 3, "columns": 2, "source": "borderless",
        "score": 0.9, "cells": cells,
    }  # fmt: skip


def _entity_json(entity: tuple[str, str, dict[str, Any]], drawn: DrawnPage, number: int, start: int) -> dict[str, Any]:
    kind, text, more = entity
    first = start + drawn.text.index(text)
    known = {"type": kind, "text": text, "start": first, "end": first + len(text), "score": 0.97, "source": "pattern"}
    return {**known, "value": None, "valid": None, "places": _places(text, drawn, number), **more}


def _places(text: str, drawn: DrawnPage, number: int) -> list[dict[str, Any]]:
    """One box over the words of a text on one line."""
    start = drawn.text.find(text)
    inside = [word["box"] for word in drawn.words() if start <= word["start"] < start + len(text)] if start >= 0 else []
    if not inside:
        return []
    return [{"page": number, "box": [inside[0][0], inside[0][1], inside[-1][2], inside[-1][3]]}]
