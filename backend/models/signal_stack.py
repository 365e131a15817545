"""Keeps a foreign library from leaving its signal stack on our thread."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _Stack(ctypes.Structure):
    """``stack_t`` of Linux, signal.h."""

    _fields_ = (("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Put the calling thread's alternative signal stack back afterwards, whatever the block did to it.

    OpenVINO 2026 sets one for every core whose CPU plugin is loaded and unmaps it with the last model of that core, but
    leaves threads pointing there: the next signal with a Python handler (torch's DataLoader has one for SIGCHLD) then
    ends the process with SIGSEGV, for Python's handlers run on that stack (SA_ONSTACK). Linux only.
    """
    if sys.platform != "linux":
        yield
        return
    library, before = ctypes.CDLL(None), _Stack()
    library.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        library.sigaltstack(ctypes.byref(before), None)
