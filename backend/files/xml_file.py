"""An electronic invoice in XML as a file with pages: what it says, set out to be read. Runs in the workers only."""

from __future__ import annotations

import mmap
import textwrap
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from backend.errors import TooLarge
from backend.files.einvoice.read import read_einvoice
from backend.files.einvoice.records import EInvoice
from backend.files.pages import POINTS_PER_INCH, printable_line
from backend.files.records import LayerStats, PageSize
from backend.files.text_layout import LayoutWords

_SIZE = PageSize(595.0, 842.0)  # A4 in points
_MARGIN, _COLUMN, _LINE, _HEIGHT = 48.0, 5.4, 14.0, 9.0  # points
_COLUMNS = int((_SIZE.width - 2 * _MARGIN) / _COLUMN)
_LINES = int((_SIZE.height - 2 * _MARGIN) / _LINE)
_NAME_COLUMNS = 22  # of a field's name, before its value
_DPI = 110.0
_ITEM_COLUMNS = (("Description", 40), ("Quantity", 10), ("UnitPrice", 12), ("TaxRate", 8), ("Amount", 14))


class XmlFile:
    """An open invoice."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data[:]

    @cached_property
    def invoice(self) -> EInvoice:
        """Raises: UnreadableFile for what is no invoice, or hostile."""
        return read_einvoice(self._data)

    def info(self) -> dict[str, Any]:
        """Page count, sizes, and the format as metadata."""
        count = -(-len(self._lines) // _LINES)
        metadata = {"format": self.invoice.format}
        if self.invoice.others:
            metadata["invoices"] = f"{1 + self.invoice.others}; the first is read"
        return {"page_count": count, "sizes": [tuple(_size_fields())] * count, "metadata": metadata}

    def text_layer(self, number: int) -> tuple[LayoutWords, LayerStats, PageSize, NDArray[np.float32]]:
        """The words of a page (from 1), statistics, its size, and no lines."""
        texts: list[str] = []
        boxes: list[tuple[float, float, float, float]] = []
        rows: list[int] = []
        for row, line in enumerate(self._lines_of(number)):
            column = 0
            for word in line.split(" "):
                if word:
                    left, top = _MARGIN + column * _COLUMN, _MARGIN + row * _LINE
                    texts.append(word)
                    boxes.append((left, top, left + len(word) * _COLUMN, top + _HEIGHT))
                    rows.append(row)
                column += len(word) + 1
        words = LayoutWords(
            texts,
            np.array(boxes, np.float32).reshape(-1, 4),
            np.array(rows, np.int32),
            np.zeros(len(rows), np.int32),
            0,
        )
        return (
            words,
            LayerStats(characters=sum(map(len, texts)), objects=len(texts)),
            _SIZE,
            np.empty((0, 4), np.float32),
        )

    def render(self, number: int, turn: int, *, color: bool, most_pixels: int) -> dict[str, Any]:
        """A page (from 1) as `ImageFile.render` gives it: dark letters on white."""
        scale = _DPI / POINTS_PER_INCH
        width, height = (round(side * scale) for side in _size_fields())
        if width * height > most_pixels:
            raise TooLarge("pixels of a page", width * height, most_pixels, "LIMIT_RENDER_PIXELS", param="file")
        image = Image.new("RGB" if color else "L", (width, height), "white")
        draw, font = ImageDraw.Draw(image), ImageFont.load_default(_HEIGHT * scale)
        words, *_ = self.text_layer(number)
        for text, box in zip(words.texts, words.boxes.tolist(), strict=True):
            draw.text((box[0] * scale, box[1] * scale), text, fill="black", font=font)
        pixels = np.ascontiguousarray(np.rot90(np.asarray(image), -turn // 90))
        sides = _size_fields() if turn % 180 == 0 else _size_fields()[::-1]
        return {
            "pixels": pixels, "width": sides[0], "height": sides[1], "scale_x": scale, "scale_y": scale, "dpi": _DPI,
            "incomplete": "",
        }  # fmt: skip

    def close(self) -> None:
        """Nothing is held open between calls."""

    @cached_property
    def _lines(self) -> list[str]:
        invoice = self.invoice
        lines = [invoice.format, ""]
        for name, value in invoice.values.items():
            wrapped = textwrap.wrap(printable_line(value), _COLUMNS - _NAME_COLUMNS) or [""]
            lines.append(f"{name:<{_NAME_COLUMNS}}{wrapped[0]}")
            lines += [" " * _NAME_COLUMNS + part for part in wrapped[1:]]
        if invoice.items:
            lines += ["", "".join(_cell(name, name, width) for name, width in _ITEM_COLUMNS).rstrip()]
        for item in invoice.items:
            first, *more = textwrap.wrap(printable_line(item.get("Description", "")), _ITEM_COLUMNS[0][1] - 2) or [""]
            row = {**item, "Description": first}
            lines.append("".join(_cell(name, row.get(name, ""), width) for name, width in _ITEM_COLUMNS).rstrip())
            lines += more
        for tax in invoice.taxes:
            lines.append(" ".join(f"{name} {value}" for name, value in tax.items()))
        return lines

    def _lines_of(self, number: int) -> list[str]:
        return self._lines[(number - 1) * _LINES : number * _LINES]


def _size_fields() -> tuple[float, float]:
    return _SIZE.width, _SIZE.height


def _cell(name: str, text: str, width: int) -> str:
    text = printable_line(text)[: width - 1]
    return f"{text:<{width}}" if name == "Description" else f"{text:>{width}}"
