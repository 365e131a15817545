"""Names found by characters, scored by tokens: nothing is gained or lost on the way."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.documents.entities import MODEL, PATTERN, Entity
from backend.training.data.conll import as_text, read_conll
from benchmarks.judging.names import SETS, NameSet, f1_of, judge, sentences_of, spans_of, tags_of
from benchmarks.judging.records import Bench, Unmeasured
from tools.train_bundled import NER_FIRST, cut

GOLD = "Ana\tB-PER\nPérez\tI-PER\nvive\tO\nen\tO\nLugo\tB-LOC\n.\tO\n\nEl\tO\nTajo\tB-RIVER\n,\tO\nGrupo\tB-GROUP\n"
SET = NameSet("made", "es", "ner_made", "es_made_dev", 0.5, {"GROUP": "ORG"})
TAGGED = st.lists(
    st.tuples(
        st.sampled_from(["a", "Ñu", ".", "(", "«", "e\u0301", "👍🏽"]), st.sampled_from(["O", "B-X", "I-X", "B-Y"])
    ),
    min_size=1,
)


class Finder:
    """Entities that the test tells, by text; ``model`` None is a service without one."""

    def __init__(self, find, model="told"):
        self.find_in, self.model = find, model
        self.entities = self.catalog = self

    def ner(self):
        """The catalog's question."""
        return self.model and SimpleNamespace(name=self.model)

    async def find(self, texts):
        """The service's answer."""
        return SimpleNamespace(rows=[SimpleNamespace(entities=self.find_in(text)) for text in texts])


def entity(text, words, kind="PER", source=MODEL, shift=0):
    """An entity of these words in a text, or beside them."""
    start = text.index(words) + shift
    return Entity(kind, words, start, start + len(words), 0.9, source)


def told(text):
    """What a perfect service finds in the texts of GOLD."""
    known = {"Ana Pérez": "PER", "Lugo": "LOC", "Grupo": "ORG"}
    return [entity(text, words, kind) for words, kind in known.items() if words in text]


def judged(tmp_path, find, **more):
    """The row of the set GOLD."""
    (tmp_path / "ner_made").mkdir(exist_ok=True)
    (tmp_path / "ner_made" / "es_made_dev.conll").write_text(GOLD, encoding="utf-8")
    (row,) = asyncio.run(judge(Bench(Finder(find, **more), tmp_path), SET))
    return row


@given(TAGGED)
def test_places_and_tags_are_each_others_inverse(tagged):
    """Entities made of tags give the same tags again, whatever stands without a space."""
    words = [word for word, _ in tagged]
    tags = []
    for _, tag in tagged:
        tags.append("B-X" if tag == "I-X" and (not tags or not tags[-1].endswith("X")) else tag)
    text, places = as_text(words)

    spans = spans_of(tags, places)
    found = [Entity(kind, text[start:end], start, end, 1.0, MODEL) for kind, start, end in spans]

    assert tags == tags_of(found, places)
    assert f1_of([spans], [{(one.type, one.start, one.end) for one in found}]) == (1.0 if spans else 0.0)


def test_perfect_answers_score_one(tmp_path):
    """Kinds are those of the set under our names; a kind that we do not know does not count."""
    row = judged(tmp_path, told)

    assert (1.0, 1.0, 2, "told") == (row.score, row.parts["exact"], row.examples, row.model)
    assert {"PER": 1.0, "LOC": 1.0, "ORG": 1.0} == {kind: row.parts[kind] for kind in ("PER", "LOC", "ORG")}
    assert not row.is_short


def test_nothing_found_scores_nothing(tmp_path):
    """A silent service misses the target."""
    row = judged(tmp_path, lambda text: [])

    assert (0.0, 0.0, True) == (row.score, row.parts["exact"], row.is_short)


def test_half_a_word_shows_in_the_exact_score_alone(tmp_path):
    """By tokens, as the field scores, the name is found; its characters are wrong."""
    row = judged(tmp_path, lambda text: [entity(text, "Lug", "LOC")] if "Lugo" in text else [])

    assert (0.5, 0.0) == (row.score, row.parts["exact"])


def test_a_wrong_place_is_a_wrong_answer(tmp_path):
    """A name one word further is not that name."""
    row = judged(tmp_path, lambda text: [entity(text, "Ana Pérez", shift=4)] if "Ana" in text else [])

    assert (0.0, 0.0) == (row.score, row.parts["exact"])


def test_kinds_that_the_set_has_not_are_left_out(tmp_path):
    """What patterns find, or a model of more kinds, is neither right nor wrong here."""
    others = lambda text: [*told(text), entity(text, text[:2], "DATE", PATTERN)]  # noqa: E731

    assert judged(tmp_path, others).score == 1.0


def test_a_set_or_a_model_that_is_absent_is_said(tmp_path):
    """Not a score of nothing."""
    with pytest.raises(Unmeasured, match="no model"):
        judged(tmp_path, told, model=None)
    with pytest.raises(Unmeasured, match=r"ner_ancora_es/es_ancora_dev\.conll is not"):
        sentences_of(Bench(Finder(told), tmp_path), next(one for one in SETS if one.name == "AnCora"))


def test_no_sentence_was_learnt_from(data_dir, tmp_path):
    """What is judged of a training file is what the bundled model's training held out of it, and nothing else."""
    held = [part for part in NER_FIRST if part.held_out]
    folders = cut(held, data_dir, tmp_path)
    kept = {file.stem: read_conll(file) for folder in folders for file in folder.glob("*_dev.conll")}

    judged_here = [one for one in SETS if "train" in one.file]
    assert {part.file for part in held} == {one.file for one in judged_here}
    for one in judged_here:
        sentences = sentences_of(Bench(Finder(told), data_dir), one)
        assert [one.words for one in kept[one.file.replace("_train", "_dev")]] == [one.words for one in sentences]
