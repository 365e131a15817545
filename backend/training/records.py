"""Records of a training run: its settings (validated), its task, its events and its result.

MixedPrecisionConfig and TrainingConfig have the names and fields that training guides use (docs/training.md).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from backend.errors import BadSettings

Schedule = Literal["one_cycle", "linear", "cosine", "polynomial", "constant"]
_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"}
_HYSTERESIS_MAX = 50  # more bad steps in a row than any run survives (measured)
_UNSET: Any = object()


@dataclass(slots=True)
class MixedPrecisionConfig:
    """Half precision and the gradient scaler.

    Fields may be assigned later, as guides do (``config.dtype = "bfloat16"``): a run reads them when it starts,
    ``MixedPrecisionTrainer`` at the beginning of each step. An invalid value raises and leaves the old one.
    ``loss_scaling=True`` with bfloat16, as guides write it, is taken back with a warning; a ``hysteresis`` that no run
    would survive is refused unless bfloat16 is asked for, which no scaler reads.

    Raises: BadSettings for combinations that only look right.
    """

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
    recovery_interval: int | None = 200  # clean steps in a lower precision before the one above is tried; None: never

    def __post_init__(self) -> None:
        self._check()

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign and validate; an invalid value raises and the old values stay."""
        old = getattr(self, name, _UNSET)
        object.__setattr__(self, name, value)
        if old is _UNSET:  # in __init__: __post_init__ checks all fields together
            return
        try:
            self._check()
        except (BadSettings, TypeError, ValueError) as error:
            object.__setattr__(self, name, old)
            if isinstance(error, BadSettings):
                raise
            raise BadSettings([f"{name}={value!r}: not of the kind of {old!r}"]) from error

    @property
    def short_dtype(self) -> str:
        """One of "auto", "bf16" and "fp16"."""
        return "auto" if self.dtype == "auto" else _DTYPES[self.dtype]

    @property
    def scales(self) -> bool:
        """Whether a scaler is wanted if the dtype turns out to be float16."""
        return self.loss_scaling is not False

    def _check(self) -> None:
        if faults := [fault for fault, wrong in self._checks() if wrong]:
            raise BadSettings(faults)
        if self.loss_scaling and self.short_dtype == "bf16":
            reason = "bfloat16 has float32's range, so a scaler only skips steps"
            warnings.warn(f"loss_scaling=True with bfloat16 has no effect: {reason}; leave it out", stacklevel=4)
            object.__setattr__(self, "loss_scaling", None)

    def _checks(self) -> list[tuple[str, bool]]:
        known = self.dtype == "auto" or self.dtype in _DTYPES
        return [
            (f"dtype={self.dtype!r}: use auto, bfloat16 or float16", not known),
            (f"growth_factor={self.growth_factor:g}: must be above 1", not self.growth_factor > 1),
            (f"backoff_factor={self.backoff_factor:g}: must be between 0 and 1", not 0 < self.backoff_factor < 1),
            (f"growth_interval={self.growth_interval}: must be at least 1", self.growth_interval < 1),
            (
                f"hysteresis={self.hysteresis}: bad steps in a row to bear; 1 to {_HYSTERESIS_MAX}, usually 2",
                not 1 <= self.hysteresis <= (sys.maxsize if _DTYPES.get(self.dtype) == "bf16" else _HYSTERESIS_MAX),
            ),
            (
                f"scales {self.min_scale:g} <= {self.initial_scale:g} <= {self.max_scale:g} must be in this order",
                not 0 < self.min_scale <= self.initial_scale <= self.max_scale,
            ),
            (
                f"recovery_interval={self.recovery_interval}: clean steps, at least 1; None never goes back up",
                self.recovery_interval is not None and self.recovery_interval < 1,
            ),
        ]


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How to train. Every automatic choice has its off switch. Raises: BadSettings with every fault at once."""

    epochs: int = 3
    max_steps: int | None = None  # optimizer steps; ends a run before its epochs do
    batch_size: int = 32  # items of an optimizer step, all ranks together; see effective_batch
    gradient_accumulation_steps: int | None = None  # so many batches of batch_size, one after the other, make one step
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
    amp_dtype: str | None = None  # another place for mixed_precision.dtype; None leaves it to that
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
        if faults := [*faults, *self._amp_faults()]:
            raise BadSettings(faults)

    @property
    def effective_batch(self) -> int:
        """Items of an optimizer step, all ranks together."""
        return self.batch_size * (self.gradient_accumulation_steps or 1)

    @property
    def items_at_once(self) -> int | None:
        """``micro_batch``, or the ``batch_size`` that accumulation steps are counted in; None: planned."""
        if self.micro_batch is None and self.gradient_accumulation_steps is not None:
            return self.batch_size
        return self.micro_batch

    @property
    def short_dtype(self) -> str:
        """The half precision that is asked for: one of "auto", "bf16" and "fp16"."""
        return self.mixed_precision.short_dtype if self.amp_dtype in (None, "auto") else _DTYPES[str(self.amp_dtype)]

    def _amp_faults(self) -> Sequence[str]:
        """What is wrong with ``amp_dtype`` beside the settings of mixed precision."""
        given, mixed = self.amp_dtype, self.mixed_precision
        if given is None:
            return ()
        if given in _DTYPES and mixed.short_dtype not in ("auto", _DTYPES[given]):
            return (f"amp_dtype={given!r} contradicts dtype={mixed.dtype!r} of mixed_precision; leave one of them out",)
        try:
            replace(mixed, dtype=given)
        except BadSettings as error:
            return [f"amp_dtype: {fault}" for fault in error.faults]
        return ()

    def _checks(self) -> list[tuple[str, bool]]:
        counts = ("epochs", "batch_size", "keep_checkpoints", "snapshot_every")
        optional: tuple[str, ...] = ("max_steps", "micro_batch", "gradient_accumulation_steps", "lora_rank")
        optional += ("evaluate_every", "patience", "checkpoint_every")
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
                f"micro_batch={self.micro_batch} is more than the {self.effective_batch} items of a step",
                (self.micro_batch or 0) > self.effective_batch,
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


EventKind = Literal["start", "step", "evaluation", "checkpoint", "out_of_memory", "thrash", "precision", "stop", "end"]
INTERVENTIONS: frozenset[EventKind] = frozenset({"out_of_memory", "thrash", "precision"})  # wrong, and recovered from


@dataclass(frozen=True, slots=True)
class StepEvent:
    """An event for progress bars and logs: a step, an evaluation, or an intervention."""

    kind: EventKind
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
    precision: str  # that the run ended with: "bf16", "fp16", "tf32" or "fp32"; see steps_by_precision
    micro_batch: int  # that the run ended with
    reason: str  # why it ended: "epochs", "max_steps", "patience", "interrupted"
    events: Sequence[StepEvent] = ()  # interventions: out of memory, precision, thrash
    skipped: Sequence[int] = ()  # examples left out because their loss was not finite
    steps_by_precision: Mapping[str, int] = field(default_factory=dict)  # of ``steps``: {"bf16": 900, "fp32": 100}

    @property
    def precisions(self) -> str:
        """The one precision of the run; where it changed, each with its number of steps."""
        used = self.steps_by_precision
        return " and ".join(f"{name} ({steps})" for name, steps in used.items()) if len(used) > 1 else self.precision

    def summary(self) -> dict[str, Any]:
        """What a model card says of the run."""
        changes = [event.message for event in self.events if event.kind == "precision"]
        return {
            "steps": self.steps,
            "epochs": round(self.epochs, 3),
            "loss": self.loss,
            "precision": self.precisions,
            **({"precision changes": changes} if changes else {}),
            "ended by": self.reason,
            **({"examples left out": list(self.skipped)} if self.skipped else {}),
        }
