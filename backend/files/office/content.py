"""What a reader of an office file fills: pages being set, pictures and attachments, notes, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from backend.errors import TooLarge, UnreadableFile
from backend.files.limits import FileLimits
from backend.files.set_pages import PageSetter

HEADINGS = (2.0, 1.6, 1.35)  # sizes of letters by level, which formats of answers tell headings by


_ADVICE = {"sheets": "Split the workbook.", "slides": "Split it."}


@dataclass(slots=True)
class Content:
    """One file's content, in the order in which it is read."""

    limits: FileLimits
    setter: PageSetter = field(init=False)
    metadata: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, bytes] = field(default_factory=dict)  # by name, each once
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

    def require_pages(self, what: str, count: int) -> None:
        """Raises: TooLarge for more ``sheets`` or ``slides`` than pages may be read."""
        if count > self.limits.pages:
            raise TooLarge(what, count, self.limits.pages, "LIMIT_PAGES", advice=_ADVICE[what], param="file")

    def tell_changes(self, insertions: int, deletions: int) -> None:
        """Say how tracked changes were read, where there are any."""
        if insertions or deletions:
            counts = f"{insertions} insertions are read, {deletions} deletions are not"
            self.metadata["tracked_changes"] = counts


def local_name(element: etree._Element) -> str:
    """The name of an element without its namespace: strict and transitional OOXML differ in that alone."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""  # a comment's tag is a function


def attribute(element: etree._Element, name: str, default: str = "") -> str:
    """An attribute by its name, in whatever namespace."""
    plain: str | None = element.get(name)
    if plain is not None:
        return plain
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), default)


def child(element: etree._Element | None, *path: str) -> etree._Element | None:
    """The first descendant along a path of names; None where there is none."""
    for name in path:
        if element is None:
            return None
        element = next((one for one in element if local_name(one) == name), None)
    return element


def children(element: etree._Element | None, name: str) -> Iterator[etree._Element]:
    for one in () if element is None else element:
        if local_name(one) == name:
            yield one


def descendants(element: etree._Element | None, name: str) -> Iterator[etree._Element]:
    if element is not None:
        yield from element.iter(f"{{*}}{name}")


def whole_number(text: str, default: int = 0) -> int:
    """A number that a file states, or the default for what is none."""
    try:
        return int(text)
    except ValueError:
        return default


def refuse_macros(names: list[str], without: str) -> None:
    """Raises: UnreadableFile where a package holds programs."""
    if any(name.rpartition("/")[2].lower() == "vbaproject.bin" for name in names):
        raise UnreadableFile(f"file: it holds macros, which are neither run nor read here; save it as {without}")
