"""Finds an image classifier's files, in a folder or on the hub, and reads what it is without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backend.errors import ModelUnavailable
from backend.files.image_framing import Preprocessing
from backend.images.processor_config import read_preprocessing
from backend.models.checkpoint_tensors import WEIGHTS
from backend.models.fingerprint import effective_config, fingerprint_of
from backend.models.hub import fetch
from backend.models.model_files import sha256_of

CONFIG = "config.json"
_SHARDS = "model.safetensors.index.json"
_ARCHITECTURE = "ForImageClassification"  # ends the names of transformers' classes
# Raise it when this code computes other numbers from the same files: cached classes are then computed again.
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ImageModelSpec:
    """One image classifier as served."""

    name: str  # in requests and answers
    source: str  # what IMAGE_MODEL said, without a revision
    revision: str  # commit of the hub, or the first 12 digits of the weights' SHA-256
    sha256: str  # of model.safetensors
    folder: Path
    architecture: str  # transformers' class
    family: str  # its model_type: "vit", "beit", "resnet", …
    labels: tuple[str, ...]  # in the order of its outputs
    multi_label: bool  # any number of labels may be right
    preprocessing: Preprocessing
    stored_dtype: str | None  # of the weights, as config.json has it
    config: Mapping[str, Any] = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Of all that decides its output but the arithmetic."""
        return fingerprint_of(
            {
                "image classifier": _VERSION,
                "weights": self.sha256,
                "config": effective_config(self.config),
                "preprocessing": asdict(self.preprocessing),
            }
        )


def resolve_image_model(source: str) -> ImageModelSpec:
    """Find an image classifier and read what it is. Hashes the weights: 0.2 s for 340 MB.

    Args:
        source: a folder, such as ``python -m backend.training document-images`` writes, or a hub id with an optional
            ``@revision``.

    Raises: ModelUnavailable when it is absent, incomplete or of another kind; HubUnreachable when it would have to be
        fetched and the network fails.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return read_image_model(folder.resolve(), name=folder.resolve().name, source=source)
    if source.startswith((".", "/", "~")):
        raise ModelUnavailable(f"the folder {source} does not exist")
    repository = source.partition("@")[0]
    fetched = fetch(source, ("*.json", WEIGHTS), instead="IMAGE_MODEL=none")
    return read_image_model(fetched, name=repository, source=repository, revision=fetched.name)


def read_image_model(folder: Path, *, name: str, source: str, revision: str = "") -> ImageModelSpec:
    """What the model in a folder is. Raises: ModelUnavailable."""
    config = _config(folder, name)
    architecture = _architecture(config, name)
    _check_weights(folder, name)
    if (channels := config.get("num_channels", 3)) != 3:
        raise ModelUnavailable(f"{name} takes {channels} channels; pages are given as 3 (RGB)")
    multi_label = config.get("problem_type") == "multi_label_classification"
    labels = _labels(config, name, at_least=1 if multi_label else 2)
    preprocessing = read_preprocessing(folder, name)
    digest = sha256_of(folder / WEIGHTS)
    return ImageModelSpec(
        name=name,
        source=source,
        revision=revision or digest[:12],
        sha256=digest,
        folder=folder,
        architecture=architecture,
        family=str(config.get("model_type", "")),
        labels=labels,
        multi_label=multi_label,
        preprocessing=preprocessing,
        stored_dtype=config.get("dtype") or config.get("torch_dtype"),
        config=config,
    )


def check_unchanged(spec: ImageModelSpec) -> None:
    """Refuse a model whose files were replaced since it was read: its classes are cached as those of the old files.

    Raises: ModelUnavailable, also when the files are gone.
    """
    now = read_image_model(spec.folder, name=spec.name, source=spec.source, revision=spec.revision)
    if now.fingerprint != spec.fingerprint:
        raise ModelUnavailable(
            f"the files of {spec.name} in {spec.folder} have changed since it was loaded; restart the service to use "
            "the new ones"
        )


def _config(folder: Path, name: str) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{name} has no {CONFIG} that can be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelUnavailable(f"{name}: {CONFIG} holds no object")
    return config


def _architecture(config: Mapping[str, Any], name: str) -> str:
    known = [str(architecture) for architecture in config.get("architectures") or ()]
    fitting = [architecture for architecture in known if _ARCHITECTURE in architecture]
    if fitting:
        return fitting[0]
    if config.get("auto_map"):
        raise ModelUnavailable(f"{name} needs code of its own (auto_map); code that comes with a model is never run")
    raise ModelUnavailable(
        f"{name} is a {known[0] if known else 'model of no known architecture'}; IMAGE_MODEL serves image classifiers "
        f"of transformers (…{_ARCHITECTURE}), CLASSIFIER_MODEL those of texts"
    )


def _check_weights(folder: Path, name: str) -> None:
    if (folder / WEIGHTS).is_file():
        return
    if (folder / _SHARDS).is_file():
        raise ModelUnavailable(f"{name} has its weights in several files; save it as one {WEIGHTS} (max_shard_size)")
    if any(folder.glob("*.bin")):
        raise ModelUnavailable(f"{name} has its weights as pickles alone, which may run code; only {WEIGHTS} is loaded")
    raise ModelUnavailable(f"{name} has no {WEIGHTS}")


def _labels(config: Mapping[str, Any], name: str, *, at_least: int) -> tuple[str, ...]:
    """The labels by their index. Raises: ModelUnavailable where they are no list of different names."""
    if config.get("problem_type") == "regression":
        raise ModelUnavailable(f"{name} predicts numbers (problem_type regression), no classes")
    by_index = config.get("id2label")
    if not isinstance(by_index, Mapping):
        raise ModelUnavailable(f"{name}: {CONFIG} has no id2label, and so no names of classes")
    labels = tuple(str(by_index.get(str(index), "")) for index in range(len(by_index)))
    if not all(labels) or len(set(labels)) < len(labels):
        raise ModelUnavailable(f"{name}: id2label must name the outputs 0 to {len(labels) - 1}, each by another name")
    if len(labels) < at_least:
        raise ModelUnavailable(f"{name} has {len(labels)} label; at least {at_least} are needed to tell apart")
    return labels
