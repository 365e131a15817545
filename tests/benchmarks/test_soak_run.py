"""The soak test itself, shortly: replicas, Redis, HAProxy, a service without Redis, mixed traffic, faults once each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = (
    "replica_killed", "replica_restarted", "replica_frozen", "worker_frozen", "redis_emptied", "redis_failover",
    "lane_killed", "reader_killed", "overload", "alone_killed",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.redis
@pytest.mark.tesseract
@pytest.mark.haproxy
@pytest.mark.timeout(1800)
def test_each_fault_once_loses_nothing(tmp_path: Path):
    """Nothing is lost, wrong, stuck or left over. A busy machine may be late: texts have a minute."""
    result = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--once", "--text-p99-s", "60", "--out", str(result)]
    command += ["--only", *FAULTS]
    completed = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)

    assert 0 == completed.returncode, completed.stdout + completed.stderr
    found = json.loads(result.read_text(encoding="utf-8"))
    assert found["passed"]
    assert {fault["kind"] for fault in found["faults"]} == set(FAULTS)
    for kind in ("job", "speech", "index", "search"):
        assert found["totals"][kind]["right"], kind
