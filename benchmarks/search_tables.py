"""Tables of the search benchmark, and missed goals."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.tables import Result, about, faults, mib, table

_NAMES = {
    "ours": "**FinancIA Inference**",
    "txtai": "txtai{} (SQLite, faiss, hybrid)",
    "chromadb": "chromadb{}, persistent client (HNSW)",
    "qdrant": "qdrant-client{}, local mode",
}
_MODES = ("vector", "keyword", "hybrid")
_KEPT = ", 1 % kept"
_MAX_P50_S, _GOAL_CHUNKS = 0.015, 100_000
_MIN_RECALL = 0.98
_MAX_BYTES_A_CHUNK = 2 * 2**30 / 1_000_000
_MIN_SHARE = 0.8
_EMPTY = "-"


def search_section(result: Result) -> str:
    """All tables of a run."""
    load = result["load_average_1min"]
    sections = [
        f"{about(result)} Load of the machine at the start: {load}. Medians of rounds; seconds are of one query."
    ]
    for part, facts in result.get("later", {}).items():
        sections.append(f"Of {part}: {about(facts)} Load at the start: {facts['load_average_1min']}.")
    if sizes := result.get("sizes"):
        sections += ["The embedded storage alone, vectors given, ten hits with their texts:", table(_size_rows(sizes))]
    if "search" in result.get("service", {}):
        sections.append(_service(result["service"]))
    if "files" in result.get("adding", {}):
        title = f"{result['adding']['texts']:,} paragraphs added through the service, beside embedding their chunks:"
        sections += [title, table(_adding_rows(result["adding"]))]
    for size, rows in result.get("peers", {}).items():
        title = f"{int(size):,} chunks in each store, the same vectors, one process each:"
        sections += [title, table(_peer_rows(rows))]
    if crashes := result.get("crash"):
        sections += ["Killed (SIGKILL) in the middle of adding, batches of 100 chunks:", table(_crash_rows(crashes))]
    if names := missed(result):
        sections.append(f"Missed: {'; '.join(names)}.")
    return "\n\n".join([*sections, *faults("Not measured", result["unmeasured"])])


def missed(result: Result) -> list[str]:
    """The missed goals, each as a phrase."""
    return [name for name, is_reached in _goals(result) if not is_reached]


def _goals(result: Result) -> Iterator[tuple[str, bool]]:
    for size, row in result.get("sizes", {}).items():
        chunks = int(size)
        yield (f"recall {_MIN_RECALL} at {chunks:,} chunks", min(row["recall"], row["recall_filtered"]) >= _MIN_RECALL)
        if chunks == _GOAL_CHUNKS:
            p50_s = row["searches"]["hybrid"]["p50_s"]["median"]
            yield f"hybrid p50 {_MAX_P50_S * 1000:.0f} ms at {chunks:,} chunks", p50_s <= _MAX_P50_S
        if chunks > _GOAL_CHUNKS:
            most = max(_MAX_BYTES_A_CHUNK * chunks, 2**30)
            yield f"{_gib(most)} resident at {chunks:,} chunks", row["memory"]["peak_bytes"] <= most
    for way, row in result.get("adding", {}).items():
        if way != "texts":
            yield f"{_MIN_SHARE:.0%} of bare embedding, {way}", row["share"]["median"] >= _MIN_SHARE


def _size_rows(sizes: Mapping[str, Any]) -> list[list[str]]:
    head = ["chunks", *(f"{mode}, p50 / p95" for mode in _MODES), *(f"{mode}{_KEPT}" for mode in _MODES)]
    rows = [[*head, "recall at 10, filtered", "resident", "peak", "disk", "open and first answer", "added"]]
    for size, row in sizes.items():
        searches = row["searches"]
        times = [_times(searches.get(f"{mode}{suffix}")) for suffix in ("", _KEPT) for mode in _MODES]
        cells = [f"{row['recall']:.4f}, {row['recall_filtered']:.4f}", *_sizes(row), _seconds(row["first_answer_s"])]
        rows.append([f"{int(size):,}", *times, *cells, _rate(row)])
    return rows


def _sizes(row: Mapping[str, Any]) -> list[str]:
    memory = row["memory"]
    return [mib(memory["resident_bytes"]), mib(memory["peak_bytes"]), mib(row["disk_bytes"])]


def _rate(row: Mapping[str, Any]) -> str:
    return f"{row['adding']['chunks_per_s']:,.0f}/s" if "adding" in row else _EMPTY


def _service(service: Mapping[str, Any]) -> str:
    times = [_times(service[name]) for name in ("search", f"search{_KEPT}")]
    return (
        f"`SearchService` over {service['chunks']:,} chunks, by a text, its embedding included, ten hits with their "
        f"highlights, p50 / p95: {times[0]}; under a filter that keeps 1 %: {times[1]}."
    )


def _adding_rows(adding: Mapping[str, Any]) -> list[list[str]]:
    alone = ["embedding alone", "of bare embedding speed", "entities alone", "of both models' speed"]
    rows = [["as", "chunks", "indexed", "chunks/s", *alone, "uploading before"]]
    for way, row in adding.items():
        if way == "texts":
            continue
        share = row["share"]
        reached = "" if share["median"] >= _MIN_SHARE else ", missed"
        cells = [f"{row['index_s']['median']:.1f} s", f"{row['chunks_per_s']['median']:,.0f}/s"]
        cells += [f"{row['embed_s']['median']:.1f} s"]
        cells += [f"{share['median']:.0%} ({share['min']:.0%}-{share['max']:.0%}; goal {_MIN_SHARE:.0%}{reached})"]
        cells += [f"{row['entities_s']['median']:.1f} s", f"{row['models_share']['median']:.0%}"]
        rows.append([way, f"{row['chunks']['median']:,.0f}", *cells, f"{row['upload_s']['median']:.1f} s"])
    return rows


def _peer_rows(peers: Mapping[str, Any]) -> list[list[str]]:
    head = ["", "added", "vector, p50 / p95", "hybrid, p50 / p95", f"vector{_KEPT}", "recall at 10, filtered"]
    rows = [[*head, "hits under a 0.1 % filter, of those there", "resident", "peak", "disk", "open and first answer"]]
    for name, row in peers.items():
        searches, filtered = row["searches"], row["under_filter"]
        times = [_times(searches.get(mode)) for mode in ("vector", "hybrid", f"vector{_KEPT}")]
        cells = [f"{row['recall']:.4f}, {row['recall_filtered']:.4f}"]
        cells += [f"{filtered['mean']:.1f} of {filtered['there']} (least {filtered['least']})", *_sizes(row)]
        rows.append([_name(name, row), _rate(row), *times, *cells, _seconds(row["first_answer_s"])])
    return rows


def _crash_rows(crashes: Mapping[str, Any]) -> list[list[str]]:
    rows = [["", "processes killed", "did not open again", "lost acknowledged chunks", "chunks gone", "not found"]]
    for name, row in crashes.items():
        gone = f"{row['gone']:,} of {row['acknowledged']:,}"
        why = "".join(f" ({error})" for error in row["errors"])
        counts = [str(row["trials"]), f"{row['failed']}{why}", str(row["lost"]), gone, str(row["unfound"])]
        rows.append([_NAMES[name].format(""), *counts])
    return rows


def _name(name: str, row: Mapping[str, Any]) -> str:
    return _NAMES[name].format(f" {row['version']}")


def _times(times: Mapping[str, Any] | None) -> str:
    if times is None:
        return _EMPTY
    return f"{times['p50_s']['median'] * 1000:.1f} / {times['p95_s']['median'] * 1000:.1f} ms"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
