"""The autoscalers and the example for KServe: about series and streams there are, one of them, and like the base."""

import pytest

from backend.config import Settings
from backend.jobs.redis_queue import RedisQueue
from backend.processes.http_server import GRACE_S
from tests.deploy.manifests import (
    FOLDER,
    NEWEST,
    OLDEST,
    Manifest,
    container,
    faults_of,
    identity,
    load,
    ours,
    pod,
    the,
)
from tests.deploy.promql import faults

POD_FIELDS = ("containers", "volumes", "terminationGracePeriodSeconds")  # a predictor is a pod's spec with more fields
# What KEDA's scaler of redis-streams reads from its authentication.
REDIS_PARAMETERS = frozenset(("address", "host", "port", "username", "password", "tls", "ca", "cert", "key"))
KEDA = ours(FOLDER / "keda")
[KSERVE] = load(FOLDER / "kserve" / "inferenceservice.yaml")
SCALED = the(KEDA, "ScaledObject")["spec"]
TRIGGERS: dict[str, Manifest] = {trigger["name"]: trigger for trigger in SCALED["triggers"]}


def as_autoscaler(scaled: Manifest) -> Manifest:
    """The HorizontalPodAutoscaler that KEDA makes of it, as far as Kubernetes decides what is right in it."""
    metrics = [
        {
            "type": "External",
            "external": {"metric": {"name": one["name"]}, "target": {"type": one["metricType"], "averageValue": "1"}},
        }
        for one in scaled["triggers"]
    ]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda-hpa-financia"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", **scaled["scaleTargetRef"]},
            "minReplicas": scaled["minReplicaCount"],
            "maxReplicas": scaled["maxReplicaCount"],
            "behavior": scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
            "metrics": metrics,
        },
    }


def as_pod(service: Manifest) -> Manifest:
    """The pod that KServe makes of a predictor."""
    spec = {field: service["spec"]["predictor"][field] for field in POD_FIELDS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "financia-predictor"}, "spec": spec}


@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_what_operators_make_of_them_is_valid(version: str):
    """The autoscaler with the behaviour that the ScaledObject wishes, KEDA's way to Redis, and KServe's pod."""
    made = [as_autoscaler(SCALED), the(KEDA, "NetworkPolicy"), as_pod(KSERVE)]

    assert [""] * 3 == [faults_of(manifest, version) for manifest in made]


def test_there_is_one_autoscaler():
    """In a folder of its own each; two would fight over one Deployment."""
    kinds = {choice: {one["kind"] for one in ours(FOLDER / choice)} for choice in ("base", "gpu", "hpa", "keda")}
    scalers = {"HorizontalPodAutoscaler", "ScaledObject"}

    assert {"base": set(), "gpu": set(), "hpa": {"HorizontalPodAutoscaler"}, "keda": {"ScaledObject"}} == {
        choice: found & scalers for choice, found in kinds.items()
    }


def test_it_scales_the_deployment_and_never_to_zero():
    """Two pods at least, so that upkeep of a node leaves one; a fallback that never takes pods away."""
    fallback = SCALED["fallback"]

    assert identity(the(ours(FOLDER / "base"), "Deployment"))[1] == SCALED["scaleTargetRef"]["name"]
    assert 1 < SCALED["minReplicaCount"] <= fallback["replicas"] <= SCALED["maxReplicaCount"]
    assert "idleReplicaCount" not in SCALED
    assert "currentReplicasIfHigher" == fallback["behavior"]


