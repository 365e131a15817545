"""Messages between two processes: order, size, room, and the other side's death."""

import asyncio
import mmap
import os
import socket
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from backend.processes.channel import Channel, Kind, Message, RingReader, RingWriter, create_memory, map_memory

RING = 64 * 1024
BLOCK = RING // 8


@dataclass
class Side:
    """One end, and what arrived there."""

    channel: Channel = field(init=False)
    messages: list[tuple[Kind, bytes, bytes]] = field(default_factory=list)
    wanted: int = 1 << 30
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def keep(self, message: Message) -> None:
        self.messages.append((message.kind, message.meta, bytes(message.block)))
        if len(self.messages) >= self.wanted:
            self.reached.set()

    async def wait_for(self, count: int) -> list[tuple[Kind, bytes, bytes]]:
        self.wanted = count
        if len(self.messages) >= count:
            return self.messages
        async with asyncio.timeout(10):
            await self.reached.wait()
        return self.messages


Pair = tuple[Side, Side]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Both ends in this process."""
    sockets = socket.socketpair()
    descriptors = [create_memory(f"test-{number}", RING) for number in range(2)]
    memories = [map_memory(descriptor) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    sides = (side(sockets[0], memories[0], memories[1]), side(sockets[1], memories[1], memories[0]))
    yield sides
    for one in sides:
        one.channel.close()


def side(sock: socket.socket, written: memoryview, read: memoryview) -> Side:
    """One started end."""
    end = Side()
    end.channel = Channel(sock, RingWriter(written), RingReader(read), on_message=end.keep, on_close=end.closed.set)
    end.channel.start(asyncio.get_running_loop())
    return end


@pytest.fixture
def arrays() -> np.random.Generator:
    return np.random.default_rng(0)


async def test_messages_arrive_in_order_with_their_arrays(pair: Pair, arrays: np.random.Generator) -> None:
    """Thousands of messages through a small ring: each is as it was sent, in the order of sending."""
    here, there = pair
    sent = [arrays.bytes(int(size)) for size in arrays.integers(0, BLOCK, 3000)]
    for number, block in enumerate(sent):
        here.channel.send(Kind.SUBMIT, str(number).encode(), [block])
    received = await there.wait_for(len(sent))

    assert [(Kind.SUBMIT, str(number).encode(), block) for number, block in enumerate(sent)] == received


async def test_a_message_larger_than_the_ring_arrives_whole(pair: Pair, arrays: np.random.Generator) -> None:
    """Fragments: several rings' worth of bytes in one message, between small ones."""
    here, there = pair
    large = arrays.bytes(5 * RING + 3)
    here.channel.send(Kind.SUBMIT, b"before", [b"a"])
    here.channel.send(Kind.RESULTS, b"large", [large[:7], large[7:]])
    here.channel.send(Kind.CANCEL, b"after", [])
    received = await there.wait_for(3)

    assert [(Kind.SUBMIT, b"before", b"a"), (Kind.RESULTS, b"large", large), (Kind.CANCEL, b"after", b"")] == received


async def test_both_ways_at_once(pair: Pair, arrays: np.random.Generator) -> None:
    """Each side answers what it gets; neither waits for the other."""
    here, there = pair
    blocks = [arrays.bytes(BLOCK) for _ in range(200)]
    for block in blocks:
        here.channel.send(Kind.SUBMIT, b"", [block])
        there.channel.send(Kind.RESULTS, b"", [block[::-1]])
    to_there, to_here = await there.wait_for(200), await here.wait_for(200)

    assert blocks == [block for _, _, block in to_there]
    assert [block[::-1] for block in blocks] == [block for _, _, block in to_here]


async def test_steps_of_the_loop_share_a_wake_up(pair: Pair) -> None:
    """Records sent in one step of the event loop are one send, so one wake-up of the other side."""
    here, there = pair
    wake_ups: list[int] = []
    receive = there.channel._receive
    asyncio.get_running_loop().remove_reader(there.channel._socket.fileno())
    asyncio.get_running_loop().add_reader(there.channel._socket.fileno(), lambda: (wake_ups.append(1), receive()))
    for _ in range(50):
        here.channel.send(Kind.SUBMIT, b"meta", [b"block"])
    await there.wait_for(50)

    assert 1 == len(wake_ups)


async def test_the_death_of_the_other_side_is_told_once(pair: Pair) -> None:
    """EOF ends the channel, and sending is harmless afterwards."""
    here, there = pair
    there.channel.close()
    async with asyncio.timeout(10):
        await here.closed.wait()
    here.channel.send(Kind.SUBMIT, b"", [b"late"])

    assert here.channel.is_closed
    assert not there.closed.is_set()


@pytest.mark.parametrize("lets_go", ["close", "its-death"])
async def test_an_end_that_was_closed_holds_no_memory(lets_go: str) -> None:
    """Each HTTP worker that was replaced left two open files and 64 MiB: the collector leaves frozen objects alone."""
    here, there = socket.socketpair()
    memories = [mmap.mmap(-1, RING) for _ in range(2)]
    alive = [weakref.ref(memory) for memory in memories]
    end = side(here, memoryview(memories.pop()), memoryview(memories.pop()))
    there.close()
    if lets_go == "close":
        end.channel.close()
    else:
        async with asyncio.timeout(10):
            await end.closed.wait()

    assert [None, None] == [memory() for memory in alive]


async def test_a_message_that_cannot_be_taken_closes_the_channel(pair: Pair) -> None:
    """Those before it are not taken twice, those after it not at all, and both sides are told."""
    here, there = pair
    taken: list[bytes] = []

    def take(message: Message) -> None:
        taken.append(message.meta)
        if message.meta == b"bad":
            raise KeyError("bad")

    there.channel._on_message = take
    for meta in (b"one", b"bad", b"two"):
        here.channel.send(Kind.SUBMIT, meta, [b"block"])
    async with asyncio.timeout(10):
        await there.closed.wait()
        await here.closed.wait()

    assert [b"one", b"bad"] == taken
