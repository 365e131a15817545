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


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is the head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
