"""Sentences with entity tags from CoNLL files, and their words laid out as text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.errors import BadData

OUTSIDE = "O"
_TAG = re.compile(r"([BIESLU])-(\S.*)")  # BIO, BIOES and BILOU all say where an entity begins and ends
_DOCUMENT = "-DOCSTART-"
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}»”\N{RIGHT SINGLE QUOTATION MARK}%…")
_NO_SPACE_AFTER = frozenset("([{«“\N{LEFT SINGLE QUOTATION MARK}¿¡")


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words and their BIO tags, equally many, at least one."""

    words: tuple[str, ...]
    tags: tuple[str, ...]  # "O", "B-PER", "I-PER"
    place: str  # file:line of the first word, for messages

    @property
    def types(self) -> frozenset[str]:
        """The kinds of its entities: PER, ORG, …"""
        return frozenset(tag[2:] for tag in self.tags if tag != OUTSIDE)


def read_conll(file: Path) -> list[Sentence]:
    """The sentences of a file: one token a line with its tag in the last column, a blank line between sentences.

    Columns are separated by tabs, or by spaces where the line has no tab; columns between token and tag are left out.
    Comments ("# …" without a tab) and -DOCSTART- lines are skipped. BIOES and BILOU become BIO, and an I- that
    continues nothing begins an entity, as seqeval and conlleval read it.

    Raises: BadData with file, line and the text of the first line that is none of this, and for a file without words.
    """
    sentences = list(_sentences(file, read_text(file)))
    if not sentences:
        raise BadData(f"{file} has no sentences")
    return sentences


def read_text(file: Path) -> str:
    """A file's text. Raises: BadData when it is absent, unreadable or not UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")  # a byte order mark is no part of the first word
    except UnicodeDecodeError as error:
        raise BadData(f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    except OSError as error:
        raise BadData(f"{file} cannot be read: {error.strerror or error}") from error


def keep_types(sentences: Sequence[Sentence], types: Collection[str]) -> list[Sentence]:
    """The same sentences with every other kind of entity as O."""
    wanted = frozenset(types)
    return [
        replace(one, tags=tuple(tag if tag[2:] in wanted else OUTSIDE for tag in one.tags))
        if one.types - wanted
        else one
        for one in sentences
    ]


def rename_types(sentences: Sequence[Sentence], names: Mapping[str, str]) -> list[Sentence]:
    """The same sentences with some kinds of entities under other names: what two sets call differently is one kind."""
    return [
        replace(one, tags=tuple(tag if tag == OUTSIDE else tag[:2] + names.get(tag[2:], tag[2:]) for tag in one.tags))
        if not one.types.isdisjoint(names)
        else one
        for one in sentences
    ]


def bio_labels(sentences: Sequence[Sentence]) -> tuple[str, ...]:
    """O, then B- and I- of every kind in alphabetical order. Raises: BadData when there is no entity at all."""
    types = sorted(frozenset[str]().union(*(one.types for one in sentences)))
    if not types:
        raise BadData(f"no entity in {len(sentences)} sentences: every tag is O, so there is nothing to learn")
    return (OUTSIDE, *(f"{mark}-{name}" for name in types for mark in "BI"))


def check_types(sentences: Sequence[Sentence], known: Collection[str]) -> None:
    """Refuse kinds of entities that the model was not taught. Raises: BadData naming the kind, file and line."""
    taught = frozenset(label[2:] for label in known if label != OUTSIDE)
    for one in sentences:
        if strange := sorted(one.types - taught):
            raise BadData(
                f"{one.place}: the evaluation data has the type {strange[0]!r}, which the training data lacks "
                f"(it has {', '.join(sorted(taught))}); name the types to learn and to score, or leave the file out"
            )


def as_text(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Words as a text people would write, and where each stands in it.

    A space between words, but none before a full stop or after an opening bracket: served texts look like that, and
    sub-word models cut "euros." and "euros ." differently.
    """
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    at = 0
    for index, word in enumerate(words):
        if index and word not in _NO_SPACE_BEFORE and words[index - 1] not in _NO_SPACE_AFTER:
            pieces.append(" ")
            at += 1
        pieces.append(word)
        places.append((at, at + len(word)))
        at += len(word)
    return "".join(pieces), places


def _sentences(file: Path, text: str) -> Iterator[Sentence]:
    words: list[str] = []
    tags: list[str] = []
    start = 0
    for number, line in enumerate([*text.split("\n"), ""], start=1):  # the added line ends the last sentence
        stripped = line.strip()
        if stripped and not _skipped(line):
            word, tag = _token(file, number, line.rstrip("\r"))
            start = start if words else number
            words.append(word)
            tags.append(tag)
        elif words and not stripped:
            yield Sentence(tuple(words), tuple(_as_bio(tags)), f"{file}:{start}")
            words, tags = [], []


def _skipped(line: str) -> bool:
    return line.startswith(_DOCUMENT) or (line.startswith("# ") and "\t" not in line)


def _token(file: Path, number: int, line: str) -> tuple[str, str]:
    columns = line.split("\t") if "\t" in line else line.split()
    word, tag = columns[0].strip(), columns[-1].strip()
    if len(columns) < 2 or not word:
        raise BadData(f"{file}:{number}: expected a token, a tab and a tag, got {line!r}")
    if tag != OUTSIDE and not _TAG.fullmatch(tag):
        raise BadData(f"{file}:{number}: {tag!r} is no tag; expected O, B-TYPE or I-TYPE, got the line {line!r}")
    return word, tag


def _as_bio(tags: Sequence[str]) -> Iterator[str]:
    before = ""  # the kind of the entity that is still open
    for tag in tags:
        if tag == OUTSIDE:
            before = ""
            yield tag
            continue
        mark, name = tag[0], tag[2:]
        continues = mark in "IEL" and name == before
        before = "" if mark in "ESLU" else name
        yield f"{'I' if continues else 'B'}-{name}"
