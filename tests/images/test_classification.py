"""Pages on real lanes and in real worker processes: what is cached, shared, given up, and refused."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from backend.errors import (
    FinanciaError,
    InvalidField,
    ModelPending,
    PasswordRequired,
    TooLarge,
    UnreadableFile,
    WrongMediaType,
    WrongPassword,
)
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.records import Framing, Preprocessing
from backend.files.stored_file import StoredFile
from backend.images.classification import ImageClassificationService, PageChoice
from backend.images.engine import TASK, ImageEngines, LoadedImageModel
from backend.images.model_files import ImageModelSpec
from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import MemoryTier, TieredCache
from backend.lanes.work_queue import QueueLimits
from backend.models.autotune import Choice
from backend.serving.pending_models import PendingModel, PendingModels
from backend.telemetry import Telemetry
from tests.fakes import GatedEngine
from tests.files.pdfs import pdf, text
from tests.tiny_models import placement

LABELS = ("dark", "light")
LIMITS = FileLimits(page_pixels=1_000_000, render_pixels=100_000)


class BrightnessEngine(GatedEngine):
    """Tells light pages from dark ones; ``batches`` are the pages that came."""

    def finish(self, output: Any) -> Sequence[Any]:
        return [np.array([0.0, page.mean() / 32 - 4], np.float32) for page in output]


def spec_of(framing: Framing | None = None) -> ImageModelSpec:
    framing = framing or Framing(2, (8, 6))
    preprocessing = Preprocessing(framing, 1 / 255, (0.0,) * 3, (1.0,) * 3)
    return ImageModelSpec(
        "brightness", "brightness", "1", "ab" * 32, Path(), "X", "x", LABELS, False, preprocessing, None, {}
    )  # fmt: skip


def picture(
    level: int = 250, size: tuple[int, int] = (60, 80), form: str = "PNG", mode: str = "L", **more: Any
) -> bytes:
    target = io.BytesIO()
    image = Image.new(mode, size, level) if mode in ("L", "I;16") else Image.new("L", size, level).convert(mode)
    image.save(target, form, **more)
    return target.getvalue()


@dataclass
class Stack:
    """The service, and the parts below it that tests inspect."""

    service: ImageClassificationService
    engine: BrightnessEngine
    lanes: Batcher
    telemetry: Telemetry
    readers: FileReaders
    opened: list[StoredFile] = field(default_factory=list)

    @property
    def pages(self) -> int:
        """That reached the engine."""
        return sum(len(batch) for batch in self.engine.batches)

    def upload(self, content: bytes) -> StoredFile:
        self.opened.append(StoredFile.of(content, LIMITS))
        return self.opened[-1]

    async def classes(self, content: bytes, **choice: Any) -> list[str | None]:
        result = await self.service.classify(self.upload(content), PageChoice(**choice))
        return [page.classes.prediction for page in result.pages]


@pytest.fixture(scope="module")
def readers() -> Iterator[FileReaders]:
    with FileReaders(2, LIMITS) as started:
        yield started


@pytest.fixture
async def stack(readers: FileReaders) -> AsyncIterator[Stack]:
    telemetry, engine = Telemetry(), BrightnessEngine(budget=400)
    engine.gate.set()
    lanes = Batcher(2, QueueLimits(10_000), telemetry)
    lanes.start(asyncio.get_running_loop())
    cache = TieredCache(MemoryTier(1_000_000), None, telemetry)
    choice = Choice("torch", "fp32", 400, 0.0, ("chosen by the test",))
    model = LoadedImageModel(spec_of(), choice, placement(), engine, 100, (), 1.0)
    service = ImageClassificationService(readers, ImageEngines(model, lanes, "page lanes"), cache, telemetry)
    made = Stack(service, engine, lanes, telemetry, readers)
    yield made
    await lanes.drain(5.0)
    service.close()
    for stored in made.opened:
        stored.close()


async def test_pages_of_a_file(stack: Stack) -> None:
    """The first one where none is named, else those that are, in order."""
    dark = Image.new("L", (60, 80), 3)
    tiff = picture(form="TIFF", save_all=True, append_images=[dark])

    assert ["light"] == await stack.classes(tiff)
    assert ["light", "dark"] == await stack.classes(tiff, pages="1-")
    assert ["dark"] == await stack.classes(tiff, pages="2")
    assert 2 == stack.pages  # each once
    assert [(8, 6, 3)] * 2 == [page.shape for batch in stack.engine.batches for page in batch]


async def test_the_same_bytes_are_computed_once(stack: Stack) -> None:
    """From the cache, whatever their name; not those of another file, turn or model."""
    content = picture()
    await stack.classes(content)
    await stack.classes(content)
    assert 1 == stack.pages
    await stack.classes(content, turn=90)
    await stack.classes(picture(level=249))
    assert 3 == stack.pages
    engines = stack.service.require()
    stack.service.serve(replace(engines, model=replace(engines.model, spec=spec_of(Framing(3, (8, 6))))))
    await stack.classes(content)
    assert 4 == stack.pages


async def test_equal_requests_at_the_same_time_share_one(stack: Stack) -> None:
    """It goes on when the first caller leaves, and ends when the last one does."""
    stack.engine.gate.clear()
    first, second, third = (asyncio.create_task(stack.classes(picture())) for _ in range(3))
    assert await asyncio.to_thread(stack.engine.entered.wait, 20)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    stack.engine.gate.set()

    assert [["light"], ["light"]] == list(await asyncio.gather(second, third))
    assert first.cancelled()
    assert 1 == stack.pages
    assert 2 == stack.telemetry.registry.get_sample_value("financia_jobs_coalesced_total")


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        pytest.param(b"", UnreadableFile, "empty", id="empty"),
        pytest.param(b"hello there", WrongMediaType, "it is txt, which is text", id="text"),
        pytest.param(b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00", WrongMediaType, "recording", id="sound"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(50), UnreadableFile, "broken", id="broken"),
        pytest.param(picture(size=(2000, 2000)), TooLarge, "LIMIT_PAGE_PIXELS", id="huge"),
        pytest.param(pdf(text(b"secret"), password="open"), PasswordRequired, "password", id="encrypted"),
    ],
)
async def test_bad_files(stack: Stack, content: bytes, error: type[FinanciaError], message: str) -> None:
    """Each says what is wrong; nothing reaches the model."""
    with pytest.raises(error, match=message):
        await stack.classes(content)
    assert 0 == stack.pages


async def test_a_truncated_image(stack: Stack) -> None:
    """What is left of it is classified, says so, and is not kept."""
    content = picture(size=(600, 800), form="JPEG")
    cut = content[: len(content) * 2 // 3]
    for _ in range(2):
        [page] = (await stack.service.classify(stack.upload(cut))).pages
        assert "cut off" in page.incomplete
    assert 2 == stack.pages


async def test_a_strip_that_a_crop_would_blow_up(stack: Stack) -> None:
    """A page of 1 x 30,000 px, its shorter side brought to 32 px, would be a picture of 30 million."""
    engines = stack.service.require()
    crop = spec_of(Framing(2, None, 32, (32, 32)))
    stack.service.serve(replace(engines, model=replace(engines.model, spec=crop)))

    with pytest.raises(TooLarge, match=r"pixels of 1 x 30000 as the image model resizes them.*LIMIT_RENDER_PIXELS"):
        await stack.classes(picture(size=(1, 30_000)))
    assert ["light"] == await stack.classes(picture(size=(300, 200)))


async def test_an_encrypted_file_tells_nothing_without_its_password(stack: Stack) -> None:
    """Not from the cache either."""
    content = pdf(text(b"secret"), password="open")

    assert ["light"] == await stack.classes(content, password="open")
    with pytest.raises(PasswordRequired):
        await stack.classes(content)
    with pytest.raises(WrongPassword):
        await stack.classes(content, password="wrong")


async def test_a_page_that_is_not_there(stack: Stack) -> None:
    """The error says how many there are."""
    with pytest.raises(InvalidField, match="pages"):
        await stack.classes(picture(), pages="2")


async def test_without_a_model(stack: Stack) -> None:
    """Unset: the request's fault, which names the setting. On its way from the hub: come again."""
    none = ImageClassificationService(stack.readers, None, TieredCache(MemoryTier(1), None, stack.telemetry),
                                      stack.telemetry, why_none="IMAGE_MODEL is not set")  # fmt: skip
    model = PendingModel(TASK, "owner/kinds", ("kinds",), "no hub", None)
    later = ImageClassificationService(stack.readers, None, TieredCache(MemoryTier(1), None, stack.telemetry),
                                       stack.telemetry, why_none="no hub", pending=PendingModels([model]))  # fmt: skip

    with pytest.raises(InvalidField, match="IMAGE_MODEL is not set"):
        await none.classify(stack.upload(picture()))
    with pytest.raises(ModelPending, match="no hub"):
        await later.classify(stack.upload(picture()))
    assert {"model": None, "why": "IMAGE_MODEL is not set"} == none.report()
    assert ((), (), "") == (none.names, none.labels, none.fingerprint)
    for service in (none, later):
        service.close()


async def test_what_is_counted(stack: Stack) -> None:
    """Pages, cached ones too, and batches of the engine."""
    for _ in range(2):
        await stack.classes(picture())
    sample = stack.telemetry.registry.get_sample_value

    assert 2 == sample("financia_inputs_total", {"task": TASK})
