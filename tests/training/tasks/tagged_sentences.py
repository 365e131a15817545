"""Tagged sentences for the tests of token classifiers, in files and in memory."""

from pathlib import Path

from backend.training.data.conll import Sentence
from backend.training.records import TrainingConfig

CONFIG = TrainingConfig(batch_size=16)
LABELS = ("O", "B-DOC", "I-DOC", "B-SUM", "I-SUM")


def conll(folder: Path, *sentences: str, name: str = "train.conll") -> Path:
    """Sentences as "the/O invoice/B-DOC"."""
    blocks = ["\n".join(token.replace("/", "\t") for token in line.split()) for line in sentences]
    file = folder / name
    file.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return file


SENTENCES = [
    f"{article}/O {document}/B-DOC {number}/I-DOC is/O {verb}/O {total}/B-SUM euros/I-SUM"
    for article in ("the", "la")
    for document in ("invoice", "factura")
    for number in ("12", "7", "403")
    for verb in ("due", "total", "de")
    for total in ("5", "68")
]


# The tokenizer lowers them all: only the spelling tells names from words.
CASED = [
    f"{article}/O {document}/{tag} is/O due/O"
    for article in ("the", "la", "de", "total")
    for document, tag in (("Factura", "B-DOC"), ("factura", "O"), ("Importe", "B-DOC"), ("importe", "O"))
]


def sentence(*words: str, tags: str = "") -> Sentence:
    """In memory; all O unless said."""
    tag_list = tuple(tags.split()) or ("O",) * len(words)
    return Sentence(words, tag_list, "here:1")
