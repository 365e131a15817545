"""schemathesis against the real service: what it answers is what its OpenAPI document says, with keys and without."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.server import QUICK, ROOT, run_server

FOLDER = Path(__file__).parent
KEY = "schemathesis-key"
# Small, so that requests at their limits are small.
SMALL = {"LIMIT_TEXT_CHARS": "3000", "LIMIT_INPUTS": "24", "LIMIT_LABELS": "12"}
TIMES = float(os.environ.get("SCHEMATHESIS_TIMES", "1"))  # as long as `make test-all` takes for it
_GENERATED = re.compile(r"(\d+) generated")

pytestmark = [pytest.mark.slow, pytest.mark.tesseract, pytest.mark.timeout(600 + 400 * TIMES)]


def schemathesis(url: str, config: Path, phases: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run its command; what it prints holds the curl command of every failure."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", f"{url}/openapi.json"]
    options = ["--phases", phases, "--max-time", str(round(seconds * TIMES)), "--no-color"]
    return subprocess.run(
        [*command, *options, "--suppress-health-check", "all", "--max-examples", "10"],
        cwd=config.parent,  # where it keeps what it found
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.schema.hooks", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("keys", "runs"),
    [
        pytest.param({}, {"examples,fuzzing": 35, "stateful": 20}, id="without-keys"),
        pytest.param({"ADMIN_KEYS": KEY}, {"examples,coverage,fuzzing": 75, "stateful": 20}, id="with-keys"),
    ],
)
def test_answers_are_as_described(state_dir: Path, tmp_path: Path, keys: dict[str, str], runs: dict[str, int]):
    """Every check of schemathesis passes, and ours in hooks.py; ``runs`` are phases and their seconds."""
    config = tmp_path / "schemathesis.toml"
    auth = f'\n[auth.openapi.key]\nbearer = "{KEY}"\n' if keys else ""
    config.write_text((FOLDER / "schemathesis.toml").read_text(encoding="utf-8") + auth, encoding="utf-8")
    with run_server(state_dir, **QUICK, **SMALL, **keys) as server:
        for phases, seconds in runs.items():
            done = schemathesis(server.url, config, phases, seconds)

            assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
            [generated] = _GENERATED.findall(done.stdout)
            assert int(generated) > 0
    log = "".join(server.log)

    assert "Traceback" not in log
    assert "never awaited" not in log
