"""Task "ner": token classification from CoNLL files, with tags on first sub-words and windows for long sentences."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification

from backend.errors import BadData, BadSettings, ModelUnavailable
from backend.models.spec import TYPES_FIELD, ModelSpec, TokenTypes
from backend.models.tokenizer import TextTokenizer, TokenPiece, tokenizer_of
from backend.models.words import KINDS, Ids, Offsets, word_of_pieces, word_places, word_spellings
from backend.training.data.batches import (
    batches_within_budget,
    collation_epoch,
    model_inputs,
    pad,
    to_model_device,
    windows,
)
from backend.training.data.conll import (
    OUTSIDE,
    Sentence,
    bio_labels,
    check_types,
    detokenize,
    keep_types,
    read_conll,
    rename_types,
)
from backend.training.data.texts import files_of, read_split
from backend.training.lora import base_of, load_adapter_weights, published_copy, save_adapter
from backend.training.losses import IGNORED, balanced_class_weights, classification_loss, target_weight
from backend.training.metrics import Report, entity_scores
from backend.training.model_card import Card, data_source, stated_licence, write_card
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.pretrained import adapted, load_model, padding_id, plain_copy, save_model, special_ids

_SENTENCES_PER_CALL = 1024  # of the tokenizer; bounds the memory of the pieces


@dataclass(frozen=True, slots=True)
class Row:
    """A sentence, or a window of one, as model input. All sequences have the same length."""

    ids: Sequence[int]
    words: Sequence[int]  # at each position: the index of the word it is the first piece of, or -100
    labels: Sequence[int]  # at each position: the label id of the word that begins there, or -100
    types: Sequence[int]  # at each position: how its word is written (models/words.py)
    uppercase_types: Sequence[int]  # the same for the text in upper case
    sentence: int  # index


def sentence_rows(sentences: Sequence[Sentence], tokenizer: TextTokenizer, labels: Sequence[str]) -> list[Row]:
    """Each sentence as one row, or as several windows where it is too long for the model."""
    label_ids = {label: number for number, label in enumerate(labels)}
    before, after = special_ids(tokenizer)
    max_pieces = tokenizer.max_tokens - len(before) - len(after)

    def with_special_tokens(values: Sequence[int], pad_id: int) -> list[int]:
        return [*([pad_id] * len(before)), *values, *([pad_id] * len(after))]

    rows: list[Row] = []
    for first in range(0, len(sentences), _SENTENCES_PER_CALL):
        chunk = sentences[first : first + _SENTENCES_PER_CALL]
        laid_out = [detokenize(sentence.words) for sentence in chunk]
        pieces = tokenizer.pieces([text for text, _ in laid_out], add_special_tokens=False)
        for index, (sentence, (text, spans), row) in enumerate(zip(chunk, laid_out, pieces, strict=True)):
            words, (types, uppercase_types) = first_pieces(row, text, spans), _spellings(row, text)
            tags = _piece_tags(row, text, words, sentence.tags)
            for window in windows(len(row), max_pieces):
                window_slice = slice(window.start, window.stop)
                own = range(window.own_start - window.start, window.own_stop - window.start)
                own_words = [word if place in own else IGNORED for place, word in enumerate(words[window_slice])]
                own_tags = [tag if place in own else "" for place, tag in enumerate(tags[window_slice])]
                ids = [*before, *(piece.id for piece in row[window_slice]), *after]
                numbers = with_special_tokens(own_words, IGNORED)
                targets = with_special_tokens([label_ids[tag] if tag else IGNORED for tag in own_tags], IGNORED)
                spelling = with_special_tokens(types[window_slice], 0)
                uppercase = with_special_tokens(uppercase_types[window_slice], 0)
                rows.append(Row(ids, numbers, targets, spelling, uppercase, sentence=first + index))
    return rows


def first_pieces(pieces: Sequence[TokenPiece], text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each piece the index of the word that it is the first piece of, or -100.

    A piece belongs to the word of its first character that is not a space. A word that shares its only piece with
    the previous word has none.
    """
    word_at = [IGNORED] * len(text)
    for number, (start, stop) in enumerate(spans):
        word_at[start:stop] = [number] * (stop - start)
    owners, last = [], -1
    for piece in pieces:
        start, stop = piece.start or 0, piece.stop or 0
        word = next((word_at[position] for position in range(start, stop) if word_at[position] != IGNORED), IGNORED)
        is_first = word > last
        owners.append(word if is_first else IGNORED)
        last = word if is_first else last
    return owners


