"""Tagged sentences of one set or of several, with one vocabulary of kinds, and which are for what."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.training.data.conll import Sentence, keep_types, read_conll, rename_types
from backend.training.data.texts import files_of, read_split

_SUFFIXES = (".conll",)
_LANGUAGE = re.compile(r"([a-z]{2})_")


@dataclass(frozen=True, slots=True)
class Source:
    """What one path gave."""

    path: Path
    learn: Sequence[Sentence]
    judge: Sequence[Sentence]

    @property
    def role(self) -> str:
        """As the model card says it."""
        parts = (("training", self.learn), ("evaluation", self.judge))
        return " and ".join(name for name, sentences in parts if sentences)


def read_sources(
    data: Sequence[Path],
    *,
    evaluation: Path | None,
    held_out: float,
    relabel: Mapping[str, str],
    types: Collection[str],
) -> list[Source]:
    """Each path's sentences; those of ``evaluation``, which stands in for all other evaluation, as a source of its own.

    Args:
        held_out: share of each path's training sentences kept back where nothing else is there to evaluate on.
        relabel: kind in the data -> kind to learn.
        types: the kinds to keep, after that; none for all.

    Beside others, a folder may have files for evaluation alone.

    Raises: BadData.
    """
    sources: list[Source] = []
    judge: list[Sentence] = []
    for path in data:
        if len(data) > 1 and evaluation is None and not (files := files_of(path, _SUFFIXES, any_name=True))[0]:
            sources.append(Source(path, (), [one for file in files[1] for one in read_conll(file)]))
            continue
        learn, judge = read_split(
            path, evaluation, read_conll, suffixes=_SUFFIXES, held_out=held_out, group=lambda one: one.words
        )
        sources.append(Source(path, learn, judge if evaluation is None else ()))
    if evaluation is not None:
        sources.append(Source(evaluation, (), judge))

    def known(sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        renamed = rename_types(sentences, relabel) if relabel else sentences
        return keep_types(renamed, types) if types else renamed

    return [Source(one.path, known(one.learn), known(one.judge)) for one in sources]


def by_file(sentences: Sequence[Sentence]) -> dict[str, list[int]]:
    """Numbers of the sentences of each file, by its name without the ending."""
    found: dict[str, list[int]] = {}
    for number, one in enumerate(sentences):
        found.setdefault(_stem(one.place), []).append(number)
    return found


def languages(places: Iterable[str]) -> list[str]:
    """ISO 639-1 of the files that say theirs, as "es_news.conll" does; ``places`` are file:line."""
    stems = {_stem(place) for place in places}
    return sorted({found[1] for stem in stems if (found := _LANGUAGE.match(stem))})


def _stem(place: str) -> str:
    return Path(place.rpartition(":")[0]).stem
