"""Which batches get a graph, when it is captured, and what a failed capture leads to."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from backend.models.torch_packed import CudaGraph, GraphCache, GraphKey, Outputs, keys_of, lengths_for

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


@pytest.mark.parametrize("fault", [None, RuntimeError("no capture")], ids=["captured", "failed"])
def test_a_graph_computes_in_no_workspace_but_its_own(monkeypatch, fault):
    """torch frees a stream's workspace with any graph of it: one of the warm run would be read after it is gone."""
    events: list[str] = []
    stream = SimpleNamespace(wait_stream=lambda other: None)

    @contextmanager
    def block(name):
        events.append(name)
        yield
        events.append(f"end of {name}")

    def run(inputs):
        events.append("run")
        if fault is not None and "capture" in events:
            raise fault
        return torch.zeros(4, 2), inputs

    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: events.append("clear"), raising=False)
    for name, fake in {
        "device": lambda device: block("device"),
        "current_stream": lambda: stream,
        "set_stream": lambda current: events.append("set stream"),
        "stream": lambda aside: block("warm run"),
        "CUDAGraph": SimpleNamespace,
        "graph": lambda *_, **__: block("capture"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    memory = SimpleNamespace(device=torch.device("cpu"), stream=stream, pool=None, outputs=torch.empty(8, 2))
    with nullcontext() if fault is None else pytest.raises(RuntimeError, match="no capture"):
        CudaGraph(run, 4, memory)

    ends = ["end of capture"] if fault is None else []
    expected = ["device", "warm run", "run", "end of warm run", "clear", "capture", "run", *ends, "clear", "set stream"]
    assert expected == events[: len(expected)]


def test_keys_of_a_size():
    """Fewest places for texts first, short texts before long ones; the batch that captures a graph fits it."""
    keys = keys_of(2048, 512)

    assert [(128, 32), (128, 128), (128, 512), (512, 32), (512, 128), (512, 512)] == [
        (key.longest, key.texts) for key in keys
    ]
    for each in keys:
        lengths = lengths_for(each)
        assert len(lengths) == each.texts
        assert max(lengths) <= each.longest
        assert sum(lengths) <= each.rows
