"""The registry of classifiers: bundled with the installation, configured, or taught (`classifier_store` keeps those).

Embeds and fits nothing. ``start``, ``restore_bundled`` and ``use_substitute`` access the disk and belong on a thread;
everything else is answered from memory.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from backend.callers.callers import Caller
from backend.errors import Forbidden, InvalidField, ModelUnavailable, NotFound, TooLarge, Unavailable, UnknownModel
from backend.models.classifier_head import CONFIG, NONE, ClassifierHead, read_head
from backend.models.fingerprint import EncoderIdentity
from backend.telemetry import log_event
from backend.text.classifier_files import BundledHeads, Example

_log = logging.getLogger(__name__)
BUNDLED_HEADS = Path(__file__).resolve().parents[1] / "models" / "bundled"
LABELS_MAX = 1000
EXAMPLES_MAX = 10_000
LABEL_CHARACTERS_MAX = 200
CLASSIFIERS_MAX = 100  # trained here
NAME_PATTERN = "[a-z0-9][a-z0-9_-]{0,63}"
_NAME = re.compile(NAME_PATTERN)
_RETRAIN_S = 5.0  # about what retraining takes
_PENDING_S = 30.0  # a model of the hub is on its way, nobody knows for how long
_LEARN_BUNDLED_S = 20.0  # about what the examples of a bundled classifier take with a base model on two cores

Source = Literal["bundled", "configured", "learnt"]


@dataclass(frozen=True, slots=True)
class Classifier:
    """A classifier that can be used."""

    name: str
    head: ClassifierHead
    source: Source


@dataclass(slots=True)
class _Entry:
    """One classifier that was found; ``head`` is None where only the examples could be read."""

    source: Source
    head: ClassifierHead | None
    owner: str | None = None  # of one trained here: the caller that trained it, where that is known
    has_examples: bool = False  # of a bundled one: they ship, and it can be learnt from them for any encoder
    substitute: ClassifierHead | None = None  # what was learnt from them
    labels: tuple[str, ...] = ()  # of one without a head
    unreadable: str = ""  # of one that another replica taught: why this one cannot use it


@dataclass(slots=True)
class ClassifierRegistry:
    """Classifiers by name. A trained classifier cannot take the name of a bundled or configured one."""

    state_dir: Path
    encoder: EncoderIdentity  # the embedding model that serves
    bundled: Path = BUNDLED_HEADS
    configured: Sequence[Path] = ()  # folders of heads that settings name
    is_encoder_pending: bool = False  # at the start: a configured head may be of the encoder that is still to come
    faults: list[str] = field(default_factory=list)  # what was skipped and why, for GET /v1/system
    _entries: dict[str, _Entry] = field(default_factory=dict)

    def start(self) -> None:
        """Read every head that was not taught.

        Raises: ModelUnavailable for a configured head that is unreadable, or of another embedding model.
        """
        for folder in sorted(file.parent for file in self.bundled.glob(f"*/{CONFIG}")):
            self._entries[folder.name] = _Entry("bundled", read_head(folder))
            self._entries[folder.name].has_examples = self.bundled_heads.has_examples(folder.name)
        for name in self.pending():
            self.restore_bundled(name)
        for folder in self.configured:
            self._add_configured(folder)

    def names(self) -> list[str]:
        """The classifiers that can be used now; bundled and configured ones first."""
        return [name for name, entry in self._entries.items() if self._usable_head(entry) is not None]

    def pending(self) -> list[str]:
        """Bundled ones without a head for the embedding model, which can be learnt from the examples that ship."""
        return [
            name for name, entry in self._entries.items() if entry.has_examples and self._usable_head(entry) is None
        ]

    def labels(self, name: str) -> tuple[str, ...]:
        """The labels of a classifier, whether it can be used now or not."""
        entry = self._entries[name]
        return entry.labels if entry.head is None else entry.head.labels

    def find(self, name: str) -> Classifier:
        """A usable classifier by name.

        Raises: UnknownModel with the known names; Unavailable for one that must be trained first, or whose encoder is
            still to come.
        """
        entry = self._entries.get(name)
        head = None if entry is None else self._usable_head(entry)
        if entry is not None and head is not None:
            return Classifier(name, head, entry.source)
        if name in self.pending():
            raise Unavailable(
                f"classifier '{name}' is being learnt for this embedding model from the examples that ship with the "
                "service, once; GET /v1/classifiers says when it is ready",
                retry_after_s=_LEARN_BUNDLED_S,
            )
        if entry is not None and entry.unreadable:
            raise _unreadable(name, entry)
        if entry is not None and entry.source == "learnt":
            raise Unavailable(
                f"classifier '{name}' is being learnt again for this embedding model", retry_after_s=_RETRAIN_S
            )
        if entry is not None and entry.source == "configured" and self.is_encoder_pending:
            raise Unavailable(f"classifier '{name}' waits for its embedding model", retry_after_s=_PENDING_S)
        raise UnknownModel(name, self.names())

    def stale(self) -> list[str]:
        """Trained ones to be retrained from ``examples``: their head is of another embedding model, or lost.

        A head of these weights that is older than fingerprints is among them: it is used meanwhile, but nothing tells
        whether its encoder's tokenizer, pooling and length were those of today.
        """
        return [
            name
            for name, entry in self._entries.items()
            if entry.source == "learnt"
            and not entry.unreadable
            and (entry.head is None or entry.head.trained_on != self.encoder)
        ]

    def waiting(self) -> list[str]:
        """Trained ones that cannot be used before they have been learnt for the embedding model."""
        return [name for name in self.stale() if self._usable_head(self._entries[name]) is None]

    def knows(self, name: str) -> bool:
        """Whether there is one of this name, usable or not."""
        return name in self._entries

    @property
    def bundled_heads(self) -> BundledHeads:
        """The examples that ship, and what was learnt from them here."""
        return BundledHeads(self.bundled, self.state_dir)

    def restore_bundled(self, name: str) -> bool:
        """Use the head that was learnt for the embedding model earlier; False where there is none. Reads the disk."""
        substitute = self.bundled_heads.read(name, self.encoder)
        if substitute is not None:
            self._entries[name].substitute = substitute
        return substitute is not None

    def use_substitute(self, name: str, head: ClassifierHead) -> None:
        """Use a bundled classifier's head that was just learnt, and keep it; on a disk that refuses, in memory only."""
        head = replace(head, name=name, info={**head.info, **self.bundled_heads.info(name)})
        try:
            self.bundled_heads.keep(head)
        except OSError as error:
            log_event(_log, logging.WARNING, "a bundled classifier is kept in memory only", name=name, reason=error)
        self._entries[name].substitute = head

    def give_up_bundled(self, name: str, reason: str) -> None:
        """A bundled one cannot be learnt for the embedding model: it is unknown until the next start."""
        self._entries[name].has_examples = False
        self.faults.append(f"{name}: {reason}")

    def check(self, name: str, examples: Sequence[Example], *, multiple: bool) -> list[str]:
        """Check a classifier before it is trained, and return its labels in their order.

        Raises: InvalidField, TooLarge.
        """
        self.check_name(name)
        return check_examples(examples, multiple=multiple)

    def check_deletable(self, name: str, caller: Caller) -> None:
        """Raises: NotFound; InvalidField for one not trained here; Forbidden for another caller's."""
        self._check_trained(name)
        self.check_owner(name, caller)

    def check_owner(self, name: str, caller: Caller) -> None:
        """May ``caller`` change the trained one of this name, if there is one?

        Raises: Forbidden; Unavailable for one of another release, whose owner nobody knows here.
        """
        entry = self._entries.get(name)
        if entry is not None and entry.unreadable:
            raise _unreadable(name, entry)
        if entry is not None and entry.source == "learnt" and not caller.may_change(entry.owner):
            raise Forbidden(
                f"name: the classifier '{name}' was taught with another key; you may use it, but to teach your own "
                "choose another name. A key of ADMIN_KEYS may replace and delete it",
                param="name",
            )

    def owner_after(self, name: str, caller: Caller) -> str | None:
        """Who owns the classifier once ``caller`` has taught it; None: nobody."""
        if name in self._entries:
            return self._entries[name].owner
        return None if caller.role == "open" else caller.owner

    def is_learnt(self, name: str) -> bool:
        """Whether there is one of this name that was trained here, usable or not."""
        return name in self._entries and self._entries[name].source == "learnt"

    def owner(self, name: str) -> str | None:
        """Who may change a trained one; None: nobody known."""
        return self._entries[name].owner

    def use_taught(
        self, name: str, owner: str | None, head: ClassifierHead | None, labels: tuple[str, ...] = ()
    ) -> Classifier | None:
        """Use what was taught from now on; None where it must be learnt from its examples first.

        Raises: InvalidField for a name that this installation has otherwise.
        """
        self.check_name(name, limit=math.inf)
        head = None if head is None else replace(head, name=name)
        self._entries[name] = _Entry("learnt", head, owner, labels=labels)
        return None if head is None else Classifier(name, head, "learnt")

    def refuse_taught(self, name: str, reason: str) -> None:
        """There is one that this replica cannot read; none of the bundled and configured ones is touched."""
        if self.is_learnt(name) or not self.knows(name):
            self._entries[name] = _Entry("learnt", None, unreadable=reason)
        if f"{name}: {reason}" not in self.faults:
            self._fault(name, reason)

    def forget_taught(self, name: str) -> None:
        """The store does not have it any more."""
        if self.is_learnt(name):
            del self._entries[name]

    def use_encoder(self, encoder: EncoderIdentity) -> None:
        """Follow a swap of the embedding model: ``stale`` then lists the trained heads of others."""
        self.is_encoder_pending = self.is_encoder_pending and encoder == self.encoder
        self.encoder = encoder

    def _usable_head(self, entry: _Entry) -> ClassifierHead | None:
        for head in (entry.head, entry.substitute):
            if head is not None and self.encoder.accepts(head.trained_on):
                return head
        return None

    def _add_configured(self, folder: Path) -> None:
        head = read_head(folder)
        name = head.name or folder.name
        if not self.encoder.accepts(head.trained_on) and not self.is_encoder_pending:
            raise _other_encoder(folder.name, head, self.encoder)
        if not head.encoder_fingerprint:
            reason = "it names no fingerprint of its encoder; train it again to have the tokenizer and pooling checked"
            log_event(_log, logging.WARNING, "a classifier is accepted by the weights alone", name=name, reason=reason)
        self._entries[name] = _Entry("configured", head)

    def check_name(self, name: str, limit: float | None = None) -> None:
        """Raises: InvalidField for a name that no trained classifier may have, or for one over the ``limit``."""
        if not is_name(name):
            raise InvalidField(
                f"name: '{name[:80]}' cannot be a classifier's; use 1 to 64 of a-z, 0-9, - and _, "
                "beginning with a letter or digit",
                param="name",
            )
        entry = self._entries.get(name)
        if entry is not None and entry.source != "learnt":
            raise InvalidField(
                f"name: '{name}' is a {entry.source} classifier and cannot be changed; choose another", param="name"
            )
        trained = sum(entry.source == "learnt" for entry in self._entries.values())
        if entry is None and trained >= (CLASSIFIERS_MAX if limit is None else limit):
            raise too_many(trained)

    def _check_trained(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is None:
            raise NotFound(f"name: no classifier '{name[:80]}'; there are {', '.join(self.names())}", param="name")
        if entry.source != "learnt":
            raise InvalidField(f"name: '{name}' is a {entry.source} classifier, not one learnt here", param="name")

    def _fault(self, name: str, reason: str) -> None:
        self.faults.append(f"{name}: {reason}")
        log_event(_log, logging.WARNING, "a kept classifier could not be read", name=name, reason=reason)


def check_examples(examples: Sequence[Example], *, multiple: bool) -> list[str]:
    """Check examples and return their distinct labels in the order they first occur, without ``NONE``.

    Raises: InvalidField, TooLarge.
    """
    if not examples:
        raise InvalidField("examples: none given; give at least one for each of two labels", param="examples")
    if len(examples) > EXAMPLES_MAX:
        raise TooLarge("examples", len(examples), EXAMPLES_MAX, "of one classifier", param="examples")
    labels_of: dict[str, tuple[str, ...]] = {}
    for place, example in enumerate(examples):
        _check_example(place, example, multiple=multiple)
        if not multiple and labels_of.setdefault(example.text, example.labels) != example.labels:
            raise InvalidField(
                f"examples[{place}]: the same text was given the label '{labels_of[example.text][0][:80]}' before",
                param="examples",
            )
    labels = list(dict.fromkeys(label for example in examples for label in example.labels if label != NONE))
    if len(labels) > LABELS_MAX:
        raise TooLarge("labels", len(labels), LABELS_MAX, "of one classifier", param="examples")
    if len(labels) < (1 if multiple or any(example.labels == (NONE,) for example in examples) else 2):
        raise InvalidField(
            f"examples: {len(labels)} label; at least two are needed to tell apart, or examples labelled '{NONE}'",
            param="examples",
        )
    return labels


def _check_example(place: int, example: Example, *, multiple: bool) -> None:
    if not example.text.strip():
        raise InvalidField(f"examples[{place}]: the text is empty", param="examples")
    if not multiple and len(example.labels) != 1:
        raise InvalidField(f"examples[{place}]: {len(example.labels)} labels; one is needed", param="examples")
    if len(set(example.labels)) != len(example.labels):
        raise InvalidField(f"examples[{place}]: a label is given twice", param="examples")
    for label in example.labels:
        if not label.strip() or len(label) > LABEL_CHARACTERS_MAX or (multiple and label == NONE):
            raise InvalidField(
                f"examples[{place}]: '{label[:80]}' cannot be a label; use 1 to {LABEL_CHARACTERS_MAX} characters"
                + (f", and no label at all instead of '{NONE}'" if multiple else ""),
                param="examples",
            )


def _other_encoder(name: str, head: ClassifierHead, serving: EncoderIdentity) -> ModelUnavailable:
    if head.encoder_sha256 != serving.sha256:
        return ModelUnavailable(
            f"the classifier {name} was trained on vectors of {head.encoder_sha256[:12]}, but the "
            f"embedding model is {serving.sha256[:12]}; set EMBEDDING_MODEL to its encoder ({head.encoder})"
        )
    return ModelUnavailable(
        f"the classifier {name} was trained on vectors of {head.encoder_fingerprint[:12]}, but the embedding model is "
        f"{serving.fingerprint[:12]}: the weights are the same, its tokenizer, pooling, normalisation, length, default "
        f"prompt or config.json is not; restore those files, set EMBEDDING_MODEL to its encoder ({head.encoder}), or "
        "train the classifier again"
    )


def is_name(name: str) -> bool:
    """Whether a trained classifier may have this name."""
    return _NAME.fullmatch(name) is not None


def too_many(trained: int) -> InvalidField:
    """The error for a classifier over ``CLASSIFIERS_MAX``."""
    return InvalidField(
        f"name: {trained} classifiers are kept, as many as there may be; forget one first", param="name"
    )


def _unreadable(name: str, entry: _Entry) -> Unavailable:
    return Unavailable(
        f"classifier '{name}' is kept, but this replica cannot read it: {entry.unreadable}. "
        "Others that can answer for it: ask again",
        retry_after_s=_PENDING_S / 3,
    )
