"""Which text is meant: documents by a question, pairs of sentences by likeness, languages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from backend.engines.scoring import RERANKER
from backend.training.data.texts import read_groups, read_labelled, read_rows
from backend.training.metrics import correlation_scores, retrieval_scores
from benchmarks.judging.records import Bench, Judge, Row
from benchmarks.judging.tasks import LANGUAGE, LIKENESS, RANKING

SPOKEN = ("ca", "de", "en", "es", "eu", "fr", "gl", "it", "pt")  # those of SIB-200 here
_BEST = 10  # documents an answer gives: MRR@10
_CROSS_QUERIES = 60  # a cross-encoder reads every pair: 120 of them a query
_AT_ONCE = 32  # requests under way


async def rank(bench: Bench, language: str) -> list[Row]:
    """Where the paragraph that answers a question comes among all paragraphs. Raises: Unmeasured."""
    folder = "retr_xquad"
    documents = _texts(bench, folder, f"{language}_corpus.jsonl")
    questions = _texts(bench, folder, f"{language}_queries.jsonl")
    cross = bench.services.catalog.of(RERANKER)
    judged = [
        (questions[str(row["query_id"])], str(row["doc_id"])) for _, row in read_rows(bench.file(folder, "qrels.tsv"))
    ]
    judged = bench.some(judged, _CROSS_QUERIES if cross else None)
    corpus, place = list(documents.values()), {name: number for number, name in enumerate(documents)}
    ask = partial(bench.services.reranking.rerank, documents=corpus, top_n=_BEST)
    answers = await _in_turns([partial(ask, question) for question, _ in judged])
    ranked = [[one.index for one in answer.results] for answer in answers]
    report = retrieval_scores(ranked, [{place[wanted]} for _, wanted in judged], cutoffs=(1, _BEST))
    parts = {"recall@1": report.scores["recall@1"]}
    model, score = answers[0].model, report.scores["mrr@10"]
    return [Row(RANKING, "XQuAD, 120 paragraphs", language, "MRR@10", score, len(judged), model=model, parts=parts)]


async def compare(bench: Bench, language: str) -> list[Row]:
    """Whether pairs of sentences that people find alike have a higher similarity. Raises: Unmeasured."""
    pairs = bench.some(read_groups(bench.file("sts_stsb", f"{language}_stsb_dev.tsv")))
    ask = bench.services.embeddings.similarity
    answers = await _in_turns([partial(ask, pair.texts[0], [pair.texts[1]]) for pair in pairs])
    said, people = np.array([scores[0] for scores, _ in answers]), np.array([pair.score for pair in pairs])
    report = correlation_scores(people, said)
    model = bench.services.catalog.embedding().name
    return [Row(LIKENESS, "STS-B", language, "Spearman", report.scores.get("spearman", 0.0), len(pairs), model=model)]


async def tell_languages(bench: Bench) -> list[Row]:
    """Whether ``/v1/analyze`` names the language of a sentence; one row for all languages. Raises: Unmeasured."""
    shares: dict[str, float] = {}
    examples = 0
    for language in SPOKEN:
        texts = [one.text for one in bench.some(read_labelled(bench.file("cls_sib200", f"{language}_dev.tsv")))]
        ask = partial(bench.services.analysis.analyze, features=("language",))
        answers = await _in_turns([partial(ask, text) for text in texts])
        said = [answer.language.code if answer.language else "" for answer in answers]
        shares[language] = said.count(language) / len(texts)
        examples += len(texts)
    mean = sum(shares.values()) / len(shares)
    return [Row(LANGUAGE, "SIB-200", ", ".join(SPOKEN), "accuracy", mean, examples, model="py3langid", parts=shares)]


async def _in_turns(asks: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Every answer in order, some requests under way at a time."""
    answers: list[Any] = []
    for first in range(0, len(asks), _AT_ONCE):
        answers += await asyncio.gather(*(ask() for ask in asks[first : first + _AT_ONCE]))
    return answers


def _texts(bench: Bench, folder: str, name: str) -> dict[str, str]:
    return {str(row["id"]): str(row["text"]) for _, row in read_rows(bench.file(folder, name))}


JUDGES = (
    *(Judge(f"{RANKING}-{language}", RANKING, partial(rank, language=language)) for language in ("en", "es")),
    *(Judge(f"{LIKENESS}-{language}", LIKENESS, partial(compare, language=language)) for language in ("en", "es")),
    Judge(LANGUAGE, LANGUAGE, tell_languages),
)
