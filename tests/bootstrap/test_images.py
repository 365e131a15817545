"""IMAGE_MODEL from the settings: a hub that is away, wrong models, and one that leaves memory and comes back."""

import asyncio
import io
from pathlib import Path

import pytest
from PIL import Image

from backend.bootstrap import images
from backend.config import load_settings
from backend.errors import HubUnreachable, ModelPending, ModelUnavailable
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.images.model_files import ImageModelSpec, resolve_image_model
from backend.retry import Backoff
from backend.serving import pending_models
from tests.bootstrap.conftest import QUICK, Start
from tests.bootstrap.test_models import until
from tests.tiny_image_models import LABELS, TinyImageModels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LIGHT = {**QUICK, "ocr_engine": "tesseract", "speech_model": "none"}  # nothing else to load or measure


def upload(level: int = 200) -> StoredFile:
    target = io.BytesIO()
    Image.new("L", (60, 80), level).save(target, "PNG")
    return StoredFile.of(target.getvalue(), FileLimits())


async def test_a_model_leaves_memory_and_comes_back(start: Start, image_models: TinyImageModels) -> None:
    """After MODEL_KEEP_ALIVE_S without a page, with the same scores; equal pages need it not."""
    folder = str(image_models.folder("vit"))
    services = await start(embedding_model="minilm", image_model=folder, model_keep_alive_s=0.2, **LIGHT)
    engines = services.images.require()
    first = await services.images.classify(upload())
    await until(lambda: not engines.model.is_loaded)
    loads = services.telemetry.registry.get_sample_value("financia_model_loads_total", {"model": engines.model.name})
    await services.images.classify(upload())
    assert not engines.model.is_loaded
    await services.images.classify(upload(90))

    assert loads is not None
    assert loads + 1 == services.telemetry.registry.get_sample_value(
        "financia_model_loads_total", {"model": engines.model.name}
    )
    assert set(LABELS) == {each.label for each in first.pages[0].classes.predictions}
    assert "page lanes" == services.system()["images"]["lanes"]
    assert ["images"] == [row["task"] for row in services.document_runtime.models() if row["task"] == "images"]


async def test_a_hub_that_is_away(start: Start, image_models: TinyImageModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest serves, images get 503, and the model serves once the hub gives it."""
    folder: list[Path] = []

    def resolve(source: str) -> ImageModelSpec:
        if not folder:
            raise HubUnreachable("no name")
        return resolve_image_model(str(folder[0]))

    monkeypatch.setattr(images, "resolve_image_model", resolve)
    monkeypatch.setattr(pending_models, "PAUSE", Backoff(0.02, 0.02))
    services = await start(embedding_model="minilm", image_model="owner/kinds@main", **LIGHT)
    with pytest.raises(ModelPending, match="owner/kinds@main"):
        await services.images.classify(upload())
    assert any("images (owner/kinds@main) is not loaded" in each for each in services.health.degraded())
    assert ["images"] == [each["task"] for each in services.system()["pending_models"]]
    folder.append(image_models.folder("resnet"))
    await until(lambda: services.images.engines is not None)

    assert 1 == len((await services.images.classify(upload())).pages)
    assert [] == services.health.degraded()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("./absent", "IMAGE_MODEL: the folder ./absent does not exist", id="absent"),
        pytest.param("text", "CLASSIFIER_MODEL those of texts", id="another-kind"),
    ],
)
async def test_a_wrong_model_stops_the_start(tmp_path: Path, source: str, message: str) -> None:
    """With the setting and the reason."""
    (tmp_path / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}', encoding="utf-8")
    settings = load_settings(image_model=str(tmp_path) if source == "text" else source)

    with pytest.raises(ModelUnavailable, match=message):
        await asyncio.to_thread(images.find_image_model, settings, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["", "none"])
def test_none(source: str) -> None:
    """By default, and where it is said."""
    found = images.find_image_model(load_settings(image_model=source), None)  # type: ignore[arg-type]

    assert (None, "IMAGE_MODEL is not set", False) == (found.model, found.why_none, found.comes_later)
