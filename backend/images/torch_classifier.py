"""An image classifier executed by torch through transformers: pixels in, logits out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForImageClassification

from backend.errors import ModelUnavailable
from backend.images.model_files import ImageModelSpec
from backend.models.torch_models import DTYPES, load_pretrained, require_tensors
from backend.models.torch_transfers import send_bytes, transfers_of

Pixels = NDArray[np.uint8]


class TorchImageClassifier:
    """One image classifier on one device. Any number of threads may use it; each call belongs to its caller."""

    runtime = "torch"
    padding_cost = 1.0

    def __init__(self, spec: ImageModelSpec, *, dtype: str, device: str, threads: int) -> None:
        """Load the weights onto ``device`` and try one page. Raises: ModelUnavailable when transformers cannot."""
        self.dtype = dtype
        self._preprocessing = spec.preprocessing
        self._device, self._dtype = torch.device(device), DTYPES[dtype]
        if self._device.type == "cpu":
            torch.set_num_threads(threads)
        self._transfers = transfers_of(self._device)
        self._model = _load(spec, self._dtype).eval().to(self._device)
        self._try(spec)

    @property
    def parameters(self) -> int:
        """Numbers that it has learnt."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    @torch.inference_mode()
    def forward(self, pixels: Pixels) -> Callable[[], Tensor]:
        """What waits for the logits of a batch; on CUDA they are only queued when this returns, their copy with them.

        Shapes: pixels (batch, height, width_px, 3), RGB, of the size that the model takes.
        """
        pages = send_bytes(self._transfers, self._device, pixels).permute(0, 3, 1, 2)
        values = pages.float() * self._preprocessing.scale
        rows = zip(self._preprocessing.mean, self._preprocessing.std, strict=True)
        for channel, (mean, std) in enumerate(rows):
            values[:, channel].sub_(mean).div_(std)
        logits: Tensor = self._model(pixel_values=values.to(self._dtype)).logits.float()
        return self._transfers.copy_out(logits)

    def numbers(self, queued: Callable[[], Tensor]) -> NDArray[np.float32]:
        """Wait for this batch alone: (batch, labels) float32."""
        array: NDArray[np.float32] = queued().numpy()
        return array

    def _try(self, spec: ImageModelSpec) -> None:
        """Raise ModelUnavailable where a white page gets no finite number for each label."""
        page = np.full((1, *spec.preprocessing.framing.size, 3), 255, np.uint8)
        try:
            logits = self.numbers(self.forward(page))
        except (ValueError, RuntimeError, TypeError) as error:
            raise ModelUnavailable(
                f"{spec.name} cannot take pages of {' x '.join(map(str, spec.preprocessing.framing.size))} px: {error}"
            ) from error
        if logits.shape != (1, len(spec.labels)):
            raise ModelUnavailable(f"{spec.name} gives {logits.shape[-1]} numbers for its {len(spec.labels)} labels")
        if not np.isfinite(logits).all():
            raise ModelUnavailable(
                f"{spec.name} gives a white page numbers that are not finite in {self.dtype}; set PRECISION=fp32, or "
                "train it again"
            )


def _load(spec: ImageModelSpec, dtype: torch.dtype) -> Any:
    purpose = f" ({spec.name}) as an image classifier"
    model, report = load_pretrained(AutoModelForImageClassification, spec.folder, dtype, purpose)
    require_tensors(spec.name, report["missing_keys"])
    return model
