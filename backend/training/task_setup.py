"""From what was said on the command line to a task: its data read, its base loaded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.errors import BadSettings
from backend.models.model_files import BUNDLED, resolve
from backend.training.data.augmentation import AugmentConfig
from backend.training.records import Task, TrainingConfig
from backend.training.tasks import classifier_head, document_images, embeddings, ner, text_classifier

_FEW_TEXTS = 1000  # below it a head on frozen vectors is the safer choice; --mode says otherwise
_GIB = 2**30


def make_task(name: str, options: argparse.Namespace, config: TrainingConfig, *, device: str, ranks: int = 1) -> Task:
    """The task with its data.

    Args:
        device: where frozen models run that only make vectors.
        ranks: processes of the run on this machine.

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    if not 0 <= options.held_out < 1:
        raise BadSettings([f"--held-out={options.held_out:g}: must be from 0 to below 1"])
    read = {"evaluation": options.evaluation, "held_out": options.held_out}
    if name == "document-images":
        return _document_images(options, config, ranks, read)
    base = resolve(options.base or BUNDLED)
    if name == "ner":
        return ner.prepare(options.data, base, config, options=_ner_options(options), **read)
    if name == "embeddings":
        teacher = resolve(options.teacher) if options.teacher else None
        return embeddings.prepare(
            _only(options.data), base, config, objective=options.objective, teacher=teacher, device=device, **read
        )
    if options.mode == "head" or (options.mode == "auto" and _few(options, config, read)):
        return classifier_head.prepare(_only(options.data), base, config, device=device, **read)
    return text_classifier.prepare(_only(options.data), base, config, **read)


def _ner_options(options: argparse.Namespace) -> ner.NerOptions:
    return ner.NerOptions(
        types=options.types,
        relabel=options.relabel,
        spelling=options.spelling,
        recased=options.recased,
        publish_as=options.publish_as,
        halfway=options.halfway,
    )


def _only(data: Sequence[Path]) -> Path:
    """The one path that all tasks but "ner" learn from."""
    if len(data) > 1:
        raise BadSettings([f"--data: {len(data)} paths; only ner takes several"])
    return data[0]


def _few(options: argparse.Namespace, config: TrainingConfig, read: dict[str, Any]) -> bool:
    """Whether a head is enough, unless LoRA was asked for, which only a whole encoder has."""
    few = len(text_classifier.read_data(_only(options.data), **read).train) < _FEW_TEXTS
    return few and config.lora_rank is None


def _document_images(options: argparse.Namespace, config: TrainingConfig, ranks: int, read: dict[str, Any]) -> Task:
    if not options.base:
        raise BadSettings(
            ["--base: document-images needs an image model's folder or hub id, or resnet, convnext or vit"]
        )
    changes = AugmentConfig(policy=options.augment, mixup_alpha=options.mixup, cutmix_alpha=options.cutmix)
    cache = None if options.image_cache is None else int(options.image_cache * _GIB)
    return document_images.prepare(
        _only(options.data),
        options.base,
        config,
        augmentation=changes,
        image_size=tuple(options.image_size) if options.image_size else None,
        cache_bytes=cache,
        processes=ranks,
        **read,
    )
