"""Text classification from few examples: a calibrated logistic head on the vectors of a frozen encoder.

The head is a few kilobytes and uses the vectors that the service computes for embeddings. Training takes seconds.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModel

from backend.errors import BadSettings
from backend.models.calibration import Temperature, softmax
from backend.models.classifier_head import NONE, ClassifierHead, WideWeights, wide_weights, write_head
from backend.models.encoder import Encoder, Vectors, normalized
from backend.models.logistic import MULTI_LABEL_THRESHOLD, FittedHead, fit_head
from backend.models.model_files import BUNDLED_SOURCES
from backend.models.onnx_encoder import OnnxEncoder
from backend.models.spec import ModelSpec, Pooling
from backend.models.tokenizer import tokenizer_of
from backend.models.torch_encoder import TorchEncoder
from backend.models.weights import FAMILIES
from backend.training.data.batches import batches_within_budget, model_inputs, to_model_device
from backend.training.metrics import Report
from backend.training.model_card import write_card
from backend.training.records import TrainingConfig, TrainingResult
from backend.training.tasks.pretrained import adapted, load_model, plain_copy, save_model
from backend.training.tasks.text_classifier import LabelledData, card_of, read_data

_KEY_BYTES = 16
_MODULES = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))


def cached_vectors(
    spec: ModelSpec, texts: Sequence[str], *, device: str = "cpu", folder: Path | None = None
) -> tuple[Vectors, NDArray[np.bool_]]:
    """As ``frozen_vectors``; with a ``folder`` the vectors of texts seen before come from there, and new ones go there.

    The file is named by the encoder's fingerprint, so vectors of two encoders are never mixed.

    Raises: ModelUnavailable; OSError when the folder cannot be written.
    """
    if folder is None:
        return frozen_vectors(spec, texts, device=device)
    file = folder / f"{spec.fingerprint[:16]}.npz"
    kept = _read(file)
    keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest() for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in kept}
    if missing:
        vectors, truncated = frozen_vectors(spec, list(missing.values()), device=device)
        kept |= {key: (vectors[row], bool(truncated[row])) for row, key in enumerate(missing)}
        _write(file, kept)
    rows = [kept[key] for key in keys]
    return np.stack([vector for vector, _ in rows]), np.array([was_truncated for _, was_truncated in rows])


def _read(file: Path) -> dict[bytes, tuple[Vectors, bool]]:
    if not file.is_file():
        return {}
    with np.load(file) as stored:
        keys, vectors, truncated = stored["keys"], stored["vectors"], stored["truncated"]
    return {key.tobytes(): (vectors[row], bool(truncated[row])) for row, key in enumerate(keys)}


def _write(file: Path, kept: dict[bytes, tuple[Vectors, bool]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp.npz")
    np.savez(
        temporary,
        keys=np.array([np.frombuffer(key, np.uint8) for key in kept]),
        vectors=np.stack([vector for vector, _ in kept.values()]),
        truncated=np.array([was_truncated for _, was_truncated in kept.values()]),
    )
    temporary.replace(file)


ENCODER = "encoder"  # folder of the base inside the output, unless it is the bundled one
_ENCODER_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "1_Pooling/config.json")


def prepare(
    data: Path,
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    device: str = "cpu",
    vector_cache: Path | None = None,
    grams: bool = True,
) -> ClassifierHeadTask:
    """Read the data and compute its vectors once with the frozen base, on ``device``.

    Args:
        vector_cache: a folder that keeps the vectors for the next run.
        grams: whether the gated copy of the vector and the n-grams of ``models/features`` are tried beside the vector.

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    check_losses_supported(config)
    labelled = read_data(data, evaluation=evaluation, held_out=held_out)
    texts = [example.text for example in (*labelled.train, *labelled.evaluation)]
    vectors, truncated = cached_vectors(base, texts, device=device, folder=vector_cache)
    count = int(truncated.sum())
    return ClassifierHeadTask(base, config, labelled, torch.from_numpy(vectors), truncated=count, grams=grams)


