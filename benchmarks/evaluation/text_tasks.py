"""Evaluates ranking of documents for a question, similarity of sentences, and language detection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from backend.engines.scoring import RERANKER
from backend.training.data.texts import read_groups, read_labelled, read_rows
from backend.training.metrics import correlation_scores, retrieval_scores
from benchmarks.evaluation.records import LANGUAGE, RANKING, SIMILARITY, Evaluation, EvaluationContext, Row

LANGUAGES = ("ca", "de", "en", "es", "eu", "fr", "gl", "it", "pt")  # of SIB-200 in the shared data
_TOP_N = 10  # documents per response: MRR@10
_CROSS_QUERIES = 60  # a cross-encoder scores every pair: 120 per query
_CONCURRENT_REQUESTS = 32  # requests under way


async def evaluate_ranking(context: EvaluationContext, language: str) -> list[Row]:
    """MRR@10 of the paragraph that answers a question among all paragraphs. Raises: NotMeasured."""
    folder = "retr_xquad"
    documents = _texts_by_id(context, folder, f"{language}_corpus.jsonl")
    questions = _texts_by_id(context, folder, f"{language}_queries.jsonl")
    cross_encoder = context.services.catalog.of(RERANKER)
    queries = [
        (questions[str(row["query_id"])], str(row["doc_id"])) for _, row in read_rows(context.file(folder, "qrels.tsv"))
    ]
    queries = context.some(queries, _CROSS_QUERIES if cross_encoder else None)
    corpus, document_index = list(documents.values()), {name: number for number, name in enumerate(documents)}
    call = partial(context.services.reranking.rerank, documents=corpus, top_n=_TOP_N)
    answers = await _run_all([partial(call, question) for question, _ in queries])
    ranked = [[result.index for result in answer.results] for answer in answers]
    report = retrieval_scores(
        ranked, [{document_index[document_id]} for _, document_id in queries], cutoffs=(1, _TOP_N)
    )
    parts = {"recall@1": report.scores["recall@1"]}
    model, score = answers[0].model, report.scores["mrr@10"]
    return [Row(RANKING, "XQuAD, 120 paragraphs", language, "MRR@10", score, len(queries), model=model, parts=parts)]


async def evaluate_similarity(context: EvaluationContext, language: str) -> list[Row]:
    """Spearman's correlation of similarities with human scores of sentence pairs. Raises: NotMeasured."""
    pairs = context.some(read_groups(context.file("sts_stsb", f"{language}_stsb_dev.tsv")))
    call = context.services.embeddings.similarity
    answers = await _run_all([partial(call, pair.texts[0], [pair.texts[1]]) for pair in pairs])
    predicted, expected = np.array([scores[0] for scores, _ in answers]), np.array([pair.score for pair in pairs])
    report = correlation_scores(expected, predicted)
    model = context.services.catalog.embedding().name
    return [Row(SIMILARITY, "STS-B", language, "Spearman", report.scores.get("spearman", 0.0), len(pairs), model=model)]


async def evaluate_languages(context: EvaluationContext) -> list[Row]:
    """Accuracy of the detected language of a sentence; one row for all languages. Raises: NotMeasured."""
    shares: dict[str, float] = {}
    examples = 0
    for language in LANGUAGES:
        texts = [
            example.text for example in context.some(read_labelled(context.file("cls_sib200", f"{language}_dev.tsv")))
        ]
        call = partial(context.services.analysis.analyze, features=("language",))
        answers = await _run_all([partial(call, text) for text in texts])
        predicted = [answer.language.code if answer.language else "" for answer in answers]
        shares[language] = predicted.count(language) / len(texts)
        examples += len(texts)
    mean = sum(shares.values()) / len(shares)
    return [Row(LANGUAGE, "SIB-200", ", ".join(LANGUAGES), "accuracy", mean, examples, model="py3langid", parts=shares)]


async def _run_all(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """All results in order, with ``_CONCURRENT_REQUESTS`` at a time."""
    answers: list[Any] = []
    for first in range(0, len(calls), _CONCURRENT_REQUESTS):
        answers += await asyncio.gather(*(call() for call in calls[first : first + _CONCURRENT_REQUESTS]))
    return answers


def _texts_by_id(context: EvaluationContext, folder: str, name: str) -> dict[str, str]:
    return {str(row["id"]): str(row["text"]) for _, row in read_rows(context.file(folder, name))}


EVALUATIONS = (
    *(
        Evaluation(f"{RANKING}-{language}", RANKING, partial(evaluate_ranking, language=language))
        for language in ("en", "es")
    ),
    *(
        Evaluation(f"{SIMILARITY}-{language}", SIMILARITY, partial(evaluate_similarity, language=language))
        for language in ("en", "es")
    ),
    Evaluation(LANGUAGE, LANGUAGE, evaluate_languages),
)