def _piece_tags(pieces: Sequence[TokenPiece], text: str, words: Sequence[int], tags: Sequence[str]) -> list[str]:
    """The tag that each piece is taught, "" for none: those that begin a word of the data, or a word of serving.

    Serving cuts some words of the data ("Ltd.", "C/"), and reads a label from each part: an I- inside of a name.
    """
    numbers = word_of_pieces(_offsets(pieces), word_places(text), len(text))
    begins = set(np.unique(numbers, return_index=True)[1][int((numbers < 0).any()) :].tolist())
    taught, inside = [], OUTSIDE
    for place, word in enumerate(words):
        if word != IGNORED:
            taught.append(tags[word])
            inside = f"I{tags[word][1:]}" if tags[word] != OUTSIDE else OUTSIDE
        else:
            taught.append(inside if place in begins else "")
    return taught


def _offsets(pieces: Sequence[TokenPiece]) -> Offsets:
    return np.array([(piece.start or 0, piece.stop or 0) for piece in pieces], np.int64).reshape(-1, 2)


def _spellings(pieces: Sequence[TokenPiece], text: str) -> tuple[list[int], list[int]]:
    """The spelling type of each piece's word, as is and in upper case; words are split as in serving."""
    words = word_places(text)
    numbers = word_of_pieces(_offsets(pieces), words, len(text))

    def of_pieces(spellings: Ids) -> list[int]:
        of_each_piece: list[int] = np.append(spellings, 0)[numbers].tolist()  # -1, no word, takes the last
        return of_each_piece

    return of_pieces(word_spellings(text, words)), of_pieces(word_spellings(_uppercase(text), words))


def _uppercase(text: str) -> str:
    """Upper case of the same length: "ß", which would become two characters, stays."""
    return "".join(upper if len(upper := character.upper()) == 1 else character for character in text)


@torch.no_grad()
def predict(
    model: nn.Module,
    rows: Sequence[Row],
    sentences: Sequence[Sentence],
    labels: Sequence[str],
    *,
    pad_id: int,
    uses_spelling: bool,
) -> list[list[str]]:
    """A tag for each word of the sentences; O for words without a token."""
    tags = [[OUTSIDE] * len(sentence.words) for sentence in sentences]
    for group in batches_within_budget([len(row.ids) for row in rows]):
        batch_rows = [rows[index] for index in group]
        types = [row.types for row in batch_rows] if uses_spelling else None
        inputs = to_model_device(model, row_inputs(batch_rows, pad_id, types))
        predicted_ids: Tensor = model(**inputs).logits.argmax(-1).cpu()
        for row, label_ids in zip(batch_rows, predicted_ids.tolist(), strict=True):
            for word, label_id in zip(row.words, label_ids, strict=False):  # label_ids include padding
                if word != IGNORED:
                    tags[row.sentence][word] = labels[label_id]
    return tags


def row_inputs(rows: Sequence[Row], pad_id: int, types: Sequence[Sequence[int]] | None) -> dict[str, Tensor]:
    """Model inputs, each (batch, longest); with ``token_type_ids`` where ``types`` are given."""
    inputs = model_inputs([row.ids for row in rows], pad_id)
    return inputs if types is None else {**inputs, "token_type_ids": pad(types, 0)}


SpellingMode = Literal["auto", "on", "off"]
_TYPE_TABLE = "token_type_embeddings"  # the layer's name in BERT and models derived from it
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_SEED_RANGE = 2**64
_USAGE = """from transformers import pipeline

pipeline("ner", model=FOLDER, aggregation_strategy="first")(TEXT)"""
_ADAPTER_USAGE = """from peft import PeftModel
from transformers import AutoConfig, AutoModelForTokenClassification

base = AutoModelForTokenClassification.from_pretrained(
    BASE, config=AutoConfig.from_pretrained(FOLDER), ignore_mismatched_sizes=True
)
PeftModel.from_pretrained(base, FOLDER)"""
_SPELLING_LIMIT = (
    "token_type_ids say how each word is written (backend/models/words.py); tools that leave them at 0, such as "
    "transformers' pipeline, have it read every text as if it were in small letters."
)
_SUFFIXES = (".conll",)
_LANGUAGE = re.compile(r"([a-z]{2})_")


