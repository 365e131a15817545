"""Image classifiers of each family: as transformers' own pipeline, whole or not at all, alone as in a batch."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import pipeline

from backend.device.plan.placement import Placement
from backend.errors import InferenceFailed, ModelUnavailable
from backend.files.image_file import framed
from backend.files.limits import FileLimits
from backend.images.engine import ImageEngine, choose_arithmetic, load_again, load_classifier, page_cost
from backend.images.model_files import ImageModelSpec, check_unchanged, resolve_image_model
from backend.images.torch_classifier import TorchImageClassifier
from backend.lanes.engine import UnloadableEncoder
from backend.models.autotune import EncoderRequest
from backend.models.numpy_layers import softmax
from backend.models.torch_transfers import PinnedTransfers
from tests.images.test_processor_config import picture
from tests.models.test_torch_readout import FakeCuda
from tests.tiny_image_models import FAMILIES, LABELS, SIDE, TinyImageModels, image_models
from tests.tiny_models import placement

__all__ = ["image_models"]
PAGES = [picture(size) for size in ((60, 90), (90, 60), (33, 32), (7, 5))]


def classifier(spec: ImageModelSpec, dtype: str = "fp32") -> TorchImageClassifier:
    return TorchImageClassifier(spec, dtype=dtype, device="cpu", threads=1)


def pixels_of(spec: ImageModelSpec, pages: list[Image.Image]) -> np.ndarray:
    return np.stack([framed(page, spec.preprocessing.framing, FileLimits(), 1) for page in pages])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_scores_of_the_reference(image_models: TinyImageModels, family: str) -> None:
    """The probabilities that transformers' pipeline gives the same pages; alone and in a batch."""
    folder = image_models.folder(family)
    spec = resolve_image_model(str(folder))
    loaded, pixels = classifier(spec), pixels_of(spec, PAGES)
    reference = pipeline("image-classification", model=str(folder), image_processor=_processor(folder), top_k=3)

    batch = softmax(loaded.numbers(loaded.forward(pixels)))
    alone = softmax(np.concatenate([loaded.numbers(loaded.forward(page[None])) for page in pixels]))
    expected = [{row["label"]: row["score"] for row in rows} for rows in reference(PAGES)]

    np.testing.assert_allclose(batch, [[row[label] for label in LABELS] for row in expected], atol=1e-5)
    np.testing.assert_allclose(alone, batch, atol=1e-5)
    assert LABELS == spec.labels
    assert np.ptp(batch, axis=0).max() > 50e-5  # the pages differ by more than what is tolerated


