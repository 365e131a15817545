"""A ring of bytes in memory that two processes share: one writes blocks, the other reads them in the same order.

Nothing here waits and nothing is a lock: where a block lies travels in a message, and what was read comes back in one.
"""

from __future__ import annotations

import mmap
import os

from backend.errors import SetupError

ALIGNMENT = 64  # bytes; a cache line, so that two blocks never share one
RING_BYTES = 32 * 2**20  # each way and worker; pages are taken from the system as they are first written


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
