"""What a reader of an office file fills: pages being set, pictures and attachments, notes, and what is known of it."""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lxml import etree
from PIL import Image

from backend.errors import BadInput, TooLarge, UnreadableFile
from backend.files.file_types import IMAGES, sniff
from backend.files.image_file import ImageFile
from backend.files.limits import FileLimits
from backend.files.office.zip_entries import ZipEntries
from backend.files.set_pages import PageSetter, SetPage, Sides

HEADINGS = (2.0, 1.6, 1.35)  # sizes of letters by level, which formats of answers tell headings by


HEAD_BYTES = 64 * 1024
_LONGEST_NUMBER = 19  # digits
_MIN_SIDE, _MIN_AREA = 64, 40_000  # pixels of a picture that may hold text: icons and rules have fewer
_ADVICE = {"sheets": "Split the workbook.", "slides": "Split it."}


@dataclass(slots=True)
class Content:
    """One file's content, in the order in which it is read."""

    limits: FileLimits
    setter: PageSetter = field(init=False)
    metadata: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, bytes] = field(default_factory=dict)  # by name, each once
    waiting: list[str] = field(default_factory=list)  # names of those that follow what is being set
    images: int = 0  # pictures that are read
    skipped: list[str] = field(default_factory=list)  # what could not be read, and why
    attachments: list[tuple[str, bytes]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # comments and footnotes, which follow the text they belong to

    def __post_init__(self) -> None:
        self.setter = PageSetter(self.limits)

    def heading(self, text: str, level: int) -> None:
        """A heading of a level from 1."""
        self.setter.paragraph(text, HEADINGS[min(max(level, 1), len(HEADINGS)) - 1])

    def set_notes(self) -> None:
        """The notes so far as paragraphs."""
        for note in self.notes:
            self.setter.paragraph(note)
        self.notes.clear()

    def picture(self, name: str, data: bytes, *, on: SetPage | None = None, box: Sides | None = None) -> None:
        """A picture, the first time that it is shown. Without a page and a place there it waits for `set_pictures`."""
        if name in self.pictures:
            return
        self.pictures[name] = data
        if on is None or box is None:
            self.waiting.append(name)
        elif (image := self._image(name)) is not None:
            on.add_picture(name, image, box)

    def picture_in(
        self, entries: ZipEntries, name: str, *, on: SetPage | None = None, box: Sides | None = None
    ) -> None:
        """A picture of an archive, if it is there; it is unpacked the first time that it is shown."""
        base = name.rpartition("/")[2]
        if name in entries and base not in self.pictures:
            self.picture(base, entries.read(name), on=on, box=box)

    def add_properties(self, elements: Iterable[etree._Element] | None, names: Mapping[str, str]) -> None:
        """What a file says of itself, by the names of the elements that say it."""
        for element in () if elements is None else elements:
            name = names.get(local_name(element))
            if name and element.text and element.text.strip():
                self.metadata.setdefault(name, element.text.strip())

    def set_pictures(self) -> None:
        """The pictures of what was set last, after it."""
        for name in self.waiting:
            if (image := self._image(name)) is not None:
                self.setter.picture(name, image, *image.info()["sizes"][0])
        self.waiting.clear()

    def _image(self, name: str) -> ImageFile | None:
        """A picture that is large enough to hold text; one that cannot be decoded costs the document nothing else."""
        data = self.pictures[name]
        try:
            kind = sniff(data[:HEAD_BYTES])
            if kind not in IMAGES or not _may_hold_text(data):
                return None
            if self.images >= self.limits.pages:
                self.skipped.append(f"{name}: over the limit of {self.limits.pages} pictures (LIMIT_PAGES)")
                return None
            image = ImageFile(mapped(data), kind, self.limits)
            image.info()  # which looks at its size
            self.images += 1
            return image
        except MemoryError:
            raise
        except BadInput as error:
            self.skipped.append(reason(name, error))
        except Exception as error:  # noqa: BLE001  # whatever the decoder of a broken picture raises
            self.skipped.append(f"{name}: {type(error).__name__}")
        return None

    def require_pages(self, what: str, count: int) -> None:
        """Raises: TooLarge for more ``sheets`` or ``slides`` than pages may be read."""
        if count > self.limits.pages:
            raise TooLarge(what, count, self.limits.pages, "LIMIT_PAGES", advice=_ADVICE[what], param="file")

    def tell_changes(self, insertions: int, deletions: int) -> None:
        """Say how tracked changes were read, where there are any."""
        if insertions or deletions:
            counts = f"{insertions} insertions are read, {deletions} deletions are not"
            self.metadata["tracked_changes"] = counts


def _may_hold_text(data: bytes) -> bool:
    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
    return min(width, height) >= _MIN_SIDE and width * height >= _MIN_AREA


def mapped(data: bytes) -> mmap.mmap:
    """The bytes as a mapping, as files that were sent are."""
    memory = mmap.mmap(-1, max(1, len(data)))
    memory.write(data)
    return memory


def reason(name: str, error: BadInput) -> str:
    """Why a part is not read, without the list of what is."""
    return f"{name}: {str(error).removeprefix('file: ').partition('; read are ')[0]}"


def local_name(element: etree._Element) -> str:
    """The name of an element without its namespace: strict and transitional OOXML differ in that alone."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""  # a comment's tag is a function


def attribute(element: etree._Element, name: str) -> str:
    """An attribute by its name, in whatever namespace; "" where there is none."""
    plain: str | None = element.get(name)
    if plain is not None:
        return plain
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def child(element: etree._Element | None, *path: str) -> etree._Element | None:
    """The first descendant along a path of names; None where there is none."""
    for name in path:
        if element is None:
            return None
        element = next(element.iterchildren(f"{{*}}{name}"), None)
    return element


def children(element: etree._Element | None, name: str) -> Iterator[etree._Element]:
    if element is not None:
        yield from element.iterchildren(f"{{*}}{name}")


def descendants(element: etree._Element | None, name: str) -> Iterator[etree._Element]:
    if element is not None:
        yield from element.iter(f"{{*}}{name}")


def whole_number(text: str, default: int = 0) -> int:
    """A number that a file states, or the default for what is none, or longer than a number of 64 bits."""
    try:
        return int(text) if len(text) < _LONGEST_NUMBER else default
    except ValueError:
        return default


def refuse_macros(names: list[str], without: str) -> None:
    """Raises: UnreadableFile where a package holds programs."""
    if any("/macrosheets/" in name or name.lower().endswith("vbaproject.bin") for name in names):
        raise UnreadableFile(f"file: it holds macros, which are neither run nor read here; save it as {without}")
