"""The dashboard: what Grafana expects of one, about metrics there are, from the data source that is provisioned."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.promql import DEPLOY, faults, promtool, shown_labels

FOLDER = DEPLOY / "grafana"
BOARD: dict[str, Any] = json.loads((FOLDER / "dashboards" / "financia.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = BOARD["panels"]
CHARTS = [panel for panel in PANELS if panel["type"] != "row"]
# Fields that Grafana's own Prometheus editor writes, and that its schemas leave to the data source.
OF_THE_DATA_SOURCE = {
    "/templating/list[]/definition",
    "/annotations/list[]/builtIn",
    "/annotations/list[]/step",
    "/annotations/list[]/tagKeys",
    "/annotations/list[]/textFormat",
    "/annotations/list[]/titleFormat",
    "/annotations/list[]/useValueForTime",
    "/id",  # null: Grafana gives one
}
EVERY = pytest.mark.parametrize("panel", CHARTS, ids=lambda panel: re.sub(r"\W+", "-", panel["title"]))


def asked(expression: str) -> str:
    """What Grafana would ask Prometheus: its own variables replaced."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*")


def test_it_covers_what_an_operator_asks():
    """One row for each question, the present first."""
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]

    assert rows == [
        "Now",
        "Traffic",
        "Latency",
        "Queue and batches",
        "Errors",
        "Callers",
        "Documents",
        "Jobs",
        "Search",
        "Speech",
        "Cache",
        "GPU",
        "Models and machine",
    ]


def test_panels_lie_beside_each_other():
    """Each has an id of its own, stands within the 24 columns, and covers no other."""
    places = [panel["gridPos"] for panel in PANELS]

    assert len(PANELS) == len({panel["id"] for panel in PANELS})
    assert all(place["x"] + place["w"] <= 24 and min(place["w"], place["h"]) > 0 for place in places)
    assert [] == [(one, other) for one, other in combinations(places, 2) if _overlap(one, other)]


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


@EVERY
def test_every_panel_explains_itself(panel: dict[str, Any]):
    """A title, a sentence, a unit where there are numbers, and series with names."""
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["type"] in {"state-timeline", "table"} or panel["fieldConfig"]["defaults"]["unit"]
    assert all(target["legendFormat"] for target in panel["targets"] if panel["type"] == "timeseries")
    assert len(panel["targets"]) == len({target["refId"] for target in panel["targets"]})


@EVERY
def test_every_panel_shows_what_is_exported(panel: dict[str, Any]):
    """Metrics, labels and their values exist; the chosen instances are respected; legends name labels there are."""
    for target in panel["targets"]:
        expression = asked(target["expr"])

        assert [] == faults(expression)
        assert target["expr"].count('instance=~"$instance"') == target["expr"].count("{")
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= shown_labels(expression)


def test_prometheus_understands_every_expression(tmp_path: Path):
    """As rules of a file, for promtool reads no dashboards."""
    expressions = [asked(target["expr"]) for panel in CHARTS for target in panel["targets"]]
    rules = [{"record": f"panel:{index}", "expr": expression} for index, expression in enumerate(expressions)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    checked = promtool("check", "rules", "panels.yml", folder=tmp_path)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(expressions)} rules found" in checked.stdout


def test_the_data_source_is_the_provisioned_one():
    """Every panel, the variable and the annotations ask it, by its uid."""
    [source] = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    asked_of = [one["datasource"] for panel in CHARTS for one in (panel, *panel["targets"])]
    asked_of += [variable["datasource"] for variable in BOARD["templating"]["list"]]
    asked_of += [note["datasource"] for note in BOARD["annotations"]["list"] if not note.get("builtIn")]

    assert {"type": source["type"], "uid": source["uid"]} == asked_of[0]
    assert all(one == asked_of[0] for one in asked_of)


def test_the_resolution_is_that_of_the_scrapes():
    """Grafana makes $__rate_interval of it: too short a one shows nothing."""
    [source] = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    scrapes = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["global"]

    assert scrapes["scrape_interval"] == source["jsonData"]["timeInterval"]


def test_grafana_finds_it():
    """The provider reads a folder of files; the dashboard has a uid of its own, so that links to it stay."""
    [provider] = yaml.safe_load((FOLDER / "provisioning/dashboards/financia.yml").read_text())["providers"]

    assert ("file", "/var/lib/grafana/dashboards") == (provider["type"], provider["options"]["path"])
    assert ("financia", None) == (BOARD["uid"], BOARD["id"])
    assert BOARD["schemaVersion"] >= 39  # Grafana 11; newer ones bring it up to theirs


def test_the_variable_lists_the_instances():
    """One, several or all of those that Prometheus scrapes."""
    [variable] = BOARD["templating"]["list"]

    assert ("instance", "query") == (variable["name"], variable["type"])
    assert variable["includeAll"]
    assert variable["multi"]
    assert 'label_values(up{job="financia"}, instance)' == variable["query"]["query"]


def test_annotations_are_about_what_is_exported():
    """Restarts are drawn into every panel."""
    expressions = [note["expr"] for note in BOARD["annotations"]["list"] if not note.get("builtIn")]

    assert expressions
    assert [] == [fault for expression in expressions for fault in faults(asked(expression))]


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where what Grafana's model has kept is not what was written; what it adds are its defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            if name in theirs:
                yield from differences(value, theirs[name], f"{path}/{name}")
            else:
                yield f"{path}/{name}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from differences(one, other, f"{path}[]")
    elif ours != theirs:
        yield path


def through_grafana(board: dict[str, Any]) -> dict[str, Any]:
    register_default_plugins()
    read: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    return read


def test_grafana_knows_every_field():
    """Read by Grafana's model and written again, nothing is lost or changed."""
    assert OF_THE_DATA_SOURCE >= set(differences(BOARD, through_grafana(BOARD)))
