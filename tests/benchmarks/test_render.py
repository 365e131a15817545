"""The README's tables come from the results and from nothing else."""

import json
import sys

import pytest

from benchmarks import render
from benchmarks.load import Report
from benchmarks.results import Load, Results, Start

RATIOS = "against the best of the others (Spearman at least 0.995)"
ABOUT = {
    "machine": {"cpu": "Some CPU", "cpu_flags": ["avx2"], "cores": 2},
    "versions": {"python": "3.11.2", "torch": "2.13.0"},
    "commit": "abc",
    "command": "python -m benchmarks.http",
    "started": "2026-01-02T03:04:05+00:00",
}


def report(texts_per_s, p50_s, *, unfinished=0, statuses=None):
    """A report with only the numbers the tables show."""
    return Report(
        requests_per_s=texts_per_s,
        texts_per_s=texts_per_s,
        p50_s=p50_s,
        p95_s=p50_s * 2,
        p99_s=p50_s * 3,
        max_s=p50_s * 4,
        requests=100,
        span_s=1.0,
        statuses=statuses or {"200": 100},
        unfinished=unfinished,
        lag_p99_s=0.0,
        generator_cpu_s=0.01,
        generator_cpu_ratio=0.005,
    )


@pytest.fixture
def result():
    """Two rounds of us and of one peer that three times 60 requests a second would overrun."""
    results = Results()
    for index, factor in enumerate((1.0, 1.5)):
        for peer, rate, p50_s in (("ours", 500, 0.002), ("infinity-bf16", 100, 0.012)):
            results.add(Load(peer, "one_text_32_clients", index, report(rate * factor, 32 / rate)))
            results.add(Load(peer, "32_texts_4_clients", index, report(rate * factor * 1.2, 1.0)))
            results.add(Load(peer, "one_client", index, report(1 / p50_s, p50_s)))
            results.add(Load(peer, "open_20_per_s", index, report(20, p50_s)))
            results.starts.append(Start(peer, index, 4.0, 2**30))
        results.add(Load("ours", "open_200_per_s", index, report(200, 0.003)))
        results.add(Load("infinity-bf16", "open_200_per_s", index, report(100, 1.5, unfinished=300)))
        results.add(Load("ours-cached", "hits_90_percent", index, report(3000, 0.008)))
        results.add(Load("constant-bare", "hits_100_percent", index, report(9000, 0.0031)))
    results.accuracy["ours"] = {"cosine_min": 0.9901, "spearman": 0.9987}
    return ABOUT | {"effort": {"rates_per_s": [20, 200]}} | json.loads(json.dumps(results.as_json()))


def rows(section, first_cell):
    """The cells of every row of ``section`` whose first cell is ``first_cell``."""
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [cells for cells in lines if cells[0] == first_cell]


def test_a_row_shows_medians_with_their_spread(result):
    """Rates carry the extremes of the rounds; memory, start and accuracy stand beside them."""
    ours, *_ = rows(render.http_section(result), "**FinancIA Inference**")

    assert ["625/s (500-750)", "750/s (600-900)", "2 ms", "4.0 s", "1.00 GiB", "0.9901", "0.9987"] == ours[1:]


def test_ratios_are_against_the_best_peer(result):
    """The last row compares with the best peer of each load."""
    (ratios,) = rows(render.http_section(result), RATIOS)

    assert ["5.0x", "5.0x", "1/6.0"] == ratios[1:4]


@pytest.mark.parametrize(("spearman", "first"), [(0.9951, "2.5x"), (0.951, "5.0x")])
def test_a_peer_with_other_vectors_sets_no_bar(result, spearman, first):
    """Speed without fidelity is shown in its row, but does not count as the best of the others."""
    fast = json.loads(json.dumps(result["summary"]["infinity-bf16"]))
    fast["one_text_32_clients"]["texts_per_s"]["median"] *= 2
    result["summary"]["infinity-int8"] = fast
    result["accuracy"]["infinity-int8"] = {"cosine_min": 0.82, "spearman": spearman}

    (ratios,) = rows(render.http_section(result), RATIOS)

    assert first == ratios[1]


