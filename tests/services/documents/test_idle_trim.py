"""Memory is trimmed when no caller has been busy for a while."""

from __future__ import annotations

import asyncio
import threading

from backend.services.documents.idle_trim import IdleTrim


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
