"""Large requests take a step each round of the event loop, and what is small gets through between them."""

import asyncio

from backend.lanes.loop_turns import loop_turn


async def _steps(taken: list[str], name: str, count: int) -> None:
    for _ in range(count):
        await loop_turn()
        taken.append(name)


async def test_one_step_each_round():
    """In order of arrival. What became ready meanwhile runs after each step, and not after all."""
    taken: list[str] = []
    large = [asyncio.create_task(_steps(taken, name, 2)) for name in "abc"]
    rounds: list[int] = []
    while not all(task.done() for task in large):
        await asyncio.sleep(0)
        rounds.append(len(taken))

    assert list("aabcbc") == taken  # the first one asks again before the others have asked
    assert max(after - before for before, after in zip([0, *rounds], rounds, strict=False)) == 1


async def test_a_caller_that_leaves_holds_nobody_up():
    taken: list[str] = []
    first, second, third = (asyncio.create_task(_steps(taken, name, 1)) for name in "abc")
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([first, second, third], timeout=5)

    assert ["a", "c"] == taken


def test_a_loop_that_ended_in_between():
    """The next loop's turns are its own."""
    taken: list[str] = []
    asyncio.run(_steps(taken, "a", 1))
    asyncio.run(asyncio.wait_for(_steps(taken, "b", 1), 5))

    assert ["a", "b"] == taken
