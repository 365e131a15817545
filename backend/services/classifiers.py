"""Which classifiers there are: bundled with the installation, configured, or learnt here and kept across restarts.

Knows heads and folders; embeds and solves nothing. ``start``, ``save`` and ``forget`` touch the disk and belong in a
thread; everything else answers from memory on any thread.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from backend.errors import InvalidField, ModelUnavailable, NotFound, TooLarge, Unavailable, UnknownModel
from backend.models.classifier_head import CONFIG, NONE, ClassifierHead, read_head
from backend.services.classifier_files import (
    Example,
    folders,
    read_examples,
    recover,
    remove_folder,
    write_folder,
)
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
BUNDLED_HEADS = Path(__file__).resolve().parents[1] / "models" / "bundled"
KEPT = "classifiers"  # the folder in STATE_DIR
LABELS_MAX = 1000
EXAMPLES_MAX = 10_000
LABEL_CHARACTERS_MAX = 200
CLASSIFIERS_MAX = 100  # learnt ones
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_RELEARN_S = 5.0  # about what learning again takes

Source = Literal["bundled", "configured", "learnt"]


@dataclass(frozen=True, slots=True)
class Classifier:
    """A classifier that answers."""

    name: str
    head: ClassifierHead
    source: Source


@dataclass(slots=True)
class _Known:
    """Everything read; ``head`` is None where only the examples could be read."""

    source: Source
    head: ClassifierHead | None


@dataclass(slots=True)
class Classifiers:
    """The registry. Names are one space: a learnt one cannot take a bundled or configured one's."""

    state_dir: Path
    encoder_sha256: str  # of the embedding model whose vectors the heads will get
    bundled: Path = BUNDLED_HEADS
    configured: Sequence[Path] = ()  # folders of heads that were asked for
    faults: list[str] = field(default_factory=list)  # what was skipped and why, for GET /v1/system
    _known: dict[str, _Known] = field(default_factory=dict)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Read every head. Unreadable learnt ones are logged, listed in ``faults`` and skipped.

        Raises: ModelUnavailable for a configured head that is none, or was made for another embedding model.
        """
        for folder in sorted(file.parent for file in self.bundled.glob(f"*/{CONFIG}")):
            self._add(folder.name, "bundled", read_head(folder))
        for folder in self.configured:
            self._add_configured(folder)
        try:
            recover(self._kept)
            kept = folders(self._kept)
        except OSError as error:
            self._fault(KEPT, f"{error}")
            return
        for folder in kept:
            self._add_kept(folder)

    def names(self) -> list[str]:
        """Of those that answer now; bundled and configured first."""
        return [name for name, known in self._known.items() if self._answers(known)]

    def find(self, name: str) -> Classifier:
        """One that answers, by name.

        Raises: UnknownModel with the names there are; Unavailable for one that must be learnt again first.
        """
        known = self._known.get(name)
        if known is not None and known.head is not None and self._answers(known):
            return Classifier(name, known.head, known.source)
        if known is not None and known.source == "learnt":
            raise Unavailable(
                f"classifier '{name}' is being learnt again for this embedding model", retry_after_s=_RELEARN_S
            )
        raise UnknownModel(name, self.names())

    def stale(self) -> list[str]:
        """Learnt ones whose head is of another embedding model, or lost: learn them again from ``examples``."""
        return [name for name, known in self._known.items() if known.source == "learnt" and not self._answers(known)]

    def examples(self, name: str) -> list[Example]:
        """What a learnt one was learnt from; reads the disk. Raises: NotFound, ModelUnavailable."""
        self._learnt(name)
        return read_examples(self._kept / name)

    def check(self, name: str, examples: Sequence[Example], *, multiple: bool) -> list[str]:
        """The labels of a classifier that is about to be learnt, in their order, after everything is found right.

        Raises: InvalidField, TooLarge.
        """
        self._check_name(name)
        return check_examples(examples, multiple=multiple)

    def save(self, name: str, head: ClassifierHead, examples: Sequence[Example]) -> Classifier:
        """Keep a learnt one and answer with it from now on, in place of one of the same name.

        Raises: InvalidField for a name that cannot be; Unavailable when the disk refuses.
        """
        head = replace(head, name=name)
        with self._writing:
            self._check_name(name)
            try:
                write_folder(self._kept, name, head, examples)
            except OSError as error:
                raise _unkept(error) from error
            self._known[name] = _Known("learnt", head)
        return Classifier(name, head, "learnt")

    def forget(self, name: str) -> None:
        """Take a learnt one away. Raises: NotFound; InvalidField for one that is not learnt; Unavailable."""
        with self._writing:
            self._learnt(name)
            try:
                remove_folder(self._kept, name)
            except FileNotFoundError:
                pass  # somebody took the folder away: gone is gone
            except OSError as error:
                raise _unkept(error) from error
            del self._known[name]

    def use_encoder(self, sha256: str) -> None:
        """Another embedding model answers from now on: heads of others fall silent, and ``stale`` lists the learnt."""
        self.encoder_sha256 = sha256

    @property
    def _kept(self) -> Path:
        return self.state_dir / KEPT

    def _answers(self, known: _Known) -> bool:
        return known.head is not None and known.head.encoder_sha256 == self.encoder_sha256

    def _add(self, name: str, source: Source, head: ClassifierHead | None) -> None:
        self._known[name] = _Known(source, head)

    def _add_configured(self, folder: Path) -> None:
        head = read_head(folder)
        if head.encoder_sha256 != self.encoder_sha256:
            raise ModelUnavailable(
                f"the classifier {folder.name} was trained on vectors of {head.encoder_sha256[:12]}, but the "
                f"embedding model is {self.encoder_sha256[:12]}; set EMBEDDING_MODEL to its encoder ({head.encoder})"
            )
        self._add(head.name or folder.name, "configured", head)

    def _add_kept(self, folder: Path) -> None:
        try:
            self._check_name(folder.name)
            self._add(folder.name, "learnt", self._kept_head(folder))
        except (InvalidField, ModelUnavailable) as error:
            self._fault(folder.name, str(error))

    def _kept_head(self, folder: Path) -> ClassifierHead | None:
        """None where only the examples can be read. Raises: ModelUnavailable where not even they can."""
        try:
            return read_head(folder)
        except ModelUnavailable as error:
            read_examples(folder)
            self._fault(folder.name, f"{error}; it is learnt again from its examples")
            return None

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidField(
                f"name: '{name[:80]}' cannot be a classifier's; use 1 to 64 of a-z, 0-9, - and _, "
                "beginning with a letter or digit",
                param="name",
            )
        known = self._known.get(name)
        if known is not None and known.source != "learnt":
            raise InvalidField(
                f"name: '{name}' is a {known.source} classifier and cannot be changed; choose another", param="name"
            )
        learnt = sum(one.source == "learnt" for one in self._known.values())
        if known is None and learnt >= CLASSIFIERS_MAX:
            raise InvalidField(
                f"name: {learnt} classifiers are kept, as many as there may be; forget one first", param="name"
            )

    def _learnt(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is None:
            raise NotFound(f"name: no classifier '{name[:80]}'; there are {', '.join(self.names())}", param="name")
        if known.source != "learnt":
            raise InvalidField(f"name: '{name}' is a {known.source} classifier, not one learnt here", param="name")
        return known

    def _fault(self, name: str, reason: str) -> None:
        self.faults.append(f"{name}: {reason}")
        log_event(_log, logging.WARNING, "a kept classifier could not be read", name=name, reason=reason)


def check_examples(examples: Sequence[Example], *, multiple: bool) -> list[str]:
    """The labels of these examples, each once, in the order they first come; ``NONE`` is not one of them.

    Raises: InvalidField, TooLarge.
    """
    if not examples:
        raise InvalidField("examples: none given; give at least one for each of two labels", param="examples")
    if len(examples) > EXAMPLES_MAX:
        raise TooLarge("examples", len(examples), EXAMPLES_MAX, "of one classifier", param="examples")
    said: dict[str, tuple[str, ...]] = {}
    for place, one in enumerate(examples):
        _check_example(place, one, multiple=multiple)
        if not multiple and said.setdefault(one.text, one.labels) != one.labels:
            raise InvalidField(
                f"examples[{place}]: the same text was given the label '{said[one.text][0][:80]}' before",
                param="examples",
            )
    labels = list(dict.fromkeys(label for one in examples for label in one.labels if label != NONE))
    if len(labels) > LABELS_MAX:
        raise TooLarge("labels", len(labels), LABELS_MAX, "of one classifier", param="examples")
    if len(labels) < (1 if multiple or any(one.labels == (NONE,) for one in examples) else 2):
        raise InvalidField(
            f"examples: {len(labels)} label; at least two are needed to tell apart, or examples labelled '{NONE}'",
            param="examples",
        )
    return labels


def _check_example(place: int, one: Example, *, multiple: bool) -> None:
    if not one.text.strip():
        raise InvalidField(f"examples[{place}]: the text is empty", param="examples")
    if not multiple and len(one.labels) != 1:
        raise InvalidField(f"examples[{place}]: {len(one.labels)} labels; one is needed", param="examples")
    if len(set(one.labels)) != len(one.labels):
        raise InvalidField(f"examples[{place}]: a label is given twice", param="examples")
    for label in one.labels:
        if not label.strip() or len(label) > LABEL_CHARACTERS_MAX or (multiple and label == NONE):
            raise InvalidField(
                f"examples[{place}]: '{label[:80]}' cannot be a label; use 1 to {LABEL_CHARACTERS_MAX} characters"
                + (f", and no label at all instead of '{NONE}'" if multiple else ""),
                param="examples",
            )


def _unkept(error: OSError) -> Unavailable:
    reason = error.strerror or type(error).__name__
    return Unavailable(f"the classifier cannot be kept on the disk: {reason} (STATE_DIR)", retry_after_s=30.0)
