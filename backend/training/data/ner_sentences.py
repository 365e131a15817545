"""Reads tagged sentences of one or several data sets with common entity types, split for training and evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.training.data.conll import OUTSIDE, Sentence, keep_types, read_conll, rename_types
from backend.training.data.texts import files_of, read_split

_SUFFIXES = (".conll",)
_LANGUAGE = re.compile(r"([a-z]{2})_")


@dataclass(frozen=True, slots=True)
class Source:
    """The sentences of one path."""

    path: Path
    train: Sequence[Sentence]
    evaluation: Sequence[Sentence]

    @property
    def sentences(self) -> Sequence[Sentence]:
        """Training and evaluation sentences."""
        return (*self.train, *self.evaluation)

    @property
    def role(self) -> str:
        """What the path was used for, in the words of the model card."""
        uses = (("training", self.train), ("evaluation", self.evaluation))
        return " and ".join(name for name, sentences in uses if sentences)


def read_sources(
    data: Sequence[Path],
    *,
    evaluation: Path | None,
    held_out: float,
    relabel: Mapping[str, str],
    types: Collection[str],
) -> list[Source]:
    """Read the sentences of each path; ``evaluation`` replaces all other evaluation data and is a source of its own.

    Where several paths are given, one may be a folder with evaluation files only.

    Args:
        held_out: share of each path's training sentences kept for evaluation where there is no evaluation file.
        relabel: entity type in the data -> type to learn.
        types: the types to keep, after relabelling; none for all.

    Raises: BadData.
    """
    sources: list[Source] = []
    evaluation_sentences: list[Sentence] = []
    for path in data:
        if len(data) > 1 and evaluation is None and not (files := files_of(path, _SUFFIXES, any_name=True))[0]:
            sources.append(Source(path, (), [sentence for file in files[1] for sentence in read_conll(file)]))
            continue
        train, evaluation_sentences = read_split(
            path, evaluation, read_conll, suffixes=_SUFFIXES, held_out=held_out, group=lambda sentence: sentence.words
        )
        sources.append(Source(path, train, evaluation_sentences if evaluation is None else ()))
    if evaluation is not None:
        sources.append(Source(evaluation, (), evaluation_sentences))

    def prepared(sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        renamed = rename_types(sentences, relabel) if relabel else sentences
        return keep_types(renamed, types) if types else renamed

    return [Source(source.path, prepared(source.train), prepared(source.evaluation)) for source in sources]


def in_capitals(sentence: Sentence) -> Sentence:
    """The sentence as headings and forms have it."""
    return replace(sentence, words=tuple(word.upper() for word in sentence.words))


def names_in_capitals(sentence: Sentence) -> Sentence:
    """The sentence with its names alone in capitals, as deeds and judgments have it."""
    tagged = zip(sentence.words, sentence.tags, strict=True)
    return replace(sentence, words=tuple(word if tag == OUTSIDE else word.upper() for word, tag in tagged))


def in_small_letters(sentence: Sentence) -> Sentence:
    """The sentence as people type it into a search box."""
    return replace(sentence, words=tuple(word.lower() for word in sentence.words))


RECASINGS: tuple[Callable[[Sentence], Sentence], ...] = (in_capitals, names_in_capitals, in_small_letters)


def by_file(sentences: Sequence[Sentence]) -> dict[str, list[int]]:
    """File name without suffix -> indices of its sentences."""
    by_name: dict[str, list[int]] = {}
    for number, sentence in enumerate(sentences):
        by_name.setdefault(_stem(sentence.location), []).append(number)
    return by_name


def languages(locations: Iterable[str]) -> list[str]:
    """ISO 639-1 codes in the file names, as in "es_news.conll"; ``locations`` are file:line."""
    stems = {_stem(location) for location in locations}
    return sorted({match[1] for stem in stems if (match := _LANGUAGE.match(stem))})


def _stem(location: str) -> str:
    return Path(location.rpartition(":")[0]).stem
