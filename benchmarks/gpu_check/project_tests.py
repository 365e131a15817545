"""The project's own tests with ``--device``: which pass, which fail."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.context import Context, NotPossible
from benchmarks.machine import ROOT

_FOLDERS = ("device", "models", "lanes", "serving", "gpu_toolkit", "training")  # those that run on a device
_FEW = ("device/test_batch_split.py",)
# What machines with a card often lack: only packages that the device does not need.
_ABSENT = {"openvino": "openvino", "kornia": "kornia", "redis": "redis"}  # module -> word in the tests' names
_FAILURES = 60  # of which the result has the names
_ONE_TEST_S = 120


def measure(context: Context) -> dict[str, Any]:
    """Counts, and what failed with the first line of why. Raises: NotPossible without pytest."""
    if find_spec("pytest") is None:
        raise NotPossible("pytest is not installed: make install-dev brings it")
    absent = [word for module, word in _ABSENT.items() if find_spec(module) is None]
    result: dict[str, Any] = {"left_out": absent, "passed": 0, "failed": 0, "skipped": 0, "failures": [], "faults": []}
    for folder in _FEW if context.is_small else _FOLDERS:  # one by one: what a folder lacks costs that folder alone
        try:
            found = _run(folder, absent, context)
        except RuntimeError as error:
            result["faults"].append(str(error))
        else:
            result |= {name: result[name] + found[name] for name in ("passed", "failed", "skipped", "failures")}
        context.keep(result)
    return result


def _run(folder: str, absent: list[str], context: Context) -> dict[str, Any]:
    """One folder's counts. Raises: RuntimeError where pytest itself fails."""
    report = context.folder / f"{Path(folder).name}.xml"
    command = [sys.executable, "-m", "pytest", f"tests/{folder}", f"--device={context.device}", "-q"]
    command += [f"--junitxml={report}"]
    command += ["-p", "no:cacheprovider", "--continue-on-collection-errors", *_plugins()]
    # Another torch or pytest than constraints.txt has warns of other things.
    command += ["-o", "minversion=1", "-o", "addopts=--import-mode=importlib", "-W", "default"]
    command += ["-k", " and ".join(f"not {word}" for word in absent)] if absent else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    completed = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if not report.exists():
        raise RuntimeError(f"{folder}: pytest wrote no report, exit status {completed.returncode}")
    return counts(report)


def _plugins() -> list[str]:
    """A limit for each test, and several processes, where the plugins are there."""
    options = []
    if find_spec("pytest_timeout") is not None:
        options += ["--timeout", str(_ONE_TEST_S)]
    if find_spec("xdist") is not None and (os.cpu_count() or 1) > 2:
        options += ["-n", str(min(8, (os.cpu_count() or 1) // 2))]
    return options


def counts(report: Path) -> dict[str, Any]:
    """Passed, failed and skipped tests of a JUnit report, and the names of those that failed."""
    cases = list(ET.parse(report).iter("testcase"))
    failures = [_failure(case) for case in cases if _outcome(case) == "failed"]
    outcomes: Sequence[str] = [_outcome(case) for case in cases]
    tally = {name: outcomes.count(name) for name in ("passed", "failed", "skipped")}
    return {**tally, "failures": failures[:_FAILURES]}


def _outcome(case: ET.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def _failure(case: ET.Element) -> str:
    fault = next(child for child in case if child.tag in ("failure", "error"))
    why = (fault.get("message") or "").strip().splitlines()
    return f"{case.get('classname', '')}::{case.get('name', '')}: {why[0][:200] if why else ''}"
