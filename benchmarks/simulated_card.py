"""A card that computes nothing, for the host's cost of feeding one: launches as torch has them, then time passes.

Behind a lane's thread (`CardEngine`), or in a process of its own that a lane's thread sends ids to and gets rows from
(`ProcessEngine`): the design that docs/engine.md compares.

    python -m benchmarks.simulated_card SOCKET IDS ROWS    # file descriptors; started by ProcessEngine
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from backend.lanes.engine import Engine, UnlimitedBatches
from backend.models.encoder import Ids, TokenBatch, Vectors, pack_rows
from backend.processes.ring import create_memory, map_memory

TOKENS_PER_S = 2.3e6  # what half of an H200's bf16 rate makes of a base encoder
LAUNCHES = 200  # calls of torch in a forward of 12 packed layers
WIDTH = 384
_BUDGET = 16_384
_DEPTH = 2
_ROWS = np.random.default_rng(0).standard_normal((4096, WIDTH), np.float32)
_IDS_NUMBERS = 2 * _BUDGET + 8192  # of one batch: their count, their lengths, their ids
_ROWS_NUMBERS = len(_ROWS) * WIDTH


class CardEngine:
    """The card's work on the thread that calls it."""

    name, budget, padding_cost, launch_cost, batch_limits = "embeddings", _BUDGET, 0.0, 0, UnlimitedBatches()

    def __init__(self) -> None:
        self.launch_s: list[float] = []  # of each batch, by the clock
        self._free_s = 0.0  # monotonic; when the card has done all that was launched
        self._numbers = torch.zeros(4096)

    def on(self, device_index: int) -> Engine:  # noqa: ARG002 - the protocol's argument
        return self

    def prepare(self, payloads: Sequence[Ids]) -> TokenBatch:
        return pack_rows(payloads, lambda tokens: -(-tokens // 64) * 64)

    def forward(self, batch: TokenBatch) -> tuple[int, float]:
        began_s = time.monotonic()
        with torch.inference_mode():
            for _ in range(LAUNCHES):
                torch.add(self._numbers, self._numbers)
        now_s = time.monotonic()
        self.launch_s.append(now_s - began_s)
        self._free_s = max(now_s, self._free_s) + batch.tokens / TOKENS_PER_S
        return len(batch.lengths), self._free_s

    def finish(self, output: tuple[int, float]) -> Sequence[Vectors]:
        texts, done_s = output
        time.sleep(max(0.0, done_s - time.monotonic()))
        return list(_ROWS[:texts])


class ProcessEngine:
    """The same in a process of its own. One lane's thread calls it; two batches are under way at most."""

    name, budget, padding_cost, launch_cost, batch_limits = "embeddings", _BUDGET, 0.0, 0, UnlimitedBatches()

    def __init__(self) -> None:
        self.launch_s: list[float] = []
        self._socket, there = socket.socketpair()
        descriptors = [
            create_memory("ids", _DEPTH * _IDS_NUMBERS * 4),
            create_memory("rows", _DEPTH * _ROWS_NUMBERS * 4),
        ]
        self._ids, self._rows = _arrays(*descriptors)
        passed = (there.fileno(), *descriptors)
        self._process = subprocess.Popen([sys.executable, "-m", __spec__.name, *map(str, passed)], pass_fds=passed)
        there.close()
        self._slot = 0
        self._socket.recv(1)  # it is ready

    def on(self, device_index: int) -> Engine:  # noqa: ARG002 - the protocol's argument
        return self

    def prepare(self, payloads: Sequence[Ids]) -> tuple[int, int]:
        slot, texts = self._slot, len(payloads)
        self._slot = (slot + 1) % _DEPTH
        lengths = [len(ids) for ids in payloads]
        numbers = self._ids[slot]
        numbers[0], numbers[1 : 1 + texts] = texts, lengths
        np.concatenate(payloads, out=numbers[1 + texts : 1 + texts + sum(lengths)], casting="same_kind")
        return slot, texts

    def forward(self, prepared: tuple[int, int]) -> tuple[int, int]:
        self._socket.send(bytes([prepared[0]]))
        return prepared

    def finish(self, output: tuple[int, int]) -> Sequence[Vectors]:
        slot, texts = output
        self._socket.recv(1)
        return list(self._rows[slot, : texts * WIDTH].reshape(texts, WIDTH).copy())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class _Answers(Protocol):
    """What ``serve`` needs of a socket."""

    def send(self, data: bytes, /) -> int: ...


def serve(sock: socket.socket, ids: int, rows: int) -> None:
    """Run the batches that the other process sends, two at a time, until it has gone."""
    numbers, results = _arrays(ids, rows)
    card, under_way = CardEngine(), deque[tuple[int, tuple[int, float]]]()
    sock.send(b"r")
    while True:
        while under_way and (len(under_way) == _DEPTH or not select.select([sock], [], [], 0)[0]):
            _answer(sock, card, *under_way.popleft(), results)
        if not (told := sock.recv(1)):
            return
        under_way.append((told[0], card.forward(card.prepare(_payloads(numbers[told[0]])))))


def _answer(sock: _Answers, card: CardEngine, slot: int, output: tuple[int, float], results: Vectors) -> None:
    vectors = card.finish(output)
    np.concatenate(vectors, out=results[slot, : len(vectors) * WIDTH])
    sock.send(bytes([slot]))


def _payloads(numbers: NDArray[np.int32]) -> list[Ids]:
    texts = int(numbers[0])
    stops = np.cumsum(numbers[1 : 1 + texts])
    return np.split(numbers[1 + texts : 1 + texts + int(stops[-1])].astype(np.int64), stops[:-1])


def _arrays(ids: int, rows: int) -> tuple[NDArray[np.int32], Vectors]:
    """A line for each batch under way."""
    numbers: Any = np.frombuffer(map_memory(ids), np.int32).reshape(_DEPTH, -1)
    results: Any = np.frombuffer(map_memory(rows), np.float32).reshape(_DEPTH, -1)
    return numbers, results


if __name__ == "__main__":
    channel, ids_memory, rows_memory = map(int, sys.argv[1:])
    serve(socket.socket(fileno=channel), ids_memory, rows_memory)
