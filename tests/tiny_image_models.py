"""Small image classifiers with fixed random weights and their image processors, as transformers writes them."""

import functools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

SIDE = 32
LABELS = ("form", "invoice", "letter")
_VIT: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
    "image_size": SIDE, "patch_size": 8,
}  # fmt: skip
_SQUARE = {"height": SIDE, "width": SIDE}
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # configuration, its fields, the processor's
    "vit": ("ViTConfig", _VIT, {"image_processor_type": "ViTImageProcessor", "size": _SQUARE}),
    "beit": ("BeitConfig", _VIT, {"feature_extractor_type": "BeitFeatureExtractor", "size": SIDE, "resample": 2}),
    "deit": (
        "DeiTConfig",
        _VIT,
        {"image_processor_type": "DeiTImageProcessorFast", "size": {"height": 40, "width": 40}, "crop_size": _SQUARE},
    ),
    "swin": (
        "SwinConfig",
        {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "image_size": SIDE, "patch_size": 4, "window_size": 4},
        {"image_processor_type": "ViTImageProcessor", "size": _SQUARE, "resample": 3},
    ),
    "resnet": (
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": SIDE}, "crop_pct": 0.875},
    ),
    "convnext": (
        "ConvNextConfig",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4},
        {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": SIDE}, "crop_size": _SQUARE},
    ),
}


class TinyImageModels:
    """Makes folders on demand and keeps them for the session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = functools.cache(self.make)

    def make(self, family: str = "vit", *, seed: int = 7, **fields: Any) -> Path:
        """A folder of its own, which may be changed. ``fields``: of config.json."""
        folder = Path(tempfile.mkdtemp(dir=self._root, prefix=f"{family}-"))
        config_name, sizes, processor = FAMILIES[family]
        config = getattr(transformers, config_name)(**sizes)
        config.id2label = dict(enumerate(LABELS))
        config.label2id = {label: index for index, label in enumerate(LABELS)}
        config.architectures = [f"{config_name.removesuffix('Config')}ForImageClassification"]
        for name, value in fields.items():
            setattr(config, name, value)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: Any = transformers.AutoModelForImageClassification.from_config(config)  # type: ignore[no-untyped-call]
            for name, weights in model.named_parameters():
                torch.nn.init.normal_(weights, std=2.0 if name.startswith("classifier") else 0.2)
        model.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
        return folder


@pytest.fixture(scope="session")
def image_models() -> Iterator[TinyImageModels]:
    """Small image classifiers of every family: ``image_models.folder("resnet")``."""
    with tempfile.TemporaryDirectory(prefix="tiny-images-") as root:
        transformers.utils.logging.disable_progress_bar()
        yield TinyImageModels(Path(root))
