"""Teach the models of POST /v1/answer and of its labels: a LoRA adapter and a span head on the full bundled encoder.

    python -m tools.train_answers --data train-v2.0.json squad-es.json --held-out xquad.es.json --output build/answer
    python -m tools.train_answers --types fire.conll cess.conll --held-out ewt_dev.conll --output build/label

Questions are of files of SQuAD's form: ``data[].paragraphs[].{context, qas[].{question, answers[].{text, answer_start},
is_impossible}}``; types of entities are of CoNLL files, and questions may be taught beside them. What is asked over
what: `tools.answer_pairs`. What ``--held-out`` names teaches nothing: it calibrates the score. Then
``python -m benchmarks.answers`` measures questions, and ``python -m benchmarks.quality --sets own-words``, of the
environment's LABEL_MODEL, types. What the bundled ones were taught with: the cards in ``backend/models/bundled``,
``answer`` and ``label``.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, pad
from transformers import AutoModelForTokenClassification

from backend.device.facts.host import cpu
from backend.models.encoder import Vectors
from backend.models.model_files import BUNDLED_FULL, resolve
from backend.models.numpy_layers import sigmoid
from backend.serving.engines.answers import LABELS, Span, best_span, spans
from backend.training.lora import add_lora, load_adapter_weights, save_adapter
from tools.answer_pairs import Pair, judged, pairs_of, read, read_types, type_pairs_of

RANK, FIRST_LAYER = 16, 4
RATE, WARM_STEPS, MIN_RATE = 1e-3, 60, 0.03
BATCH_TOKENS = 2600
QUESTIONS = 1 / 6  # for each pair of a type, where both are taught: a quarter of the tokens
_SORTED_PAIRS = 800  # by length among each other, so that a batch pads little
_IGNORED = -1e4
_LEAST_MARGIN = -2.0  # of what calibrates the scores of types: a token of each is the beginning of some run
_MOST_JUDGED = 3000  # pairs that calibrate the scores of types


@dataclass(frozen=True, slots=True)
class Task:
    """What is taught and how."""

    pairs_of: Callable[[random.Random], list[Pair]]  # of an epoch
    loss: Callable[[Tensor, Tensor], Tensor]  # of the margins of a batch and where its answers are
    judged: Sequence[Pair]  # that calibrate the score
    runs: Callable[[Vectors, int, int], Iterable[Span]]  # of a pair that may be served, as `best_span` reads it


def batches_of(pairs: Sequence[Pair], rng: random.Random) -> Iterator[list[Pair]]:
    """Batches of like lengths, of at most ``BATCH_TOKENS`` with padding."""
    for begin in range(0, len(pairs), _SORTED_PAIRS):
        batches: list[list[Pair]] = [[]]
        for pair in sorted(pairs[begin : begin + _SORTED_PAIRS], key=_length):
            if batches[-1] and _length(pair) * (len(batches[-1]) + 1) > BATCH_TOKENS:
                batches.append([])
            batches[-1].append(pair)
        rng.shuffle(batches)
        yield from (batch for batch in batches if batch)


def _length(pair: Pair) -> int:
    return len(pair.question) + len(pair.part) + 4


def margins(model: Any, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Start and end of each token less "no label", and 1 where an answer has them: (pairs, tokens, 2) both.

    Tokens of the question cannot answer. The first token stands for no answer.
    """
    length = max(map(_length, pairs))
    ids, may = torch.ones(len(pairs), length, dtype=torch.long), torch.zeros(len(pairs), length, dtype=torch.bool)
    targets = torch.zeros(len(pairs), length, 2)
    for row, (question, part, answers) in enumerate(pairs):
        offset = len(question) + 3
        ids[row, : offset + len(part) + 1] = torch.tensor([0, *question, 2, 2, *part, 2])
        may[row, 0] = may[row, offset : offset + len(part)] = True
        for first, last in answers:
            targets[row, offset + first, 0] = targets[row, offset + last, 1] = 1
        if not answers:
            targets[row, 0] = 1
    with torch.autocast("cpu", torch.bfloat16, enabled="avx512_bf16" in cpu()[1]):
        logits = model(input_ids=ids, attention_mask=(ids != 1).long()).logits.float()
    return (logits[..., 1:] - logits[..., :1]).masked_fill(~may[..., None], _IGNORED), targets


def answer_loss(margin: Tensor, targets: Tensor) -> Tensor:
    """Of pairs with one answer at most: which token it starts with and which it ends with."""
    return cross_entropy(margin.transpose(1, 2).flatten(0, 1), targets.transpose(1, 2).flatten(0, 1))


