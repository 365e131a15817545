"""Distil the fast bundled encoder: every second layer of multilingual-e5-small, taught to give the same vectors.

    python -m tools.train_student --data ../shared/data --texts more.jsonl --work build/student --hours 2

The student keeps the teacher's word table and tokenizer and starts from six of its layers. It learns the teacher's
token vectors, the states between its layers, and the similarities of the texts of a batch, on Spanish and English text
alone: the teacher is bilingual, so no parallel text is needed. Work folder: ``encoder.pt``, written every few minutes;
an interrupted run goes on from it.

Sources: Sanh et al. 2019, arXiv 1910.01108 (every second layer); Jiao et al. 2020, arXiv 1909.10351 (states between).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, normalize

from backend.models.model_files import resolve
from backend.training.data.conll import detokenize, read_conll
from backend.training.data.texts import read_rows

Model = Any  # transformers' BertModel, whose parts are Tensor | Module to the type checker
KEPT_LAYERS = (1, 3, 5, 7, 9, 11)  # of the teacher, counted from 0; the student's layer i imitates layer KEPT_LAYERS[i]
PROMPTS = (("query: ", 0.45), ("passage: ", 0.35), ("", 0.20))
MAX_TOKENS = 256
CHECKPOINT = "encoder.pt"
_CHECKPOINT_STEPS = 400
_SHUFFLED_TEXTS = 4096  # sorted by length among each other, so that a batch pads little
_TEMPERATURE = 0.02  # of cosines that lie between 0.7 and 1.0


@dataclass(frozen=True, slots=True)
class TextSet:
    """Texts of a data set. ``repeats``: how often an epoch shows each; a fraction is a chance."""

    file: str  # below the data folder
    repeats: float = 1.3
    words: tuple[int, int] | None = None  # long texts are cut into pieces of so many words
    share: float = 1.0  # from the beginning; what follows evaluates the tagger


TEXT_SETS = (
    TextSet("ner_cess_es/es_cess_train.conll"),
    TextSet("ner_echr/es_echr_train.conll", share=0.8),
    TextSet("ner_echr/es_echr_silver_projected.conll"),
    TextSet("ner_echr/fr_echr_train.conll"),
    TextSet("ner_meddocan/es_meddocan_train.conll", 0.5),
    TextSet("ner_uner/en_ewt_train.conll"),
    TextSet("ner_uner/pt_bosque_train.conll"),
    TextSet("ner_sec_filings/en_sec_train.conll", share=0.85),
    TextSet("ner_wikigold/en_wikigold_train.conll", share=0.85),
    TextSet("ner_fire/en_fire_train.conll"),
    TextSet("ner_re3d/en_re3d_train.conll"),
    TextSet("ner_wnut17/en_wnut17_train.conll"),
    TextSet("cls_sib200/es_train.tsv", 2.0),
    TextSet("cls_sib200/en_train.tsv", 2.0),
    *(TextSet(f"cls_sib200/{language}_train.tsv", 0.4) for language in ("ca", "gl", "pt", "fr", "it", "de", "eu")),
    TextSet("cls_banking77/en_train.tsv"),
    TextSet("cls_cfpb/en_train.tsv", words=(20, 120)),
    TextSet("cls_contract_types/en_train.jsonl", 0.8, words=(10, 160)),
    TextSet("cls_doctype_text/train.jsonl", words=(15, 160)),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast to learn: a warm-up of 100 steps, then a cosine over the time."""

    seconds: float
    learning_rate: float = 6e-4
    batch_tokens: int = 2048  # padding included

    def rate_at(self, step: int, elapsed_s: float) -> float:
        """The learning rate of a step, counted from 0."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, elapsed_s / self.seconds)))
        return self.learning_rate * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * cosine)


def read_texts(data: Path, more: Sequence[Path] = (), *, seed: int = 7) -> list[tuple[str, float]]:
    """Every text once, with its repeats. ``more``: JSON lines with a field ``text`` and perhaps ``repeats``."""
    rng = random.Random(seed)
    texts: dict[str, float] = {}
    for text_set in TEXT_SETS:
        for text in _texts_of(data / text_set.file, text_set.share):
            for piece in _pieces(text, text_set.words, rng):
                texts.setdefault(piece, text_set.repeats)
    for file in more:
        for _, row in read_rows(file):
            texts.setdefault(" ".join(str(row["text"]).split()), float(row.get("repeats", 1.0)))
    return [(text, repeats) for text, repeats in texts.items() if text]


def _texts_of(file: Path, share: float) -> Iterator[str]:
    """The texts of a file; of sentences, the first ``share`` of them and paragraphs of two to six in a row."""
    if file.suffix != ".conll":
        yield from (str(row["text"]) for _, row in read_rows(file))
        return
    read = read_conll(file)
    sentences = [detokenize(sentence.words)[0] for sentence in read[: round(share * len(read))]]
    yield from sentences
    for start in range(0, len(sentences) - 6, 5):
        yield " ".join(sentences[start : start + 2 + start % 5])


def _pieces(text: str, words: tuple[int, int] | None, rng: random.Random) -> Iterator[str]:
    parts = text.split()
    start = 0
    while start < len(parts):
        count = rng.randint(*words) if words else len(parts)
        yield " ".join(parts[start : start + count])
        start += count


def varied(text: str, rng: random.Random) -> str:
    """The text, or a few of its words, or in capitals or small letters; behind one of the prompts or none."""
    words, chance = text.split(), rng.random()
    if chance < 0.12 and len(words) > 4:
        start = rng.randrange(len(words) - 2)
        text = " ".join(words[start : start + rng.randint(1, 6)])
    elif 0.12 <= chance < 0.17:
        text = text.upper()
    elif 0.17 <= chance < 0.22:
        text = text.lower()
    [prompt] = rng.choices([name for name, _ in PROMPTS], [share for _, share in PROMPTS])
    return prompt + text


def batches(
    texts: Sequence[tuple[str, float]], tokenizer: Tokenizer, batch_tokens: int, rng: random.Random
) -> Iterator[list[list[int]]]:
    """Token ids of all texts, again and again, in batches of texts of like length."""
    while True:
        shown = [text for text, repeats in texts for _ in range(int(repeats) + (rng.random() < repeats % 1))]
        rng.shuffle(shown)
        for first in range(0, len(shown), _SHUFFLED_TEXTS):
            part = [varied(text, rng) for text in shown[first : first + _SHUFFLED_TEXTS]]
            ids = sorted((encoding.ids for encoding in tokenizer.encode_batch_fast(part)), key=len)
            groups = list(_groups(ids, batch_tokens))
            rng.shuffle(groups)
            yield from groups


def _groups(ids: Sequence[list[int]], batch_tokens: int) -> Iterator[list[list[int]]]:
    """Texts in ascending length, cut where padding to the longest would exceed ``batch_tokens``."""
    group: list[list[int]] = []
    for text in ids:
        if group and (len(group) + 1) * len(text) > batch_tokens:
            yield group
            group = []
        group.append(text)
    if group:
        yield group


def padded(ids: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Shapes: (batch, tokens) int64, and bool that is true for real tokens."""
    longest = max(map(len, ids))
    tokens = torch.full((len(ids), longest), padding, dtype=torch.long)
    mask = torch.zeros(len(ids), longest, dtype=torch.bool)
    for row, text in enumerate(ids):
        tokens[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = True
    return tokens, mask


def make_student(teacher: Model, kept: Sequence[int] = KEPT_LAYERS) -> Model:
    """A BertModel with copies of the teacher's layers ``kept``, and the teacher's own embeddings."""
    from transformers import BertModel

    config = type(teacher.config)(**teacher.config.to_dict())
    config.num_hidden_layers = len(kept)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    student: Model = BertModel(config, add_pooling_layer=False)
    student.embeddings = teacher.embeddings
    for index, layer in enumerate(kept):
        student.encoder.layer[index].load_state_dict(teacher.encoder.layer[layer].state_dict())
    return student


def states(model: Model, embedded: Tensor, mask: Tensor) -> list[Tensor]:
    """The token vectors behind each layer. Shapes: embedded (batch, tokens, width), mask (batch, tokens) bool."""
    found, hidden = [], embedded
    for layer in model.encoder.layer:
        output = layer(hidden, mask[:, None, None, :])
        hidden = output[0] if isinstance(output, tuple) else output
        found.append(hidden)
    return found


def distillation_loss(student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor) -> Tensor:
    """How far the student's states, vectors and similarities are from the teacher's.

    Shapes: a state for each student layer, of the teacher those to imitate: (batch, tokens, width); mask (batch,
    tokens) bool. The weights bring the parts to like size at the beginning.
    """
    last = _relative_error(student[-1], teacher[-1], mask)
    between = [_relative_error(*pair, mask) for pair in zip(student[:-1], teacher[:-1], strict=True)]
    ours, theirs = _vectors(student[-1], mask), _vectors(teacher[-1], mask)
    cosine = (1 - (ours * theirs).sum(-1)).mean()
    own, mixed, wanted = ours @ ours.T, ours @ theirs.T, theirs @ theirs.T
    similarity = ((own - wanted) ** 2).mean() + ((mixed - wanted) ** 2).mean()
    logits, targets = log_softmax(own / _TEMPERATURE, -1), log_softmax(wanted / _TEMPERATURE, -1)
    ranking = kl_div(logits, targets, log_target=True, reduction="batchmean")
    middle = torch.stack(between).mean() if between else last * 0
    return 2 * last + 0.7 * middle + 20 * cosine + 100 * similarity + 0.3 * ranking


def _relative_error(ours: Tensor, theirs: Tensor, mask: Tensor) -> Tensor:
    """Squared error of real tokens over the squares of what was wanted."""
    real = mask[..., None]
    return (((ours - theirs) ** 2) * real).sum() / ((theirs**2) * real).sum()


def _vectors(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean-pooled and of length 1: (batch, width)."""
    real = mask[..., None]
    return normalize((hidden * real).sum(1) / real.sum(1), dim=-1)


def train(
    teacher: Model,
    student: Model,
    groups: Iterator[list[list[int]]],
    schedule: Schedule,
    *,
    work: Path,
    kept: Sequence[int] = KEPT_LAYERS,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Train until the time is up; returns the steps made. ``work/encoder.pt`` holds the student's layers."""
    parameters = list(student.encoder.parameters())
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.98)
    )
    started_s, step = clock(), 0
    while (elapsed_s := clock() - started_s) < schedule.seconds:
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate_at(step, elapsed_s)
        tokens, mask = padded(next(groups), teacher.config.pad_token_id)
        with torch.no_grad():
            embedded = teacher.embeddings(tokens)
            wanted = states(teacher, embedded, mask)
        loss = distillation_loss(states(student, embedded, mask), [wanted[index] for index in kept], mask)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        if step % _CHECKPOINT_STEPS == 0:
            save(student, work)
            sys.stdout.write(f"{elapsed_s:.0f} s, step {step}: loss {float(loss.detach()):.3f}\n")
    save(student, work)
    return step


