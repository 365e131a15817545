"""RapidOCR's networks on each runtime: equal results, memory that goes back, and what happens when a GPU fails."""

import sys
from dataclasses import dataclass, field
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backend.errors import ModelUnavailable
from backend.models.runtimes import Candidate
from backend.ocr.rapidocr_models import RapidOcrModels
from backend.ocr.rapidocr_sessions import (
    ONNX_FP32,
    CpuFallback,
    LaneThreads,
    OnnxSession,
    OpenVinoSession,
    choose_provider,
    open_on_cpu,
)

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
LINE = np.random.default_rng(7).normal(size=(2, 3, 48, 320)).astype(np.float32)


@pytest.mark.parametrize(
    ("device", "available", "expected", "why"),
    [
        pytest.param("cpu", [CUDA, CPU], CPU, "as the models are", id="the-cpu-was-chosen"),
        pytest.param("mps", [CPU], CPU, "mps", id="a-device-that-onnx-runtime-does-not-know"),
        pytest.param("cuda:1", [CUDA, CPU], CUDA, "cuda:1", id="cuda"),
        pytest.param("cuda:0", [CPU], CPU, "of torch's CUDA", id="cuda-without-the-package"),
    ],
)
def test_choose_provider(device, available, expected, why):
    """The device of the models where ONNX Runtime supports it; a fallback is reported."""
    provider = choose_provider(device, available)

    assert expected == provider.name
    assert why in provider.why


def test_cuda_options():
    """No search of every algorithm for every new shape, and no arena that doubles beside torch's."""
    expected = {"device_id": "1", "cudnn_conv_algo_search": "HEURISTIC", "arena_extend_strategy": "kSameAsRequested"}

    assert expected == dict(choose_provider("cuda:1", [CUDA]).options)


def test_an_unreadable_network_is_an_error_of_the_tree():
    """Whatever the runtime raises."""
    for runtime in (ONNX_FP32, Candidate("openvino", "fp32")):
        with pytest.raises(ModelUnavailable, match="refuses a network"):
            open_on_cpu(b"no network", runtime, LaneThreads(1))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_openvino_agrees_with_onnx_runtime(dtype):
    """Probabilities of the cut recogniser, within the rounding of the dtype."""
    expected = RapidOcrModels("cpu", 1).run("recognize", LINE, latin=True)
    found = RapidOcrModels("cpu", 1, runtime=Candidate("openvino", dtype)).run("recognize", LINE, latin=True)

    assert expected.shape == found.shape
    np.testing.assert_allclose(expected, found, atol={"fp32": 1e-4, "bf16": 0.05}[dtype])


@pytest.mark.slow
def test_release_memory_keeps_the_network_usable():
    """Every network on every runtime, before and after a run."""
    pixels = {"detect": np.zeros((1, 3, 64, 96), np.float32), "upright": LINE[:, :, :, :192], "recognize": LINE}
    for runtime in (ONNX_FP32, Candidate("openvino", "fp32")):
        models = RapidOcrModels("cpu", 1, runtime=runtime)
        models.release_memory()
        expected = {network: models.run(network, image) for network, image in pixels.items()}
        models.release_memory()

        for network, image in pixels.items():
            np.testing.assert_allclose(expected[network], models.run(network, image), atol=1e-6)


def test_a_run_during_a_release_compiles_nothing(monkeypatch):
    """It waits for the network that is idle: one more would stay for good."""
    openvino = pytest.importorskip("openvino")
    compiled, runs = [], []

    class FakeNetwork:
        def __init__(self) -> None:
            compiled.append(self)

        def create_infer_request(self) -> SimpleNamespace:
            return SimpleNamespace(infer=lambda pixels, **_: pixels)

        def release_memory(self) -> None:
            runs.append(Thread(target=session.run, args=(LINE,)))
            runs[-1].start()
            runs[-1].join(0.2)  # it must not end before the release

    core = SimpleNamespace(read_model=lambda _: None, compile_model=lambda *_: FakeNetwork())
    monkeypatch.setattr(openvino, "Core", lambda: core)
    session = OpenVinoSession(b"", "fp32", LaneThreads(1), 1)
    session.release_memory()
    runs[0].join()

    assert 1 == len(compiled)


