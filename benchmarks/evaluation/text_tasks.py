"""Evaluates ranking of documents for a question, similarity of sentences, translations, and language detection."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from backend.models.encoder import Vectors
from backend.serving.engines.heads import RERANKER
from backend.text.embeddings import EmbedOptions
from backend.training.data.texts import read_groups, read_labelled, read_rows
from backend.training.metrics import correlation_scores, retrieval_scores
from benchmarks.evaluation.records import LANGUAGE, RANKING, SIMILARITY, Evaluation, EvaluationContext, Row

LANGUAGES = ("ca", "de", "en", "es", "eu", "fr", "gl", "it", "pt")  # of SIB-200 in the shared data
STS_TARGETS = {"en": 0.835, "es": 0.795}
_TOP_N = 10  # documents per response: MRR@10
_CROSS_QUERIES = 60  # a cross-encoder scores every pair: 120 per query
_TOKEN_QUERIES = 200  # the embedding model reads twenty documents anew for each
_CONCURRENT_REQUESTS = 32  # requests under way
_TEXTS_PER_REQUEST = 32


@dataclass(frozen=True, slots=True)
class RankingSet:
    """Questions, the documents to rank for them, and which of them answer."""

    name: str  # of the evaluation, after the task
    title: str  # in tables
    folder: str
    questions: str  # languages of the files
    documents: str
    target: float = 0.0  # of documents for a question
    questions_max: int | None = None  # of so many questions, evenly chosen

    @property
    def language(self) -> str:
        """As in a row: en; es to en where the question is in another language than the documents."""
        return self.questions if self.questions == self.documents else f"{self.questions} to {self.documents}"


@dataclass(frozen=True, slots=True)
class RankingTask:
    """A set as it is asked."""

    queries: Sequence[str]
    corpus: Sequence[str]
    relevant: Sequence[set[int]]  # of each query, indices of the corpus


RANKING_SETS = (
    RankingSet("en", "XQuAD, 120 paragraphs", "retr_xquad", "en", "en", 0.955),
    RankingSet("es", "XQuAD, 120 paragraphs", "retr_xquad", "es", "es", 0.945),
    RankingSet("es-en", "XQuAD, 120 paragraphs", "retr_xquad", "es", "en", 0.92),
    # 1,575 pieces of annual reports; a fourth of the questions takes as long as all of XQuAD.
    RankingSet("finance", "TAT-QA, 1,575 passages", "retr_tatqa", "en", "en", 0.55, questions_max=400),
)
_PLAIN_LOSS_MAX = 0.01  # of MRR@10, by calls that name no prompt


async def evaluate_ranking(context: EvaluationContext, ranking_set: RankingSet) -> list[Row]:
    """MRR@10 of the documents that answer a question among all, as ``/v1/rerank`` orders them. Raises: NotMeasured."""
    cross_encoder = context.services.catalog.of(RERANKER)
    task = ranking_task(context, ranking_set, _CROSS_QUERIES if cross_encoder else _TOKEN_QUERIES)
    call = partial(context.services.reranking.rerank, documents=task.corpus, top_n=_TOP_N)
    answers = await run_all([partial(call, question) for question in task.queries])
    ranked = [[result.index for result in answer.results] for answer in answers]
    return [_ranking_row(ranking_set, task, ranked, answers[0].model, ranking_set.target)]


async def evaluate_plain_ranking(context: EvaluationContext, ranking_set: RankingSet) -> list[Row]:
    """The same by vectors of calls that name no prompt, as OpenAI's clients make them. Raises: NotMeasured."""
    task = ranking_task(context, ranking_set, ranking_set.questions_max)
    queries, corpus = await _vectors_of(context, task.queries), await _vectors_of(context, task.corpus)
    ranked = np.argsort(-queries @ corpus.T, axis=1, kind="stable")[:, :_TOP_N].tolist()
    model, plain = context.services.catalog.embedding().name, replace(ranking_set, title=f"{ranking_set.title}, plain")
    return [_ranking_row(plain, task, ranked, model, ranking_set.target - _PLAIN_LOSS_MAX)]


def ranking_task(context: EvaluationContext, ranking_set: RankingSet, queries_max: int | None) -> RankingTask:
    folder = ranking_set.folder
    documents = _texts_by_id(context, folder, f"{ranking_set.documents}_corpus.jsonl")
    questions = _texts_by_id(context, folder, f"{ranking_set.questions}_queries.jsonl")
    index_of = {name: index for index, name in enumerate(documents)}
    answered_by: dict[str, set[int]] = {}
    for _, row in read_rows(context.file(folder, "qrels.tsv")):
        answered_by.setdefault(str(row["query_id"]), set()).add(index_of[str(row["doc_id"])])
    chosen = context.some(list(answered_by.items()), queries_max)
    relevant = [documents_of_query for _, documents_of_query in chosen]
    return RankingTask([questions[query] for query, _ in chosen], list(documents.values()), relevant)


