"""A model's fingerprint: changed by all that decides its output, by nothing else."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from backend.errors import ModelUnavailable
from backend.models import fingerprint
from backend.models.bundled_encoders.recipes import FULL
from backend.models.checkpoint_tensors import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from backend.models.fingerprint import EncoderIdentity, fingerprint_of, tokenizer_digest
from backend.models.model_files import check_unchanged, resolve
from backend.models.spec import ModelSpec
from tests.tiny_models import TinyModels, rewrite

SPEC_WITHOUT_EFFECT = {"name", "source", "revision", "folder", "stored_dtype", "adapter", "fingerprint", "is_immutable"}


def append(file: Path, content: bytes) -> None:
    file.write_bytes(file.read_bytes() + content)


def change_tokenizer(folder: Path, **changes: Any) -> None:
    rewrite(folder / "tokenizer.json", **changes)


def add_token(folder: Path) -> None:
    added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    change_tokenizer(folder, added_tokens=[*added, {**added[0], "id": 5, "content": "<new>"}])


def swap_words(folder: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    first, second = list(model["vocab"])[-2:]
    model["vocab"] |= {first: model["vocab"][second], second: model["vocab"][first]}
    change_tokenizer(folder, model=model)


def drop_normalization(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    (folder / "modules.json").write_text(json.dumps(modules[:-1]))


def other_weights(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def same_tokenizer_written_otherwise(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(dict(reversed(content.items())), indent=4))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(other_weights, id="weights"),
        pytest.param(lambda folder: rewrite(folder / "1_Pooling/config.json", pooling_mode="cls"), id="pooling"),
        pytest.param(drop_normalization, id="normalisation"),
        pytest.param(lambda folder: rewrite(folder / "sentence_bert_config.json", max_seq_length=7), id="length"),
        pytest.param(
            lambda folder: rewrite(folder / "config_sentence_transformers.json", default_prompt_name="query"),
            id="default-prompt",
        ),
        pytest.param(lambda folder: change_tokenizer(folder, normalizer={"type": "Lowercase"}), id="lower-casing"),
        pytest.param(add_token, id="added-token"),
        pytest.param(swap_words, id="vocabulary"),
        pytest.param(lambda folder: rewrite(folder / "config.json", layer_norm_eps=1e-3), id="epsilon"),
        pytest.param(lambda folder: rewrite(folder / "config.json", hidden_act="relu"), id="activation"),
        pytest.param(lambda folder: rewrite(folder / "config.json", rope_theta=1e6), id="a-field-of-another-family"),
        pytest.param(lambda folder: rewrite(folder / "config.json", financia_token_types="spelling"), id="token-types"),
    ],
)
def test_what_decides_a_vector_changes_it(tiny: TinyModels, copy_of: Callable[[Path], Path], change):
    """One file, one setting: another fingerprint."""
    folder = copy_of(tiny.folder("bert", prompts=True))
    before = resolve(str(folder)).fingerprint

    change(folder)

    assert before != resolve(str(folder)).fingerprint


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: (folder / "README.md").write_text("new"), id="readme"),
        pytest.param(lambda folder: (folder / "vocab.txt").write_text("new"), id="the-slow-tokenizer"),
        pytest.param(lambda folder: (folder / "onnx.json").write_text("{}"), id="a-file-of-others"),
        pytest.param(lambda folder: append(folder / "config.json", b"\n\n"), id="layout"),
        pytest.param(same_tokenizer_written_otherwise, id="layout-of-the-tokenizer"),
        pytest.param(
            lambda folder: change_tokenizer(folder, truncation={"max_length": 9}, padding={"pad_id": 0}),
            id="truncation-and-padding-which-the-service-does-itself",
        ),
        pytest.param(
            lambda folder: rewrite(
                folder / "config.json", transformers_version="9.9", _name_or_path="elsewhere", dtype="bfloat16",
                hidden_dropout_prob=0.5, finetuning_task=None,
            ),
            id="what-wrote-and-trained-it",
        ),
        pytest.param(
            lambda folder: rewrite(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True),
            id="the-tokenizer's-settings-beside-its-length",
        ),
        pytest.param(
            lambda folder: rewrite(folder / "config_sentence_transformers.json", similarity_fn_name="dot"),
            id="how-others-compare",
        ),
    ],
)  # fmt: skip
def test_what_decides_nothing_leaves_it(tiny: TinyModels, copy_of: Callable[[Path], Path], change):
    """Cached vectors and learnt classifiers outlive it."""
    folder = copy_of(tiny.folder("bert", prompts=True))
    before = resolve(str(folder)).fingerprint

    change(folder)

    assert before == resolve(str(folder)).fingerprint


def test_the_folder_s_name_leaves_it(tiny: TinyModels, copy_of: Callable[[Path], Path]):
    """A copy elsewhere is the same model."""
    folder = tiny.folder("bert")

    assert resolve(str(folder)).fingerprint == resolve(str(copy_of(folder))).fingerprint


def test_every_field_of_a_spec_counts_or_is_known_not_to(tiny: TinyModels):
    """A field that is added to ModelSpec must be put on one side: this fails until it is."""
    spec = resolve(str(tiny.folder("bert", prompts=True)))
    changed: dict[str, Any] = {
        "name": "other",
        "source": "other",
        "revision": "other",
        "sha256": "other",
        "folder": Path("other"),
        "shape": replace(spec.shape, position_offset=2),
        "max_tokens": 9,
        "pooling": "cls",
        "normalize": not spec.normalize,
        "prompts": {"query": "other: "},
        "default_prompt": "query",
        "stored_dtype": "other",
        "token_types": "spelling",
        "adapter": Path("other"),
        "config": {"hidden_act": "other"},
        "tokenizer_sha256": "other",
        "adapter_scaling": {"r": 8},
        "is_immutable": not spec.is_immutable,
    }
    with_prompt = replace(spec, default_prompt="query")

    names = {field.name for field in fields(ModelSpec)}
    counting = {
        name
        for name, value in changed.items()
        for base in [with_prompt if name == "prompts" else spec]
        if replace(base, **{name: value}).fingerprint != base.fingerprint
    }

    assert names == set(changed) | {"fingerprint"}
    assert names - SPEC_WITHOUT_EFFECT == counting


def test_an_adapter_counts_with_its_scale(tiny: TinyModels, copy_of: Callable[[Path], Path], tmp_path):
    """Its weights, and ``lora_alpha``, by which they are multiplied; not what it was trained with."""
    base = tiny.folder("bert")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "config.json").write_bytes((base / "config.json").read_bytes())
    (adapter / ADAPTER_WEIGHTS).write_bytes(b"weights")
    settings = {"base_model_name_or_path": str(base), "r": 8, "lora_alpha": 16}
    (adapter / ADAPTER_CONFIG).write_text(json.dumps(settings))
    before = resolve(str(adapter)).fingerprint

    spec = resolve(str(adapter))
    rewrite(adapter / ADAPTER_CONFIG, lora_dropout=0.3, peft_version="9")
    assert before == resolve(str(adapter)).fingerprint
    check_unchanged(spec)
    rewrite(adapter / ADAPTER_CONFIG, lora_alpha=32)
    with pytest.raises(ModelUnavailable, match="have changed since it was loaded"):
        check_unchanged(spec)
    assert before != resolve(str(adapter)).fingerprint != resolve(str(base)).fingerprint


def test_this_code_s_version_counts(monkeypatch):
    """Raised when other numbers come out of the same files."""
    before = fingerprint_of({"weights": "a"})

    monkeypatch.setattr(fingerprint, "OUTPUT_VERSION", fingerprint.OUTPUT_VERSION + 1)

    assert before != fingerprint_of({"weights": "a"})


def test_an_unreadable_tokenizer_has_a_digest(tmp_path):
    """Whether it is a tokenizer is for TextTokenizer to say; none at all has the digest ""."""
    file = tmp_path / "tokenizer.json"

    assert "" == tokenizer_digest(file)
    file.write_bytes(b"\xff no JSON")
    broken = tokenizer_digest(file)
    file.write_text("[]")
    assert 64 == len(broken) == len(tokenizer_digest(file))
    assert broken != tokenizer_digest(file)


@pytest.mark.parametrize(
    ("trained_on", "accepted"),
    [
        pytest.param(EncoderIdentity("weights", "all"), True, id="the-same"),
        pytest.param(EncoderIdentity("weights", "other"), False, id="other-settings"),
        pytest.param(EncoderIdentity("other", "other"), False, id="another-model"),
        pytest.param(EncoderIdentity("weights", ""), True, id="an-old-head-of-these-weights"),
        pytest.param(EncoderIdentity("other", ""), False, id="an-old-head-of-others"),
    ],
)
def test_which_heads_an_encoder_accepts(trained_on, accepted):
    """By the fingerprint; a head that has none by the weights."""
    assert accepted == EncoderIdentity("weights", "all").accepts(trained_on)


def test_the_bundled_tokenizer_is_known(monkeypatch):
    """What the code says of it is what reading it gives."""
    file = resolve("bundled").folder / "tokenizer.json"
    known = tokenizer_digest(file)
    assert FULL.files["tokenizer.json"] in fingerprint._DIGESTS
    monkeypatch.setattr(fingerprint, "_DIGESTS", {})

    assert known == tokenizer_digest(file)
