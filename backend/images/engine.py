"""The engine that tells the classes of pages from their pictures: its model is chosen, loaded and run in batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from backend.device.memory.device_memory import trim_heap
from backend.device.memory.probe import predict
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType
from backend.errors import FinanciaError, InferenceFailed
from backend.images.model_files import ImageModelSpec, check_unchanged
from backend.lanes.batcher import Batcher
from backend.lanes.engine import BatchLimits, EncoderSource, Engine, UnlimitedBatches, UnloadableEncoder
from backend.models.autotune import Choice, EncoderRequest, torch_dtype_of
from backend.models.runtimes import require_memory
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
# Pages of a batch. On a CPU a page of ViT base takes a lane 0.34 s, and 0.32 s among four (measured, one thread): more
# would only make the lane's next work wait.
_CPU_PAGES, _GPU_PAGES = 4, 64
# A page weighs in the queue what as many tokens of the bundled encoder do: its multiplications, which for vision
# transformers and the usual convolutional networks are about parameters x pixels / 256, by those of a token.
_PIXELS_A_PATCH, _PARAMETERS_A_TOKEN = 256, 21_300_000


class ImageClassifier(Protocol):
    """One image classifier on one device. Safe to call from several lanes at once; each call belongs to its caller."""

    dtype: str
    padding_cost: float

    @property
    def parameters(self) -> int: ...

    def forward(self, pixels: NDArray[np.uint8]) -> Any:
        """Start computing the logits of pages (batch, height, width_px, 3)."""

    def numbers(self, logits: Any) -> NDArray[np.float32]:
        """Wait for the device: (batch, labels) float32."""


def choose_arithmetic(spec: ImageModelSpec, placement: Placement, request: EncoderRequest, *, page_cost: int) -> Choice:
    """What PRECISION asks for; else float32 on a CPU, and on a card what it computes best and the model can bear."""
    is_cpu = placement.type is DeviceType.CPU
    cpu_why = "the arithmetic that it was trained in"
    dtype, why = torch_dtype_of(request, placement, family=spec.family, stored_dtype=spec.stored_dtype, cpu_why=cpu_why)
    reasons = [f"{spec.name} on {placement.device}: {why}"]
    if request.precision == "int8" or request.runtime not in ("auto", "torch"):
        reasons.append("pages are classified by torch, in fp32, bf16 or fp16 alone, whatever RUNTIME and PRECISION say")
    pages = _CPU_PAGES if is_cpu else _GPU_PAGES
    reasons.append(f"at most {pages} pages a batch")
    return Choice("torch", dtype, pages * page_cost, 0.0, tuple(reasons))


def page_cost(spec: ImageModelSpec, parameters: int) -> int:
    """Tokens that a page counts in the queue."""
    height, width_px = spec.preprocessing.framing.size
    return max(1, round(height * width_px / _PIXELS_A_PATCH * parameters / _PARAMETERS_A_TOKEN))


def load_classifier(spec: ImageModelSpec, dtype: str, placement: Placement) -> ImageClassifier:
    """The model on a device. Raises: ModelUnavailable, also where it does not fit."""
    from backend.images.torch_classifier import TorchImageClassifier  # seconds and 300 MiB

    if placement.type is DeviceType.CUDA:
        _check_fit(spec, dtype, placement)
    model = TorchImageClassifier(spec, dtype=dtype, device=placement.device, threads=placement.threads)
    trim_heap()
    return model


def load_again(spec: ImageModelSpec, dtype: str, placement: Placement) -> ImageClassifier:
    """From the same files as the first time. Raises: ModelUnavailable where they are others now."""
    check_unchanged(spec)
    return load_classifier(spec, dtype, placement)


def _check_fit(spec: ImageModelSpec, dtype: str, placement: Placement) -> None:
    """Refuse a model before loading it when its weights and one page exceed the card's free memory."""
    prediction = predict(*_dry_run(spec, dtype), [1])
    if prediction is None:
        log_event(_log, logging.INFO, "an image model's memory could not be predicted", model=spec.name)
        return
    choices = "or choose a smaller model (IMAGE_MODEL)"
    require_memory(f"{spec.name} in {dtype}", prediction, placement, length=1, choices=choices)