def test_pods_are_taken_away_slowly():
    """One in the time that one needs to drain, and only after minutes; added at once, to the maximum."""
    behavior = SCALED["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    [down], [up] = behavior["scaleDown"]["policies"], behavior["scaleUp"]["policies"]
    base = ours(FOLDER / "base")
    pause_s = int(container(base)["lifecycle"]["preStop"]["exec"]["command"][1])
    drain_s = float(the(base, "ConfigMap")["data"]["LIMIT_DRAIN_S"])

    assert ("Pods", 1) == (down["type"], down["value"])
    assert down["periodSeconds"] > pause_s + GRACE_S + drain_s
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 300
    assert (0, SCALED["maxReplicaCount"]) == (behavior["scaleUp"]["stabilizationWindowSeconds"], up["value"])


def test_a_lost_metric_is_an_error_and_not_zero():
    """By KEDA's default an empty answer of Prometheus is 0, which would take pods away under load."""
    metadata = [one["metadata"] for one in TRIGGERS.values() if one["type"] == "prometheus"]

    assert ["false"] * len(metadata) == [one["ignoreNullValues"] for one in metadata]


@pytest.mark.parametrize(
    "query",
    [
        *(one["metadata"]["query"] for one in TRIGGERS.values() if one["type"] == "prometheus"),
        KSERVE["spec"]["predictor"]["autoScaling"]["metrics"][0]["external"]["metric"]["query"],
    ],
)
def test_prometheus_is_asked_for_what_the_service_exports(query: str):
    """By name, labels and values."""
    assert [] == faults(query)


def test_jobs_are_counted_in_the_stream_that_the_service_writes():
    """By the default CACHE_PREFIX; waiting and running ones, more of them than one pod works on."""
    settings = Settings()
    metadata = TRIGGERS["jobs"]["metadata"]
    queue = RedisQueue(None, settings.cache_prefix, 30.0, lambda: 0.0)  # type: ignore[arg-type]

    assert queue.shared == metadata["stream"]
    assert float(metadata["streamLength"]) >= settings.job_workers


def test_keda_reaches_redis():
    """The authentication there is, from a Secret that pods do not read as settings; and through the policies."""
    authentication, way = the(KEDA, "TriggerAuthentication"), the(KEDA, "NetworkPolicy")["spec"]
    sources = authentication["spec"]["secretTargetRef"]
    secrets = {one["secretRef"]["name"] for one in container(ours(FOLDER / "base"))["envFrom"] if "secretRef" in one}
    [redis] = [one for one in ours(FOLDER / "base") if identity(one) == ("NetworkPolicy", "financia-redis")]

    assert identity(authentication)[1] == TRIGGERS["jobs"]["authenticationRef"]["name"]
    assert {one["parameter"] for one in sources} <= REDIS_PARAMETERS
    assert not secrets & {one["name"] for one in sources}
    assert redis["spec"]["podSelector"] == way["podSelector"]
    assert redis["spec"]["ingress"][0]["ports"] == way["ingress"][0]["ports"]


def test_kserve_runs_the_same_pod():
    """Image, resources, probes and time to end of the base, and its threshold of the other autoscaler."""
    predictor, base = KSERVE["spec"]["predictor"], ours(FOLDER / "base")
    theirs, backend = predictor["containers"][0], container(base)
    [metric] = predictor["autoScaling"]["metrics"]
    labels = the(base, "Deployment")["spec"]["template"]["metadata"]["labels"]

    for field in ("image", "resources", "lifecycle", "envFrom"):
        assert theirs[field] == backend[field], field
    assert [{**port, "protocol": "TCP"} for port in backend["ports"]] == theirs["ports"]  # KServe demands the protocol
    mounts = {mount["name"]: mount["mountPath"] for mount in backend["volumeMounts"]}
    assert {mount["name"]: mount["mountPath"] for mount in theirs["volumeMounts"]}.items() <= mounts.items()
    assert all(volume in pod(base)["volumes"] for volume in predictor["volumes"])
    for probe in ("startupProbe", "readinessProbe"):
        assert theirs[probe]["httpGet"]["path"] == backend[probe]["httpGet"]["path"]
    assert predictor["terminationGracePeriodSeconds"] == pod(base)["terminationGracePeriodSeconds"]
    assert TRIGGERS["load"]["metadata"]["threshold"] == metric["external"]["target"]["value"]
    assert TRIGGERS["load"]["metadata"]["query"] == metric["external"]["metric"]["query"]
    assert labels == predictor["labels"]


def test_policies_and_monitor_find_the_port_of_kserve():
    """They go by its name; a named port that a pod does not have matches nothing, and nobody is told."""
    names = {port["name"] for port in KSERVE["spec"]["predictor"]["containers"][0]["ports"]}
    [rule] = the(
        [one for one in ours(FOLDER / "base") if identity(one)[1] == "financia" and one["kind"] == "NetworkPolicy"],
        "NetworkPolicy",
    )["spec"]["ingress"]
    ends = the(ours(FOLDER / "monitoring"), "PodMonitor")["spec"]["podMetricsEndpoints"]

    assert {port["port"] for port in rule["ports"]} <= names
    assert {end["port"] for end in ends} <= names
