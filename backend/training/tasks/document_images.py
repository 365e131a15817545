"""Task "document-images": classifies page images with any transformers image classifier, convolutional or ViT."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from backend.device.batch_split import split_on_oom
from backend.device.facts.host import memory_limit_bytes, usable_cores
from backend.errors import BadData
from backend.models.calibration import Temperature, fit_temperature
from backend.telemetry import log_event
from backend.training.data.augmentation import AugmentConfig, augment, blend, draw_mix, random_for, soft_target
from backend.training.data.batches import collation_epoch
from backend.training.data.images import (
    ImageCache,
    ImageExample,
    PageData,
    PageStore,
    Pixels,
    SkippedImage,
    cache_limit_bytes,
    read_pages,
)
from backend.training.lora import add_lora
from backend.training.losses import IGNORED, balanced_class_weights, classification_loss, target_weight
from backend.training.metrics import Report, classification_scores
from backend.training.model_card import Card, split_sources, write_card
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.pretrained import ImageBase, divide_last_layer, load_image_model, plain_copy, read_base

_log = logging.getLogger(__name__)
_EVALUATION_IMAGES = 64  # in a batch without gradients; halved when out of memory
_FILES_IN_CARD = 5  # files in one sentence of the card
_USAGE = """
from transformers import pipeline