def test_other_encoders_have_a_table_of_their_own(result):
    """The default's rates as multiples of another encoder's; the peers' table holds servers of the same weights."""
    summary = result["summary"]
    summary["ours"]["spanish_32_texts_4_clients"] = summary["ours"]["32_texts_4_clients"]
    summary["ours-minilm"] = {
        "one_text_32_clients": summary["infinity-bf16"]["one_text_32_clients"],
        "one_client": summary["infinity-bf16"]["one_client"],
        "spanish_32_texts_4_clients": summary["infinity-bf16"]["32_texts_4_clients"],
    }

    section = render.http_section(result)

    peers, _, encoders = section.partition("The encoders of this service")
    assert "minilm" not in peers
    (minilm,) = rows(encoders, "`EMBEDDING_MODEL=minilm`")
    assert ["125/s (100-150)", "-", "12 ms", "-", "150/s (120-180)"] == minilm[1:6]
    (ratios,) = rows(encoders, "the default against `EMBEDDING_MODEL=minilm`")
    assert ["5.00x", "-", "0.17x", "-", "5.00x"] == ratios[1:6]


def test_peers_that_answered_nothing_set_no_bar(result):
    """A load that only we answered within the window has no ratio; the others keep theirs."""
    summary = result["summary"]["infinity-bf16"]
    summary["32_texts_4_clients"]["texts_per_s"]["median"] = summary["one_client"]["p50_s"]["median"] = 0.0

    (ratios,) = rows(render.http_section(result), RATIOS)

    assert ["5.0x", "-", "-"] == ratios[1:4]


def test_an_encoder_that_answered_nothing_has_no_ratio(result):
    """A busy machine may answer no request of 32 texts within a short window."""
    silent = json.loads(json.dumps(result["summary"]["infinity-bf16"]))
    silent["one_text_32_clients"]["texts_per_s"] = {"median": 0.0, "min": 0.0, "max": 0.0, "n": 1}
    result["summary"]["ours-minilm"] = silent

    (ratios,) = rows(render.http_section(result), "the default against `EMBEDDING_MODEL=minilm`")

    assert ["-", "5.00x"] == ratios[1:3]


def test_without_other_encoders_there_is_no_table_of_them(result):
    """A run of chosen peers shows what it measured."""
    assert "The encoders of this service" not in render.http_section(result)


def test_an_overrun_server_shows_no_latency(result):
    """Times of a queue that only grows say nothing about the server."""
    _, open_loop = rows(render.http_section(result), "infinity 0.0.78, bf16")

    assert ["12 ms / 36 ms", "overrun"] == open_loop[1:]


def test_cached_answers_stand_beside_the_constant(result):
    """What a hit reaches, and what HTTP alone allows."""
    section = render.http_section(result)

    assert [["90 %", "3,000/s (3,000-3,000)", "8 ms", "24 ms"]] == [
        cells[1:] for cells in rows(section, "FinancIA Inference, cached")
    ]
    assert rows(section, "constant route in a bare FastAPI app")


def test_errors_are_summed_over_the_rounds():
    """An answer other than 200 stays visible in the result."""
    results = Results()
    for index in range(2):
        results.add(Load("ours", "one_client", index, report(10, 0.1, statuses={"200": 90, "429": 5, "lost": 1})))

    summary = results.as_json()["summary"]

    assert {"429": 10, "lost": 2} == summary["ours"]["one_client"]["errors"]


def test_engine_section():
    """Rates without HTTP, one engine a row."""
    rates = {"torch fp32": {"median": 1234.5, "min": 1000.0, "max": 1400.0, "n": 3}}

    section = render.engine_section(ABOUT | {"texts_per_s": rates})

    assert [["torch fp32", "1,234 (1,000-1,400)"]] == rows(section, "torch fp32")


def quality_row(**changes):
    """A row as benchmarks.quality keeps it."""
    row = {"task": "names", "set": "EWT", "language": "en", "measure": "F1", "score": 0.712, "examples": 2000}
    parts = {"precision": 0.7, "recall": 0.725, "exact": 0.71, "PER": 0.8}
    return {**row, "target": 0.71, "model": "m", "parts": parts, "notes": ""} | changes


