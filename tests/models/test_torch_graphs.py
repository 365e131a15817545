"""Which batches get a graph, when it is captured, and what a failed capture leads to."""

from __future__ import annotations

import pytest
import torch

from backend.models.torch_graphs import GraphCache, GraphKey, Outputs

INPUTS = torch.zeros(4, dtype=torch.int32)


class Recorder:
    """Captures graphs that say which key they are of; ``fault`` is raised instead."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.captured: list[GraphKey] = []
        self.replayed: list[GraphKey] = []
        self.fault = fault

    def __call__(self, key: GraphKey) -> _Graph:
        self.captured.append(key)
        if self.fault is not None:
            raise self.fault
        return _Graph(self, key)


class _Graph:
    def __init__(self, recorder: Recorder, key: GraphKey) -> None:
        self._recorder, self._key = recorder, key

    def replay(self, inputs: torch.Tensor) -> Outputs:
        self._recorder.replayed.append(self._key)
        return inputs, inputs


def replay(cache: GraphCache, key: GraphKey) -> bool:
    taken: list[Outputs] = []
    replayed = cache.replay(key, INPUTS, taken.append)
    assert replayed == bool(taken)
    return replayed


def key(rows: int = 64) -> GraphKey:
    return GraphKey(rows, rows // 4, rows)


def test_the_second_batch_captures():
    """The first loads kernels and heads, which no capture may do."""
    recorder = Recorder()
    cache = GraphCache(recorder)

    assert [False, True, True] == [replay(cache, key()) for _ in range(3)]
    assert ([key()], [key(), key()]) == (recorder.captured, recorder.replayed)


@pytest.mark.parametrize("message", ["operation not permitted when stream is capturing", ""])
def test_a_failed_capture_is_the_last_one(message):
    """Batches go on without graphs; trying again at each would cost every one of them."""
    recorder = Recorder(RuntimeError(message))
    cache = GraphCache(recorder)

    assert [False] * 4 == [replay(cache, each) for each in (key(), key(), key(), key(128))]
    assert [key()] == recorder.captured
    assert cache.fault == (message or "RuntimeError")


def test_a_capture_that_lacked_memory_is_tried_again_after_a_pause():
    """Another size's graphs stay, and memory that is there again gives the size its own."""
    recorder = Recorder()
    cache = GraphCache(recorder, pause=3)
    assert [False, True] == [replay(cache, key(128)) for _ in range(2)]
    recorder.fault = RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
    assert [False] * 4 == [replay(cache, key()) for _ in range(4)]
    recorder.fault = None

    assert [False, True, True] == [replay(cache, each) for each in (key(), key(128), key(128))]
    assert [True, True] == [replay(cache, key()) for _ in range(2)]
    assert [key(128), key(), key()] == recorder.captured
    assert "" == cache.fault


def test_captures_that_lack_memory_are_bounded(caplog):
    """Each waits for all work of the card: a size that never fits must not cost every few batches one."""
    recorder = Recorder(RuntimeError("CUDA out of memory"))
    cache = GraphCache(recorder, pause=2)

    assert not any(replay(cache, key()) for _ in range(50))
    assert [key()] * 3 == recorder.captured
    assert 3 == caplog.text.count("too little memory to capture a CUDA graph")


def test_the_report_tells_what_the_log_told():
    """Somebody who asks for the cause of slow small batches may come after the log has gone."""
    recorder = Recorder()
    cache = GraphCache(recorder, pause=2)
    assert [False, True] == [replay(cache, key(128)) for _ in range(2)]
    recorder.fault = RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB\nSee the documentation")
    for _ in range(2):
        replay(cache, key(64))
    lacking = {"rows": 64, "texts": 16, "reason": "CUDA out of memory. Tried to allocate 20.00 MiB", "attempts_left": 2}

    assert {"captured": 1, "without_memory": [lacking], "fault": ""} == cache.report()
    recorder.fault = None
    for _ in range(3):
        replay(cache, key(64))
    assert {"captured": 2, "without_memory": [], "fault": ""} == cache.report()
    recorder.fault = RuntimeError("operation not permitted when stream is capturing")
    for _ in range(2):
        replay(cache, key(256))
    assert {"captured": 0, "without_memory": [], "fault": str(recorder.fault)} == cache.report()


def test_a_lost_device_is_not_taken_for_a_failed_capture():
    """The lane must learn of it: no batch can succeed any more."""
    cache = GraphCache(Recorder(RuntimeError("CUDA error: an illegal memory access was encountered")))
    replay(cache, key())

    with pytest.raises(RuntimeError, match="illegal memory access"):
        replay(cache, key())