def save(student: Model, work: Path) -> None:
    """Write the student's layers; an interruption leaves the previous ones."""
    work.mkdir(parents=True, exist_ok=True)
    partial = work / f"{CHECKPOINT}.partial"
    torch.save(student.encoder.state_dict(), partial)
    partial.replace(work / CHECKPOINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the student; ``tools.pack_student`` then makes the file that ships."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_student", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--texts", type=Path, nargs="*", default=[], help="further texts: JSON lines with a field text")
    parser.add_argument("--work", type=Path, default=Path("build/student"))
    parser.add_argument("--hours", type=float, default=6.0)
    options = parser.parse_args(arguments)
    from transformers import BertModel

    spec = resolve("bundled-full")
    teacher: Model = BertModel.from_pretrained(spec.folder, add_pooling_layer=False, dtype=torch.float32)
    teacher.eval().requires_grad_(False)
    student: Model = make_student(teacher)
    if (options.work / CHECKPOINT).is_file():
        student.encoder.load_state_dict(torch.load(options.work / CHECKPOINT))
    tokenizer = Tokenizer.from_file(str(spec.folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=MAX_TOKENS)
    schedule = Schedule(options.hours * 3600)
    texts = read_texts(options.data, options.texts)
    groups = batches(texts, tokenizer, schedule.batch_tokens, random.Random(1))
    steps = train(teacher, student, groups, schedule, work=options.work)
    counts: Mapping[str, int] = {"texts": len(texts), "steps": steps}
    sys.stdout.write(json.dumps(counts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
