"""Classes of texts from few examples: a logistic head on the vectors of a frozen encoder, calibrated.

The head is some kilobytes and runs on the vectors that the embedding lanes make anyway. Training takes seconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backend.errors import BadSettings
from backend.models.calibration import Temperature, softmax
from backend.models.classifier_head import NONE, ClassifierHead, WideWeights, write_head
from backend.models.logistic import MULTI_LABEL_THRESHOLD, FittedHead, fit_head
from backend.models.model_files import BUNDLED
from backend.models.spec import ModelSpec
from backend.training.metrics import Report
from backend.training.model_card import write_card
from backend.training.records import Batch, LossPart, TrainingConfig, TrainingResult
from backend.training.tasks.frozen import vectors_of
from backend.training.tasks.text_classifier import LabelledData, card_of, labelled_loss, read_data

ENCODER = "encoder"  # the folder of a base that not every installation has
_ENCODER_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "1_Pooling/config.json")


def prepare(
    data: Path,
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    device: str = "cpu",
) -> ClassifierHeadTask:
    """Read the data and let the frozen base make its vectors once, on ``device``.

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    refuse_unsolvable(config)
    read = read_data(data, evaluation=evaluation, held_out=held_out)
    vectors, truncated = vectors_of(base, [one.text for one in (*read.learn, *read.judge)], device=device)
    return ClassifierHeadTask(base, config, read, torch.from_numpy(vectors), truncated=truncated)


def refuse_unsolvable(config: TrainingConfig) -> None:
    """Losses that only steps can follow. Raises: BadSettings."""
    wished = {"--focal-gamma": config.focal_gamma, "--label-smoothing": config.label_smoothing}
    faults = [
        f"{flag}={value:g}: a head on frozen vectors is solved for plain cross entropy, with its own penalty and "
        "calibration; leave it out, or train the encoder with --mode full"
        for flag, value in wished.items()
        if value
    ]
    if faults:
        raise BadSettings(faults)


