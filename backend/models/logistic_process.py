"""Fits a large head in a process of its own: thousands of steps of a solver hold the interpreter lock in turns.

A service that learnt its classifiers for another encoder on a thread answered 3,500 texts/s meanwhile on a card that
computes 90,000 (benchmarks/results/gpu).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any

from backend.abandoned import require_wanted
from backend.device.facts.host import usable_cores
from backend.errors import Unavailable
from backend.models.logistic import Array, FittedHead, fit_head
from backend.own_modules import PYTHONPATH

LARGE = 4_000_000  # numbers of a step: texts x labels x width; below, a fit takes less than a process's start, 0.5 s
_LOOK_S = 0.05  # between two looks at whether the fit is still wanted
_BESIDE = 4  # a fit takes one in so many cores, and comes after everything else
_NICE = 10


def fit_head_beside(vectors: Array, targets: Array, *, labels: int, **options: Any) -> FittedHead:
    """``logistic.fit_head``; a large one in a process of its own, which ends once nobody waits for it any more.

    Raises: CallerGone then; Unavailable where that process dies.
    """
    if vectors.size * labels < LARGE:
        return fit_head(vectors, targets, labels=labels, **options)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as found, tempfile.TemporaryFile() as said:
        pickle.dump(((vectors, targets), {"labels": labels, **options}), given, pickle.HIGHEST_PROTOCOL)
        given.seek(0)
        process = subprocess.Popen(  # noqa: S603 - this module
            [sys.executable, "-P", "-m", __name__], stdin=given, stdout=found, stderr=said, env=_environment()
        )
        try:
            _wait(process)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise Unavailable(f"the process that fits a classifier ended with status {process.returncode}: {last}")
        found.seek(0)
        head: FittedHead = pickle.load(found)  # noqa: S301 - of our own process
    return head


def _wait(process: subprocess.Popen[bytes]) -> None:
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return
        require_wanted()


def _environment() -> dict[str, str]:
    threads = str(max(1, usable_cores() // _BESIDE))
    return {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}


def _main() -> None:
    os.nice(_NICE)
    (vectors, targets), options = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
    pickle.dump(fit_head(vectors, targets, **options), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    _main()
