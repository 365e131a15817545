"""The document image task: training, micro-batch independence, unreadable pages, publishing."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoImageProcessor, AutoModelForImageClassification, ConvNextConfig, ResNetConfig, ViTConfig
from transformers.utils import logging as transformers_logging

from backend.device.plan.placement import LoaderSettings
from backend.errors import BadData, DoesNotFit, TrainingError
from backend.training.data.augmentation import AugmentConfig
from backend.training.data.batches import MicroBatchLoader
from backend.training.records import Task, TrainingConfig
from backend.training.tasks.document_images import DocumentImagesTask, prepare
from tests.conftest import DATA_DIR
from tests.drawn_pages import KINDS, page

REAL = DATA_DIR / "doctype_images"
CONFIGS: dict[str, Any] = {
    "resnet": ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
    "convnext": ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, patch_size=4),
    "vit": ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=32, patch_size=8
    ),
}
PLAIN = AugmentConfig(policy="none")
MIXED = AugmentConfig(mixup_alpha=0.4, cutmix_alpha=1.0, mix_probability=0.7)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirteen pages of each kind; not to be changed."""
    root = tmp_path_factory.mktemp("archive")
    for kind in KINDS:
        (root / kind).mkdir()
        for number in range(13):
            page(kind, number).save(root / kind / f"{number:02}.png")
    return root


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models with weights, one folder each."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    root = tmp_path_factory.mktemp("bases")
    for name, config in CONFIGS.items():
        torch.manual_seed(7)
        AutoModelForImageClassification.from_config(config).save_pretrained(root / name)
    return root


def task_of(
    archive: Path, base: str | Path, config: TrainingConfig | None = None, **options: Any
) -> DocumentImagesTask:
    """A task at 32 x 32 px."""
    options.setdefault("augmentation", PLAIN)
    return prepare(archive, base, config or TrainingConfig(), image_size=(32, 32), **options)


def fit(task: DocumentImagesTask, epochs: int, learning_rate: float = 3e-3) -> list[float]:
    """A plain loop; the mean loss of each epoch."""
    optimizer, losses = torch.optim.AdamW(task.model.parameters(), learning_rate), []
    with MicroBatchLoader(task.collate, LoaderSettings(), "cpu") as loader:
        for epoch in range(epochs):
            task.model.train()
            order = np.random.default_rng(epoch).permutation(len(task.lengths))
            parts = []
            for batch in loader.load([order[at : at + 12].tolist() for at in range(0, len(order), 12)], epoch=epoch):
                part = task.loss(task.model, batch)
                optimizer.zero_grad()
                (part.total / part.weight).backward()
                optimizer.step()
                parts.append((float(part.total.detach()), part.weight))
            losses.append(sum(total for total, _ in parts) / sum(weight for _, weight in parts))
    task.model.eval()
    return losses