def check_losses_supported(config: TrainingConfig) -> None:
    """Refuse losses that the logistic solver does not have. Raises: BadSettings."""
    losses = {"--focal-gamma": config.focal_gamma, "--label-smoothing": config.label_smoothing}
    faults = [
        f"{flag}={value:g}: a head on frozen vectors is solved for plain cross entropy, with its own penalty and "
        "calibration; leave it out, or train the encoder with --mode full"
        for flag, value in losses.items()
        if value
    ]
    if faults:
        raise BadSettings(faults)


class ClassifierHeadTask:
    """The task "text-classifier" on frozen vectors, which ``fit`` solves: no training loop."""

    def __init__(
        self,
        base: ModelSpec,
        config: TrainingConfig,
        data: LabelledData,
        vectors: Tensor,
        *,
        truncated: int = 0,
        grams: bool = True,
    ) -> None:
        """Shapes: vectors (training texts, then evaluation texts; width)."""
        self.data = data
        self.truncated = truncated
        self._grams = grams
        self._base, self._config = base, config
        self._scale = vectors[: len(data.train)].square().mean().sqrt().item() or 1.0
        self._vectors = vectors / self._scale  # mean square 1, so that penalties do not depend on the encoder
        self._targets = data.targets(data.train)
        self._weights = data.weights(config)
        self._fitted: FittedHead | None = None
        self.model: nn.Module = self._untrained_head(vectors.dtype)

    @property
    def goal(self) -> str:
        """The metric that evaluations are compared by."""
        return self.data.goal

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """The metrics of fine-tuning; for a fitted head with one class per text also those of its threshold.

        ``answered`` is the share of texts with a class that get an answer, ``answered_accuracy`` how many of these are
        right, and ``foreign_answered`` the share of texts without a class that get an answer nevertheless.
        """
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The metrics with those of each class, and which are undefined."""
        logits = self._evaluation_logits(model)
        report = self.data.report(logits)
        if self._fitted is None or self.data.multiple or not self.data.evaluation:
            return report
        return replace(report, scores={**report.scores, **self._threshold_scores(logits.numpy())})

    def by_set(self, model: nn.Module) -> dict[str, Report]:
        """A report for each evaluation file, such as one per language."""
        logits, reports = self._evaluation_logits(model), {}
        files = [Path(example.location.rpartition(":")[0]).stem for example in self.data.evaluation]
        for name in dict.fromkeys(files):
            indices = [index for index, file in enumerate(files) if file == name]
            subset = replace(self.data, evaluation=[self.data.evaluation[index] for index in indices])
            reports[name] = subset.report(logits[indices])
        return reports

    def fit(self) -> TrainingResult:
        """Solve the head from the training texts alone, so that the evaluation scores are unbiased."""
        labels = list(self.data.labels)
        fitted = self._fitted = fit_head(
            self._vectors[: len(self.data.train)].numpy(),
            self._targets.numpy(),
            labels=len(labels),
            class_weights=None if self._weights is None else self._weights.numpy(),
            texts=[example.text for example in self.data.train] if self._grams else (),
            groups=[example.group or example.text for example in self.data.train],
            background=labels.index(NONE) if self._has_background else None,
        )
        state = {"weight": torch.from_numpy(fitted.weight).float(), "bias": torch.from_numpy(fitted.bias).float()}
        self.model.load_state_dict(state)
        count, steps = len(self.data.train), fitted.iterations
        return TrainingResult(steps, float(steps), fitted.loss, self.evaluate(self.model), "fp32", count, "converged")

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """Write ``head.json``, ``head.safetensors``, a card, and the encoder unless it is the bundled one."""
        output.mkdir(parents=True, exist_ok=True)
        bundled = self._base.source in BUNDLED_SOURCES
        if not bundled:
            _copy_encoder(self._base.folder, output / ENCODER)
        head = self._head(model, output.name)
        write_head(output, head, encoder=self._base.source if bundled else ENCODER)
        temperature = self._fitted.temperature if self._fitted else Temperature(1.0, "not fitted")
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
    def _has_background(self) -> bool:
        return NONE in self.data.labels and not self.data.multiple

    def _head(self, model: nn.Module, name: str) -> ClassifierHead:
        """The head in its serving form: rows in the labels' order, the background class last."""
        assert isinstance(model, nn.Linear)
        weight, bias = (value.detach().cpu().float().numpy() for value in (model.weight, model.bias))
        names = [label for label in self.data.labels if not (self._has_background and label == NONE)]
        order = [self.data.labels.index(label) for label in (*names, *([NONE] if self._has_background else []))]
        threshold = MULTI_LABEL_THRESHOLD if self.data.multiple else 0.0
        wide = self._wider(self._scale)
        return ClassifierHead(
            labels=tuple(names),
            multiple=self.data.multiple,
            weight=(weight[order] / self._scale).astype(np.float32),
            bias=bias[order],
            encoder=self._base.source,
            encoder_sha256=self._base.sha256,
            encoder_fingerprint=self._base.fingerprint,
            name=name,
            threshold=self._fitted.threshold if self._fitted else threshold,
            info=self._info(),
            wide=None if wide is None else wide.rows(order),
        )

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"examples": len(self.data.train)}
        if self._fitted is not None:
            info |= {
                "penalty": self._fitted.penalty,
                "temperature": round(self._fitted.temperature.value, 4),
                "temperature_why": self._fitted.temperature.why,
                "accuracy_on_folds": self._fitted.accuracy,
            }
        return info

    def _untrained_head(self, dtype: torch.dtype) -> nn.Linear:
        """A head of zeros: every class equally likely."""
        head = nn.Linear(self._vectors.shape[1], len(self.data.labels), dtype=dtype)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    @torch.no_grad()
    def _evaluation_logits(self, model: nn.Module) -> Tensor:
        """Logits of the evaluation texts, on the CPU."""
        device, vectors = next(model.parameters()).device, self._vectors[len(self.data.train) :]
        logits: Tensor = model(vectors.to(device)).float().cpu()
        wide = self._wider(1.0)
        if wide is None:
            return logits
        extra_logits = wide.logits(vectors.numpy(), [example.text for example in self.data.evaluation])
        return logits + torch.from_numpy(extra_logits).float()

    def _wider(self, scale: float) -> WideWeights | None:
        """The fitted weights of gated vectors and n-grams, rescaled for vectors ``scale`` times as long."""
        wide = None if self._fitted is None else wide_weights(self._fitted)
        return None if wide is None else replace(wide, gate=wide.gate.of_unit(scale), weight=wide.weight / scale)

    def _threshold_scores(self, logits: NDArray[np.float32]) -> dict[str, float]:
        """Metrics of the answers above the threshold. Shapes: logits (items, labels)."""
        assert self._fitted is not None
        scores, truth = softmax(logits), self.data.targets(self.data.evaluation).numpy()
        has_class = np.ones(len(truth), dtype=bool)
        if self._has_background:
            none_index = self.data.labels.index(NONE)
            scores[:, none_index], has_class = -1.0, truth != none_index
        is_answered = scores.max(axis=1) >= self._fitted.threshold
        is_correct = scores.argmax(axis=1) == truth
        shares: dict[str, float] = {}
        if has_class.any():
            shares["answered"] = float(is_answered[has_class].mean())
        if (is_answered & has_class).any():
            shares["answered_accuracy"] = float(is_correct[is_answered & has_class].mean())
        if not has_class.all():
            shares["foreign_answered"] = float(is_answered[~has_class].mean())
        return shares


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


