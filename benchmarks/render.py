"""Writes the tables of docs/ and of the bundled models' cards from the results.

python -m benchmarks.render            # rewrite the tables between their markers
python -m benchmarks.render --check    # exit status 1 when a table is not the one its result gives
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backend.models.runtimes import fastest_known
from benchmarks.fields_tables import fields_section
from benchmarks.gpu_tables import devices_section, gpu_section, gpu_state
from benchmarks.ocr_tables import memory_section, ocr_section
from benchmarks.peers import OTHER_ENCODERS, OURS
from benchmarks.quality_tables import (
    HEADS,
    NER,
    encoders_section,
    head_section,
    hybrid_search_section,
    names_section,
    quality_section,
)
from benchmarks.search_tables import search_section
from benchmarks.soak_tables import soak_section
from benchmarks.speech_tables import speech_section
from benchmarks.tables import Result, about, spread_cell, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"

NAMES = {
    OURS: "**FinancIA Inference**",
    "fastapi": "sentence-transformers behind FastAPI",
    "infinity-fp32": "infinity 0.0.78, fp32",
    "infinity-bf16": "infinity 0.0.78, bf16",
    "infinity-bf16-b8": "infinity 0.0.78, bf16, batches of 8",
    "infinity-int8": "infinity 0.0.78, int8",
    "ours-fast": "`EMBEDDING_MODEL=bundled-fast`",
    "ours-static": "`EMBEDDING_MODEL=bundled-static`",
    "ours-minilm": "`EMBEDDING_MODEL=minilm`",
    "ours-cached": "FinancIA Inference, cached",
    "constant-ours": "constant route in the same app",
    "constant-bare": "constant route in a bare FastAPI app",
}
_MEDIANS = "Medians, in brackets the extremes of the rounds."
_EMPTY = "-"
_MIN_SPEARMAN = 0.995
_CLOSED = ("one_text_32_clients", "32_texts_4_clients")
_SPANISH = tuple(f"spanish_{load}" for load in _CLOSED)


def http_section(results: Sequence[Result]) -> str:
    """A row for each kind of processor, then all tables of the run over HTTP with most servers, the newest of these."""
    newest_first = sorted(results, key=lambda result: str(result["started"]), reverse=True)
    result = max(newest_first, key=lambda result: len(_peers(result)))
    sections = [
        "The newest run on each kind of processor, all with two cores; which of the others was best differs with it:",
        table(_processor_rows(newest_first)),
        _about(result),
        table(_peer_rows(result)),
        "Open loop (one text a request, due by a clock; latency counts from when it was due), p50 / p99:",
        table(_open_rows(result)),
    ]
    if others := _encoders(result):
        sections += [
            "The encoders of this service (Spanish: every text is Spanish; Spearman to each one's own float32):",
            table(_encoder_rows(result, others)),
        ]
    if "ours-cached" in result["summary"]:
        sections += ["Cache (one text a request, 32 clients):", table(_cache_rows(result))]
    return "\n\n".join(sections)


SECTIONS: Mapping[str, tuple[str, Callable[[Result], str]]] = {  # section -> the result's name, its text
    "devices": ("devices", devices_section),
    "ocr": ("ocr", ocr_section),
    "fields": ("fields", fields_section),
    "soak": ("soak", soak_section),
    "ocr-memory": ("ocr_memory", memory_section),
    "quality": ("quality", quality_section),
    f"quality-{NER}": ("quality", names_section),
    "search": ("search", search_section),
    "search-quality": ("search_quality", hybrid_search_section),
    "speech": ("speech", speech_section),
    **{f"quality-{name}": ("quality", partial(head_section, name=name)) for name in HEADS},
}
# Sections of all results of a folder, also of none: they say what is not measured.
FOLDER_SECTIONS: Mapping[str, tuple[str, Callable[[Sequence[Result]], str]]] = {
    "http": ("http", http_section),
    "encoders": ("encoders", encoders_section),
    "gpu": ("gpu", gpu_section),
    "gpu-state": ("gpu", gpu_state),
}
CARDS = ROOT / "backend" / "models" / "bundled"
_DOCUMENTS = ("benchmarks", "fields", "reliability")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in _DOCUMENTS), *sorted(CARDS.glob("*/README.md")))


def _about(result: Result) -> str:
    return f"{about(result, ', which the load generator shares')} {_MEDIANS}"


def _peer_rows(result: Result) -> list[list[str]]:
    head = ["", "one text, 32 clients", "32 texts, 4 clients", "one client, p50", "start to ready", "idle memory"]
    rows = [[*head, "cosine to fp32, worst", "Spearman"]]
    rows += [_peer_row(result, peer) for peer in _peers(result)]
    return [*rows, _ratios(result)] if OURS in _peers(result) and len(_peers(result)) > 1 else rows


def _processor(machine: Mapping[str, Any]) -> str:
    kind, limit = fastest_known(machine["cpu_flags"])[0] or "other", machine.get("cpu_limit")
    name = f"{machine['cpu']}, family {machine['cpu_family_model']}"
    return f"{limit} simulated on {kind} ({name})" if limit else f"{kind} ({name})"


def _processor_rows(results: Sequence[Result]) -> list[list[str]]:
    encoders = ("the default", "`bundled-fast`")
    rates = [f"{encoder}, {load}" for encoder in encoders for load in ("1 x 32", "32 x 4")]
    rows = [["processor", "measured", *rates, "best of the others", "default against them", "one client, p50"]]
    for result in results:
        machine = result["machine"]
        ours = [_rate(result["summary"].get(peer, {}).get(load)) for peer in (OURS, "ours-fast") for load in _CLOSED]
        best = " and ".join(f"{_best_of_others(result, load):,.0f}/s" for load in _CLOSED)
        _, one, batch, p50, *_ = _ratios(result)
        rows.append([_processor(machine), str(result["started"])[:10], *ours, best, f"{one} and {batch}", p50])
    return rows


def _best_of_others(result: Result, load: str) -> float:
    """Texts/s of the best server of the same weights that is faithful to float32."""
    others = [peer for peer in _peers(result) if peer != OURS and _is_faithful(result, peer)]
    return max(float(result["summary"][peer][load]["texts_per_s"]["median"]) for peer in others)


def _peer_row(result: Result, peer: str) -> list[str]:
    loads, start = result["summary"][peer], result["starts"].get(peer, {})
    accuracy = result["accuracy"].get(peer, {})
    return [
        NAMES.get(peer, peer),
        *(_rate(loads.get(load)) for load in _CLOSED),
        _milliseconds(loads.get("one_client"), "p50_s"),
        f"{start['ready_s']['median']:.1f} s" if "ready_s" in start else _EMPTY,
        f"{start['idle_bytes']['median'] / 2**30:.2f} GiB" if "idle_bytes" in start else _EMPTY,
        f"{accuracy['cosine_min']:.4f}" if accuracy else _EMPTY,
        f"{accuracy['spearman']:.4f}" if accuracy else _EMPTY,
    ]


def _ratios(result: Result) -> list[str]:
    """Ours relative to the best faithful peer, separately for each load."""
    summary = result["summary"]
    others = [peer for peer in _peers(result) if peer != OURS and _is_faithful(result, peer)]

    def median(peer: str, load: str, metric: str) -> float:
        return float(summary[peer][load][metric]["median"])

    best = {load: _best_of_others(result, load) for load in _CLOSED}
    rates = [f"{median(OURS, load, 'texts_per_s') / best[load]:.1f}x" if best[load] else _EMPTY for load in _CLOSED]
    own_p50_s = median(OURS, "one_client", "p50_s")  # 0 where nothing was answered within the window, as other numbers
    p50 = min(median(peer, "one_client", "p50_s") for peer in others) / own_p50_s if own_p50_s else 0.0
    return [
        f"against the best of the others (Spearman at least {_MIN_SPEARMAN})",
        *rates,
        f"1/{p50:.1f}" if p50 else _EMPTY,
        "",
        "",
        "",
        "",
    ]


def _is_faithful(result: Result, peer: str) -> bool:
    """Whether its similarities match float32's, by the limit of our own PRECISION=auto; unmeasured ones pass."""
    return float(result["accuracy"].get(peer, {}).get("spearman", 1.0)) >= _MIN_SPEARMAN