pipeline("image-classification", model=FOLDER)(PAGE)  # an upright RGB image
"""


def prepare(
    data: Path,
    base: str | Path,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    augmentation: AugmentConfig | None = None,
    image_size: tuple[int, int] | None = None,
    cache_bytes: int | None = None,
    freeze_batch_norm: bool | None = None,
    processes: int = 1,
) -> DocumentImagesTask:
    """Read the pages and load the base with a new head; with LoRA where ``config.lora_rank`` is set.

    Args:
        data, evaluation: as in ``images.read_examples``; ``held_out`` as in ``images.read_pages``.
        base: as in ``pretrained.read_base``.
        image_size: height and width in px; None takes the base's own.
        cache_bytes: limit of the cache of decoded pages; None takes a quarter of the memory, 0 turns it off.
        freeze_batch_norm: keep the running statistics. None freezes them in pretrained models only, where the
            few pages of a micro-batch would degrade them and its size would change the result.
        processes: of this run on this machine; they share the cache limit.

    Raises: BadData, BadSettings, ModelUnavailable; TrainingError where LoRA has nothing to adapt.
    """
    image_base = read_base(base, image_size=image_size)
    cache = ImageCache(cache_limit_bytes(memory_limit_bytes(), cache_bytes, processes=processes))
    store = PageStore(image_base.preprocessing, cache)
    pages = read_pages(data, store, evaluation=evaluation, held_out=held_out, threads=usable_cores())
    model: nn.Module = load_image_model(image_base, pages.labels, seed=config.seed)
    freezes_batch_norm = image_base.pretrained if freeze_batch_norm is None else freeze_batch_norm
    frozen = [module for module in model.modules() if isinstance(module, _BatchNorm)] if freezes_batch_norm else []
    if config.lora_rank is not None:
        model = add_lora(model, config.lora_rank, config.lora_alpha, config.lora_dropout)
    policy = augmentation or AugmentConfig()
    return DocumentImagesTask(model, image_base, config, pages=pages, store=store, augmentation=policy, frozen=frozen)


class DocumentImagesTask:
    """Task "document-images". The goal is macro F1: rare classes count as much as common ones.

    Splittable: a page's augmentation depends on the page and the epoch, not on its batch. Where batch norm is
    trained (models from scratch), its statistics are per micro-batch, as always with gradient accumulation.
    """

    name = "document-images"
    goal = "macro_f1"
    splittable = True

    def __init__(
        self,
        model: nn.Module,
        base: ImageBase,
        config: TrainingConfig,
        *,
        pages: PageData,
        store: PageStore,
        augmentation: AugmentConfig,
        frozen: Sequence[nn.Module] = (),
    ) -> None:
        self.model = model
        self.pages = pages
        self._base, self._config, self._store = base, config, store
        self._augmentation = augmentation
        self._frozen = tuple(frozen)
        self._targets = [pages.target(page) for page in pages.train]
        balanced = config.class_weights == "balanced"
        self._class_weights = balanced_class_weights(pages.counts) if balanced else None
        self._unreadable: dict[Path, str] = {}  # became unreadable since the data was checked

    @property
    def lengths(self) -> Sequence[int]:
        """All pages cost the same."""
        return [1] * len(self.pages.train)

    @property
    def skipped(self) -> tuple[SkippedImage, ...]:
        """Images that could not be read, before the run or in it."""
        return (*self.pages.skipped, *(SkippedImage(file, why) for file, why in self._unreadable.items()))

    def collate(self, indices: Sequence[int]) -> Batch:
        """``pixels`` (batch, 3, height, width_px) uint8, ``targets``, and the ``weight`` of the loss.

        Targets are (batch,) int64, or (batch, labels) float32 where pages are mixed. A page that became unreadable
        is blank and has weight 0.
        """
        epoch = collation_epoch()
        rows = [self._row(index, epoch) for index in indices]
        targets = torch.stack([target for _, target in rows])
        weight = target_weight(targets, class_weights=self._class_weights)
        if targets.is_floating_point() and self._class_weights is None:
            weight = float((targets.sum(dim=-1) > 0).sum())  # blank pages have targets of zeros
        return {"pixels": torch.stack([page for page, _ in rows]), "targets": targets, "weight": weight}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Cross entropy of the document class, with focal term, label smoothing and class weights as configured."""
        if model.training:
            for layer in self._frozen:
                layer.eval()  # model.train() switched them back
        logits = model(pixel_values=self._base.preprocessing.normalize(batch["pixels"])).logits
        targets = batch["targets"]
        if targets.is_floating_point() and self._unreadable:
            is_readable = targets.sum(dim=-1) > 0  # label smoothing would fill the zero targets of blank pages
            logits, targets = logits[is_readable], targets[is_readable]
        return classification_loss(
            logits,
            targets,
            focal_gamma=self._config.focal_gamma,
            label_smoothing=self._config.label_smoothing,
            class_weights=self._class_weights,
            weight=batch["weight"],
        )

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Accuracy, macro F1, log loss and calibration error of the evaluation pages."""
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The metrics with those of each class, the confusion matrix, and which are undefined."""
        logits, targets = self.logits(model)
        return classification_scores(logits.numpy(), targets.numpy(), self.pages.labels)

    @torch.no_grad()
    def logits(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """(items, labels) float32 and (items,) int64 of the evaluation pages that can be read, on the CPU."""
        device = next(model.parameters()).device
        rows_of_logits: list[Tensor] = []
        targets: list[int] = []
        with ThreadPoolExecutor(usable_cores(), thread_name_prefix="evaluate") as pool:
            for first in range(0, len(self.pages.evaluation), _EVALUATION_IMAGES):
                group = self.pages.evaluation[first : first + _EVALUATION_IMAGES]
                rows = [
                    (pixels, self.pages.target(example))
                    for example, pixels in zip(group, pool.map(self._pixels, group), strict=True)
                    if pixels is not None
                ]
                rows_of_logits += split_on_oom(
                    [pixels for pixels, _ in rows], lambda batch: self._batch_logits(model, batch, device)
                )
                targets += [target for _, target in rows]
        answers = torch.stack(rows_of_logits) if rows_of_logits else torch.zeros(0, len(self.pages.labels))
        return answers, torch.tensor(targets, dtype=torch.int64)

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """Write a transformers folder for AutoModelForImageClassification, its image processor, and a card.

        Confidence is calibrated on the evaluation pages; the temperature is divided into the last layer, so that
        every loader of the folder gets calibrated probabilities and the same classes.
        """
        logits, targets = self.logits(model)
        temperature = fit_temperature(logits.numpy(), targets.numpy())
        report = classification_scores(logits.numpy() / temperature.value, targets.numpy(), self.pages.labels)
        plain = plain_copy(model)
        divide_last_layer(plain, temperature.value)
        output.mkdir(parents=True, exist_ok=True)
        plain.save_pretrained(output)
        self._base.preprocessing.save(output)
        write_card(output, self._card(output.name, notes, report, temperature))

    def _row(self, index: int, epoch: int) -> tuple[Tensor, Tensor]:
        """One page (3, height, width_px) uint8 and its target, augmented and perhaps mixed."""
        config, labels = self._augmentation, len(self.pages.labels)
        page = self._augmented(index, epoch)
        if page is None:
            size = self._base.preprocessing
            blank = torch.full((3, size.height, size.width_px), 255, dtype=torch.uint8)
            return blank, torch.zeros(labels) if config.mixes else torch.tensor(IGNORED)
        target = self._targets[index]
        if not config.mixes:
            return page, torch.tensor(target)
        random = random_for(self._config.seed, epoch, index, stream=1)  # independent of the page's augmentation
        height, width_px = page.shape[-2:]
        mix = draw_mix(config, random, examples=len(self._targets), height=height, width_px=width_px)
        partner = self._augmented(mix.partner, epoch) if mix is not None else None
        if mix is None or partner is None:
            return page, soft_target(target, target, 0.0, labels)
        mixed = blend(page.float(), partner.float(), mix).round().to(torch.uint8)
        return mixed, soft_target(target, self._targets[mix.partner], mix.share, labels)

    def _augmented(self, index: int, epoch: int) -> Tensor | None:
        pixels = self._pixels(self.pages.train[index])
        if pixels is None:
            return None
        page = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        if self._augmentation.policy == "none":
            return page
        changed = augment(page.float() / 255, self._augmentation, random_for(self._config.seed, epoch, index))
        return (changed * 255).round().to(torch.uint8)

    def _pixels(self, example: ImageExample) -> Pixels | None:
        """The page's pixels; None for a page that became unreadable, which is logged once and left out."""
        try:
            return self._store.pixels(example.file)
        except BadData as error:
            if example.file not in self._unreadable:
                self._unreadable[example.file] = str(error)
                log_event(
                    _log, logging.WARNING, "an image can no longer be read", file=example.file.name, reason=str(error)
                )
            return None

    def _batch_logits(self, model: nn.Module, pages: Sequence[Pixels], device: torch.device) -> list[Tensor]:
        pixels = torch.from_numpy(np.stack(pages)).permute(0, 3, 1, 2).to(device)
        logits: Tensor = model(pixel_values=self._base.preprocessing.normalize(pixels)).logits
        return list(logits.float().cpu())

    def _card(self, name: str, notes: Mapping[str, Any], report: Report, temperature: Temperature) -> Card:
        pages, size = self.pages, self._base.preprocessing
        return Card(
            name=name,
            task=self.name,
            summary=f"Tells {len(pages.labels)} kinds of documents from a picture of a page.",
            base=self._base.name if self._base.pretrained else "",
            base_revision=self._base.revision,
            pipeline_tag="image-classification",
            labels=pages.labels,
            data=split_sources(pages.origin, train=len(pages.train), evaluation=len(pages.evaluation), unit="pages"),
            report=report,
            limits=[
                f"Sees the whole page squeezed to {size.height} x {size.width_px} px: layout, not fine print.",
                "Takes upright RGB pages on white; turn photographs by their EXIF mark first.",
                f"Confidence: temperature {temperature.value:.3f}, {temperature.why}; measured on the same pages.",
                *self._left_out(),
            ],
            notes={
                **notes,
                "architecture": type(self._base.config).__name__.removesuffix("Config"),
                "augmentation": asdict(self._augmentation),
            },
            usage=_USAGE,
        )

    def _left_out(self) -> list[str]:
        skipped = self.skipped
        if not skipped:
            return []
        first_names = "; ".join(f"{image.file.name} ({image.why})" for image in skipped[:_FILES_IN_CARD])
        left_out = f"Images of its data that could not be read and were left out: {len(skipped)}"
        return [f"{left_out}, the first: {first_names}."]
