"""Teach the network that reads fields, on papers made as it goes, and on your own.

    python -m tools.train_fields --out FOLDER --minutes 60 [--start FILE] [--data FOLDER --share 0.2]

``--start`` goes on from weights, such as the bundled ones: where those are right the network is held to what they say,
and of what it learns ``--taken`` is taken. Designs never met are read best by a part: papers of 90 designs taught it
their own, and more than half of that cost addresses elsewhere.

``--data`` has JSON files of your papers, lists of pages:
``{"kind": "invoice", "opens": true, "words": [{"text", "box": [left, top, right, bottom], "label", "begins", "row"}]}``
Label, begins and row of a word that is of no field may be left out. ``--share`` of the pages are drawn from it.

Not by the project's own loop: that goes over data sets in epochs, and this one sees no page twice.
"""

import argparse
import copy
import json
import math
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from backend.models.bundled_encoders.recipes import FULL
from backend.models.fields_network import (
    BUCKETS,
    ENDS,
    FACTS,
    KINDS,
    LABELS,
    SHAPES,
    TEXT_FACTS,
    page_arrays,
    relations,
)
from backend.models.unpacked_folder import INSTALLED
from tools.papers.paper import MadePage, make_paper
from tools.papers.sheet import MadeWord

WIDTH, LAYERS, HEADS, VECTOR, SMALL, UP = 256, 7, 8, 384, 48, 3
PIECES, LONGEST = 8, 40  # sub-words of a word, and its characters
ENCODER = INSTALLED / FULL.folder_name
_MAX_WORDS = 700
_INDEX = {label: index for index, label in enumerate(LABELS)}
_KEPT = 0.999  # of the averaged weights, a step
Batch = dict[str, Tensor]


def word_table() -> Tensor:
    """The rows of the encoder's sub-words, as stored: (sub-words, VECTOR) float16."""
    with safe_open(ENCODER / "model.safetensors", "pt") as file:
        table: Tensor = file.get_tensor("embeddings.word_embeddings.weight")
    return table


def own_pages(folder: Path) -> list[MadePage]:
    """The pages of a folder of JSON files."""
    found: list[MadePage] = []
    for file in sorted(folder.glob("*.json")):
        for page in json.loads(file.read_text("utf-8")):
            words = [
                MadeWord(w["text"], tuple(w["box"]), w.get("label", ""), bool(w.get("begins")), bool(w.get("row")))
                for w in page["words"]
            ]
            found.append(MadePage(words, 595.0, 842.0, page.get("kind", "invoice"), bool(page.get("opens", True))))
    return found


class Papers(IterableDataset[Batch]):
    """Batches of pages of like length, without end; each process draws others."""

    def __init__(self, seed: int, budget: int, own: list[MadePage], share: float) -> None:
        self.seed, self.budget, self.own, self.share = seed, budget, own, share

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        rng = random.Random(f"{self.seed} {worker.id if worker else 0}")
        tokenizer = Tokenizer.from_file(str(ENCODER / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        while True:
            pool: list[dict[str, Any]] = []
            while sum(len(page["labels"]) for page in pool) < self.budget * 4:
                pages = [rng.choice(self.own)] if self.own and rng.random() < self.share else make_paper(rng)
                pool += [_arrays(page, tokenizer) for page in pages if 4 < len(page.words) <= _MAX_WORDS]
            pool.sort(key=lambda page: len(page["labels"]))
            chunks: list[list[dict[str, Any]]] = [[]]
            for page in pool:
                if (len(chunks[-1]) + 1) * len(page["labels"]) > self.budget and chunks[-1]:
                    chunks.append([])
                chunks[-1].append(page)
            rng.shuffle(chunks)
            yield from map(_padded, chunks)


def _arrays(page: MadePage, tokenizer: Any) -> dict[str, NDArray[Any]]:
    words = page.words
    arrays = page_arrays([word.text for word in words], np.array([word.box for word in words], np.float64))
    pieces = np.full((len(words), PIECES), -1, np.int64)
    texts = [text[:LONGEST] for text in arrays.texts]
    for row, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=False)):
        ids = encoding.ids[:PIECES]
        pieces[row, : len(ids)] = ids
    return {
        "pieces": pieces, "facts": arrays.facts.clip(-50, 50), "places": arrays.places,
        "ids": np.stack([arrays.shapes, arrays.starts, arrays.stops], 1).astype(np.int64),
        "labels": np.array([_INDEX[word.label] for word in words]),
        "begins": np.array([word.begins for word in words], np.float32),
        "rows": np.array([word.row > 0 for word in words], np.float32),
        "kind": np.array(KINDS.index(page.kind)), "opens": np.array(page.begins, np.float32),
    }  # fmt: skip


