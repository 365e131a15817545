"""The budget of characters, and work on long texts in slices that can be given up."""

import asyncio
import threading
from typing import Any

import pytest

from backend.abandoned import require_wanted, run_to_end
from backend.errors import CallerGone, Overloaded, TooLarge
from backend.lanes.text_work import INLINE_CHARS, TextLimits, TextWork, TokenBudget, slices_of
from backend.models.tokenizer import TextTokenizer
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, ManualClock
from tests.tiny_models import tokenizer_of

LIMITS = TextLimits(request_chars=50_000, queue_chars=100_000)
TEXT = "la factura de marzo " * 20_000  # seven slices


@pytest.fixture
async def text_work(telemetry: Telemetry, clock: ManualClock):
    work = TextWork(telemetry, LIMITS, clock=clock)
    yield work
    work.close()


class CountingTokenizer:
    """The bundled one; counts the slices it reads, and stops before each until it may go on."""

    def __init__(self) -> None:
        self.reading, self.go_on, self.count = threading.Event(), threading.Event(), 0
        self._tokenizer: TextTokenizer = tokenizer_of("minilm")
        self.slices = self._tokenizer.slices

    def read(self, *arguments: Any):
        self.count += 1
        self.reading.set()
        assert self.go_on.wait(TEST_TIMEOUT_S)
        return self._tokenizer.read(*arguments)


def held(telemetry: Telemetry) -> float:
    return telemetry.registry.get_sample_value("financia_text_characters") or 0.0


async def test_characters_are_held_until_the_work_ends(text_work: TextWork, telemetry: Telemetry):
    """Also when it fails; short texts are not counted."""
    with text_work.admit(30_000), text_work.admit(20_000), text_work.admit(INLINE_CHARS):
        assert 50_000 == held(telemetry)
    with pytest.raises(ValueError, match="broken"), text_work.admit(40_000):
        raise ValueError("broken")

    assert 0 == held(telemetry)


async def test_one_request_over_the_budget_of_all_is_too_large(telemetry: Telemetry):
    """Waiting would not help it."""
    text_work = TextWork(telemetry, TextLimits(request_chars=200_000, queue_chars=100_000))
    with pytest.raises(TooLarge, match="LIMIT_QUEUE_CHARS"), text_work.admit(150_000):
        pass
    text_work.close()


async def test_a_full_budget_refuses_long_texts_for_as_long_as_it_takes(
    text_work: TextWork, telemetry: Telemetry, clock: ManualClock
):
    """Retry-After is what is held over the measured rate; a short text still comes in."""
    with text_work.admit(40_000):
        clock.advance(4.0)  # 10,000 characters a second
    with text_work.admit(45_000), text_work.admit(45_000):
        with pytest.raises(Overloaded, match=r"90000 characters .* with these 20000 .*LIMIT_QUEUE_CHARS") as refused:
            text_work.admit(20_000).__enter__()
        with text_work.admit(INLINE_CHARS):
            pass

    assert 9.0 == refused.value.retry_after_s
    assert 1 == telemetry.registry.get_sample_value("financia_texts_shed_total")
    with text_work.admit(20_000):
        assert 20_000 == held(telemetry)


async def test_one_key_may_have_half_of_the_budget_while_others_wait(text_work: TextWork):
    """What one holds refuses its own further texts, and no short one of others, however much it is."""
    with text_work.admit(40_000, "ana"):
        with (
            text_work.admit(50_000, "eva"),
            pytest.raises(Overloaded, match=r"90000 characters .* half of which one key may have"),
        ):
            text_work.admit(11_000, "ana").__enter__()
        with text_work.admit(50_000, "ana"), text_work.admit(10_000, "ana"), text_work.admit(6_000, "eva"):
            pass


async def test_a_caller_that_leaves_ends_the_reading_of_its_text(text_work: TextWork):
    """After the slice that is being read: before, a megabyte was read to its end whoever waited."""
    tokenizer = CountingTokenizer()
    reading = asyncio.create_task(text_work.read(tokenizer, TEXT))
    assert await asyncio.to_thread(tokenizer.reading.wait, TEST_TIMEOUT_S)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    tokenizer.go_on.set()
    await text_work.run(lambda: None, INLINE_CHARS + 1)  # its turn comes after whatever was submitted before

    assert 1 == tokenizer.count


