"""The workflow of GitHub: it calls make targets that exist, on every Python there is, and may do little."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.deploy.promql import DEPLOY
from tests.test_docs import make_targets

ROOT = DEPLOY.parent
FLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
JOBS: dict[str, dict[str, Any]] = FLOW["jobs"]
EVERY = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def runs(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@EVERY
def test_every_step_is_a_make_target(job: dict[str, Any]):
    """That exists: what fails there can be run here by the same words."""
    steps = runs(job)

    assert steps
    assert all(re.fullmatch(r"make [a-z-]+", step) for step in steps)
    assert {step.removeprefix("make ") for step in steps} <= make_targets()


def test_nothing_of_ci_is_left_out():
    """Every target that .ci/run makes, and the containers."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    [targets] = re.findall(r"^for target in ([a-z -]+); do step", script, re.MULTILINE)
    called = {step.removeprefix("make ") for job in JOBS.values() for step in runs(job)}

    assert {*targets.split(), "test-containers"} <= called


def test_every_python_is_tested():
    """Those that pyproject.toml allows, and no other."""
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    first, end = re.findall(r"3\.(\d+)", bounds)

    assert [f"3.{minor}" for minor in range(int(first), int(end))] == JOBS["tests"]["strategy"]["matrix"]["python"]
    assert JOBS["tests"]["strategy"]["fail-fast"] is False


@EVERY
def test_a_job_is_bounded_and_caches(job: dict[str, Any]):
    """A hang costs minutes, not six hours; what pip fetched is kept until the pinned versions change."""
    [python] = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/setup-python@")]

    assert job["timeout-minutes"] <= 90
    assert python["cache"] == "pip"
    assert {"constraints.txt", "pyproject.toml"} == set(python["cache-dependency-path"].split())


@EVERY
def test_actions_are_pinned_by_commit(job: dict[str, Any]):
    """By commit, which nobody can move; none is left with the token."""
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_a_commit_says_its_version():
    """In a comment that Dependabot keeps up with it, and the same commit everywhere."""
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    versions = set(re.findall(r"uses: (\S+)@(\S+) # (v\d+\.\d+\.\d+)$", text, re.MULTILINE))

    assert text.count("uses: ") == len(re.findall(r"uses: \S+ # v", text))
    assert len(versions) == len({action for action, _, _ in versions})


def test_the_token_can_only_read():
    """For the whole workflow, and no job asks for more; code of strangers runs without secrets."""
    triggers = FLOW[True]  # YAML 1.1 reads the key `on` as true

    assert FLOW["permissions"] == {"contents": "read"}
    assert not [name for name, job in JOBS.items() if "permissions" in job]
    assert {"push", "pull_request"} <= set(triggers)
    assert "pull_request_target" not in triggers
