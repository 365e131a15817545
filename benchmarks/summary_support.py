"""How well `unsupported` in a summary tells what the text does not say, over thresholds of likeness.

    python -m benchmarks.summary_support [--documents 60] [--json FILE]

A text is the sentences of three paragraphs of XQuAD and one sentence of a pair of the STS benchmark, in Spanish or
English. Supported: a sentence of it as it stands, its first clause, two joined, or the other sentence of the pair that
people scored 4 or more of 5. Unsupported: a sentence of another article, the other of a pair scored 1 or less, and a
sentence of the text one of whose numbers was swapped for another of the set.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.bootstrap.services import Services, build
from backend.config import load_settings
from backend.lanes.inference import Urgency
from backend.summaries.support import SupportFinder
from backend.summaries.writing import Reading
from backend.text.neutral_vectors import NeutralVectors
from backend.text.sentences import sentence_spans
from benchmarks.machine import facts
from benchmarks.texts import DATA

THRESHOLDS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
_SEED = 20260101
_PARAGRAPHS = 3
_WORDS = (6, 60)  # of a sentence
_ALIKE, _APART = 4.0, 1.0  # scores of the pairs, of 0 to 5
_NUMBER = re.compile(r"\b\d[\d.,]*\d\b")


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence that might have been written about a text."""

    kind: str
    is_supported: bool
    written: str
    text: tuple[str, ...]  # its sentences


def cases(data: Path, language: str, documents: int) -> Iterator[Case]:
    """The same every time: so many texts with a case of each kind."""
    rng = random.Random(_SEED)
    paragraphs = [_sentences(text) for text in _paragraphs(data, language)]
    alike, apart = _pairs(data, language)
    pairs = list(zip(rng.sample(alike, documents), rng.sample(apart, documents), strict=True))
    numbers = sorted({number for sentences in paragraphs for text in sentences for number in _NUMBER.findall(text)})
    for (near, near_other), (far, far_other) in pairs:
        start = rng.randrange(len(paragraphs) - _PARAGRAPHS)
        own = [sentence for part in paragraphs[start : start + _PARAGRAPHS] for sentence in part]
        text = (*own, near, far)
        if len(own) < 2:
            continue
        chosen, second = rng.sample(own, 2)
        other = rng.choice(paragraphs[(start + len(paragraphs) // 2) % len(paragraphs)] or [far_other])
        yield Case("as it stands", True, chosen, text)
        if (clause := chosen.partition(", ")[0].strip()) != chosen and len(clause.split()) >= _WORDS[0]:
            yield Case("its first clause", True, clause + ".", text)
        yield Case("two joined", True, f"{chosen.rstrip('.')}; {second}", text)
        yield Case("paraphrase", True, near_other, text)
        yield Case("another article's", False, other, text)
        yield Case("another matter", False, far_other, text)
        with_number = [sentence for sentence in own if _NUMBER.search(sentence)]
        if with_number:
            yield Case("number swapped", False, _swapped(rng.choice(with_number), numbers, rng), text)


def _swapped(sentence: str, numbers: Sequence[str], rng: random.Random) -> str:
    known = set(_NUMBER.findall(sentence))
    other = rng.choice([number for number in numbers if number not in known])
    return _NUMBER.sub(other, sentence, count=1)


def _paragraphs(data: Path, language: str) -> list[str]:
    lines = (data / "retr_xquad" / f"{language}_corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def _sentences(text: str) -> list[str]:
    spans = [text[start:end].strip() for start, end in sentence_spans(text).tolist()]
    return [sentence for sentence in spans if _WORDS[0] <= len(sentence.split()) <= _WORDS[1]]


def _pairs(data: Path, language: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs that say the same, and that have nothing in common."""
    with (data / "sts_stsb" / f"{language}_stsb_train.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [row for row in rows if row["sentence1"] != row["sentence2"] and len(row["sentence2"].split()) >= _WORDS[0]]
    pairs = [(float(row["score"]), (row["sentence1"], row["sentence2"])) for row in rows]
    return [pair for score, pair in pairs if score >= _ALIKE], [pair for score, pair in pairs if score <= _APART]


async def evaluate(services: Services, asked: Sequence[Case]) -> dict[str, Any]:
    """The share of each kind that is marked as unsupported, by threshold."""
    neutral = NeutralVectors(services.embeddings)
    finders = [SupportFinder(services.catalog, services.embeddings, neutral, near=near) for near in THRESHOLDS]
    marked: dict[str, list[list[bool]]] = {}
    for case in asked:
        places = tuple((0, 0) for _ in case.text)
        reading = Reading(" ".join(case.text), places, case.text, 1.0)
        row = []
        for finder in finders:
            found = await finder.find(case.written, reading, Urgency(), most=None)
            row.append(any(sentence.unsupported for sentence in found))
        marked.setdefault(f"{'supported' if case.is_supported else 'unsupported'}: {case.kind}", []).append(row)
    return {
        kind: {"n": len(rows), "marked": [round(sum(column) / len(rows), 3) for column in zip(*rows, strict=True)]}
        for kind, rows in marked.items()
    }


async def _run(documents: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as state_dir:
        quick = {"runtime": "onnx", "precision": "exact", "ner_model": "none"}
        services = await build(load_settings(state_dir=Path(state_dir), device="cpu", **quick))
        try:
            results = {one: await evaluate(services, list(cases(DATA, one, documents))) for one in ("es", "en")}
        finally:
            await services.close()
    return {**facts(), "thresholds": list(THRESHOLDS), "marked": results}


def main() -> None:
    """Print the results, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=60, help="of each language")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    text = json.dumps(asyncio.run(_run(arguments.documents)), indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
