"""Evaluates what is asked for in a caller's own words: fields of papers, types of entities, questions.

Papers, and texts with questions, are made of what the bundled weights were fitted on, other ones; types are those of
public sets that the model of labels was not taught.
"""

import random
from collections.abc import Mapping

import numpy as np

from backend.api.routes.answer import MIN_SCORE
from backend.documents.own_fields import OwnFields
from backend.files.pages import Document
from backend.lanes.inference import Urgency
from backend.text.own_labels import read_labels
from backend.training.data.conll import detokenize, entity_spans, keep_types, read_conll
from benchmarks.answers import f1
from benchmarks.evaluation.entities import f1_of
from benchmarks.evaluation.records import OWN_WORDS, Evaluation, EvaluationContext, Row
from benchmarks.fields_scores import calibration
from tools.near_misses import articles
from tools.train_own_matches import HELD_OUT, ask, make_paper, read_kinds

_SEED = 33
_PAPERS, _TEXTS, _SENTENCES = 100, 60, 200
Pairs = list[tuple[float, float]]  # score, and 1 where it is right
# Types that the model was not taught, by set: what the set calls them, names and descriptions.
_TYPES: Mapping[tuple[str, str, str], Mapping[str, tuple[str, str]]] = {
    ("FIRE", "en", "ner_fire/en_fire_dev"): {
        "DESIGNATION": ("job title", "position that a person holds"),
        "SECTOR": ("economic sector", "industry or branch of the economy"),
    },
    ("MEDDOCAN", "es", "ner_meddocan/es_meddocan_dev"): {
        "ADDRESS": ("dirección", "calle y número del domicilio"),
        "AGE": ("edad", "años que tiene una persona"),
        "SEX": ("sexo", "si es hombre o mujer"),
        "PROFESSION": ("profesión", "oficio o trabajo de una persona"),
    },
}


async def fields(context: EvaluationContext) -> list[Row]:
    """F1 of values on made pages, of the kinds that are held out while the network is chosen."""
    services, kinds, rng = context.services, read_kinds(), random.Random(_SEED)
    own = OwnFields(services.embeddings, services.text_work, services.answers)
    pool = range(0, len(kinds), HELD_OUT)
    found, wanted, pairs = 0, 0, Pairs()
    for _ in context.some(range(_PAPERS)):
        paper = make_paper(rng, kinds, pool)
        schema, numbers = ask(rng, kinds, pool, paper)
        answer, _ = await own.find(Document("pdf", (paper.page,), 1, ""), read_labels(schema), Urgency())
        there = {name: paper.printed[number][1] for name, number in numbers.items() if number in paper.printed}
        wanted, found = wanted + len(there), found + len(answer)
        for field in answer:
            said = _plain("".join(value.text for value in field.values))
            printed = _plain("".join(there.get(field.path[-1], [])))
            # A number's unit and the other box of two are no part of the value.
            pairs.append((field.values[0].score, float(bool(said) and said in printed)))
    right = sum(is_right for _, is_right in pairs)
    parts = {"precision": right / max(1, found), "recall": right / wanted, **_error(pairs)}
    return [
        Row(OWN_WORDS, "fields of made papers", "es, en", "F1", 2 * right / (found + wanted), wanted, 0.70, "", parts)
    ]


async def questions(context: EvaluationContext) -> list[Row]:
    """F1 of what a made text says, and how often there is no answer to what it nearly says."""
    answers = context.services.answers
    model = answers.require(None).name
    said, absent, pairs = list[float](), list[bool](), Pairs()
    for article in context.some(articles(_TEXTS, _SEED)):
        [paragraph] = article["paragraphs"]
        text, asked = paragraph["context"], paragraph["qas"]
        result = await answers.answer([one["question"] for one in asked], text, min_score=MIN_SCORE)
        for one, answer in zip(asked, result.answers, strict=True):
            words = text[answer.start : answer.end]
            right = max((f1(words, wanted["text"]) for wanted in one["answers"]), default=0.0)
            if one["answers"]:
                said.append(right)
            else:
                absent.append(answer.absent is not None)
            if answer.absent is None:
                pairs.append((answer.score, right))
    name, share = "questions over made texts", float(np.mean(absent))
    return [
        Row(OWN_WORDS, name, "es, en", "F1", float(np.mean(said)), len(said), 0.60, model, _error(pairs)),
        Row(OWN_WORDS, name, "es, en", "no answer where it is nearly said", share, len(absent), 0.90, model),
    ]


async def types(context: EvaluationContext) -> list[Row]:
    """F1 of exactly equal spans of types that were not taught. Raises: NotMeasured."""
    answers, rows = context.services.answers, list[Row]()
    for (name, language, file), asked in _TYPES.items():
        sentences = keep_types(read_conll(context.file(f"{file}.conll")), tuple(asked))
        some = context.some([sentence for sentence in sentences if sentence.types], _SENTENCES)
        laid_out = [detokenize(sentence.words) for sentence in some]
        labels = dict(asked.values())
        named = {label: kind for kind, (label, _) in asked.items()}
        expected = [entity_spans(sentence.tags, spans) for sentence, (_, spans) in zip(some, laid_out, strict=True)]
        result = await answers.label(labels, [text for text, _ in laid_out])
        found = [{(named[one.type], one.start, one.end): one.score for one in row.entities} for row in result.rows]
        pairs = [
            (score, float(span in right))
            for right, spans in zip(expected, found, strict=True)
            for span, score in spans.items()
        ]
        target = 0.60 if language == "en" else 0.55
        score = f1_of(expected, [set(spans) for spans in found])
        rows.append(
            Row(OWN_WORDS, f"types, {name}", language, "F1", score, len(some), target, result.model, _error(pairs))
        )
    return rows


def _error(pairs: Pairs) -> dict[str, float]:
    return {"calibration error": calibration(pairs)["error"]} if pairs else {}


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


EVALUATIONS = (
    Evaluation(f"{OWN_WORDS}-fields", OWN_WORDS, fields),
    Evaluation(f"{OWN_WORDS}-questions", OWN_WORDS, questions),
    Evaluation(f"{OWN_WORDS}-types", OWN_WORDS, types),
)
