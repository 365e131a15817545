"""Makes the chunks of the search benchmark: real paragraphs and sentences recombined, with vectors made of theirs.

A chunk is one paragraph of XQuAD (Spanish, English) or TAT-QA with two sentences of others behind it; every tenth has
an invoice number, a date and an amount of its own. Its vector is the weighted mean of the real vectors of its parts by
the served encoder, plus noise, so that chunks of one paragraph are near each other, not equal. Questions are the sets'.
"""

import asyncio
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import uvloop

from backend.bootstrap.services import build
from backend.config import load_settings
from backend.lanes.inference import Urgency
from backend.models.encoder import normalized
from backend.search.document_chunks import PASSAGE, QUERY, identity_of
from backend.text.embeddings import EmbedOptions
from benchmarks.search_corpus import Chunk, Corpus, Vectors
from benchmarks.texts import DATA, LANGUAGES, sentences

QUERIES = 200
_SEED = 18
SENTENCES = 1_500  # of each language, that stand behind paragraphs
_SENTENCE_WEIGHT = 0.15  # of each of the two in a chunk's vector
_NOISE = 0.02  # standard deviation of each component: cosine 0.93 to the vector without noise
_AT_ONCE = 20_000
_EMBEDDED = "embedded.npz"
_CODED = 10  # every so many chunks have an invoice's number, date and amount

_Pick = tuple[int, tuple[int, int]]  # a paragraph, two sentences


@dataclass(frozen=True, slots=True)
class Sources:
    """Real texts."""

    paragraphs: Sequence[tuple[str, str]]  # with their languages
    sentences: dict[str, Sequence[str]]
    queries: Sequence[str]


def sources(data: Path = DATA, queries: int = QUERIES) -> Sources:
    """The texts that chunks and queries are made of; the same every time."""
    rng = random.Random(_SEED)
    paragraphs: list[tuple[str, str]] = []
    asked: list[str] = []
    sets = (("retr_xquad", "es"), ("retr_xquad", "en"), ("retr_tatqa", "en"))
    for number, (folder, language) in enumerate(sets):
        paragraphs += [(text, language) for text in _texts(data / folder / f"{language}_corpus.jsonl")]
        questions = list(_texts(data / folder / f"{language}_queries.jsonl"))
        asked += rng.sample(questions, (queries + number) // len(sets))
    pools = dict(zip(LANGUAGES, sentences(data), strict=True))
    return Sources(paragraphs, {language: rng.sample(pool, SENTENCES) for language, pool in pools.items()}, asked)


def prepared(folder: Path, count: int) -> Corpus:
    """A folder with at least ``count`` chunks; made unless it is there. Minutes for a million."""
    corpus = Corpus(folder, count)
    if (folder / "vectors.npy").exists() and len(np.load(folder / "vectors.npy", mmap_mode="r")) >= count:
        return corpus
    folder.mkdir(parents=True, exist_ok=True)
    texts = sources()
    if not (folder / _EMBEDDED).exists():
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            np.savez(folder / _EMBEDDED, allow_pickle=False, **runner.run(_embedded(texts, folder)))
    write_chunks(folder, count, texts, dict(np.load(folder / _EMBEDDED)))
    return corpus


async def _embedded(texts: Sources, folder: Path) -> dict[str, Vectors]:
    """Vectors of paragraphs and of each language's sentences; those of the queries and the encoder are written."""
    services = await build(load_settings(state_dir=folder / "state", cache_enabled=False))
    try:
        model = services.catalog.embedding()

        async def embed(inputs: Sequence[str], options: EmbedOptions) -> Vectors:
            return (await services.embeddings.embed_in_chunks(model, list(inputs), options, Urgency())).vectors

        vectors = {language: await embed(pool, PASSAGE) for language, pool in texts.sentences.items()}
        vectors["paragraphs"] = await embed([text for text, _ in texts.paragraphs], PASSAGE)
        np.save(folder / "query_vectors.npy", await embed(texts.queries, QUERY))
        (folder / "queries.json").write_text(json.dumps(list(texts.queries), ensure_ascii=False), encoding="utf-8")
        (folder / "encoder.json").write_text(json.dumps(asdict(identity_of(model))), encoding="utf-8")
        return vectors
    finally:
        await services.close()


def write_chunks(folder: Path, count: int, texts: Sources, vectors: dict[str, Vectors]) -> None:
    """Write the chunks' texts and vectors; the same every time.

    Args:
        vectors: of the "paragraphs", and of the sentences of each language.
    """
    rng, noise = random.Random(_SEED), np.random.default_rng(_SEED)
    width = vectors["paragraphs"].shape[1]
    unfinished = folder / "vectors.part"
    mapped = np.lib.format.open_memmap(unfinished, "w+", np.float32, (count, width))
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as lines:
        for first in range(0, count, _AT_ONCE):
            past = min(first + _AT_ONCE, count)
            picks = list(_picks(rng, texts, past - first))
            for row, (paragraph, others) in enumerate(picks, first):
                lines.write(json.dumps(_chunk(texts, paragraph, others, row), ensure_ascii=False) + "\n")
            mapped[first:past] = _vectors(texts, picks, vectors, noise)
    mapped.flush()
    unfinished.replace(folder / "vectors.npy")
    print(f"{count:,} chunks made in {folder}", file=sys.stderr)


def _picks(rng: random.Random, texts: Sources, count: int) -> Iterator[_Pick]:
    for _ in range(count):
        yield rng.randrange(len(texts.paragraphs)), (rng.randrange(SENTENCES), rng.randrange(SENTENCES))


def _chunk(texts: Sources, paragraph: int, others: tuple[int, int], row: int) -> Chunk:
    text, language = texts.paragraphs[paragraph]
    pool = texts.sentences[language]
    parts: tuple[str, ...] = (text, pool[others[0]], pool[others[1]])
    if row % _CODED == 0:
        day = f"{row % 28 + 1:02}/{row % 12 + 1:02}/{2015 + row % 11}"
        code = f"FA-{2015 + row % 11}/{row:07}"
        told = "Factura {} del {}, total {} EUR." if language == "es" else "Invoice {} of {}, total {} EUR."
        parts = (*parts, told.format(code, day, row % 9973))
    return Chunk(" ".join(parts), language)


def _vectors(
    texts: Sources, picks: Sequence[_Pick], vectors: dict[str, Vectors], noise: np.random.Generator
) -> Vectors:
    paragraphs = vectors["paragraphs"][[paragraph for paragraph, _ in picks]]
    mixed = (1 - 2 * _SENTENCE_WEIGHT) * paragraphs
    for index, (paragraph, others) in enumerate(picks):
        pool = vectors[texts.paragraphs[paragraph][1]]
        mixed[index] += _SENTENCE_WEIGHT * (pool[others[0]] + pool[others[1]])
    mixed += noise.standard_normal(mixed.shape, np.float32) * np.float32(_NOISE)
    return normalized(mixed)


def _texts(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"].lstrip("\ufeff")
