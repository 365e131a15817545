"""Tables of the search benchmark: figures beside goals, and what is missed."""

import pytest

from benchmarks.search_tables import missed, search_section
from tests.benchmarks.test_render import ABOUT, rows


def spread(value):
    return {"median": value, "min": value, "max": value, "n": 3}


def store(**changes):
    """What a store's process answers."""
    kinds = [f"{mode}{suffix}" for mode in ("vector", "keyword", "hybrid") for suffix in ("", ", 1 % kept")]
    row = {
        "searches": {kind: {"p50_s": spread(0.012), "p95_s": spread(0.02)} for kind in kinds},
        "memory": {"before_bytes": 0, "resident_bytes": 300 * 2**20, "peak_bytes": 400 * 2**20},
        "recall": 0.999,
        "recall_filtered": 1.0,
        "under_filter": {"there": 100, "least": 90, "mean": 95.0, "wrong": 0},
        "disk_bytes": 200 * 2**20,
        "first_answer_s": 0.5,
        "adding": {"seconds": 10.0, "chunks_per_s": 1000.0, "peak_bytes": 0},
        "version": "9.1",
    }
    return row | changes


def added(share):
    names = ("upload_s", "index_s", "embed_s", "entities_s", "chunks_per_s", "chunks")
    return {name: spread(2.0) for name in names} | {"share": spread(share), "models_share": spread(2 * share)}


@pytest.fixture
def result():
    """A run that reached all goals but that of adding many files."""
    times = {"p50_s": spread(0.03), "p95_s": spread(0.05)}
    return ABOUT | {
        "load_average_1min": 0.1,
        "sizes": {"100000": store(), "1000000": store()},
        "service": {"chunks": 100_000, "search": times, "search, 1 % kept": times},
        "adding": {"texts": 2000, "files": added(0.4), "one file": added(0.9)},
        "peers": {"10000": {"ours": store(version=""), "txtai": store()}},
        "crash": {
            "txtai": {
                "trials": 5, "failed": 1, "lost": 2, "acknowledged": 4000, "gone": 900, "unfound": 0,
                "errors": {"disk image is malformed": 1},
            }
        },
        "unmeasured": {"qdrant, killed": "no network"},
    }  # fmt: skip


def test_missed_goals(result):
    """Each missed goal is named; those of parts that were not measured are not."""
    assert ["80% of bare embedding, files"] == missed(result)
    assert [] == missed({"unmeasured": {}})


def test_a_part_measured_later_tells_where(result):
    """It may have been another machine, at another commit."""
    result["later"] = {"adding": ABOUT | {"commit": "fedcba", "load_average_1min": 0.2}}

    told = next(line for line in search_section(result).splitlines() if line.startswith("Of adding: "))

    assert "at commit `fedcba`" in told
    assert told.endswith("Load at the start: 0.2.")


def test_slow_and_inexact_stores_miss_goals(result):
    """Speed counts at 100,000 chunks, memory above, recall everywhere."""
    slow = store(recall=0.9)
    slow["searches"]["hybrid"] = {"p50_s": spread(0.02), "p95_s": spread(0.03)}
    large = store(memory={"before_bytes": 0, "resident_bytes": 0, "peak_bytes": 3 * 2**30})
    result["sizes"] = {"100000": slow, "1000000": large}

    expected = ["recall 0.98 at 100,000 chunks", "hybrid p50 15 ms at 100,000 chunks"]
    assert [*expected, "2.0 GiB resident at 1,000,000 chunks"] == missed(result)[:3]


def test_section(result):
    """Every part has its table; what could not be measured is said."""
    text = search_section(result)

    assert "12.0 / 20.0 ms" == rows(text, "100,000")[0][3]
    assert "30.0 / 50.0 ms" in text
    assert "40% (40%-40%; goal 80%, missed)" in rows(text, "files")[0]
    assert "95.0 of 100 (least 90)" in rows(text, "txtai 9.1 (SQLite, faiss, hybrid)")[0]
    assert ["5", "1 (disk image is malformed)", "2", "900 of 4,000", "0"] == rows(
        text, "txtai (SQLite, faiss, hybrid)"
    )[0][1:]
    assert "Not measured: qdrant, killed: no network" in text
