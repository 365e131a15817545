"""Records of a training run: its settings (validated), its task, its events and its result.

MixedPrecisionConfig and TrainingConfig have the names and fields that training guides use (docs/training.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from backend.errors import BadSettings

Schedule = Literal["one_cycle", "linear", "cosine", "polynomial", "constant"]
_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"}
_HYSTERESIS_MAX = 50  # more bad steps in a row than any run survives (measured)


@dataclass(frozen=True, slots=True)
class MixedPrecisionConfig:
    """Half precision and the gradient scaler. Raises: BadSettings for combinations that only look right."""

    enabled: bool = True
    dtype: str = "auto"  # "auto", "bfloat16" or "float16"
    loss_scaling: bool | None = None  # None: where it is needed, which is float16 alone
    initial_scale: float = 2.0**16
    growth_factor: float = 2.0  # above 1
    backoff_factor: float = 0.5  # between 0 and 1
    growth_interval: int = 2000  # good steps before the scale grows
    hysteresis: int = 2  # bad steps in a row before the scale falls, as in Megatron-LM
    min_scale: float = 1.0
    max_scale: float = 2.0**24

    def __post_init__(self) -> None:
        faults = [fault for fault, wrong in self._checks() if wrong]
        if faults:
            raise BadSettings(faults)

    @property
    def short_dtype(self) -> str:
        """One of "auto", "bf16" and "fp16"."""
        return "auto" if self.dtype == "auto" else _DTYPES[self.dtype]

    @property
    def scales(self) -> bool:
        """Whether a scaler is wanted if the dtype turns out to be float16."""
        return self.loss_scaling is not False

    def _checks(self) -> list[tuple[str, bool]]:
        known = self.dtype == "auto" or self.dtype in _DTYPES
        bf16 = _DTYPES.get(self.dtype) == "bf16"
        return [
            (f"dtype={self.dtype!r}: use auto, bfloat16 or float16", not known),
            (
                "loss_scaling=True with bfloat16: it has float32's range, so a scaler only skips steps; leave it out",
                bf16 and self.loss_scaling is True,
            ),
            (f"growth_factor={self.growth_factor:g}: must be above 1", not self.growth_factor > 1),
            (f"backoff_factor={self.backoff_factor:g}: must be between 0 and 1", not 0 < self.backoff_factor < 1),
            (f"growth_interval={self.growth_interval}: must be at least 1", self.growth_interval < 1),
            (
                f"hysteresis={self.hysteresis}: bad steps in a row to bear; 1 to {_HYSTERESIS_MAX}, usually 2",
                not 1 <= self.hysteresis <= _HYSTERESIS_MAX,
            ),
            (
                f"scales {self.min_scale:g} <= {self.initial_scale:g} <= {self.max_scale:g} must be in this order",
                not 0 < self.min_scale <= self.initial_scale <= self.max_scale,
            ),
        ]


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How to train. Every automatic choice has its off switch. Raises: BadSettings with every fault at once."""

    epochs: int = 3
    max_steps: int | None = None  # optimizer steps; ends a run before its epochs do
    batch_size: int = 32  # items of an optimizer step, all ranks together: the effective batch
    micro_batch: int | None = None  # items that run at once; None: planned, and lowered when memory runs out
    learning_rate: float = 5e-5
    head_learning_rate: float | None = None  # of a new head, which begins with nothing; None: the same
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float | None = 1.0  # None: no clipping
    schedule: Schedule = "one_cycle"
    warmup_ratio: float = 0.1  # of all steps
    device: str = "auto"
    use_amp: bool = True
    mixed_precision: MixedPrecisionConfig = field(default_factory=MixedPrecisionConfig)
    compile: bool = False
    channels_last: bool | None = None  # None: for image models on a GPU
    gradient_checkpointing: bool = False
    eight_bit_optimizer: bool = False
    num_workers: int | None = None  # None: from cores, /dev/shm and platform
    focal_gamma: float = 0.0  # 0: plain cross entropy
    label_smoothing: float = 0.0
    class_weights: Literal["none", "balanced"] = "none"
    lora_rank: int | None = None  # None: full fine-tuning
    lora_alpha: float | None = None  # None: twice the rank
    lora_dropout: float = 0.05
    group_by_length: bool = True
    evaluate_every: int | None = None  # steps; None: each epoch
    patience: int | None = None  # evaluations without improvement before the run ends; None: never
    checkpoint_every: int | None = None  # steps; None: each epoch
    keep_checkpoints: int = 2
    snapshot_every: int = 50  # steps between two snapshots in memory that a precision fallback can return to
    seed: int = 42
    deterministic: bool = False

    def __post_init__(self) -> None:
        faults = [fault for fault, wrong in self._checks() if wrong]
        if faults:
            raise BadSettings(faults)

    def _checks(self) -> list[tuple[str, bool]]:
        counts = ("epochs", "batch_size", "keep_checkpoints", "snapshot_every")
        optional = ("max_steps", "micro_batch", "lora_rank", "evaluate_every", "patience", "checkpoint_every")
        few = [(name, getattr(self, name)) for name in counts]
        few += [(name, getattr(self, name)) for name in optional if getattr(self, name) is not None]
        return [
            *((f"{name}={value}: must be at least 1", value < 1) for name, value in few),
            (f"learning_rate={self.learning_rate:g}: must be above 0", not self.learning_rate > 0),
            (
                f"head_learning_rate={self.head_learning_rate}: must be above 0, or None",
                self.head_learning_rate is not None and not self.head_learning_rate > 0,
            ),
            (f"weight_decay={self.weight_decay:g}: must not be negative", self.weight_decay < 0),
            (f"warmup_ratio={self.warmup_ratio:g}: must be from 0 to below 1", not 0 <= self.warmup_ratio < 1),
            (f"label_smoothing={self.label_smoothing:g}: must be from 0 to below 1", not 0 <= self.label_smoothing < 1),
            (f"focal_gamma={self.focal_gamma:g}: must not be negative", self.focal_gamma < 0),
            (f"lora_dropout={self.lora_dropout:g}: must be from 0 to below 1", not 0 <= self.lora_dropout < 1),
            (f"num_workers={self.num_workers}: must not be negative", (self.num_workers or 0) < 0),
            (
                f"max_grad_norm={self.max_grad_norm}: must be above 0, or None",
                self.max_grad_norm is not None and not self.max_grad_norm > 0,
            ),
            (
                f"micro_batch={self.micro_batch} is more than batch_size={self.batch_size}",
                (self.micro_batch or 0) > self.batch_size,
            ),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; for checkpoints, logs and the model card."""
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        precision = {each.name: getattr(self.mixed_precision, each.name) for each in fields(self.mixed_precision)}
        return {**record, "mixed_precision": precision, "betas": list(self.betas)}


@dataclass(frozen=True, slots=True)
class LossPart:
    """The loss of a micro-batch as a sum, so that any split of an effective batch gives the same loss and gradient."""

    total: Tensor  # scalar float32, with its graph: the sum of the items' losses
    weight: float  # what the sum stands for: items, labelled tokens, class weights


Batch = Mapping[str, Any]  # tensors and whatever else the task's loss reads


class Task(Protocol):
    """What to train: the model, its examples as batches, the loss, the evaluation, and how the model is published."""

    @property
    def name(self) -> str:
        """One of "text-classifier", "ner", "embeddings" and "document-images", or a user's own."""

    @property
    def model(self) -> nn.Module:
        """The model to train; on the CPU when a run begins."""

    @property
    def splittable(self) -> bool:
        """Whether batches may be split anywhere; False where the loss compares items of a batch with one another."""

    @property
    def lengths(self) -> Sequence[int]:
        """Of every training example, in tokens or any unit of cost; all equal where it does not matter."""

    def collate(self, indices: Sequence[int]) -> Batch:
        """The training examples of these numbers as one micro-batch of CPU tensors. Runs in loader threads."""

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Run the model (it may be compiled) on a batch that is on the device already."""

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """The field's metrics on the evaluation examples; empty without any. The model is in evaluation mode."""

    @property
    def goal(self) -> str:
        """The metric that early stopping and the best checkpoint go by, e.g. "f1"; higher is better."""

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """Write what the service loads: weights in safetensors, configuration, tokenizer, labels, model card."""


@dataclass(frozen=True, slots=True)
class StepEvent:
    """An event for progress bars and logs: a step, an evaluation, or an intervention."""

    kind: Literal["start", "step", "evaluation", "checkpoint", "out_of_memory", "thrash", "precision", "stop", "end"]
    step: int  # optimizer steps done
    epoch: float
    values: Mapping[str, Any] = field(default_factory=dict)  # loss, learning_rate, grad_norm, scale, micro_batch, …
    message: str = ""  # one sentence for people, for a decision


class Observer(Protocol):
    """Receives every event of a run, on the training thread of rank 0; must not raise and must not block."""

    def on_event(self, event: StepEvent) -> None:
        """Called for each event, in order."""

    def close(self) -> None:
        """Called once at the end of the run, however it ended."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The outcome of a run."""

    steps: int
    epochs: float
    loss: float  # mean over the last epoch's effective batches
    metrics: Mapping[str, float]  # of the best evaluation
    precision: str  # that the run ended with: "bf16", "fp16", "tf32" or "fp32"
    micro_batch: int  # that the run ended with
    reason: str  # why it ended: "epochs", "max_steps", "patience", "interrupted"
    events: Sequence[StepEvent] = ()  # interventions: out of memory, precision, thrash
    skipped: Sequence[int] = ()  # examples left out because their loss was not finite
