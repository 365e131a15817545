"""Reads e-books (EPUB): a part a chapter, in the order in which they are read."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from lxml import etree

from backend.errors import UnreadableFile
from backend.files.office.content import Content, attribute, child, children, descendants, local_name
from backend.files.office.html_page import read_html
from backend.files.office.zip_entries import ZipEntries
from backend.files.text_files import decode_text

_PROPERTIES = {"title": "title", "creator": "author", "date": "created", "publisher": "publisher"}
_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")


def read_epub(entries: ZipEntries, content: Content) -> None:
    """Raises: UnreadableFile for a broken book, and one that is locked."""
    _check(entries)
    rootfile = next(descendants(entries.xml("META-INF/container.xml"), "rootfile"), None)
    name = "" if rootfile is None else attribute(rootfile, "full-path")
    package = entries.xml(name)
    if package is None:
        raise UnreadableFile("file: it is no e-book: its list of chapters is missing")
    for element in child(package, "metadata") or ():
        known = _PROPERTIES.get(local_name(element))
        if known and element.text and element.text.strip():
            content.metadata.setdefault(known, element.text.strip())
    folder = posixpath.dirname(name)
    items = {attribute(item, "id"): item for item in children(child(package, "manifest"), "item")}
    for number, reference in enumerate(children(child(package, "spine"), "itemref"), 1):
        item = items.get(attribute(reference, "idref"))
        if item is not None and attribute(reference, "linear") != "no":
            _read_chapter(entries, content, posixpath.normpath(posixpath.join(folder, _target(item))), number)


def _check(entries: ZipEntries) -> None:
    """Fonts may be scrambled; text that is makes a book nobody can read without its shop's key."""
    root = entries.xml("META-INF/encryption.xml")
    methods = [attribute(method, "Algorithm") for method in descendants(root, "EncryptionMethod")]
    if any(method not in _FONT_SCRAMBLING for method in methods):
        raise UnreadableFile("file: the book is locked (DRM); send one that is not")


def _target(item: etree._Element) -> str:
    return unquote(attribute(item, "href"))


def _read_chapter(entries: ZipEntries, content: Content, name: str, number: int) -> None:
    if name not in entries or (text := decode_text(entries.read(name))) is None:
        return
    content.setter.begin_part(f"chapter {number}")

    def picture(source: str) -> tuple[str, bytes] | None:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(source)))
        return (target.rpartition("/")[2], entries.read(target)) if target in entries else None

    read_html(text, content, picture)
