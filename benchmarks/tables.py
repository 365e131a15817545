"""Common parts of result sections: the circumstances of a measurement, and Markdown tables."""

from collections.abc import Mapping, Sequence
from typing import Any

# A result is JSON written by a benchmark; Any is what json.loads gives.
Result = Mapping[str, Any]


def about(result: Result, circumstances: str = "") -> str:
    """Day, commit, machine, versions and command; ``circumstances`` follows the machine and begins with a comma."""
    machine, versions = result["machine"], result["versions"]
    flags = ", ".join(machine["cpu_flags"])
    return (
        f"Measured {result['started'][:10]} at commit `{result['commit']}` on {machine['cores']} cores of "
        f"{machine['cpu']} ({flags}){circumstances}; Python {versions['python']}, "
        f"torch {versions['torch']}; `{result['command']}`."
    )


def spread_cell(values: Mapping[str, float], unit: str = "", digits: str = ".2f") -> str:
    """The median, and the extremes in brackets where there are several."""
    extremes = f" ({values['min']:{digits}}-{values['max']:{digits}})" if values["n"] > 1 else ""
    return f"{values['median']:{digits}}{unit}{extremes}"


def mib(count: float) -> str:
    """Bytes in MiB."""
    return f"{count / 2**20:,.0f} MiB"


def faults(title: str, reasons: Mapping[str, str]) -> list[str]:
    """What failed or was not measured, and why, as a section; none where there is nothing."""
    return [f"{title}: {'; '.join(f'{name}: {why}' for name, why in reasons.items())}"] if reasons else []


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is the head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
