"""Classes of texts from few examples: a logistic head on the vectors of a frozen encoder, calibrated.

The head is some kilobytes and runs on the vectors that the embedding lanes make anyway. Training takes seconds.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec
from backend.models.store import BUNDLED
from backend.training.card import write_card
from backend.training.metrics import Report, Temperature, fit_temperature, log_loss, softmax
from backend.training.records import Batch, LossPart, TrainingConfig, TrainingResult
from backend.training.tasks.frozen import vectors_of
from backend.training.tasks.text_classifier import LabelledData, card_of, labelled_loss, read_data
from backend.training.texts import SPLIT_SEED

CONFIG = "head.json"
WEIGHTS = "head.safetensors"
ENCODER = "encoder"  # the folder of a base that not every installation has
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the L2 penalty; on vectors of mean square 1 the best lies inside
_FOLDS = 5
_CHOSEN_ON_MAX = 2000  # examples that the penalty is chosen on; more change the choice rarely and cost minutes
_ITERATIONS = 200
_ENCODER_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "1_Pooling/config.json")


@dataclass(frozen=True, slots=True)
class ClassifierHead:
    """A published head. Shapes: weight (labels, width), bias (labels), float32."""

    labels: tuple[str, ...]
    multiple: bool  # whether a text may have several classes
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    encoder: str  # for backend.models.store.resolve: "bundled" or a folder
    encoder_sha256: str  # of the weights whose vectors it was trained on

    def probabilities(self, vectors: NDArray[np.float32]) -> NDArray[Any]:
        """Shapes: (texts, width) as the encoder serves them -> (texts, labels)."""
        logits = vectors @ self.weight.T + self.bias
        return 1 / (1 + np.exp(-logits)) if self.multiple else softmax(logits)


def read_head(folder: Path) -> ClassifierHead:
    """A published head. Raises: ModelUnavailable."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(folder / WEIGHTS)
        encoder = config["encoder"]
        return ClassifierHead(
            labels=tuple(config["labels"]),
            multiple=bool(config["multiple"]),
            weight=tensors["weight"],
            bias=tensors["bias"],
            encoder=encoder if encoder == BUNDLED else str(folder / encoder),
            encoder_sha256=config["encoder_sha256"],
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ModelUnavailable(f"{folder} is no classifier head ({CONFIG}, {WEIGHTS}): {error!r}") from error


def prepare(
    data: Path,
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    device: str = "cpu",
) -> ClassifierHeadTask:
    """Read the data and let the frozen base make its vectors once, on ``device``. Raises: BadData, ModelUnavailable."""
    read = read_data(data, evaluation=evaluation, held_out=held_out)
    vectors, truncated = vectors_of(base, [one.text for one in (*read.learn, *read.judge)], device=device)
    return ClassifierHeadTask(base, config, read, torch.from_numpy(vectors), truncated=truncated)


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
        self._vectors = vectors / self._size  # of mean square 1, so that penalties and learning rates mean the same
        self._targets = data.targets(data.learn)
        self._weights = data.weights(config)
        self._temperature = Temperature(1.0, "not fitted")
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
        """As in fine-tuning."""
        return self.report(model).scores

    @torch.no_grad()
    def report(self, model: nn.Module) -> Report:
        """The same with every class, and what is not defined."""
        device = next(model.parameters()).device
        return self.data.report(model(self._vectors[len(self.data.learn) :].to(device)).float().cpu())

    def fit(self) -> TrainingResult:
        """Solve the head: the penalty by cross validation, the weights by L-BFGS, the temperature on the folds.

        Nothing of it looks at the evaluation texts, so their scores, calibration included, are honest.
        """
        folds = self._folds()
        targets = self._targets[[index for fold in folds for index in fold]]
        unseen = {strength: self._unseen_logits(folds, strength) for strength in _STRENGTHS}
        best = min(unseen, key=lambda strength: self._log_loss(unseen[strength], targets))
        if not self.data.multiple:
            self._temperature = fit_temperature(unseen[best].numpy(), targets.numpy())
        solved, loss, steps = self._solve(range(len(self.data.learn)), best)
        divided = {name: (value / self._temperature.value).float() for name, value in solved.state_dict().items()}
        self.model.load_state_dict(divided)
        count = len(self.data.learn)
        return TrainingResult(steps, float(steps), loss, self.evaluate(self.model), "fp32", count, "converged")

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """``head.json`` and ``head.safetensors``, a card, and the encoder where it is not the bundled one."""
        output.mkdir(parents=True, exist_ok=True)
        bundled = self._base.source == BUNDLED
        if not bundled:
            _copy_encoder(self._base.folder, output / ENCODER)
        assert isinstance(model, nn.Linear)
        weight, bias = (value.detach().cpu().float().numpy() for value in (model.weight, model.bias))
        save_file({"weight": weight / np.float32(self._size), "bias": bias}, output / WEIGHTS)
        record = {
            "task": self.name,
            "labels": list(self.data.labels),
            "multiple": self.data.multiple,
            "encoder": BUNDLED if bundled else ENCODER,
            "encoder_sha256": self._base.sha256,
        }
        (output / CONFIG).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        card = card_of(
            self.data, self._base, output.name, notes, report=self.report(model), temperature=self._temperature
        )
        limits = [f"A linear head on frozen vectors; reads the first {self._base.max_tokens} tokens of a text."]
        write_card(output, replace(card, library="financia", limits=[*limits, *card.limits]))

    def _fresh(self, dtype: torch.dtype) -> nn.Linear:
        """A head that knows nothing: every class equally likely."""
        head = nn.Linear(self._vectors.shape[1], len(self.data.labels), dtype=dtype)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    def _folds(self) -> list[list[int]]:
        """Numbers of training texts, dealt out so that every fold has its share of each class."""
        order = list(range(len(self.data.learn)))
        generator = random.Random(SPLIT_SEED)  # noqa: S311  # a reproducible choice, no secret
        generator.shuffle(order)
        order = sorted(order[:_CHOSEN_ON_MAX], key=lambda index: self.data.learn[index].labels)
        return [fold for first in range(_FOLDS) if (fold := order[first::_FOLDS])]

    def _unseen_logits(self, folds: Sequence[Sequence[int]], strength: float) -> Tensor:
        """Logits of each fold from the others' head, fold after fold."""
        rows = []
        for place, fold in enumerate(folds):
            others = [index for other, rest in enumerate(folds) if other != place for index in rest]
            solved, _, _ = self._solve(others, strength)
            with torch.no_grad():
                rows.append(solved(self._vectors[fold].double()))
        return torch.cat(rows)

    def _solve(self, indices: Sequence[int], strength: float) -> tuple[nn.Linear, float, int]:
        """The head of least loss with this penalty, its loss, and the iterations it took; float64, no randomness."""
        model = self._fresh(torch.float64)
        vectors, targets = self._vectors[list(indices)].double(), self._targets[list(indices)]
        solver = torch.optim.LBFGS(model.parameters(), max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            part = labelled_loss(model(vectors), targets, self._config, self._weights)
            return part.total / max(part.weight, 1e-12) + strength / 2 * model.weight.square().sum()

        def closure() -> float:
            solver.zero_grad()
            now = loss()
            now.backward()  # type: ignore[no-untyped-call]
            return now.item()

        solver.step(closure)  # type: ignore[no-untyped-call]
        state = solver.state[model.weight]
        return model, loss().item(), int(state.get("n_iter", 0))

    def _log_loss(self, logits: Tensor, targets: Tensor) -> float:
        if self.data.multiple:
            return float(nn.functional.binary_cross_entropy_with_logits(logits, targets.double()))
        return log_loss(logits.numpy(), targets.numpy())


def _copy_encoder(folder: Path, output: Path) -> None:
    for pattern in _ENCODER_FILES:
        for file in folder.glob(pattern):
            target = output / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
