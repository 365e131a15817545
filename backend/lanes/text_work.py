"""Admits requests by the characters of their texts, and works on texts beside the event loop, a slice at a time.

Texts are bounded before anything reads them: ``LIMIT_QUEUE_TOKENS`` counts tokens, which are known only afterwards.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from backend.abandoned import Abandoned
from backend.errors import Overloaded, TooLarge
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.work_queue import Admission, Throughput, admit, retry_after_s
from backend.models.text_slices import SLICE_CHARS
from backend.models.tokenizer import TextTokenizer, TokenArrays, Windows, joined
from backend.telemetry import Telemetry

# Below this the tokenizer is faster than a hop to another thread and back (30 us a sentence, about 90 us the hop).
INLINE_CHARS = 4_000
_THREADS = 2  # for slices, unless said; the tokenizer works outside the interpreter lock
# Threads for work in one piece on texts of at most so many characters. All share the interpreter's lock: a thread more
# makes none faster, and the event loop wait for one more (eight took 0.3 to 1.4 s). A page passes by megabytes.
_LONG_THREADS = {4_000: 2, 26_000: 1, 196_000: 1, sys.maxsize: 1}
_TRIM_CHARS = 50_000  # of one request; what more of them leave behind is worth a trim: 10 MB and more
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_UNCOUNTED = nullcontext()


@dataclass(frozen=True, slots=True)
class TextLimits:
    """How many characters may be worked on."""

    request_chars: int = 16_000_000  # LIMIT_REQUEST_CHARS
    queue_chars: int = 32_000_000  # LIMIT_QUEUE_CHARS: of all requests together


class TokenBudget:
    """Counts the tokens of a request while they are read, and stops at the first slice that is too much.

    Args:
        what, setting, advice: for the error.
    """

    def __init__(self, limit_tokens: int, what: str, setting: str, advice: str) -> None:
        self._limit_tokens, self._what, self._setting, self._advice = limit_tokens, what, setting, advice
        self.tokens = 0

    def add(self, tokens: int) -> None:
        """Count some more. Raises: TooLarge over the limit, with the tokens counted so far."""
        self.tokens += tokens
        if self.tokens > self._limit_tokens:
            raise TooLarge(self._what, self.tokens, self._limit_tokens, self._setting, advice=self._advice)


class TextWork:
    """The budget of characters of all requests, and the threads that tokenise. Belongs to the loop's thread.

    Tokenising comes in slices, each a job of its own: requests take turns on the threads, and a request whose caller
    left, or whose deadline has passed, costs at most the slice that runs. What cannot be cut checks whether it is still
    wanted.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        limits: TextLimits | None = None,
        *,
        threads: int = _THREADS,
        idle_trim: IdleTrim | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``threads``: tokenise slices at the same time."""
        self._limits, self._clock = limits or TextLimits(), clock
        self.idle_trim = idle_trim or IdleTrim()
        self.threads = threads
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="tokenize")
        self._long_threads = {
            most: ThreadPoolExecutor(count, thread_name_prefix="text") for most, count in _LONG_THREADS.items()
        }
        self._chars, self._since_s = 0, 0.0  # admitted now; when a request last came or went
        self._owners = Counter[str]()  # characters admitted now
        self._throughput = Throughput()
        self._shed = telemetry.texts_shed_total
        self._tell: Callable[[int], None] = lambda _characters: None
        self._elsewhere: Callable[[], int] = lambda: 0
        telemetry.text_characters.set_function(lambda: self._chars)

    def share(self, tell: Callable[[int], None], elsewhere: Callable[[], int]) -> None:
        """Count the characters of all processes of the service: ``tell`` them ours, and what is held ``elsewhere``."""
        self._tell, self._elsewhere = tell, elsewhere

    def admit(self, characters: int, owner: str = "") -> AbstractContextManager[None]:
        """Hold so many characters of the budget while the block runs; short texts are not counted, and never refused.

        Args:
            owner: whose share of the budget it is, as for `admit`; unset: there are no shares.

        Raises: TooLarge for more than one request may have; Overloaded with the time to wait while too many are held.
        """
        return self._hold(characters, owner) if characters > INLINE_CHARS else _UNCOUNTED

    async def run(self, work: Callable[[], _Result], characters: int) -> _Result:
        """Process so many characters: inline where it is short, on a thread where it would block the loop."""
        if characters <= INLINE_CHARS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def run_long(self, work: Callable[[], _Result], characters: int = 0, *, inline: bool = False) -> _Result:
        """Work in one piece that may take seconds, on a thread: once its caller is gone, `require_wanted` ends it.

        Texts of about the same length take turns; short ones pass long ones by.

        Args:
            inline: process short texts at once, as `run` does.
        """
        if inline and characters <= INLINE_CHARS:
            return work()
        abandoned = Abandoned()
        threads = next(threads for most, threads in self._long_threads.items() if characters <= most)
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, abandoned.run, work)
        except asyncio.CancelledError:
            abandoned.set()
            raise

    async def run_slices(
        self, work: Callable[[Sequence[_Item]], Sequence[_Result]], items: Sequence[_Item], sizes: Sequence[int]
    ) -> list[_Result]:
        """``work`` on all items, in their order, slice by slice; ``sizes``: characters of each item."""
        if sum(sizes) <= INLINE_CHARS:
            return list(work(items))
        results: list[_Result] = []
        for start, stop in slices_of(sizes):
            part = items[start:stop]
            results += await self.run(partial(work, part), SLICE_CHARS)
        return results

    async def read(self, tokenizer: TextTokenizer, text: str, budget: TokenBudget | None = None) -> TokenArrays:
        """The tokens of a text of any length, slice by slice. Raises: what ``budget`` raises."""
        count = None if budget is None else budget.add
        slices = tokenizer.slices(text)
        return joined(
            [await self.run(partial(tokenizer.read, text, *each, count), each[1] - each[0]) for each in slices]
        )

    async def windows(
        self, tokenizer: TextTokenizer, text: str, overlap: int, budget: TokenBudget | None = None
    ) -> Windows:
        """A text in windows that fit the model, as ``TextTokenizer.windows`` makes them; ``budget`` as for ``read``."""
        tokens = await self.read(tokenizer, text, budget)
        return await self.run_long(partial(tokenizer.cut, text, tokens, overlap), len(text), inline=True)

    def close(self) -> None:
        """End the threads."""
        for threads in (*self._long_threads.values(), self._threads):
            threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _hold(self, characters: int, owner: str) -> Iterator[None]:
        self._check(characters, owner)
        self._change(characters)
        self._owners[owner] += characters
        try:
            with self.idle_trim.busy() if characters > _TRIM_CHARS else _UNCOUNTED:
                yield
        finally:
            self._change(-characters)
            self._owners[owner] -= characters
            self._owners += Counter()  # without those that hold nothing

    def _check(self, characters: int, owner: str) -> None:
        limits, advice = self._limits, "Send fewer or shorter texts in one request."
        if characters > limits.request_chars:
            raise TooLarge(
                "characters of the request", characters, limits.request_chars, "LIMIT_REQUEST_CHARS", advice=advice
            )
        held = self._chars + self._elsewhere()
        own = self._owners[owner] if owner else None
        admission = admit(held, characters, limits.queue_chars, own)
        if admission is Admission.NEVER:
            raise TooLarge(
                "characters of the request", characters, limits.queue_chars, "LIMIT_QUEUE_CHARS", advice=advice
            )
        if admission is Admission.FULL:
            self._shed.inc()
            wait_s = retry_after_s(held, self._throughput.per_s)
            raise Overloaded(
                held,
                limits.queue_chars,
                wait_s,
                f"{held} characters of other requests are being worked on, with these {characters} they are "
                f"over the limit of {limits.queue_chars} (LIMIT_QUEUE_CHARS), half of which one key may have while "
                f"others wait; try again in {wait_s:.1f} s",
            )

    def _change(self, characters: int) -> None:
        """Count characters that came, or those that went; the rate is that of what went while any were here."""
        now_s = self._clock()
        if self._chars:
            self._throughput = self._throughput.after(max(0, -characters), now_s - self._since_s)
        self._chars += characters
        self._tell(self._chars)
        self._since_s = now_s


def slices_of(sizes: Sequence[int], slice_chars: int = SLICE_CHARS) -> Iterator[tuple[int, int]]:
    """First and past-last index of runs of items that end once they hold ``slice_chars``."""
    start = held = 0
    for index, size in enumerate(sizes, 1):
        held += size
        if held >= slice_chars or index == len(sizes):
            yield start, index
            start, held = index, 0
