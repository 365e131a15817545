"""What KEDA and KServe take, as far as our manifests use it: names and types of fields, everything else refused.

kubernetes-validate knows Kubernetes' own kinds alone. These descriptions are ours, written after the definitions of
KEDA 2.20 (`ScaledObject`, `TriggerAuthentication`, the metadata of two scalers) and KServe 0.20 (`InferenceService`). A
field that a manifest starts to use is added here, once somebody has looked it up.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string", "minLength": 1}


def _whole(minimum: int, maximum: int = 2**31 - 1) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def _closed(required: str, optional: str = "", **fields: Schema) -> Schema:
    """An object with these fields and no others; names of ``required`` and ``optional`` without a schema are text."""
    names = [*required.split(), *optional.split()]
    properties = {**dict.fromkeys(names, _TEXT), **fields}
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _resource(version: str, kind: str, spec: Schema) -> Schema:
    metadata = _closed(
        "name",
        labels={"type": "object", "additionalProperties": _TEXT},
        annotations={"type": "object", "additionalProperties": _TEXT},
    )
    return _closed(
        "apiVersion kind metadata spec",
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


# Kubernetes' own, which KEDA and KServe take over: kubernetes-validate checks it in a HorizontalPodAutoscaler too.
_BEHAVIOR: Schema = {"type": "object"}
_NUMBER: Schema = {"type": "string", "pattern": r"^\d+(\.\d+)?$"}  # all metadata of triggers is text
_TRUTH: Schema = {"enum": ["true", "false"]}
_PROMETHEUS = _closed(
    "serverAddress query threshold", threshold=_NUMBER, activationThreshold=_NUMBER, ignoreNullValues=_TRUTH
)
# Without consumerGroup: its presence would turn the trigger from the stream's length to pending entries or lag.
_REDIS_STREAMS = _closed("stream streamLength", streamLength=_NUMBER, databaseIndex=_NUMBER)


def _trigger(kind: str, metadata: Schema, required: str) -> Schema:
    reference = _closed("name", kind={"enum": ["TriggerAuthentication", "ClusterTriggerAuthentication"]})
    return _closed(
        f"type metadata metricType {required}",
        "name",
        type={"const": kind},
        metadata=metadata,
        metricType={"enum": ["AverageValue", "Value"]},  # Utilization is of cpu and memory
        authenticationRef=reference,
    )


_FALLBACK = _closed(
    "failureThreshold replicas",
    failureThreshold=_whole(0),
    replicas=_whole(0),
    behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
)
SCALED_OBJECT = _resource(
    "keda.sh/v1alpha1",
    "ScaledObject",
    _closed(
        "scaleTargetRef triggers",
        scaleTargetRef=_closed("name", "apiVersion kind envSourceContainerName"),
        minReplicaCount=_whole(0),
        maxReplicaCount=_whole(1),
        pollingInterval=_whole(1),
        cooldownPeriod=_whole(0),
        fallback=_FALLBACK,
        advanced=_closed("", horizontalPodAutoscalerConfig=_closed("", "name", behavior=_BEHAVIOR)),
        triggers=_list(
            {
                "oneOf": [
                    _trigger("prometheus", _PROMETHEUS, ""),
                    _trigger("redis-streams", _REDIS_STREAMS, "authenticationRef"),
                ]
            }
        ),
    ),
)
TRIGGER_AUTHENTICATION = _resource(
    "keda.sh/v1alpha1", "TriggerAuthentication", _closed("", secretTargetRef=_list(_closed("parameter name key")))
)
# What the scaler of redis-streams reads from its authentication.
REDIS_PARAMETERS = frozenset(("address", "host", "port", "username", "password", "tls", "ca", "cert", "key"))

_EXTERNAL_METRIC = _closed(
    "metric target",
    metric=_closed("backend query", "serverAddress namespace", backend={"enum": ["prometheus", "graphite"]}),
    # KServe 0.20 makes the threshold of `value`, whatever the type; of an averageValue it makes "0".
    target=_closed("type value", type={"const": "Value"}, value=_NUMBER),
)
_PREDICTOR = _closed(
    "containers minReplicas maxReplicas autoScaling",
    labels={"type": "object", "additionalProperties": _TEXT},
    minReplicas=_whole(0),
    maxReplicas=_whole(1),
    autoScaling=_closed(
        "metrics",
        metrics=_list(_closed("type external", type={"const": "External"}, external=_EXTERNAL_METRIC)),
        behavior=_BEHAVIOR,
    ),
    **{field: {} for field in ("containers", "volumes", "terminationGracePeriodSeconds")},  # of a pod: POD_FIELDS
)
INFERENCE_SERVICE = _resource(
    "serving.kserve.io/v1beta1", "InferenceService", _closed("predictor", predictor=_PREDICTOR)
)
POD_FIELDS = ("containers", "volumes", "terminationGracePeriodSeconds")  # a predictor is a pod's spec with more fields
SCHEMAS = {
    "ScaledObject": SCALED_OBJECT,
    "TriggerAuthentication": TRIGGER_AUTHENTICATION,
    "InferenceService": INFERENCE_SERVICE,
}


def custom_faults(manifest: dict[str, Any]) -> list[str]:
    """Why a manifest is none for KEDA or KServe, in the order of its fields; empty where it is right."""
    errors = Draft202012Validator(SCHEMAS[manifest["kind"]]).iter_errors(manifest)
    return sorted(f"{error.json_path}: {error.message}" for error in errors)
