"""Labelled texts and groups of texts from files: parsing, splits, and errors with file and line."""

import json

import pytest

from backend.errors import BadData
from backend.training.data.texts import (
    LabelledText,
    TextGroup,
    files_of,
    hold_out,
    is_retrieval,
    read_groups,
    read_labelled,
    read_split,
)


def tsv(folder, *lines: str, name: str = "some.tsv"):
    file = folder / name
    file.write_bytes("\n".join(lines).encode())
    return file


def jsonl(folder, *rows: object, name: str = "some.jsonl"):
    return tsv(folder, *(row if isinstance(row, str) else json.dumps(row) for row in rows), name=name)


def test_labelled_tsv(tmp_path):
    """Fields by the header's names; quotes are characters; other columns are left alone."""
    file = tsv(tmp_path, "label\tid\ttext", 'invoice\t1\tTotal "due', "", "letter\t2\tDear Sir\r", "")

    expected = [
        LabelledText('Total "due', ("invoice",), f"{file}:2"),
        LabelledText("Dear Sir", ("letter",), f"{file}:4"),
    ]
    assert expected == read_labelled(file)


def test_labelled_json_lines(tmp_path):
    """A class may be a number; a text may have several classes or none."""
    file = jsonl(
        tmp_path,
        {"text": "a", "label": 3},
        {"text": "b", "labels": ["x", "y", "x"]},
        {"text": "c", "labels": []},
        {"text": "d", "labels": "x|z"},
    )

    rows = read_labelled(file)
    assert [("3",), ("x", "y"), (), ("x", "z")] == [row.labels for row in rows]
    assert [False, True, True, True] == [row.multiple for row in rows]


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        pytest.param("a.tsv", ["label\ttext", "x\ta\tb"], "a.tsv:2: expected 2 fields, got 3", id="too-many-fields"),
        pytest.param("a.tsv", ["label\ttext", "x"], "a.tsv:2: expected 2 fields, got 1", id="too-few-fields"),
        pytest.param("a.tsv", ["label\ttext", "x\t "], "a.tsv:2: expected a text in the field 'text'", id="no-text"),
        pytest.param("a.tsv", ["label\ttext", "\ta"], "a.tsv:2: expected a field 'label'", id="no-label"),
        pytest.param("a.tsv", ["text"], "a.tsv:1: expected a header", id="one-column"),
        pytest.param("a.tsv", ["text\ttext", "a\tb"], "a.tsv:1: expected a header of different names", id="twice"),
        pytest.param("a.tsv", [""], "a.tsv:1: expected a header", id="empty"),
        pytest.param("a.jsonl", ['{"text": "a"'], "a.jsonl:1: not JSON", id="broken-json"),
        pytest.param("a.jsonl", ["", "[1]"], "a.jsonl:2: expected an object", id="a-list"),
        pytest.param("a.jsonl", ['{"text": 5, "label": "x"}'], "'text', got 5", id="text-is-a-number"),
        pytest.param("a.jsonl", ['{"text": "a", "label": null}'], "'label' (or 'labels')", id="label-is-null"),
        pytest.param("a.jsonl", ['{"text": "a", "labels": [["x"]]}'], "'labels' must be a list", id="nested-labels"),
        pytest.param("a.csv", ["label,text", "x,a"], "expected a .tsv or .jsonl file", id="another-format"),
    ],
)
def test_malformed_files(tmp_path, name, lines, words):
    """File, line, and what was expected."""
    with pytest.raises(BadData) as caught:
        read_labelled(tsv(tmp_path, *lines, name=name))

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(["anchor\tpositive", "a\tb"], (("a", "b"), None), id="pair"),
        pytest.param(["en\tes", "hi\thola"], (("hi", "hola"), None), id="two-languages"),
        pytest.param(["positive\tanchor\tnegative", "b\ta\tc"], (("a", "b", "c"), None), id="triplet-in-any-order"),
        pytest.param(["score\tsentence1\tsentence2", "4.5\ta\tb"], (("a", "b"), 4.5), id="scored"),
        pytest.param(["id\tquestion\tanswer", "1\ta\tb"], (("a", "b"), None), id="more-columns"),
    ],
)
def test_groups(tmp_path, lines, expected):
    """The fields' names tell pairs, scores and triplets apart."""
    file = tsv(tmp_path, *lines)

    assert [TextGroup(*expected, f"{file}:2")] == read_groups(file)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(["a\tb\tc", "1\t2\t3"], "some.tsv:2: the fields a, b, c are no pair", id="strange-names"),
        pytest.param(["anchor\tpositive", "a\t"], "some.tsv:2: expected a text in the field 'positive'", id="half"),
        pytest.param(
            ["sentence1\tsentence2\tscore", "a\tb\thigh"], "expected a number in the field 'score'", id="word"
        ),
        pytest.param(["sentence1\tsentence2\tscore", "a\tb\tnan"], "expected a number", id="nan"),
    ],
)
def test_malformed_groups(tmp_path, lines, words):
    """The errors name file, line and field."""
    with pytest.raises(BadData, match=words):
        read_groups(tsv(tmp_path, *lines))


