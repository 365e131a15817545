"""Classifying errors of memory, cards and drivers, also when they are wrapped."""

import numpy as np
import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from backend.device.faults import Fault, FaultKind, classify, requested_bytes
from backend.errors import BadInput, DeviceLost, DoesNotFit, InferenceFailed

GIB = 2**30
# torch appends this to every CUDA error; it must not affect the result.
FOOTER = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable "
    "device-side assertions.\n"
)
TORCH = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.19 GiB is "
    "free. Process 4711 has 77.90 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and "
    "5.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
ORT = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running MatMul node. "
    "Name:'/MatMul' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* "
    "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) "
    "Failed to allocate memory for requested buffer of size 939524096\n"
)
TORCH_CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4503599627370496 bytes. Error code 12 (Cannot allocate memory)"
)
TORCH_CPU_WINDOWS = "DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes."
TORCH_MPS = (
    "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 GB, max allowed: 9.07 GB). Tried to "
    "allocate 256.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable."
)
OPENVINO = (
    "Exception from src/inference/src/cpp/infer_request.cpp:223:\n[GPU] Exceeded max size of memory object "
    "allocation: requested 5368709120 bytes, but max alloc size supported by device is 4294959104 bytes."
)


class AcceleratorError(RuntimeError):
    """Like torch's, which cannot be created with a given code."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


class TritonError(Exception):
    """Like those of triton.runtime.errors: not a RuntimeError."""

    __module__ = "triton.runtime.errors"


# what libraries write when memory is exhausted, without its size, by what we call it
EXHAUSTED = [
    ("driver", "CUDA error: out of memory" + FOOTER), ("driver", "CUDA driver error: out of memory"),
    ("driver", "CUDA_ERROR_OUT_OF_MEMORY: out of memory"), ("driver", "HIP error: out of memory"),
    ("driver", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the manual" + FOOTER),
    ("driver", "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : CUDA failure 2: out of memory ; GPU=0 ; hostname=a"),
    ("cublas", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("cublas", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    ("cudnn", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("cudnn", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    ("cudnn-unsupported", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed a non-contigu"),
    ("cudnn-unsupported", "GET was unable to find an engine to execute this computation"),
    ("cusolver", "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
    ("cufft", "cuFFT error: CUFFT_ALLOC_FAILED"), ("triton", "Triton Error [CUDA]: out of memory"),
    ("nccl", "NCCL error in: a.cpp:3690, unhandled cuda error, NCCL version 2.27.5\nCuda failure 2 'out of memory'"),
    ("openvino", "[GPU] clWaitForEvents, error code: -14\n[GPU] CL_OUT_OF_RESOURCES exception."),
    ("unnamed", "some library of tomorrow: Out of memory (42)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "form", "requested"),
    [
        *(pytest.param(RuntimeError(message), form, None, id=message[:40]) for form, message in EXHAUSTED),
        pytest.param(torch.OutOfMemoryError(TORCH), "torch", 2.5 * GIB, id="torch-cuda"),
        pytest.param(torch.OutOfMemoryError(""), "torch", None, id="torch-without-message"),
        pytest.param(torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2 MiB."), "torch", 2**21, id="rocm"),
        pytest.param(RuntimeError(TORCH_CPU), "torch-cpu", 2**52, id="torch-cpu"),
        pytest.param(RuntimeError(TORCH_CPU_WINDOWS), "torch-cpu", 4096, id="torch-cpu-windows"),
        pytest.param(RuntimeError(TORCH_MPS), "mps", 256 * 2**20, id="torch-mps"),
        pytest.param(RuntimeError("Invalid buffer size: 20.00 GiB"), "mps", 20 * GIB, id="torch-mps-one-buffer"),
        pytest.param(AcceleratorError("words of another release", 2), "driver", None, id="driver-by-its-number"),
        pytest.param(TritonError("Triton Error [HIP]: out of memory"), "triton", None, id="triton-of-its-own-type"),
        pytest.param(RuntimeException(ORT), "onnxruntime", 939524096, id="onnxruntime"),
        pytest.param(RuntimeError(OPENVINO), "openvino", 5 * GIB, id="openvino"),
        pytest.param(MemoryError(), "host", None, id="python"),
        pytest.param(MemoryError("std::bad_alloc"), "host", None, id="native-code"),
        pytest.param(OSError(12, "Cannot allocate memory"), "host", None, id="fork-or-mmap"),
        pytest.param(DoesNotFit("one item needs 3.0 GiB"), "ours", None, id="ours"),
    ],
)
def test_exhausted_memory(error, form, requested):
    """The message of every library, with the size if it has one."""
    fault = classify(error)

    assert (FaultKind.OUT_OF_MEMORY, form) == (fault.kind, fault.form)
    assert requested == fault.requested_bytes


LOST = [
    ("illegal-access", "CUDA error: an illegal memory access was encountered" + FOOTER),
    ("illegal-access", "Triton Error [CUDA]: an illegal memory access was encountered"),
    ("illegal-access", "CUDA failure 700: an illegal memory access was encountered ; GPU=0"),
    ("device-assert", "CUDA error: device-side assert triggered" + FOOTER),
    ("misaligned", "CUDA error: misaligned address"), ("launch-failure", "CUDA error: unspecified launch failure"),
    ("launch-failure", "CUDA error: operation not supported on global/shared address space"),
    ("launch-timeout", "CUDA error: the launch timed out and was terminated"),
    ("ecc", "CUDA error: uncorrectable ECC error encountered"),
    ("ecc", "CUDA error: uncorrectable NVLink error detected during the execution"),
    ("gpu-lost", "GPU is lost"), ("gpu-lost", "Unable to determine the device handle: GPU has fallen off the bus"),
    ("gpu-lost", "CUDA error: no CUDA-capable device is detected"), ("gpu-lost", "NVRM: Xid (PCI:0000:01:00): 79"),
    ("context-gone", "CUDA error: driver shutting down"), ("context-gone", "CUDA error: context is destroyed"),
    ("driver-unknown", "CUDA error: unknown error" + FOOTER),  # after the machine slept
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "form"),
    [
        *(pytest.param(RuntimeError(message), form, id=message[:40]) for form, message in LOST),
        pytest.param(AcceleratorError("words of another release", 700), "illegal-access", id="access-by-its-number"),
        pytest.param(DeviceLost("seen before"), "ours", id="ours"),
    ],
)
def test_context_lost(error, form):
    """Errors after which every further call in this process fails."""
    fault = classify(error)

    assert (FaultKind.CONTEXT_LOST, form) == (fault.kind, fault.form)


@pytest.mark.parametrize(
    ("error", "form"),
    [
        pytest.param(
            RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable" + FOOTER), "busy", id="busy"
        ),
        pytest.param(AcceleratorError("words of another release", 46), "busy", id="busy-by-its-number"),
        pytest.param(RuntimeError("CUDA error: system not yet initialized"), "starting", id="fabric-manager"),
    ],
)
def test_transient(error, form):
    """This process has no context on the device yet, so none is lost."""
    fault = classify(error)

    assert (FaultKind.TRANSIENT, form) == (fault.kind, fault.form)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), id="shapes"),
        pytest.param(RuntimeError("CUDA error: invalid configuration argument" + FOOTER), id="footer-alone"),
        pytest.param(RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm`"), id="cublas"),
        pytest.param(ValueError("'CUDA out of memory' is no language"), id="an-input-that-quotes-the-words"),
        pytest.param(KeyError("illegal memory access"), id="a-key-that-quotes-the-words"),
        pytest.param(BadInput("text: 'out of memory' is not a number"), id="ours-that-quotes-the-words"),
        pytest.param(OSError(2, "No such file: out of memory"), id="a-file-of-that-name"),
        pytest.param(
            TritonError("out of resource: shared memory, Required: 163840, Hardware limit: 101376"), id="shared-memory"
        ),
        pytest.param(RuntimeError(""), id="empty-message"),
    ],
)
def test_other_errors(error):
    """Errors of the input or the code."""
    fault = classify(error)

    assert (FaultKind.OTHER, type(error).__name__, None) == (fault.kind, fault.form, fault.requested_bytes)


def raised(error: BaseException, *, cause: BaseException | None = None) -> BaseException:
    """``error`` after being raised, from ``cause`` if given."""
    try:
        raise error from cause
    except BaseException as caught:  # any exception of the test cases
        return caught


def during(first: BaseException, second: BaseException, *, hide: bool = False) -> BaseException:
    """``second``, raised while ``first`` was being handled."""
    try:
        try:
            raise first
        except BaseException:  # any exception of the test cases
            if hide:
                raise second from None
            raise second  # noqa: B904  # the case is about the implicit context
    except BaseException as caught:  # as above
        return caught


def memory() -> BaseException:
    """A new exception each time, since raising changes it."""
    return torch.OutOfMemoryError(TORCH)


def dead() -> BaseException:
    return RuntimeError("CUDA error: device-side assert triggered")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(raised(ValueError("a"), cause=memory()), FaultKind.OUT_OF_MEMORY, id="cause"),
        pytest.param(raised(InferenceFailed("a"), cause=memory()), FaultKind.OUT_OF_MEMORY, id="cause-of-ours"),
        pytest.param(
            raised(ValueError("a"), cause=raised(KeyError("b"), cause=memory())), FaultKind.OUT_OF_MEMORY, id="two-deep"
        ),
        pytest.param(during(memory(), KeyError("cleaning up")), FaultKind.OUT_OF_MEMORY, id="context"),
        pytest.param(during(memory(), KeyError("elsewhere"), hide=True), FaultKind.OTHER, id="suppressed-context"),
        pytest.param(ExceptionGroup("lanes", [KeyError("a"), memory()]), FaultKind.OUT_OF_MEMORY, id="group"),
        pytest.param(
            ExceptionGroup("lanes", [ExceptionGroup("inner", [raised(KeyError("a"), cause=dead())]), memory()]),
            FaultKind.CONTEXT_LOST,
            id="group-in-a-group",
        ),
        pytest.param(raised(memory(), cause=dead()), FaultKind.CONTEXT_LOST, id="a-dead-context-wins-from-below"),
        pytest.param(raised(dead(), cause=memory()), FaultKind.CONTEXT_LOST, id="a-dead-context-wins-from-above"),
        pytest.param(
            RuntimeError("CUDA error: an illegal memory access was encountered; then: out of memory"),
            FaultKind.CONTEXT_LOST,
            id="both-in-one-message",
        ),
    ],
)
def test_wrapped(error, kind):
    """Causes, contexts and groups are examined; the worst kind wins."""
    assert kind is classify(error).kind


def test_circular_causes():
    """Each exception is examined once."""
    first, second = KeyError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    assert FaultKind.OTHER is classify(first).kind


def test_the_message_is_one_short_line():
    """The first line of the decisive exception, at most 300 characters."""
    fault = classify(raised(ValueError("wrapper"), cause=RuntimeError("CUDA error: out of memory" + FOOTER)))

    assert fault == Fault(FaultKind.OUT_OF_MEMORY, "driver", "CUDA error: out of memory")
    assert len(classify(RuntimeError("x" * 1000)).message) == 300


def test_real_errors_of_this_machine():
    """The messages of the installed torch and numpy."""
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(2**52, dtype=torch.uint8)
    with pytest.raises(MemoryError) as of_numpy:
        np.empty(2**52, dtype=np.uint8)

    assert ("torch-cpu", 2**52) == ((fault := classify(of_torch.value)).form, fault.requested_bytes)
    assert ("host", 2**52) == ((fault := classify(of_numpy.value)).form, fault.requested_bytes)


def test_real_exhaustion_of_the_device(device):
    """torch's own error is recognised, on a CPU or a card (--device cuda:0)."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8, device=device)

    assert (FaultKind.OUT_OF_MEMORY, 2**50) == ((fault := classify(caught.value)).kind, fault.requested_bytes)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Tried to allocate 512.00 KiB.", 512 * 2**10),
        ("tried to allocate 12 bytes", 12),
        ("Unable to allocate 745. GiB for an array", 745 * GIB),
        ("Tried to allocate more than 1EB memory.", None),
        ("Tried to allocate 1.2.3 GiB", None),
        ("", None),
    ],
)
def test_requested_bytes(message, expected):
    """In any unit that the libraries use."""
    assert expected == requested_bytes(message)
