"""Reads sentences with entity tags from CoNLL files, and joins their words into text."""

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
    location: str  # file:line of the first word, for messages

    @property
    def types(self) -> frozenset[str]:
        """The types of its entities: PER, ORG, …"""
        return frozenset(tag[2:] for tag in self.tags if tag != OUTSIDE)


def read_conll(file: Path) -> list[Sentence]:
    """Read a file with one token per line, its tag in the last column, and a blank line between sentences.

    Columns are separated by tabs, or by spaces where the line has no tab; columns between token and tag are ignored.
    Comments ("# …" without a tab) and -DOCSTART- lines are skipped. BIOES and BILOU become BIO, and an I- that
    continues no entity begins one, as in seqeval and conlleval.

    Raises: BadData with file, line and text of the first malformed line, and for a file without words.
    """
    sentences = list(_sentences(file, read_text(file)))
    if not sentences:
        raise BadData(f"{file} has no sentences")
    return sentences


def read_text(file: Path) -> str:
    """A file's text. Raises: BadData when it is absent, unreadable or not UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")  # drops a byte order mark
    except UnicodeDecodeError as error:
        raise BadData(f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    except OSError as error:
        raise BadData(f"{file} cannot be read: {error.strerror or error}") from error


def keep_types(sentences: Sequence[Sentence], types: Collection[str]) -> list[Sentence]:
    """The same sentences with the tags of all other entity types set to O."""
    kept_types = frozenset(types)
    return [
        replace(sentence, tags=tuple(tag if tag[2:] in kept_types else OUTSIDE for tag in sentence.tags))
        if sentence.types - kept_types
        else sentence
        for sentence in sentences
    ]


def rename_types(sentences: Sequence[Sentence], names: Mapping[str, str]) -> list[Sentence]:
    """The same sentences with entity types renamed by ``names``, so that several data sets share one label set."""
    return [
        sentence
        if sentence.types.isdisjoint(names)
        else replace(sentence, tags=tuple(tag[:2] + names.get(tag[2:], tag[2:]) for tag in sentence.tags))
        for sentence in sentences
    ]


def bio_labels(sentences: Sequence[Sentence]) -> tuple[str, ...]:
    """O, then B- and I- of every type in alphabetical order. Raises: BadData when there is no entity at all."""
    types = sorted(frozenset[str]().union(*(sentence.types for sentence in sentences)))
    if not types:
        raise BadData(f"no entity in {len(sentences)} sentences: every tag is O, so there is nothing to learn")
    return (OUTSIDE, *(f"{mark}-{name}" for name in types for mark in "BI"))


def check_types(sentences: Sequence[Sentence], known: Collection[str]) -> None:
    """Check that every entity type is in the labels ``known``. Raises: BadData naming the type, file and line."""
    trained = frozenset(label[2:] for label in known if label != OUTSIDE)
    for sentence in sentences:
        if unknown := sorted(sentence.types - trained):
            raise BadData(
                f"{sentence.location}: the evaluation data has the type {unknown[0]!r}, which the training data lacks "
                f"(it has {', '.join(sorted(trained))}); name the types to learn and to score, or leave the file out"
            )


def detokenize(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Join words into natural text; also returns the (start, stop) characters of each word.

    No space before a full stop or after an opening bracket: texts look like that in production, and
    sub-word tokenizers split "euros." and "euros ." differently.
    """
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    position = 0
    for index, word in enumerate(words):
        if index and word not in _NO_SPACE_BEFORE and words[index - 1] not in _NO_SPACE_AFTER:
            pieces.append(" ")
            position += 1
        pieces.append(word)
        spans.append((position, position + len(word)))
        position += len(word)
    return "".join(pieces), spans


def entity_spans(tags: Sequence[str], word_spans: Sequence[tuple[int, int]]) -> set[tuple[str, int, int]]:
    """Type, start and end in characters of each entity in BIO tags."""
    entities: list[tuple[str, int, int]] = []
    for tag, (start, end) in zip(tags, word_spans, strict=True):
        if tag.startswith("I-"):
            entity_type, first, _ = entities.pop()
            entities.append((entity_type, first, end))
        elif tag != OUTSIDE:
            entities.append((tag[2:], start, end))
    return set(entities)


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
    open_type = ""  # of the entity that the previous tag belongs to
    for tag in tags:
        if tag == OUTSIDE:
            open_type = ""
            yield tag
            continue
        mark, entity_type = tag[0], tag[2:]
        continues = mark in "IEL" and entity_type == open_type
        open_type = "" if mark in "ESLU" else entity_type
        yield f"{'I' if continues else 'B'}-{entity_type}"
