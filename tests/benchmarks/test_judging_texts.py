"""Ranking, likeness and languages: what the judges ask, and what they make of the answers."""

from types import SimpleNamespace

import pytest

from benchmarks.judging.records import Bench
from benchmarks.judging.texts import compare, rank, tell_languages

PARAGRAPHS = ["uno", "dos", "tres", "cuatro"]


class Told:
    """Every service at once, each answering as the test says."""

    def __init__(self, *, cross=None, order=(), similarity=None, language=None):
        self.reranking = self.embeddings = self.analysis = self.catalog = self
        self.cross, self.order, self.say, self.language = cross, order, similarity, language
        self.questions = []

    def of(self, task):
        """The catalog's question for a cross-encoder."""
        return self.cross

    def embedding(self):
        """The catalog's embedding model."""
        return SimpleNamespace(name="told")

    async def rerank(self, query, documents, top_n):
        """Always the same order."""
        self.questions.append((query, list(documents)))
        return SimpleNamespace(results=[SimpleNamespace(index=index) for index in self.order[:top_n]], model="told")

    async def similarity(self, source, sentences):
        """As the test's function says."""
        return [self.say(source, one) for one in sentences], None

    async def analyze(self, text, features):
        """A language, or none."""
        assert tuple(features) == ("language",)
        said = self.language(text)
        return SimpleNamespace(language=said and SimpleNamespace(code=said))


@pytest.fixture
def xquad(tmp_path):
    """Four paragraphs; one question about each of the first two, and 98 more about the first."""
    folder = tmp_path / "retr_xquad"
    folder.mkdir()
    corpus = [f'{{"id": "p{number}", "text": "{text}"}}' for number, text in enumerate(PARAGRAPHS)]
    questions = [f'{{"id": "q{number}", "text": "question {number}"}}' for number in range(100)]
    judged = ["query_id\tdoc_id\trel", *(f"q{number}\tp{int(number == 1)}\t1" for number in range(100))]
    for name, lines in {"es_corpus.jsonl": corpus, "es_queries.jsonl": questions, "qrels.tsv": judged}.items():
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


async def test_rank(xquad):
    """The reciprocal of the place, over all questions: 99 first places of a hundred, one second."""
    told = Told(order=(0, 1, 2, 3))

    (row,) = await rank(Bench(told, xquad), "es")

    assert 0.995 == pytest.approx(row.score)
    assert 0.99 == pytest.approx(row.parts["recall@1"])
    assert [(f"question {number}", PARAGRAPHS) for number in range(100)] == told.questions


async def test_a_cross_encoder_gets_fewer_questions(xquad):
    """It reads every pair; the questions it gets come from all over the set."""
    told = Told(order=(0, 1, 2, 3), cross=object())

    (row,) = await rank(Bench(told, xquad), "es")

    assert 60 == row.examples == len(told.questions)
    assert "question 98" == told.questions[-1][0]


async def test_compare(tmp_path):
    """Only the order of the similarities counts, whatever their scale."""
    (tmp_path / "sts_stsb").mkdir()
    lines = ["score\tsentence1\tsentence2", "0.5\ta\tbbbb", "2.0\ta\tbbb", "4.5\ta\tbb"]
    (tmp_path / "sts_stsb" / "en_stsb_dev.tsv").write_text("\n".join(lines), encoding="utf-8")

    (alike,) = await compare(Bench(Told(similarity=lambda one, other: 1 / len(other) ** 3), tmp_path), "en")
    (opposite,) = await compare(Bench(Told(similarity=lambda one, other: float(len(other))), tmp_path), "en")

    assert (1.0, -1.0, 3) == (pytest.approx(alike.score), pytest.approx(opposite.score), alike.examples)


async def test_tell_languages(tmp_path):
    """A language that is taken for another, or for none, is wrong."""
    folder = tmp_path / "cls_sib200"
    folder.mkdir()
    for language in ("ca", "de", "en", "es", "eu", "fr", "gl", "it", "pt"):
        texts = f"label\tid\ttext\nx\t1\tone {language}\nx\t2\ttwo {language}\n"
        (folder / f"{language}_dev.tsv").write_text(texts, encoding="utf-8")

    def said(text):
        return {"gl": "pt", "eu": None}.get(text[-2:], text[-2:])

    (row,) = await tell_languages(Bench(Told(language=said), tmp_path))

    assert (18, 0.0, 0.0, 1.0) == (row.examples, row.parts["gl"], row.parts["eu"], row.parts["pt"])
    assert 7 / 9 == pytest.approx(row.score)
