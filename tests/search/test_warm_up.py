"""What is computed before the first search of a process."""

from typing import Any

from backend.errors import Overloaded, Unavailable
from backend.search.document_chunks import PASSAGE, QUERY
from backend.search.records import StoredUsage
from backend.search.upkeep import WarmUp
from backend.text.neutral_vectors import NeutralVectors
from tests.search.search_stack import SearchStack


class _Storage:
    """Tells how much it holds, or that it is away."""

    def __init__(self, chunks: int | None) -> None:
        self._chunks = chunks

    async def totals(self) -> StoredUsage:
        if self._chunks is None:
            raise Unavailable("away")
        return StoredUsage(1, 1, self._chunks, 1)


class _Neutral:
    """Counts what is asked for; fails so often first."""

    def __init__(self, failures: int = 0) -> None:
        self.asked: list[Any] = []
        self._failures = failures

    async def unrelated_cosine(self, model: Any, first: Any, second: Any, urgency: Any) -> float:
        self.asked.append((model, first, second))
        if len(self.asked) <= self._failures:
            raise Overloaded(1, 1, 1.0)
        return 0.5


def _warm_up(search: SearchStack, storage: Any, neutral: Any) -> WarmUp:
    return WarmUp(storage, neutral, search.stack.catalog, search.supervisor)


async def _settled(warm_up: WarmUp) -> None:
    """Return once it has nothing to do."""
    task = None
    while task is not warm_up._task:
        task = warm_up._task
        if task is not None:
            await task


async def test_a_start_with_chunks_warms_up(search: SearchStack) -> None:
    """Without any, or with a storage that is away, nothing is computed."""
    asked = {}
    for chunks in (3, 0, None):
        neutral = _Neutral()
        warm_up = _warm_up(search, _Storage(chunks), neutral)
        warm_up.start()
        await _settled(warm_up)
        asked[chunks] = len(neutral.asked)

    assert {3: 1, 0: 0, None: 0} == asked


async def test_the_first_file_warms_up_once(search: SearchStack) -> None:
    """For the model that serves, with the prompts of queries and passages; again where it failed."""
    neutral, failing = _Neutral(), _Neutral(failures=1)
    for one in (neutral, failing):
        warm_up = _warm_up(search, _Storage(0), one)
        for _ in range(3):
            warm_up.wake()
            await _settled(warm_up)
        await warm_up.close()

    assert [(search.stack.catalog.embedding(), QUERY, PASSAGE)] == neutral.asked
    assert 2 == len(failing.asked)


async def test_a_search_afterwards_embeds_its_query_only(search: SearchStack) -> None:
    """With the neutral vectors that searches use."""
    neutral = NeutralVectors(search.stack.service)
    warm_up = _warm_up(search, _Storage(1), neutral)
    warm_up.start()
    await _settled(warm_up)
    model = search.stack.catalog.embedding()

    assert {QUERY, PASSAGE} == {
        options._replace(dimensions=None, normalize=True, truncate=QUERY.truncate) for options in neutral._vectors
    }
    assert model is neutral._model
