"""The registry of classifiers: names, owners, limits, and what another model leaves."""

import errno
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.callers.callers import ANYBODY, read_key_ring
from backend.errors import Forbidden, InvalidField, ModelUnavailable, TooLarge, Unavailable, UnknownModel
from backend.models.classifier_head import NONE, ClassifierHead, read_head, write_head
from backend.models.fingerprint import EncoderIdentity
from backend.text.classifier_files import Example, folders, recover, write_folder
from backend.text.classifiers import ClassifierRegistry, check_examples
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


def test_another_embedding_model(tmp_path, bundled):
    """Heads of another encoder are unusable; trained ones are stale until they are retrained."""
    registry = started(tmp_path, bundled, OTHER)
    registry.use_taught("tickets", None, random_head("bill", "letter"))

    assert [] == registry.names()
    assert ["tickets"] == registry.stale()
    with pytest.raises(UnknownModel):
        registry.find("document-type")
    with pytest.raises(Unavailable, match="learnt again") as waiting:
        registry.find("tickets")
    assert waiting.value.retryable
    registry.use_taught("tickets", None, random_head("bill", "letter", sha256=OTHER))
    assert (["tickets"], []) == (registry.names(), registry.stale())


def test_the_same_weights_with_other_settings(tmp_path, bundled, caplog):
    """Heads of another fingerprint are unusable though the weights are the same; a configured one stops the start."""
    registry = started(tmp_path, bundled)
    registry.use_encoder(EncoderIdentity(SHA, "c" * 64))
    head = replace(random_head("bill", "letter"), encoder_fingerprint="c" * 64)
    registry.use_taught("tickets", None, head)
    assert ("c" * 64, []) == (registry.find("tickets").head.encoder_fingerprint, registry.stale())

    registry.use_encoder(EncoderIdentity(SHA, "d" * 64))

    assert (["document-type"], ["tickets"]) == (registry.names(), registry.stale())
    with pytest.raises(Unavailable, match="learnt again"):
        registry.find("tickets")
    write_head(tmp_path, head)
    registry.configured = [tmp_path]
    with pytest.raises(ModelUnavailable, match=r"c{12}, but .* is d{12}: the weights are the same, its tokenizer"):
        registry.start()


def test_heads_older_than_fingerprints(tmp_path, bundled, caplog):
    """Of these weights, they serve on: learnt ones until they are learnt again, a configured one with a warning."""
    folder = tmp_path / "mine"
    folder.mkdir()
    write_head(folder, replace(random_head("bill", "letter"), name="mail"))
    rewrite(folder / "head.json", encoder_fingerprint=...)

    registry = ClassifierRegistry(tmp_path / "state", EncoderIdentity(SHA, "c" * 64), bundled, configured=[folder])
    registry.start()
    registry.use_taught("tickets", None, random_head("bill", "letter"))

    assert ["document-type", "mail", "tickets"] == registry.names()
    assert ["tickets"] == registry.stale()
    assert 1 == caplog.text.count("a classifier is accepted by the weights alone")


def test_a_crash_between_two_renames(tmp_path):
    """The old classifier is restored, and one that was replaced already is removed."""
    for name, label in (("tickets", "old"), ("mail", "new"), ("older", "old")):
        write_folder(tmp_path, name, random_head(label, "letter"))
    (tmp_path / "tickets").rename(tmp_path / ".tickets.old")
    (tmp_path / "older").rename(tmp_path / ".mail.old")
    (tmp_path / ".tickets.abc").mkdir()  # what was being written

    recover(tmp_path)

    assert {"mail": "new", "tickets": "old"} == {path.name: read_head(path).labels[0] for path in folders(tmp_path)}
    assert [".tickets.abc", "mail", "tickets"] == sorted(path.name for path in tmp_path.iterdir())


def test_a_swap_that_fails_half_way(tmp_path, monkeypatch):
    """The old folder is moved back."""
    write_folder(tmp_path, "tickets", random_head("bill", "letter"))
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if target.name == "tickets" and not self.name.endswith(".old"):
            raise OSError(errno.EIO, "I/O error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(OSError, match="I/O error"):
        write_folder(tmp_path, "tickets", random_head("red", "blue"))

    assert ("bill", "letter") == read_head(tmp_path / "tickets").labels
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
    """They are refused before anything is learnt."""
    with pytest.raises(InvalidField, match="cannot be a classifier's"):
        started(tmp_path, bundled).check(name, EXAMPLES, multiple=False)


def test_the_number_is_limited(tmp_path, bundled, monkeypatch):
    """At the limit a known name may still be replaced."""
    monkeypatch.setattr("backend.text.classifiers.CLASSIFIERS_MAX", 1)
    registry = started(tmp_path, bundled)
    registry.use_taught("one", None, random_head("bill", "letter"))

    assert ["bill", "letter"] == registry.check("one", EXAMPLES, multiple=False)
    with pytest.raises(InvalidField, match="forget one first"):
        registry.check("two", EXAMPLES, multiple=False)


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


TEAM, OTHER_TEAM, ADMIN = read_key_ring(("team=one", "other=two"), ("ops=three",)).callers


@pytest.mark.parametrize(
    ("owner", "caller", "may"),
    [
        pytest.param(TEAM.owner, TEAM, True, id="owner"),
        pytest.param(TEAM.owner, OTHER_TEAM, False, id="another"),
        pytest.param(TEAM.owner, ADMIN, True, id="admin"),
        pytest.param(None, TEAM, False, id="taught-without-keys"),
        pytest.param(None, ADMIN, True, id="admin-of-nobodys"),
        pytest.param(None, ANYBODY, True, id="still-without-keys"),
    ],
)
def test_whose_a_classifier_is(tmp_path, bundled, owner, caller, may):
    """Others may use it; to replace or delete it takes its owner, or an admin, and it stays its owner's."""
    registry = started(tmp_path, bundled)
    registry.use_taught("tickets", owner, random_head("bill", "letter"))

    assert ("tickets", owner) == (registry.find("tickets").name, registry.owner_after("tickets", caller))
    for check in (registry.check_owner, registry.check_deletable):
        with nullcontext() if may else pytest.raises(Forbidden, match="choose another name"):
            check("tickets", caller)
