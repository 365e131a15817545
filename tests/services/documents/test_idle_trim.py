"""What is done when nobody is busy."""

from __future__ import annotations

import asyncio
import threading

from backend.services.documents.idle_trim import Rest


async def test_rest():
    """Once, on another thread, after the last of those who were busy at a time."""
    acted = threading.Event()
    on: list[bool] = []

    def act() -> None:
        on.append(threading.current_thread() is threading.main_thread())
        acted.set()

    rest = Rest(act, 0.0)
    with rest.busy():
        with rest.busy():
            pass
        await asyncio.sleep(0.02)
        assert [] == on
    await asyncio.to_thread(acted.wait)

    assert [False] == on


async def test_work_puts_it_off():
    """What begins in time keeps the memory."""
    acted: list[int] = []
    rest = Rest(lambda: acted.append(1), 0.05)
    for _ in range(20):
        with rest.busy():
            await asyncio.sleep(0.005)

    assert [] == acted