def _dry_run(spec: ImageModelSpec, dtype: str) -> tuple[Callable[[], Any], Callable[[int, int], dict[str, Any]]]:
    import torch  # on a CUDA placement, which has imported it already
    from transformers import AutoConfig, AutoModelForImageClassification

    from backend.models.torch_models import DTYPES

    def make_model() -> torch.nn.Module:
        config = AutoConfig.from_pretrained(spec.folder, local_files_only=True, trust_remote_code=False)
        build: Any = AutoModelForImageClassification  # its constructors have no annotations
        model: torch.nn.Module = build.from_config(config, dtype=DTYPES[dtype])
        return model.eval()

    def make_inputs(count: int, _length: int) -> dict[str, Any]:
        return {"pixel_values": torch.zeros(count, 3, *spec.preprocessing.framing.size, dtype=DTYPES[dtype])}

    return make_model, make_inputs


TASK = "images"  # the engine's name, and a label of its metrics
Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class RunningBatch:
    """Pages under way, with the model that has them."""

    classifier: ImageClassifier
    pixels: NDArray[np.uint8]  # (batch, height, width_px, 3)
    logits: Any = None


def no_fallback(_page: NDArray[np.uint8]) -> Logits | None:
    """Of a model that is served in float32 already."""
    return None


@dataclass(frozen=True, slots=True)
class ImageEngine:
    """One model on one device. Payload: pixels (height, width_px, 3) uint8; result: logits (labels) float32.

    A page whose result is not finite is computed again by ``recompute``, so that NaN never leaves.
    """

    source: EncoderSource[ImageClassifier]
    budget: int  # of a batch, in the cost that the service gives a page
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    recompute: Callable[[NDArray[np.uint8]], Logits | None] = no_fallback  # the logits of one page in float32
    name: str = TASK
    launch_cost: int = 0

    @property
    def padding_cost(self) -> float:
        return self.source.padding_cost

    def on(self, device_index: int) -> ImageEngine:  # noqa: ARG002 - this engine has one device only
        return self

    def prepare(self, payloads: Sequence[NDArray[np.uint8]]) -> RunningBatch:
        """Stack the pages; the model is loaded here if it was unloaded. Raises: Unavailable."""
        return RunningBatch(self.source.get(), np.stack(payloads))

    def forward(self, prepared: RunningBatch) -> RunningBatch:
        logits = prepared.classifier.forward(prepared.pixels)
        return RunningBatch(prepared.classifier, prepared.pixels, logits)

    def finish(self, output: RunningBatch) -> Sequence[Logits | FinanciaError]:
        """One row of logits a page."""
        rows = output.classifier.numbers(output.logits)
        return [
            row if np.isfinite(row).all() else self._again(page) for row, page in zip(rows, output.pixels, strict=True)
        ]

    def _again(self, page: NDArray[np.uint8]) -> Logits | FinanciaError:
        row = self.recompute(page)
        if row is not None and np.isfinite(row).all():
            return row
        return InferenceFailed(
            "the image model's output for this page is not a finite number in float32; its weights are at fault"
        )


@dataclass(frozen=True, slots=True)
class LoadedImageModel:
    """An image classifier that is in memory, or comes back with its next batch."""

    spec: ImageModelSpec
    choice: Choice
    placement: Placement  # the first device's
    engine: Engine  # payload: pixels (height, width_px, 3) uint8; result: logits (labels) float32
    page_cost: int  # of a page in the queue
    residents: Sequence[UnloadableEncoder[Any]]  # in memory, one a device
    created_s: float  # Unix time of loading

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may call it; the one in answers first."""
        return tuple(dict.fromkeys((self.name, self.name.rpartition("/")[2])))

    @property
    def is_loaded(self) -> bool:
        return any(resident.is_loaded for resident in self.residents)

    def report(self, lanes: str) -> dict[str, Any]:
        """Every choice made for it, with its reasons."""
        spec = self.spec
        return {
            "model": self.name,
            "names": self.names,
            "architecture": spec.architecture,
            "source": spec.source,
            "revision": spec.revision,
            "sha256": spec.sha256,
            "fingerprint": spec.fingerprint,
            "labels": spec.labels,
            "multi_label": spec.multi_label,
            "preprocessing": asdict(spec.preprocessing),
            "device": self.placement.device,
            "lanes": lanes,
            "page_cost": self.page_cost,
            "is_loaded": self.is_loaded,
            "choice": asdict(self.choice),
        }


@dataclass(frozen=True, slots=True)
class ImageEngines:
    """An image model on the lanes that run it."""

    model: LoadedImageModel
    lanes: Batcher
    where: str  # "page lanes" or "model lanes"
