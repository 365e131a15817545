"""Memory that a large request took is the system's again once the service rests."""

import asyncio
import threading

import psutil
import pytest

from backend.device.memory.device_memory import trim_heap
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.text_work import TextWork
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S
from tests.tiny_models import tokenizer_of

MIB = 2**20
TEXTS = ["a " * 500_000 for _ in range(3)]  # 1.5 million tokens


@pytest.mark.alone
async def test_a_large_request_leaves_nothing_behind():
    """Its tokens take more than 100 MiB; without a trim four fifths stay, with it less than half."""
    trimmed = threading.Event()

    def trim() -> None:
        trim_heap()
        trimmed.set()

    tokenizer, process = tokenizer_of("minilm"), psutil.Process()
    text_work = TextWork(Telemetry(), idle_trim=IdleTrim(trim, 0.0))
    with text_work.admit(10_000):
        await text_work.windows(tokenizer, TEXTS[0][:10_000], 0)
    trim_heap()
    before_bytes = process.memory_info().rss
    with text_work.admit(sum(map(len, TEXTS))):
        windows = [await text_work.windows(tokenizer, text, 0) for text in TEXTS]
        taken_bytes = process.memory_info().rss - before_bytes
        del windows
    assert await asyncio.to_thread(trimmed.wait, TEST_TIMEOUT_S)
    text_work.close()

    assert taken_bytes > 100 * MIB
    assert process.memory_info().rss - before_bytes < taken_bytes / 2