def test_queries_and_judgements(tmp_path):
    """Each judged query with each of its texts, in every language; judgements of 0 and of absent texts say nothing."""
    for language in ("en", "es"):
        jsonl(tmp_path, {"id": "q1", "text": f"{language} query"}, name=f"{language}_queries.jsonl")
        rows = [{"id": name, "text": f"{language} {name}"} for name in ("d1", "d2", "d3")]
        jsonl(tmp_path, *rows, name=f"{language}_corpus.jsonl")
    tsv(tmp_path, "query_id\tdoc_id\trel", "q1\td1\t1", "q1\td2\t0", "q1\td3\t2", "q2\td1\t1", name="qrels.tsv")

    expected = [("en query", "en d1"), ("en query", "en d3"), ("es query", "es d1"), ("es query", "es d3")]
    assert is_retrieval(tmp_path)
    assert expected == [row.texts for row in read_groups(tmp_path)]


def test_files_of_a_folder(tmp_path):
    """Names say what is for evaluation, as whole words only; other files are left alone."""
    names = ["en_train.tsv", "es_dev.tsv", "test.tsv", "latest.tsv", "devices.tsv", "SOURCE.md", "x.validation.tsv"]
    for name in names:
        tsv(tmp_path, "label\ttext", name=name)

    training, evaluation = files_of(tmp_path, (".tsv",))

    assert ["devices.tsv", "en_train.tsv", "latest.tsv"] == [file.name for file in training]
    assert ["es_dev.tsv", "test.tsv", "x.validation.tsv"] == [file.name for file in evaluation]


def test_nothing_to_learn_from(tmp_path):
    """An absent path, an empty folder, and a folder with evaluation files alone."""
    with pytest.raises(BadData, match=r"absent does not exist; give a file \(\.tsv\)"):
        files_of(tmp_path / "absent", (".tsv",))
    with pytest.raises(BadData, match="has no \\.tsv file to learn from, only 0"):
        files_of(tmp_path, (".tsv",))
    tsv(tmp_path, "label\ttext", name="dev.tsv")
    with pytest.raises(BadData, match="only 1 to evaluate on"):
        files_of(tmp_path, (".tsv",))
    assert ([], [tmp_path / "dev.tsv"]) == files_of(tmp_path, (".tsv",), any_name=True)


def test_copies_stay_together_and_classes_in_balance():
    """What is held out has no copy among the rest, and its share of each class."""
    texts = [f"text {number % 50}" for number in range(200)]
    classes = ["a" if number % 50 < 40 else "b" for number in range(200)]

    kept = hold_out(texts, share=0.2, seed=1, strata=classes)

    rest = set(range(200)) - set(kept)
    assert not {texts[index] for index in kept} & {texts[index] for index in rest}
    assert [32, 8] == [sum(classes[index] == name for index in kept) for name in "ab"]
    assert kept == hold_out(texts, share=0.2, seed=1, strata=classes)
    assert kept != hold_out(texts, share=0.2, seed=2, strata=classes)


def test_evaluation_comes_from_its_own_file_first(tmp_path):
    """A given file, else the folder's, else a share of the training examples."""
    rows = [f"x\ttext {number}" for number in range(20)]
    train = tsv(tmp_path, "label\ttext", *rows, name="train.tsv")
    (tmp_path / "other").mkdir()
    other = tsv(tmp_path / "other", "label\ttext", "x\tother", name="dev.tsv")

    def split(data, evaluation=None, held_out=0.1):
        rows = read_split(
            data, evaluation, read_labelled, suffixes=(".tsv",), held_out=held_out, group=lambda row: row.text
        )
        return [len(part) for part in rows]

    assert [18, 2] == split(train)
    assert [20, 0] == split(train, held_out=0)
    assert [20, 1] == split(train, other)
    tsv(tmp_path, "label\ttext", "x\tone", "x\ttwo", "x\tthree", name="dev.tsv")
    assert [20, 3] == split(tmp_path)
    assert [20, 1] == split(tmp_path, other)