def gradient_of(task: DocumentImagesTask, cuts: Sequence[Sequence[int]]) -> tuple[float, list[Tensor]]:
    """Loss and gradients of an effective batch in these cuts."""
    task.model.zero_grad()
    parts = [task.loss(task.model, task.collate(cut)) for cut in cuts]
    loss = sum(part.total for part in parts) / sum(part.weight for part in parts)
    loss.backward()
    return float(loss.detach()), [
        parameter.grad.clone() for parameter in task.model.parameters() if parameter.grad is not None
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_it_learns(archive: Path, bases: Path, kind: str):
    """Convolutional models and ViT tell kinds of pages apart after a few epochs."""
    task: Task = task_of(archive, bases / kind, held_out=0.3)
    before = task.evaluate(task.model.eval())

    losses = fit(task, 20)

    after = task.evaluate(task.model)
    assert losses[-1] < 0.5 * losses[0]
    assert after["macro_f1"] > before["macro_f1"]
    assert {"accuracy", "macro_f1", "log_loss", "ece"} == after.keys()
    assert task.goal in after


@pytest.mark.slow
def test_it_learns_from_changed_pages(archive: Path, bases: Path):
    """With augmentation and mixup the pages it has not seen are told apart."""
    task = task_of(archive, bases / "resnet", augmentation=AugmentConfig(mixup_alpha=0.2), held_out=0.3)

    fit(task, 12)

    assert 1.0 == task.evaluate(task.model)["macro_f1"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.parametrize(
    ("settings", "augmentation"),
    [
        pytest.param({}, PLAIN, id="plain"),
        pytest.param(
            {"focal_gamma": 2.0, "label_smoothing": 0.1, "class_weights": "balanced"}, AugmentConfig(), id="all-losses"
        ),
        pytest.param({"label_smoothing": 0.1, "class_weights": "balanced"}, MIXED, id="mixed"),
        pytest.param({}, MIXED, id="mixed-unweighted"),
    ],
)
def test_any_cut_gives_the_same_loss_and_gradient(
    archive: Path, bases: Path, kind: str, settings: dict[str, Any], augmentation: AugmentConfig
):
    """Mixup's partners come from all pages and batch norm is frozen: running out of memory changes the cuts alone."""
    task = task_of(archive, bases / kind, TrainingConfig(**settings), augmentation=augmentation)
    task.model.train()
    batch = [20, 3, 11, 30, 8, 15, 0]

    whole, expected = gradient_of(task, [batch])
    for cuts in ([batch[:4], batch[4:]], [[index] for index in batch]):
        loss, actual = gradient_of(task, cuts)

        assert pytest.approx(whole, abs=1e-6) == loss
        assert all(torch.allclose(gradient, other, atol=1e-5) for gradient, other in zip(expected, actual, strict=True))


@pytest.mark.parametrize("augmentation", [AugmentConfig(), MIXED], ids=["document", "mixed"])
def test_pictures_depend_on_the_epoch_and_on_nothing_else(archive: Path, bases: Path, augmentation: AugmentConfig):
    """The same epoch gives the same batches with any number of workers, with the cache or without; another does not."""
    cached = task_of(archive, bases / "vit", augmentation=augmentation)
    uncached = task_of(archive, bases / "vit", augmentation=augmentation, cache_bytes=0)
    cuts = [[0, 1, 2], [3, 4], [5, 6, 7, 8]]

    def batches(task: DocumentImagesTask, workers: int, epoch: int) -> list[Any]:
        settings = LoaderSettings(num_workers=workers, prefetch_factor=2 if workers else None)
        with MicroBatchLoader(task.collate, settings, "cpu") as loader:
            return list(loader.load(cuts, epoch=epoch))

    first = batches(cached, 0, 4)
    for other in (batches(cached, 3, 4), batches(uncached, 2, 4)):
        for batch, same in zip(first, other, strict=True):
            assert torch.equal(batch["pixels"], same["pixels"])
            assert torch.equal(batch["targets"], same["targets"])

    assert not torch.equal(first[0]["pixels"], batches(cached, 0, 5)[0]["pixels"])


def test_batches_are_small_integers(archive: Path, bases: Path):
    """Pages travel as uint8, a quarter of the bytes; targets are classes, or shares where pages are mixed."""
    plain = task_of(archive, bases / "vit").collate([0, 20])
    mixed = task_of(archive, bases / "vit", augmentation=MIXED).collate([0, 20])

    assert (torch.uint8, (2, 3, 32, 32)) == (plain["pixels"].dtype, tuple(plain["pixels"].shape))
    assert ((2,), torch.int64) == (tuple(plain["targets"].shape), plain["targets"].dtype)
    assert torch.allclose(mixed["targets"].sum(dim=1), torch.ones(2))
    assert (2.0, 2.0) == (plain["weight"], mixed["weight"])


def test_pretrained_batch_norm_is_frozen_and_can_be_trained(archive: Path, bases: Path):
    """A few pages' statistics must not replace those of the pretraining, unless asked; from nothing they are learnt."""

    def moved(base: str | Path, **options: Any) -> bool:
        task = task_of(archive, base, **options)
        statistics = next(layer for layer in task.model.modules() if isinstance(layer, nn.BatchNorm2d))
        before = statistics.running_mean.clone()
        task.model.train()
        gradient_of(task, [[0, 20, 30]])
        assert statistics.weight.grad is not None
        return not torch.equal(before, statistics.running_mean)

    assert not moved(bases / "resnet")
    assert moved(bases / "resnet", freeze_batch_norm=False)
    assert moved("resnet")


def broken_archive(root: Path) -> Path:
    """Four pages of each kind in a folder of the test's own."""
    for kind in KINDS:
        (root / kind).mkdir(parents=True)
        for number in range(4):
            page(kind, number).save(root / kind / f"{number}.png")
    return root


@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.2, "class_weights": "balanced", "focal_gamma": 1.0}])
@pytest.mark.parametrize("augmentation", [PLAIN, MIXED], ids=["plain", "mixed"])
def test_a_page_that_breaks_in_the_run_counts_for_nothing(
    tmp_path: Path, bases: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], augmentation: AugmentConfig
):
    """A file that vanished leaves its batch's loss to the others; it is named once, and the run goes on."""
    data = broken_archive(tmp_path)
    options: dict[str, Any] = {"held_out": 0, "cache_bytes": 0, "augmentation": augmentation}
    task = task_of(data, bases / "vit", TrainingConfig(**settings), **options)
    (data / "form/1.png").unlink()

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            loss, gradients = gradient_of(task, [[0, 1, 5, 9]])
        alone, expected = gradient_of(task, [[0, 5, 9]])
        nothing = task.loss(task.model, task.collate([1]))

    assert pytest.approx(alone, abs=1e-6) == loss
    assert all(torch.allclose(gradient, other, atol=1e-6) for gradient, other in zip(expected, gradients, strict=True))
    assert (0.0, 0.0) == (float(nothing.total.detach()), nothing.weight)
    assert nothing.total.requires_grad
    assert [("1.png", "no such file")] == [(image.file.name, image.why) for image in task.skipped]
    assert 1 == len([record for record in caplog.records if "no longer be read" in record.message])


