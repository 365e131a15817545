"""What can be said on the command line, and the settings it makes. Reads no file and starts nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from backend.device.facts.simulated_machines import MACHINES
from backend.errors import BadSettings
from backend.training.records import MixedPrecisionConfig, Schedule, TrainingConfig

_Record = TypeVar("_Record", MixedPrecisionConfig, TrainingConfig)
TASKS = ("text-classifier", "ner", "embeddings", "document-images")
_LORA_LEARNING_RATE = 2e-4  # adapters start from nothing and bear more: QLoRA's, arXiv 2305.14314
_FOCAL_GAMMA = 2.0  # Lin et al. 2017, arXiv 1708.02002

Flag = tuple[str, str, Mapping[str, Any]]  # name, field, what argparse wants
_RUN: tuple[Flag, ...] = (
    ("--epochs", "epochs", {"type": int, "help": "passes over the data (default 3)"}),
    ("--max-steps", "max_steps", {"type": int, "help": "optimizer steps after which the run ends"}),
    ("--batch-size", "batch_size", {"type": int, "help": "items of an optimizer step, all processes together (32)"}),
    ("--micro-batch", "micro_batch", {"type": int, "help": "items that run at once; planned, changes no result"}),
    ("--learning-rate", "learning_rate", {"type": float, "help": "the highest (5e-5; 2e-4 with LoRA)"}),
    ("--head-learning-rate", "head_learning_rate", {"type": float, "help": "of a new head (the same)"}),
    ("--weight-decay", "weight_decay", {"type": float, "help": "of AdamW, not of biases and norms (0.01)"}),
    ("--betas", "betas", {"type": float, "nargs": 2, "metavar": ("B1", "B2"), "help": "of AdamW (0.9 0.999)"}),
    ("--max-grad-norm", "max_grad_norm", {"type": float, "help": "gradients are clipped to it (1.0); 0 clips nothing"}),
    ("--schedule", "schedule", {"choices": get_args(Schedule), "help": "of the learning rate (one_cycle)"}),
    ("--warmup-ratio", "warmup_ratio", {"type": float, "help": "share of the steps that warm up (0.1)"}),
    ("--seed", "seed", {"type": int, "help": "of every random number (42)"}),
    ("--evaluate-every", "evaluate_every", {"type": int, "help": "steps; by default after each epoch"}),
    ("--patience", "patience", {"type": int, "help": "evaluations without improvement that end the run"}),
    ("--checkpoint-every", "checkpoint_every", {"type": int, "help": "steps; by default after each epoch"}),
    ("--keep-checkpoints", "keep_checkpoints", {"type": int, "help": "the last ones that stay, beside the best (2)"}),
    ("--snapshot-every", "snapshot_every", {"type": int, "help": "steps between snapshots in memory (50)"}),
)
_MACHINE: tuple[Flag, ...] = (
    ("--device", "device", {"help": "auto (default), cpu, cuda, cuda:1 or mps"}),
    ("--num-workers", "num_workers", {"type": int, "help": "threads that prepare data; from cores by default"}),
)
_LOSS: tuple[Flag, ...] = (
    ("--focal-loss", "focal_gamma", {"type": float, "nargs": "?", "const": _FOCAL_GAMMA, "metavar": "GAMMA",
                                     "help": "looks at hard examples (gamma 2 unless given)"}),
    ("--label-smoothing", "label_smoothing", {"type": float, "help": "share of the target spread over all classes"}),
    ("--class-weights", "class_weights", {"choices": ("none", "balanced"), "help": "balanced: the rare count more"}),
)  # fmt: skip
_LORA: tuple[Flag, ...] = (
    ("--lora-rank", "lora_rank", {"type": int, "help": "train adapters of this rank instead of all weights; 0: all"}),
    ("--lora-alpha", "lora_alpha", {"type": float, "help": "twice the rank by default"}),
    ("--lora-dropout", "lora_dropout", {"type": float, "help": "before the adapters (0.05)"}),
)
_PRECISION: tuple[Flag, ...] = (
    ("--amp-dtype", "dtype", {"metavar": "DTYPE", "help": "bfloat16 or float16; by default what the device bears"}),
    ("--initial-scale", "initial_scale", {"type": float, "help": "of the loss, for float16 (65536)"}),
    ("--growth-factor", "growth_factor", {"type": float, "help": "of the scale (2)"}),
    ("--backoff-factor", "backoff_factor", {"type": float, "help": "of the scale (0.5)"}),
    ("--growth-interval", "growth_interval", {"type": int, "help": "good steps before the scale grows (2000)"}),
    ("--hysteresis", "hysteresis", {"type": int, "help": "bad steps in a row before the scale falls (2)"}),
    ("--min-scale", "min_scale", {"type": float, "help": "floor of the scale (1)"}),
    ("--max-scale", "max_scale", {"type": float, "help": "ceiling of the scale (2**24)"}),
)
_SWITCHES = (  # name, field, help; --use-name and --no-name
    ("amp", "use_amp", "mixed precision"),
    ("compile", "compile", "torch.compile"),
    ("channels-last", "channels_last", "images in the order that tensor cores convolve in"),
    ("gradient-checkpointing", "gradient_checkpointing", "activations computed again instead of kept"),
    ("8-bit-optimizer", "eight_bit_optimizer", "AdamW's memory in 8 bits (CUDA, bitsandbytes)"),
    ("length-groups", "group_by_length", "batches of items of like length"),
    ("deterministic", "deterministic", "only algorithms that give the same bits each time; slower"),
    ("loss-scaling", "loss_scaling", "a gradient scaler for float16"),
)


def parser() -> argparse.ArgumentParser:
    """Of ``python -m backend.training``. What is not said is None."""
    made = argparse.ArgumentParser(
        prog="python -m backend.training",
        description="Train a model on your data, as this machine can; what it writes, the service loads.",
        epilog="Exit code: 0 done, 1 failed, 2 wrong usage, settings or data, 130 interrupted (--resume goes on).",
        allow_abbrev=False,
    )
    made.add_argument("task", choices=(*TASKS, "plan"), help="what to train; plan: say what would fit, and end")
    made.add_argument("--data", type=Path, nargs="+", required=True, help="file or folder to learn from; ner: several")
    made.add_argument("--evaluation", type=Path, help="file or folder to measure on; by default a part of the data")
    made.add_argument("--held-out", type=float, default=0.1, help="that part (0.1)")
    made.add_argument("--output", type=Path, help="folder of the model, its checkpoints and its log")
    made.add_argument("--base", help="model to start from: bundled (default of texts), a folder or a hub id")
    made.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --output")
    made.add_argument("--task", dest="planned", choices=TASKS, help="with plan: the task to plan for")
    made.add_argument("--as", dest="machine", choices=sorted(MACHINES), metavar="MACHINE",
                      help="with plan: for another machine; check_gpu --as list names them")  # fmt: skip
    for title, flags in (("run", _RUN), ("machine", _MACHINE), ("loss", _LOSS), ("LoRA", _LORA), ("AMP", _PRECISION)):
        group = made.add_argument_group(title)
        for name, field, wants in flags:
            group.add_argument(name, dest=field, **{"metavar": "N" if "choices" not in wants else None, **wants})
    made.add_argument("--grad-accum", type=int, metavar="N", help="N batches of --batch-size make one optimizer step")
    switches = made.add_argument_group("switches, each chosen for the machine unless said")
    for name, field, what in _SWITCHES:
        pair = switches.add_mutually_exclusive_group()
        pair.add_argument(f"--use-{name}", dest=field, action="store_const", const=True, help=what)
        pair.add_argument(f"--no-{name}", dest=field, action="store_const", const=False, help="without it")
    _add_task_flags(made)
    return made


def config_of(options: argparse.Namespace) -> tuple[TrainingConfig, frozenset[str]]:
    """The settings, and the names of those fields that were said. Raises: BadSettings with every fault at once."""
    said = {name: value for name, value in vars(options).items() if value is not None}
    scaler = _known(said, MixedPrecisionConfig)
    told = _known(said, TrainingConfig)
    for name in ("lora_rank", "max_grad_norm"):  # 0 says: none
        if told.get(name) == 0:
            told[name] = None
    if "betas" in told:
        told["betas"] = tuple(told["betas"])
    if told.get("lora_rank") and "learning_rate" not in told:
        told["learning_rate"] = _LORA_LEARNING_RATE
    accumulate = _accumulated(options, told)
    faults: list[str] = []
    mixed = _made(MixedPrecisionConfig, scaler, faults)
    config = _made(TrainingConfig, told | accumulate, faults)
    if mixed is None or config is None:
        raise BadSettings(faults)
    return replace(config, mixed_precision=mixed), frozenset({*told, *accumulate, *scaler})


def _made(record: type[_Record], values: Mapping[str, Any], faults: list[str]) -> _Record | None:
    try:
        return record(**values)
    except BadSettings as error:
        faults += error.faults
        return None


def _accumulated(options: argparse.Namespace, told: Mapping[str, Any]) -> dict[str, int]:
    """Guides' way to say it: so many batches, each of which fits, make one step."""
    if options.grad_accum is None:
        return {}
    if options.grad_accum < 1 or "micro_batch" in told:
        raise BadSettings(
            ["--grad-accum: at least 1, and not beside --micro-batch, which says the same in another way"]
        )
    size = told.get("batch_size", TrainingConfig().batch_size)
    return {"batch_size": size * options.grad_accum, "micro_batch": size}


