"""Made sentences of business papers: the same for the same seed, tagged as the data sets are, cut as serving cuts."""

from pathlib import Path

from backend.models.words import word_places
from backend.training.data.conll import detokenize, read_conll
from tools import made_names


def names(tagged: made_names.Tagged) -> list[tuple[str, str]]:
    """Type and words of each name."""
    found: list[tuple[str, str]] = []
    for word, tag in tagged:
        if tag.startswith("I-"):
            kind, words = found.pop()
            assert kind == tag[2:], "an I- tag continues a name of its own type"
            found.append((kind, f"{words} {word}"))
        elif tag != "O":
            found.append((tag[2:], word))
    return found


def test_a_seed_gives_the_same_sentences():
    """Another seed gives others."""
    assert made_names.sentences(50, 1) == made_names.sentences(50, 1)
    assert made_names.sentences(50, 1) != made_names.sentences(50, 2)


def test_what_the_public_sets_lack_is_there():
    """Legal forms inside of companies, surnames first, names in capitals, places; and sentences without any name."""
    sentences = made_names.sentences(800, 3)
    found = [name for tagged in sentences for name in names(tagged)]

    assert {"PER", "ORG", "LOC"} == {kind for kind, _ in found}
    for form in (", S.L.", " S.A.U.", " GmbH", " S . Coop ."):
        assert any(kind == "ORG" and words.endswith(form) for kind, words in found), form
    assert any(kind == "PER" and " , " in words and words.isupper() for kind, words in found)
    assert 20 < sum(not names(tagged) for tagged in sentences) < 200


def test_words_are_those_of_serving():
    """Joined to a text and cut again, nearly every sentence has the same words: a label meets the token it is of."""
    sentences = made_names.sentences(200, 4)

    same = 0
    for tagged in sentences:
        text, spans = detokenize([word for word, _ in tagged])
        same += [tuple(span) for span in word_places(text).tolist()] == spans
    assert same / len(sentences) > 0.95  # "S. L." of a detokenized "S. Coop." may join


def test_the_file_is_one_that_the_training_reads(tmp_path: Path):
    """With its licence beside it."""
    file = tmp_path / "made" / "es_made_train.conll"

    made_names.write(file, 20, seed=5)

    assert 20 == len(read_conll(file))
    assert "MIT" in (file.parent / "SOURCE.md").read_text(encoding="utf-8")