def _padded(pages: list[dict[str, NDArray[Any]]]) -> Batch:
    most = max(len(page["labels"]) for page in pages)
    batch: Batch = {}
    for name, first in pages[0].items():
        if not first.ndim:
            batch[name] = torch.from_numpy(np.stack([page[name] for page in pages]))
            continue
        whole = np.full((len(pages), most, *first.shape[1:]), -1 if name in ("labels", "pieces") else 0, first.dtype)
        for row, page in enumerate(pages):
            whole[row, : len(page[name])] = page[name]
        batch[name] = torch.from_numpy(whole)
    near = np.zeros((len(pages), most, most), np.int32)
    for row, page in enumerate(pages):
        count = len(page["labels"])
        near[row, :count, :count] = relations(page["places"])
    batch["near"] = torch.from_numpy(near)
    return batch


class Block(nn.Module):
    """One layer, normalised before attention and before the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, UP * WIDTH), nn.Linear(UP * WIDTH, WIDTH)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Shapes: x (batch, words, width), bias (batch, heads, words, words)."""
        rows, words, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(rows, words, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, words, WIDTH))
        rest: Tensor = x + self.down(functional.relu(self.up(self.second(x))))
        return rest


class FieldsNetwork(nn.Module):
    """Scores of labels; of "a value begins" and "an item begins on its line"; of the page's kind and "it opens"."""

    def __init__(self) -> None:
        super().__init__()
        self.vector, self.fact = nn.Linear(VECTOR, WIDTH), nn.Linear(FACTS, WIDTH)
        self.shape, self.ends = nn.Embedding(SHAPES, SMALL), nn.Embedding(ENDS, SMALL)
        self.small = nn.Linear(3 * SMALL, WIDTH, bias=False)
        self.places = nn.Parameter(torch.randn(BUCKETS, LAYERS * HEADS) * 0.3)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.label, self.word = nn.Linear(WIDTH, len(LABELS)), nn.Linear(WIDTH, 2)
        self.page = nn.Linear(2 * WIDTH, len(KINDS) + 1)

    def forward(self, batch: Batch, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Args: table, the encoder's rows of sub-words, frozen."""
        ids, pieces, mask = batch["ids"], batch["pieces"], batch["labels"] >= 0
        known = (pieces >= 0).unsqueeze(-1)
        vectors = (table[pieces.clamp(min=0)].float() * known).sum(-2) / known.sum(-2).clamp(min=1)
        small = torch.cat([self.shape(ids[..., 0]), self.ends(ids[..., 1]), self.ends(ids[..., 2])], -1)
        x = self.vector(vectors * 20 * batch["spoken"]) + self.fact(batch["facts"])
        x = x + self.small(small * batch["spelt"])
        bias = self.places[batch["near"]].view(*batch["near"].shape, LAYERS, HEADS).permute(3, 0, 4, 1, 2)
        bias = bias.masked_fill(~mask[None, :, None, None, :], -30.0)
        for block, near in zip(self.blocks, bias.unbind(0), strict=True):
            x = block(x, near)
        x = self.norm(x)
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        top = x.masked_fill(~mask[..., None], -1e4).amax(1)
        return self.label(x), self.word(x), self.page(torch.cat([mean, top], -1))


def shaken(batch: Batch, device: str) -> Batch:
    """The batch on the device, with facts, words and spellings left out by chance.

    Sums that coincide, and words that it knows, must not be all that the network looks at.
    """
    out = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    rows, words = out["labels"].shape

    def drawn(*shape: int) -> Tensor:
        return torch.rand(*shape, device=device)

    keep = torch.ones_like(out["facts"])
    for start, stop, share in ((0, 6, 0.25), (6, 8, 0.25), (10, 28, 0.15)):
        keep[..., TEXT_FACTS + start : TEXT_FACTS + stop] *= (drawn(rows, 1, 1) > share).float()
    out["facts"] = out["facts"] * keep
    for name in ("spoken", "spelt"):
        out[name] = 1 - (drawn(rows, words, 1) < 0.2 * drawn(rows, 1, 1)).float()
    return out


def loss_of(scores: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
    """The labels' loss, with those of beginnings, rows, kinds and openings at smaller weights."""
    labels, words, pages = (score.float() for score in scores)
    wanted = batch["labels"]
    loss = functional.cross_entropy(labels.flatten(0, 1), wanted.flatten(), ignore_index=-1, label_smoothing=0.02)
    for column, name, where, weight in ((0, "begins", wanted > 0, 0.3), (1, "rows", wanted >= _INDEX["ItemCode"], 0.1)):
        each = functional.binary_cross_entropy_with_logits(words[..., column], batch[name], reduction="none")
        loss = loss + weight * (each * where).sum() / where.sum().clamp(min=1)
    loss = loss + 0.08 * functional.cross_entropy(pages[:, :-1], batch["kind"])
    return loss + 0.08 * functional.binary_cross_entropy_with_logits(pages[:, -1], batch["opens"])


_HELD_WORD, _HELD_PAGE = 0.3, 0.5  # weights of what the weights that it goes on from say


def held_to(old: FieldsNetwork, scores: tuple[Tensor, Tensor, Tensor], batch: Batch, table: Tensor) -> Tensor:
    """How far the scores are from those of other weights: of words where these are right, and of pages."""
    with torch.no_grad():
        whole = torch.ones(*batch["labels"].shape, 1, device=batch["labels"].device)
        said, _, pages = (score.float() for score in old(batch | {"spoken": whole, "spelt": whole}, table))
    labels, ours = scores[0].float().flatten(0, 1), scores[2].float()
    right = said.argmax(-1) == batch["labels"]
    word = functional.kl_div(
        labels[right.flatten()].log_softmax(-1), said.flatten(0, 1)[right.flatten()].softmax(-1), reduction="batchmean"
    )
    kind = functional.kl_div(ours[:, :-1].log_softmax(-1), pages[:, :-1].softmax(-1), reduction="batchmean")
    opens = functional.binary_cross_entropy_with_logits(ours[:, -1], pages[:, -1].sigmoid())
    return _HELD_WORD * word + _HELD_PAGE * (kind + opens)


def teach(a: argparse.Namespace) -> None:
    """Teach for ``a.minutes``, and write the averaged weights in half precision."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    table = word_table().to(device)
    network = FieldsNetwork().to(device)
    if a.start:
        network.load_state_dict({name: value.float() for name, value in load_file(a.start).items()})
    old = copy.deepcopy(network).eval() if a.start else None
    average = {name: value.detach().clone() for name, value in network.state_dict().items()}
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=a.rate, weight_decay=0.0 if a.start else 0.02, betas=(0.9, 0.98)
    )
    papers = Papers(a.seed, a.budget, own_pages(a.data) if a.data else [], a.share)
    begun, step, seen = time.monotonic(), 0, 0
    for batch in DataLoader(papers, batch_size=None, num_workers=a.workers, pin_memory=device == "cuda"):
        gone = (time.monotonic() - begun) / (a.minutes * 60)
        if gone >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = a.rate * min(1.0, (step + 1) / 200) * (0.01 + 0.495 * (1 + math.cos(math.pi * gone)))
        ours = shaken(batch, device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            scores = network(ours, table)
        loss = loss_of(scores, ours)
        if old is not None:
            loss = loss + held_to(old, scores, {name: value.to(device) for name, value in batch.items()}, table)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        step, seen = step + 1, seen + len(batch["kind"])
        kept = min(_KEPT, step / (step + 10))
        for name, value in network.state_dict().items():
            average[name].lerp_(value, 1 - kept)
        if step % 100 == 1:
            print(f"{time.monotonic() - begun:6.0f} s, step {step}, pages {seen}, loss {loss.item():.4f}", flush=True)
    for name, value in old.state_dict().items() if old is not None else ():
        average[name].lerp_(value, 1 - a.taken)
    a.out.mkdir(parents=True, exist_ok=True)
    save_file({name: value.half().cpu().contiguous() for name, value in average.items()}, a.out / "fields.safetensors")
    print(f"{step} steps, {seen} pages: {a.out / 'fields.safetensors'}")


def main() -> None:
    """Read the command line."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of fields.safetensors")
    add("--minutes", type=float, default=60)
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="processes that make papers")
    add("--budget", type=int, default=20000, help="words of a batch")
    add("--rate", type=float, default=2e-3, help="the highest learning rate; 2e-4 with --start")
    add("--seed", type=int, default=1)
    add("--start", type=Path, help="weights to go on from")
    add("--taken", type=float, default=1.0, help="part of what is learnt that is taken, with --start")
    add("--data", type=Path, help="folder of your own papers")
    add("--share", type=float, default=0.2, help="of pages that are your own")
    teach(parser.parse_args())


if __name__ == "__main__":
    main()