def _known(said: Mapping[str, Any], record: type) -> dict[str, Any]:
    return {one.name: said[one.name] for one in fields(record) if one.name in said}


def _add_task_flags(made: argparse.ArgumentParser) -> None:
    texts = made.add_argument_group("text-classifier, ner, embeddings")
    texts.add_argument("--mode", choices=("auto", "head", "full"), default="auto",
                       help="text-classifier: a head on frozen vectors (few texts), or the whole encoder")  # fmt: skip
    texts.add_argument("--types", type=_names, default=(), help="ner: kinds of entities, e.g. PER,ORG,LOC")
    texts.add_argument("--relabel", type=_pairs, default={}, metavar="FROM=TO,…",
                       help="ner: kinds of entities to rename, before --types chooses")  # fmt: skip
    texts.add_argument("--spelling", choices=("auto", "on", "off"), default="auto",
                       help="ner: say how words are written; auto: where the tokenizer hides it")  # fmt: skip
    texts.add_argument("--recased", type=float, default=0.0, metavar="SHARE",
                       help="ner: of sentences seen all small or all in capitals (0)")  # fmt: skip
    texts.add_argument("--publish-as", choices=("merged", "adapter"), default="merged",
                       help="ner: a whole model, or a LoRA adapter of a few MiB for its base")  # fmt: skip
    texts.add_argument("--halfway", action="store_true",
                       help="ner: publish the mean of the adapter in --base and of what was learnt")  # fmt: skip
    texts.add_argument("--objective", default="auto", help="embeddings: the loss; by the data unless said")
    texts.add_argument("--teacher", help="embeddings: model whose vectors are learnt from parallel texts")
    images = made.add_argument_group("document-images")
    images.add_argument("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="px; the base's own")
    images.add_argument("--augment", choices=("none", "document", "randaugment"), default="document",
                        help="changes to training images; randaugment is for photographs")  # fmt: skip
    images.add_argument("--mixup", type=float, default=0.0, metavar="ALPHA", help="0 is off")
    images.add_argument("--cutmix", type=float, default=0.0, metavar="ALPHA", help="0 is off")
    cache = images.add_mutually_exclusive_group()
    cache.add_argument("--image-cache", type=float, metavar="GIB", help="of decoded images (a quarter of memory)")
    cache.add_argument("--no-image-cache", dest="image_cache", action="store_const", const=0.0, help="read each time")


def _pairs(text: str) -> dict[str, str]:
    pairs = [one.split("=") for one in text.replace(",", " ").split()]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: expected FROM=TO, with commas between several")
    return dict(pairs)


def _names(text: str) -> Sequence[str]:
    return tuple(name for name in text.replace(",", " ").split() if name)