def _ranking_row(
    ranking_set: RankingSet, task: RankingTask, ranked: Sequence[Sequence[int]], model: str, target: float
) -> Row:
    report = retrieval_scores(ranked, task.relevant, cutoffs=(1, _TOP_N))
    score, count, parts = report.scores["mrr@10"], len(task.queries), {"recall@1": report.scores["recall@1"]}
    return Row(RANKING, ranking_set.title, ranking_set.language, "MRR@10", score, count, target, model, parts)


async def evaluate_translations(context: EvaluationContext, source: str, target: str) -> list[Row]:
    """How often the vector nearest to a sentence's is its translation's, among all of them. Raises: NotMeasured."""
    pairs = context.some([row for _, row in read_rows(context.file("bitext_tatoeba", "en-es.tsv"))])
    sentences, translations = ([str(row[language]) for row in pairs] for language in (source, target))
    nearest = await _vectors_of(context, sentences) @ (await _vectors_of(context, translations)).T
    found = np.array(translations)[nearest.argmax(axis=1)] == np.array(translations)  # equal translations are as right
    model = context.services.catalog.embedding().name
    title, language = f"Tatoeba, {len(pairs)} sentences", f"{source} to {target}"
    return [Row(SIMILARITY, title, language, "accuracy", float(found.mean()), len(pairs), 0.85, model=model)]


async def evaluate_similarity(context: EvaluationContext, language: str) -> list[Row]:
    """Spearman's correlation of similarities with human scores of sentence pairs. Raises: NotMeasured."""
    pairs = context.some(read_groups(context.file("sts_stsb", f"{language}_stsb_dev.tsv")))
    call = context.services.embeddings.similarity
    answers = await run_all([partial(call, pair.texts[0], [pair.texts[1]]) for pair in pairs])
    predicted, expected = np.array([scores[0] for scores, _ in answers]), np.array([pair.score for pair in pairs])
    report = correlation_scores(expected, predicted)
    model, score = context.services.catalog.embedding().name, report.scores.get("spearman", 0.0)
    return [Row(SIMILARITY, "STS-B", language, "Spearman", score, len(pairs), STS_TARGETS[language], model=model)]


async def evaluate_languages(context: EvaluationContext) -> list[Row]:
    """Accuracy of the detected language of a sentence; one row for all languages. Raises: NotMeasured."""
    shares: dict[str, float] = {}
    examples = 0
    for language in LANGUAGES:
        texts = [
            example.text for example in context.some(read_labelled(context.file("cls_sib200", f"{language}_dev.tsv")))
        ]
        call = partial(context.services.analysis.analyze, features=("language",))
        answers = await run_all([partial(call, text) for text in texts])
        predicted = [answer.language.code if answer.language else "" for answer in answers]
        shares[language] = predicted.count(language) / len(texts)
        examples += len(texts)
    mean = sum(shares.values()) / len(shares)
    return [Row(LANGUAGE, "SIB-200", ", ".join(LANGUAGES), "accuracy", mean, examples, model="py3langid", parts=shares)]


async def run_all(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """All results in order, with ``_CONCURRENT_REQUESTS`` at a time."""
    answers: list[Any] = []
    for first in range(0, len(calls), _CONCURRENT_REQUESTS):
        answers += await asyncio.gather(*(call() for call in calls[first : first + _CONCURRENT_REQUESTS]))
    return answers


async def _vectors_of(context: EvaluationContext, texts: Sequence[str]) -> Vectors:
    """Vectors of length 1 without a prompt, as a call that wishes nothing gets them. Shape: (texts, width)."""
    embeddings = context.services.embeddings
    options = EmbedOptions(normalize=True)
    calls = [
        partial(embeddings.embed, texts[first : first + _TEXTS_PER_REQUEST], options)
        for first in range(0, len(texts), _TEXTS_PER_REQUEST)
    ]
    return np.concatenate([embedded.vectors for embedded in await run_all(calls)])


def _texts_by_id(context: EvaluationContext, folder: str, name: str) -> dict[str, str]:
    return {str(row["id"]): str(row["text"]) for _, row in read_rows(context.file(folder, name))}


EVALUATIONS = (
    *(Evaluation(f"{RANKING}-{one.name}", RANKING, partial(evaluate_ranking, ranking_set=one)) for one in RANKING_SETS),
    *(
        Evaluation(f"{RANKING}-{one.name}-plain", RANKING, partial(evaluate_plain_ranking, ranking_set=one))
        for one in RANKING_SETS
    ),
    *(
        Evaluation(f"{SIMILARITY}-{language}", SIMILARITY, partial(evaluate_similarity, language=language))
        for language in STS_TARGETS
    ),
    *(
        Evaluation(
            f"{SIMILARITY}-{source}-{target}", SIMILARITY, partial(evaluate_translations, source=source, target=target)
        )
        for source, target in (("en", "es"), ("es", "en"))
    ),
    Evaluation(LANGUAGE, LANGUAGE, evaluate_languages),
)
