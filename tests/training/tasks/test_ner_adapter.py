"""Adapters as folders, sets beside one another, and the scores of what was published."""

import json
import warnings

import pytest
import torch
from peft import PeftModel
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForTokenClassification

from backend.errors import BadSettings, ModelUnavailable
from backend.models.checkpoint_tensors import read_tensors
from backend.models.model_files import resolve
from backend.training.lora import load_adapter_weights
from backend.training.records import TrainingConfig
from backend.training.tasks.ner import NerOptions, prepare
from tests.training.tasks.tagged_sentences import CASED, CONFIG, SENTENCES, conll
from tests.training.tasks.task_checks import fit
from tools.score_ner import score_files


@pytest.mark.slow
def test_an_adapter_is_published(tiny, tmp_path):
    """peft loads it on the base, the service's own reading gives the same tensors, and both answer as the task does."""
    config = TrainingConfig(batch_size=16, lora_rank=4)
    base = resolve(str(tiny.folder("bert")))
    file = conll(tmp_path, *CASED)
    task = prepare(file, base, config, evaluation=file, options=NerOptions(publish_as="adapter"))
    fit(task, steps=80, learning_rate=1e-2)
    out = tmp_path / "out"
    task.publish(task.model, out, {"command": "test"})

    assert {"README.md", "adapter_config.json", "adapter_model.safetensors", "config.json"} == {
        file.name for file in out.iterdir()
    }
    assert {torch.float16} == {tensor.dtype for tensor in load_file(out / "adapter_model.safetensors").values()}
    assert base.sha256 == json.loads((out / "adapter_config.json").read_text(encoding="utf-8"))["base_sha256"]
    base_model = AutoModelForTokenClassification.from_pretrained(
        base.folder, config=AutoConfig.from_pretrained(out), ignore_mismatched_sizes=True
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unexpected keyword arguments \\['base_sha256'\\]")
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # as in training/lora.py
        loaded = PeftModel.from_pretrained(base_model, str(out)).eval()
    assert task.evaluate(task.model) == task.evaluate(loaded)
    batch = {name: tensor for name, tensor in task.collate([0, 1]).items() if name not in ("labels", "weight")}
    with torch.no_grad():
        expected = loaded(**batch).logits
        torch.testing.assert_close(task.model(**batch).logits, expected, atol=0.02, rtol=0.02)  # float16's rounding
        merged = loaded.merge_and_unload().state_dict()
    served_tensors = read_tensors(resolve(str(out)))
    assert {"classifier.weight", "classifier.bias"} <= set(served_tensors)
    for name, value in merged.items():
        known = served_tensors[name] if name in served_tensors else served_tensors[name.removeprefix("bert.")]
        torch.testing.assert_close(torch.from_numpy(known.astype("float32")), value.float(), atol=1e-5, rtol=1e-5)


def test_an_adapter_needs_lora(tiny, tmp_path):
    """A model trained whole has none, and neither goes on from one."""
    file, base = conll(tmp_path, *CASED), resolve(str(tiny.folder("bert")))
    with pytest.raises(BadSettings, match="--lora-rank"):
        prepare(file, base, CONFIG, options=NerOptions(publish_as="adapter"))
    task = prepare(file, base, TrainingConfig(lora_rank=2), options=NerOptions(publish_as="adapter"))
    task.publish(task.model, tmp_path / "out", {})

    with pytest.raises(ModelUnavailable, match="no adapter"):
        load_adapter_weights(task.model, base)
    with pytest.raises(BadSettings, match="say --lora-rank"):
        prepare(file, resolve(str(tmp_path / "out")), CONFIG)


@pytest.mark.slow
def test_going_on_from_an_adapter(tiny, tmp_path):
    """It answers as it did, goes on learning, and is published for the same base."""
    file, base = conll(tmp_path, *CASED), resolve(str(tiny.folder("bert")))
    config = TrainingConfig(batch_size=16, lora_rank=4)
    first = prepare(file, base, config, evaluation=file, options=NerOptions(publish_as="adapter"))
    fit(first, steps=60, learning_rate=1e-2)
    first.publish(first.model, tmp_path / "first", {})

    second = prepare(
        file, resolve(str(tmp_path / "first")), config, evaluation=file, options=NerOptions(publish_as="adapter")
    )
    assert score_files(str(tmp_path / "first"), [file])["train"].scores == second.evaluate(second.model.eval())
    fit(second, steps=60, learning_rate=1e-2)
    second.publish(second.model, tmp_path / "second", {})

    assert first.evaluate(first.model)["f1"] <= second.evaluate(second.model)["f1"]
    settings = json.loads((tmp_path / "second" / "adapter_config.json").read_text(encoding="utf-8"))
    assert base.source == settings["base_model_name_or_path"]


@pytest.mark.slow
def test_halfway(tiny, tmp_path):
    """The mean of the numbers before and after, in file and scores; for runs that went on from an adapter."""
    file, base = conll(tmp_path, *CASED), resolve(str(tiny.folder("bert")))
    config, adapter = TrainingConfig(batch_size=16, lora_rank=4), NerOptions(publish_as="adapter")
    first = prepare(file, base, config, options=adapter)
    fit(first, steps=20, learning_rate=1e-2)
    first.publish(first.model, tmp_path / "first", {})

    both = NerOptions(publish_as="adapter", halfway=True)
    second = prepare(file, resolve(str(tmp_path / "first")), config, evaluation=file, options=both)
    fit(second, steps=20, learning_rate=1e-2)
    second.publish(second.model, tmp_path / "second", {})

    before, published = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("first", "second"))
    after = get_peft_model_state_dict(second.model)
    for name, tensor in published.items():
        torch.testing.assert_close(tensor.float(), (before[name].float() + after[name]) / 2, atol=2e-3, rtol=2e-3)
    assert any(not torch.equal(tensor, before[name]) for name, tensor in published.items())
    f1 = score_files(str(tmp_path / "second"), [file])["train"].scores.get("f1", 0.0)
    assert f"| f1 | {f1:.4f} |" in (tmp_path / "second" / "README.md").read_text(encoding="utf-8")
    with pytest.raises(BadSettings, match="--halfway"):
        prepare(file, base, config, options=both)


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        pytest.param({"lora_rank": 2}, {}, "r=2, but the adapter first has 4", id="another-rank"),
        pytest.param({"lora_rank": 4, "lora_alpha": 4.0}, {}, "lora_alpha=4", id="another-scale"),
        pytest.param(
            {"lora_rank": 4},
            {"relabel": {"DOC": "LAW"}, "types": ["LAW", "ORG"]},
            "was taught O, B-DOC",
            id="other-names",
        ),
        pytest.param({"lora_rank": 4}, {"spelling": "off"}, "other tensors", id="another-table"),
    ],
)
def test_an_adapter_of_another_task(tiny, tmp_path, settings, options, message):
    """Another rank, scale, set of tensors or labels: the numbers would mean something else."""
    file, base = conll(tmp_path, *CASED), resolve(str(tiny.folder("bert")))
    config = TrainingConfig(batch_size=16, lora_rank=4)
    first = prepare(file, base, config, options=NerOptions(publish_as="adapter"))
    first.publish(first.model, tmp_path / "first", {})

    with pytest.raises(BadSettings, match=message):
        prepare(
            file,
            resolve(str(tmp_path / "first")),
            TrainingConfig(batch_size=16, **settings),
            options=NerOptions(**options),
        )


