"""The tables of docs/kubernetes.md: what each threshold gives, and how well the model foresees the real service."""

from __future__ import annotations

from benchmarks.tables import Result, about, table


def scaling_section(result: Result) -> str:
    """Circumstances, both tables of rules, and the model beside the service."""
    shipped = result["chosen"]["name"]
    parts = [
        f"{about(result)} {_circumstances(result)}",
        table(_rows(result, "rules", "")),
        " ".join(f"{name.capitalize()}: {title}." for name, title in result["traces"].items()),
        f"The chosen rule ({shipped}) with one thing changed:",
        table(_rows(result, "variations", shipped)),
        _jobs(result),
        "The model beside the real service, one pod, texts that arrive at random:",
        table(_validation(result)),
    ]
    return "\n\n".join(parts)


def _circumstances(result: Result) -> str:
    replica, chosen, start_s = result["replica"], result["chosen"], result["assumed"]["start_s"]
    tokens = f"{replica['tokens_per_s']:,.0f} tokens/s"
    load_average = result["measured"]["facts"]["load_average_1min"]
    return (
        f"Rates were measured at a load average of {load_average:g}. "
        f"Simulated: one pod answers {replica['texts_per_s']:.0f} texts/s ({tokens}) or reads "
        f"{replica['pages_per_s']:.2f} scanned pages/s, and starts in {start_s:.0f} s; Prometheus scrapes every "
        f"{chosen['scrape_s']:g} s. At most ten pods; at least one in the first table, so that the whole way shows, "
        f"and {chosen['minimum']} in the second, where a row says nothing else. A cell: p99 / requests over "
        f"{result['bound_s']:g} s or refused / cost over the ideal; the worst of {_seeds(result)} seeds. **Bold**: at "
        f"most 1 % of requests late, at a cost of at most {result['cost_ratio']}."
    )


def _seeds(result: Result) -> int:
    return int(next(iter(result["rules"][0]["outcomes"].values()))["seeds"])


def _rows(result: Result, part: str, marked: str) -> list[list[str]]:
    rows = [["", *result["traces"], "pods changed in the office day"]]
    for row in result[part]:
        name = f"{row['name']} **(chosen: this is shipped)**" if row["name"] == marked else row["name"]
        cells = [_cell(row["outcomes"][trace]) for trace in result["traces"]]
        rows.append([name, *cells, str(row["outcomes"]["office"]["changes"])])
    return rows


def _cell(outcome: Result) -> str:
    p99_s, late = outcome["p99_s"], outcome["late_ratio"]
    text = f"{p99_s:.2f} s / {late:.1%} / {outcome['cost_ratio']:.2f}"
    return f"**{text}**" if outcome["reached"] else text


def _jobs(result: Result) -> str:
    night = result["variations"][0]["outcomes"]["night"]
    return (
        f"The thousand jobs of the night end after {night['jobs_done_s'] / 60:.0f} minutes with the chosen rule; "
        f"ten pods that were there at once would need {night['ideal_jobs_done_s'] / 60:.0f}."
    )


def _validation(result: Result) -> list[list[str]]:
    rows = [["requests/s", "p50 measured", "p50 foreseen", "p99 measured", "p99 foreseen"]]
    for row in result["foreseen"]:
        names = ("p50_s", "foreseen_p50_s", "p99_s", "foreseen_p99_s")
        rows.append([f"{row['requests_per_s']:.0f}", *(f"{row[name] * 1000:.0f} ms" for name in names)])
    return rows
