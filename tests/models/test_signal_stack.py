"""A compiled model leaves no signal stack behind that a later signal would fall into."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from backend.models.signal_stack import _Stack, kept_signal_stack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are handled on Linux only")
SURVIVES_A_CHILD = """
import signal, subprocess, sys
from backend.models.openvino_encoder import OpenVinoEncoder
from backend.models.model_files import resolve
signal.signal(signal.SIGCHLD, lambda number, frame: None)  # as torch's DataLoader has it
encoders = [OpenVinoEncoder(resolve("bundled"), dtype="fp32", lanes=2, threads=1) for _ in range(2)]
del encoders[0]
encoders.clear()
subprocess.run([sys.executable, "-c", ""], check=True)
print("alive")
"""


def now() -> tuple[int | None, int, int]:
    stack = _Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    return stack.base, stack.size, stack.flags


def test_the_stack_of_before_is_back():
    """Also when the block fails."""
    before, memory = now(), ctypes.create_string_buffer(1 << 16)

    def leave_a_stack() -> None:
        with kept_signal_stack():
            ctypes.CDLL(None).sigaltstack(ctypes.byref(_Stack(ctypes.addressof(memory), 0, 1 << 16)), None)
            assert ctypes.addressof(memory) == now()[0]
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        leave_a_stack()

    assert before == now()


@pytest.mark.slow
def test_a_process_that_drops_models_survives_its_children():
    """Compiled on the main thread, dropped, then a child ends: without the guard this was a SIGSEGV."""
    ended = subprocess.run(
        [sys.executable, "-c", SURVIVES_A_CHILD], capture_output=True, text=True, timeout=100, check=False
    )

    assert (0, "alive") == (ended.returncode, ended.stdout.strip()), ended.stderr