def _peers(result: Result) -> list[str]:
    """The servers of the same weights with all closed loops, in the order of the run."""
    return [peer for peer, loads in result["summary"].items() if "one_client" in loads and peer not in OTHER_ENCODERS]


def _encoders(result: Result) -> list[str]:
    """This service with its default encoder and with others; empty where no other took part."""
    others = [peer for peer in OTHER_ENCODERS if peer in result["summary"]]
    return [OURS, *others] if others and OURS in result["summary"] else []


def _encoder_rows(result: Result, peers: Sequence[str]) -> list[list[str]]:
    """A row per encoder, then the default's rates as multiples of each other's."""
    head = ["one text, 32 clients", "32 texts, 4 clients", "one client, p50"]
    head += ["one Spanish text, 32 clients", "32 Spanish texts, 4 clients"]
    rows = [["", *head, "start to ready", "idle memory", "Spearman"]]
    for peer in peers:
        name, one, batch, p50, ready, memory, _, spearman = _peer_row(result, peer)
        spanish = [_rate(result["summary"][peer].get(load)) for load in _SPANISH]
        rows.append([name, one, batch, p50, *spanish, ready, memory, spearman])
    return [*rows, *(_encoder_ratios(result, peer) for peer in peers if peer != OURS)]


def _encoder_ratios(result: Result, peer: str) -> list[str]:
    default, other = result["summary"][OURS], result["summary"][peer]

    def ratio(load: str, metric: str) -> str:
        if load not in default or not other.get(load, {}).get(metric, {}).get("median"):
            return _EMPTY  # not measured, or nothing was answered within the window
        return f"{default[load][metric]['median'] / other[load][metric]['median']:.2f}x"

    rates = [ratio(load, "texts_per_s") for load in (*_CLOSED, *_SPANISH)]
    name = f"the default against {NAMES[peer]}"
    return [name, *rates[:2], ratio("one_client", "p50_s"), *rates[2:], "", "", ""]