@dataclass(frozen=True, slots=True)
class NerOptions:
    """Options that only this task has."""

    types: Collection[str] = ()  # entity types to train and score; unset: all of the training data
    relabel: Mapping[str, str] = field(default_factory=dict)  # type in the data -> type to train, before ``types``
    spelling: SpellingMode = "auto"  # whether token types say how words are written (models/words.py)
    recased: float = 0.0  # share of sentences that are seen in other capitals, drawn in each epoch
    publish_as: Literal["merged", "adapter"] = "merged"
    halfway: bool = False  # publish the mean of the trained adapter and the one that the run started from
    encoder_dropout: float | None = None  # of every dropout layer in training; unset: the base's own

    def __post_init__(self) -> None:
        """Check the options. Raises: BadSettings."""
        if not 0 <= self.recased <= 1:
            raise BadSettings([f"--recased={self.recased:g}: a share of the sentences, 0 to 1"])
        if self.encoder_dropout is not None and not 0 <= self.encoder_dropout < 1:
            raise BadSettings([f"--encoder-dropout={self.encoder_dropout:g}: a share, from 0 to below 1"])


def prepare(
    data: Path | Sequence[Path],
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    options: NerOptions | None = None,
) -> NerTask:
    """Read the data and load the base with a new head.

    Args:
        data: a ``.conll`` file, or a folder of them (names with dev or test are for evaluation); or several of either.
        base: an encoder, or an adapter to continue from, with the same labels, rank and alpha.
        evaluation: a file or folder to evaluate on instead.
        held_out: share of the training sentences held out where there is no evaluation data.

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    chosen = options or NerOptions()
    if chosen.publish_as == "adapter" and config.lora_rank is None:
        raise BadSettings(["--publish-as adapter: say --lora-rank too; a model trained whole has no adapter"])
    paths = [data] if isinstance(data, Path) else list(data)
    relabel, types = chosen.relabel, chosen.types
    sources = read_sources(paths, evaluation=evaluation, held_out=held_out, relabel=relabel, types=types)
    start_adapter, base = (base, base_of(base)) if base.adapter else (None, base)
    if chosen.halfway and (start_adapter is None or chosen.publish_as != "adapter"):
        raise BadSettings(["--halfway: for a run that goes on from an adapter and is published as one"])
    labels = bio_labels([sentence for source in sources for sentence in source.train])
    check_types([sentence for source in sources for sentence in source.evaluation], labels)
    model = load_model(
        AutoModelForTokenClassification,
        base,
        seed=config.seed,
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    with_spelling = uses_spelling(model, base, chosen.spelling)
    if with_spelling:
        extend_token_types(model)
    if chosen.encoder_dropout is not None:
        set_dropout(model, chosen.encoder_dropout)
    trained_model = adapted(model, config, also=(_TYPE_TABLE,) if with_spelling else ())
    if start_adapter is not None:
        _load_adapter(trained_model, start_adapter, labels)
    return NerTask(
        trained_model,
        base,
        config,
        labels=labels,
        sources=sources,
        options=replace(chosen, spelling="on" if with_spelling else "off"),
        start_adapter=start_adapter,
    )


class NerTask:
    """Task "ner". Splittable; the goal is the F1 of whole entities."""

    name = "ner"
    splittable = True
    goal = "f1"

    def __init__(
        self,
        model: nn.Module,
        base: ModelSpec,
        config: TrainingConfig,
        *,
        labels: Sequence[str],
        sources: Sequence[Source],
        options: NerOptions,
        start_adapter: ModelSpec | None = None,
    ) -> None:
        """Tokenize. Raises: BadData when no sentence has a labelled token."""
        self.model = model
        self.labels = tuple(labels)
        self._base, self._config, self._sources, self._options = base, config, tuple(sources), options
        self._uses_spelling, self._start_adapter = options.spelling == "on", start_adapter
        train_sentences = [sentence for source in sources for sentence in source.train]
        self._pad_id = padding_id(base, model)
        tokenizer = tokenizer_of(base)
        rows = sentence_rows(train_sentences, tokenizer, self.labels)
        self._rows = [row for row in rows if any(label != IGNORED for label in row.labels)]
        self._recased_rows = [] if self._uses_spelling or not options.recased else self._recase(train_sentences)
        self._evaluation = [sentence for source in sources for sentence in source.evaluation]
        self._evaluation_rows = sentence_rows(self._evaluation, tokenizer, self.labels)
        if not self._rows:
            raise BadData(f"none of {len(train_sentences)} sentences has a token that this tokenizer knows")
        counts = Counter(label for row in self._rows for label in row.labels)
        balanced = config.class_weights == "balanced"
        self._weights = balanced_class_weights([counts[number] for number in range(len(labels))]) if balanced else None

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each window."""
        return [len(row.ids) for row in self._rows]

    def collate(self, indices: Sequence[int]) -> Batch:
        """The model's inputs and ``labels``, each (batch, longest), and the labels' ``weight``."""
        rows = [self._row(index) for index in indices]
        types = [self._types(row, index) for row, index in zip(rows, indices, strict=True)]
        labels = pad([row.labels for row in rows], IGNORED)
        weight = target_weight(labels, class_weights=self._weights)
        inputs = row_inputs(rows, self._pad_id, types if self._uses_spelling else None)
        return {**inputs, "labels": labels, "weight": weight}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Cross entropy over labelled tokens."""
        logits = model(**{name: batch[name] for name in _INPUTS if name in batch}).logits
        return classification_loss(
            logits,
            batch["labels"],
            focal_gamma=self._config.focal_gamma,
            label_smoothing=self._config.label_smoothing,
            class_weights=self._weights,
            weight=batch["weight"],
        )

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """f1, precision, recall and macro_f1 of whole entities; empty without evaluation sentences."""
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The metrics with those of each entity type, and which are undefined."""
        return self._scores(self.predict(model), range(len(self._evaluation)))

    def predict(self, model: nn.Module) -> list[list[str]]:
        """A tag for each word of the evaluation sentences; O for words without a token."""
        rows, sentences, spelling = self._evaluation_rows, self._evaluation, self._uses_spelling
        return predict(model, rows, sentences, self.labels, pad_id=self._pad_id, uses_spelling=spelling)

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """Write a folder for AutoModelForTokenClassification or for peft; its card has the scores of that folder."""
        if self._options.publish_as == "adapter" and isinstance(model, PeftModel):
            published = published_copy(model, self._start_adapter if self._options.halfway else None)
            save_adapter(published, self._base, output)
        else:
            published = plain_copy(model)
            save_model(published, self._base, output)
        tags = self.predict(published.eval())
        report = self._scores(tags, range(len(self._evaluation)))
        by_set = {name: self._scores(tags, indices) for name, indices in by_file(self._evaluation).items()}
        write_card(output, self._card(report, by_set, notes, output.name))

    def _recase(self, sentences: Sequence[Sentence]) -> list[dict[int, Row]]:
        """In each other spelling, the rows of the sentences that are one row, by the index of the sentence."""
        tokenizer = tokenizer_of(self._base)
        whole = {index for index, count in Counter(row.sentence for row in self._rows).items() if count == 1}
        recased_rows = []
        for recase in RECASINGS:
            rows = sentence_rows([recase(sentence) for sentence in sentences], tokenizer, self.labels)
            counts = Counter(row.sentence for row in rows)
            recased_rows.append(
                {row.sentence: row for row in rows if row.sentence in whole and counts[row.sentence] == 1}
            )
        return recased_rows

    def _row(self, index: int) -> Row:
        """A row as it is; for a share of the sentences in capitals, with its names in capitals, or in small letters."""
        row = self._rows[index]
        if not self._recased_rows or (drawn := self._drawn(index)) >= self._options.recased:
            return row
        choices = len(self._recased_rows)
        return self._recased_rows[int(drawn / self._options.recased * choices)].get(row.sentence, row)

    def _types(self, row: Row, index: int) -> Sequence[int]:
        """The spelling types of a row; for a share of the sentences as if all lower case, or all upper case."""
        if not self._options.recased or (drawn := self._drawn(index)) >= self._options.recased:
            return row.types
        return row.uppercase_types if drawn < self._options.recased / 2 else [0] * len(row.types)

    def _drawn(self, index: int) -> float:
        """A number from 0 to below 1 for a row in this epoch; on every thread the same."""
        return float(np.random.default_rng([self._config.seed % _SEED_RANGE, collation_epoch(), index]).random())

    def _scores(self, tags: Sequence[Sequence[str]], indices: Sequence[int]) -> Report:
        expected = [self._evaluation[index].tags for index in indices]
        return entity_scores(expected, [list(tags[index]) for index in indices])

    def _card(self, report: Report, by_set: Mapping[str, Report], notes: Mapping[str, Any], name: str) -> Card:
        entity_types = [label[2:] for label in self.labels if label.startswith("B-")]
        return Card(
            name=name,
            task=self.name,
            library="peft" if self._options.publish_as == "adapter" else "transformers",
            summary=f"Finds names in text: {', '.join(entity_types)}. One BIO tag on the first sub-word of each word.",
            base=self._base.name,
            base_revision=self._base.revision,
            base_licence=stated_licence(self._base.folder),
            pipeline_tag="token-classification",
            languages=languages([sentence.location for source in self._sources for sentence in source.sentences]),
            labels=self.labels,
            data=[
                data_source(
                    source.path,
                    role=source.role,
                    examples=len(source.sentences),
                    notes=f"{len(source.train)} sentences to learn from, {len(source.evaluation)} to evaluate on",
                )
                for source in self._sources
            ],
            report=report,
            by_set=by_set,
            limits=[
                f"Reads {self._base.max_tokens} tokens at once; longer texts need overlapping windows.",
                "A word's tag is that of its first sub-word: aggregation_strategy='first' reads it so.",
                *([_SPELLING_LIMIT] if self._uses_spelling else []),
            ],
            notes=notes,
            usage=_ADAPTER_USAGE if self._options.publish_as == "adapter" else _USAGE,
        )