def test_a_vanished_evaluation_page_is_left_out(tmp_path: Path, bases: Path):
    """The measures are over the pages that are there."""
    data = broken_archive(tmp_path)
    task = task_of(data, bases / "vit", held_out=0.25, cache_bytes=0)
    task.pages.evaluation[0].file.unlink()

    logits, targets = task.logits(task.model.eval())

    assert ((2, 3), (2,)) == (tuple(logits.shape), tuple(targets.shape))
    assert {"accuracy"} <= task.evaluate(task.model).keys()


def test_without_evaluation_pages(archive: Path, bases: Path):
    """There are no scores."""
    task = task_of(archive, bases / "vit", held_out=0)

    assert {} == task.evaluate(task.model.eval())
    assert 39 == len(task.lengths)


class LimitedMemory(nn.Module):
    """Runs a model, and raises out of memory above a batch size."""

    def __init__(self, model: nn.Module, most: int) -> None:
        super().__init__()
        self.model, self.most = model, most

    def forward(self, pixel_values: Tensor) -> Any:
        if len(pixel_values) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")
        return self.model(pixel_values=pixel_values)


def test_evaluation_survives_little_memory(archive: Path, bases: Path):
    """The batch is halved until it fits and the answers are the same; a page that does not fit alone is said not to."""
    task = task_of(archive, bases / "vit", held_out=0.5)
    task.model.eval()

    expected, _ = task.logits(task.model)
    actual, _ = task.logits(LimitedMemory(task.model, 5))

    assert torch.allclose(expected, actual, atol=1e-6)
    with pytest.raises(DoesNotFit):
        task.logits(LimitedMemory(task.model, 0))


def test_channels_last_is_the_same(archive: Path, bases: Path):
    """The layout of memory changes no loss."""
    task = task_of(archive, bases / "convnext")
    task.model.train()
    expected, _ = gradient_of(task, [[0, 20]])

    task.model.to(memory_format=torch.channels_last)
    actual, _ = gradient_of(task, [[0, 20]])

    assert pytest.approx(expected, abs=1e-5) == actual


