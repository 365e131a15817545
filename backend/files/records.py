"""Records of what is read from a file: its page sizes and metadata, a page's text layer, a page's image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from backend.files.pages import SET, Box, Grid, Page, RawWord, Ruling, make_page
from backend.files.speech_records import AudioInfo

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray


MAX_SIZES = 10_000  # a damaged file may claim billions of pages


@dataclass(frozen=True, slots=True)
class PageSize:
    """Size of a page as a viewer shows it, with /Rotate or the EXIF orientation applied."""

    width: float  # page units: points of a PDF, pixels of an image
    height: float


@dataclass(frozen=True, slots=True)
class FilePart:
    """Pages that follow each other in a file of several parts."""

    name: str
    kind: str  # of `FileType`
    pages: int
    attachment: int = 0  # as `Page.attachment`


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What opening a file tells, before any page is rendered or decoded."""

    kind: str  # of `FileType`
    page_count: int
    sizes: tuple[PageSize, ...]  # of the first MAX_SIZES pages
    metadata: Mapping[str, str]  # as the file says: "title", "author", "producer", "created", "frames", …
    sha256: str  # hexadecimal
    attachments: int = 0  # that may hold an electronic invoice
    audio: AudioInfo | None = None  # of a recording, which has no pages yet: page_count is 0
    parts: tuple[FilePart, ...] = ()  # of all pages, in order; empty where the file is its only part

    def part(self, number: int) -> FilePart:
        """The part that a page (from 1) is of."""
        for part in self.parts:
            if number <= part.pages:
                return part
            number -= part.pages
        return FilePart("", self.kind, self.page_count)

    def size(self, number: int) -> PageSize:
        """Size of a page (from 1); zero where it is unknown: the page is broken or beyond MAX_SIZES."""
        return self.sizes[number - 1] if number <= len(self.sizes) else PageSize(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ModelPage:
    """A page as an image model takes it."""

    pixels: NDArray[uint8]  # (height, width_px, 3) of the model's size
    incomplete: str  # a sentence on what could not be read of it; empty where it is whole


@dataclass(frozen=True, slots=True)
class LayerStats:
    """Cheap statistics of a page, from which `choose_source` and `choose_resolution` decide."""

    characters: int = 0  # of the text layer, without white space
    invisible: int = 0  # of these, in render mode 3 (invisible, as OCR software writes it); an estimate
    unmapped_ratio: float = 0.0  # share of a sample of glyphs that the file maps to no character
    replaced: int = 0  # U+FFFD, private use and control characters among `characters`
    objects: int = 0  # visible ones: text, paths, images, shadings
    drawings: int = 0  # of these, all but text
    image_ratio: float = 0.0  # share of the page's area covered by images, 0 to 1
    image_dpi: float | None = None  # of the largest image, on its coarser axis
    is_set: bool = False  # the page was set here, of a file that has none


class PlacedPicture(NamedTuple):
    """A picture on a page that was set, whose words are not in the page's text layer."""

    first: int  # words of the page before it
    box: Box


@dataclass(frozen=True, slots=True)
class TextLayer:
    """A page's own text in reading order: blocks of lines of words, boxes in page units after `turn`."""

    width: float  # page units, after the turn
    height: float
    turn: int  # degrees clockwise, from what a viewer shows, that set most of the text upright
    blocks: tuple[tuple[tuple[RawWord, ...], ...], ...]
    stats: LayerStats
    rulings: tuple[Ruling, ...] = ()  # drawn lines, after the turn
    grids: tuple[Grid, ...] | None = None  # as `Page.grids`
    pictures: tuple[PlacedPicture, ...] = ()  # in reading order

    def page(self, number: int, why: str) -> Page:
        """The layer as a `Page`."""
        page = make_page(
            self.blocks,
            number=number,
            width=self.width,
            height=self.height,
            source="text_layer",
            why=why,
            engine=SET if self.stats.is_set else "pdfium",
            rotation=self.turn,
            rulings=self.rulings,
        )
        return replace(page, grids=self.grids)

    @property
    def text(self) -> str:
        """The words, joined by spaces; for statistics."""
        return " ".join(word.text for block in self.blocks for line in block for word in line)


@dataclass(frozen=True, slots=True)
class Raster:
    """A page as an image: as a viewer shows it, then turned as requested."""

    pixels: NDArray[uint8]  # (height, width_px) gray, or (height, width_px, 3) RGB
    width: float  # of the page, in page units, after the turn
    height: float
    scale_x: float  # pixels per page unit; a fax's non-square pixels are resampled to square ones
    scale_y: float
    dpi: float | None  # of `pixels`; None where the file does not state its resolution
    why: str  # one sentence: why this resolution
    incomplete: str = ""  # one sentence: what is missing of a truncated file


@dataclass(frozen=True, slots=True)
class Framing:
    """How a page of any size is brought to a model's size: resized, then cropped about its centre."""

    resample: int  # Pillow's number of the filter: 2 bilinear, 3 bicubic, …
    resize: tuple[int, int] | None  # height and width_px, whatever the page's shape; None: by its shorter side
    shortest_px: int = 0  # of the shorter side, the other in proportion; only without ``resize``
    crop: tuple[int, int] | None = None  # height and width_px; where the page is smaller, black is put around it

    @property
    def size(self) -> tuple[int, int]:
        """Height and width_px of every result."""
        size = self.crop or self.resize
        assert size is not None, "read_preprocessing refuses framings whose results differ in size"
        return size

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Framing:
        """The framing whose fields came through JSON, with lists for tuples."""
        sides = {name: fields[name] and (int(fields[name][0]), int(fields[name][1])) for name in ("resize", "crop")}
        return cls(int(fields["resample"]), sides["resize"], int(fields["shortest_px"]), sides["crop"])

    def resized(self, height: int, width_px: int) -> tuple[int, int]:
        """The size that a page is resized to, as transformers computes it."""
        if self.resize is not None:
            return self.resize
        shorter, longer = sorted((height, width_px))
        longer_px = int(self.shortest_px * longer / shorter)
        return (longer_px, self.shortest_px) if width_px <= height else (self.shortest_px, longer_px)


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """All that happens to a page before the model; ``framing`` in a worker process, the rest on the device."""

    framing: Framing
    scale: float  # of values from 0 to 255
    mean: tuple[float, float, float]  # of each channel, after scaling
    std: tuple[float, float, float]