def _load_adapter(model: nn.Module, adapter: ModelSpec, labels: Sequence[str]) -> None:
    """Continue from an adapter. Raises: BadSettings for other labels or without LoRA; ModelUnavailable."""
    if not isinstance(model, PeftModel):
        raise BadSettings([f"{adapter.name} is an adapter: say --lora-rank, or start from a merged model"])
    trained = [adapter.config["id2label"][str(number)] for number in range(len(adapter.config["id2label"]))]
    if trained != list(labels):
        raise BadSettings([f"{adapter.name} was taught {', '.join(trained)}, and the data has {', '.join(labels)}"])
    load_adapter_weights(model, adapter)


def uses_spelling(model: nn.Module, base: ModelSpec, mode: SpellingMode) -> bool:
    """Whether token types encode spelling; "auto": where the tokenizer lowercases.

    Raises: BadSettings for "on" with a model that has no table of token types; ModelUnavailable.
    """
    table = token_type_table(model)
    if mode == "on" and table is None:
        raise BadSettings([f"--spelling on: {base.name} ({base.shape.family}) has no table of token types"])
    if base.token_types is TokenTypes.SPELLING and mode == "off":
        raise BadSettings([f"--spelling off: {base.name} was taught with it and reads it"])
    return table is not None and (mode == "on" or (mode == "auto" and lowercases(base)))


