"""Ranking, similarity and language detection in the quality benchmark."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.evaluation.records import EvaluationContext
from benchmarks.evaluation.text_tasks import (
    RankingSet,
    evaluate_languages,
    evaluate_plain_ranking,
    evaluate_ranking,
    evaluate_similarity,
    evaluate_translations,
)

PARAGRAPHS = ["uno", "dos", "tres", "cuatro"]
MADE = RankingSet("es", "made", "retr_xquad", "es", "es", 0.9)


class FakeServices:
    """Every service at once, each answering as the test says."""

    def __init__(self, *, cross=None, order=(), similarity=None, language=None, vector=None):
        self.reranking = self.embeddings = self.analysis = self.catalog = self
        self.cross, self.order, self.similarity_of, self.language = cross, order, similarity, language
        self.vector_of, self.questions = vector, []

    def of(self, task):
        """The catalog's question for a cross-encoder."""
        return self.cross

    def embedding(self):
        """The catalog's embedding model."""
        return SimpleNamespace(name="told")

    async def rerank(self, query, documents, top_n):
        """Rank in the fixed order of the test."""
        self.questions.append((query, list(documents)))
        return SimpleNamespace(results=[SimpleNamespace(index=index) for index in self.order[:top_n]], model="told")

    async def embed(self, texts, options):
        """The test's vector of each text, for calls without a prompt."""
        assert (None, ()) == (options.prompt_name, options.prompts)
        return SimpleNamespace(vectors=np.array([self.vector_of(text) for text in texts], np.float32))

    async def similarity(self, source, sentences):
        """As the test's function says."""
        return [self.similarity_of(source, one) for one in sentences], None

    async def analyze(self, text, features):
        """The language that the test detects, or none."""
        assert tuple(features) == ("language",)
        detected = self.language(text)
        return SimpleNamespace(language=detected and SimpleNamespace(code=detected))


@pytest.fixture
def xquad(tmp_path):
    """Four paragraphs; one question about each of the first two, and 98 more about the first."""
    folder = tmp_path / "retr_xquad"
    folder.mkdir()
    corpus = [f'{{"id": "p{number}", "text": "{text}"}}' for number, text in enumerate(PARAGRAPHS)]
    questions = [f'{{"id": "q{number}", "text": "question {number}"}}' for number in range(100)]
    qrels = ["query_id\tdoc_id\trel", *(f"q{number}\tp{int(number == 1)}\t1" for number in range(100))]
    for name, lines in {"es_corpus.jsonl": corpus, "es_queries.jsonl": questions, "qrels.tsv": qrels}.items():
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


async def test_rank(xquad):
    """The reciprocal of the place, over all questions: 99 first places of a hundred, one second."""
    services = FakeServices(order=(0, 1, 2, 3))

    (row,) = await evaluate_ranking(EvaluationContext(services, xquad), MADE)

    assert 0.995 == pytest.approx(row.score)
    assert 0.99 == pytest.approx(row.parts["recall@1"])
    assert [(f"question {number}", PARAGRAPHS) for number in range(100)] == services.questions


async def test_rank_by_plain_vectors(xquad):
    """Questions and paragraphs are embedded without a prompt; the target is a hundredth lower."""
    place = {**{text: number for number, text in enumerate(PARAGRAPHS)}, "question 1": 1}
    services = FakeServices(vector=lambda text: np.eye(4)[place.get(text, 3)])

    (row,) = await evaluate_plain_ranking(EvaluationContext(services, xquad), MADE)

    assert (1 + 99 / 2) / 100 == pytest.approx(row.score)  # the fourth paragraph is first, then all in their order
    assert ("made, plain", pytest.approx(0.89), 100) == (row.set, row.target, row.examples)


async def test_several_documents_may_answer(xquad):
    """The first of them counts."""
    (xquad / "retr_xquad" / "qrels.tsv").write_text("query_id\tdoc_id\trel\nq0\tp3\t1\nq0\tp1\t1\n")

    (row,) = await evaluate_ranking(EvaluationContext(FakeServices(order=(0, 1, 2, 3)), xquad), MADE)

    assert (0.5, 1) == (pytest.approx(row.score), row.examples)


async def test_translations(tmp_path):
    """A sentence is right where the nearest vector is its translation's, or an equal translation's."""
    (tmp_path / "bitext_tatoeba").mkdir()
    lines = ["en\tes", "a\tuno", "b\tdos", "c\tdos", "d\ttres"]
    (tmp_path / "bitext_tatoeba" / "en-es.tsv").write_text("\n".join(lines), encoding="utf-8")
    axis = {"a": 0, "uno": 0, "b": 1, "dos": 1, "c": 1, "d": 0, "tres": 2}
    services = FakeServices(vector=lambda text: np.eye(3)[axis[text]])

    (forth,) = await evaluate_translations(EvaluationContext(services, tmp_path), "en", "es")
    (back,) = await evaluate_translations(EvaluationContext(services, tmp_path), "es", "en")

    assert (0.75, "en to es", 4) == (pytest.approx(forth.score), forth.language, forth.examples)
    assert 0.5 == pytest.approx(back.score)  # "dos" finds b for both; "tres" finds any


async def test_compare(tmp_path):
    """Only the order of the similarities counts, whatever their scale."""
    (tmp_path / "sts_stsb").mkdir()
    lines = ["score\tsentence1\tsentence2", "0.5\ta\tbbbb", "2.0\ta\tbbb", "4.5\ta\tbb"]
    (tmp_path / "sts_stsb" / "en_stsb_dev.tsv").write_text("\n".join(lines), encoding="utf-8")

    (alike,) = await evaluate_similarity(
        EvaluationContext(FakeServices(similarity=lambda one, other: 1 / len(other) ** 3), tmp_path), "en"
    )
    (opposite,) = await evaluate_similarity(
        EvaluationContext(FakeServices(similarity=lambda one, other: float(len(other))), tmp_path), "en"
    )

    assert (1.0, -1.0, 3) == (pytest.approx(alike.score), pytest.approx(opposite.score), alike.examples)


async def test_tell_languages(tmp_path):
    """A language that is taken for another, or for none, is wrong."""
    folder = tmp_path / "cls_sib200"
    folder.mkdir()
    for language in ("ca", "de", "en", "es", "eu", "fr", "gl", "it", "pt"):
        texts = f"label\tid\ttext\nx\t1\tone {language}\nx\t2\ttwo {language}\n"
        (folder / f"{language}_dev.tsv").write_text(texts, encoding="utf-8")

    def detected(text):
        return {"gl": "pt", "eu": None}.get(text[-2:], text[-2:])

    (row,) = await evaluate_languages(EvaluationContext(FakeServices(language=detected), tmp_path))

    assert (18, 0.0, 0.0, 1.0) == (row.examples, row.parts["gl"], row.parts["eu"], row.parts["pt"])
    assert 7 / 9 == pytest.approx(row.score)
