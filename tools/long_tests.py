"""Writes tests/long_tests.txt: what `make test` leaves to `make test-all`, by the times of a run.

    make test ARGS=--junitxml=times.xml && python -m tools.long_tests times.xml       # run beside nothing else

A test function is on the list if it takes more than 0.07 s on average over its parameters; it then counts as marked
slow. What is on the list already and was not run stays.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "long_tests.txt"
LONG_S = 0.07
NEVER = ("tests/test_service.py",)  # the one real start that `make test` has


def functions_of(report: Path) -> Mapping[str, float]:
    """Seconds by the id of a test function, without its parameters."""
    seconds: dict[str, list[float]] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        function = _id_of(case.attrib["classname"], case.attrib["name"].partition("[")[0])
        seconds.setdefault(function, []).append(float(case.attrib["time"]))
    return {function: mean(times) for function, times in seconds.items()}


def listed(old: Iterable[str], seconds: Mapping[str, float]) -> Iterator[str]:
    """The ids of the new list, in order."""
    kept = {function for function in old if function not in seconds}
    long = {function for function, took_s in seconds.items() if took_s > LONG_S and not function.startswith(NEVER)}
    yield from sorted(kept | long)


def _id_of(classname: str, function: str) -> str:
    """As pytest has it: ``tests.api.test_x.TestY`` and ``test_z`` are tests/api/test_x.py::TestY::test_z."""
    parts = classname.split(".")
    while parts and not (ROOT / Path(*parts).with_suffix(".py")).is_file():
        parts.pop()
    classes = classname.split(".")[len(parts) :]
    return "::".join((f"{'/'.join(parts)}.py", *classes, function))


def main() -> None:
    """From the report that the first argument names."""
    old = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    functions = list(listed(old, functions_of(Path(sys.argv[1]))))
    FILE.write_text("".join(f"{function}\n" for function in functions), encoding="utf-8")
    print(f"{len(functions)} test functions in {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
