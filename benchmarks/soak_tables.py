"""The table of docs/reliability.md: what happened to requests and jobs under each fault."""

from benchmarks.soak.schedule import CALM, FAULTS
from benchmarks.tables import Result, about, table

_HEAD = ("", "times", "requests", "jobs", "tried again", "job failed, retryable", "job gone", "wrong", "lost")


def soak_section(result: Result) -> str:
    """Circumstances, the table, what was at rest, and the verdict."""
    rows = [[*_HEAD, "small texts, p50 / p99", "felt for at most"], *(_row(row) for row in result["rows"])]
    return f"{about(result)} {_circumstances(result)}\n\n{table(rows)}\n\n{_verdict(result)}"


def _row(row: Result) -> list[str]:
    calm = row["kind"] == CALM
    return [
        "no fault" if calm else FAULTS[row["kind"]].title,
        "" if calm else str(row["times"]),
        f"{row['requests']:,}",
        *(str(row[name]) for name in ("jobs", "tried_again", "failed", "gone", "wrong", "lost")),
        f"{row['text_p50_s'] * 1000:,.0f} / {row['text_p99_s'] * 1000:,.0f} ms",
        "" if calm else f"{row['recovery_s']:.1f} s",
    ]


def _circumstances(result: Result) -> str:
    options, totals = result["options"], result["totals"]
    requests = sum(sum(counts.values()) for counts in totals.values())
    parts = [f"{options['minutes']:g} minutes from seed {options['seed']}, {requests:,} requests and jobs"]
    parts += [f"{result['at_rest']['starts']} starts of a replica"]
    if result["left_out"]:
        parts += [f"left out on this machine: {', '.join(result['left_out'])}"]
    return f"{'; '.join(parts)}. The generator shares the machine."


def _verdict(result: Result) -> str:
    rest, options = result["at_rest"], result["options"]
    before, after = (
        max(each["resident_bytes"] for each in rest[name].values()) / 2**20 for name in ("before", "after")
    )
    memory = (
        f"Memory of a replica at rest: {before:,.0f} MiB at the beginning, {after:,.0f} MiB at the end. "
        f"{rest['fresh_texts_compared']} texts that were sent once were computed again alone, without a cache."
    )
    if result["passed"]:
        bound = f"the p99 of small texts without a fault within {options['text_p99_s']:g} s"
        return f"Nothing lost, nothing wrong, nothing stuck or left over; {bound}. {memory}"
    broken = ", ".join(f"{rule} {count}" for rule, count in result["rules_broken"].items())
    return f"**Did not pass**: {broken}. {memory}"
