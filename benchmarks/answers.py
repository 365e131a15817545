"""Answers to questions over paragraphs, as ``POST /v1/answer`` gives them: F1, abstention, calibration.

    python -m benchmarks.answers xquad.en.json xquad.es.json    # files of github.com/google-deepmind/xquad

Of every fourth article from the fourth on, which neither taught nor calibrated the bundled model: each question over
its own paragraph, over the next one of the article, which counts as one that does not answer it, and over the whole
article. F1 is SQuAD's, of words without articles and punctuation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend.api.routes.answer import MIN_SCORE
from backend.bootstrap.services import build
from backend.config import load_settings
from backend.text.answers import AnswerService
from benchmarks.fields_scores import calibration

_ARTICLES = re.compile(r"\b(a|an|the|el|la|los|las|un|una|unos|unas)\b")
_EVERY, _FIRST = 4, 3
OVER = ("own", "next", "article")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with the words that the service chose, whether or not it answers with them."""

    words: str
    score: float
    rights: tuple[str, ...]  # none: not answered there

    @property
    def f1(self) -> float:
        return max((f1(self.words, right) for right in self.rights), default=0.0)


def f1(words: str, right: str) -> float:
    """Harmonic mean of precision and recall of the words."""
    found, wanted = _words(words), _words(right)
    common = sum((Counter(found) & Counter(wanted)).values())
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


async def ask_all(
    answers: AnswerService, articles: Sequence[dict[str, Any]], over: Sequence[str] = OVER
) -> dict[str, list[Asked]]:
    """What is answered over own paragraphs, over the next ones and over whole articles."""
    asked: dict[str, list[Asked]] = {name: [] for name in over}
    for article in articles:
        paragraphs = article["paragraphs"]
        whole = "\n\n".join(paragraph["context"] for paragraph in paragraphs)
        for index, paragraph in enumerate(paragraphs):
            following = paragraphs[(index + 1) % len(paragraphs)]["context"]
            texts = {"own": paragraph["context"], "next": following, "article": whole}
            for name in over:
                text = texts[name]
                questions = [question["question"] for question in paragraph["qas"]]
                found = await answers.answer(questions, text, min_score=0.0)
                for question, answer in zip(paragraph["qas"], found.answers, strict=True):
                    rights = () if name == "next" else tuple(right["text"] for right in question["answers"])
                    asked[name].append(Asked(text[answer.start : answer.end], answer.score, rights))
    return asked


async def measure(sets: dict[str, Sequence[dict[str, Any]]], least: float) -> None:
    """Print a row a set of articles."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"ner_model": "none", "speech_model": "none", "ocr_engine": "tesseract"}
        services = await build(load_settings(answer_model="bundled", state_dir=Path(folder), **settings))
        try:
            for name, articles in sets.items():
                asked = await ask_all(services.answers, articles)
                print(name, json.dumps(figures(asked, least)))
        finally:
            await services.close()


def figures(asked: dict[str, list[Asked]], least: float) -> dict[str, float]:
    """The row of one file; an answer under the least score counts as none."""
    own, other = asked["own"], asked["next"]
    both = [*own, *other]
    return {
        "questions": len(own),
        "f1": round(float(np.mean([one.f1 for one in own])), 3),
        "exact": round(float(np.mean([one.f1 == 1 for one in own])), 3),
        "f1_with_abstention": round(float(np.mean([one.f1 * (one.score >= least) for one in own])), 3),
        "abstains_right": round(float(np.mean([one.score < least for one in other])), 3),
        "calibration_error": round(calibration([(one.score, one.f1) for one in both])["error"], 3),
        "f1_whole_article": round(float(np.mean([one.f1 for one in asked["article"]])), 3),
    }


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", re.sub(r"[^\w\s]", " ", text.lower())).split()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--first", type=int, default=_FIRST, help="article to begin with; every fourth from there")
    parser.add_argument("--min-score", type=float, default=MIN_SCORE)
    arguments = parser.parse_args()
    articles = {
        file.name: json.loads(file.read_text(encoding="utf-8"))["data"][arguments.first :: _EVERY]
        for file in arguments.files
    }
    asyncio.run(measure(articles, arguments.min_score))