def types_loss(margin: Tensor, targets: Tensor) -> Tensor:
    """Of pairs with any number of answers, as `spans` reads them: of each token, whether one starts or ends there."""
    odds = margin[:, 1:] - margin[:, :1]
    return binary_cross_entropy_with_logits(odds, targets[:, 1:], reduction="sum") / (2 * len(margin))


def teach(model: Any, task: Task, *, seconds: float, rng: random.Random, rate: float = RATE) -> int:
    """The number of steps that were taken in this processor time; the rate falls to its end."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.98))
    started_s, step, losses = time.process_time(), 0, list[float]()
    while True:
        for batch in batches_of(task.pairs_of(rng), rng):
            spent = (time.process_time() - started_s) / seconds
            if spent >= 1:
                return step
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, step / WARM_STEPS) * max(MIN_RATE, 1 - spent)
            loss = task.loss(*margins(model, batch))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            losses.append(loss.item())
            if step % 25 == 0:
                print(f"step {step}: loss {np.mean(losses):.3f}", file=sys.stderr, flush=True)
                losses.clear()


def named(probabilities: Vectors, start: int, stop: int) -> Iterator[Span]:
    """What a type may name, without overlaps, the likeliest first."""
    lasts, totals = spans(probabilities, start, stop)
    taken = np.zeros(len(lasts), dtype=bool)
    for first in np.argsort(-totals).tolist():
        last, margin = int(lasts[first]), float(totals[first])
        if margin < _LEAST_MARGIN:
            break
        if not taken[first : last + 1].any():
            taken[first : last + 1] = True
            yield Span(first, last, margin)


@torch.no_grad()
def calibration(model: Any, task: Task) -> tuple[float, float]:
    """Slope and offset of the logistic curve from a run's margin over no answer to how often it is right."""
    found: list[tuple[float, bool]] = []
    for pair in task.judged:
        (margin,), _ = margins(model, [pair])
        offset = len(pair.question) + 3
        probabilities = pad(margin, (1, 0)).softmax(-1).numpy()
        for first, last, over in task.runs(probabilities, offset, offset + len(pair.part)):
            found.append((over, (first, last) in pair.answers))
    x, y = np.array([margin for margin, _ in found]), np.array([is_right for _, is_right in found], dtype=float)
    slope, offset_ = 1.0, 0.0
    for _ in range(20_000):
        error = sigmoid(slope * x + offset_) - y
        slope, offset_ = slope - 0.02 * float(np.mean(error * x)), offset_ - 0.1 * float(np.mean(error))
    return round(slope, 3), round(offset_, 3)


def _questions(options: argparse.Namespace, tokenizer: Tokenizer) -> Task:
    data = read(options.data, tokenizer)
    held_out = judged(*read(options.held_out, tokenizer))
    return Task(partial(pairs_of, *data), answer_loss, list(held_out), lambda *pair: [best_span(*pair)])


def _types(options: argparse.Namespace, tokenizer: Tokenizer) -> Task:
    files = read_types(options.types, tokenizer)
    data = read(options.data, tokenizer)

    def pairs(rng: random.Random) -> list[Pair]:
        of_types = type_pairs_of(files, tokenizer, rng)
        both = of_types + pairs_of(*data, rng)[: round(QUESTIONS * len(of_types))]
        rng.shuffle(both)
        return both

    held_out = type_pairs_of(read_types(options.held_out, tokenizer), tokenizer, random.Random(options.seed))
    return Task(pairs, types_loss, held_out[:_MOST_JUDGED], named)


def main() -> None:
    """Read, teach, calibrate, write the folder that ANSWER_MODEL or LABEL_MODEL serves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="files of SQuAD's form")
    parser.add_argument("--types", type=Path, nargs="+", help="CoNLL files: teach the model of labels")
    parser.add_argument("--held-out", type=Path, nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--start", help="an adapter to go on from, as ANSWER_MODEL names one")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--minutes", type=float, default=30.0, help="of processor time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not (options.data or options.types):
        parser.error("--data or --types must name files")
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
    task = (_types if options.types else _questions)(options, tokenizer)
    rng = random.Random(options.seed)
    steps = teach(model, task, seconds=60 * options.minutes, rng=rng, rate=options.rate)
    slope, offset = calibration(model, task)
    plain.config.answer_calibration = [slope, offset]
    save_adapter(model, base, options.output)
    print(f"{options.output}: {steps} steps, calibration {slope} {offset}")


if __name__ == "__main__":
    main()
