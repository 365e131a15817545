"""ROUGE-L of extracts against the abstracts that authors wrote: ours, the lead, LexRank and TextRank of sumy.

    python -m benchmarks.summaries --peps PEPS.git --rfcs RFCS.git [--documents 40] [--json FILE]

Documents are Python's enhancement proposals (public domain or CC0) and Rust's requests for comments (MIT or
Apache-2.0), read from git repositories: their "Abstract" or "Summary" is the reference, the rest the text. Every method
chooses three of the same whole sentences. ``pip install sumy`` first, for its two.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.bootstrap.services import Services, build
from backend.config import load_settings
from backend.summaries.records import SummaryOptions
from backend.text.key_sentences import summary_candidates
from backend.text.sentences import sentence_spans
from benchmarks.machine import facts

SENTENCES = 3
_CHARS = (3000, 10_000)  # of a text
_REFERENCE_WORDS = (25, 250)
_HEADING = re.compile(r"^(?:#{1,3} +(?P<md>[^\n]+)|(?P<rst>[^\n]+)\n(?:=|-){4,})$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_PEERS = {"LexRank (sumy)": "lex_rank", "TextRank (sumy)": "text_rank"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A text without its abstract, and the abstract."""

    name: str
    text: str
    reference: str


def rouge_l(summary: str, reference: str) -> float:
    """F1 of the longest common subsequence of words, in lower case, without stemming.

    Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", with beta 1 as rouge-score computes it.
    """
    first, second = _WORD.findall(summary.lower()), _WORD.findall(reference.lower())
    row = [0] * (len(second) + 1)
    for word in first:
        above = row[:]
        for place, other in enumerate(second, 1):
            row[place] = above[place - 1] + 1 if word == other else max(above[place], row[place - 1])
    return 2 * row[-1] / (len(first) + len(second)) if row[-1] else 0.0


def sample_of(name: str, source: str) -> Sample | None:
    """The document as plain prose; None where it has no abstract of its own or is of another length."""
    source = re.sub(r"```.*?```", "", source, flags=re.DOTALL)
    headings = list(_HEADING.finditer(source))
    for heading, following in itertools.pairwise(headings):
        if (heading["md"] or heading["rst"]).strip().lower() in ("abstract", "summary"):
            reference = _prose(source[heading.end() : following.start()])
            text = _prose(source[following.start() :])
            words = len(_WORD.findall(reference))
            fits = _CHARS[0] <= len(text) <= _CHARS[1] and _REFERENCE_WORDS[0] <= words <= _REFERENCE_WORDS[1]
            return Sample(name, text, reference) if fits else None
    return None


def _prose(source: str) -> str:
    """Without code (indented), directives, links' targets and marks."""
    lines = [line for line in source.splitlines() if not line.startswith(("    ", "  ", "\t", ".. ", "[", "- [", "|"))]
    text = re.sub(r":\w+:`~?([^`<]+?)(?: <[^>]*>)?`", r"\1", "\n".join(lines))
    return re.sub(r"\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text).replace("`", "").replace("*", "")


def read_samples(repository: Path, folder: str, ending: str, count: int) -> list[Sample]:
    """So many documents of a git repository, drawn by a fixed seed."""
    names = _git(repository, "ls-tree", "-r", "--name-only", "HEAD", folder).split("\n")
    names = sorted(name for name in names if name.endswith(ending))
    random.Random(20260101).shuffle(names)
    samples: list[Sample] = []
    for name in names:
        sample = sample_of(name, _git(repository, "show", f"HEAD:{name}"))
        samples += [] if sample is None else [sample]
        if len(samples) == count:
            break
    return samples


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8", "replace")


def whole_sentences(text: str) -> list[str]:
    """What every method chooses from: whole sentences, no headings or rows."""
    texts = [text[start:end] for start, end in sentence_spans(text).tolist()]
    return [texts[index] for index in summary_candidates(texts, "without a list of references").indexes]


def _sumy(name: str) -> Callable[[Sequence[str]], str]:
    """A summarizer of sumy on given sentences: its own splitter would need a download."""
    from importlib import import_module  # sumy is not a dependency of the service

    models = import_module("sumy.models.dom")
    stemmer = import_module("sumy.nlp.stemmers").Stemmer("english")
    words = import_module("sumy.utils").get_stop_words("english")
    made = {"lex_rank": "LexRankSummarizer", "text_rank": "TextRankSummarizer"}[name]
    summarizer = getattr(import_module(f"sumy.summarizers.{name}"), made)(stemmer)
    summarizer.stop_words = words

    class Words:
        def to_words(self, sentence: str) -> tuple[str, ...]:
            return tuple(_WORD.findall(sentence))

    def summarise(sentences: Sequence[str]) -> str:
        paragraph = models.Paragraph([models.Sentence(text, Words()) for text in sentences])
        return " ".join(map(str, summarizer(models.ObjectDocumentModel([paragraph]), SENTENCES)))

    return summarise


async def evaluate(services: Services, samples: Sequence[Sample], peers: bool) -> dict[str, Any]:
    """Mean ROUGE-L of each method with its standard error, and seconds a text."""
    methods: dict[str, Callable[[Sequence[str]], str]] = {
        "lead": lambda sentences: " ".join(sentences[:SENTENCES]),
        "at random": lambda sentences: " ".join(random.Random(7).sample(list(sentences), SENTENCES)),
    }
    if peers:
        methods |= {label: _sumy(name) for label, name in _PEERS.items()}
    scores: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}

    def note(label: str, summary: str, sample: Sample, started_s: float) -> None:
        seconds[label] = seconds.get(label, 0.0) + time.perf_counter() - started_s
        scores.setdefault(label, []).append(rouge_l(summary, sample.reference))

    for sample in samples:
        started_s = time.perf_counter()
        result = await services.summaries.summarize(sample.text, SummaryOptions(sentences=SENTENCES))
        note("summary", result.summary.text, sample, started_s)
        analysis = await services.analysis.analyze(sample.text, features=("key_sentences",), top_sentences=SENTENCES)
        scores.setdefault("key_sentences", []).append(
            rouge_l(" ".join(sentence.text for sentence in analysis.key_sentences), sample.reference)
        )
        sentences = whole_sentences(sample.text)
        for label, method in methods.items():
            started_s = time.perf_counter()
            note(label, method(sentences), sample, started_s)
    return {
        label: {
            "rouge_l": round(statistics.fmean(values), 4),
            "standard_error": round(statistics.stdev(values) / len(values) ** 0.5, 4),
            "s_a_text": round(seconds.get(label, 0.0) / len(values), 4),
            "n": len(values),
        }
        for label, values in scores.items()
    }


async def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    sets = {
        "PEPs (en)": read_samples(arguments.peps, "peps/", ".rst", arguments.documents),
        "Rust RFCs (en)": read_samples(arguments.rfcs, "text/", ".md", arguments.documents),
    }
    with tempfile.TemporaryDirectory() as state_dir:
        quick = {"runtime": "onnx", "precision": "exact", "ner_model": "none", "cache_enabled": False}
        services = await build(load_settings(state_dir=Path(state_dir), device="cpu", **quick))
        try:
            results = {name: await evaluate(services, samples, not arguments.alone) for name, samples in sets.items()}
        finally:
            await services.close()
    return {"sentences": SENTENCES, **facts(), "rouge_l": results}


def main() -> None:
    """Print the results, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peps", type=Path, required=True)
    parser.add_argument("--rfcs", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=40, help="of each set")
    parser.add_argument("--alone", action="store_true", help="without sumy")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = asyncio.run(_run(arguments))
    text = json.dumps(results, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