@pytest.mark.parametrize(("kind", "rank"), [("resnet", None), ("convnext", None), ("vit", None), ("vit", 4)])
def test_what_is_published_loads(archive: Path, bases: Path, tmp_path: Path, kind: str, rank: int | None):
    """transformers loads model, labels and processor, and answers for a page as the task did, calibrated."""
    task = task_of(archive, bases / kind, TrainingConfig(lora_rank=rank), held_out=0.3)
    fit(task, 3, 1e-3)
    logits, _ = task.logits(task.model)

    task.publish(task.model, tmp_path / "out", {"command": "python -m backend.training", "steps": 9})

    model = AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    processor = AutoImageProcessor.from_pretrained(tmp_path / "out")
    pages = [Image.open(example.file).convert("RGB") for example in task.pages.evaluation]
    with torch.no_grad():
        served = model(**processor(pages, return_tensors="pt")).logits
    temperature = float((logits[0] / served[0]).mean())
    assert torch.allclose(logits, served * temperature, atol=1e-4)
    assert {0: "form", 1: "invoice", 2: "letter"} == model.config.id2label
    assert not [name for name in load_file(tmp_path / "out/model.safetensors") if "lora" in name]
    assert {"README.md", "config.json", "model.safetensors", "preprocessor_config.json"} == {
        file.name for file in (tmp_path / "out").iterdir()
    }
    assert torch.float32 is model.dtype


def test_publishing_changes_nothing_of_the_run(archive: Path, bases: Path, tmp_path: Path):
    """The temperature is divided into a copy: training can go on."""
    task = task_of(archive, bases / "vit")
    before = {name: value.clone() for name, value in task.model.state_dict().items()}

    task.publish(task.model, tmp_path / "out", {})

    assert all(torch.equal(before[name], value) for name, value in task.model.state_dict().items())


def test_the_card_is_of_this_run(tmp_path: Path, bases: Path):
    """Base, data with their licence, what was left out, augmentation, scores and limits."""
    data = broken_archive(tmp_path / "scans")
    (data / "form/bad.png").write_bytes(b"x")
    (data / "SOURCE.md").write_text("# Scans\n\n## Source\n\nan archive\n\n## Licence\n\nMIT\n", encoding="utf-8")
    task = task_of(data, bases / "vit", held_out=0.25, augmentation=AugmentConfig(cutmix_alpha=1.0))

    task.publish(task.model.eval(), tmp_path / "out", {"command": "train", "config": TrainingConfig().as_dict()})

    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    for line in (
        "Base model: vit",
        "| scans | training and evaluation | 12 | MIT | an archive |",
        "9 pages to learn from, 3 to evaluate on",
        "left out: 1, the first: bad.png (not an image",
        '"cutmix_alpha": 1.0',
        "| accuracy |",
        "squeezed to 32 x 32 px",
        "| label_smoothing | 0 |",
    ):
        assert line in card


def test_lora_trains_little_and_learns(archive: Path, bases: Path):
    """Adapters and the head alone have gradients; the loss falls."""
    task = task_of(archive, bases / "vit", TrainingConfig(lora_rank=4))

    trained = {name for name, parameter in task.model.named_parameters() if parameter.requires_grad}
    losses = fit(task, 8)

    assert all("lora_" in name or "classifier" in name for name in trained)
    assert losses[-1] < losses[0]


def test_lora_has_nothing_to_adapt_in_a_resnet(archive: Path, bases: Path):
    """Convolutions are not adapted: said, not ignored."""
    with pytest.raises(TrainingError, match="LoRA"):
        task_of(archive, bases / "resnet", TrainingConfig(lora_rank=4))


@pytest.mark.skipif(not REAL.is_dir(), reason="the shared data are not here")
def test_real_pages(bases: Path):
    """The shared set: PDFs are named, the pictures make a batch."""
    task = task_of(REAL, bases / "convnext", held_out=0)

    assert ["form_d1bf3c.pdf", "invoice_6d377b.pdf", "form_1f37c7.pdf", "handwritten_note_1c3447.pdf"] == [
        image.file.name for image in task.skipped
    ]
    part = task.loss(task.model, task.collate([0, 1, 2, 3]))
    assert 4.0 == part.weight
    assert torch.isfinite(part.total)


def test_data_without_pages(tmp_path: Path, bases: Path):
    """An empty folder ends before a model is loaded."""
    with pytest.raises(BadData, match="no example"):
        task_of(tmp_path, bases / "vit")
