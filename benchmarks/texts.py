"""The texts the benchmarks send: Spanish and English, mixed lengths, the same sequence on every run."""

import csv
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LANGUAGES = ("es", "en")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# (sentences in a text, share of texts): queries, single sentences, short paragraphs, paragraphs. With the sentences of
# ../shared/data this gives a mean of 36 tokens, 39 of MiniLM's.
LENGTHS = ((1, 0.56), (2, 0.27), (3, 0.11), (6, 0.06))

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SEED = 20240131


@dataclass(frozen=True, slots=True)
class Mix:
    """A sequence of texts with a known share of repeats."""

    hot: tuple[str, ...]  # send each once before measuring, so that a cache holds them
    texts: tuple[str, ...]  # the measured sequence: texts of ``hot`` and texts never sent before


def distinct_texts(
    count: int, first: int = 0, *, data: Path = DATA, languages: Sequence[str] = LANGUAGES
) -> tuple[str, ...]:
    """Texts ``first`` to ``first + count`` of one endless sequence in which no text repeats.

    Two ranges that do not overlap share no text, so a cache filled by one run cannot help the next.

    Args:
        languages: those of LANGUAGES that take part, each with the same share.
    """
    sequence = _sequence(data, languages)
    return tuple(text for index, text in zip(range(first + count), sequence, strict=False) if index >= first)


def mix(count: int, hit_ratio: float, *, first: int = 0, hot_count: int = 256, data: Path = DATA) -> Mix:
    """``count`` texts of which exactly ``floor(count * hit_ratio)`` come from ``hot_count`` known ones.

    Hits are spread evenly, so a request of many texts holds the same share as the whole. The misses never repeat.
    """
    hit_count = int(count * hit_ratio)
    texts = distinct_texts(hot_count + count - hit_count, first, data=data)
    hot, misses = texts[:hot_count], iter(texts[hot_count:])
    sequence = [
        hot[int(index * hit_ratio) % hot_count] if _is_hit(index, hit_ratio) else next(misses) for index in range(count)
    ]
    return Mix(hot, tuple(sequence))


def _is_hit(index: int, hit_ratio: float) -> bool:
    """Whether the running count of hits, floor(n * hit_ratio), grows at this index."""
    return int((index + 1) * hit_ratio) > int(index * hit_ratio)


def _sequence(data: Path, languages: Sequence[str]) -> Iterator[str]:
    pools = [sentences(data)[LANGUAGES.index(language)] for language in languages]
    rng = random.Random(_SEED)
    counts, weights = [count for count, _ in LENGTHS], [weight for _, weight in LENGTHS]
    seen: set[str] = set()
    while True:
        pool = rng.choice(pools)
        text = " ".join(rng.choices(pool, k=rng.choices(counts, weights)[0]))
        while text in seen:
            text = f"{text} {rng.choice(pool)}"
        seen.add(text)
        yield text


@cache
def sentences(data: Path = DATA) -> tuple[tuple[str, ...], ...]:
    """Sentences of each of LANGUAGES, from ``data`` where it exists, else generated."""
    if not (data / "retr_xquad").is_dir():
        return tuple(tuple(_generated(language)) for language in LANGUAGES)
    spanish = [*_xquad(data, "es"), *_stsb(data, "es")]
    english = [*_xquad(data, "en"), *_tatqa(data), *_stsb(data, "en")]
    return tuple(dict.fromkeys(spanish)), tuple(dict.fromkeys(english))


def _xquad(data: Path, language: str) -> Iterator[str]:
    for kind in ("corpus", "queries"):
        for row in _rows(data / "retr_xquad" / f"{language}_{kind}.jsonl"):
            yield from _split(str(row["text"]))


def _tatqa(data: Path) -> Iterator[str]:
    for row in _rows(data / "retr_tatqa" / "en_corpus.jsonl"):
        if row["kind"] == "text":
            yield from _split(str(row["text"]))
    for row in _rows(data / "retr_tatqa" / "en_queries.jsonl"):
        yield str(row["text"])


def _stsb(data: Path, language: str) -> Iterator[str]:
    for part in ("dev", "train"):
        with (data / "sts_stsb" / f"{language}_stsb_{part}.tsv").open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
                yield row["sentence1"]
                yield row["sentence2"]


def _rows(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _split(paragraph: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(paragraph.strip().lstrip("\ufeff")):
        if sentence:
            yield sentence


_SUBJECTS = {
    "es": ("La factura de abril", "El contrato de arrendamiento", "El extracto bancario", "La nota de crédito"),
    "en": ("The April invoice", "The lease agreement", "The bank statement", "The credit note"),
}
_VERBS = {
    "es": ("fue emitida por", "debe enviarse a", "quedó pendiente con", "se firmó ante"),
    "en": ("was issued by", "must be sent to", "is still open with", "was signed before"),
}
_PARTIES = {
    "es": ("la notaría de Valencia", "Suministros Ibéricos S.L.", "la Agencia Tributaria", "el banco del proveedor"),
    "en": ("the Dublin registry office", "Harbour Supplies Ltd.", "the tax authority", "the supplier's bank"),
}
_ENDINGS = {
    "es": (
        "por un importe de {amount} euros, a pagar en {day} días.",
        "el {day} de mayo.",
        "el {day} de junio de 2024.",
        "({amount}/{day}).",
    ),
    "en": (
        "for an amount of {amount} euros, due within {day} days.",
        "on {day} May.",
        "on {day} June 2024.",
        "({amount}/{day}).",
    ),
}


def _generated(language: str, count: int = 12_000) -> Iterator[str]:
    """Sentences of invoices, contracts and statements, for a machine without ../shared/data."""
    rng = random.Random(f"{_SEED}-{language}")
    parts: Sequence[Sequence[str]] = (_SUBJECTS[language], _VERBS[language], _PARTIES[language], _ENDINGS[language])
    for _ in range(count):
        sentence = " ".join(rng.choice(part) for part in parts)
        yield sentence.format(amount=rng.randrange(100, 9_999), day=rng.randrange(1, 29))