async def test_requests_take_turns(text_work: TextWork):
    """Two texts of many slices hold both threads; a third request waits for a slice of them, not for all."""
    slow = CountingTokenizer()
    long = [asyncio.create_task(text_work.read(slow, TEXT)) for _ in range(2)]
    assert await asyncio.to_thread(slow.reading.wait, TEST_TIMEOUT_S)
    seen = asyncio.create_task(text_work.run(lambda: slow.count, INLINE_CHARS + 1))
    await asyncio.sleep(0)
    slow.go_on.set()

    assert await seen < 14
    assert 14 == 2 * len(list(slow.slices(TEXT)))
    await asyncio.gather(*long)


async def test_tokens_are_counted_while_they_are_read(text_work: TextWork):
    """Reading stops at the slice that is too much."""
    tokenizer = CountingTokenizer()
    tokenizer.go_on.set()
    budget = TokenBudget(20_000, "tokens of the answer", "LIMIT_TOKENIZE_TOKENS", "")
    with pytest.raises(TooLarge, match=r"answer: \d+ is over the limit of 20000 \(LIMIT_TOKENIZE_TOKENS"):
        await text_work.read(tokenizer, TEXT, budget)

    assert 2 == tokenizer.count


@pytest.mark.slow
async def test_slices_have_the_tokens_of_the_text(text_work: TextWork):
    tokenizer = tokenizer_of("minilm")
    tokens = await text_work.read(tokenizer, TEXT)
    whole = tokenizer.read(TEXT, 0, len(TEXT))

    assert whole.ids.tolist() == tokens.ids.tolist()
    assert whole.offsets.tolist() == tokens.offsets.tolist()


async def test_long_work_ends_once_its_caller_is_gone(text_work: TextWork):
    """What it asks raises then, and not before."""
    started, gone, ended = threading.Event(), threading.Event(), list[str]()
    finished = threading.Event()

    def work() -> None:
        require_wanted()
        started.set()
        assert gone.wait(TEST_TIMEOUT_S)
        try:
            require_wanted()
        except CallerGone as error:
            ended.append(str(error))
        finished.set()

    running = asyncio.create_task(text_work.run_long(work))
    assert await asyncio.to_thread(started.wait, TEST_TIMEOUT_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gone.set()
    assert await asyncio.to_thread(finished.wait, TEST_TIMEOUT_S)

    assert ["nobody waits for this answer any more"] == ended


async def test_one_text_of_a_length_is_worked_on_at_a_time(text_work: TextWork):
    """Eight threads that read a megabyte each made the event loop wait for eight turns; a page passes them by."""
    gate, running, most = threading.Event(), list[int](), list[int]()

    def work() -> None:
        running.append(1)
        most.append(len(running))
        assert gate.wait(TEST_TIMEOUT_S)
        running.pop()

    long = [asyncio.create_task(text_work.run_long(work, 1_000_000)) for _ in range(8)]

    assert "a page" == await asyncio.wait_for(text_work.run_long(lambda: "a page", 5_000), TEST_TIMEOUT_S)

    gate.set()
    await asyncio.gather(*long)
    assert [1] * 8 == most


async def test_run_to_end_returns_what_the_work_does():
    assert 7 == await run_to_end(lambda: 7)
    with pytest.raises(ZeroDivisionError):
        await run_to_end(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []), ([1], [(0, 1)]), ([4, 4, 4], [(0, 3)]), ([9, 1, 20, 1], [(0, 2), (2, 3), (3, 4)]),
        ([0, 0], [(0, 2)]),
    ],
)  # fmt: skip
def test_slices_of_items(sizes, expected):
    """Runs of items that end once they hold ten characters; an item is never cut."""
    assert expected == list(slices_of(sizes, 10))
