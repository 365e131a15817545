"""What is asked for in own words, in the quality benchmark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.text.answers import Answer
from benchmarks.evaluation.own_words import questions, types
from benchmarks.evaluation.records import EvaluationContext
from tools.near_misses import articles

TOLD = {
    (paragraph["context"], one["question"]): one["answers"]
    for article in articles(60, 33)
    for paragraph in article["paragraphs"]
    for one in paragraph["qas"]
}


class Knowing:
    """Answers as the made texts say, and names every number an age."""

    def require(self, model: str | None, task: str = "") -> Any:
        return SimpleNamespace(name="knowing")

    async def answer(self, asked: list[str], text: str, **_: Any) -> Any:
        answers = []
        for question in asked:
            places = [(one["answer_start"], len(one["text"])) for one in TOLD[text, question]]
            found = [Answer(start, start + length, 1.0) for start, length in places]
            answers += found or [Answer(0, 0, 0.1, "not_there")]
        return SimpleNamespace(answers=answers, model="knowing")

    async def label(self, labels: dict[str, str], texts: list[str]) -> Any:
        rows = [
            SimpleNamespace(
                entities=[
                    SimpleNamespace(type=label, start=text.index(word), end=text.index(word) + len(word), score=1.0)
                    for label in labels
                    if label in ("edad", "job title")
                    for word in text.split()
                    if word.isdigit() or word == "director"
                ]
            )
            for text in texts
        ]
        return SimpleNamespace(rows=rows, model="knowing")


@pytest.fixture
def context(tmp_path: Path) -> EvaluationContext:
    for file, lines in (
        ("ner_fire/en_fire_dev", "the\tO\ndirector\tB-DESIGNATION\nof\tO\nbanking\tB-SECTOR\n"),
        ("ner_meddocan/es_meddocan_dev", "tiene\tO\n40\tB-AGE\naños\tI-AGE\n\ncon\tO\n7\tB-AGE\n"),
    ):
        path = tmp_path / f"{file}.conll"
        path.parent.mkdir()
        path.write_text(lines, encoding="utf-8")
    services: Any = SimpleNamespace(answers=Knowing())
    return EvaluationContext(services, tmp_path)


async def test_questions(context: EvaluationContext) -> None:
    """Of what is answered rightly all is right, and so is that nothing else is."""
    assert [1.0, 1.0] == [row.score for row in await questions(context)]


async def test_types(context: EvaluationContext) -> None:
    """Spans count that are exactly equal, of one's own types."""
    assert [2 / 3, 0.5] == pytest.approx([row.score for row in await types(context)])
