"""Teach the model of POST /v1/answer: a LoRA adapter and a span head on the full bundled encoder.

    python -m tools.train_answers --data train-v2.0.json squad-es.json --held-out xquad.es.json --output build/answer

Files are SQuAD's: ``data[].paragraphs[].{context, qas[].{question, answers[].{text, answer_start}, is_impossible}}``. A
question is asked over a part of its paragraph with the answer in it; one in six over another paragraph of the article,
one in twelve over its own without the sentence of the answer: these have no answer, nor have SQuAD 2.0's impossible
ones.
The questions of ``--held-out`` teach nothing: over their own paragraph and the next one they calibrate the score. Where
they are asked over, ``python -m benchmarks.answers`` measures. What it was taught with: the card in
``backend/models/bundled/answer``.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from transformers import AutoModelForTokenClassification

from backend.device.facts.host import cpu
from backend.models.model_files import BUNDLED_FULL, resolve
from backend.models.numpy_layers import sigmoid
from backend.serving.engines.answers import LABELS, MAX_TOKENS, best_span
from backend.training.lora import add_lora, load_adapter_weights, save_adapter
from tools.near_misses import articles as near_misses
from tools.near_misses import swapped

RANK, FIRST_LAYER = 16, 4
RATE, WARM_STEPS, MIN_RATE = 1e-3, 60, 0.03
BATCH_TOKENS = 2600
SIZES = (64, 80, 96, 96, 112, 128, 190)  # tokens of a part
ELSEWHERE, WITHOUT = 1 / 6, 1 / 12  # shares of questions that are made unanswerable
_MAX_QUESTION_TOKENS, _MIN_TOKENS = 64, 30
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+")
_SORTED_PAIRS = 800  # by length among each other, so that a batch pads little
_IGNORED = -1e4


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph as tokens, and where its sentences begin."""

    article: int
    ids: list[int]
    starts: list[int]


@dataclass(frozen=True, slots=True)
class Question:
    """A question over ``paragraph``; its answer from token ``first`` to ``last`` of it, or -1 where there is none."""

    paragraph: int
    ids: list[int]
    first: int = -1
    last: int = -1


Pair = tuple[list[int], list[int], int, int]  # tokens of the question and of the part, answer's first and last or -1


def read(
    files: Sequence[Path], tokenizer: Tokenizer, *, made: int = 0, seed: int = 1
) -> tuple[list[Paragraph], list[Question]]:
    """All paragraphs and questions. An answer that does not stand where it is said to, or is too long, is left out.

    Args:
        made: texts of `tools.near_misses` beside them; where there are some, questions with other names, too.
    """
    paragraphs: list[Paragraph] = []
    questions: list[Question] = []
    articles = [article for file in files for article in json.loads(file.read_text(encoding="utf-8"))["data"]]
    if made:
        rng = random.Random(seed)
        others = [[rng.choice(articles) for _ in range(3)] for _ in articles]
        articles = [swapped(article, some, rng) for article, some in zip(articles, others, strict=True)]
        articles += near_misses(made, seed)
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            tokens = tokenizer.encode(text, add_special_tokens=False)
            cuts = [0, *(end.end() for end in _SENTENCE_END.finditer(text))]
            starts = sorted({index for cut in cuts if (index := _first_after(tokens, cut)) is not None})
            paragraphs.append(Paragraph(number, tokens.ids, starts))
            questions += _questions(paragraph, len(paragraphs) - 1, tokens, tokenizer)
    return paragraphs, questions


def _first_after(tokens: Encoding, position: int) -> int | None:
    return next((index for index, (_, end) in enumerate(tokens.offsets) if end > position), None)


def _questions(paragraph: dict[str, Any], number: int, tokens: Encoding, tokenizer: Tokenizer) -> Iterator[Question]:
    for asked in paragraph["qas"]:
        ids = tokenizer.encode(asked["question"].strip(), add_special_tokens=False).ids[:_MAX_QUESTION_TOKENS]
        if asked.get("is_impossible") or not asked["answers"]:
            yield Question(number, ids)
            continue
        answer = min(asked["answers"], key=lambda one: len(one["text"]))
        start, text = answer["answer_start"], answer["text"].rstrip(" .,;")
        inside = [
            index for index, (left, right) in enumerate(tokens.offsets) if right > start and left < start + len(text)
        ]
        if paragraph["context"].startswith(text, start) and 0 < len(inside) <= MAX_TOKENS:
            yield Question(number, ids, inside[0], inside[-1])


