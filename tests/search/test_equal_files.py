"""Files with the same bytes that were added to one store several times."""

import threading
from typing import Any

import pytest

from backend.search import retrieval
from backend.search.filters import Comparison
from tests.search.test_retrieval import world_of  # noqa: F401 - a fixture

_COPY, _OTHERS = "La factura del alquiler", ["factura de la luz", "la factura del agua", "otra factura"]


@pytest.mark.parametrize("vector_weight", [0.0, 1.0])
async def test_they_are_one_hit(world_of, vector_weight: float) -> None:  # noqa: F811
    """It names the other files, and the distinct hits behind it are all there."""
    world = await world_of()
    for number in range(3):
        await world.add(f"copy-{number}", [_COPY])
    for number, text in enumerate(_OTHERS):
        await world.add(f"file-{number}", [text])

    answer = await world.search("factura alquiler", limit=2, vector_weight=vector_weight)
    all_hits = await world.search("factura alquiler", limit=9, vector_weight=vector_weight)

    assert _COPY == answer.hits[0].chunk.text
    assert {"copy-0", "copy-1", "copy-2"} == {answer.hits[0].file.file_id, *answer.hits[0].duplicates}
    assert (2, True) == (len(answer.hits), answer.has_more)
    assert {_COPY, *_OTHERS} == {hit.chunk.text for hit in all_hits.hits}
    assert (4, False) == (len(all_hits.hits), all_hits.has_more)
    assert [()] * 3 == [hit.duplicates for hit in all_hits.hits[1:]]


@pytest.mark.slow
async def test_more_copies_than_a_ranking_holds(world_of) -> None:  # noqa: F811
    """The rankings are made deeper: no distinct hit is left out."""
    world = await world_of()
    for number in range(120):
        await world.add(f"copy-{number}", [_COPY])
    for number, text in enumerate(_OTHERS):
        await world.add(f"file-{number}", [text])

    answer = await world.search("factura alquiler", limit=10)

    assert {_COPY, *_OTHERS} == {hit.chunk.text for hit in answer.hits}
    assert 119 == len(answer.hits[0].duplicates)


async def test_rankings_have_a_greatest_depth(
    world_of,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind copies without end there may be hits that were not looked at; the answer says so."""
    for name, value in (("_DEPTH", 2), ("_DEEPER", 2), ("_DEEPEST", 6)):
        monkeypatch.setattr(retrieval, name, value)
    world = await world_of()
    for number in range(20):
        await world.add(f"copy-{number}", [_COPY])
    asked = _watch_depths(monkeypatch, world.storage)

    answer = await world.search("factura alquiler", limit=2)
    fewer = await world.search("alquiler", limit=2, filters=Comparison("file_id", "eq", "copy-3"))

    assert {2, 4, 6} == asked
    assert 5 == len(answer.hits[0].duplicates)
    assert ["copies" in warning and "6" in warning for warning in answer.warnings] == [True]
    assert not any("copies" in warning for warning in fewer.warnings)


def _watch_depths(monkeypatch: pytest.MonkeyPatch, storage: Any) -> set[int]:
    """How many chunks are asked for from now on."""
    asked: set[int] = set()

    def watch(name: str, method: Any) -> None:
        async def watched(*arguments: Any) -> Any:
            asked.add(arguments[-1])
            return await method(*arguments)

        monkeypatch.setattr(storage, name, watched)

    for name in ("nearest", "matching"):
        watch(name, getattr(storage, name))
    return asked


@pytest.mark.parametrize("most", [0, 1_000])
async def test_many_chunks_are_joined_beside_the_event_loop(
    world_of,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    """51,200 of them would hold it up for 0.16 s."""
    monkeypatch.setattr(retrieval, "INLINE_RANKED", most)
    threads: list[threading.Thread] = []

    def watch(name: str, function: Any) -> None:
        def noting(*arguments: Any) -> Any:
            threads.append(threading.current_thread())
            return function(*arguments)

        monkeypatch.setattr(retrieval, name, noting)

    watch("fuse", retrieval.fuse)
    watch("without_equal", retrieval.without_equal)
    world = await world_of()
    await world.add("file-1", _OTHERS)

    await world.search("factura")

    assert 2 == len(threads)
    assert [most > 0] * 2 == [thread is threading.main_thread() for thread in threads]


async def test_a_filter_leaves_copies_out(world_of) -> None:  # noqa: F811
    """What is filtered out is not named."""
    world = await world_of()
    for number in range(3):
        await world.add(f"copy-{number}", [_COPY], attributes={"n": float(number)})

    answer = await world.search("alquiler", filters=Comparison("n", "gte", 1.0))

    assert {"copy-1", "copy-2"} == {answer.hits[0].file.file_id, *answer.hits[0].duplicates}
    assert 1 == len(answer.hits)
