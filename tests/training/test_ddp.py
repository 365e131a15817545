"""Two processes that torchrun started (gloo, on the CPU) against one: the same effective batches, the same result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backend.training.trainer.loop import train
from tests.data_parallel import SCENARIOS, guide_batches, guide_model, use_precisions
from tests.toy_training import Faults, difference, same_bits, weights_of

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow  # two processes that import torch and wait for each other: half a minute


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both ranks wrote to; one start for all scenarios, because a start takes seconds."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [*command, "-m", "tests.data_parallel", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert process.returncode == 0, process.stderr[-3000:]
    return folder


def facts_of(runs: Path, name: str, rank: int) -> dict:
    return json.loads((runs / f"{name}-{rank}.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_processes_equal_one(runs: Path, name: str) -> None:
    """Losses within 1e-6, weights within 1e-5 (sums in another order, and Adam divides by their roots)."""
    scenario = SCENARIOS[name]
    alone = scenario.task()
    excludes = scenario.faults(0) is not None and name == "a-bad-example"
    faults = Faults(broken=lambda step, indices: 17 in indices) if excludes else None
    with use_precisions(scenario):
        expected = train(alone, scenario.config, output=None, faults=faults)
    first, second = (facts_of(runs, name, rank) for rank in range(2))
    weights = [torch.load(runs / f"{name}-{rank}.pt") for rank in range(2)]

    assert same_bits(*weights)
    assert {**first, "observed": 0} == {**second, "observed": 0}
    assert expected.steps == first["steps"]
    assert abs(expected.loss - first["loss"]) < 1e-6
    assert difference(weights_of(alone.model), weights[0]) < 1e-5


def test_memory_that_runs_out_on_one_rank(runs: Path) -> None:
    """Both shrink and run the effective batch again; neither waits for ever."""
    facts = facts_of(runs, "memory-on-rank-1", 0)

    assert (2, ["out_of_memory"]) == (facts["micro_batch"], facts["events"])


def test_an_example_that_breaks_one_rank(runs: Path) -> None:
    """Both know its number, go back together and exclude it."""
    facts = facts_of(runs, "a-bad-example", 0)

    assert ([17], ["precision", "precision"]) == (facts["skipped"], facts["events"])


def test_a_precision_that_breaks_one_rank(runs: Path) -> None:
    """Both fall, and both return at the same step."""
    ranks = [facts_of(runs, "falls-and-recovers", rank) for rank in range(2)]

    assert ["precision", "precision"] == ranks[0]["events"]
    assert {"tf32": 8, "fp32": 4} == ranks[0]["precisions"] == ranks[1]["precisions"]


def test_the_guides_system(runs: Path) -> None:
    """As one process with whole batches: rank 0's weights for all, one batch size, and one precision after a NaN."""
    alone = guide_model(0)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for inputs, classes in guide_batches(None):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(alone(inputs), classes).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 1.0)
        optimizer.step()
    ranks = [facts_of(runs, "guide", rank) for rank in range(2)]
    weights = [torch.load(runs / f"guide-{rank}.pt") for rank in range(2)]

    assert ranks[0] == ranks[1]
    assert (6, 0, 8) == tuple(ranks[0][name] for name in ("steps", "skipped_steps", "batch_size"))
    assert ["step 2: the loss was not finite; once more in fp32, no weight was changed"] == ranks[0]["events"]
    assert same_bits(*weights)
    assert difference(weights_of(alone), weights[0]) < 1e-6


def test_only_rank_0_notifies_and_writes(runs: Path) -> None:
    """Observers of other ranks get no event; checkpoints are written once."""
    plain = [facts_of(runs, "plain", rank)["observed"] for rank in range(2)]

    assert plain[0] > 12
    assert 0 == plain[1]
    assert (runs / "plain-output" / "checkpoints" / "latest").exists()
