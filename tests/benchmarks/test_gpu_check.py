"""The check of a card: parts that fail alone, results that add up, targets that are missed, tables that say so."""

import importlib.metadata
import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import gpu_tables, render, training
from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check import result_file, targets
from benchmarks.gpu_check.context import Effort
from benchmarks.gpu_check.part_process import DONE, FAILED, LATE, NOT_POSSIBLE, NOT_RUN, PartRecord, run_part
from benchmarks.gpu_check.parts import GROUPS, PARTS, Part, chosen_parts
from benchmarks.gpu_check.project_tests import counts
from benchmarks.gpu_check.targets import MET, MISSED, NOT_MEASURED, TARGETS, verdicts
from benchmarks.machine import ROOT

CHECK = ROOT / "benchmarks" / "gpu_check"
PART = Part("encoders", "encoder_rates", "rates", 5.0, "compute")
ABOUT = {
    "machine": {"cpu": "Some CPU", "cpu_flags": ["avx2"], "cores": 16},
    "versions": {"python": "3.12.3", "torch": "2.13.0"},
    "commit": "abc",
    "command": "python -m benchmarks.gpu_check",
    "started": "2026-01-02T03:04:05+00:00",
    "device": "cuda:0",
    "device_name": "NVIDIA H200",
    "effort": "full",
}
TIMES = {"p50_s": 0.01, "p99_s": 0.02}
ROW = {"model": "e5-small", "texts": "128 tokens", "runtime": "torch-packed bf16", "budget": 16384}
GOOD = {
    "encoders": {
        "rows": [{**ROW, "tokens_per_s": 2.4e6, "least": 2.3e6, "most": 2.5e6, "matrix_share": 0.52}],
        "lone": [{"model": "base", "runtime": "torch-packed bf16", "tokens": 40, "p50_ms": 0.4, "most_ms": 0.5}],
    },
    "http": {
        "rows": [
            {"model": "e5-small", "load": "start", "processes": 1, "ready_s": 20.0},
            {
                "model": "e5-small",
                "load": "32 texts",
                "processes": 1,
                "tokens_per_s": 9e5,
                "p50_s": 0.01,
                "p99_s": 0.02,
            },
            {
                "model": "e5-small",
                "load": "32 texts",
                "processes": 4,
                "tokens_per_s": 2.1e6,
                "p50_s": 0.01,
                "p99_s": 0.02,
            },
            {
                "model": "e5-small",
                "load": "one text, one client",
                "processes": 1,
                "tokens_per_s": 2e4,
                "p50_s": 0.0018,
                "p99_s": 0.003,
            },
        ]
    },
    "process": {
        "rows": [
            {"model": "e5-small", "texts": "mixed lengths", "encoder": encoder, "tokens_per_s": rate}
            for encoder, rate in (("FinancIA Inference", 4.2e6), ("sentence-transformers", 6e5))
        ]
    },
    "reloads": {"graphs": 240, "wrong": 0},
    "layers": {
        "rows": [
            {"model": "e5-small", "layer_rows": 2048, "way": "fused", "us": 23.0, "cosine": 0.99999},
            {"model": "e5-small", "layer_rows": 2048, "way": "compiled", "fault": "no compiler"},
        ]
    },
    "oom": {"cosine_min": 0.99995, "ooms": 3, "allocated_before": 10**8, "allocated_after": 10**8 + 512},
    "fidelity": {"rows": [{"batch_single": 0.99993, "offered": True}, {"batch_single": 0.8, "offered": False}]},
    "shapes": {
        "rows": [
            {"runtime": "torch bf16", "kernels": "as served", "new_ms": {"median": 3.0}, "seen_ms": {"median": 2.5}},
            {"runtime": "torch bf16", "kernels": "cudnn", "new_ms": {"median": 33.0}, "seen_ms": {"median": 2.5}},
            {"runtime": "torch bf16", "kernels": "flash", "fault": "no kernel"},
        ]
    },
    "queueing": {
        "rows": [
            {
                "runtime": "torch-packed bf16",
                "attention": "flash",
                "lone": [{"tokens": 12, "queue_ms": 0.1, "p50_ms": 0.4}],
                "graphs": 6,
                "graph_fault": "",
                "lone_cosine": 0.99999,
                "queue_behind_work_ms": 0.7,
                "first_of_two_ms": 5.0,
                "both_ms": 10.0,
                "synchronises": "",
                "left_allocated_bytes": 0,
            },
            {"runtime": "torch bf16", "attention": "", "left_allocated_bytes": 0},
        ]
    },
    "training": {
        "steps": 24,
        "faults": {"torch.compile": "RuntimeError: no compiler"},
        "rows": [
            {"option": "none", "step_s": {"median": 0.09}, "memory_bytes": 2**30, "loss": 1.0},
            {"option": "all for speed together", "step_s": {"median": 0.02}, "memory_bytes": 2**29, "loss": 1.0},
        ],
    },
    "tests": {"passed": 900, "failed": 0, "skipped": 3},
}


