"""Effect of each training option on the time of a step, memory and loss.

    python -m benchmarks.training                    # on the CPU
    python -m benchmarks.training --device cuda:0    # on a GPU, also with fp16

A BERT of MiniLM's size (random weights, fixed seed) is trained to classify texts of made-up words, in batches of 32
texts of up to 128 tokens. Every option runs the same batches; rounds are interleaved and the median step counts. Memory
is the allocator's peak on a GPU, and the estimate of a dry run on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, BertConfig

from backend.training.lora import add_lora
from backend.training.losses import classification_loss
from backend.training.memory.footprint import estimate_footprints, longest_example_inputs
from backend.training.records import Batch, LossPart, MixedPrecisionConfig, StepEvent, TrainingConfig
from backend.training.trainer.loop import train
from benchmarks.machine import facts

RESULT = Path(__file__).parent / "results" / "training.json"
_STEPS, _WARM_UP, _ROUNDS = 9, 3, 2
_CLASSES, _TEXTS, _WORDS = 4, 448, 2000
PLAIN = TrainingConfig(
    use_amp=False, batch_size=32, micro_batch=32, max_steps=_STEPS, epochs=50, learning_rate=3e-4, num_workers=0
)
OPTIONS: Mapping[str, TrainingConfig] = {
    "none": PLAIN,
    "mixed precision, bf16": replace(PLAIN, use_amp=True, mixed_precision=MixedPrecisionConfig(dtype="bfloat16")),
    "mixed precision, fp16": replace(PLAIN, use_amp=True, mixed_precision=MixedPrecisionConfig(dtype="float16")),
    "gradient checkpointing": replace(PLAIN, gradient_checkpointing=True),
    "accumulation, 4 x 8": replace(PLAIN, micro_batch=8),
    "LoRA, rank 16": replace(PLAIN, lora_rank=16),
    "lengths not grouped": replace(PLAIN, group_by_length=False),
    "loader with 1 worker": replace(PLAIN, num_workers=1),
    "torch.compile": replace(PLAIN, compile=True),
    "focal loss, smoothing": replace(PLAIN, focal_gamma=2.0, label_smoothing=0.1),
}


@dataclass
class Classes:
    """A task with generated texts, whose class is the range that most of their words come from."""

    config: TrainingConfig
    name: str = "text-classifier"
    splittable: bool = True
    goal: str = "accuracy"
    texts: list[torch.Tensor] = field(default_factory=list)
    model: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        """Generate texts and model from a fixed seed."""
        torch.manual_seed(7)
        for index in range(_TEXTS):
            words = torch.randint(5, _WORDS, (int(torch.randint(8, 129, ())),))
            is_class_word = torch.rand(len(words)) < 0.5
            words[is_class_word] = (
                5 + words[is_class_word] % (_WORDS // _CLASSES - 5) + (index % _CLASSES) * (_WORDS // _CLASSES)
            )
            self.texts.append(words)
        shape: Any = BertConfig(
            vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
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
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        config = self.config
        return classification_loss(
            logits, batch["labels"], focal_gamma=config.focal_gamma, label_smoothing=config.label_smoothing
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


def main() -> None:
    """Measure every option round after round, print a row each, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    options = {name: config for name, config in OPTIONS.items() if device != "cpu" or "fp16" not in name}
    steps_s: dict[str, list[float]] = {name: [] for name in options}
    losses: dict[str, float] = {}
    memory = {name: _memory_bytes(config, device) for name, config in options.items()}
    for _ in range(_ROUNDS):
        for name, config in options.items():
            seconds, losses[name] = _run(replace(config, device=device))
            steps_s[name].append(seconds)
            print(f"{name:<26} {seconds:.3f} s a step, loss {losses[name]:.4f}", flush=True)
    rows = [
        {
            "option": name,
            "step_s": {"median": statistics.median(times), "min": min(times), "max": max(times)},
            "memory_bytes": memory[name],
            "loss": losses[name],
        }
        for name, times in steps_s.items()
    ]
    RESULT.write_text(json.dumps({**facts(), "device": device, "steps": _STEPS, "rows": rows}, indent=1) + "\n")


def _run(config: TrainingConfig) -> tuple[float, float]:
    """Median seconds of the steps after warm-up, and the loss of the last."""
    timer = StepTimer()
    train(Classes(config), config, output=None, observers=(timer,))
    times = [after - before for before, after in zip(timer.ends[_WARM_UP:], timer.ends[_WARM_UP + 1 :], strict=False)]
    return statistics.median(times), timer.losses[-1]


def _memory_bytes(config: TrainingConfig, device: str) -> int | None:
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
        _run(replace(config, device=device, max_steps=2))
        return int(torch.cuda.max_memory_allocated(device))
    task = Classes(config)
    longest = max(range(_TEXTS), key=lambda index: task.lengths[index])
    half, count = "bf16" if config.use_amp else None, config.micro_batch or config.batch_size
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
