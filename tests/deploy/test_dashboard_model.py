"""The dashboard by Grafana's own model, which its developers generate from its schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.test_dashboard import BOARD

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


def test_a_field_that_grafana_does_not_know_is_found():
    """In the dashboard, a panel and what a panel's type brings."""
    board = json.loads(re.sub(r'"gridPos"', '"gridPosition"', json.dumps(BOARD), count=1))
    board["titel"] = board.pop("title")

    assert {"/titel", "/panels[]/gridPosition"} <= set(differences(board, through_grafana(board)))