def script(tmp_path, body):
    """A command in the place of a part's process; it gets --out as the third argument."""
    path = tmp_path / "part.py"
    path.write_text(f"import json, sys, time, pathlib\nout = pathlib.Path(sys.argv[3][6:])\n{body}\n", encoding="utf-8")
    return (sys.executable, str(path))


def run(tmp_path, body, limit_s=30.0):
    """The record of a part with this body."""
    options = {"device": "cpu", "effort": Effort.SMALL, "limit_s": limit_s, "log": tmp_path / "part.log"}
    return run_part(PART, **options, argv=script(tmp_path, body))


def record(result, status=DONE):
    """A part's record as the file has it."""
    return PartRecord(status, commit="abc", result=result).as_json()


@pytest.mark.parametrize(
    ("body", "status", "why", "result"),
    [
        pytest.param("out.write_text(json.dumps({'a': 1}))", DONE, "", {"a": 1}, id="ends-well"),
        pytest.param("raise ValueError('a bad card')", FAILED, "a bad card", None, id="raises"),
        pytest.param("out.write_text('{\"a\": 1}'); sys.exit(9)", FAILED, "exit status 9", {"a": 1}, id="half-done"),
        pytest.param("print('no such package'); sys.exit(4)", NOT_POSSIBLE, "no such package", None, id="not-possible"),
        pytest.param("import os, signal; os.kill(os.getpid(), 9)", FAILED, "exit status -9", None, id="killed"),
    ],
)
def test_how_a_part_ended(tmp_path, body, status, why, result):
    """A part that fails keeps what it had written, and says why."""
    ended = run(tmp_path, body)

    assert (status, result) == (ended.status, ended.result)
    assert why in ended.why