class ClassifierHeadTask:
    """Task "text-classifier" on frozen vectors. ``fit`` solves it; the loop can train it like any other."""

    name = "text-classifier"
    splittable = True

    def __init__(
        self, base: ModelSpec, config: TrainingConfig, data: LabelledData, vectors: Tensor, *, truncated: int = 0
    ) -> None:
        """Shapes: vectors (texts to learn from, then texts to evaluate on; width)."""
        self.data = data
        self.truncated = truncated
        self._base, self._config = base, config
        self._size = vectors[: len(data.learn)].square().mean().sqrt().item() or 1.0
        self._vectors = vectors / self._size  # of mean square 1, so that learning rates mean the same
        self._targets = data.targets(data.learn)
        self._weights = data.weights(config)
        self._solved: FittedHead | None = None
        self.model: nn.Module = self._fresh(vectors.dtype)

    @property
    def goal(self) -> str:
        """What is compared between evaluations."""
        return self.data.goal

    @property
    def lengths(self) -> Sequence[int]:
        """All equal."""
        return [1] * len(self.data.learn)

    def collate(self, indices: Sequence[int]) -> Batch:
        """``vectors`` (batch, width) of mean square 1 and ``targets``."""
        return {"vectors": self._vectors[list(indices)], "targets": self._targets[list(indices)]}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """As in fine-tuning."""
        return labelled_loss(model(batch["vectors"]), batch["targets"], self._config, self._weights)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """As in fine-tuning; of a solved head with one class a text, what its threshold does besides.

        ``answered`` is the share of texts of the classes that get one, ``answered_accuracy`` how often it is right, and
        ``foreign_answered`` the share of texts of no class that get one nevertheless.
        """
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The same with every class, and what is not defined."""
        logits = self._judged(model)
        report = self.data.report(logits)
        if self._solved is None or self.data.multiple or not self.data.judge:
            return report
        return replace(report, scores={**report.scores, **self._answers(logits.numpy())})

    def by_set(self, model: nn.Module) -> dict[str, Report]:
        """The same of each file that evaluation texts come from, such as one a language."""
        logits, found = self._judged(model), {}
        files = [Path(one.place.rpartition(":")[0]).stem for one in self.data.judge]
        for name in dict.fromkeys(files):
            some = [place for place, file in enumerate(files) if file == name]
            part = replace(self.data, judge=[self.data.judge[place] for place in some])
            found[name] = part.report(logits[some])
        return found

    def fit(self) -> TrainingResult:
        """Solve the head; nothing of it looks at the evaluation texts, so their scores are honest."""
        labels = list(self.data.labels)
        solved = self._solved = fit_head(
            self._vectors[: len(self.data.learn)].numpy(),
            self._targets.numpy(),
            labels=len(labels),
            class_weights=None if self._weights is None else self._weights.numpy(),
            texts=[one.text for one in self.data.learn],
            groups=[one.group or one.text for one in self.data.learn],
            background=labels.index(NONE) if self._background else None,
        )
        state = {"weight": torch.from_numpy(solved.weight).float(), "bias": torch.from_numpy(solved.bias).float()}
        self.model.load_state_dict(state)
        count, steps = len(self.data.learn), solved.iterations
        return TrainingResult(steps, float(steps), solved.loss, self.evaluate(self.model), "fp32", count, "converged")

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """``head.json`` and ``head.safetensors``, a card, and the encoder where it is not the bundled one."""
        output.mkdir(parents=True, exist_ok=True)
        bundled = self._base.source == BUNDLED
        if not bundled:
            _copy_encoder(self._base.folder, output / ENCODER)
        head = self._head(model, output.name)
        write_head(output, head, encoder=BUNDLED if bundled else ENCODER)
        temperature = self._solved.temperature if self._solved else Temperature(1.0, "not fitted")
        card = card_of(self.data, self._base, output.name, notes, report=self.report(model), temperature=temperature)
        kind = (
            "A head on frozen vectors and character n-grams" if head.reads_text else "A linear head on frozen vectors"
        )
        limits = [f"{kind}; reads the first {self._base.max_tokens} tokens of a text."]
        if head.threshold and not head.multiple:
            limits.append(f"Gives no class where the best score is below {head.threshold:.3f}.")
        card = replace(card, labels=head.labels, library="financia", by_set=self.by_set(model), usage=_USAGE)
        write_card(output, replace(card, limits=[*limits, *card.limits]))

    @property
    def _background(self) -> bool:
        return NONE in self.data.labels and not self.data.multiple

    def _head(self, model: nn.Module, name: str) -> ClassifierHead:
        """The model as it is served: rows in the labels' order, the background last."""
        assert isinstance(model, nn.Linear)
        weight, bias = (value.detach().cpu().float().numpy() for value in (model.weight, model.bias))
        names = [label for label in self.data.labels if not (self._background and label == NONE)]
        order = [self.data.labels.index(label) for label in (*names, *([NONE] if self._background else []))]
        threshold = MULTI_LABEL_THRESHOLD if self.data.multiple else 0.0
        wide = self._wider(self._size)
        return ClassifierHead(
            labels=tuple(names),
            multiple=self.data.multiple,
            weight=(weight[order] / self._size).astype(np.float32),
            bias=bias[order],
            encoder=self._base.source,
            encoder_sha256=self._base.sha256,
            name=name,
            threshold=self._solved.threshold if self._solved else threshold,
            info=self._info(),
            wide=None if wide is None else wide.rows(order),
        )

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"examples": len(self.data.learn)}
        if self._solved is not None:
            info |= {
                "penalty": self._solved.penalty,
                "temperature": round(self._solved.temperature.value, 4),
                "temperature_why": self._solved.temperature.why,
                "accuracy_on_folds": self._solved.accuracy,
            }
        return info

    def _fresh(self, dtype: torch.dtype) -> nn.Linear:
        """A head that knows nothing: every class equally likely."""
        head = nn.Linear(self._vectors.shape[1], len(self.data.labels), dtype=dtype)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    @torch.no_grad()
    def _judged(self, model: nn.Module) -> Tensor:
        """Logits of the evaluation texts, on the CPU."""
        device, vectors = next(model.parameters()).device, self._vectors[len(self.data.learn) :]
        logits: Tensor = model(vectors.to(device)).float().cpu()
        wide = self._wider(1.0)
        if wide is None:
            return logits
        more = wide.logits(vectors.numpy(), [one.text for one in self.data.judge])
        return logits + torch.from_numpy(more).float()

    def _wider(self, size: float) -> WideWeights | None:
        """What the solver took beside the vectors, for vectors ``size`` times as long as its own."""
        one = self._solved
        if one is None or one.gate is None or one.gated is None or one.table is None:
            return None
        return WideWeights(one.gate.of_unit(size), (one.gated / size).astype(np.float32), one.table.astype(np.float32))

    def _answers(self, logits: NDArray[np.float32]) -> dict[str, float]:
        """What the threshold lets through. Shapes: (items, labels)."""
        assert self._solved is not None
        scores, truth = softmax(logits), self.data.targets(self.data.judge).numpy()
        own = np.ones(len(truth), dtype=bool)
        if self._background:
            place = self.data.labels.index(NONE)
            scores[:, place], own = -1.0, truth != place
        given = scores.max(axis=1) >= self._solved.threshold
        right = scores.argmax(axis=1) == truth
        found: dict[str, float] = {}
        if own.any():
            found["answered"] = float(given[own].mean())
        if (given & own).any():
            found["answered_accuracy"] = float(right[given & own].mean())
        if not own.all():
            found["foreign_answered"] = float(given[~own].mean())
        return found


_USAGE = """
from pathlib import Path

from backend.models.classifier_head import read_head

head = read_head(Path(FOLDER))
scores = head.probabilities(VECTORS, TEXTS)  # vectors of the encoder head.encoder, as the service gives them
answers = head.best(scores)  # numbers of head.labels; -1 where no class is likely enough
"""


def _copy_encoder(folder: Path, output: Path) -> None:
    for pattern in _ENCODER_FILES:
        for file in folder.glob(pattern):
            target = output / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