def _open_rows(result: Result) -> list[list[str]]:
    loads = [f"open_{rate}_per_s" for rate in result["effort"]["rates_per_s"]]
    rows = [["requests/s", *(str(rate) for rate in result["effort"]["rates_per_s"])]]
    rows += [
        [NAMES.get(peer, peer), *(_open_cell(result["summary"][peer].get(load)) for load in loads)]
        for peer in _peers(result)
    ]
    return rows


def _open_cell(load: Result | None) -> str:
    """Both percentiles; the latency of an overrun server grows with the duration of the load, so it is not shown."""
    if load is None or load["unfinished"]["median"] > 0:
        return "overrun"
    return f"{_time(load['p50_s']['median'])} / {_time(load['p99_s']['median'])}"


def _cache_rows(result: Result) -> list[list[str]]:
    rows = [["", "texts seen before", "requests/s", "p50", "p99"]]
    for peer in ("ours-cached", "constant-ours", "constant-bare"):
        for load, values in result["summary"].get(peer, {}).items():
            share = load.removeprefix("hits_").removesuffix("_percent") + " %" if peer == "ours-cached" else _EMPTY
            times = (_time(values[metric]["median"]) for metric in ("p50_s", "p99_s"))
            rows.append([NAMES[peer], share, _rate(values), *times])
    return rows


def _rate(load: Result | None) -> str:
    if load is None:
        return _EMPTY
    return spread_cell(load["texts_per_s"], "/s", ",.0f")


def _milliseconds(load: Result | None, metric: str) -> str:
    return _EMPTY if load is None else _time(load[metric]["median"])


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds * 1000:,.0f} ms"


def rendered(page: str, sections: Mapping[str, str], *, by: str = "benchmarks") -> str:
    """Replace the text between the markers of each section; a page without markers is unchanged.

    Markers that stand in one line hold a sentence of a paragraph; they begin with who writes it.
    """
    for name, text in sections.items():
        begin, end = f"<!-- {by}:{name}:begin -->", f"<!-- {by}:{name}:end -->"
        before, opened, remainder = page.partition(begin)
        between, closed, after = remainder.partition(end)
        if opened and closed and "\n" not in between:
            page = f"{before}{begin}{text}{end}{after}"
        elif opened and closed:
            page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page


def main() -> None:
    """Rewrite or check the pages; sections whose result file is missing are unchanged."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the page is stale")
    flags = parser.parse_args()
    files = {name: RESULTS / f"{name}.json" for name, _ in SECTIONS.values()}
    results = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}
    sections = {section: write(results[name]) for section, (name, write) in SECTIONS.items() if name in results}
    for section, (folder, write_all) in FOLDER_SECTIONS.items():
        paths = sorted((RESULTS / folder).glob("*.json"))
        sections[section] = write_all([json.loads(path.read_text(encoding="utf-8")) for path in paths])
    for file in PAGES:
        page = file.read_text(encoding="utf-8")
        new_page = rendered(page, sections)
        if flags.check and new_page != page:
            sys.exit(f"{file} is stale: run python -m benchmarks.render")
        if not flags.check:
            file.write_text(new_page, encoding="utf-8")


if __name__ == "__main__":
    main()