@pytest.mark.slow
def test_a_part_that_hangs_is_ended(tmp_path):
    """Its time is up: it is killed with its children, and what it had counts."""
    body = (
        "import subprocess\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "out.write_text(json.dumps({'rows': [1]})); time.sleep(600)"
    )

    ended = run(tmp_path, body, limit_s=5.0)

    assert (LATE, {"rows": [1]}) == (ended.status, ended.result)
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    state = tmp_path.__class__(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text(encoding="utf-8").split()[2] == "Z"


def test_parts_are_chosen_by_name_or_group():
    """In the order of the table; none named is all; a wrong name is refused with those there are."""
    assert ["card", "http"] == [part.name for part in chosen_parts(["http", "card"])]
    assert ["process", "http"] == [part.name for part in chosen_parts(["service"])]
    assert list(PARTS) == chosen_parts([])
    with pytest.raises(ValueError, match=r"nonsense; there are compute, graphs, service"):
        chosen_parts(["nonsense"])


def test_a_group_fits_into_ten_minutes():
    """Machines with a card are lent for ten minutes a command."""
    assert not {group for group in GROUPS if sum(part.limit_s for part in PARTS if part.group == group) > 580}


def test_every_part_has_a_module():
    """Found without importing torch."""
    assert [] == [part.name for part in PARTS if find_spec(f"benchmarks.gpu_check.{part.module}") is None]


def test_all_targets_met():
    """By the best server for the share over HTTP, and by what PRECISION=auto may take for the vectors."""
    rows = verdicts(GOOD)

    assert [MET] * len(TARGETS) == [row["verdict"] for row in rows]
    reached = [row["reached"] for row in rows]
    assert pytest.approx([52, 4.2, 2.1, 1.8, 0, 0.99995, 512 / 2**20, 0.99993, 0.5, 0.7, 4.5, 0]) == reached


@pytest.mark.parametrize(
    ("part", "result", "missed"),
    [
        ("encoders", {"rows": [{**ROW, "tokens_per_s": 1e6, "matrix_share": 0.49}]}, 0),
        ("http", {"rows": [{"model": "e5-small", "load": "32 texts", "tokens_per_s": 9e5}]}, 2),
        ("reloads", {"graphs": 240, "wrong": 1}, 4),
        ("oom", {"cosine_min": 0.999, "ooms": 1, "allocated_before": 0, "allocated_after": 0}, 5),
        ("oom", {"cosine_min": 1.0, "ooms": 1, "allocated_before": 0, "allocated_after": 2**21}, 6),
        ("fidelity", {"rows": [{"batch_single": 0.9, "offered": True}]}, 7),
        ("tests", {"passed": 900, "failed": 1}, 11),
    ],
)
def test_a_target_is_missed(part, result, missed):
    """One number that is not enough misses its own target."""
    rows = verdicts({**GOOD, part: result})

    assert MISSED == rows[missed]["verdict"]


def test_nothing_ran_out_proves_nothing():
    """Without an out-of-memory error the equal vectors say nothing about splitting."""
    rows = verdicts({"oom": {"cosine_min": 1.0, "ooms": 0, "allocated_before": 0, "allocated_after": 0}})

    assert {NOT_MEASURED} == {row["verdict"] for row in rows}


def test_names_of_training_options_are_those_of_the_benchmark():
    """The target reads two of its rows."""
    assert (training.NONE, training.TOGETHER) == (targets.NONE, targets.TOGETHER)
    assert {training.NONE, *training.COMPILED} <= training.OPTIONS.keys()


def test_runs_add_up(tmp_path):
    """A later run adds parts; one that failed does not take an earlier result away; every part stands in the file."""
    path = tmp_path / result_file.file_name("NVIDIA H200 (MIG 1g)")
    result_file.write(path, ABOUT, {"oom": record(GOOD["oom"]), "tests": record(None, FAILED)})

    content = result_file.write(path, ABOUT, {"oom": record(None, FAILED), "tests": record(GOOD["tests"])})

    assert "nvidia-h200-mig-1g.json" == path.name
    assert json.loads(path.read_text(encoding="utf-8")) == content
    assert [part.name for part in PARTS] == list(content["parts"])
    statuses = {name: each["status"] for name, each in content["parts"].items()}
    assert (DONE, DONE, NOT_RUN) == (statuses["oom"], statuses["tests"], statuses["http"])
    assert [MET, MET, MET] == [row["verdict"] for row in content["targets"] if row["verdict"] != NOT_MEASURED]


def test_results_from_elsewhere_are_merged(tmp_path):
    """Two runs on machines that were given back make one file."""
    for index, (name, result) in enumerate({"oom": GOOD["oom"], "tests": GOOD["tests"]}.items()):
        result_file.write(tmp_path / str(index) / "card.json", ABOUT, {name: record(result)})

    written = result_file.merge_files([tmp_path / "0" / "card.json", tmp_path / "1" / "card.json"], tmp_path / "here")

    content = json.loads(written[-1].read_text(encoding="utf-8"))
    assert {"oom", "tests"} == {name for name, each in content["parts"].items() if each["status"] == DONE}


def test_another_file_is_not_overwritten(tmp_path):
    """A result of something else is refused by name."""
    (tmp_path / "http.json").write_text("{}", encoding="utf-8")

    with pytest.raises(ValueError, match=r"http\.json is no result of gpu_check"):
        result_file.write(tmp_path / "http.json", ABOUT, {})


def test_without_a_card_it_says_so(monkeypatch, capsys):
    """Nothing is measured and nothing written: exit status 3."""
    monkeypatch.setattr(command, "device_name", lambda device: "")
    monkeypatch.setattr(sys, "argv", ["gpu_check"])

    assert command.NO_CARD_EXIT == command.main()
    assert "torch sees no card as cuda:0" in capsys.readouterr().out


def test_one_failure_does_not_lose_the_rest(monkeypatch, tmp_path):
    """The file is written after each part; the exit status tells of the failure; nothing runs past --limit-s."""
    ended = {"card": PartRecord(FAILED, "lost"), "oom": PartRecord(DONE, result=GOOD["oom"])}
    monkeypatch.setattr(command, "device_name", lambda device: "")
    monkeypatch.setattr(command, "run_part", lambda part, **options: ended[part.name])
    monkeypatch.setattr(sys, "argv", ["x", "--allow-cpu", "--parts", "card", "oom", "--results", str(tmp_path)])

    assert 1 == command.main()
    content = json.loads((tmp_path / "cpu.json").read_text(encoding="utf-8"))
    assert (FAILED, DONE) == (content["parts"]["card"]["status"], content["parts"]["oom"]["status"])
    assert ("cpu", "small") == (content["device"], content["effort"])

    monkeypatch.setattr(sys, "argv", [*sys.argv, "--limit-s", "1"])
    assert 1 == command.main()
    content = json.loads((tmp_path / "cpu.json").read_text(encoding="utf-8"))
    assert (FAILED, DONE) == (content["parts"]["card"]["status"], content["parts"]["oom"]["status"])


def test_junit_reports_are_counted(tmp_path):
    """Errors of fixtures count as failures, with their names."""
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="ok"/><testcase classname="a" name="gone"><skipped/>'
        '</testcase><testcase classname="b" name="bad"><failure message="1 != 2&#10;more"/></testcase>'
        '<testcase classname="b" name="worse"><error message="no device"/></testcase></testsuite></testsuites>',
        encoding="utf-8",
    )

    expected = {"passed": 1, "failed": 2, "skipped": 1, "failures": ["b::bad: 1 != 2", "b::worse: no device"]}
    assert expected == counts(report)


