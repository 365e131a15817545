"""One store of the search benchmark in a process of its own: adds, asks, or adds until it is killed.

    python -m benchmarks.search_contestant ours ask --corpus FOLDER --chunks 10000 --folder FOLDER

Prints one line of JSON; `add-until-killed` prints how many chunks are acknowledged after each batch. Needs numpy and
the library it drives only, so that other libraries run in an environment of their own.
"""

import argparse
import importlib
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.search_corpus import DEPTH, FILTERS, Chunk, Corpus, Filter, Vectors, recall

CONTESTANTS = {
    "ours": ("benchmarks.search_store", "OurStore"),
    "txtai": ("benchmarks.search_other_stores", "Txtai"),
    "chromadb": ("benchmarks.search_other_stores", "Chroma"),
    "qdrant": ("benchmarks.search_other_stores", "Qdrant"),
}
_BATCH = 1_000  # chunks of one call of `add`
CRASH_BATCH = 100
_ROUNDS = 3
_TIMED = 100  # queries of a round; the rest only count for recall
_TIMED_OF_MANY, _MANY = 40, 500_000  # queries over so many chunks
_FIRST = 5  # searches before the clock runs
_ALL = 1_000_000  # hits that a filtered search asks for at most: how many there are


class StoreUnderTest(Protocol):
    """What the benchmark does with a store. Rows are chunks by their place in the corpus."""

    keeps_words: bool  # ranks by words too

    def close(self) -> None: ...

    def add(self, first: int, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        """Add the chunks from row ``first`` on. Acknowledged, as the library understands it, on return."""

    def count(self) -> int: ...

    def texts(self, rows: Sequence[int]) -> list[str | None]: ...

    def vector(self, vector: Vectors, where: Filter | None, limit: int) -> list[int]: ...

    def keyword(self, text: str, where: Filter | None, limit: int) -> list[int]: ...

    def hybrid(self, text: str, vector: Vectors, where: Filter | None, limit: int) -> list[int]: ...


Open = Callable[[], StoreUnderTest]


def add(open_store: Open, corpus: Corpus) -> dict[str, Any]:
    """Seconds to add everything, and until it is closed."""
    store = open_store()
    started_s = time.perf_counter()
    for first, chunks, vectors in batches(corpus, _BATCH):
        store.add(first, chunks, vectors)
        if first % 50_000 == 0 and first:
            print(f"{first:,} chunks, {time.perf_counter() - started_s:.0f} s", file=sys.stderr)
    added_s = time.perf_counter() - started_s
    store.close()
    closed_s = time.perf_counter() - started_s
    return {"add_s": added_s, "close_s": closed_s - added_s, "peak_bytes": peak_bytes()}


def ask(open_store: Open, corpus: Corpus) -> dict[str, Any]:
    """Times, memory and correctness of searches in a process that has just opened the store."""
    queries, vectors = corpus.queries, corpus.query_vectors
    before_bytes = resident_bytes()
    started_s = time.perf_counter()
    store = open_store()
    chunks = store.count()
    opened_s = time.perf_counter() - started_s
    modes = searches(store, queries, vectors)
    for mode in ("vector", "keyword"):
        if mode in modes:
            modes[mode](0)
    first_answer_s = time.perf_counter() - started_s
    asked = min(len(queries), _TIMED_OF_MANY if chunks >= _MANY else _TIMED)
    times = {name: timed(search, asked) for name, search in modes.items()}
    memory = {"before_bytes": before_bytes, "resident_bytes": resident_bytes(), "peak_bytes": peak_bytes()}
    found = [store.vector(vector, None, DEPTH) for vector in vectors]
    filtered = [store.vector(vector, FILTERS["hundredth"], DEPTH) for vector in vectors]
    result = {
        "chunks": chunks,
        "open_s": opened_s,
        "first_answer_s": first_answer_s,
        "searches": times,
        "memory": memory,
        "recall": recall(found, corpus.exact()),
        "recall_filtered": recall(filtered, corpus.exact(FILTERS["hundredth"])),
        "under_filter": under_filter(store, corpus),
    }
    store.close()
    return result


def searches(
    store: StoreUnderTest, queries: Sequence[str], vectors: Vectors
) -> dict[str, Callable[[int], Sequence[int]]]:
    """Each kind of search, for the query of an index."""
    modes: dict[str, Callable[[int], Sequence[int]]] = {}
    for suffix, where in (("", None), (", 1 % kept", FILTERS["hundredth"])):
        modes[f"vector{suffix}"] = lambda index, where=where: store.vector(vectors[index], where, DEPTH)  # type: ignore[misc]
        if store.keeps_words:
            modes[f"keyword{suffix}"] = lambda index, where=where: store.keyword(queries[index], where, DEPTH)  # type: ignore[misc]
            modes[f"hybrid{suffix}"] = lambda index, where=where: store.hybrid(  # type: ignore[misc]
                queries[index], vectors[index], where, DEPTH
            )
    return modes


def timed(search: Callable[[int], object], queries: int) -> dict[str, dict[str, float]]:
    """Seconds of one query after the other: percentiles of each round, their medians and extremes."""
    for index in range(min(_FIRST, queries)):
        search(index)
    rounds: list[list[float]] = []
    for _ in range(_ROUNDS):
        rounds.append([])
        for index in range(queries):
            started_s = time.perf_counter()
            search(index)
            rounds[-1].append(time.perf_counter() - started_s)
    percentiles = {
        name: [float(np.percentile(seconds, percent)) for seconds in rounds]
        for name, percent in (("p50_s", 50), ("p95_s", 95))
    }
    return {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}
        for name, values in percentiles.items()
    }


