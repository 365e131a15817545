"""Teach the layer that turns a query's tokens towards what answers them, for POST /v1/rerank without a cross-encoder.

    python -m tools.train_token_ranker --data found.jsonl --output build/query.safetensors

A row is a question and what was found, a right one in it: ``{"question", "documents": […], "right": [index]}``.
The bundled encoder stays as it is. What it was taught with: the card in ``backend/models/bundled/token-ranker``.
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel

from backend.device.facts.host import cpu
from backend.models.model_files import BUNDLED_FULL, resolve
from backend.text.late_interaction import weights_of

RATE, WARM_STEPS, MIN_RATE = 1e-4, 20, 0.05
STAY = 0.02  # what the squared distance from the identity costs
SCALE = 25  # of scores in the loss; cosines are near to each other
BATCH, MAX_TOKENS, TEXTS_AT_ONCE = 8, 400, 16


@dataclass(frozen=True, slots=True)
class Row:
    """A question and its documents as token vectors, and which documents are right."""

    weights: Tensor  # (tokens of the question), with the sum 1
    question: Tensor  # (tokens, width)
    documents: list[Tensor]  # (tokens, width) float16 each
    right: Tensor  # (documents) bool


def read(file: Path, tokenizer: Tokenizer, encoder: Any) -> list[Row]:
    """All rows; equal documents are encoded once."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    texts = list(dict.fromkeys(text for row in rows for text in row["documents"]))
    vectors = dict(zip(texts, tokens_of(texts, "passage: ", tokenizer, encoder), strict=True))
    questions = tokens_of([row["question"] for row in rows], "query: ", tokenizer, encoder)
    return [
        Row(
            torch.from_numpy(weights_of(ids.numpy())),
            question.float(),
            [vectors[text][1] for text in row["documents"]],
            torch.tensor([index in row["right"] for index in range(len(row["documents"]))]),
        )
        for row, (ids, question) in zip(rows, questions, strict=True)
    ]


@torch.no_grad()
def tokens_of(texts: Sequence[str], prompt: str, tokenizer: Tokenizer, encoder: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and vectors of length 1 of each text's own tokens, the prompt's left out."""
    before = len(tokenizer.encode(prompt.strip()).ids) - 1
    for first in range(0, len(texts), TEXTS_AT_ONCE):
        some = [tokenizer.encode(prompt + text).ids[:MAX_TOKENS] for text in texts[first : first + TEXTS_AT_ONCE]]
        ids = pad_sequence([torch.tensor(one) for one in some], batch_first=True, padding_value=1)
        with torch.autocast("cpu", torch.bfloat16, enabled="avx512_bf16" in cpu()[1]):
            hidden = encoder(input_ids=ids, attention_mask=(ids != 1).long()).last_hidden_state
        for row, all_ids, one in zip(normalize(hidden.float(), dim=-1).half(), ids, some, strict=True):
            yield all_ids[before : len(one) - 1], row[before : len(one) - 1].clone()


def scores(row: Row, layer: torch.nn.Linear) -> Tensor:
    """Of each document, as the service computes them."""
    products = layer(row.question) @ torch.cat(row.documents).float().T
    nearest = [part.max(1).values for part in products.split([len(one) for one in row.documents], 1)]
    return torch.stack(nearest) @ row.weights


def teach(rows: list[Row], *, epochs: int, rng: random.Random) -> dict[str, Tensor]:
    """The layer, from the identity on; the loss is that of the right documents among all."""
    width = rows[0].question.shape[1]
    layer, identity = torch.nn.Linear(width, width), torch.eye(width)
    layer.load_state_dict({"weight": identity, "bias": torch.zeros(width)})
    order = [row for _ in range(epochs) for row in rng.sample(rows, len(rows))]
    steps = len(order) // BATCH
    optimizer = torch.optim.Adam(layer.parameters(), lr=RATE)
    rates = [min(1.0, (step + 1) / WARM_STEPS) * max(MIN_RATE, 1 - step / steps) for step in range(steps + 1)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rates.__getitem__)
    for first in range(0, steps * BATCH, BATCH):
        scaled = [(SCALE * scores(row, layer), row.right) for row in order[first : first + BATCH]]
        loss = torch.stack([one.logsumexp(0) - one[right].logsumexp(0) for one, right in scaled]).mean()
        optimizer.zero_grad()
        (loss + STAY * ((layer.weight - identity) ** 2).sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    # Halfway from the identity: better in both kinds of text than all the way (Wortsman et al. 2022).
    return {"weight": ((layer.weight.detach() + identity) / 2).half(), "bias": (layer.bias.detach() / 2).half()}


def main() -> None:
    """Encode, teach, write the file that `text.late_interaction` reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    base = resolve(BUNDLED_FULL)
    tokenizer = Tokenizer.from_file(str(base.folder / "tokenizer.json"))
    tokenizer.no_padding()
    rows = read(options.data, tokenizer, AutoModel.from_pretrained(base.folder).eval())
    save_file(teach(rows, epochs=options.epochs, rng=random.Random(1)), options.output, {"encoder_sha256": base.sha256})


if __name__ == "__main__":
    main()
