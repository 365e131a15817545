"""Train the bundled NER model from the data sets of ``../shared/data``, and install it in the package.

    python -m tools.train_bundled ner --data ../shared/data --work build/bundled

The data sets are sampled here, always in the same way, into files that ``python -m backend.training`` reads; the
command that then runs is in the model's card. An hour on two cores.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.models.model_files import BUNDLED_ADAPTERS
from backend.training.cli import main as train
from tools import made_names

MADE = "ner_made"  # the folder of the made sentences, beside those of the sets
_SUFFIX = ".conll"
ADAPTER = ("adapter_config.json", "adapter_model.safetensors", "config.json", "README.md")

_NOTE = """`python -m tools.train_bundled ner` makes all runs, each going on from the one before; the command above is
the last one's. A new training gives like numbers, not the same bits."""
_ORDINALS = ("first", "second", "third", "fourth")
_NAMES = frozenset({"PER", "PER_LEGAL", "ORG", "LOC"})

Block = tuple[str, ...]  # the lines of a sentence


@dataclass(frozen=True, slots=True)
class Part:
    """How a file is sampled. Counts are of sentences, in the file's order."""

    folder: str
    file: str  # without its suffix
    every: int = 1  # take every n-th sentence
    first: int = 0  # the index of the first one taken; runs that take turns see different sentences
    times: int = 1  # repetitions per epoch, to balance small data sets
    held_out: float = 0.0  # share at the end kept for evaluation: whole documents, not shuffled sentences
    bare_every: int = 1  # of the sentences without an entity take every n-th


