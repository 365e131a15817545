"""The manifests: valid by Kubernetes' own schemas, as kustomize would put them together, and true to the service."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from backend import __version__
from backend.api.api_keys import OPEN_PATHS
from backend.config import Settings
from backend.lanes.batcher import LANE_EXIT_S
from backend.processes.http_server import GRACE_S
from tests.deploy.manifests import (
    BUILT,
    CHOICES,
    FOLDER,
    GUIDE,
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
from tests.deploy.promql import DEPLOY


@pytest.mark.slow
@BUILT
@pytest.mark.parametrize("choice", ["base", "gpu", "hpa", "hub"])
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_are_valid(build: Callable[[Path], list[Manifest]], choice: str, version: str):
    """By the schemas of the oldest and the newest Kubernetes meant."""
    manifests = build(FOLDER / choice)

    assert len(manifests) >= (1 if choice in {"hpa", "hub"} else 5)
    assert [""] * len(manifests) == [faults_of(manifest, version) for manifest in manifests]


@BUILT
@pytest.mark.parametrize("choice", CHOICES)
def test_every_builder_makes_the_same(build: Callable[[Path], list[Manifest]], choice: str):
    """What is asserted below of ours holds for what kubectl applies; and every manifest of a folder is used."""
    built = {identity(manifest): manifest for manifest in build(FOLDER / choice)}
    files = {file.name for file in (FOLDER / choice).glob("*.yaml")} - {"kustomization.yaml"}
    [wish] = load(FOLDER / choice / "kustomization.yaml")
    named = {*wish["resources"], *(patch["path"] for patch in wish.get("patches", ()))}

    assert {identity(manifest): manifest for manifest in ours(FOLDER / choice)} == built
    assert files == {name for name in named if name.endswith(".yaml")}


def test_the_base_is_complete():
    """Everything that a deployment which must not stop consists of, but for the autoscaler, which is chosen."""
    kinds = sorted(manifest["kind"] for manifest in ours(FOLDER / "base"))

    assert kinds == [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "Service",
    ]


def test_whoever_selects_pods_finds_them():
    """Deployment, service, budget, spreading and monitor ask for labels that the pods have."""
    manifests = [*ours(FOLDER / "base"), *ours(FOLDER / "monitoring")]
    deployment, service = the(manifests, "Deployment")["spec"], the(manifests, "Service")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    [spread] = pod(manifests)["topologySpreadConstraints"]
    selectors = [
        deployment["selector"]["matchLabels"],
        service["selector"],
        the(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        spread["labelSelector"]["matchLabels"],
        the(manifests, "PodMonitor")["spec"]["selector"]["matchLabels"],
    ]

    assert all(selector.items() <= labels.items() and len(selector) == 2 for selector in selectors)


def test_names_refer_to_what_is_there():
    """The autoscaler's target, the settings, the volume, and the ports by their name."""
    manifests = [one for choice in ("base", "hpa", "monitoring") for one in ours(FOLDER / choice)]
    names = {identity(manifest) for manifest in manifests}
    backend, volumes = container(manifests), {volume["name"]: volume for volume in pod(manifests)["volumes"]}
    ports = {port["name"] for port in backend["ports"]}
    target = the(manifests, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    [settings] = [source["configMapRef"]["name"] for source in backend["envFrom"] if "configMapRef" in source]

    assert (target["kind"], target["name"]) in names
    assert ("ConfigMap", settings) in names
    assert ("PersistentVolumeClaim", volumes["data"]["persistentVolumeClaim"]["claimName"]) in names
    assert {mount["name"] for mount in backend["volumeMounts"]} == set(volumes)
    assert {port["targetPort"] for port in the(manifests, "Service")["spec"]["ports"]} <= ports
    assert {end["port"] for end in the(manifests, "PodMonitor")["spec"]["podMetricsEndpoints"]} <= ports


@pytest.mark.parametrize("choice", ["base", "gpu"])
def test_pods_do_not_start_without_their_keys(choice: str):
    """A Secret in another namespace, or a name that is misspelt, must not make an open service."""
    [secret] = [one["secretRef"] for one in container(ours(FOLDER / choice))["envFrom"] if "secretRef" in one]

    assert {"name": "financia"} == secret


def test_commands_of_the_guide_name_their_namespace():
    """What is created or deleted by hand must lie where the kustomization puts the pods."""
    commands = re.findall(
        r"kubectl (?:create secret|delete|describe|rollout)[^`\n]*", GUIDE.read_text(encoding="utf-8")
    )

    assert len(commands) >= 3
    assert [] == [command for command in commands if "-n financia" not in command]
    assert "kubectl create namespace financia" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize("choice", ["base", "gpu"])
def test_settings_are_settings(choice: str, monkeypatch: pytest.MonkeyPatch):
    """Every pair of the ConfigMap is one the service reads, but for HF_HOME, and all of them are right."""
    pairs = the(ours(FOLDER / choice), "ConfigMap")["data"]
    for name, value in pairs.items():
        monkeypatch.setenv(name, value)

    settings = Settings()

    assert {name.lower() for name in pairs} - {"hf_home"} <= set(Settings.model_fields)
    assert ("0.0.0.0", choice == "gpu" or None) == (settings.host, settings.use_gpu)
    assert [{"name": "http", "containerPort": settings.port}] == container(ours(FOLDER / choice))["ports"]


@pytest.mark.parametrize("choice", ["base", "gpu"])
def test_a_pod_has_the_time_to_end(choice: str):
    """The pause before SIGTERM, the grace, open requests and the jobs they left, all within the pod's grace period."""
    manifests = ours(FOLDER / choice)
    pause_s = int(container(manifests)["lifecycle"]["preStop"]["exec"]["command"][1])
    drain_s = float(the(manifests, "ConfigMap")["data"]["LIMIT_DRAIN_S"])

    assert pause_s > GRACE_S
    assert pod(manifests)["terminationGracePeriodSeconds"] > pause_s + GRACE_S + 2 * drain_s + 1 + LANE_EXIT_S


def test_probes_ask_what_answers():
    """Their paths need no key; a start may take ten minutes; a probe may wait as long as readiness does."""
    backend = container(ours(FOLDER / "base"))
    start, ready, live = (backend[name] for name in ("startupProbe", "readinessProbe", "livenessProbe"))

    assert {probe["httpGet"]["path"] for probe in (start, ready, live)} <= OPEN_PATHS
    assert "/health/ready" == ready["httpGet"]["path"]
    assert "/health/live" == live["httpGet"]["path"] == start["httpGet"]["path"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 600
    assert ready["timeoutSeconds"] > 5  # services/health.py, CANARY_S


@pytest.mark.parametrize("choice", ["base", "gpu"])
def test_a_pod_may_do_little(choice: str):
    """No privileges, a root file system that cannot be written, and no token for Kubernetes."""
    manifests = ours(FOLDER / choice)
    spec, rights = pod(manifests), container(manifests)["securityContext"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
    assert rights["capabilities"] == {"drop": ["ALL"]}


def test_what_is_written_lies_on_volumes():
    """STATE_DIR and HF_HOME; everything else is read-only."""
    manifests = ours(FOLDER / "base")
    pairs = the(manifests, "ConfigMap")["data"]
    mounts = [Path(mount["mountPath"]) for mount in container(manifests)["volumeMounts"]]

    assert Path("/tmp") in mounts
    for name in ("STATE_DIR", "HF_HOME"):
        assert any(Path(pairs[name]).is_relative_to(mount) for mount in mounts)


def test_processors_are_whole_and_bounded():
    """There are as many lanes as the limit has cores, and requests that promise them."""
    resources = container(ours(FOLDER / "base"))["resources"]

    assert resources["limits"] == resources["requests"]
    assert re.fullmatch(r"\d+", resources["limits"]["cpu"])


def test_memory_is_what_compose_gives():
    """Both say what two cores need that read pages; measured in docs/operations.md."""
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text(encoding="utf-8"))
    limit = container(ours(FOLDER / "base"))["resources"]["limits"]["memory"]

    assert f"${{MEMORY_LIMIT:-{limit.removesuffix('Gi')}g}}" == compose["services"]["backend"]["mem_limit"]


def test_the_overlay_for_gpus():
    """One card a pod, demanded; another image; everything else as in the base."""
    base, gpu = ours(FOLDER / "base"), ours(FOLDER / "gpu")
    limits = container(gpu)["resources"]["limits"]

    assert limits["nvidia.com/gpu"] == 1
    assert [identity(one) for one in base] == [identity(one) for one in gpu]
    assert {"STATE_DIR", "USE_GPU"} <= set(the(gpu, "ConfigMap")["data"])
    assert container(gpu)["livenessProbe"] == container(base)["livenessProbe"]


def test_images_have_the_version():
    """Never `latest`; both are of this version."""
    images = [container(ours(FOLDER / choice))["image"] for choice in ("base", "gpu")]

    assert [f"financia-backend:{__version__}", f"financia-backend-gpu:{__version__}"] == images


def test_upkeep_of_a_node_is_never_blocked():
    """With one pod too; and a rollout takes none away before another is ready."""
    manifests = [*ours(FOLDER / "base"), *ours(FOLDER / "hpa")]

    assert the(manifests, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert the(manifests, "Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert "replicas" not in the(manifests, "Deployment")["spec"]  # the autoscaler's, not apply's
    assert the(manifests, "HorizontalPodAutoscaler")["spec"]["minReplicas"] > 1


def policies(*choices: str) -> dict[str, Manifest]:
    """The network policies of some folders, by name."""
    found = [one for choice in choices for one in ours(FOLDER / choice) if one["kind"] == "NetworkPolicy"]
    return {one["metadata"]["name"]: one["spec"] for one in found}


def test_what_is_not_named_is_cut_off():
    """Both ways, for the pods of the service and for the Redis beside them; no rule is open to everybody."""
    pods = the(ours(FOLDER / "base"), "Deployment")["spec"]["template"]["metadata"]["labels"]
    redis = {**pods, "app.kubernetes.io/component": "redis"}
    found = policies("base", "hub")

    assert {"financia": pods, "financia-redis": redis, "financia-hub": pods} == {
        name: spec["podSelector"]["matchLabels"] for name, spec in found.items()
    }
    assert [["Ingress", "Egress"]] * 2 == [found[name]["policyTypes"] for name in ("financia", "financia-redis")]
    assert "egress" not in found["financia-redis"]
    for spec in found.values():
        for rule, peers in (("ingress", "from"), ("egress", "to")):
            assert all(one[peers] and one["ports"] for one in spec.get(rule, ()))
            assert not any(
                "namespaceSelector" in p and not p["namespaceSelector"]
                for one in spec.get(rule, ())
                for p in one[peers]
            )


def test_the_service_reaches_redis_names_and_nothing_else():
    """And each is let in at the other end; the hub only where its folder is applied."""
    found = policies("base", "hub")
    service, redis = found["financia"], found["financia-redis"]
    ways = {(port["protocol"], port["port"]) for rule in service["egress"] for port in rule["ports"]}
    [to_redis] = [rule for rule in service["egress"] if rule["ports"][0]["port"] == 6379]
    [into_redis] = redis["ingress"]
    [to_hub] = found["financia-hub"]["egress"]

    assert {("UDP", 53), ("TCP", 53), ("TCP", 6379)} == ways
    assert [redis["podSelector"]] == [peer["podSelector"] for peer in to_redis["to"]]
    assert [service["podSelector"]] == [peer["podSelector"] for peer in into_redis["from"]]
    assert to_redis["ports"] == into_redis["ports"]
    assert [{"protocol": "TCP", "port": 443}] == to_hub["ports"]
    assert all(peer["ipBlock"]["except"] for peer in to_hub["to"])  # never the cluster's own networks


def test_the_policy_of_the_guide():
    """For a Redis elsewhere: valid, and for the pods of the service."""
    [text] = re.findall(r"```yaml\n(apiVersion: networking.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    policy = yaml.safe_load(text)

    assert ["", ""] == [faults_of(policy, version) for version in (OLDEST, NEWEST)]
    assert policies("base")["financia"]["podSelector"] == policy["spec"]["podSelector"]


def test_callers_reach_the_port_of_the_service_alone():
    """By the name that the container gives it."""
    [rule] = policies("base")["financia"]["ingress"]

    assert [{"protocol": "TCP", "port": "http"}] == rule["ports"]
    assert "http" in {port["name"] for port in container(ours(FOLDER / "base"))["ports"]}


def test_the_monitor_scrapes_what_prometheus_scrapes():
    """The same paths under the same names of jobs."""
    jobs = load(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
    ends = the(ours(FOLDER / "monitoring"), "PodMonitor")["spec"]["podMetricsEndpoints"]
    told = {end["path"]: relabel["replacement"] for end in ends for relabel in end["relabelings"]}

    assert {job["metrics_path"]: job["job_name"] for job in jobs if "metrics_path" in job} == told


def test_the_alerts_become_an_object_of_the_operator():
    """By the line of the guide, which keeps one copy of them."""
    [line] = re.findall(
        r"^(\{ printf .*?) \| kubectl apply -n financia -f -$", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    made = subprocess.run(["bash", "-c", line], cwd=DEPLOY.parent, capture_output=True, text=True, check=True)
    rule = yaml.safe_load(made.stdout)

    assert ("PrometheusRule", "financia") == identity(rule)
    assert load(DEPLOY / "prometheus" / "alerts.yml")[0] == rule["spec"]
