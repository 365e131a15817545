"""Reads the entries of a zip, and XML in them: bounded, whatever its directory claims, and without entities."""

from __future__ import annotations

import io
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO
from urllib.parse import unquote

from lxml import etree

from backend.errors import TooLarge, UnreadableFile
from backend.files.limits import FileLimits

MAX_ENTRIES = 10_000  # of one archive; reading the directory of a million takes a gigabyte
_DIRECTORY_BYTES = 8 * 2**20
_END, _END_BYTES, _LONGEST_COMMENT = b"PK\x05\x06", 22, 65_535
_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError, struct.error)


@dataclass(slots=True)
class Budget:
    """Bytes that may still be unpacked of one upload, whatever archives lie in each other."""

    limits: FileLimits
    spent: int = 0

    def spend(self, count: int) -> None:
        """Raises: TooLarge."""
        self.spent += count
        if self.spent > self.limits.file_bytes:
            raise TooLarge(
                "file: bytes when unpacked, at least", self.spent, self.limits.file_bytes, "LIMIT_FILE_BYTES",
                advice="Send its parts one by one.", param="file",
            )  # fmt: skip


class ZipEntries:
    """An archive's entries by name. Raises: UnreadableFile for a broken one, from every method."""

    def __init__(self, source: IO[bytes], budget: Budget) -> None:
        self._budget = budget
        _check_count(source)
        try:
            self._zip = zipfile.ZipFile(source)
        except _BROKEN as error:
            raise UnreadableFile(f"file: it is no whole zip archive ({error})") from error
        self.names = [entry.filename for entry in self._zip.infolist() if not entry.is_dir()]
        self._known = frozenset(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def read(self, name: str) -> bytes:
        """An entry. Raises: TooLarge where more is unpacked than LIMIT_FILE_BYTES."""
        entry = self._zip.getinfo(name)
        if entry.flag_bits & 1:
            raise UnreadableFile(f"file: '{name[:100]}' in it is encrypted; send it without a password")
        pieces: list[bytes] = []
        try:
            with self._zip.open(entry) as stream:
                while piece := stream.read(2**20):
                    self._budget.spend(len(piece))
                    pieces.append(piece)
        except _BROKEN as error:
            raise UnreadableFile(f"file: '{name[:100]}' in it is broken ({error})") from error
        return b"".join(pieces)

    def xml(self, name: str) -> etree._Element | None:
        """The root of an entry; None where there is none of this name."""
        return parse_xml(self.read(name), name) if name in self else None

    def relations(self, name: str) -> dict[str, Relation]:
        """What an entry of an OOXML package refers to, by id; links out of it are left out."""
        folder, _, base = name.rpartition("/")
        root = self.xml(posixpath.join(folder, "_rels", f"{base}.rels"))
        return {} if root is None else dict(_relations(root, folder))

    def main(self, usual: str) -> str:
        """The entry that an OOXML package is about; the usual one where its relations do not tell."""
        return next((one.target for one in self.relations("").values() if one.kind == "officeDocument"), "") or usual


@dataclass(frozen=True, slots=True)
class Relation:
    """A reference from one entry of a package to another."""

    kind: str  # the last part of its type: "image", "comments", …
    target: str  # name of the entry


def parse_xml(data: bytes, name: str) -> etree._Element:
    """The root of an XML file. Raises: UnreadableFile for what is none, and for one that declares entities."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_pis=True)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise UnreadableFile(f"file: '{name[:100]}' in it is no XML ({str(error)[:200]})") from error
    _refuse_document_type(root, name)
    return root


def elements_of(data: bytes, name: str, tags: tuple[str, ...]) -> Iterator[etree._Element]:
    """The elements of these tags as they end, for files too long for a tree; clear each. Raises: as `parse_xml`."""
    is_first = True
    try:
        for _, element in etree.iterparse(
            io.BytesIO(data), events=("end",), tag=tags, resolve_entities=False, no_network=True, load_dtd=False,
            huge_tree=False,
        ):  # fmt: skip
            if is_first:
                _refuse_document_type(element, name)
                is_first = False
            yield element
    except etree.XMLSyntaxError as error:
        raise UnreadableFile(f"file: '{name[:100]}' in it is no XML ({str(error)[:200]})") from error


def _refuse_document_type(element: etree._Element, name: str) -> None:
    if element.getroottree().docinfo.internalDTD is not None:
        raise UnreadableFile(f"file: '{name[:100]}' in it declares a document type, as no office program writes one")


def _relations(root: etree._Element, folder: str) -> Iterator[tuple[str, Relation]]:
    for element in root.iter(_RELATION):
        target = unquote(element.get("Target", ""))
        if element.get("TargetMode") != "External":
            path = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            yield element.get("Id", ""), Relation(element.get("Type", "").rpartition("/")[2], path)


def _check_count(source: IO[bytes]) -> None:
    """Raises: TooLarge where the archive's end tells of too many entries; UnreadableFile where it has no end."""
    size = source.seek(0, 2)
    source.seek(max(0, size - _END_BYTES - _LONGEST_COMMENT))
    tail = source.read(_END_BYTES + _LONGEST_COMMENT)
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_BYTES:
        raise UnreadableFile("file: it is no whole zip archive (its directory is missing); is it cut off?")
    count, directory_bytes = struct.unpack_from("<HI", tail, place + 10)
    if count > MAX_ENTRIES:  # 65,535 where there are as many or more
        raise TooLarge("file: entries of the archive, at least", count, MAX_ENTRIES, "no setting", param="file")
    if directory_bytes > _DIRECTORY_BYTES:  # it is what is read, whatever the count says
        raise TooLarge(
            "file: bytes of the archive's directory", directory_bytes, _DIRECTORY_BYTES, "no setting", param="file"
        )