def under_filter(store: StoreUnderTest, corpus: Corpus, queries: int = 20) -> dict[str, float]:
    """Hits of vector searches that ask for all chunks of every thousandth file, and how many there are."""
    where = FILTERS["thousandth"]
    kept = set(np.flatnonzero(where.keeps(np.arange(corpus.count))).tolist())
    counts, wrong = [], 0
    for vector in corpus.query_vectors[:queries]:
        hits = store.vector(vector, where, min(_ALL, len(kept)))
        counts.append(len(set(hits) & kept))
        wrong += len(set(hits) - kept)
    return {"there": len(kept), "least": min(counts), "mean": statistics.fmean(counts), "wrong": wrong}


def add_until_killed(open_store: Open, corpus: Corpus) -> None:
    """Print how many chunks are acknowledged, after each batch."""
    store = open_store()
    for first, chunks, vectors in batches(corpus, CRASH_BATCH):
        store.add(first, chunks, vectors)
        print(first + len(chunks), flush=True)


def check(open_store: Open, corpus: Corpus) -> dict[str, Any]:
    """What is there after a crash: whether each acknowledged chunk (all of ``corpus``) can be read and found."""
    store = open_store()
    chunks = store.count()
    rows = range(corpus.count)
    texts = store.texts(rows) if corpus.count else []
    lost = sum(text != chunk.text for text, chunk in zip(texts, corpus.chunks(), strict=True))
    sample = rows[:: max(1, corpus.count // 50)]
    unfound = sum(row not in store.vector(corpus.vectors[row], None, DEPTH) for row in sample)
    store.close()
    return {"chunks": chunks, "lost": lost, "unfound": unfound, "searched": len(sample)}


def batches(corpus: Corpus, size: int) -> Iterator[tuple[int, list[Chunk], Vectors]]:
    chunks, vectors, first = corpus.chunks(), corpus.vectors, 0
    while batch := list(islice(chunks, size)):
        yield first, batch, np.array(vectors[first : first + len(batch)])
        first += len(batch)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


STEPS: dict[str, Callable[[Open, Corpus], dict[str, Any] | None]] = {
    "add": add,
    "ask": ask,
    "add-until-killed": add_until_killed,
    "check": check,
}


def main() -> None:
    """Do one step and print its result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_contestant", description=__doc__)
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--chunks", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    flags = parser.parse_args()
    module, name = CONTESTANTS[flags.contestant]
    kind = getattr(importlib.import_module(module), name)  # its library is in this environment only
    corpus = Corpus(flags.corpus, flags.chunks)
    result = STEPS[flags.step](lambda: kind(flags.folder, corpus), corpus)
    if result is not None:
        print(json.dumps({**result, "version": kind.version()}))


if __name__ == "__main__":
    main()
