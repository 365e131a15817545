"""PURE: classifies an exception: out of memory, CUDA context lost, transient, or other.

By type and message, without importing the library that raised it. torch reports exhausted memory in five ways and the
libraries below it in ten more; accelerate's ``should_reduce_batch_size`` misses eight of thirteen that we tried.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from backend.errors import DeviceLost, DoesNotFit

_MESSAGE_CHARS_MAX = 300  # of a log line; torch's own is 600 with its advice
_CHAIN_MAX = 64  # exceptions examined; a chain that long is a loop of retries


class FaultKind(StrEnum):
    """Kinds of failure by what helps; in a chain of causes the first kind in this order wins."""

    CONTEXT_LOST = "context_lost"  # only a new process helps: every further call fails
    OUT_OF_MEMORY = "out_of_memory"  # run less at once
    TRANSIENT = "transient"  # try again later
    OTHER = "other"  # the input or the code is at fault


@dataclass(frozen=True, slots=True)
class Fault:
    """A classified failure."""

    kind: FaultKind
    form: str  # which library or error: "torch", "driver", "cublas", "illegal-access"…; the class's name for OTHER
    message: str  # first line of the decisive exception, shortened
    requested_bytes: int | None = None  # size of the failed allocation, if the message has it


# Matched in this order within one message. The footer of every torch CUDA error mentions "device-side assertions" and
# "asynchronously reported": no pattern may match that.
_LOST = (
    ("illegal-access", r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress"),
    ("device-assert", r"device-side assert triggered|CUDA_ERROR_ASSERT|cudaErrorAssert"),
    ("misaligned", r"misaligned address"),
    (
        "launch-failure",
        (
            r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure"
            r"|illegal instruction|invalid program counter|global/shared address space|hardware stack error"
        ),
    ),
    ("launch-timeout", r"launch timed out and was terminated|cudaErrorLaunchTimeout"),
    ("ecc", r"uncorrectable (?:ECC|NVLink) error|cudaErrorECCUncorrectable"),
    ("gpu-lost", r"GPU is lost|fallen off the bus|no CUDA-capable device is detected|Xid \(PCI|GPU requires reset"),
    (
        "context-gone",
        (
            r"driver shutting down|context is destroyed|CUDA_ERROR_CONTEXT_IS_DESTROYED|CUDA_ERROR_DEINITIALIZED"
            r"|MPS client (?:was )?terminated|SubmissionsIgnored"
        ),
    ),
    # 999: seen after a laptop's sleep and after a driver update under a running process; only a new process helps
    ("driver-unknown", r"(?:CUDA|HIP)(?: driver)? error: unknown error|cudaErrorUnknown|CUDA_ERROR_UNKNOWN"),
    (
        "opencl-lost",
        r"CL_DEVICE_NOT_AVAILABLE|CL_CONTEXT_LOST|UR_RESULT_ERROR_DEVICE_LOST|DXGI_ERROR_DEVICE_(?:REM|HUNG)",
    ),
)
_MEMORY = (
    ("torch", r"(?:CUDA|HIP|XPU) out of memory"),
    ("mps", r"MPS backend out of memory|Invalid buffer size: |kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    (
        "torch-cpu",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|C10 Out of Memory|unable to mmap \d+ bytes",
    ),
    ("triton", r"Triton Error \[\w+\]: out of memory"),
    ("nccl", r"NCCL[\s\S]*(?:out of memory|Failed to CUDA calloc)"),
    # cublasCreate gives either name when the card is full; without "Create" the second has other causes
    ("cublas", r"CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate"),
    ("cudnn", r"CUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_(?:HOST|DEVICE)_ALLOCATION_FAILED)"),
    # When no workspace fits, cuDNN finds no engine. A shape that it really cannot run fails alone as well.
    ("cudnn-unsupported", r"CUDNN_STATUS_NOT_SUPPORTED|unable to find an engine to execute this computation"),
    ("cusolver", r"CUSOLVER_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_NOT_INITIALIZED when calling `cusolverDnCreate"),
    ("cusparse", r"CUSPARSE_STATUS_(?:ALLOC_FAILED|INSUFFICIENT_RESOURCES)"),
    ("cufft", r"CUFFT_ALLOC_FAILED"),
    (
        "onnxruntime",
        r"Failed to allocate memory for requested buffer|Available memory of \d+ is smaller than requested",
    ),
    (
        "openvino",
        (
            r"Exceeded max size of memory (?:object )?allocation|CL_MEM_OBJECT_ALLOCATION_FAILURE"
            r"|CL_OUT_OF_(?:RES|HOST_MEM)|UR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST|RES)"
        ),
    ),
    # also pinned host memory: cudaHostAlloc fails with the same words
    (
        "driver",
        (
            r"(?:CUDA|HIP)(?: driver)? (?:error|failure)[^\n]{0,20}: out of memory"
            r"|CUDA_ERROR_OUT_OF_MEMORY|(?:cuda|hip)Error(?:MemoryAllocation|OutOfMemory)"
        ),
    ),
    ("host", r"std::bad_alloc|bad allocation|Cannot allocate memory"),
    ("unnamed", r"\bout of memory\b"),  # NVML, jemalloc, others
)
_TRANSIENT = (
    # Another process has a card in exclusive mode: this process has no context there yet, so none is lost.
    ("busy", r"busy or unavailable|cudaErrorDevicesUnavailable"),
    ("starting", r"system not yet initialized|cudaErrorSystemNotReady|MPS server is not ready"),
    ("victim", r"kIOGPUCommandBufferCallbackErrorInnocentVictim"),
)
_TABLE = tuple(
    (kind, tuple((form, re.compile(text, re.IGNORECASE)) for form, text in rows))
    for kind, rows in (
        (FaultKind.CONTEXT_LOST, _LOST),
        (FaultKind.OUT_OF_MEMORY, _MEMORY),
        (FaultKind.TRANSIENT, _TRANSIENT),
    )
)
# torch.AcceleratorError.error_code: cudaError_t (driver_types.h), the same numbers in every CUDA since 11.
_CODES = {
    2: (FaultKind.OUT_OF_MEMORY, "driver"),
    4: (FaultKind.CONTEXT_LOST, "context-gone"),
    46: (FaultKind.TRANSIENT, "busy"),
    100: (FaultKind.CONTEXT_LOST, "gpu-lost"),
    214: (FaultKind.CONTEXT_LOST, "ecc"),
    220: (FaultKind.CONTEXT_LOST, "ecc"),
    700: (FaultKind.CONTEXT_LOST, "illegal-access"),
    702: (FaultKind.CONTEXT_LOST, "launch-timeout"),
    709: (FaultKind.CONTEXT_LOST, "context-gone"),
    710: (FaultKind.CONTEXT_LOST, "device-assert"),
    714: (FaultKind.CONTEXT_LOST, "launch-failure"),
    715: (FaultKind.CONTEXT_LOST, "launch-failure"),
    716: (FaultKind.CONTEXT_LOST, "misaligned"),
    717: (FaultKind.CONTEXT_LOST, "launch-failure"),
    718: (FaultKind.CONTEXT_LOST, "launch-failure"),
    719: (FaultKind.CONTEXT_LOST, "launch-failure"),
    802: (FaultKind.TRANSIENT, "starting"),
    999: (FaultKind.CONTEXT_LOST, "driver-unknown"),
}
# Libraries whose exceptions are not all RuntimeErrors. Other messages prove nothing: a ValueError may quote its input.
_NATIVE = frozenset({"torch", "triton", "onnxruntime", "openvino", "pynvml", "cupy", "numba"})
_SIZE = re.compile(
    r"(?:tried to allocate|unable to allocate|requested buffer of size|smaller than requested bytes of|requested"
    r"|required|unable to mmap|invalid buffer size:|CUDA calloc)\s+([\d.]+)\s*([KMGTPE]?i?B|bytes)?",
    re.IGNORECASE,
)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}  # "GB" in MPS's messages counts in 1024s as well


def classify(error: BaseException) -> Fault:
    """Classify ``error`` together with its causes, its context (unless suppressed) and its group's members.

    A lost context wins over everything: allocations fail after it as well.
    """
    faults = [fault for exception in _chain(error) if (fault := _classify_single(exception)) is not None]
    if not faults:
        return Fault(FaultKind.OTHER, type(error).__name__, _first_line(error))
    order = list(FaultKind)
    return min(faults, key=lambda fault: order.index(fault.kind))  # among equals the outermost


def _chain(error: BaseException) -> Iterator[BaseException]:
    pending, seen = [error], set[int]()
    while pending and len(seen) < _CHAIN_MAX:
        exception = pending.pop(0)
        if id(exception) in seen:
            continue
        seen.add(id(exception))
        yield exception
        if isinstance(exception, BaseExceptionGroup):
            pending += exception.exceptions
        cause = exception.__cause__ or (None if exception.__suppress_context__ else exception.__context__)
        if cause is not None:
            pending.append(cause)


def _classify_single(error: BaseException) -> Fault | None:
    by_type = _by_type(error)
    if by_type is None and not _trusts_message(error):
        return None
    text = str(error)
    for kind, rows in _TABLE:
        if by_type is not None and by_type[0] is kind:
            return _fault(kind, _form(rows, text) or by_type[1], error)
        if (form := _form(rows, text)) is not None:
            return _fault(kind, form, error)
    return None


def _by_type(error: BaseException) -> tuple[FaultKind, str] | None:
    if isinstance(error, DeviceLost):
        return FaultKind.CONTEXT_LOST, "ours"
    if isinstance(error, DoesNotFit):
        return FaultKind.OUT_OF_MEMORY, "ours"
    if isinstance(error, MemoryError):
        return FaultKind.OUT_OF_MEMORY, "host"
    if isinstance(error, OSError):
        return (FaultKind.OUT_OF_MEMORY, "host") if error.errno == errno.ENOMEM else None
    if type(error).__name__ == "OutOfMemoryError":  # torch's, also under its old name in torch.cuda, and cupy's
        return FaultKind.OUT_OF_MEMORY, "torch"
    code = getattr(error, "error_code", None) if type(error).__name__ == "AcceleratorError" else None
    return _CODES.get(code) if isinstance(code, int) else None


def _trusts_message(error: BaseException) -> bool:
    # Not for the errors of backend.errors: their messages are written for users, and their cause is in the chain.
    return isinstance(error, RuntimeError) or type(error).__module__.partition(".")[0] in _NATIVE


def _form(rows: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str | None:
    return next((form for form, pattern in rows if pattern.search(text)), None)


def _fault(kind: FaultKind, form: str, error: BaseException) -> Fault:
    return Fault(
        kind, form, _first_line(error), requested_bytes(str(error)) if kind is FaultKind.OUT_OF_MEMORY else None
    )


def _first_line(error: BaseException) -> str:
    line = str(error).strip().partition("\n")[0].strip() or type(error).__name__
    return line if len(line) <= _MESSAGE_CHARS_MAX else line[: _MESSAGE_CHARS_MAX - 1] + "…"


def requested_bytes(message: str) -> int | None:
    """The size of the failed allocation, if the message has it."""
    if (match := _SIZE.search(message)) is None:
        return None
    unit = (match[2] or "").upper().removesuffix("BYTES").rstrip("B").rstrip("I")
    try:
        return int(float(match[1].rstrip(".")) * 1024.0 ** _POWERS[unit])
    except ValueError:  # "1.2.3" is a version, not a size
        return None