def pairs_of(paragraphs: Sequence[Paragraph], questions: Sequence[Question], rng: random.Random) -> list[Pair]:
    """What an epoch teaches, in random order; another each time."""
    siblings: dict[int, list[int]] = {}
    for number, paragraph in enumerate(paragraphs):
        siblings.setdefault(paragraph.article, []).append(number)
    pairs = [_pair(question, paragraphs, siblings, rng) for question in questions]
    rng.shuffle(pairs)
    return pairs


def _pair(
    question: Question, paragraphs: Sequence[Paragraph], siblings: dict[int, list[int]], rng: random.Random
) -> Pair:
    paragraph, size, luck = paragraphs[question.paragraph], rng.choice(SIZES), rng.random()
    if question.first < 0:
        return (question.ids, _part(paragraph, rng, max(size, 160)), -1, -1)
    if luck < ELSEWHERE:
        other = rng.choice(siblings[paragraph.article])
        if other != question.paragraph:
            return (question.ids, _part(paragraphs[other], rng, size), -1, -1)
    elif luck < ELSEWHERE + WITHOUT:
        begin = max((start for start in paragraph.starts if start <= question.first), default=0)
        end = min((start for start in paragraph.starts if start > question.last), default=len(paragraph.ids))
        rest = paragraph.ids[max(0, begin - size // 2) : begin] + paragraph.ids[end : end + size // 2]
        if len(rest) >= _MIN_TOKENS:
            return (question.ids, rest, -1, -1)
    lowest = max(0, question.last + 1 - size)
    begins = [start for start in paragraph.starts if lowest <= start <= question.first] or [question.first]
    begin = rng.choice(begins)
    return (question.ids, paragraph.ids[begin : begin + size], question.first - begin, question.last - begin)


def _part(paragraph: Paragraph, rng: random.Random, size: int) -> list[int]:
    latest = max(0, len(paragraph.ids) - size // 2)
    begin = rng.choice([start for start in paragraph.starts if start <= latest] or [0])
    return paragraph.ids[begin : begin + size]


def batches_of(pairs: Sequence[Pair], rng: random.Random) -> Iterator[list[Pair]]:
    """Batches of like lengths, of at most ``BATCH_TOKENS`` with padding."""
    for begin in range(0, len(pairs), _SORTED_PAIRS):
        batches: list[list[Pair]] = [[]]
        for pair in sorted(pairs[begin : begin + _SORTED_PAIRS], key=lambda one: len(one[0]) + len(one[1])):
            if batches[-1] and (len(pair[0]) + len(pair[1]) + 4) * (len(batches[-1]) + 1) > BATCH_TOKENS:
                batches.append([])
            batches[-1].append(pair)
        rng.shuffle(batches)
        yield from (batch for batch in batches if batch)


def margins(model: Any, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Start and end of each token less "no label", (pairs, tokens, 2), and where the answers are, (pairs, 2).

    Tokens of the question cannot answer. The first token stands for no answer.
    """
    length = max(len(question) + len(part) + 4 for question, part, *_ in pairs)
    ids, may = torch.ones(len(pairs), length, dtype=torch.long), torch.zeros(len(pairs), length, dtype=torch.bool)
    targets = torch.zeros(len(pairs), 2, dtype=torch.long)
    for row, (question, part, first, last) in enumerate(pairs):
        offset = len(question) + 3
        ids[row, : offset + len(part) + 1] = torch.tensor([0, *question, 2, 2, *part, 2])
        may[row, 0] = may[row, offset : offset + len(part)] = True
        if first >= 0:
            targets[row] = torch.tensor([first, min(last, len(part) - 1)]) + offset
    with torch.autocast("cpu", torch.bfloat16, enabled="avx512_bf16" in cpu()[1]):
        logits = model(input_ids=ids, attention_mask=(ids != 1).long()).logits.float()
    return (logits[..., 1:] - logits[..., :1]).masked_fill(~may[..., None], _IGNORED), targets


def teach(
    model: Any,
    paragraphs: Sequence[Paragraph],
    questions: Sequence[Question],
    *,
    seconds: float,
    rng: random.Random,
    rate: float = RATE,
) -> int:
    """The number of steps that were taken in this processor time; the rate falls to its end."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.98))
    started_s, step = time.process_time(), 0
    while True:
        for batch in batches_of(pairs_of(paragraphs, questions, rng), rng):
            spent = (time.process_time() - started_s) / seconds
            if spent >= 1:
                return step
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, step / WARM_STEPS) * max(MIN_RATE, 1 - spent)
            margin, targets = margins(model, batch)
            loss = cross_entropy(margin.transpose(1, 2).reshape(len(batch), 2, -1).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            if step % 25 == 1:
                print(f"step {step}: loss {loss.item():.3f}", file=sys.stderr, flush=True)


@torch.no_grad()
def calibration(model: Any, paragraphs: Sequence[Paragraph], questions: Sequence[Question]) -> tuple[float, float]:
    """Slope and offset of the logistic curve from the best span's margin over no answer to how often it is right."""
    size = max(SIZES)
    found: list[tuple[float, bool]] = []
    for question in questions:
        if question.first < 0:
            continue
        own = paragraphs[question.paragraph]
        after = paragraphs[(question.paragraph + 1) % len(paragraphs)]
        begin = max(0, min(question.first, len(own.ids) - size))
        for part, first, last in (
            (own.ids[begin : begin + size], question.first - begin, question.last - begin),
            (after.ids[:size], -1, -1),
        ):
            (margin,), _ = margins(model, [(question.ids, part, first, last)])
            offset = len(question.ids) + 3
            span = best_span(pad(margin, (1, 0)).softmax(-1).numpy(), offset, offset + len(part))
            found.append((span.margin, (span.first, span.last) == (first, min(last, len(part) - 1))))
    x, y = np.array([margin for margin, _ in found]), np.array([is_right for _, is_right in found], dtype=float)
    slope, offset_ = 1.0, 0.0
    for _ in range(20_000):
        error = sigmoid(slope * x + offset_) - y
        slope, offset_ = slope - 0.02 * float(np.mean(error * x)), offset_ - 0.1 * float(np.mean(error))
    return round(slope, 3), round(offset_, 3)


def main() -> None:
    """Read, teach, calibrate, write the folder that ANSWER_MODEL serves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--held-out", type=Path, nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--start", help="an adapter to go on from, as ANSWER_MODEL names one")
    parser.add_argument("--near-misses", type=int, default=0, help="texts that nearly answer, made beside the data")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--minutes", type=float, default=30.0, help="of processor time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    base = resolve(BUNDLED_FULL)
    tokenizer = Tokenizer.from_file(str(base.folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    labels = dict(enumerate(LABELS))
    plain = AutoModelForTokenClassification.from_pretrained(
        base.folder, id2label=labels, label2id={label: index for index, label in labels.items()}
    )
    layers = [
        name
        for name, layer in plain.named_modules()
        if isinstance(layer, torch.nn.Linear)
        and (number := re.search(r"\.layer\.(\d+)\.", name))
        and int(number[1]) >= FIRST_LAYER
    ]
    model = add_lora(plain, rank=RANK, targets=layers).eval()
    if options.start:
        load_adapter_weights(model, resolve(options.start))
    data = read(options.data, tokenizer, made=options.near_misses, seed=options.seed)
    rng = random.Random(options.seed)
    steps = teach(model, *data, seconds=60 * options.minutes, rng=rng, rate=options.rate)
    slope, offset = calibration(model, *read(options.held_out, tokenizer))
    plain.config.answer_calibration = [slope, offset]
    save_adapter(model, base, options.output)
    print(f"{options.output}: {steps} steps, calibration {slope} {offset}")


if __name__ == "__main__":
    main()
