"""Messages between two processes of the service: small records on a socket, arrays in two rings of shared memory.

The socket is three things at once: the wake-up of the other side, the order of memory (what a record tells of was
written before it), and the notice that the other side died. Records of one step of the event loop go in one send.

A ring of bytes in memory that two processes share: one writes blocks, the other reads them in the same order.

Nothing here waits and nothing is a lock: where a block lies travels in a message, and what was read comes back in one.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

from backend.errors import SetupError

ALIGNMENT = 64  # bytes; a cache line, so that two blocks never share one
RING_BYTES = 32 * 2**20  # each way and worker; pages are taken from the system as they are first written
_log = logging.getLogger(__name__)
_HEADER = struct.Struct("<BxxxIQQQ")  # kind, bytes of meta, position and bytes of the block, what was read here
_RECEIVE_BYTES = 256 * 1024
_ACK_PARTS = 4  # what was read is told at the latest when a quarter of the ring was


def create_memory(name: str, size: int) -> int:
    """A file descriptor of so many bytes of shared memory. Raises: SetupError where the system has none to give."""
    if not hasattr(os, "memfd_create"):
        raise SetupError("SERVER_PROCESSES over 1 needs Linux (memfd_create); set it to 1")
    try:
        descriptor = os.memfd_create(name)
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise SetupError(
            f"no shared memory of {size} bytes for the processes ({error}); set SERVER_PROCESSES to 1"
        ) from error
    return descriptor


def map_memory(descriptor: int) -> memoryview:
    """The bytes behind a descriptor, readable and writable; they stay mapped as long as a view of them lives."""
    return memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size))


class RingWriter:
    """The writing side. A position counts all bytes since the start; modulo the ring's size it is an offset."""

    def __init__(self, memory: memoryview) -> None:
        self._memory, self._size = memory, len(memory)
        self._next = self._freed = 0

    @property
    def block_bytes(self) -> int:
        """The largest block to ask for: four of them always fit, however they lie."""
        return self._size // 8

    def reserve(self, size: int) -> int | None:
        """The position of a new block of ``size`` bytes; None while the reader has not freed enough."""
        start = self._next
        if (offset := start % self._size) + size > self._size:
            start += self._size - offset  # a block never wraps around
        end = start + _aligned(size)
        if end - self._freed > self._size:
            return None
        self._next = end
        return start

    def view(self, position: int, size: int) -> memoryview:
        """The bytes of a block, to be written."""
        offset = position % self._size
        return self._memory[offset : offset + size]

    def free_to(self, position: int) -> None:
        """The reader is done with everything before ``position``."""
        self._freed = max(self._freed, position)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory = memoryview(b"")


class RingReader:
    """The reading side."""

    def __init__(self, memory: memoryview) -> None:
        self._memory, self._size = memory, len(memory)
        self.read_to = 0  # all blocks before it were read; to be told to the writer

    def view(self, position: int, size: int) -> memoryview:
        """The bytes of a block; valid until ``done``."""
        offset = position % self._size
        return self._memory[offset : offset + size]

    def done(self, position: int, size: int) -> None:
        """The block was copied or used, and may be overwritten."""
        self.read_to = position + _aligned(size)

    def close(self) -> None:
        """Let go of the memory; a view that still lives keeps it."""
        self._memory = memoryview(b"")


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Kind(IntEnum):
    """What a record is."""

    READ = 0  # only tells how far its sender has read
    FRAGMENT = 1  # a part of the block of a message that follows
    SUBMIT = 2
    RESULTS = 3
    ERRORS = 4
    CANCEL = 5
    PROMOTE = 6
    CONTROL = 7  # a pickled record of work_messages: starts, stops, models, metrics


_KINDS = tuple(Kind)


class Message(NamedTuple):
    """What was sent; ``block`` is valid during the call only."""

    kind: Kind
    meta: bytes
    block: memoryview


Buffers = Sequence[Any]  # contiguous arrays or bytes, one behind the other in the block