class SentenceEncoder(nn.Module):
    """Maps token ids to one vector per text, as ``backend.models`` serves it."""

    def __init__(self, encoder: Any, pooling: Pooling, *, normalize: bool) -> None:
        """Remove the encoder's pooler: its output is not used, and DDP needs a gradient for every weight."""
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None
        self.encoder = encoder
        self.config = encoder.config
        self.pooling = pooling
        self.normalize = normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Shapes: both (batch, longest) int64 -> (batch, width) float32."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
        vectors = pool(hidden, attention_mask, self.pooling)
        return nn.functional.normalize(vectors, dim=1) if self.normalize else vectors


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Shapes: hidden (batch, longest, width), mask (batch, longest), padding on the right -> (batch, width)."""
    if pooling is Pooling.CLS:
        return hidden[:, 0]
    lengths = mask.sum(1)
    if pooling is Pooling.LAST:
        return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
    padding = (mask == 0)[:, :, None]
    if pooling is Pooling.MAX:
        return hidden.masked_fill(padding, -torch.inf).amax(1)
    return hidden.masked_fill(padding, 0.0).sum(1) / lengths[:, None]


def load_sentence_encoder(spec: ModelSpec, config: TrainingConfig) -> SentenceEncoder:
    """Load the base, with LoRA where ``config.lora_rank`` is set. Raises: ModelUnavailable."""
    model = SentenceEncoder(load_model(AutoModel, spec, seed=config.seed), spec.pooling, normalize=spec.normalize)
    model.encoder = adapted(model.encoder, config)
    return model


@torch.no_grad()
def encode(model: nn.Module, ids: Sequence[NDArray[np.int64]], pad_id: int) -> NDArray[np.float32]:
    """Normalized vectors in the order of the texts, (texts, width), even where the model does not normalize."""
    rows: list[tuple[list[int], Tensor]] = []
    for group in batches_within_budget([len(text_ids) for text_ids in ids]):
        vectors = model(**to_model_device(model, model_inputs([ids[index] for index in group], pad_id)))
        rows.append((group, nn.functional.normalize(vectors.float(), dim=1).cpu()))
    ordered = torch.empty(len(ids), rows[0][1].shape[1] if rows else 0)
    for group, vectors in rows:
        ordered[group] = vectors
    return ordered.numpy()


def save_sentence_encoder(model: SentenceEncoder, spec: ModelSpec, output: Path) -> None:
    """Save a sentence-transformers folder: LoRA merged; pooling, normalization, length and prompts of the base."""
    save_model(plain_copy(model.encoder), spec, output)
    modules = _MODULES if spec.normalize else _MODULES[:2]
    _write_encoder(
        output / "modules.json",
        [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
    )
    _write_encoder(output / "sentence_bert_config.json", {"max_seq_length": spec.max_tokens, "do_lower_case": False})
    (output / "1_Pooling").mkdir(exist_ok=True)
    flags = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
    _write_encoder(
        output / "1_Pooling" / "config.json",
        {"word_embedding_dimension": spec.width}
        | {f"pooling_mode_{name}": spec.pooling.value == mode for mode, name in flags.items()},
    )
    _write_encoder(
        output / "config_sentence_transformers.json",
        {"prompts": dict(spec.prompts), "default_prompt_name": spec.default_prompt, "similarity_fn_name": "cosine"},
    )


def _write_encoder(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def frozen_vectors(spec: ModelSpec, texts: Sequence[str], *, device: str = "cpu") -> tuple[Vectors, NDArray[np.bool_]]:
    """The float32 vectors that the service computes, and which texts were truncated.

    Shapes: -> (texts, width), normalized where the model is, and (texts). On a CPU the ONNX graph runs, 2.5 times as
    fast as torch there (docs/engine.md).
    Raises: ModelUnavailable.
    """
    tokenizer = tokenizer_of(spec)
    prompt = spec.prompts.get(spec.default_prompt or "", "")
    tokens = tokenizer.encode(texts, prompt=prompt)
    encoder = _encoder(spec, device)
    vectors = np.empty((len(texts), spec.width), np.float32)
    for group in batches_within_budget([len(text_tokens.ids) for text_tokens in tokens]):
        batch = encoder.prepare([tokens[index].ids for index in group])
        vectors[group] = encoder.pooled(encoder.forward(batch), batch, spec.pooling)
    truncated = np.array([text_tokens.truncated for text_tokens in tokens], np.bool_)
    return normalized(vectors) if spec.normalize else vectors, truncated


def _encoder(spec: ModelSpec, device: str) -> Encoder:
    threads = torch.get_num_threads()
    if device == "cpu" and spec.shape.family in FAMILIES:
        return OnnxEncoder(spec, dtype="fp32", threads=threads)
    return TorchEncoder(spec, dtype="fp32", device=device, threads=threads)
