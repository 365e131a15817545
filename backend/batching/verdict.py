"""What a failure of an engine means: for the job at fault, for its neighbours, for the whole process."""

from __future__ import annotations

from backend.device.faults import Fault, FaultKind, classify
from backend.errors import DeviceLost, DoesNotFit, FinanciaError, InferenceFailed


def verdict(error: Exception, costs: list[int]) -> FinanciaError:
    """What the job gets if it fails alone; while it has neighbours the batch is halved and run again.

    ``DoesNotFit`` says that memory ran out, whatever the number of jobs. Our own errors stay as they are.

    Args:
        costs: of the jobs that ran together, in tokens or pixels.

    Raises: DeviceLost when the device's context is dead: no batch can ever succeed in this process.
    """
    fault = classify(error)  # also of our own errors: one may have been raised from a dead context
    if fault.kind is FaultKind.CONTEXT_LOST:
        raise DeviceLost(f"the device's context is dead: {fault.message}; the process ends to be restarted") from error
    out_of_memory = fault.kind is FaultKind.OUT_OF_MEMORY
    if isinstance(error, FinanciaError) and (not out_of_memory or isinstance(error, DoesNotFit)):
        return error
    failure = _does_not_fit(fault, costs) if out_of_memory else _failed(error)
    failure.__cause__ = error
    return failure


def _does_not_fit(fault: Fault, costs: list[int]) -> InferenceFailed:
    return DoesNotFit(
        f"an input of {max(costs)} tokens does not fit the device's memory ({fault.message}); send it in parts, "
        "raise GPU_MEMORY_FRACTION, or free the device of its other users"
    )


def _failed(error: Exception) -> InferenceFailed:
    return InferenceFailed(f"the model failed on this input ({type(error).__name__})")
