"""A rolling restart under load, small: three replicas behind HAProxy, each restarted; one killed; Redis killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = "--requests 300 --texts 2 --jobs 1 --pages 1 --between 20 --faults 1"
# What a machine does whose cores others take: it answers late, checks of the proxy fail, Redis is slow for a job. Sent
# again, such requests are answered; a connection that breaks, or a replica that ends and refuses, is none of these.
LATE = ("no answer within", ": 504 ", "No server is available", "job: 503 ")


def broken(phase: dict[str, Any]) -> list[str]:
    """The rules that were broken, without attempts that were late: lost, wrong, cut off, refused, ended badly."""
    return [
        each
        for each in phase["violations"]
        if "unexpected failure" not in each or not any(map(each.__contains__, LATE))
    ]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.redis
@pytest.mark.tesseract
@pytest.mark.haproxy
@pytest.mark.timeout(1800)
def test_a_rolling_restart_loses_no_request_and_no_job(tmp_path: Path):
    """While replicas restart none is cut off; where a replica or Redis is killed what was cut off is sent again."""
    result = tmp_path / "rolling.json"
    completed = subprocess.run(
        [sys.executable, "-m", "benchmarks.rolling", *SMALL.split(), "--out", str(result)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.exists(), completed.stdout + completed.stderr
    found = json.loads(result.read_text(encoding="utf-8"))
    phases = {phase["kind"]: phase for phase in found["phases"]}
    assert {"replica_replaced": 3, "replica_killed": 1, "redis_killed": 1} == {
        kind: phase["faults"] for kind, phase in phases.items()
    }
    assert [0, 0, 0] == found["exit_statuses"]
    assert {kind: [] for kind in phases} == {kind: broken(phase) for kind, phase in phases.items()}, completed.stderr
    assert dict.fromkeys(phases, (0, 0)) == {kind: (phase["lost"], phase["wrong"]) for kind, phase in phases.items()}
    assert 300 <= phases["replica_replaced"]["requests"]
    assert all(phase["jobs"] for phase in phases.values()), "a phase without jobs"


def test_lateness_is_told_from_what_was_cut_off():
    """The phases' violations, as the ledger writes them."""
    late = [
        "   12.0 s  unexpected failure: scan: cut off POST /v1/documents: no answer within 75 s  [replica_replaced]",
        "   12.0 s  unexpected failure: job: 503 GET /v1/jobs/x: Redis did not answer  [replica_replaced]",
        "   12.0 s  unexpected failure: scan: 503 POST /v1/documents: No server is available  [replica_replaced]",
        "   12.0 s  unexpected failure: job: 504 POST /v1/jobs: late  [replica_replaced]",
    ]
    faults = [
        "   12.0 s  unexpected failure: scan: cut off POST /v1/documents: EOFError: 0 bytes  [replica_replaced]",
        "   12.0 s  unexpected failure: embeddings: 503 POST /v1/embeddings: not accepting work  [replica_replaced]",
        "   12.0 s  unexpected failure: embeddings: 502 POST /v1/embeddings: Bad Gateway  [replica_replaced]",
        "   12.0 s  lost: job: x: no answer within 180 s  [replica_replaced]",
        "   12.0 s  fault: replica 1 ended with status 1 after SIGTERM  [replica_replaced]",
    ]

    assert faults == broken({"violations": late + faults})
