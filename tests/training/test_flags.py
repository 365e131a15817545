"""What is said on the command line becomes settings; what is not said stays automatic."""

from __future__ import annotations

from dataclasses import fields

import pytest

from backend.errors import BadSettings
from backend.training.flags import config_of, parser
from backend.training.records import MixedPrecisionConfig, TrainingConfig

BASE = ["ner", "--data", "x", "--output", "y"]


def made(*said: str) -> tuple[TrainingConfig, frozenset[str]]:
    """Of this command line."""
    return config_of(parser().parse_args([*BASE, *said]))


def test_nothing_said():
    """The defaults, and nobody said a word."""
    assert (TrainingConfig(), frozenset()) == made()


def test_every_field_has_a_flag():
    """Nothing can be set in Python alone."""
    known = {action.dest for action in parser()._actions}

    assert {"mixed_precision"} == {one.name for one in fields(TrainingConfig)} - known
    assert {"enabled"} == {one.name for one in fields(MixedPrecisionConfig)} - known


@pytest.mark.parametrize(
    ("said", "field", "expected"),
    [
        ("--no-amp", "use_amp", False),
        ("--use-amp", "use_amp", True),
        ("--use-compile", "compile", True),
        ("--no-channels-last", "channels_last", False),
        ("--use-gradient-checkpointing", "gradient_checkpointing", True),
        ("--use-8-bit-optimizer", "eight_bit_optimizer", True),
        ("--no-length-groups", "group_by_length", False),
        ("--focal-loss", "focal_gamma", 2.0),
        ("--focal-loss 1.5", "focal_gamma", 1.5),
        ("--label-smoothing 0.1", "label_smoothing", 0.1),
        ("--num-workers 0", "num_workers", 0),
        ("--max-grad-norm 0", "max_grad_norm", None),
        ("--betas 0.8 0.9", "betas", (0.8, 0.9)),
        ("--lora-rank 0", "lora_rank", None),
        ("--schedule cosine", "schedule", "cosine"),
    ],
)
def test_flags(said: str, field: str, expected: object):
    """Each sets its field, and is known to have been said."""
    config, told = made(*said.split())

    assert expected == getattr(config, field)
    assert {field} == told


def test_precision():
    """The scaler's parameters are in their own record."""
    config, told = made(
        *["--amp-dtype", "float16", "--initial-scale", "1024", "--hysteresis", "3", "--no-loss-scaling"]
    )

    assert MixedPrecisionConfig(dtype="float16", initial_scale=1024.0, hysteresis=3, loss_scaling=False) == (
        config.mixed_precision
    )
    assert {"dtype", "initial_scale", "hysteresis", "loss_scaling"} == told


def test_accumulation():
    """As the guides count it: two batches of 8 make one step."""
    config, told = made("--batch-size", "8", "--grad-accum", "2")

    assert (16, 8) == (config.batch_size, config.micro_batch)
    assert {"batch_size", "micro_batch"} == told
    assert (96, 32) == (made("--grad-accum", "3")[0].batch_size, made("--grad-accum", "3")[0].micro_batch)
    for wrong in (["--grad-accum", "0"], ["--grad-accum", "2", "--micro-batch", "4"]):
        with pytest.raises(BadSettings, match="--grad-accum"):
            made(*wrong)


def test_learning_rate_of_adapters():
    """Higher by itself, unless one is said."""
    assert 2e-4 == made("--lora-rank", "8")[0].learning_rate
    assert 1e-5 == made("--lora-rank", "8", "--learning-rate", "1e-5")[0].learning_rate


def test_every_fault_at_once():
    """Of both records."""
    with pytest.raises(BadSettings) as caught:
        made("--epochs", "0", "--label-smoothing", "2", "--growth-factor", "0.5", "--hysteresis", "2000")

    assert 4 == len(caught.value.faults)


@pytest.mark.parametrize("said", [["--use-amp", "--no-amp"], ["--epoch", "3"], ["--schedule", "step"]])
def test_wrong_usage(said: list[str], capsys: pytest.CaptureFixture[str]):
    """Contradictions, shortened names and unknown values end with 2."""
    with pytest.raises(SystemExit, match="2"):
        made(*said)

    assert "error" in capsys.readouterr().err


def test_kinds_of_other_names():
    """Pairs with commas between; anything else is wrong usage."""
    options = parser().parse_args([*BASE, "--relabel", "PER_LEGAL=PER,GROUP=ORG"])

    assert {"PER_LEGAL": "PER", "GROUP": "ORG"} == options.relabel
    for wrong in ("PER", "A=B=C", "=PER"):
        with pytest.raises(SystemExit, match="2"):
            parser().parse_args([*BASE, "--relabel", wrong])
