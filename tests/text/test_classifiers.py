"""The registry of classifiers: names, persistence, and what a crash, a full disk or another model leaves."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.callers.callers import read_key_ring
from backend.errors import Forbidden, InvalidField, ModelUnavailable, TooLarge, Unavailable, UnknownModel
from backend.models.classifier_head import NONE, ClassifierHead, write_head
from backend.models.fingerprint import EncoderIdentity
from backend.text import classifier_files
from backend.text.classifier_files import Example, read_examples, write_folder
from backend.text.classifiers import CLASSIFIERS_DIR, ClassifierRegistry, check_examples
from tests.tiny_models import rewrite

SHA = "a" * 64
OTHER = "b" * 64
EXAMPLES = [Example("una factura", ("bill",)), Example("\ud83d alone, \u202eright to left", ("letter",))]


def random_head(*labels: str, sha256: str = SHA, seed: int = 0) -> ClassifierHead:
    weight = np.random.default_rng(seed).normal(size=(len(labels), 4)).astype(np.float32)
    return ClassifierHead(labels, False, weight, np.zeros(len(labels), np.float32), "bundled", sha256)


@pytest.fixture
def bundled(tmp_path) -> Path:
    folder = tmp_path / "bundled" / "document-type"
    folder.mkdir(parents=True)
    write_head(folder, random_head("invoice", "contract"))
    return folder.parent


def started(tmp_path: Path, bundled: Path, sha256: str = SHA, **more) -> ClassifierRegistry:
    registry = ClassifierRegistry(tmp_path / "state", EncoderIdentity(sha256, ""), bundled, **more)
    registry.start()
    return registry


def test_saving_again_replaces(tmp_path, bundled):
    """The newest replaces the old one; no other folder is left."""
    registry = started(tmp_path, bundled)
    registry.save("tickets", random_head("bill", "letter"), EXAMPLES)

    registry.save("tickets", random_head("red", "blue"), EXAMPLES[:1])

    assert ("red", "blue") == registry.find("tickets").head.labels
    assert EXAMPLES[:1] == registry.examples("tickets")
    assert ["tickets"] == [folder.name for folder in (tmp_path / "state" / CLASSIFIERS_DIR).iterdir()]


def test_another_embedding_model(tmp_path, bundled):
    """Heads of another encoder are unusable; trained ones are stale until they are retrained."""
    started(tmp_path, bundled).save("tickets", random_head("bill", "letter"), EXAMPLES)

    registry = started(tmp_path, bundled, OTHER)

    assert [] == registry.names()
    assert ["tickets"] == registry.stale()
    assert EXAMPLES == registry.examples("tickets")
    with pytest.raises(UnknownModel):
        registry.find("document-type")
    with pytest.raises(Unavailable, match="learnt again") as waiting:
        registry.find("tickets")
    assert waiting.value.retryable
    registry.save("tickets", random_head("bill", "letter", sha256=OTHER), EXAMPLES)
    assert (["tickets"], []) == (registry.names(), registry.stale())


def test_the_same_weights_with_other_settings(tmp_path, bundled, caplog):
    """Heads of another fingerprint are unusable though the weights are the same; a configured one stops the start."""
    registry = started(tmp_path, bundled)
    registry.use_encoder(EncoderIdentity(SHA, "c" * 64))
    head = replace(random_head("bill", "letter"), encoder_fingerprint="c" * 64)
    registry.save("tickets", head, EXAMPLES)
    assert ("c" * 64, []) == (registry.find("tickets").head.encoder_fingerprint, registry.stale())

    registry.use_encoder(EncoderIdentity(SHA, "d" * 64))

    assert (["document-type"], ["tickets"]) == (registry.names(), registry.stale())
    with pytest.raises(Unavailable, match="learnt again"):
        registry.find("tickets")
    registry.configured = [tmp_path / "state" / CLASSIFIERS_DIR / "tickets"]
    with pytest.raises(ModelUnavailable, match=r"c{12}, but .* is d{12}: the weights are the same, its tokenizer"):
        registry.start()


def test_heads_older_than_fingerprints(tmp_path, bundled, caplog):
    """Of these weights, they serve on: learnt ones until they are learnt again, a configured one with a warning."""
    started(tmp_path, bundled).save("tickets", random_head("bill", "letter"), EXAMPLES)
    folder = tmp_path / "mine"
    folder.mkdir()
    write_head(folder, replace(random_head("bill", "letter"), name="mail"))
    rewrite(folder / "head.json", encoder_fingerprint=...)

    registry = ClassifierRegistry(tmp_path / "state", EncoderIdentity(SHA, "c" * 64), bundled, configured=[folder])
    registry.start()

    assert ["document-type", "mail", "tickets"] == registry.names()
    assert ["tickets"] == registry.stale()
    assert 1 == caplog.text.count("a classifier is accepted by the weights alone")


def test_a_broken_head_is_stale(tmp_path, bundled):
    """Reported and stale, as its examples are readable."""
    started(tmp_path, bundled).save("tickets", random_head("bill", "letter"), EXAMPLES)
    (tmp_path / "state" / CLASSIFIERS_DIR / "tickets" / "head.safetensors").write_bytes(b"broken")

    registry = started(tmp_path, bundled)

    assert (["document-type"], ["tickets"]) == (registry.names(), registry.stale())
    assert "tickets" in registry.faults[0]


@pytest.mark.parametrize("content", [b"", b"{", b'{"text": 1}\n', b"\xff\xfe"], ids=["none", "half", "fields", "bytes"])
def test_an_unreadable_classifier_is_skipped(tmp_path, bundled, content):
    """It is listed with its reason and can be replaced by saving over it."""
    first = started(tmp_path, bundled)
    first.save("good", random_head("a", "b"), EXAMPLES)
    broken = tmp_path / "state" / CLASSIFIERS_DIR / "tickets"
    broken.mkdir()
    if content:
        (broken / "examples.jsonl").write_bytes(content)

    registry = started(tmp_path, bundled)

    assert ["document-type", "good"] == registry.names()
    assert [] == registry.stale()
    assert registry.faults[0].startswith("tickets: ")
    registry.save("tickets", random_head("bill", "letter"), EXAMPLES)
    assert ["document-type", "good", "tickets"] == started(tmp_path, bundled).names()


def test_weights_of_another_head(tmp_path, bundled):
    """Mixed files of two heads are found by the version."""
    registry = started(tmp_path, bundled)
    registry.save("one", random_head("bill", "letter", seed=1), EXAMPLES)
    registry.save("two", random_head("bill", "letter", seed=2), EXAMPLES)
    folder = tmp_path / "state" / CLASSIFIERS_DIR
    (folder / "one" / "head.safetensors").write_bytes((folder / "two" / "head.safetensors").read_bytes())

    again = started(tmp_path, bundled)

    assert ["one"] == again.stale()
    assert "version" in again.faults[0]


def test_a_crash_between_two_renames(tmp_path, bundled):
    """The old classifier is restored."""
    started(tmp_path, bundled).save("tickets", random_head("bill", "letter"), EXAMPLES)
    folder = tmp_path / "state" / CLASSIFIERS_DIR
    (folder / "tickets").rename(folder / ".tickets.old")
    (folder / ".tickets.abc").mkdir()  # what was being written

    registry = started(tmp_path, bundled)

    assert "tickets" in registry.names()
    assert [] == registry.faults


def test_a_crash_after_the_second_rename(tmp_path, bundled):
    """The new classifier stays and the old one is removed."""
    registry = started(tmp_path, bundled)
    registry.save("tickets", random_head("red", "blue"), EXAMPLES)
    write_folder(tmp_path / "state" / CLASSIFIERS_DIR, "older", random_head("bill", "letter"), EXAMPLES)
    folder = tmp_path / "state" / CLASSIFIERS_DIR
    (folder / "older").rename(folder / ".tickets.old")

    again = started(tmp_path, bundled)

    assert ("red", "blue") == again.find("tickets").head.labels
    assert ["tickets"] == [path.name for path in folder.iterdir()]


def test_a_full_disk_changes_nothing(tmp_path, bundled, monkeypatch):
    """The old classifier stays in use, and the error is retryable."""
    registry = started(tmp_path, bundled)
    registry.save("tickets", random_head("bill", "letter"), EXAMPLES)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(classifier_files, "_write_examples", full)
    with pytest.raises(Unavailable, match="No space left on device"):
        registry.save("tickets", random_head("red", "blue"), EXAMPLES)

    assert ("bill", "letter") == registry.find("tickets").head.labels
    assert ("bill", "letter") == started(tmp_path, bundled).find("tickets").head.labels
    assert ["tickets"] == [folder.name for folder in (tmp_path / "state" / CLASSIFIERS_DIR).iterdir()]


def test_a_swap_that_fails_half_way(tmp_path, monkeypatch):
    """The old folder is moved back."""
    write_folder(tmp_path, "tickets", random_head("bill", "letter"), EXAMPLES)
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if target.name == "tickets" and not self.name.endswith(".old"):
            raise OSError(errno.EIO, "I/O error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(OSError, match="I/O error"):
        write_folder(tmp_path, "tickets", random_head("red", "blue"), EXAMPLES[:1])

    assert EXAMPLES == read_examples(tmp_path / "tickets")
    assert ["tickets"] == [folder.name for folder in tmp_path.iterdir()]


def test_a_configured_head(tmp_path, bundled):
    """It is known by its own name; one of another encoder, or a broken one, stops the start."""
    folder = tmp_path / "mine"
    folder.mkdir()
    write_head(folder, replace(random_head("bill", "letter"), name="mail"))

    assert ["document-type", "mail"] == started(tmp_path, bundled, configured=[folder]).names()
    with pytest.raises(
        ModelUnavailable, match=r"mine was trained on vectors of a{12}, but the embedding model is b{12}"
    ):
        started(tmp_path, bundled, OTHER, configured=[folder])
    with pytest.raises(ModelUnavailable, match="no classifier head"):
        started(tmp_path, bundled, configured=[tmp_path])


@pytest.mark.parametrize("name", ["", "A", "-a", "a/b", "..", ".a", "a" * 65, "ñ", "a b", "a\n"])
def test_invalid_names(tmp_path, bundled, name):
    """Nothing reaches the disk."""
    registry = started(tmp_path, bundled)

    with pytest.raises(InvalidField, match="cannot be a classifier's"):
        registry.save(name, random_head("bill", "letter"), EXAMPLES)
    assert not (tmp_path / "state").exists()


def test_the_number_is_limited(tmp_path, bundled, monkeypatch):
    """At the limit a known name may still be replaced."""
    monkeypatch.setattr("backend.text.classifiers.CLASSIFIERS_MAX", 1)
    registry = started(tmp_path, bundled)
    registry.save("one", random_head("bill", "letter"), EXAMPLES)

    registry.save("one", random_head("red", "blue"), EXAMPLES)
    with pytest.raises(InvalidField, match="forget one first"):
        registry.save("two", random_head("bill", "letter"), EXAMPLES)


@pytest.mark.parametrize(
    ("examples", "multiple", "words"),
    [
        pytest.param([], False, "none given", id="none"),
        pytest.param([Example("a", ("x",))], False, "1 label; at least two", id="one-label"),
        pytest.param([Example(" \n", ("x",))], False, r"\[0\]: the text is empty", id="empty-text"),
        pytest.param([Example("a", ("x",)), Example("a", ("y",))], False, r"\[1\]: the same text", id="conflict"),
        pytest.param([Example("a", ("x", "y"))], False, "2 labels; one is needed", id="two-of-one"),
        pytest.param([Example("a", ())], False, "0 labels; one is needed", id="none-of-one"),
        pytest.param([Example("a", ("x", "x"))], True, "given twice", id="twice"),
        pytest.param([Example("a", ("",))], True, "cannot be a label", id="empty-label"),
        pytest.param([Example("a", ("x" * 201,))], True, "cannot be a label", id="long-label"),
        pytest.param([Example("a", (NONE,))], True, "no label at all instead", id="none-of-several"),
        pytest.param([Example("a", ())], True, "0 label", id="labels-nowhere"),
    ],
)
def test_invalid_examples(examples, multiple, words):
    """The error names the example and its fault."""
    with pytest.raises(InvalidField, match=words):
        check_examples(examples, multiple=multiple)


def test_limits_of_examples():
    """1000 labels, 10,000 examples."""
    with pytest.raises(TooLarge, match="labels: 1001 is over the limit of 1000"):
        check_examples([Example(f"text {number}", (f"{number}",)) for number in range(1001)], multiple=False)
    with pytest.raises(TooLarge, match="examples: 10001"):
        check_examples([Example("a", ("x",))] * 10_001, multiple=True)


def test_labels_in_the_order_of_examples():
    """``(none)`` is not a label; with it one label is enough."""
    examples = [Example("a", ("z",)), Example("b", (NONE,)), Example("c", ("y",)), Example("d", ("z",))]

    assert ["z", "y"] == check_examples(examples, multiple=False)
    assert ["z"] == check_examples(examples[:2], multiple=False)
    assert ["z", "y"] == check_examples([Example("a", ("z", "y")), Example("b", ())], multiple=True)


def test_the_examples_file_is_readable_by_training(tmp_path):
    """JSON lines with text and labels."""
    write_folder(tmp_path, "tickets", random_head("bill", "letter"), EXAMPLES)

    rows = [json.loads(line) for line in (tmp_path / "tickets" / "examples.jsonl").read_text().splitlines()]

    assert [{"text": example.text, "labels": list(example.labels)} for example in EXAMPLES] == rows


TEAM, OTHER_TEAM, ADMIN = read_key_ring(("team=one", "other=two"), ("ops=three",)).callers


def test_a_classifier_belongs_to_who_taught_it(tmp_path, bundled):
    """Others may use it; to replace or delete it takes its owner, or an admin. A restart changes nothing."""
    started(tmp_path, bundled).save("tickets", random_head("bill", "letter"), EXAMPLES, TEAM)
    registry = started(tmp_path, bundled)

    assert "tickets" == registry.find("tickets").name
    with pytest.raises(Forbidden, match="choose another name"):
        registry.save("tickets", random_head("red", "blue"), EXAMPLES, OTHER_TEAM)
    with pytest.raises(Forbidden):
        registry.delete("tickets", OTHER_TEAM)
    assert ("bill", "letter") == started(tmp_path, bundled).find("tickets").head.labels
    registry.save("tickets", random_head("red", "blue"), EXAMPLES, TEAM)
    registry.delete("tickets", TEAM)
    assert "tickets" not in registry.names()


def test_an_admin_changes_any_classifier(tmp_path, bundled):
    """What an admin replaces still belongs to who taught it first."""
    registry = started(tmp_path, bundled)
    registry.save("tickets", random_head("bill", "letter"), EXAMPLES, TEAM)
    registry.save("tickets", random_head("red", "blue"), EXAMPLES, ADMIN)
    registry.save("tickets", random_head("up", "down"), EXAMPLES, TEAM)
    registry.delete("tickets", ADMIN)

    assert "tickets" not in registry.names()


def test_classifiers_of_nobody(tmp_path, bundled):
    """Those of earlier versions, and those taught while there were no keys: anybody uses, an admin changes them."""
    registry = started(tmp_path, bundled)
    registry.save("tickets", random_head("bill", "letter"), EXAMPLES)
    registry = started(tmp_path, bundled)

    with pytest.raises(Forbidden):
        registry.delete("tickets", TEAM)
    registry.save("tickets", random_head("red", "blue"), EXAMPLES, ADMIN)
    registry.delete("tickets")  # without keys in the settings: as ever


def test_an_owner_outlives_a_broken_head(tmp_path, bundled):
    """A head that is learnt again from its examples, at a start or for another model, keeps its owner."""
    started(tmp_path, bundled).save("tickets", random_head("bill", "letter"), EXAMPLES, TEAM)
    (tmp_path / "state" / CLASSIFIERS_DIR / "tickets" / "head.json").write_text("{")
    registry = started(tmp_path, bundled)
    assert ["tickets"] == registry.stale()
    registry.save("tickets", random_head("bill", "letter"), EXAMPLES)

    with pytest.raises(Forbidden):
        started(tmp_path, bundled).delete("tickets", OTHER_TEAM)
    started(tmp_path, bundled).delete("tickets", TEAM)


def test_an_owner_that_cannot_be_read(tmp_path, bundled):
    """Then nobody owns it; the start goes on."""
    started(tmp_path, bundled).save("tickets", random_head("bill", "letter"), EXAMPLES, TEAM)
    (tmp_path / "state" / CLASSIFIERS_DIR / "tickets" / "owner").write_bytes(b"\xff\xfe")
    registry = started(tmp_path, bundled)

    assert "tickets" in registry.names()
    with pytest.raises(Forbidden):
        registry.delete("tickets", TEAM)