@dataclass
class FakeSession:
    """Answers with a number, or raises."""

    answer: float | Exception
    runs: list[int] = field(default_factory=list)

    def run(self, pixels: Any) -> Any:
        self.runs.append(len(pixels))
        if isinstance(self.answer, Exception):
            raise self.answer
        return np.full(1, self.answer, np.float32)

    def release_memory(self) -> None:
        pass


def test_what_cuda_cannot_run_runs_on_the_cpu():
    """The network on the CPU is opened once, with the first failure."""
    opened = []

    def open_cpu() -> FakeSession:
        opened.append(FakeSession(2.0))
        return opened[-1]

    session = CpuFallback(FakeSession(RuntimeError("CUDNN_FE failure 11: CUDNN_BACKEND_API_FAILED")), open_cpu)

    assert [2.0, 2.0] == [float(session.run(LINE)[0]) for _ in range(2)]
    assert [[2, 2]] == [cpu.runs for cpu in opened]
    assert 1.0 == CpuFallback(FakeSession(1.0), open_cpu).run(LINE)[0]


@pytest.mark.parametrize(
    ("message", "rows", "is_raised"),
    [
        pytest.param("CUDA failure 700: an illegal memory access was encountered", 1, True, id="a-lost-device"),
        pytest.param("Failed to allocate memory for requested buffer of size 1", 2, True, id="a-batch-to-be-halved"),
        pytest.param("Failed to allocate memory for requested buffer of size 1", 1, False, id="one-does-not-fit"),
    ],
)
def test_what_is_the_lanes_to_handle(message, rows, is_raised):
    """A dead context ends the process, a batch runs in parts; one item that does not fit runs on the CPU."""
    session = CpuFallback(FakeSession(RuntimeError(message)), lambda: FakeSession(2.0))

    if is_raised:
        with pytest.raises(RuntimeError, match=message):
            session.run(LINE[:rows])
    else:
        assert 2.0 == session.run(LINE[:rows])[0]


class FakeCuda:
    """An ``onnxruntime`` with CUDA. ``providers``: what a session really gets; ``calls``: what was asked, in order."""

    def __init__(self, providers: tuple[str, ...] = (CUDA, CPU)) -> None:
        self.calls: list[str] = []
        self.options: list[dict[str, str]] = []
        self.providers = providers

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import onnxruntime

        fake = SimpleNamespace(
            preload_dlls=lambda: self.calls.append("preload"),
            get_available_providers=lambda: [CUDA, CPU],
            InferenceSession=self.session,
            SessionOptions=onnxruntime.SessionOptions,
        )
        monkeypatch.setitem(sys.modules, "onnxruntime", fake)

    def session(self, graph: Any, options: Any, providers: Any) -> Any:
        self.calls.append("session")
        self.options.append(providers[0][1])
        return SimpleNamespace(
            get_providers=lambda: list(self.providers),
            get_inputs=lambda: [SimpleNamespace(name="x", shape=["batch", 3, 48, "width"])],
            run=lambda _, inputs, *rest: [np.zeros(len(inputs["x"]), np.float32)],
        )


def test_libraries_are_loaded_before_a_session_on_cuda(monkeypatch):
    """They lie in torch's wheels, where the loader does not look."""
    cuda = FakeCuda()
    cuda.install(monkeypatch)
    OnnxSession("graph", choose_provider("cuda:0", [CUDA]), LaneThreads(1))

    assert ["preload", "session"] == cuda.calls


def test_each_network_has_its_part_of_the_memory(monkeypatch):
    """Together not more than RapidOCR may take of the card, both recognisers counted."""
    cuda = FakeCuda()
    cuda.install(monkeypatch)
    models = RapidOcrModels("cuda:0", 1, device_bytes=1000)
    assert models.provider.is_cuda
    for network, latin in (("detect", False), ("upright", False), ("recognize", True), ("recognize", False)):
        models.run(network, LINE, latin=latin)

    assert 1000 >= sum(int(options["gpu_mem_limit"]) for options in cuda.options[1:])


def test_a_card_on_which_no_network_starts_is_not_used(monkeypatch):
    """ONNX Runtime falls back silently; the service says so, and its lanes for pages do the work."""
    FakeCuda(providers=(CPU,)).install(monkeypatch)
    models = RapidOcrModels("cuda:0", 1)

    assert not models.provider.is_cuda
    assert "could not start it" in models.provider.why
