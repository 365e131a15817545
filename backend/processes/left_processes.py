"""Runs work in a process of its own, and ends the processes that it leaves behind when it has ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress

import psutil

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SET_DEATH_SIGNAL, _ADOPT_ORPHANS = 1, 36  # of prctl(2)
_END_S = 10.0  # until killed processes are gone


def run_alone(work: Callable[[], int]) -> int:
    """Run ``work`` in a child and wait for it; its exit code, negative for a signal. In the child: its result.

    For programs whose processes do not all end with them: on Linux those that lost their parents become children of
    this process, and are killed once the child has ended. SIGTERM and SIGINT here are a SIGTERM for the child.
    """
    _prctl(_ADOPT_ORPHANS, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until there is a child to tell
    child = os.fork()
    if not child:
        os.setpgid(0, 0)  # Ctrl-C reaches the parent alone, which tells the child once
        _prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return work()
    for number in _SIGNALS:
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    ended = status = 0
    while ended != child:  # orphans end too
        ended, status = os.wait()
    for number in _SIGNALS:  # the child's number may soon be another process'
        signal.signal(number, signal.SIG_IGN)
    end_processes(psutil.Process().children(recursive=True))
    return os.waitstatus_to_exitcode(status)


def end_processes(processes: Collection[psutil.Process]) -> None:
    """Kill them, and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_END_S)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
