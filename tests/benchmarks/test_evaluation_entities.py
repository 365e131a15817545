"""Entities in the quality benchmark: conversion between character spans and token tags, and scores."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from backend.text.entity_merge import MODEL, Entity
from backend.training.data.conll import detokenize, entity_spans, read_conll
from benchmarks.evaluation.entities import DATASETS, EntityDataset, evaluate, f1_of, sentences_of, tags_of
from benchmarks.evaluation.records import EvaluationContext
from tools.train_bundled import NER_FIRST, cut

GOLD = "Ana\tB-PER\nPérez\tI-PER\nvive\tO\nen\tO\nLugo\tB-LOC\n.\tO\n\nEl\tO\nTajo\tB-RIVER\n,\tO\nGrupo\tB-GROUP\n"
DATASET = EntityDataset("made", "es", "ner_made", "es_made_dev", 0.5, {"GROUP": "ORG"})
TAGGED = st.lists(
    st.tuples(
        st.sampled_from(["a", "Ñu", ".", "(", "«", "e\u0301", "👍🏽"]), st.sampled_from(["O", "B-X", "I-X", "B-Y"])
    ),
    min_size=1,
)


class FakeEntities:
    """Entities that the test tells, by text; ``model`` None is a service without one."""

    def __init__(self, find, model="told"):
        self.find_in, self.model = find, model
        self.entities = self.catalog = self

    def of(self, _task):
        """The catalog's question."""
        return self.model and SimpleNamespace(name=self.model)

    async def find(self, texts):
        """Entities of each text."""
        return SimpleNamespace(rows=[SimpleNamespace(entities=self.find_in(text)) for text in texts])


def entity(text, words, kind="PER", source=MODEL, shift=0):
    """An entity of these words in a text, or beside them."""
    start = text.index(words) + shift
    return Entity(kind, words, start, start + len(words), 0.9, source)


def find_gold(text):
    """What a perfect service finds in the texts of GOLD."""
    known = {"Ana Pérez": "PER", "Lugo": "LOC", "Grupo": "ORG"}
    return [entity(text, words, kind) for words, kind in known.items() if words in text]


def evaluate_gold(tmp_path, find, dataset=DATASET, **more):
    """The row of the set GOLD."""
    (tmp_path / "ner_made").mkdir(exist_ok=True)
    (tmp_path / "ner_made" / "es_made_dev.conll").write_text(GOLD, encoding="utf-8")
    (row,) = asyncio.run(evaluate(EvaluationContext(FakeEntities(find, **more), tmp_path), dataset))
    return row


@given(TAGGED)
def test_places_and_tags_are_each_others_inverse(tagged):
    """Entities made of tags give the same tags again, whatever stands without a space."""
    words = [word for word, _ in tagged]
    tags = []
    for _, tag in tagged:
        tags.append("B-X" if tag == "I-X" and (not tags or not tags[-1].endswith("X")) else tag)
    text, spans = detokenize(words)

    found = entity_spans(tags, spans)
    entities = [Entity(kind, text[start:end], start, end, 1.0, MODEL) for kind, start, end in found]

    assert tags == tags_of(entities, spans)
    assert f1_of([found], [{(entity.type, entity.start, entity.end) for entity in entities}]) == (1.0 if found else 0.0)


def test_perfect_answers_score_one(tmp_path):
    """Kinds are those of the set under our names; a kind that we do not know does not count."""
    row = evaluate_gold(tmp_path, find_gold)

    assert (1.0, 1.0, 2, "told") == (row.score, row.parts["exact"], row.examples, row.model)
    assert {"PER": 1.0, "LOC": 1.0, "ORG": 1.0} == {kind: row.parts[kind] for kind in ("PER", "LOC", "ORG")}
    assert not row.is_short


def test_what_the_service_tells_apart_counts_as_the_set_has_it(tmp_path):
    """A set whose places include postcodes is right for the service's postcodes."""
    dataset = replace(DATASET, served={"TOWN": "LOC"})

    def find(text):
        return [replace(one, type="TOWN") if one.type == "LOC" else one for one in find_gold(text)]

    assert 1.0 == evaluate_gold(tmp_path, find, dataset=dataset).score
    assert evaluate_gold(tmp_path, find).score < 1.0


def test_nothing_found_scores_nothing(tmp_path):
    """A silent service misses the target."""
    row = evaluate_gold(tmp_path, lambda text: [])

    assert (0.0, 0.0, True) == (row.score, row.parts["exact"], row.is_short)


def test_half_a_word_shows_in_the_exact_score_alone(tmp_path):
    """By tokens, as the field scores, the name is found; its characters are wrong."""
    row = evaluate_gold(tmp_path, lambda text: [entity(text, "Lug", "LOC")] if "Lugo" in text else [])

    assert (0.5, 0.0) == (row.score, row.parts["exact"])


def test_a_wrong_place_is_a_wrong_answer(tmp_path):
    """A name one word further is not that name."""
    row = evaluate_gold(tmp_path, lambda text: [entity(text, "Ana Pérez", shift=4)] if "Ana" in text else [])

    assert (0.0, 0.0) == (row.score, row.parts["exact"])


def test_no_sentence_was_learnt_from(data_dir, tmp_path):
    """What is judged of a training file is what the bundled model's training held out of it, and nothing else."""
    parts_held_out = [part for part in NER_FIRST if part.held_out]
    folders = cut(parts_held_out, data_dir, tmp_path)
    held_out = {file.stem: read_conll(file) for folder in folders for file in folder.glob("*_dev.conll")}

    datasets = [dataset for dataset in DATASETS if "train" in dataset.file]
    assert {part.file for part in parts_held_out} == {dataset.file for dataset in datasets}
    for dataset in datasets:
        sentences = sentences_of(EvaluationContext(FakeEntities(find_gold), data_dir), dataset)
        expected = held_out[dataset.file.replace("_train", "_dev")]
        assert [sentence.words for sentence in expected] == [sentence.words for sentence in sentences]
