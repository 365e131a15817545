"""The device table: ratios of one round, and devices that are absent or fail leave the rest."""

from types import SimpleNamespace

import pytest

from benchmarks import devices, gpu_tables
from benchmarks.device_tasks import TASKS, documents
from benchmarks.devices import FULL, QUICK, measure_tasks, rows_of
from benchmarks.ocr_client import RequestRefused

CARD = "cuda:0"


@pytest.fixture
def no_servers(monkeypatch):
    """Servers that are never started."""

    class Nothing:
        def __init__(self, peer):
            self.server = SimpleNamespace(port=1 if peer.env["DEVICE"] == "cpu" else 2)

        def __enter__(self):
            return self.server

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(devices, "running", lambda peer, logs: Nothing(peer))
    monkeypatch.setattr(devices, "system_report", lambda port: {"data": []})


def test_ratios_are_of_one_round():
    """A machine of half the speed in the second round changes no ratio."""
    seconds = {("embeddings", "cpu"): [10.0, 20.0], ("embeddings", CARD): [1.0, 2.0], ("pages", "cpu"): [3.0]}

    embeddings, _, pages, *_ = rows_of(seconds, ["cpu", CARD], FULL)

    assert {CARD: {"median": 10.0, "min": 10.0, "max": 10.0, "n": 2}} == embeddings["ratios"]
    assert "embeddings of 100 documents" == embeddings["title"]
    assert ({"cpu"}, {}) == (pages["seconds"].keys(), pages["ratios"])


def test_devices_take_turns(no_servers, monkeypatch, tmp_path):
    """Every task on every device in each round, other things in each; the first pass does not count."""
    asked = []

    def run_task(port, task, count, first):
        asked.append((port, task, first))
        return 8.0 / port

    monkeypatch.setattr(devices, "run_task", run_task)

    result = measure_tasks(["cpu", CARD], QUICK, tmp_path)

    assert [(1, "embeddings", 0), (2, "embeddings", 0), (1, "classes", 0)] == asked[:3]
    assert 2 * 2 * len(TASKS) == len(asked)
    assert {2.0} == {row["ratios"][CARD]["median"] for row in result["rows"]}
    assert {1} == {row["seconds"]["cpu"]["n"] for row in result["rows"]}


def test_a_refusal_costs_one_cell(no_servers, monkeypatch, tmp_path):
    """What a device refuses is not asked again and stands among the faults; the table says that it is not measured."""

    def run_task(port, task, count, first):
        if (port, task) == (2, "pages"):
            raise RequestRefused("/v1/ocr", 503, b"no room")
        return 1.0

    monkeypatch.setattr(devices, "run_task", run_task)

    result = measure_tasks(["cpu", CARD], QUICK, tmp_path)

    assert {"pages on cuda:0": "/v1/ocr answered 503: no room"} == result["faults"]
    lines = gpu_tables.device_table({**result, "cards": {CARD: "NVIDIA H200"}}).splitlines()
    assert "| task | cpu | NVIDIA H200 |" == lines[0]
    assert "| 1 scanned pages read, engine as chosen | 1.00 s | not measured |" in lines
    assert "| embeddings of 4 documents | 1.00 s | 1.00 s, 1.0x |" in lines


def test_without_a_card_the_column_says_so(no_servers, monkeypatch, tmp_path):
    """A machine without a card has a column that is not measured."""
    monkeypatch.setattr(devices, "run_task", lambda *task: 1.0)

    table = gpu_tables.device_table(measure_tasks(["cpu"], QUICK, tmp_path))

    assert table.startswith("| task | cpu | a card |")
    assert len(TASKS) == table.count("not measured")


def test_no_document_repeats():
    """A cache could help nobody, and each is half a page of text."""
    texts = documents(3, 5)

    assert 3 == len(set(texts))
    assert documents(1, 7) == texts[2:]
    assert all(1000 < len(text) < 3000 for text in texts)
