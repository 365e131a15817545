"""The command line: plan, train, publish, resume, and errors with their exit codes."""

import json
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from transformers import AutoModelForTokenClassification, ResNetConfig
from transformers.utils import logging as transformers_logging

from backend.errors import BadCheckpoint, BadSettings, DoesNotFit, TrainingFailed
from backend.training import cli
from backend.training.cli import DONE, FAILED, INTERRUPTED, WRONG, main, make_parser, parse_config
from backend.training.records import MixedPrecisionConfig, TrainingConfig, TrainingResult

SMALL = ["--epochs", "1", "--batch-size", "4", "--device", "cpu", "--no-amp"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep pytest's log handlers and restore the verbosity of transformers."""
    monkeypatch.setattr(cli, "configure_logging", lambda level: None)
    verbosity = transformers_logging.get_verbosity()
    yield
    transformers_logging.set_verbosity(verbosity)


@pytest.fixture
def entities(tmp_path: Path) -> Path:
    """Sentences with a name in each."""
    rows = [f"the\tO\ninvoice\tO\nof\tO\n{'factura' if n % 2 else 'importe'}\tB-ORG\n{n}\tO\n" for n in range(24)]
    file = tmp_path / "data.conll"
    file.write_text("\n".join(rows), encoding="utf-8")
    return file


def ner(entities: Path, tiny: Any, output: Path, *more: str) -> list[str]:
    """A command line that trains in a moment."""
    base = str(tiny.folder("bert"))
    return ["ner", "--data", str(entities), "--base", base, "--output", str(output), *SMALL, *more]


@pytest.fixture
def command(entities: Path, tiny: Any, tmp_path: Path) -> list[str]:
    """A command line that trains into the test's own folder."""
    return ner(entities, tiny, tmp_path / "out")


@pytest.mark.slow
def test_train_and_publish(entities: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The plan is printed, the folder has the model with its card and its log, and transformers loads it."""
    output = tmp_path / "out"
    code = main(ner(entities, tiny, output))
    out = capsys.readouterr().out

    assert DONE == code
    assert "precision" in out
    assert "micro-batch" in out
    assert "memory of a step by micro-batch" in out
    assert f"model: {output}" in out
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "python -m backend.training ner --data" in card
    assert ["O", "B-ORG", "I-ORG"] == list(
        AutoModelForTokenClassification.from_pretrained(output).config.id2label.values()
    )
    kinds = [json.loads(line)["kind"] for line in (output / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    assert ("start", "end") == (kinds[0], kinds[-1])


@pytest.mark.slow
def test_lora(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The adapters are in the model already: the plan estimates it as it is, and the folder is a plain model."""
    code = main([*command, "--lora-rank", "2", "--max-steps", "2"])
    out = capsys.readouterr().out

    assert DONE == code
    assert "lora                    rank 2: as asked" in out
    assert "\nLoRA " in out
    assert "\nfull " not in out
    assert AutoModelForTokenClassification.from_pretrained(tmp_path / "out")


@pytest.mark.slow
def test_interrupted_and_resumed(entities: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Stopped: a checkpoint and exit code 130. A second run is refused; with --resume it ends where it would have."""
    output, whole, stop = tmp_path / "out", tmp_path / "whole", threading.Event()
    stop.set()
    interrupted = main(ner(entities, tiny, output), stop=stop)
    error = capsys.readouterr().err
    again = main(ner(entities, tiny, output))
    refused = capsys.readouterr().err
    resumed = main(ner(entities, tiny, output, "--resume"))

    assert [INTERRUPTED, WRONG, DONE] == [interrupted, again, resumed]
    assert "the same command with --resume goes on" in error
    assert "--resume" in refused
    assert DONE == main(ner(entities, tiny, whole))
    assert (whole / "model.safetensors").read_bytes() == (output / "model.safetensors").read_bytes()


def test_signals():
    """The first requests the end, the second ends the run; afterwards the handlers are restored."""
    stop, before = threading.Event(), signal.getsignal(signal.SIGTERM)
    with cli._stop_on_signals(stop):
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert before is signal.getsignal(signal.SIGTERM)


@pytest.mark.slow
def test_plan(entities: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """For another machine, with every way to train, and nothing written."""
    before = sorted(tmp_path.iterdir())
    arguments = ["plan", "--task", "ner", "--data", str(entities), "--base", str(tiny.folder("bert")), "--as", "t4"]
    code = main(arguments)
    out = capsys.readouterr().out

    assert DONE == code
    assert "cuda:0: GPU with tensor cores: Tesla T4" in out
    assert "fp16" in out
    for way in ("full", "checkpointing", "8-bit optimizer", "LoRA", "LoRA, 8-bit optimizer, checkpointing"):
        assert f"\n{way} " in out
    assert before == sorted(tmp_path.iterdir())


@pytest.mark.slow
def test_several_data_sets(entities: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """ner trains on all of them, with its own settings, and publishes an adapter; other tasks take one."""
    base, output = str(tiny.folder("bert")), tmp_path / "out"
    both = ["--data", str(entities), str(entities), "--base", base, "--output", str(output), *SMALL]
    adapter = ["--lora-rank", "2", "--head-learning-rate", "1e-2", "--recased", "0.5", "--publish-as", "adapter"]
    code = main(["ner", *both, *adapter, "--relabel", "ORG=FIRM", "--types", "FIRM"])
    labels = json.loads((output / "config.json").read_text(encoding="utf-8"))["id2label"]

    assert DONE == code
    assert ["O", "B-FIRM", "I-FIRM"] == list(labels.values())
    assert (output / "adapter_model.safetensors").is_file()
    assert WRONG == main(["embeddings", *both[: -len(SMALL)], *SMALL, "--output", str(tmp_path / "other")])
    assert "only ner takes several" in capsys.readouterr().err


@pytest.mark.slow
def test_few_texts(tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A head on frozen vectors by default; a whole encoder with --mode full."""
    data = tmp_path / "texts.tsv"
    rows = [f"{'invoice total' if n % 2 else 'the factura'} {n}\t{'a' if n % 2 else 'b'}" for n in range(30)]
    data.write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    common = ["text-classifier", "--data", str(data), "--base", str(tiny.folder("bert")), *SMALL]
    codes = [
        main([*common, "--output", str(tmp_path / "head")]),
        main([*common, "--output", str(tmp_path / "full"), "--mode", "full", "--max-steps", "2"]),
    ]

    assert [DONE, DONE] == codes
    assert (tmp_path / "head" / "head.safetensors").is_file()
    assert (tmp_path / "full" / "model.safetensors").is_file()
    assert DONE == main(["plan", "--task", "text-classifier", *common[1:]])
    assert "needs no plan" in capsys.readouterr().out


@pytest.mark.slow
def test_embeddings(tiny: Any, tmp_path: Path):
    """Pairs become a folder that sentence-transformers would load."""
    data = tmp_path / "pairs.tsv"
    rows = [f"invoice {n}\tfactura {n}" for n in range(20)]
    data.write_text("\n".join(["anchor\tpositive", *rows]) + "\n", encoding="utf-8")
    base = str(tiny.folder("bert"))
    output = tmp_path / "out"

    assert DONE == main(["embeddings", "--data", str(data), "--base", base, "--output", str(output), *SMALL])
    assert (output / "modules.json").is_file()


@pytest.mark.slow
def test_document_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A folder a class; the plan knows that they are images, and has a line for channels last."""
    for name, colour in (("letter", "white"), ("form", "gray")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (40 + number, 40), colour).save(tmp_path / "data" / name / f"{number}.png")
    base = tmp_path / "base"
    ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic").save_pretrained(base)
    output = tmp_path / "out"
    more = ["--image-size", "32", "32", "--augment", "none", "--no-image-cache"]
    where = ["--data", str(tmp_path / "data"), "--base", str(base), "--output", str(output)]
    code = main(["document-images", *where, *SMALL, *more])
    out = capsys.readouterr().out

    assert DONE == code
    assert "micro-batch             4: the whole batch fits" in out
    assert "gains little without tensor cores" in out
    assert (output / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["ner", "--data", "absent.conll", "--output", "out"], "absent.conll", id="no-data"),
        pytest.param(["ner", "--data", "bad.conll", "--output", "out"], "bad.conll:2", id="malformed-line"),
        pytest.param(["ner", "--data", "bad.conll", "--output", "out", "--epochs", "0"], "epochs=0", id="setting"),
        pytest.param(["document-images", "--data", "x", "--output", "out"], "--base", id="no-base"),
        pytest.param(["ner", "--data", "bad.conll", "--output", "out", "--held-out", "2"], "--held-out=2", id="share"),
        pytest.param(["ner", "--data", "bad.conll", "--output", "out", "--device", "cuda:9"], "cuda:9", id="device"),
        pytest.param(["ner", "--data", "bad.conll", "--output", "out", "--base", "./no"], "./no", id="no-model"),
    ],
)
def test_wrong_data_and_settings(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Exit code 2, one readable line, no traceback, nothing written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.conll").write_text("the\tO\ninvoice\n", encoding="utf-8")
    code = main(arguments)
    error = capsys.readouterr().err

    assert WRONG == code
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(TrainingFailed("the loss was not finite with example(s) 3"), FAILED, id="numbers"),
        pytest.param(DoesNotFit("one item alone"), FAILED, id="memory"),
        pytest.param(BadCheckpoint("of another model"), FAILED, id="checkpoint"),
        pytest.param(OSError(28, "No space left on device"), FAILED, id="disk"),
        pytest.param(KeyboardInterrupt(), INTERRUPTED, id="at-once"),
    ],
)
def test_failures(
    error: BaseException,
    expected: int,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """The reason on standard error, and nothing published."""

    def fail(*args: Any, **rest: Any) -> TrainingResult:
        raise error

    monkeypatch.setattr(cli, "train", fail)
    code = main(command)
    printed = capsys.readouterr()

    assert expected == code
    assert str(error).split(":")[0] in printed.err
    assert "model:" not in printed.out


def test_a_model_without_an_estimate(
    entities: Path, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The run goes on without an estimate of its memory."""

    def fail(*args: Any, **rest: Any) -> tuple[()]:
        raise RuntimeError("a foreign layer")

    monkeypatch.setattr(cli, "estimate_footprints", fail)

    assert DONE == main(ner(entities, tiny, tmp_path / "out"))
    assert "not foreseen" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="nothing"),
        pytest.param(["ner", "--data", "x"], id="no-output"),
        pytest.param(["plan", "--data", "x"], id="plan-of-nothing"),
        pytest.param(["ner", "--data", "x", "--output", "y", "--as", "t4"], id="training-on-another-machine"),
        pytest.param(["dance", "--data", "x", "--output", "y"], id="unknown-task"),
    ],
)
def test_wrong_usage(arguments: list[str]):
    """argparse's own exit code."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert WRONG == caught.value.code


def test_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """``python -m backend.training``."""
    monkeypatch.setattr(sys, "argv", ["backend.training", "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("backend.training", run_name="__main__")

    assert 0 == caught.value.code
    assert "--use-gradient-checkpointing" in capsys.readouterr().out


BASE = ["ner", "--data", "x", "--output", "y"]


def parsed(*flags: str) -> tuple[TrainingConfig, frozenset[str]]:
    """The settings of a command line with these flags, and the fields that they set."""
    return parse_config(make_parser().parse_args([*BASE, *flags]))


def test_every_field_has_a_flag():
    """Nothing can be set in Python alone."""
    known = vars(make_parser().parse_args(BASE)).keys()

    assert {"mixed_precision", "amp_dtype"} == {field.name for field in fields(TrainingConfig)} - known
    assert {"enabled"} == {field.name for field in fields(MixedPrecisionConfig)} - known


@pytest.mark.parametrize(
    ("flags", "field", "expected"),
    [
        ("--no-amp", "use_amp", False),
        ("--use-compile", "compile", True),
        ("--use-gradient-checkpointing", "gradient_checkpointing", True),
        ("--use-8-bit-optimizer", "eight_bit_optimizer", True),
        ("--focal-loss", "focal_gamma", 2.0),
        ("--focal-loss 1.5", "focal_gamma", 1.5),
        ("--label-smoothing 0.1", "label_smoothing", 0.1),
        ("--max-grad-norm 0", "max_grad_norm", None),
        ("--betas 0.8 0.9", "betas", (0.8, 0.9)),
        ("--lora-rank 0", "lora_rank", None),
        ("--schedule cosine", "schedule", "cosine"),
    ],
)
def test_flags(flags: str, field: str, expected: object):
    """Each sets its field, and the field counts as set by the user."""
    config, user_set = parsed(*flags.split())

    assert expected == getattr(config, field)
    assert {field} == user_set


@pytest.mark.parametrize(("name", "value"), [("initial_scale", "x"), ("dtype", []), ("growth_interval", None)])
def test_a_value_of_another_kind(name: str, value: object):
    """It is refused as any other wrong one, and the old one stays."""
    config = MixedPrecisionConfig(dtype="float16")
    before = [getattr(config, each.name) for each in fields(config)]

    with pytest.raises(BadSettings, match=f"{name}="):
        setattr(config, name, value)
    assert before == [getattr(config, each.name) for each in fields(config)]


def test_accumulation():
    """As the guides count it: two batches of 8 make one step."""
    config, user_set = parsed("--batch-size", "8", "--grad-accum", "2")

    assert (16, 8) == (config.effective_batch, config.items_at_once)
    assert {"batch_size", "gradient_accumulation_steps"} == user_set
    thrice = parsed("--grad-accum", "3")[0]
    assert (96, 32) == (thrice.effective_batch, thrice.items_at_once)
    smaller = replace(thrice, batch_size=8)
    assert (24, 8) == (smaller.effective_batch, smaller.items_at_once)
    with pytest.raises(BadSettings, match="gradient_accumulation_steps=0"):
        parsed("--grad-accum", "0")
    with pytest.raises(BadSettings, match="--grad-accum and --micro-batch"):
        parsed("--grad-accum", "2", "--micro-batch", "4")


def test_learning_rate_of_adapters():
    """Higher by default than that of whole models."""
    assert 2e-4 == parsed("--lora-rank", "8")[0].learning_rate
    assert 1e-5 == parsed("--lora-rank", "8", "--learning-rate", "1e-5")[0].learning_rate


def test_every_fault_of_the_settings_at_once():
    """Of both records."""
    with pytest.raises(BadSettings) as caught:
        parsed("--epochs", "0", "--label-smoothing", "2", "--growth-factor", "0.5", "--hysteresis", "2000")

    assert 4 == len(caught.value.faults)


@pytest.mark.parametrize("flags", [["--use-amp", "--no-amp"], ["--epoch", "3"], ["--schedule", "step"]])
def test_wrong_flags(flags: list[str], capsys: pytest.CaptureFixture[str]):
    """Contradictions, shortened names and unknown values end with 2."""
    with pytest.raises(SystemExit, match="2"):
        parsed(*flags)

    assert "error" in capsys.readouterr().err


def test_relabel():
    """Pairs with commas between; anything else is wrong usage."""
    options = make_parser().parse_args([*BASE, "--relabel", "PER_LEGAL=PER,GROUP=ORG"])

    assert {"PER_LEGAL": "PER", "GROUP": "ORG"} == options.relabel
    for wrong in ("PER", "A=B=C", "=PER"):
        with pytest.raises(SystemExit, match="2"):
            make_parser().parse_args([*BASE, "--relabel", wrong])
