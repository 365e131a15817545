"""What the readers hand out: a file's facts, a page's text layer, a page's image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.documents.pages import Page, Seen, make_page

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray


MOST_SIZES = 10_000  # a damaged file may claim billions of pages


@dataclass(frozen=True, slots=True)
class PageSize:
    """A page as a viewer shows it: /Rotate or the EXIF orientation obeyed."""

    width: float  # page units: points of a PDF, pixels of an image
    height: float


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What is known of a file once it is open, nothing of it drawn or decoded yet."""

    kind: str  # "pdf", "png", "jpeg", "tiff", "webp", "bmp", "gif", "heic"
    page_count: int
    sizes: tuple[PageSize, ...]  # of the first MOST_SIZES pages
    metadata: Mapping[str, str]  # as the file says: "title", "author", "producer", "created", "frames", …
    sha256: str  # hexadecimal

    def size(self, number: int) -> PageSize:
        """Of a page from 1; zero where it is not known: a broken page, or one far behind."""
        return self.sizes[number - 1] if number <= len(self.sizes) else PageSize(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class LayerStats:
    """Cheap numbers about one page: enough to say whether its own text can be trusted, and how finely to draw it."""

    characters: int = 0  # of the text layer, without white space
    invisible: int = 0  # of them, drawn with render mode 3 (the text layer that OCR software leaves); an estimate
    unmapped_ratio: float = 0.0  # of a sample of glyphs: the file does not say what character they are
    replaced: int = 0  # U+FFFD, private use and control characters among `characters`
    objects: int = 0  # that draw something: text, paths, images, shadings
    drawings: int = 0  # of them, everything but text
    image_ratio: float = 0.0  # of the page's area that lies under images, 0 to 1
    image_dpi: float | None = None  # of the image with the largest area, its coarser axis


@dataclass(frozen=True, slots=True)
class TextLayer:
    """A page's own text, in reading order: words of lines of blocks, boxes in page units after `turn`."""

    width: float  # page units, after the turn
    height: float
    turn: int  # degrees clockwise from what a viewer shows to where most of the text stands upright
    blocks: tuple[tuple[tuple[Seen, ...], ...], ...]
    stats: LayerStats

    def page(self, number: int, why: str) -> Page:
        """The layer as a page of the word model."""
        return make_page(
            self.blocks,
            number=number,
            width=self.width,
            height=self.height,
            source="text_layer",
            why=why,
            engine="pdfium",
            rotation=self.turn,
        )

    @property
    def text(self) -> str:
        """The words, joined by blanks; for statistics."""
        return " ".join(word.text for block in self.blocks for line in block for word in line)


@dataclass(frozen=True, slots=True)
class Raster:
    """A page as an image, upright as a viewer shows it and then turned as asked."""

    pixels: NDArray[uint8]  # (height, width_px) gray, or (height, width_px, 3) RGB
    width: float  # of the page, in page units, after the turn
    height: float
    scale_x: float  # pixels a page unit; a fax's are not square in the file, and are here
    scale_y: float
    dpi: float | None  # of `pixels`; None where the file does not tell its size on paper
    why: str  # why so fine: one sentence
    incomplete: str = ""  # what is missing, where the file is cut off: one sentence
