"""Effect of each training option on the time of a step, memory and loss: each alone, and those for speed together.

    python -m benchmarks.training --device cuda:0 --out FILE    # as devices.py runs it for the CPU and each card

On a CPU a BERT of MiniLM's size (random weights, fixed seed) is trained to classify texts of made-up words, in batches
of 32 texts of up to 128 tokens; on a GPU a base one in batches of 64 of up to 256, which keeps it busy. Every option
runs the same batches; rounds are interleaved and the median step counts. Memory is the allocator's peak on a GPU, and
the estimate of a dry run on a CPU.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, BertConfig

from backend.errors import FinanciaError
from backend.training.lora import add_lora
from backend.training.losses import classification_loss
from backend.training.memory import estimate_footprints, longest_example_inputs
from backend.training.records import Batch, LossPart, MixedPrecisionConfig, StepEvent, TrainingConfig
from backend.training.trainer.loop import train
from benchmarks.gpu_check.targets import NONE, TOGETHER
from benchmarks.machine import facts

COMPILED = ("torch.compile", TOGETHER)  # options that compile, which takes a minute on a CPU
_CLASSES, _WORDS = 4, 2000
_FUSED = "backend.training.trainer.model_setup._FUSED"  # kinds of device whose AdamW is fused: always on but here


@dataclass(frozen=True, slots=True)
class Workload:
    """The model and the batches that every option runs."""

    width: int
    layers: int
    hidden_width: int  # of the feed-forward part
    batch_size: int
    longest: int  # tokens of a text
    steps: int
    warm_up: int  # steps that do not count
    rounds: int

    @property
    def texts(self) -> int:
        return 14 * self.batch_size


ON_CPU = Workload(384, 6, 1536, batch_size=32, longest=128, steps=9, warm_up=3, rounds=2)
ON_CARD = Workload(768, 12, 3072, batch_size=64, longest=256, steps=24, warm_up=8, rounds=2)
SMALL = Workload(64, 2, 128, batch_size=8, longest=24, steps=3, warm_up=1, rounds=1)  # proves that options run


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or several, as the differences from a run with none."""

    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of TrainingConfig
    fused: bool = False  # AdamW in one kernel for all weights

    def config(self, workload: Workload, device: str) -> TrainingConfig:
        """The run's settings. ``micro_batch`` is a divisor of the batch."""
        size = workload.batch_size
        changes = {**self.changes, "micro_batch": size // self.changes.get("micro_batch", 1)}
        plain = TrainingConfig(
            use_amp=False,
            batch_size=size,
            max_steps=workload.steps,
            epochs=50,
            learning_rate=3e-4,
            num_workers=0,
            group_by_length=False,
            device=device,
        )
        return replace(plain, **changes)


_BF16 = {"use_amp": True, "mixed_precision": MixedPrecisionConfig(dtype="bfloat16")}
_FP16 = {"use_amp": True, "mixed_precision": MixedPrecisionConfig(dtype="float16")}
OPTIONS: Mapping[str, Option] = {
    NONE: Option(),
    "mixed precision, bf16": Option(_BF16),
    "mixed precision, fp16": Option(_FP16),
    "gradient checkpointing": Option({"gradient_checkpointing": True}),
    "accumulation, a quarter of the batch 4 times": Option({"micro_batch": 4}),
    "LoRA, rank 16": Option({"lora_rank": 16}),
    "texts of like lengths in a batch": Option({"group_by_length": True}),
    "loader with 2 workers, pinned on a GPU": Option({"num_workers": 2}),
    "fused AdamW": Option(fused=True),
    "torch.compile": Option({"compile": True}),
    "focal loss, smoothing": Option({"focal_gamma": 2.0, "label_smoothing": 0.1}),
    TOGETHER: Option({**_BF16, "group_by_length": True, "num_workers": 2, "compile": True}, fused=True),
    "all for memory together": Option({**_BF16, "gradient_checkpointing": True, "micro_batch": 4}, fused=True),
}


@dataclass
class Classes:
    """A task with generated texts, whose class is the range that most of their words come from."""

    config: TrainingConfig
    workload: Workload
    name: str = "text-classifier"
    splittable: bool = True
    goal: str = "accuracy"
    texts: list[torch.Tensor] = field(default_factory=list)
    model: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        """Generate texts and model from a fixed seed."""
        torch.manual_seed(7)
        sizes = self.workload
        for index in range(sizes.texts):
            words = torch.randint(5, _WORDS, (int(torch.randint(8, sizes.longest + 1, ())),))
            is_class_word = torch.rand(len(words)) < 0.5
            words[is_class_word] = (
                5 + words[is_class_word] % (_WORDS // _CLASSES - 5) + (index % _CLASSES) * (_WORDS // _CLASSES)
            )
            self.texts.append(words)
        shape: Any = BertConfig(
            vocab_size=30522,
            hidden_size=sizes.width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.width // 32 if sizes.width < 768 else 12,
            intermediate_size=sizes.hidden_width,
        )
        shape.num_labels = _CLASSES
        model: Any = AutoModelForSequenceClassification.from_config(shape)  # type: ignore[no-untyped-call]
        rank = self.config.lora_rank
        self.model = model if rank is None else add_lora(model, rank)

    @property
    def lengths(self) -> Sequence[int]:
        """Number of words of each text."""
        return [len(text) for text in self.texts]

    def collate(self, indices: Sequence[int]) -> Batch:
        """Padded ids, mask and class of each text."""
        ids = nn.utils.rnn.pad_sequence([self.texts[index] for index in indices], batch_first=True)
        labels = torch.tensor([index % _CLASSES for index in indices])
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Cross entropy with the configured focal term and smoothing."""
        config = self.config
        return classification_loss(
            model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits,
            batch["labels"],
            focal_gamma=config.focal_gamma,
            label_smoothing=config.label_smoothing,
        )

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """No evaluation: only steps are measured."""
        del model
        return {}

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """Nothing is written."""


@dataclass
class StepTimer:
    """Records end time and loss of each step."""

    ends: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def on_event(self, event: StepEvent) -> None:
        """Record a step event."""
        if event.kind == "step":
            self.ends.append(time.perf_counter())
            self.losses.append(event.values.get("loss", float("nan")))

    def close(self) -> None:
        """No resources to release."""


def measure(
    device: str,
    workload: Workload,
    *,
    without: Collection[str] = (),
    keep: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """A row for each option, round after round; ``keep`` gets what is measured so far after each.

    Args:
        without: names of options that are left out.
    """
    left_out = {*without, *(name for name in OPTIONS if device == "cpu" and "fp16" in name)}
    options = {name: option for name, option in OPTIONS.items() if name not in left_out}
    steps_s: dict[str, list[float]] = {name: [] for name in options}
    losses: dict[str, float] = {}
    faults: dict[str, str] = {}
    memory: dict[str, int | None] = {}
    result: dict[str, Any] = {}
    for index in range(workload.rounds):
        for name, option in options.items():
            if name in faults:
                continue
            try:
                if index == 0:
                    memory[name] = _memory_bytes(option, workload, device)
                seconds, losses[name] = _run(option, workload, device)
            except (FinanciaError, RuntimeError) as error:  # of this option; the others are measured
                faults[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
                continue
            steps_s[name].append(seconds)
            print(f"{name:<44} {seconds:.4f} s a step, loss {losses[name]:.4f}", flush=True)
            result = {
                "device": device,
                "workload": asdict(workload),
                "steps": workload.steps,
                "rows": [_row(each, steps_s[each], memory[each], losses[each]) for each in options if steps_s[each]],
                "faults": faults,
            }
            if keep is not None:
                keep(result)
    return {**result, "faults": faults}


def _row(name: str, times: list[float], memory_bytes: int | None, loss: float) -> dict[str, Any]:
    step_s = {"median": statistics.median(times), "min": min(times), "max": max(times)}
    return {"option": name, "step_s": step_s, "memory_bytes": memory_bytes, "loss": loss}


def main() -> None:
    """Measure every option round after round, print a row each, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few steps: for development")
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    environment = facts()
    usual = ON_CPU if flags.device == "cpu" else ON_CARD
    result = measure(flags.device, SMALL if flags.quick else usual, without=COMPILED if flags.quick else ())
    flags.out.write_text(json.dumps({**environment, **result}, indent=1) + "\n", encoding="utf-8")


def _run(option: Option, workload: Workload, device: str, *, steps: int | None = None) -> tuple[float, float]:
    """Median seconds of the steps after warm-up, and the loss of the last."""
    config, timer = option.config(workload, device), StepTimer()
    config = config if steps is None else replace(config, max_steps=steps)
    with nullcontext() if option.fused else patch(_FUSED, ()):
        train(Classes(config, workload), config, output=None, observers=(timer,))
    ends = timer.ends[workload.warm_up if steps is None else 0 :]
    times = [after - before for before, after in pairwise(ends)]
    return statistics.median(times), timer.losses[-1]


def _memory_bytes(option: Option, workload: Workload, device: str) -> int | None:
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
        _run(option, workload, device, steps=2)
        return int(torch.cuda.max_memory_allocated(device))
    config = option.config(workload, device)
    task = Classes(config, workload)
    longest = max(range(workload.texts), key=lambda index: task.lengths[index])
    half, count = "bf16" if config.use_amp else None, config.items_at_once or config.batch_size
    candidates = estimate_footprints(
        task.model, longest_example_inputs(task.model, task.collate, longest), [count], half=half
    )
    footprint = next(
        (candidate for candidate in candidates if candidate.checkpointing == config.gradient_checkpointing), None
    )
    # weights, gradients and activations at their peak, and AdamW's two moments
    return (
        None
        if footprint is None
        else footprint.weights_bytes + footprint.peak_bytes(count) + 2 * footprint.trained_bytes
    )


if __name__ == "__main__":
    main()
