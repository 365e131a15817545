"""CoNLL files: sentences and tags, converted schemes, and errors with file and line."""

import pytest

from backend.errors import BadData
from backend.training.data.conll import bio_labels, detokenize, keep_types, read_conll, rename_types

TWO = "La\tO\nSra.\tB-PER\nVega\tI-PER\n\nBilbao\tB-LOC\n"


def write(folder, text: str, name: str = "some.conll"):
    """A file with these bytes, without the platform's line ends."""
    file = folder / name
    file.write_bytes(text.encode())
    return file


def tags(folder, *scheme_tags: str) -> tuple[str, ...]:
    """One sentence's tags as they are read."""
    return read_conll(write(folder, "".join(f"w{place}\t{tag}\n" for place, tag in enumerate(scheme_tags))))[0].tags


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TWO.replace("\n", "\r\n"), id="windows-line-ends"),
        pytest.param("\ufeff" + TWO, id="byte-order-mark"),
        pytest.param(TWO.rstrip("\n"), id="no-line-end-at-the-end"),
        pytest.param("\n\n" + TWO.replace("\n\n", "\n\n \n\n") + "\n\n", id="more-blank-lines"),
        pytest.param("-DOCSTART- -X- O O\n\n" + TWO, id="document-mark"),
        pytest.param("# sent_id = 7\n" + TWO, id="comment"),
        pytest.param(TWO.replace("\t", " NN B-NP "), id="four-columns-with-spaces"),
    ],
)
def test_variants_of_the_format_give_the_same_sentences(tmp_path, text):
    """Line ends, byte order marks, blank lines, comments and column separators do not matter."""
    sentences = read_conll(write(tmp_path, text))

    assert [("La", "Sra.", "Vega"), ("Bilbao",)] == [sentence.words for sentence in sentences]
    assert [("O", "B-PER", "I-PER"), ("B-LOC",)] == [sentence.tags for sentence in sentences]


def test_tokens_with_spaces_and_hashes(tmp_path):
    """Where a line has a tab, only tabs separate: "10 000" and "#" are tokens."""
    sentences = read_conll(write(tmp_path, "#\tO\n10 000\tB-MONEY\n# 4\tO\n"))

    assert [("#", "10 000", "# 4")] == [sentence.words for sentence in sentences]


@pytest.mark.parametrize(
    ("scheme_tags", "expected"),
    [
        pytest.param(("I-PER", "I-PER", "O"), ("B-PER", "I-PER", "O"), id="IOB1"),
        pytest.param(("B-PER", "I-ORG"), ("B-PER", "B-ORG"), id="I-of-another-kind"),
        pytest.param(("S-LOC", "B-PER", "E-PER", "S-PER"), ("B-LOC", "B-PER", "I-PER", "B-PER"), id="BIOES"),
        pytest.param(("U-LOC", "B-PER", "I-PER", "L-PER"), ("B-LOC", "B-PER", "I-PER", "I-PER"), id="BILOU"),
        pytest.param(("B-PER", "E-PER", "I-PER"), ("B-PER", "I-PER", "B-PER"), id="after-the-end-a-new-one"),
        pytest.param(("B-A-1", "I-A-1"), ("B-A-1", "I-A-1"), id="a-kind-with-a-dash"),
    ],
)
def test_other_schemes_become_bio(tmp_path, scheme_tags, expected):
    """Every entity starts with B-, whatever the file's scheme."""
    assert expected == tags(tmp_path, *scheme_tags)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("alone", "a token, a tab and a tag, got 'alone'", id="no-tag"),
        pytest.param("\tB-PER", "a token, a tab and a tag", id="no-token"),
        pytest.param("word\t", "'' is no tag", id="empty-tag"),
        pytest.param("word\tPER", "'PER' is no tag", id="tag-without-B-or-I"),
        pytest.param("word\tB-", "'B-' is no tag", id="tag-without-a-kind"),
    ],
)
def test_a_malformed_line(tmp_path, line, words):
    """The message names file and line, and shows the text."""
    file = write(tmp_path, f"La\tO\n{line}\nVega\tO\n")

    with pytest.raises(BadData) as caught:
        read_conll(file)

    assert str(caught.value).startswith(f"{file}:2: ")
    assert words in str(caught.value)
    assert repr(line) in str(caught.value)


@pytest.mark.parametrize("text", ["\n\n \n", "# only a comment\n", "-DOCSTART- O\n"])
def test_a_file_without_words(tmp_path, text):
    """A file without sentences is an error."""
    with pytest.raises(BadData, match=r"some\.conll has no sentences"):
        read_conll(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    """Absent, a folder, or not UTF-8: each with its reason."""
    (tmp_path / "latin.conll").write_bytes("peña\tO\n".encode("latin-1"))

    with pytest.raises(BadData, match=r"absent\.conll cannot be read: No such file"):
        read_conll(tmp_path / "absent.conll")
    with pytest.raises(BadData, match="cannot be read: Is a directory"):
        read_conll(tmp_path)
    with pytest.raises(BadData, match=r"latin\.conll is not UTF-8: byte 2 is 0xf1"):
        read_conll(tmp_path / "latin.conll")


def test_labels_and_kinds(tmp_path):
    """O first, then each kind's B and I; other kinds can be left out of a set."""
    sentences = read_conll(write(tmp_path, "a\tB-PER\nb\tB-DATE\nc\tI-DATE\n\nd\tB-LOC\n"))

    assert ("O", "B-DATE", "I-DATE", "B-LOC", "I-LOC", "B-PER", "I-PER") == bio_labels(sentences)
    assert [("B-PER", "O", "O"), ("O",)] == [sentence.tags for sentence in keep_types(sentences, ["PER"])]
    with pytest.raises(BadData, match="no entity in 2 sentences"):
        bio_labels(keep_types(sentences, ["MISC"]))


def test_renamed_types(tmp_path):
    """What two sets call differently becomes one; the rest stays."""
    sentences = read_conll(write(tmp_path, "a\tB-GROUP\nb\tI-GROUP\nc\tO\n\nd\tB-LOC\n"))

    renamed = rename_types(sentences, {"GROUP": "ORG", "NONE": "LOC"})
    assert [("B-ORG", "I-ORG", "O"), ("B-LOC",)] == [sentence.tags for sentence in renamed]


def test_words_as_text():
    """Every word stands where its place says; full stops and brackets stand as people write them."""
    words = ["¿", "Pagó", "(", "hoy", ")", "1.284,50", "€", ",", '"', "Iberia", '"', "?"]

    text, spans = detokenize(words)

    assert '¿Pagó (hoy) 1.284,50 €, " Iberia "?' == text
    assert words == [text[start:stop] for start, stop in spans]
