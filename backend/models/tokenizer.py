"""Texts to token ids with their offsets, by the fast tokenizer. Truncation is explicit and reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from backend.errors import InvalidField, ModelUnavailable, TokenIdsOutOfRange, TooLarge
from backend.models.encoder import Payload, SpannedText, payload_of
from backend.models.latin_tokenizer import read_tokenizer
from backend.models.spec import ModelSpec, TokenTypes
from backend.models.text_slices import SLICE_CHARS, slicer_of
from backend.models.words import Offsets, word_of_pieces, word_places, word_spellings


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a text that fits the model.

    Shapes: ids (tokens) int64, special tokens included; offsets (tokens, 2) first and past-last code point in the text,
    (-1, -1) for special tokens; words (tokens) index of the word that the token belongs to, -1 for none.
    """

    ids: NDArray[np.int64]
    offsets: Offsets
    words: NDArray[np.int64]
    own_start: int  # the tokens this window owns: those furthest from a cut
    own_stop: int
    types: NDArray[np.int64] | None = None  # the token types (tokens), where the model has any

    @property
    def payload(self) -> NDArray[np.int64]:
        """An engine's payload: (tokens), or (2, tokens) with the types under the ids."""
        return payload_of(self.ids, self.types)


@dataclass(frozen=True, slots=True)
class Windows:
    """A whole text. The tokens owned by the windows, one after the other, are the text's, each once, in order."""

    windows: tuple[Window, ...]  # none for a text without tokens
    words: Offsets  # first and past-last code point of each word
    coverage: float  # share of its non-blank characters that the vocabulary has; 1 for a blank text

    @property
    def tokens(self) -> int:
        """Tokens the model reads, special tokens and overlaps included."""
        return sum(len(window.ids) for window in self.windows)


