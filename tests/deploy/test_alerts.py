"""The alert rules: well formed, proved on series, about metrics there are, and with a page that says what to do."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend.api.api_keys import OPEN_PATHS
from backend.config import Settings
from tests.deploy.promql import DEPLOY, faults, parse, promtool, shown_labels

FOLDER = DEPLOY / "prometheus"
GUIDE = DEPLOY.parent / "docs" / "operations.md"
GROUPS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
ALERTS: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
PROOFS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
EVERY = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])


def test_prometheus_takes_the_configuration():
    """With every file that it names."""
    checked = promtool("check", "config", "prometheus.yml")

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_alerts_fire_when_they_should_and_only_then():
    """deploy/prometheus/alerts_test.yml, by Prometheus' own evaluation."""
    tested = promtool("test", "rules", "alerts_test.yml")

    assert tested.returncode == 0, tested.stdout + tested.stderr


@EVERY
def test_every_alert_is_seen_to_fire(rule: dict[str, Any]):
    """In alerts_test.yml, and in the same test it is quiet at another time."""
    expected = [
        [
            _fires(check, rule["alert"])
            for check in (*test.get("promql_expr_test", ()), *test.get("alert_rule_test", ()))
        ]
        for test in PROOFS
    ]

    assert [True] in [sorted(set(checks) - {False}) for checks in expected]
    assert any(False in checks for checks in expected if True in checks)


def _fires(check: dict[str, Any], alert: str) -> bool:
    if "alertname" in check:
        return check["alertname"] == alert and bool(check["exp_alerts"])
    return any(f'alertname="{alert}"' in sample["labels"] for sample in check["exp_samples"])


@EVERY
def test_every_alert_is_about_what_is_exported(rule: dict[str, Any]):
    """Its metrics, their labels and the values of those exist."""
    assert [] == faults(rule["expr"])


@EVERY
def test_every_alert_tells_what_one_must_know(rule: dict[str, Any]):
    """How long it waits, how bad it is, a sentence with a number, and labels that its series have."""
    annotations = rule["annotations"]
    texts = " ".join(annotations.values())

    assert "for" in rule
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description", "runbook_url"} == set(annotations)
    assert re.search(r"\d|\$value", annotations["description"])
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= shown_labels(rule["expr"])


@EVERY
def test_every_alert_has_its_heading(rule: dict[str, Any]):
    """In docs/operations.md, under its own name."""
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (\w+)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)

    assert (GUIDE.relative_to(DEPLOY.parent).as_posix(), rule["alert"].lower()) == (page, anchor)
    assert rule["alert"] in headings


def test_every_heading_of_an_alert_has_its_alert():
    """No page is left of an alert that went."""
    headings = re.findall(r"^#+ (Financia\w+)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)

    assert [rule["alert"] for rule in ALERTS] == headings


def test_numbers_in_the_sentences_are_those_of_the_settings():
    """Defaults that an alert quotes."""
    texts = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    quoted = re.findall(r"(LIMIT_\w+)[ ,(]+(\d+) s", texts)

    assert {name for name, _ in quoted} == {"LIMIT_DRAIN_S", "LIMIT_REQUEST_S"}
    assert all(Settings.model_fields[name.lower()].default == float(number) for name, number in quoted)


def test_what_is_scraped_is_there_and_open():
    """Both pages need no key, and the names of the jobs are those that the alerts select by."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    ours = {job["job_name"]: job for job in config["scrape_configs"] if job["job_name"].startswith("financia")}
    selected = {
        value
        for rule in ALERTS
        for selector in parse(rule["expr"]).selectors
        for label, _, value in selector.matchers
        if label == "job"
    }

    assert {"financia": "/metrics", "financia-gpu": "/metrics/gpu"} == {
        name: job["metrics_path"] for name, job in ours.items()
    }
    assert {job["metrics_path"] for job in ours.values()} <= OPEN_PATHS
    assert selected <= set(ours)


@pytest.mark.parametrize("file", sorted((FOLDER / "targets").glob("*.yml")), ids=lambda file: file.stem)
def test_targets_are_instances_of_compose(file: Path):
    """Each list has one, on the port the service listens on."""
    [group] = yaml.safe_load(file.read_text(encoding="utf-8"))
    [target] = group["targets"]
    name, _, port = target.partition(":")

    assert name == {"cpu": "financia_backend", "gpu": "financia_backend_gpu"}[file.stem]
    assert int(port) == Settings.model_fields["port"].default
