"""Tables of the check of a card and of the device table: what was measured, what was reached, and what was not."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu_check.targets import NONE, verdicts
from benchmarks.tables import Result, about, table

NO_CARD = (
    "No line of this has been measured on a card yet: `make gpu-check` on a machine with one fills this section, and "
    "until then every number about cards is a target."
)
_SECTION = "[the benchmarks](docs/benchmarks.md#on-a-gpu)"
_NOT_MEASURED, _EMPTY = "not measured", "-"


def gpu_section(results: Sequence[Result]) -> str:
    """The targets of every card measured, and the tables of each; the targets alone where there is none."""
    if not results:
        return f"{NO_CARD}\n\n{_target_table([], verdicts({}))}"
    named = [(str(result["device_name"]), result) for result in results]
    parts = [_target_table([name for name, _ in named], *(result["targets"] for _, result in named))]
    for name, result in named:
        parts += [f"### {name}", _about_card(result), *_tables(result)]
    return "\n\n".join(parts)


def gpu_state(results: Sequence[Result]) -> str:
    """One sentence for the README: which cards were measured, and how many targets each met."""
    if not results:
        return f"No line of it has run on a card yet: `make gpu-check` measures one; what it should reach: {_SECTION}."
    cards = "; ".join(_state(result) for result in results)
    return f"Measured on {cards} ({_SECTION}); `make gpu-check` measures yours."


def _state(result: Result) -> str:
    counts = {name: [row["verdict"] for row in result["targets"]].count(name) for name in ("met", "missed")}
    left = len(result["targets"]) - sum(counts.values())
    rest = f", {left} not measured" if left else ""
    return f"{result['device_name']}: {counts['met']} targets met, {counts['missed']} missed{rest}"


def _target_table(names: Sequence[str], *verdict_lists: Sequence[Mapping[str, Any]]) -> str:
    rows = [["target", "to reach", *(names or ["a card"])]]
    rows += [
        [lines[0]["target"], lines[0]["to_reach"], *(_reached(line) for line in lines)]
        for lines in zip(*verdict_lists, strict=True)
    ]
    return table(rows)


def _reached(row: Mapping[str, Any]) -> str:
    if row["reached"] is None:
        return _NOT_MEASURED
    return f"{row['reached']:,.5g}{_unit(row['unit'])} ({row['verdict']})"


def _unit(unit: str) -> str:
    return unit if unit in ("", "x") else f" {unit}"


def _about_card(result: Result) -> str:
    parts = result["parts"]
    card = (parts.get("card") or {}).get("result") or {}
    told = [
        f"driver {card['driver']}" if card.get("driver") else "",
        f"CUDA {card['cuda']}" if card.get("cuda") else "",
    ]
    rates = (parts.get("rates") or {}).get("result") or {}
    matrix = rates.get("matrix_tflop_per_s", {})
    told += [f"bf16 products {matrix['bf16']:,.0f} TFLOP/s" if "bf16" in matrix else ""]
    not_done = [f"{name} ({record['status']})" for name, record in parts.items() if record["status"] != "done"]
    left = f" Not measured to the end: {', '.join(not_done)}." if not_done else ""
    circumstances = " ".join([f" with {result['device_name']}", *(f", {each}" for each in told if each)])
    return about(result, circumstances.replace(" ,", ",")) + left


def _tables(result: Result) -> list[str]:
    tables = []
    for name, write in (
        ("encoders", _encoder_table),
        ("shapes", _shape_table),
        ("queueing", _queueing_table),
        ("process", _process_table),
        ("http", _http_table),
        ("memory", _memory_table),
        ("training", training_table),
        ("devices", device_table),
    ):
        measured = (result["parts"].get(name) or {}).get("result")
        if measured and measured.get("table" if name == "memory" else "rows"):
            tables.append(write(measured))
        if measured and measured.get("faults") and name not in ("training", "devices"):
            faults = "; ".join(f"{each}: {why}" for each, why in measured["faults"].items())
            tables.append(f"Failed in `{name}`: {faults}")
    return tables


def _encoder_table(measured: Result) -> str:
    rows = [["encoder alone", "runtime", "texts", "tokens/s", "of the matrix rate", "batch"]]
    for row in measured["rows"]:
        spread = f"{row['tokens_per_s'] / 1e3:,.0f} k ({row['least'] / 1e3:,.0f}-{row['most'] / 1e3:,.0f})"
        share = f"{row['matrix_share']:.0%}"
        rows.append([row["model"], row["runtime"], row["texts"], spread, share, f"{row['budget']:,} tokens"])
    for row in measured["lone"]:
        lone = f"one of {row['tokens']} tokens"
        rows.append([row["model"], row["runtime"], lone, f"p50 {row['p50_ms']:.2f} ms", _EMPTY, "alone"])
    return table(rows)


def _shape_table(measured: Result) -> str:
    rows = [["a batch of 64 texts", "attention", "a new shape", "the same shape again"]]
    for row in measured["rows"]:
        times = [f"{row[key]['median']:.1f} ms" for key in ("new_ms", "seen_ms")] if "new_ms" in row else ["", ""]
        rows.append([row["runtime"], row["kernels"], *(times if times[0] else [f"does not run: {row['fault']}", ""])])
    return table(rows)


def _queueing_table(measured: Result) -> str:
    head = [
        "queueing",
        "graphs",
        "one text alone, p50 by tokens",
        "queued behind 28 ms of work",
        "first of two batches",
    ]
    rows = [[*head, "alone against among others, cosine"]]
    for row in measured["rows"]:
        if "lone" in row:
            name = f"{row['runtime']} ({row['attention']})" if row["attention"] else row["runtime"]
            lone = ", ".join(f"{each['tokens']}: {each['p50_ms']:.2f} ms" for each in row["lone"])
            queued = f"{row['queue_behind_work_ms']:.2f} ms" if "queue_behind_work_ms" in row else _EMPTY
            queued += f", waits: {row['synchronises']}" if row.get("synchronises") else ""
            two = f"{row['first_of_two_ms']:.1f} ms of {row['both_ms']:.1f} ms" if "both_ms" in row else _EMPTY
            graphs = f"none: {row['graph_fault']}" if row["graph_fault"] else str(row["graphs"])
            rows.append([name, graphs, lone, queued, two, f"{row['lone_cosine']:.5f}"])
    return table(rows)


def _process_table(measured: Result) -> str:
    rows = [["in one process, no HTTP", "encoder", "texts", "texts/s", "tokens/s"]]
    for row in measured["rows"]:
        rate = f"{row['texts_per_s']:,.0f} ({row['least']:,.0f}-{row['most']:,.0f})"
        rows.append([row["encoder"], row["model"], row["texts"], rate, f"{row['tokens_per_s'] / 1e3:,.0f} k"])
    return table(rows)


def _http_table(measured: Result) -> str:
    rows = [["over HTTP", "SERVER_PROCESSES", "texts/s", "tokens/s", "p50", "p99"]]
    for row in measured["rows"]:
        if "tokens_per_s" in row:
            times = [f"{1000 * row[key]:,.2f} ms" for key in ("p50_s", "p99_s")]
            rates = [f"{row['texts_per_s']:,.0f}", f"{row['tokens_per_s'] / 1e3:,.0f} k"]
            rows.append([f"{row['model']}, {row['load']}", str(row["processes"]), *rates, *times])
    return table(rows)


def _memory_table(measured: Result) -> str:
    rows = [["memory of a batch", "texts", "foreseen", "real", "foreseen / real"]]
    for row in measured["table"]:
        foreseen, real = row["foreseen_bytes"], row["measured_bytes"]
        kind = "half as long but one" if row["padded"] else "all as long"
        ratio = f"{foreseen / real:.2f}" if foreseen and real else _EMPTY
        cells = [f"{each / 2**20:,.0f} MiB" if each else _EMPTY for each in (foreseen, real)]
        rows.append([f"{row['runtime']}, {row['count']} x {row['length']} tokens", kind, *cells, ratio])
    return table(rows)


def training_table(measured: Result) -> str:
    """Each option against none: speed, memory, loss."""
    rows = [["training option", "time of a step", "speed", "memory", f"loss after {measured['steps']} steps"]]
    none = next((row for row in measured["rows"] if row["option"] == NONE), None)
    for row in measured["rows"]:
        step, memory = row["step_s"], row["memory_bytes"]
        speed = f"{none['step_s']['median'] / step['median']:.2f}x" if none else _EMPTY
        cell = f"{memory / 2**20:,.0f} MiB" if memory else _EMPTY
        if memory and none and none["memory_bytes"]:
            cell += f" ({memory / none['memory_bytes'] - 1:+.0%})"
        rows.append([row["option"], f"{1000 * step['median']:,.1f} ms", speed, cell, f"{row['loss']:.3f}"])
    rows += [[name, f"failed: {why}", "", "", ""] for name, why in measured.get("faults", {}).items()]
    return table(rows)


def device_table(measured: Result) -> str:
    """Seconds of each task on each device; a card's ratio to the CPU behind its seconds."""
    devices = list(measured["on"])
    names = measured.get("cards", {})
    absent = not any(device != "cpu" for device in devices)
    rows = [["task", *(names.get(device, device) for device in devices), *(["a card"] if absent else [])]]
    for row in measured["rows"]:
        cells = [_device_cell(row, device) for device in devices]
        rows.append([row["title"], *cells, *([_NOT_MEASURED] if absent else [])])
    return table(rows)


def _device_cell(row: Mapping[str, Any], device: str) -> str:
    seconds, ratio = row["seconds"].get(device), row["ratios"].get(device)
    if seconds is None:
        return _NOT_MEASURED
    spread = f" ({seconds['min']:.2f}-{seconds['max']:.2f})" if seconds["n"] > 1 else ""
    faster = f", {ratio['median']:.1f}x" if ratio else ""
    return f"{seconds['median']:.2f} s{spread}{faster}"


def devices_section(result: Result) -> str:
    """The device table of a run of benchmarks/devices.py, and the training options of each device."""
    parts = [f"{about(result)} Medians, in brackets the extremes of the rounds.", device_table(result)]
    for measured in result.get("training", ()):
        if measured["rows"]:
            name = result["cards"].get(measured["device"], measured["device"])
            parts += [f"Training on {name}, batches of {measured['workload']['batch_size']} texts:"]
            parts += [training_table(measured)]
    if result.get("faults"):
        parts.append(f"Not measured: {'; '.join(f'{name}: {why}' for name, why in result['faults'].items())}")
    return "\n\n".join(parts)