@pytest.fixture
def quality():
    """A result of a run over some sets."""
    bundled = {"answered": 0.95, "likeliest": 0.97}
    rows = [
        quality_row(),
        quality_row(set="AnCora", language="es", score=0.6, target=0.68),
        quality_row(set="WNUT-17", target=None, parts={}),
        quality_row(task="classes", set="topics", measure="accuracy", score=0.9, target=0.84, parts=bundled)
        | {"notes": "en 1.000 (9)"},
        quality_row(task="classes", set="topics, other texts", measure="no answer", score=0.9, target=None, parts={}),
        quality_row(task="learnt-classes", set="topics", measure="accuracy", score=0.8, target=None, parts=bundled),
        quality_row(task="classes", set="document-type", measure="accuracy", parts=bundled),
    ]
    models = [{"task": "ner", "name": "our/ner", "runtime": "onnx", "dtype": "int8"}]
    return ABOUT | {"rows": rows, "models": models, "unmeasured": {}}


def test_quality_section(quality):
    """Every row, its target beside it, and a target that is missed says so."""
    section = render.quality_section(quality)
    names = rows(section, "people, organisations, places")

    assert ["EWT", "en", "F1", "0.712", "0.71", "2,000"] == names[0][1:]
    assert ["AnCora", "es", "F1", "0.600", "0.68 (missed)", "2,000"] == names[1][1:]
    assert ["WNUT-17", "en", "F1", "0.712", "-", "2,000"] == names[2][1:]
    assert "Models: our/ner (ner, onnx int8)." in section
    assert "Not measured" not in section


def test_a_card_has_what_concerns_its_model(quality):
    """Names by kind; a head beside the one learnt at run time; nothing of other models."""
    names, head = render.names_section(quality), render.head_section(quality, "topics")

    assert [["EWT", "en", "0.712", "0.71", "0.700", "0.725", "0.710", "0.800", "-", "-", "2,000"]] == rows(names, "EWT")
    assert [
        ["bundled head", "topics", "en", "accuracy", "0.900", "0.84", "0.950", "0.970", "2,000", "en 1.000 (9)"],
        ["bundled head", "topics, other texts", "en", "no answer", "0.900", "-", "-", "-", "2,000", "-"],
    ] == rows(head, "bundled head")
    assert [
        ["head learnt at run time", "topics", "en", "accuracy", "0.800", "-", "0.950", "0.970", "2,000", "-"]
    ] == rows(head, "head learnt at run time")
    assert "topics" not in names
    assert "EWT" not in head


def test_tasks_section():
    """The ratio with its extremes, and whether it is within the bar."""
    times = {"median": 1.2, "min": 1.1, "max": 1.4, "n": 3}
    rate = {"median": 400.0, "min": 380.0, "max": 420.0, "n": 3}
    row = {"task": "entities", "over": "HTTP", "load": "one text, 32 clients", "texts_per_s": rate, "target": 1.3}
    slow = row | {"task": "classes", "times_the_embedding": times | {"median": 1.31}}
    free = row | {"task": "analysis", "times_the_embedding": times, "target": None}

    section = render.tasks_section(ABOUT | {"rows": [row | {"times_the_embedding": times}, slow, free]})

    (entities,) = rows(section, "entities")
    assert ["HTTP", "one text, 32 clients", "400 (380-420)", "1.20x (1.10-1.40)", "at most 1.3x"] == entities[1:]
    assert "at most 1.3x (missed)" == rows(section, "classes")[0][-1]
    assert "-" == rows(section, "analysis")[0][-1]


PAGE = "# Title\n<!-- benchmarks:http:begin -->\nold\n<!-- benchmarks:http:end -->\nThe rest.\n"


def test_rendering_replaces_only_what_is_between_the_markers():
    """Doing it again changes nothing."""
    once = render.rendered(PAGE, {"http": "| new |"})

    assert "# Title\n<!-- benchmarks:http:begin -->\n\n| new |\n\n<!-- benchmarks:http:end -->\nThe rest.\n" == once
    assert once == render.rendered(once, {"http": "| new |"})


def test_check_fails_until_the_page_is_rendered(tmp_path, monkeypatch, result):
    """The command of the docs check: stale, rendered, fresh."""
    page = tmp_path / "README.md"
    page.write_text(PAGE, encoding="utf-8")
    (tmp_path / "http.json").write_text(json.dumps(result), encoding="utf-8")
    command = ["render", f"--page={page}", f"--results={tmp_path}"]

    monkeypatch.setattr(sys, "argv", [*command, "--check"])
    with pytest.raises(SystemExit, match="stale"):
        render.main()
    monkeypatch.setattr(sys, "argv", command)
    render.main()
    monkeypatch.setattr(sys, "argv", [*command, "--check"])
    render.main()

    assert "FinancIA Inference" in page.read_text(encoding="utf-8")