def test_page_locked_memory_is_given_back(image_models: TinyImageModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card pixels leave from it and logits arrive in it; rows that a cache keeps are copies."""
    spec = resolve_image_model(str(image_models.folder("vit")))
    pixels, locked, empty = pixels_of(spec, PAGES), list[torch.Tensor](), torch.empty
    expected = classifier(spec)
    cuda = FakeCuda()

    def recorded(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        tensor = empty(*shape, **options)
        locked.extend([tensor] * pin_memory)
        return tensor

    monkeypatch.setattr(torch, "empty", recorded)
    monkeypatch.setattr(
        "backend.images.torch_classifier.transfers_of", lambda device: PinnedTransfers(device, cuda=cuda)
    )
    loaded = classifier(spec)
    del locked[:], cuda.steps[:]
    queued = loaded.forward(pixels)
    waited = [step for step in cuda.steps if step.startswith("wait")]
    logits = loaded.numbers(queued)
    sent, arrived = locked

    assert [] == waited
    assert (torch.uint8, pixels.tobytes()) == (sent.dtype, sent.numpy().tobytes())
    assert logits.tolist() == arrived.tolist() == expected.numbers(expected.forward(pixels)).tolist()
    assert not np.shares_memory(logits, arrived.numpy())


def _processor(folder: Path) -> Any:
    from transformers import AutoImageProcessor

    return AutoImageProcessor.from_pretrained(folder, backend="pil")


def test_what_it_is(image_models: TinyImageModels) -> None:
    """Name, labels and size are read without loading it, and the fingerprint is of all that decides a score."""
    folder = image_models.make("vit")
    spec = resolve_image_model(str(folder))
    other = resolve_image_model(str(image_models.folder("vit", seed=8)))
    config = folder / "preprocessor_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"size"', '"resample": 3, "size"'), encoding="utf-8")
    changed = resolve_image_model(str(folder))

    assert (folder.name, "ViTForImageClassification", False) == (spec.name, spec.architecture, spec.multi_label)
    assert 3 == len({spec.fingerprint, other.fingerprint, changed.fingerprint})
    assert spec.sha256 == changed.sha256
    with pytest.raises(ModelUnavailable, match="have changed since it was loaded"):
        load_again(spec, "fp32", placement())


def test_other_weights_are_refused_when_it_is_loaded_again(image_models: TinyImageModels) -> None:
    """Its classes are cached as those of the old ones."""
    folder = image_models.make("vit")
    spec = resolve_image_model(str(folder))
    check_unchanged(spec)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"})

    with pytest.raises(ModelUnavailable, match="have changed since it was loaded"):
        check_unchanged(spec)


def _edit(folder: Path, **fields: Any) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_bytes()), **fields}), encoding="utf-8")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"architectures": ["BertForSequenceClassification"]}, "CLASSIFIER_MODEL those of texts", id="text"
        ),
        pytest.param({"architectures": None, "auto_map": {"AutoModel": "x.Y"}}, "code that comes with", id="own-code"),
        pytest.param({"num_channels": 1}, "takes 1 channels", id="gray"),
        pytest.param({"id2label": {"0": "a", "1": "a", "2": "b"}}, "each by another name", id="same-label-twice"),
        pytest.param({"id2label": {"0": "a"}}, "at least 2", id="one-label"),
        pytest.param({"problem_type": "regression"}, "no classes", id="regression"),
    ],
)
def test_refused_before_loading(image_models: TinyImageModels, fields: dict[str, Any], message: str) -> None:
    """What is no image classifier stops the start with the reason."""
    folder = image_models.make("vit")
    _edit(folder, **fields)

    with pytest.raises(ModelUnavailable, match=message):
        resolve_image_model(str(folder))


def test_weights_that_are_absent(image_models: TinyImageModels, tmp_path: Path) -> None:
    """Pickles are never loaded, and a checkpoint with holes is not filled with random numbers."""
    folder = image_models.make("vit")
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in tensors.items() if "layer.1" not in name and "layers.1" not in name},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ModelUnavailable, match="lacks the tensors"):
        classifier(resolve_image_model(str(folder)))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match="pickles"):
        resolve_image_model(str(folder))
    with pytest.raises(ModelUnavailable, match="does not exist"):
        resolve_image_model(str(tmp_path / "absent"))


def test_a_size_that_the_network_does_not_take(image_models: TinyImageModels) -> None:
    """Found at the start, not by the first request."""
    folder = image_models.make("vit")
    (folder / "preprocessor_config.json").write_text(
        '{"image_processor_type": "ViTImageProcessor", "size": {"height": 40, "width": 32}}', encoding="utf-8"
    )

    with pytest.raises(ModelUnavailable, match="cannot take pages of 40 x 32 px"):
        classifier(resolve_image_model(str(folder)))


def test_numbers_that_are_not_finite(image_models: TinyImageModels) -> None:
    """A model whose weights are broken never starts; a page that breaks one is computed in float32, or fails alone."""
    folder = image_models.make("vit")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.startswith("classifier"))
    save_file(tensors | {name: tensors[name] * float("nan")}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelUnavailable, match="not finite in fp32"):
        classifier(resolve_image_model(str(folder)))

    class Broken:
        dtype, padding_cost, parameters = "fp16", 1.0, 1

        def forward(self, pixels: np.ndarray) -> np.ndarray:
            return np.where(pixels[:, 0, 0, :] == 13, np.nan, 1.0).astype(np.float32)

        def numbers(self, logits: np.ndarray) -> np.ndarray:
            return logits

    source = UnloadableEncoder(Broken(), Broken, name="broken")
    good, bad = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 13, np.uint8)
    alone, rescued = ImageEngine(source, 10), ImageEngine(source, 10, recompute=lambda _page: np.zeros(3, np.float32))

    first, second = alone.finish(alone.forward(alone.prepare([good, bad])))
    assert [1.0] * 3 == first.tolist()
    assert isinstance(second, InferenceFailed)
    assert [0.0] * 3 == rescued.finish(rescued.forward(rescued.prepare([good, bad])))[1].tolist()


def _card(*dtypes: str) -> Placement:
    return replace(placement(device="cuda:0"), dtypes=dtypes)


@pytest.mark.parametrize(
    ("place", "precision", "expected"),
    [
        pytest.param(placement(), "auto", ("fp32", 4), id="cpu"),
        pytest.param(placement(), "bf16", ("bf16", 4), id="asked-for"),
        pytest.param(_card("bf16", "fp16", "fp32"), "auto", ("bf16", 64), id="card"),
        pytest.param(_card("bf16", "fp32"), "exact", ("fp32", 64), id="exact"),
    ],
)
def test_arithmetic(image_models: TinyImageModels, place: Any, precision: Any, expected: tuple[str, int]) -> None:
    """What PRECISION asks for; by itself float32 on a CPU, and what a card computes best."""
    spec = resolve_image_model(str(image_models.folder("vit")))

    choice = choose_arithmetic(spec, place, EncoderRequest(precision), page_cost=5)

    assert expected == (choice.dtype, choice.budget // 5)


def test_cost_of_a_page(image_models: TinyImageModels) -> None:
    """Of 224 px and 86 million parameters, as DiT base: what 792 tokens of the bundled encoder take."""
    spec = resolve_image_model(str(image_models.folder("vit")))

    assert 1 == page_cost(spec, 1000)
    assert 16 == page_cost(spec, 86_000_000)  # 32 px
    assert SIDE == spec.preprocessing.framing.size[0]
    assert "bf16" == load_classifier(spec, "bf16", placement()).dtype
