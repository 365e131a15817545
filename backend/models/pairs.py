"""Tokenises pairs of texts (query and document, premise and hypothesis). Truncation is explicit and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable, TooLarge
from backend.models.spec import TokenTypes
from backend.models.tokenizer import TextTokenizer, Tokens

Cut = Literal["first", "second", "longest", "none"]
_Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Template:
    """The special tokens around and between two texts. Shapes: (2, tokens), ids over types."""

    before: _Ids
    between: _Ids
    after: _Ids
    first_type: int
    second_type: int

    @property
    def specials(self) -> int:
        return sum(part.shape[1] for part in (self.before, self.between, self.after))


class PairTokenizer:
    """A model's tokenizer for pairs. Safe from any thread.

    Each distinct text is tokenised once, however many pairs it is in: a query with a hundred documents, a premise with
    a hundred hypotheses. Ids and types equal the tokenizer's for the pair.
    """

    def __init__(self, tokenizer: TextTokenizer, token_types: TokenTypes) -> None:
        """Read the template from the tokenizer. Raises: ModelUnavailable when its order of a pair is not supported.

        Args:
            token_types: the model's; only SEGMENTS makes payloads with types.
        """
        self._tokenizer = tokenizer
        self._typed = token_types is TokenTypes.SEGMENTS
        self._template = _read_template(tokenizer)

    def encode(
        self,
        pairs: Sequence[tuple[str, str]],
        cut: Cut = "longest",
        *,
        indices: Sequence[int] = (),
        param: str = "input",
        known: dict[str, _Ids] | None = None,
    ) -> list[Tokens]:
        """Token ids of each pair, in order, at most the model's length of them.

        Args:
            cut: which text loses its end when a pair does not fit: one of them, or the longer until both are as long
                ("longest", as sentence-transformers does: a query is not cut while it is the shorter).
            indices: of each pair in its request, for error messages; unset: as here.
            param: the request's field, for error messages.
            known: ids of first texts from earlier calls for the same request; those of this call are added.

        Raises: TooLarge when a pair does not fit and ``cut`` is "none", or the other text alone fills the model.
        """
        known = {} if known is None else known
        texts = [text for text in dict.fromkeys(text for pair in pairs for text in pair) if text not in known]
        encodings = self._tokenizer.encodings(texts, add_special_tokens=False)
        ids = known | {text: np.array(encoding.ids, np.int64) for text, encoding in zip(texts, encodings, strict=True)}
        known.update((first, ids[first]) for first, _ in pairs)
        available = self._tokenizer.max_tokens - self._template.specials
        encoded = []
        for pair, index in zip(pairs, indices or range(len(pairs)), strict=True):
            first, second = ids[pair[0]], ids[pair[1]]
            kept = kept_tokens(len(first), len(second), available, cut)
            if kept is None:
                raise self._too_large(len(first), len(second), cut, f"{param}[{index}]", param)
            truncated = kept != (len(first), len(second))
            encoded.append(self._joined(first[: kept[0]], second[: kept[1]], truncated=truncated))
        return encoded

    @property
    def specials(self) -> int:
        """Special tokens of a pair."""
        return self._template.specials

    def join(self, first: _Ids, second: _Ids) -> tuple[Tokens, int]:
        """Two texts that have been read as one pair, and where the second's first token stands in it."""
        before = self._template.before.shape[1] + len(first) + self._template.between.shape[1]
        return self._joined(first, second, truncated=False), before

    def _joined(self, first: _Ids, second: _Ids, *, truncated: bool) -> Tokens:
        template = self._template
        segments = [
            template.before,
            np.stack([first, np.full_like(first, template.first_type)]),
            template.between,
            np.stack([second, np.full_like(second, template.second_type)]),
            template.after,
        ]
        joined = np.concatenate(segments, axis=1)
        if not joined.shape[1]:  # two empty texts and no special tokens: a text must have a row in its batch
            joined = np.zeros((2, 1), np.int64)
        return Tokens(joined[0], truncated, joined[1] if self._typed else None)

    def _too_large(self, first: int, second: int, cut: Cut, name: str, param: str) -> TooLarge:
        limit, total = self._tokenizer.max_tokens, first + second + self._template.specials
        advice = "Shorten it, split it, or let it be cut"
        if cut in ("first", "second"):
            uncut = second if cut == "first" else first
            advice = f"{uncut} of them are of the text that is never cut, which leaves none for the other; shorten it"
        return TooLarge(f"{name} tokens", total, limit, "the model's length", advice=advice, param=param)


def kept_tokens(first: int, second: int, available: int, cut: Cut) -> tuple[int, int] | None:
    """How many tokens of each text stay, or None when no cut makes the pair fit.

    A text that is cut keeps one token at least.
    Source: huggingface/tokenizers, tokenizers/src/utils/truncation.rs, truncate_encodings.
    """
    if first + second <= available:
        return first, second
    if cut == "longest" and available >= 0:
        shorter = min(first, second)
        half, odd = divmod(available, 2)
        if shorter <= half:
            return (first, available - first) if first <= second else (available - second, second)
        return (half, half + odd) if first <= second else (half + odd, half)
    if cut == "first" and available > second:
        return available - second, second
    if cut == "second" and available > first:
        return first, available - first
    return None


def _read_template(tokenizer: TextTokenizer) -> _Template:
    [encoding] = tokenizer.encodings([("a", "a")])
    rows = np.array([encoding.ids, encoding.type_ids], np.int64)
    owners = np.array([-1 if owner is None else owner for owner in encoding.sequence_ids])
    first, second = np.flatnonzero(owners == 0), np.flatnonzero(owners == 1)
    if not len(first) or not len(second) or first[-1] > second[0]:
        raise ModelUnavailable("the tokenizer's template for pairs has no first text before a second; is it for pairs?")
    return _Template(
        before=rows[:, : first[0]],
        between=rows[:, first[-1] + 1 : second[0]],
        after=rows[:, second[-1] + 1 :],
        first_type=int(rows[1, first[0]]),
        second_type=int(rows[1, second[0]]),
    )