# Left out, and why: re3d tags pronouns and common nouns; the projected ECHR files lack many names, and stand beside
# held-out text; WNUT is of social media; Swedish, German and Dutch are not what the bundled model is for. Sentences
# without a name teach little: of most sets one of three or four is enough, of MEDDOCAN's forms one of twelve.
NER_FIRST: tuple[Part, ...] = (
    Part("ner_uner", "en_ewt_train", every=2, bare_every=4),
    Part("ner_uner", "pt_bosque_train", every=4, bare_every=4),
    Part("ner_wikigold", "en_wikigold_train", held_out=0.15),
    Part("ner_sec_filings", "en_sec_train", held_out=0.15, bare_every=2),
    Part("ner_fire", "en_fire_train", every=2, bare_every=3),
    Part("ner_cess_es", "es_cess_train", every=2, bare_every=4),
    Part("ner_echr", "es_echr_train", held_out=0.2, bare_every=2),
    Part("ner_meddocan", "es_meddocan_train", every=4, bare_every=12),
)
# Mostly sentences that the first run left out; court reports twice.
NER_SECOND: tuple[Part, ...] = (
    Part("ner_uner", "en_ewt_train", every=3, first=1, bare_every=4),
    Part("ner_uner", "en_ewt_dev", every=8),
    Part("ner_wikigold", "en_wikigold_train", every=2, held_out=0.15),
    Part("ner_sec_filings", "en_sec_train", held_out=0.15, bare_every=2),
    Part("ner_fire", "en_fire_train", every=2, first=1, bare_every=3),
    Part("ner_fire", "en_fire_dev", every=6),
    Part("ner_cess_es", "es_cess_train", every=2, first=1, bare_every=4),
    Part("ner_ancora_es", "es_ancora_dev", every=2),
    Part("ner_echr", "es_echr_train", times=2, held_out=0.2, bare_every=4),
    Part("ner_meddocan", "es_meddocan_train", every=4, first=2, bare_every=12),
    Part("ner_meddocan", "es_meddocan_dev", every=24),
)
# What the second run left short: filings and court reports, three times; sentences without names, for precision.
NER_THIRD: tuple[Part, ...] = (
    Part("ner_uner", "en_ewt_train", every=3, first=2, bare_every=2),
    Part("ner_uner", "en_ewt_dev", every=8),
    Part("ner_wikigold", "en_wikigold_train", every=3, held_out=0.15),
    Part("ner_sec_filings", "en_sec_train", times=2, held_out=0.15),
    Part("ner_fire", "en_fire_train", every=3, bare_every=2),
    Part("ner_cess_es", "es_cess_train", every=3, bare_every=3),
    Part("ner_ancora_es", "es_ancora_dev", every=4),
    Part("ner_echr", "es_echr_train", times=3, held_out=0.2, bare_every=2),
    Part("ner_meddocan", "es_meddocan_train", every=5, first=1, bare_every=4),
    Part("ner_meddocan", "es_meddocan_dev", every=24),
)
_BASE = "bundled-full"  # all 12 layers
_ALWAYS = (
    *("--types", "PER,ORG,LOC", "--relabel", "PER_LEGAL=PER", "--encoder-dropout", "0", "--held-out", "0"),
    *("--lora-rank", "32", "--lora-dropout", "0", "--publish-as", "adapter"),
    *("--schedule", "cosine", "--warmup-ratio", "0.05", "--epochs", "1", "--batch-size", "16", "--no-amp"),
    *("--checkpoint-every", "200"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One training run; each continues from the previous one."""

    name: str
    parts: tuple[Part, ...]
    settings: tuple[str, ...]
    made: int = 0  # sentences of business papers from tools/made_names, others in each run


RUNS = (
    Run("ner-first", NER_FIRST, ("--learning-rate", "5e-4", "--head-learning-rate", "5e-3"), made=1800),
    Run(
        "ner-second",
        NER_SECOND,
        ("--learning-rate", "3e-4", "--head-learning-rate", "1e-3", "--recased", "0.12"),
        made=2400,
    ),
    Run(
        "ner", NER_THIRD, ("--learning-rate", "2.5e-4", "--head-learning-rate", "8e-4", "--recased", "0.12"), made=1500
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample, train, install; returns the exit code of the training."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_bundled", description=__doc__)
    parser.add_argument("model", choices=("ner",))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/bundled"))
    options = parser.parse_args(arguments)
    output: Path = options.work
    base = _BASE
    for number, run in enumerate(RUNS):
        sets = cut(run.parts, options.data, options.work / "data" / run.name)
        sets += _made(run, options.work / "data" / run.name, seed=made_names.SEED + number)
        output = options.work / run.name
        shutil.rmtree(output, ignore_errors=True)
        data = ("--data", *map(str, sets))
        if code := train(["ner", *data, *_ALWAYS, *run.settings, "--base", base, "--output", str(output)]):
            return code
        base = str(output)
    put(output, BUNDLED_ADAPTERS / options.model, RUNS)
    return 0


def cut(parts: Sequence[Part], data: Path, work: Path) -> list[Path]:
    """Write each part below ``work``, with the SOURCE.md of its data set; returns the folders, in order."""
    shutil.rmtree(work, ignore_errors=True)
    for part in parts:
        folder = work / part.folder
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data / part.folder / "SOURCE.md", folder / "SOURCE.md")
        blocks = list(_blocks(data / part.folder / f"{part.file}{_SUFFIX}"))
        train_count = len(blocks) - round(len(blocks) * part.held_out)
        selected = blocks[part.first : train_count : part.every]
        without_entities = [block for block in selected if not _is_named(block)]
        dropped = set(without_entities) - set(without_entities[:: part.bare_every])
        _write(folder / f"{part.file}{_SUFFIX}", [block for block in selected if block not in dropped] * part.times)
        if part.held_out:
            _write(folder / f"{part.file.replace('_train', '_dev')}{_SUFFIX}", blocks[train_count:])
    return list(dict.fromkeys(work / part.folder for part in parts))


def _made(run: Run, work: Path, *, seed: int) -> list[Path]:
    """Write the run's made sentences below ``work``; returns their folder, if there are any."""
    if not run.made:
        return []
    made_names.write(work / MADE / "es_made_train.conll", run.made, seed)
    return [work / MADE]


def _blocks(file: Path) -> Iterator[Block]:
    for block in file.read_text(encoding="utf-8").split("\n\n"):
        if lines := tuple(line for line in block.split("\n") if line.strip()):
            yield lines


def _is_named(block: Block) -> bool:
    return any(line.rpartition("-")[2] in _NAMES and "\t" in line for line in block)


def _write(file: Path, blocks: Sequence[Block]) -> None:
    file.write_text("\n\n".join("\n".join(lines) for lines in blocks) + "\n", encoding="utf-8")


def put(adapter: Path, folder: Path, runs: Sequence[Run]) -> None:
    """Copy the adapter to the package and append to its card how the data sets of each run were sampled."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ADAPTER:
        shutil.copyfile(adapter / name, folder / name)
    with (folder / "README.md").open("a", encoding="utf-8") as card:
        card.write(f"\n## How the sets were cut\n\n{_NOTE}\n")
        for run in runs:
            settings = " ".join(run.settings)
            made = f"\n{run.made} sentences of `tools/made_names.py` beside these.\n" if run.made else ""
            card.write(f"\n### {run.name}: {settings}\n\n{_cuts(run.parts)}\n{made}")


def _cuts(parts: Sequence[Part]) -> str:
    rows = ["| file | sentences taken | times an epoch | kept for evaluation |", "| --- | --- | --- | --- |"]
    for part in parts:
        share = "all" if part.every == 1 else f"one of {part.every}, from the {_ORDINALS[part.first]} on"
        share += f"; of those without a name one of {part.bare_every}" if part.bare_every > 1 else ""
        held_out = f"the last {part.held_out:.0%}, as `{part.file.replace('_train', '_dev')}`" if part.held_out else "-"
        rows.append(f"| {part.folder}/{part.file} | {share} | {part.times} | {held_out} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