def test_several_sets(tiny, tmp_path):
    """Each gives its part for evaluation, kinds are renamed before they are chosen, and the card scores each set."""
    first, second = tmp_path / "es", tmp_path / "en"
    first.mkdir(), second.mkdir()
    conll(first, *SENTENCES)
    conll(first, "la/O factura/B-DOC", name="es_dev.conll")
    conll(second, "the/O invoice/B-PAPER is/B-VERB", *SENTENCES[:4])
    conll(second, "the/O invoice/B-PAPER", name="en_dev.conll")

    options = NerOptions(types=["DOC"], relabel={"PAPER": "DOC"})
    task = prepare([first, second], resolve(str(tiny.folder("bert"))), CONFIG, options=options)
    task.publish(task.model, tmp_path / "out", {})

    assert ("O", "B-DOC", "I-DOC") == task.labels
    assert len(SENTENCES) + 5 == len(task.lengths)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| es | training and evaluation |" in card
    assert "| es_dev |" in card
    assert "| en_dev |" in card


def test_an_evaluation_of_its_own(tiny, tmp_path):
    """It is read once, however many sets there are, and nothing else is evaluated on."""
    files = [conll(tmp_path, *SENTENCES, name=f"{name}.conll") for name in ("one", "two")]
    other = conll(tmp_path, "la/O factura/B-DOC", name="other.conll")

    task = prepare(files, resolve(str(tiny.folder("bert"))), CONFIG, evaluation=other)

    assert 1 == len(task.predict(task.model))
    assert 2 * len(SENTENCES) == len(task.lengths)


@pytest.mark.slow
@pytest.mark.parametrize(("publish_as", "lora_rank"), [("adapter", 4), ("merged", 4), ("merged", None)])
def test_scores_of_what_was_published(tiny, tmp_path, publish_as, lora_rank):
    """From the folder alone the task's own scores, each file by its name, on the kinds that are asked for."""
    config = TrainingConfig(batch_size=16, lora_rank=lora_rank)
    file = conll(tmp_path, *CASED)
    options = NerOptions(publish_as=publish_as)
    task = prepare(file, resolve(str(tiny.folder("bert"))), config, evaluation=file, options=options)
    fit(task, steps=120, learning_rate=3e-3 if lora_rank is None else 1e-2)
    task.publish(task.model, tmp_path / "out", {})
    other = conll(tmp_path, "la/B-LAW Factura/B-PAPER", name="other.conll")

    reports = score_files(str(tmp_path / "out"), [file, other], types=["DOC"], relabel={"PAPER": "DOC"})

    assert ["train", "other"] == list(reports)
    assert 0.5 < reports["train"].scores["f1"] == pytest.approx(task.evaluate(task.model)["f1"])
    assert ["DOC"] == [score.label for score in reports["other"].per_class]
