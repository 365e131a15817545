"""txtai, chromadb and qdrant-client's local mode as the search benchmark drives them: each with its defaults.

Runs in an environment that has them (`search_peers.install`), not in the service's. Each is a `StoreUnderTest` of
benchmarks/search_contestant.py; vectors are given, so that the stores alone are compared.
"""

import importlib
import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_corpus import Chunk, Corpus, Filter, Vectors, attributes_of

_COLLECTION = "benchmark"
_QDRANT_BATCH = 1_000


class Txtai:
    """An embeddings database with SQLite content and keyword index (hybrid); the dense index is faiss.

    It is in memory until `save`, so what is acknowledged is what was saved: here after each `add`, or at the end of all
    where ``TXTAI_SAVE=close``.
    """

    keeps_words = True

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self._folder = folder
        self._vectors: dict[str, Vectors] = dict(zip(corpus.queries, corpus.query_vectors, strict=True))
        self._saves_each = os.environ.get("TXTAI_SAVE") != "close"
        embeddings = importlib.import_module("txtai").Embeddings
        transform = lambda texts: self._lookup(texts)  # noqa: E731, PLW0108 - txtai takes plain functions only
        options = {"method": "external", "transform": transform, "content": True, "hybrid": True}
        self._index = embeddings(options)
        if self._index.exists(str(folder)):
            self._index.load(str(folder), config={"transform": transform})

    @staticmethod
    def version() -> str:
        return importlib.metadata.version("txtai")

    def close(self) -> None:
        if not self._saves_each and self._index.count():
            self._save()
        self._index.close()

    def add(self, first: int, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        texts = [chunk.text for chunk in chunks]
        self._vectors.update(zip(texts, vectors, strict=True))
        rows = [(first + at, {"text": text, **attributes_of(first + at)}, None) for at, text in enumerate(texts)]
        self._index.upsert(rows) if first else self._index.index(rows)
        for text in texts:
            del self._vectors[text]
        if self._saves_each:
            self._save()

    def count(self) -> int:
        return int(self._index.count())

    def texts(self, rows: Sequence[int]) -> list[str | None]:
        found: dict[int, str] = {}
        for row in rows:
            hits = self._index.search(f"select id, text from txtai where id = '{row}'", 1)
            found |= {int(hit["id"]): hit["text"] for hit in hits}
        return [found.get(row) for row in rows]

    def vector(self, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        return self._search("vector", vector, where, limit, 1.0)

    def keyword(self, text: str, where: Filter | None, limit: int) -> list[int]:
        return self._search(text, self._vectors.get(text), where, limit, 0.0)

    def hybrid(self, text: str, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        return self._search(text, vector, where, limit, 0.5)

    def _search(self, text: str, vector: Vectors | None, where: Filter | None, limit: int, weight: float) -> list[int]:
        if vector is not None:
            self._vectors[text] = vector
        condition = "" if where is None else f" and {where.name} = {float(where.value)}"
        query = f"select id from txtai where similar(:query, {weight}){condition}"
        return [int(hit["id"]) for hit in self._index.search(query, limit, parameters={"query": text})]

    def _save(self) -> None:
        transform = self._index.config.pop("transform")  # a function cannot be saved
        self._index.save(str(self._folder))
        self._index.config["transform"] = transform

    def _lookup(self, texts: Sequence[Any]) -> Vectors:
        """The given vector of each text: txtai calls this where a model would embed."""
        return np.stack([self._vectors[text if isinstance(text, str) else text[1]] for text in texts])


class Chroma:
    """A persistent client; its index is HNSW, cosine. Without a server it has no ranking by words."""

    keeps_words = False

    def __init__(self, folder: Path, corpus: Corpus) -> None:  # noqa: ARG002 - as the others
        chromadb = importlib.import_module("chromadb")
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(str(folder), settings)
        self._store = self._client.get_or_create_collection(
            _COLLECTION, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )

    @staticmethod
    def version() -> str:
        return importlib.metadata.version("chromadb")

    def close(self) -> None:
        del self._store, self._client

    def add(self, first: int, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        rows = range(first, first + len(chunks))
        self._store.add(
            ids=[str(row) for row in rows],
            embeddings=vectors,
            documents=[chunk.text for chunk in chunks],
            metadatas=[attributes_of(row) for row in rows],
        )

    def count(self) -> int:
        return int(self._store.count())

    def texts(self, rows: Sequence[int]) -> list[str | None]:
        answer = self._store.get(ids=[str(row) for row in rows], include=["documents"])
        found = dict(zip(answer["ids"], answer["documents"], strict=True))
        return [found.get(str(row)) for row in rows]

    def vector(self, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        condition = where and {where.name: float(where.value)}
        answer = self._store.query(
            query_embeddings=vector[None], n_results=limit, where=condition, include=["documents"]
        )
        return [int(row) for row in answer["ids"][0]]

    def keyword(self, text: str, where: Filter | None, limit: int) -> list[int]:
        raise NotImplementedError

    def hybrid(self, text: str, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        raise NotImplementedError


class Qdrant:
    """The client's local mode: an exact scan by numpy, payloads in SQLite. Words would need sparse vectors."""

    keeps_words = False

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        client = importlib.import_module("qdrant_client")
        self._models = client.models
        self._client = client.QdrantClient(path=str(folder))
        if not self._client.collection_exists(_COLLECTION):
            width = corpus.vectors.shape[1]
            space = self._models.VectorParams(size=width, distance=self._models.Distance.COSINE)
            self._client.create_collection(_COLLECTION, vectors_config=space)

    @staticmethod
    def version() -> str:
        return importlib.metadata.version("qdrant-client")

    def close(self) -> None:
        self._client.close()

    def add(self, first: int, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        rows = range(first, first + len(chunks))
        points = self._models.Batch(
            ids=list(rows),
            vectors=vectors.tolist(),
            payloads=[{"text": chunk.text, **attributes_of(row)} for row, chunk in zip(rows, chunks, strict=True)],
        )
        self._client.upsert(_COLLECTION, points)

    def count(self) -> int:
        return int(self._client.count(_COLLECTION).count)

    def texts(self, rows: Sequence[int]) -> list[str | None]:
        found: dict[int, str] = {}
        for first in range(0, len(rows), _QDRANT_BATCH):
            points = self._client.retrieve(_COLLECTION, list(rows[first : first + _QDRANT_BATCH]))
            found |= {point.id: point.payload["text"] for point in points}
        return [found.get(row) for row in rows]

    def vector(self, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        models = self._models
        condition = where and models.Filter(
            must=[
                models.FieldCondition(key=where.name, match=None, range=models.Range(gte=where.value, lte=where.value))
            ]
        )
        answer = self._client.query_points(_COLLECTION, query=vector.tolist(), query_filter=condition, limit=limit)
        return [int(point.id) for point in answer.points]

    def keyword(self, text: str, where: Filter | None, limit: int) -> list[int]:
        raise NotImplementedError

    def hybrid(self, text: str, vector: Vectors, where: Filter | None, limit: int) -> list[int]:
        raise NotImplementedError