class Channel:
    """One end of it. Belongs to the event loop's thread.

    Messages arrive in the order they were sent in. ``send`` never waits: what the ring or the socket has no room for
    stays in an outbox, which holds on to the arrays.

    Args:
        sock: a connected stream socket.
        on_message: called for each message.
        on_close: called once, when the other side is gone, or when ``on_message`` raised.
    """

    def __init__(
        self,
        sock: socket.socket,
        writer: RingWriter,
        reader: RingReader,
        *,
        on_message: Callable[[Message], None],
        on_close: Callable[[], None],
    ) -> None:
        self._socket, self._writer, self._reader = sock, writer, reader
        self._on_message, self._on_close = on_message, on_close
        self._ack_bytes = writer.block_bytes * 8 // _ACK_PARTS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outbox: deque[tuple[Kind, bytes, memoryview]] = deque()
        self._unsent = bytearray()
        self._unparsed = bytearray()
        self._fragments: list[bytes] = []
        self._acked = 0  # what the other side knows of ``reader.read_to``
        self._flush_set = self._waits_for_socket = False
        self.is_closed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive from now on."""
        self._loop = loop
        self._socket.setblocking(False)
        loop.add_reader(self._socket.fileno(), self._receive)

    @property
    def waiting(self) -> int:
        """Messages that the ring has no room for yet."""
        return len(self._outbox)

    def send(self, kind: Kind, meta: bytes = b"", buffers: Buffers = ()) -> None:
        """Send a message; after the other side has gone, nothing happens."""
        if self.is_closed:
            return
        views = [view for buffer in buffers if (view := memoryview(buffer).cast("B")).nbytes]
        size = sum(view.nbytes for view in views)
        if size > self._writer.block_bytes:
            self._send_large(kind, meta, views)
        elif self._outbox or not self._write(kind, meta, views, size):
            self._outbox.append((kind, meta, memoryview(b"".join(views))))
        self._flush_soon()

    def close(self) -> None:
        """Send what the socket takes now, and let go of it; ``on_close`` is not called."""
        if self.is_closed:
            return
        self._flush()
        self._shut()

    def _send_large(self, kind: Kind, meta: bytes, views: Sequence[memoryview]) -> None:
        """As fragments, each of which waits for room alone."""
        whole, most = memoryview(b"".join(views)), self._writer.block_bytes
        parts = [whole[start : start + most] for start in range(0, len(whole), most)]
        for part in parts[:-1]:
            self._outbox.append((Kind.FRAGMENT, b"", part))
        self._outbox.append((kind, meta, parts[-1]))
        self._empty_outbox()

    def _write(self, kind: Kind, meta: bytes, views: Sequence[memoryview], size: int) -> bool:
        position = self._writer.reserve(size) if size else 0
        if position is None:
            return False
        if size:
            block, start = self._writer.view(position, size), 0
            for view in views:
                block[start : start + view.nbytes] = view
                start += view.nbytes
        self._acked = self._reader.read_to
        self._unsent += _HEADER.pack(kind, len(meta), position, size, self._acked)
        self._unsent += meta
        return True

    def _empty_outbox(self) -> None:
        while self._outbox:
            kind, meta, block = self._outbox[0]
            if not self._write(kind, meta, [block] if block.nbytes else [], block.nbytes):
                return
            self._outbox.popleft()

    # The socket.

    def _flush_soon(self) -> None:
        if self._loop is not None and not self._flush_set and not self._waits_for_socket:
            self._flush_set = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_set = False
        if self.is_closed:
            return
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent)
                del self._unsent[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._lose()
            return
        self._wait_for_socket(wait=bool(self._unsent))

    def _wait_for_socket(self, *, wait: bool) -> None:
        if self._loop is None or wait == self._waits_for_socket:
            return
        self._waits_for_socket = wait
        if wait:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        try:
            received = self._socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        if not received:
            self._lose()
            return
        self._unparsed += received
        try:
            self._parse()
        except Exception:  # noqa: BLE001 - a border: what follows such a message cannot be taken for granted
            _log.exception("a message between processes could not be taken; their channel is closed")
            self._lose()
            return
        self._empty_outbox()
        if self._reader.read_to - self._acked > self._ack_bytes:
            self._write(Kind.READ, b"", (), 0)  # past the outbox: the other side may wait for it with its own
        if self._unsent:
            self._flush_soon()

    def _parse(self) -> None:
        start, unparsed, last = 0, bytes(self._unparsed), len(self._unparsed) - _HEADER.size
        while start <= last and not self.is_closed:
            kind, meta_bytes, position, size, read_to = _HEADER.unpack_from(unparsed, start)
            end = start + _HEADER.size + meta_bytes
            if len(unparsed) < end:
                break
            self._writer.free_to(read_to)
            self._take(_KINDS[kind], unparsed[start + _HEADER.size : end], position, size)
            start = end
        del self._unparsed[:start]

    def _take(self, kind: Kind, meta: bytes, position: int, size: int) -> None:
        block = self._reader.view(position, size)
        if kind is Kind.FRAGMENT:
            self._fragments.append(bytes(block))
        elif kind is not Kind.READ:
            if self._fragments:
                block = memoryview(b"".join([*self._fragments, block]))
                self._fragments = []
            self._on_message(Message(kind, meta, block))
        if size:
            self._reader.done(position, size)

    def _lose(self) -> None:
        if not self.is_closed:
            self._shut()
            self._on_close()

    def _shut(self) -> None:
        self.is_closed = True
        self._outbox.clear()
        if self._loop is not None:
            with suppress(ValueError, RuntimeError):  # a loop that has closed
                self._loop.remove_reader(self._socket.fileno())
                self._wait_for_socket(wait=False)
        self._socket.close()
        self._writer.close()  # 64 MiB and two open files that the collector, which leaves old objects alone, would keep
        self._reader.close()
