"""The search benchmark's measurements through the whole service in process: adding files, and searching by a text.

    python -m benchmarks.search_service add --folder FOLDER
    python -m benchmarks.search_service search --folder FOLDER --corpus FOLDER --chunks 100000

Prints one line of JSON.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import uvloop

from backend.bootstrap.services import Services, build
from backend.config import load_settings
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.lanes.work_queue import Priority
from backend.search.document_chunks import PASSAGE
from backend.search.file_reading import fact_parts
from backend.search.records import VectorStore
from backend.search.retrieval import SearchOptions
from backend.search.vector_stores import NewFile
from benchmarks.results import spread
from benchmarks.search_contestant import timed
from benchmarks.search_corpus import DEPTH, FILTERS, Corpus
from benchmarks.search_store import OWNER, STORE, comparison
from benchmarks.texts import DATA

_PARAGRAPHS = 2_000
_ROUNDS = 3
_POLL_S = 0.05
_PARTS_AT_ONCE = 64  # texts of one request for entities
_SETS = (("retr_tatqa", "en"), ("retr_xquad", "es"), ("retr_xquad", "en"), ("retr_xquad", "de"), ("retr_xquad", "ro"))


def paragraphs(data: Path = DATA, count: int = _PARAGRAPHS) -> list[str]:
    """Paragraphs and tables of TAT-QA and XQuAD."""
    texts = []
    for folder, language in _SETS:
        with (data / folder / f"{language}_corpus.jsonl").open(encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    return texts[:count]


async def add(services: Services, texts: Sequence[str], rounds: int) -> dict[str, Any]:
    """Seconds to index texts as a file each and as one file, beside those of the models alone, in turn."""
    await _until_learnt(services)
    ways = {"files": list(texts), "one file": ["\n\n".join(texts)]}
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for index in range(rounds + 1):
        for way, contents in ways.items():
            one = await _added(services, contents, f"{way} {index}")
            if index:  # the first round warms up
                measured[way].append(one)
    return {way: {name: spread(one[name] for one in rows) for name in rows[0]} for way, rows in measured.items()}


async def _added(services: Services, contents: Sequence[str], name: str) -> dict[str, float]:
    started_s = time.perf_counter()
    files = []
    for index, content in enumerate(contents):
        with closing(StoredFile.of(content.encode(), FileLimits())) as stored:
            files.append(await services.files.upload(OWNER, stored, f"{name} {index}.txt", "assistants"))
    uploaded_s = time.perf_counter()
    store = await services.vector_stores.create(OWNER, name=name)
    await services.vector_stores.add_files(OWNER, store.id, [NewFile(file.id) for file in files])
    store = await _indexed(services, store.id)
    indexed_s = time.perf_counter()
    if store.counts.get("completed", 0) != len(files):
        raise RuntimeError(f"not all files of {name} were indexed: {store.counts}")
    texts = [chunk.text for file in files async for chunk in services.vector_stores.chunks(OWNER, store.id, file.id)]
    embed_s, entities_s = await _embedding_s(services, texts), await _entities_s(services, contents)
    await services.vector_stores.delete(OWNER, store.id)
    for file in files:
        await services.files.delete(OWNER, file.id)
    index_s = indexed_s - uploaded_s
    return {
        "upload_s": uploaded_s - started_s,
        "index_s": index_s,
        "embed_s": embed_s,
        "entities_s": entities_s,
        "chunks": len(texts),
        "chunks_per_s": len(texts) / index_s,
        "share": embed_s / index_s,
        "models_share": (embed_s + entities_s) / index_s,
    }


async def _indexed(services: Services, store_id: str) -> VectorStore:
    while True:
        store = await services.vector_stores.find(OWNER, store_id)
        if not store.counts.get("in_progress", 0):
            return store
        await asyncio.sleep(_POLL_S)


async def _embedding_s(services: Services, texts: Sequence[str]) -> float:
    """Of embedding alone, with nothing else going on."""
    started_s = time.perf_counter()
    model = services.catalog.embedding()
    await services.embeddings.embed_in_chunks(model, list(texts), PASSAGE, Urgency(Priority.BULK))
    return time.perf_counter() - started_s


async def _entities_s(services: Services, contents: Sequence[str]) -> float:
    """Of finding the names and numbers that become attributes, with nothing else going on."""
    started_s = time.perf_counter()
    parts = [part for content in contents for part in fact_parts(content)]
    for first in range(0, len(parts), _PARTS_AT_ONCE):
        await services.entities.find(parts[first : first + _PARTS_AT_ONCE], urgency=Urgency(Priority.BULK))
    return time.perf_counter() - started_s


async def _until_learnt(services: Services) -> None:
    """Wait until no classifier is learnt in the background any more."""
    while True:
        if not services.classification.report()["pending"]:
            return
        await asyncio.sleep(1)


def search(runner: asyncio.Runner, services: Services, corpus: Corpus) -> dict[str, Any]:
    """Times of a search by a text, its embedding included."""
    runner.run(_until_learnt(services))
    queries = corpus.queries

    def times(options: SearchOptions) -> dict[str, dict[str, float]]:
        def ask(index: int) -> None:
            runner.run(services.search.search(OWNER, STORE, [queries[index]], options, Urgency()))

        return timed(ask, len(queries))

    kept = comparison(FILTERS["hundredth"])
    return {"search": times(SearchOptions(limit=DEPTH)), "search, 1 % kept": times(SearchOptions(DEPTH, filters=kept))}


def _run(runner: asyncio.Runner, flags: argparse.Namespace) -> dict[str, Any]:
    services = runner.run(build(load_settings(state_dir=flags.folder, cache_enabled=False)))
    try:
        if flags.step == "add":
            return runner.run(add(services, paragraphs(count=flags.texts), flags.rounds))
        return search(runner, services, Corpus(flags.corpus, flags.chunks))
    finally:
        runner.run(services.close())


def main() -> None:
    """Do one step and print its result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_service", description=__doc__)
    parser.add_argument("step", choices=("add", "search"))
    parser.add_argument("--folder", type=Path, required=True, help="the STATE_DIR")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--chunks", type=int, default=0)
    parser.add_argument("--texts", type=int, default=_PARAGRAPHS)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    flags = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(_run(runner, flags)))


if __name__ == "__main__":
    main()