def cut(tokens: int, size: int, overlap: int) -> list[tuple[int, int, int, int]]:
    """Start, stop, own start and own stop of the fewest equal windows of at most ``size`` that share ``overlap``.

    They are spread evenly, so neighbours share as much as their number allows. The owned ranges lie end to end and meet
    in the middle of what two neighbours share.
    """
    if tokens <= size:
        return [(0, tokens, 0, tokens)] if tokens else []
    steps = -(-(tokens - size) // max(1, size - overlap))
    starts = [step * (tokens - size) // steps for step in range(steps + 1)]
    edges = [0, *((before + size + start) // 2 for before, start in pairwise(starts)), tokens]
    return [(start, start + size, *owned) for start, owned in zip(starts, pairwise(edges), strict=True)]


def coverage(pieces: Offsets, words: Offsets, characters: int) -> float:
    """Share of the words' characters that one of the tokens covers; 1 for a text without words."""
    if not len(words):
        return 1.0
    in_words, in_tokens = (_covered(offsets, characters) for offsets in (words, pieces))
    return float(in_tokens[in_words].mean())


def _covered(offsets: Offsets, characters: int) -> NDArray[np.bool_]:
    changes = np.zeros(characters + 1, np.int64)
    np.add.at(changes, offsets[:, 0], 1)
    np.add.at(changes, offsets[:, 1], -1)
    covered: NDArray[np.bool_] = np.cumsum(changes[:-1]) > 0
    return covered


Truncate = Literal["end", "start", "none"]
InputName = Callable[[int], str]  # what error messages call the input at an index of its request
numbered_input: InputName = "input[{}]".format
_TIKTOKEN_IDS = 100_000  # OpenAI's cl100k_base; o200k_base has twice as many, of which texts use the low ones, too
_TOKENS_AT_ONCE = 16_384  # that the library hands over in one call, which holds the interpreter lock: 10 ms
_PREFIX_CHARS_PER_TOKEN = 16  # of a text that is cut at the model's length, read first; most have five a token


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text's ids, special tokens included. ``truncated``: the text had more than fit."""

    ids: NDArray[np.int64]
    truncated: bool
    types: NDArray[np.int64] | None = None  # the token types, where the model has any
    spans: NDArray[np.int64] | None = None  # (spans, 2), as in SpannedText, where the task has any

    @property
    def payload(self) -> Payload:
        """An engine's payload: (tokens), or (2, tokens) with the types under the ids; a SpannedText with spans."""
        ids = payload_of(self.ids, self.types)
        return ids if self.spans is None else SpannedText(ids, self.spans)


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """One token and its offsets in the text, in Unicode code points.

    Special tokens and those of a prompt have none (``None``). A token that begins in the prompt and ends in the text
    has the offsets, and the ``text``, of its part in the text: ``text`` is the caller's between its offsets.
    """

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class TokenArrays:
    """Tokens of a text or of a slice of it, without special tokens: 12 bytes each, where a TokenPiece takes 200.

    Shapes: ids (tokens) int32; offsets (tokens, 2) int32, first and past-last code point in the text.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text with its tokens and the special ones around them."""

    text: str
    tokens: TokenArrays
    before: Sequence[TokenPiece] = ()
    after: Sequence[TokenPiece] = ()
    prompt: str = ""  # before the text: its tokens are among ``tokens``, whose offsets count from its beginning

    def __len__(self) -> int:
        return len(self.before) + len(self.tokens.ids) + len(self.after)

    def pieces(self, count: int) -> Iterator[list[TokenPiece]]:
        """All tokens in their order, so many at a time: a million of them would take 200 MB at once."""
        yield list(self.before)
        for start in range(0, len(self.tokens.ids), count):
            yield self._pieces(start, start + count)
        yield list(self.after)

    def _pieces(self, start: int, stop: int) -> list[TokenPiece]:
        rows = zip(self.tokens.ids[start:stop].tolist(), self.tokens.offsets[start:stop].tolist(), strict=True)
        return [_piece(number, self.prompt, self.text, first, last) for number, (first, last) in rows]


class TextTokenizer:
    """A model's tokenizer. Safe from any thread; the work runs outside the interpreter lock."""

    def __init__(
        self, file: Path, *, max_tokens: int, vocabulary_size: int, token_types: TokenTypes = TokenTypes.NONE
    ) -> None:
        """Read ``tokenizer.json``. Raises: ModelUnavailable when it is absent or no tokenizer."""
        try:
            self._tokenizer = read_tokenizer(file)
        except Exception as error:  # the library raises bare Exception for every fault
            raise ModelUnavailable(
                f"{file} is not a fast tokenizer ({error}); save the model with a tokenizer.json"
            ) from error
        part = self._tokenizer if isinstance(self._tokenizer, Tokenizer) else self._tokenizer.latin.tokenizer
        self._slicer = slicer_of(part)
        self.max_tokens = max_tokens
        self.vocabulary_size = vocabulary_size
        self._has_spelling = token_types is TokenTypes.SPELLING
        self._before, self._after = self._specials()
        # Unigram does not expose its unknown token; the families served here call it "<unk>".
        self._unknown = self._tokenizer.token_to_id(getattr(part.model, "unk_token", None) or "<unk>")

    def encode(
        self,
        texts: Sequence[str],
        truncate: Truncate = "end",
        *,
        prompt: str = "",
        indices: Sequence[int] = (),
        named: InputName = numbered_input,
    ) -> list[Tokens]:
        """Token ids of each text, in order, with the model's special tokens.

        Args:
            indices: of each text in its request, for error messages; unset: as here.
            named: what error messages call it.

        Of a text that is cut at its end, only as much is read as the model takes, where its kind of tokenizer allows.

        Raises: TooLarge when ``truncate`` is "none" and a text does not fit.
        """
        inputs = [_encodable(prompt + text) for text in texts]
        if truncate == "end":
            inputs = [self._beginning(text) for text in inputs]
        encodings = self._tokenizer.encode_batch_fast(inputs)
        return self._fit_all([encoding.ids for encoding in encodings], truncate, indices, named)

    def accept(
        self, ids: Sequence[Sequence[int]], truncate: Truncate = "end", *, indices: Sequence[int] = ()
    ) -> list[Tokens]:
        """Token ids from the caller that ``check`` passed, wrapped in special tokens if they have none.

        Raises: TooLarge when ``truncate`` is "none" and one does not fit.
        """
        return self._fit_all([self._wrapped(text) for text in ids], truncate, indices, numbered_input)

    def check(self, ids: Sequence[Sequence[int]]) -> None:
        """Refuse ids of another tokenizer.

        Those that the vocabulary lacks; and where it lacks none of tiktoken's, those that do not begin with the
        model's own special tokens.

        Raises: TokenIdsOutOfRange, InvalidField.
        """
        must_begin = self._before if self.vocabulary_size > _TIKTOKEN_IDS else []
        for index, text in enumerate(ids):
            if text and (min(text) < 0 or max(text) >= self.vocabulary_size):
                invalid = next(token for token in text if not 0 <= token < self.vocabulary_size)
                raise TokenIdsOutOfRange(invalid, self.vocabulary_size)
            if text and list(text[: len(must_begin)]) != must_begin:
                raise InvalidField(
                    f"input[{index}]: this model's token ids begin with {must_begin} and end with {self._after}; these "
                    f"begin with {text[0]} and are another tokenizer's. Send texts instead of ids; LangChain's "
                    "OpenAIEmbeddings sends tiktoken ids unless check_embedding_ctx_length=False is set.",
                    param="input",
                )

    def pieces(
        self, texts: Sequence[str], *, prompt: str = "", add_special_tokens: bool = True
    ) -> list[list[TokenPiece]]:
        """Every token of each text behind the prompt, with its offsets in the text; nothing is truncated."""
        encodings = self._tokenizer.encode_batch(
            [_encodable(prompt + text) for text in texts], add_special_tokens=add_special_tokens
        )
        return [_pieces(encoding, prompt, text) for encoding, text in zip(encodings, texts, strict=True)]

    def slices(self, text: str, size: int = SLICE_CHARS) -> Iterator[tuple[int, int]]:
        """First and past-last code point of the slices to ``read`` one after the other; of some tokenizers all of it.

        A slice takes a thread tens of milliseconds, so between two of them work can be given up.
        """
        return self._slicer.slices(text, size)

    def read(self, text: str, start: int, stop: int, count: Callable[[int], None] | None = None) -> TokenArrays:
        """The tokens of one slice, with their offsets in the whole text.

        Args:
            count: is told how many there are before objects are made of them, and may raise.
        """
        encoded = _encodable(text[start:stop])
        [encoding] = self._tokenizer.encode_batch([encoded], add_special_tokens=False)
        if count is not None:
            count(len(encoding))
        encoding.truncate(_TOKENS_AT_ONCE)  # the rest overflows, in parts as long; a word without an end has millions
        read = joined([_arrays(part) for part in (encoding, *encoding.overflowing)])
        return TokenArrays(read.ids, read.offsets + np.int32(start))

    def read_each(self, texts: Sequence[str]) -> list[TokenArrays]:
        """The tokens of short texts, each read as a whole."""
        return [self.read(text, 0, len(text)) for text in texts]

    def read_all(self, text: str) -> TokenArrays:
        """The tokens of a text of any length; nothing is truncated."""
        return joined([self.read(text, *part) for part in self.slices(text)])

    def special_pieces(self) -> tuple[list[TokenPiece], list[TokenPiece]]:
        """The special tokens that the model puts before and after a text."""
        before, after = (
            [TokenPiece(number, str(self._tokenizer.id_to_token(number)), True, None, None) for number in side]
            for side in (self._before, self._after)
        )
        return before, after

    def windows(self, text: str, overlap: int) -> Windows:
        """A text of any length in windows that fit the model, with offsets and words; nothing is truncated.

        Args:
            overlap: tokens that two neighbours share at least; capped so that each window adds a token.

        Raises: TooLarge when only the special tokens fit the model.
        """
        return self.cut(text, self.read_all(text), overlap)

    def cut(self, text: str, tokens: TokenArrays, overlap: int) -> Windows:
        """``windows`` of a text whose tokens have been read."""
        body_max = self._body_max
        if len(tokens.ids) and body_max < 1:
            raise TooLarge("input tokens", self.max_tokens - body_max + 1, self.max_tokens, "the model's length")
        ids, offsets = tokens.ids.astype(np.int64), tokens.offsets.astype(np.int64)
        words = word_places(text)
        numbers = word_of_pieces(offsets, words, len(text))
        types = (
            np.append(word_spellings(text, words), 0)[numbers] if self._has_spelling else None
        )  # -1, no word: the appended 0
        return Windows(
            tuple(
                Window(
                    self._framed(ids[start:stop], self._before, self._after),
                    self._framed(offsets[start:stop], -1, -1),
                    self._framed(numbers[start:stop], -1, -1),
                    own_start - start + len(self._before),
                    own_stop - start + len(self._before),
                    None if types is None else self._framed(types[start:stop], 0, 0),
                )
                for start, stop, own_start, own_stop in cut(len(ids), body_max, min(overlap, body_max - 1))
            ),
            words,
            coverage(offsets if self._unknown is None else offsets[ids != self._unknown], words, len(text)),
        )

    def encodings(
        self, texts: Sequence[str] | Sequence[tuple[str, str]], *, add_special_tokens: bool = True
    ) -> list[Encoding]:
        """The library's encodings of texts, or of pairs of texts; nothing is truncated."""
        inputs = [
            _encodable(text) if isinstance(text, str) else (_encodable(text[0]), _encodable(text[1])) for text in texts
        ]
        encoded: list[Encoding] = self._tokenizer.encode_batch_fast(inputs, add_special_tokens=add_special_tokens)
        return encoded

    def decode(self, ids: NDArray[np.int64], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids, special tokens left out or not. Other threads run meanwhile, as in every batch."""
        return str(self._tokenizer.decode_batch([ids.tolist()], skip_special_tokens=skip_special_tokens)[0]).strip()

    def _beginning(self, text: str) -> str:
        """As much of a text as holds more tokens than fit the model; all of it where that cannot be told.

        Tokens of the beginning equal those of the whole, because it ends where the text may be cut.
        """
        stop, size = 0, _PREFIX_CHARS_PER_TOKEN * self.max_tokens
        while len(text) > 2 * size and (stop := self._slicer.cut_after(text, size)) < len(text):
            [encoding] = self._tokenizer.encode_batch_fast([text[:stop]])
            if len(encoding) > self.max_tokens:
                return text[:stop]
            size = 2 * stop
        return text

    @property
    def _body_max(self) -> int:
        """Tokens of a text that fit the model beside the special tokens."""
        return self.max_tokens - len(self._before) - len(self._after)

    def _framed(self, values: NDArray[np.int64], before: Any, after: Any) -> NDArray[np.int64]:
        """``values`` of the text's tokens, with ``before`` and ``after`` for the special tokens around them."""
        head, tail = len(self._before), len(self._after)
        framed = np.empty((head + len(values) + tail, *values.shape[1:]), np.int64)
        framed[:head], framed[head : head + len(values)], framed[head + len(values) :] = before, values, after
        return framed

    def _wrapped(self, ids: Sequence[int]) -> list[int]:
        wrapped = list(ids)
        if self._before and wrapped[: len(self._before)] == self._before:
            return wrapped
        return [*self._before, *wrapped, *self._after]

    def _fit_all(
        self, ids: Sequence[list[int]], truncate: Truncate, indices: Sequence[int], named: InputName
    ) -> list[Tokens]:
        rows = zip(ids, indices or range(len(ids)), strict=True)
        return [self._fit(text, truncate, index, named) for text, index in rows]

    def _fit(self, ids: list[int], truncate: Truncate, index: int, named: InputName) -> Tokens:
        if len(ids) <= self.max_tokens:
            # A tokenizer without special tokens gives "" none, but a text must have a row in its batch.
            return Tokens(np.array(ids or [0], dtype=np.int64), truncated=False)
        if truncate == "none":
            advice = "Shorten it, split it, or let it be cut with truncate='end' or 'start'"
            name = named(index)
            param = name.partition("[")[0]
            raise TooLarge(
                f"{name} tokens", len(ids), self.max_tokens, "the model's length", advice=advice, param=param
            )
        body = ids[len(self._before) : len(ids) - len(self._after)]
        kept = body[: self._body_max] if truncate == "end" else body[len(body) - self._body_max :]
        return Tokens(np.array([*self._before, *kept, *self._after], dtype=np.int64), truncated=True)

    def _specials(self) -> tuple[list[int], list[int]]:
        """The ids that the model's template puts before and after a text."""
        [encoding] = self._tokenizer.encode_batch(["a"])
        real = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
        if not real:
            return [], []
        return encoding.ids[: real[0]], encoding.ids[real[-1] + 1 :]


_loaded: WeakValueDictionary[tuple[object, ...], TextTokenizer] = WeakValueDictionary()
_loading = threading.Lock()


def tokenizer_of(spec: ModelSpec) -> TextTokenizer:
    """The model's tokenizer, shared by all models in use whose tokenizers are equal: 105 to 280 MB for 250,000 pieces.

    Raises: ModelUnavailable when the folder has no fast one.
    """
    key = (spec.tokenizer_sha256, spec.max_tokens, spec.shape.vocabulary_size, spec.token_types)
    with _loading:
        tokenizer = _loaded.get(key) if spec.tokenizer_sha256 else None
        if tokenizer is None:
            tokenizer = _loaded[key] = TextTokenizer(
                spec.folder / "tokenizer.json",
                max_tokens=spec.max_tokens,
                vocabulary_size=spec.shape.vocabulary_size,
                token_types=spec.token_types,
            )
    return tokenizer


def joined(parts: Sequence[TokenArrays]) -> TokenArrays:
    """The tokens of a text's slices as those of the text."""
    if not parts:
        return TokenArrays(np.empty(0, np.int32), np.empty((0, 2), np.int32))
    return TokenArrays(np.concatenate([part.ids for part in parts]), np.concatenate([part.offsets for part in parts]))


def _arrays(encoding: Encoding) -> TokenArrays:
    offsets = np.fromiter(chain.from_iterable(encoding.offsets), np.int32, 2 * len(encoding))
    return TokenArrays(np.array(encoding.ids, np.int32), offsets.reshape(-1, 2))


def _encodable(text: str) -> str:
    """Lone surrogates (JSON can carry them, UTF-8 cannot) become U+FFFD; every length and offset stays."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text


def _pieces(encoding: Encoding, prompt: str, text: str) -> list[TokenPiece]:
    rows = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    return [
        TokenPiece(number, token, True, None, None) if special else _piece(number, prompt, text, start, stop)
        for number, token, special, (start, stop) in rows
    ]


def _piece(number: int, prompt: str, text: str, start: int, stop: int) -> TokenPiece:
    """A token at these offsets of the prompt with the text behind it."""
    prompt_chars = len(prompt)
    if prompt_chars and stop <= prompt_chars:
        return TokenPiece(number, prompt[start:stop], False, None, None)
    start, stop = max(start - prompt_chars, 0), stop - prompt_chars
    return TokenPiece(number, text[start:stop], False, start, stop)