def test_tables_of_a_card():
    """Targets with verdicts, the parts' tables, and which parts are missing."""
    parts = {name: record(result) for name, result in GOOD.items()}
    parts["card"] = record({"driver": "580.1", "cuda": "13.0"})
    parts["rates"] = record({"matrix_tflop_per_s": {"bf16": 788.4}})
    for row in parts["http"]["result"]["rows"]:
        row.setdefault("texts_per_s", 1000.0)
    for row in parts["process"]["result"]["rows"]:
        row |= {"texts_per_s": 1000.0, "least": 990.0, "most": 1010.0}
    parts["speech"] = record(None, LATE)
    result = {**ABOUT, "targets": verdicts(GOOD), "parts": parts}

    section = gpu_tables.gpu_section([result])

    assert "| target | to reach | NVIDIA H200 |" in section
    assert "at least 50 % | 52 % (met) |" in section
    assert "with NVIDIA H200, driver 580.1, CUDA 13.0, bf16 products 788 TFLOP/s; Python 3.12.3" in section
    assert "Not measured to the end: speech (out of time)." in section
    assert "| e5-small | 2,048 | fused | 23 us | 0.999990 |" in section
    assert "| e5-small | 2,048 | compiled | does not run: no compiler |  |" in section
    assert "| torch bf16 | flash | does not run: no kernel |  |" in section
    assert "| torch-packed bf16 (flash) | 6 | 12: 0.40 ms | 0.70 ms | 5.0 ms of 10.0 ms | 0.99999 |" in section
    assert "| all for speed together | 20.0 ms | 4.50x | 512 MiB (-50%) | 1.000 |" in section
    assert "| torch.compile | failed: RuntimeError: no compiler |" in section
    state = gpu_tables.gpu_state([result])
    assert state.startswith("Measured on NVIDIA H200: 12 targets met, 0 missed ([the benchmarks]")


def test_no_card_is_said(tmp_path, monkeypatch):
    """Without a result every target is not measured, and the README's sentence says so in its own line."""
    assert gpu_tables.NO_CARD in gpu_tables.gpu_section([])
    assert gpu_tables.gpu_section([]).count("| not measured |") == len(TARGETS)

    page = tmp_path / "page.md"
    page.write_text("A. <!-- benchmarks:gpu-state:begin -->old<!-- benchmarks:gpu-state:end --> B.\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["render", "--results", str(tmp_path), "--page", str(page)])
    render.main()

    begin, end = (f"<!-- benchmarks:gpu-state:{side} -->" for side in ("begin", "end"))
    assert f"A. {begin}{gpu_tables.gpu_state([])}{end} B.\n" == page.read_text(encoding="utf-8")


def carried() -> set[str]:
    """The packages that ``carry.sh`` takes along."""
    listed = re.search(r"packages=\((.*?)\)", (CHECK / "carry.sh").read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    return {*listed[1].split(), "seqeval"}


@pytest.fixture(scope="session")
def bare_packages(tmp_path_factory) -> Path:
    """Links to those packages alone that a lent machine has, and what is carried there."""
    folder = tmp_path_factory.mktemp("bare")
    there = {*(CHECK / "bare_packages.txt").read_text(encoding="utf-8").split(), *carried()}
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in there}
    for distribution in importlib.metadata.distributions():
        if re.sub(r"[-_.]+", "-", distribution.name).lower() in names:
            for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(distribution.locate_file(top))
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_every_part_runs_small_on_the_cpu(part, tmp_path, monkeypatch, bare_packages):
    """With what a lent machine has it ends well, and has something to tell or names the package that it wants."""
    log, argv = tmp_path / "part.log", ()
    if part.name not in ("ocr", "speech"):  # whose packages no such machine has
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(bare_packages), str(ROOT)]))
        argv = (sys._base_executable, "-m", "benchmarks.gpu_check.part_process", part.name)
    ended = run_part(part, device="cpu", effort=Effort.SMALL, limit_s=840.0, log=log, argv=argv)

    assert ended.status in (DONE, NOT_POSSIBLE), f"{ended.why}\n{log.read_text(encoding='utf-8', errors='replace')}"
    assert ended.result if ended.status == DONE else "not installed" in ended.why or "on a card alone" in ended.why
