"""Files, vector stores and search as the service builds them: from an upload to a hit, over a restart."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from backend.bootstrap.search import STORAGE_DIR, device_vectors, search_storage
from backend.bootstrap.services import Services
from backend.config import Settings
from backend.device.plan.placement import Placement, with_vectors
from backend.errors import StorageCorrupt, Unavailable
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.models.device_matrix import DeviceMatrix, bytes_for
from backend.search.filters import Comparison
from backend.search.retrieval import SearchOptions
from backend.search.vector_stores import NewFile
from tests.bootstrap.conftest import QUICK
from tests.fakes import TEST_TIMEOUT_S
from tests.tiny_models import TinyModels

TEXTS = ["La factura de marzo de Aceros del Norte.", "El contrato de alquiler del local.", "El menú de la semana."]


async def upload(services: Services, text: str) -> str:
    stored = StoredFile.of(text.encode(), services.file_limits)
    try:
        return (await services.files.upload("owner", stored, "a.txt", "assistants")).id
    finally:
        stored.close()


async def indexed(services: Services, store_id: str) -> None:
    """Return once nothing of a store is in progress."""
    async with asyncio.timeout(3 * TEST_TIMEOUT_S):
        while (await services.vector_stores.find("owner", store_id)).counts.get("in_progress"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


async def test_from_an_upload_to_a_hit_and_over_a_restart(start: Any, tiny: TinyModels, tmp_path: Path) -> None:
    """What was indexed is found; what was not when the service stopped is indexed by the next one."""
    settings = {"embedding_model": str(tiny.folder("bert")), "state_dir": tmp_path, "ocr_engine": "tesseract", **QUICK}
    services = await start(**settings)
    store = await services.vector_stores.create("owner")
    file_ids = [await upload(services, text) for text in TEXTS]
    await services.vector_stores.add_files("owner", store.id, [NewFile(file_ids[0], {"year": 2024})])
    await indexed(services, store.id)

    where = Comparison("year", "eq", 2024.0)
    answer = await services.search.search("owner", store.id, ["factura"], SearchOptions(filters=where), Urgency())
    await services.hand_over()
    await services.vector_stores.add_files("owner", store.id, [NewFile(file_id) for file_id in file_ids[1:]])
    told = services.health.degraded()
    await services.close()
    services = await start(**settings)
    await indexed(services, store.id)

    found = await services.search.search("owner", store.id, ["contrato"], SearchOptions(), Urgency())
    assert [file_ids[0]] == [hit.file.file_id for hit in answer.hits]
    assert file_ids[1] == found.hits[0].file.file_id
    assert 3 == len(found.hits)
    assert any("not indexed by this process" in sentence for sentence in told)
    assert not services.health.degraded()
    assert math.isclose(1.0, answer.hits[0].score, abs_tol=1.0)
    assert "sqlite" == services.system()["search"]["kind"]


@pytest.mark.slow
async def test_a_storage_that_cannot_be_opened_stops_nothing_else(start: Any, tiny: TinyModels, tmp_path: Path) -> None:
    """The service is ready and says so; stores are refused with what its operator is to do, and no path is told."""
    (tmp_path / STORAGE_DIR).write_text("a file, not a folder")
    services = await start(embedding_model=str(tiny.folder("bert")), state_dir=tmp_path, **QUICK)

    with pytest.raises(Unavailable, match="STATE_DIR") as caught:
        await services.vector_stores.create("owner")
    assert str(tmp_path) not in str(caught.value)
    assert any("STATE_DIR" in sentence for sentence in services.health.degraded())
    assert (await services.health.ready()).ready


@pytest.mark.slow
async def test_a_broken_storage_stops_nothing_else(start: Any, tiny: TinyModels, tmp_path: Path) -> None:
    """The service is ready and says so; stores are refused with how to recover."""
    (tmp_path / STORAGE_DIR).mkdir()
    (tmp_path / STORAGE_DIR / "search.db").write_bytes(b"no database" * 1000)
    services = await start(embedding_model=str(tiny.folder("bert")), state_dir=tmp_path, **QUICK)

    with pytest.raises(StorageCorrupt, match="backup"):
        await services.vector_stores.create("owner")
    assert any("the database is broken" in sentence for sentence in services.health.degraded())
    assert (await services.health.ready()).ready


def test_large_stores_are_scanned_where_the_models_run(tmp_path: Path) -> None:
    """On an accelerator, within the part of its memory that is kept for vectors; on a CPU by the processor."""
    card = with_vectors(Placement("cuda:0", 1, 1, 2, ("asked for",), memory_bytes=8 * 2**30), 2**40)
    device = device_vectors(card)
    report = search_storage(Settings(state_dir=tmp_path, search_memory_bytes=7), card).report()

    matrix = device.new_matrix(384)
    assert isinstance(matrix, DeviceMatrix)
    assert (384, "cuda:0") == (matrix.width, str(matrix._device))
    assert (bytes_for, 2**30) == (device.bytes_for, device.memory_bytes)
    assert (7, 2**30) == (report["memory_limit_bytes"], report["device_limit_bytes"])
    assert device_vectors(Placement("cpu", 1, 1, 1, ("asked for",), memory_bytes=2**30)) is None