def token_type_table(model: nn.Module) -> nn.Embedding | None:
    """The token type embeddings; None without any, and where there is a single row, which carries no information.

    RoBERTa-like models have a table of one row that is never used.
    """
    tables = [module for name, module in model.named_modules() if name.rpartition(".")[2] == _TYPE_TABLE]
    table = tables[0] if tables else None
    return table if isinstance(table, nn.Embedding) and table.num_embeddings > 1 else None


def extend_token_types(model: Any) -> None:
    """Resize the table to a row per spelling type, each a copy of row 0, so that outputs do not change at first."""
    table = token_type_table(model)
    if table is None:
        raise BadSettings(["this model has no table of token types to grow"])
    if table.num_embeddings != KINDS or getattr(model.config, TYPES_FIELD, None) != TokenTypes.SPELLING.value:
        rows = table.weight.detach()[:1].repeat(KINDS, 1)
        table.weight = nn.Parameter(rows)
        table.num_embeddings = KINDS
    model.config.type_vocab_size = KINDS
    setattr(model.config, TYPES_FIELD, TokenTypes.SPELLING.value)


def set_dropout(model: nn.Module, share: float) -> None:
    """Set every dropout layer of the model, attention's included; they act in training only."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


def lowercases(base: ModelSpec) -> bool:
    """Whether the tokenizer lowercases. Raises: ModelUnavailable."""
    file = base.folder / "tokenizer.json"
    try:
        normalizer = json.loads(file.read_text(encoding="utf-8")).get("normalizer") or {}
    except (OSError, ValueError, AttributeError) as error:
        raise ModelUnavailable(f"{file} cannot be read: {error}") from error
    steps = normalizer.get("normalizers", [normalizer])
    return any(
        step.get("type") == "Lowercase" or (step.get("type") == "BertNormalizer" and step.get("lowercase"))
        for step in steps
    )


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
