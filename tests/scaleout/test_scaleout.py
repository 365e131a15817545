"""What runs under Ray, without Ray: how many replicas, what each may use, and what it tells."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml

from backend import scaleout
from backend.config import Settings
from backend.errors import BadSettings, SetupError
from backend.scaleout import OneRequestId, QueuePolicy, Scale, load_of, main, settings_of_replica
from tests.test_main import ROOT


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        pytest.param({"replicas": 0}, "replicas=0: at least 1", id="none"),
        pytest.param({"replicas": 4, "max_replicas": 3}, "max_replicas=3: at least replicas, which is 4", id="fewer"),
        pytest.param({"gpus": 1.5}, "gpus=1.5: a part of one card", id="cards-and-a-half"),
        pytest.param({"cpus": 0}, "cpus=0.0: over 0", id="no-core"),
        pytest.param({"queue_s": -1}, "queue_s=-1.0: over 0", id="negative"),
        pytest.param({"replica": 2}, "replica: unknown; known are replicas", id="misspelt"),
        pytest.param({"replicas": "many"}, "args: invalid literal", id="a-word"),
    ],
)
def test_faults_of_a_configuration_file(arguments, fault):
    with pytest.raises(BadSettings, match=fault):
        Scale.parse(arguments)


def test_configuration_file_of_a_cluster():
    """deploy/ray/serve.yaml names the application, and what it may."""
    [application] = yaml.safe_load((ROOT / "deploy/ray/serve.yaml").read_text())["applications"]

    assert "backend.scaleout:application" == application["import_path"]
    assert Scale(2, 10, 4.0, 0.0, 2.0) == Scale.parse(application["args"])


@pytest.mark.parametrize(
    ("settings", "scale", "expected"),
    [
        pytest.param({}, Scale(cpus=3.5), (3, 3, None), id="as-many-lanes-as-cores"),
        pytest.param({"lanes": 1, "reader_processes": 2}, Scale(cpus=8), (1, 2, None), id="a-setting-wins"),
        pytest.param({}, Scale(gpus=0.5), (None, 1, 0.45), id="half-a-card"),
        pytest.param({"gpu_memory_fraction": 0.2}, Scale(gpus=0.5), (None, 1, 0.2), id="a-fraction-that-is-set"),
        pytest.param({}, Scale(gpus=2), (None, 1, None), id="two-cards"),
    ],
)
def test_settings_of_a_replica(settings, scale, expected):
    replica = settings_of_replica(Settings(**settings, cuda_visible_devices="0,1"), scale)

    assert expected == (replica.lanes, replica.reader_processes, replica.gpu_memory_fraction)
    assert replica.cuda_visible_devices is None  # Ray has chosen


def context(**told: dict[str, float]) -> Any:
    return SimpleNamespace(aggregated_metrics=told, running_replicas=["a", "b"])


@pytest.mark.parametrize(
    ("busy", "waiting_s", "expected"),
    [
        pytest.param({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}, 0.0, id="idle"),
        pytest.param({"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.0}, 1.5, id="busy-without-a-queue"),
        pytest.param({"a": 1.0, "b": 1.0}, {"a": 6.0, "b": 2.0}, 6.0, id="eight-seconds-wait"),
    ],
)
def test_wished_replicas(busy, waiting_s, expected):
    """One for each that is busy, and one for each two seconds of work that waits."""
    assert (expected, {}) == QueuePolicy(2.0)(context(busy_ratio=busy, waiting_s=waiting_s))


def test_load_of_a_replica():
    """The busier kind of lanes counts; what waits is told in seconds, and in none before a rate is known."""
    idle = SimpleNamespace(busy=0, lanes_alive=2, queued_tokens=0, rate_tokens_per_s=0.0)
    pages = SimpleNamespace(busy=1, lanes_alive=2)
    queued = SimpleNamespace(busy=0, lanes_alive=2, queued_tokens=500, rate_tokens_per_s=250.0)

    assert {"busy_ratio": 0.0, "queue_tokens": 0.0, "waiting_s": 0.0} == load_of(services(idle, idle))
    assert {"busy_ratio": 0.5, "queue_tokens": 500.0, "waiting_s": 2.0} == load_of(services(queued, pages))


def services(lanes: Any, pages: Any) -> Any:
    document_runtime = SimpleNamespace(lanes=SimpleNamespace(status=lambda: pages))
    return SimpleNamespace(batcher=SimpleNamespace(status=lambda: lanes), document_runtime=document_runtime)


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        pytest.param(b"ray-1", [], id="the-same"),
        pytest.param(b"another", [(b"x-request-id", b"another")], id="another"),
    ],
)
async def test_one_request_id(own, kept):
    """Ray writes the request's id into the answer: the service's own is left out where it is the same."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"X-Request-Id", own), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await OneRequestId(app)({"type": "http", "headers": [(b"x-request-id", b"ray-1")]}, None, send)  # type: ignore[arg-type]

    assert [*kept, (b"content-type", b"text/plain")] == sent[0]["headers"]


def test_bad_settings_stop_the_start(monkeypatch, capsys):
    monkeypatch.setenv("LIMIT_INPUTS", "0")

    assert 2 == main([])
    assert "LIMIT_INPUTS" in capsys.readouterr().err


def test_ray_that_does_not_start(monkeypatch):
    """It is tried three times, what an attempt has left is ended before the next, and the reason is said."""
    left: list[subprocess.Popen[bytes]] = []

    def init(**_: object) -> None:
        assert not any(psutil.pid_exists(process.pid) for process in left)
        left.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        raise RuntimeError("the head takes too long")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: None))
    with pytest.raises(SetupError, match="the head takes too long"):
        scaleout._start_ray(2)

    for process in left:  # so that none outlives a failed test
        process.stdin.close()
        process.wait(60)

    assert 3 == len(left)
