"""Memory is trimmed when no caller has been busy for a while."""

import asyncio
import threading

from backend.lanes.memory_keeper import IdleTrim
from backend.supervision import Supervisor
from backend.telemetry import Telemetry


async def test_trims_once_after_the_last_busy_caller():
    trimmed = threading.Event()
    on_main_thread: list[bool] = []

    def trim() -> None:
        on_main_thread.append(threading.current_thread() is threading.main_thread())
        trimmed.set()

    idle_trim = IdleTrim(trim, 0.0)
    with idle_trim.busy():
        with idle_trim.busy():
            pass
        await asyncio.sleep(0.02)
        assert [] == on_main_thread
    await asyncio.to_thread(trimmed.wait)

    assert [False] == on_main_thread


async def test_work_postpones_it():
    """A caller that comes before the time is up keeps the memory."""
    calls: list[int] = []
    idle_trim = IdleTrim(lambda: calls.append(1), 0.05)
    for _ in range(20):
        with idle_trim.busy():
            await asyncio.sleep(0.005)

    assert [] == calls


async def test_a_trim_that_fails_is_counted():
    """The next idle time trims again."""
    telemetry, called = Telemetry(), asyncio.Event()
    supervisor = Supervisor(telemetry)
    fails, calls = [KeyError("broken on purpose")], list[int]()
    loop = asyncio.get_running_loop()

    def trim() -> None:
        loop.call_soon_threadsafe(called.set)
        if fails:
            raise fails.pop()
        calls.append(1)

    idle_trim = IdleTrim(trim, 0.0, supervisor=supervisor)
    for _ in range(2):
        called.clear()
        with idle_trim.busy():
            pass
        await called.wait()
    while not (calls and telemetry.total("background_failures_total")):  # noqa: ASYNC110 - both threads are about to end
        await asyncio.sleep(0)

    assert ([1], 1) == (calls, telemetry.total("background_failures_total"))


async def test_what_was_added_is_released_before_the_heap_is_trimmed():
    """Memory that it frees goes back at once, not after the next work."""
    order: list[str] = []
    done = threading.Event()

    def trim() -> None:
        order.append("heap")
        done.set()

    idle_trim = IdleTrim(trim, 0.0)
    idle_trim.add(lambda: order.append("networks"))
    with idle_trim.busy():
        pass
    await asyncio.to_thread(done.wait)

    assert ["networks", "heap"] == order


async def test_what_is_costly_to_get_again_is_kept_longer():
    """Its memory goes back, too, once it is released."""
    order: list[str] = []
    trimmed = threading.Event()

    def trim() -> None:
        order.append("heap")
        trimmed.set()

    idle_trim = IdleTrim(trim, 0.0)
    idle_trim.add(lambda: order.append("networks"))
    idle_trim.add(lambda: order.append("model"), 3600.0)
    with idle_trim.busy():
        pass
    await asyncio.to_thread(trimmed.wait)
    at_first = list(order)
    idle_trim._run(3600.0)

    assert ["networks", "heap"] == at_first
    assert [*at_first, "model", "heap"] == order
