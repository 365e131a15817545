"""What Kubernetes' autoscaler makes of metrics: the rule of KEDA's HorizontalPodAutoscaler, without a cluster.

The algorithm is that of the HPA v2 controller: a ratio within the tolerance changes nothing, the largest wish of all
metrics counts, a fall is held back by the highest wish of the window, and policies bound the pods of a period.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

SYNC_S = 15.0  # of the controller (--horizontal-pod-autoscaler-sync-period)
TOLERANCE = 0.1  # its default


@dataclass(frozen=True, slots=True)
class Rule:
    """The ScaledObject, as far as it decides numbers. Thresholds are of one pod (AverageValue)."""

    name: str
    queue_tokens: float = 0.0  # threshold of sum(financia_queue_tokens); 0: no such trigger
    load_tokens_per_s: float = 0.0  # threshold of computed tokens and requests a second; 0: no such trigger
    busy_lanes: float = 0.0  # threshold of sum(rate(financia_batch_duration_seconds_sum[1m])); 0: no such trigger
    stream_jobs: float = 4.0  # threshold of the stream's length
    minimum: int = 1
    maximum: int = 10
    down_window_s: float = 300.0
    down_period_s: float = 60.0  # one pod each
    up_pods: int = 10  # of one sync

    def thresholds(self) -> dict[str, float]:
        """Of the triggers that there are."""
        names = ("queue_tokens", "load_tokens_per_s", "busy_lanes", "stream_jobs")
        named = {name: float(getattr(self, name)) for name in names}
        return {name: threshold for name, threshold in named.items() if threshold}


def desired_replicas(total: float, threshold: float, pods: int) -> int:
    """Pods that one external metric asks for, as `GetExternalPerPodMetricReplicas` computes them."""
    if abs(total / (threshold * pods) - 1.0) <= TOLERANCE:
        return pods
    return math.ceil(total / threshold)


@dataclass(slots=True)
class Autoscaler:
    """The controller's memory between its looks; it may begin with the number that it had settled on before."""

    rule: Rule
    _wishes: list[tuple[float, int]] = field(default_factory=list)
    _removed_at_s: list[float] = field(default_factory=list)  # when pods were taken away

    def decide(self, now_s: float, pods: int, totals: Mapping[str, float]) -> int:
        """How many pods there should be now.

        Args:
            totals: of each trigger over all pods, by its name in `Rule.thresholds`.
        """
        rule = self.rule
        wishes = [desired_replicas(totals[name], threshold, pods) for name, threshold in rule.thresholds().items()]
        wish = min(max(rule.minimum, *wishes), rule.maximum)
        self._wishes = [(at_s, one) for at_s, one in self._wishes if at_s > now_s - rule.down_window_s]
        self._wishes.append((now_s, wish))
        if wish >= pods:
            return min(wish, pods + rule.up_pods)
        held = min(pods, max(one for _, one in self._wishes))
        self._removed_at_s = [at_s for at_s in self._removed_at_s if at_s > now_s - rule.down_period_s]
        if held >= pods or self._removed_at_s:
            return pods
        self._removed_at_s.append(now_s)
        return pods - 1
