"""PURE: the records of a diagnosis (findings, verdict), and the report as text or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import DeviceRequest
from backend.device.plan.attention import AttentionReport
from backend.device.plan.placement import Placement
from backend.device.records import CardSample, MachineFacts

PAGE = "docs/gpu.md"
_WIDTH, _INDENT = 110, 23  # columns of the text report; of its status and topic

Anchor = Literal[  # the headings of docs/gpu.md that findings link to; a test compares both
    "",
    "apple",
    "attention",
    "blackwell",
    "container",
    "cuda-not-available",
    "driver-too-old",
    "errors-of-the-card",
    "gpu-lost",
    "gpu-not-used",
    "heat-and-power",
    "memory-held-by-others",
    "memory-of-the-machine",
    "mig",
    "out-of-memory",
    "precision",
    "settings",
    "shared-memory",
    "unified-memory",
    "which-gpu-is-used",
    "windows",
    "wrong-torch-build",
    "wsl2",
]


class Status(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"  # it runs, but something costs speed or was fallen back from
    FAIL = "fail"  # the service does not start like this


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked item, as a row of the report. The field names are those of the JSON report."""

    topic: str  # "driver", "gpu 0", …
    status: Status
    what: str  # one sentence, with numbers
    fix: str = ""  # what to do about it; with status ok a hint for other uses
    command: str = ""  # the command that fixes it, ready to copy
    anchor: Anchor = ""  # heading of docs/gpu.md with more about it


@dataclass(frozen=True, slots=True)
class Observations:
    """What was observed in addition to the machine's facts. What is left out gets no finding."""

    request: DeviceRequest = field(default_factory=DeviceRequest)
    placements: tuple[Placement, ...] = ()  # () when the request was refused
    refusal: str = ""  # why it was
    saved: SavedChoice | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)  # torch device -> "" or how its first kernel failed
    samples: Mapping[str, CardSample] = field(default_factory=dict)  # by UUID
    lost: Mapping[str, str] = field(default_factory=dict)  # UUID -> why the card could not be sampled
    attention: Mapping[str, AttentionReport] = field(default_factory=dict)  # by torch device
    allocator: str = ""  # options of torch's allocator that will apply
    runs: tuple[str, ...] = ()  # the candidates that PRECISION and RUNTIME allow there, for example "torch bf16"
    unserved: str = ""  # why PRECISION and RUNTIME allow no candidate; "" when they allow one
    visible: str | None = None  # CUDA_VISIBLE_DEVICES


class Verdict(StrEnum):
    """The result of a diagnosis. Its index here is the exit code of check_gpu."""

    GOOD = "good"  # no warnings; a machine without a GPU is good when none was requested
    DEGRADED = "degraded"  # the service runs, but slower than it could or on a fallback
    UNUSABLE = "unusable"  # the service would not start: a request cannot be met, or the device fails

    @property
    def exit_code(self) -> int:
        """0, 1 or 2."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict and all findings."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    devices: tuple[str, ...] = ()  # torch devices that the service would use; () when it would not start

    @property
    def actionable(self) -> tuple[Finding, ...]:
        """The findings that are not ok."""
        return tuple(finding for finding in self.findings if finding.status is not Status.OK)


def verdict_of(findings: tuple[Finding, ...]) -> Verdict:
    """The verdict of the worst finding."""
    statuses = {finding.status for finding in findings}
    if Status.FAIL in statuses:
        return Verdict.UNUSABLE
    return Verdict.DEGRADED if Status.WARN in statuses else Verdict.GOOD


def render(diagnosis: Diagnosis, title: str) -> str:
    """The text report: a row per finding, and under it the fix. Without colours, so that it can go to a log."""
    lines = [title, ""]
    topic = ""
    for finding in diagnosis.findings:
        lines += _lines(finding, "" if finding.topic == topic else finding.topic)
        topic = finding.topic
    return "\n".join([*lines, "", _last_line(diagnosis), ""])


def as_json(
    diagnosis: Diagnosis, facts: MachineFacts | None, observed: Observations, simulated: str = ""
) -> dict[str, Any]:
    """The JSON report: findings and all observations. ``facts`` is null when invalid settings prevented the probe."""
    return {
        "verdict": diagnosis.verdict.value,
        "exit_code": diagnosis.verdict.exit_code,
        "devices": list(diagnosis.devices),
        "simulated": simulated or None,
        "rows": [asdict(finding) for finding in diagnosis.findings],
        "placements": [asdict(placement) for placement in observed.placements],
        "attention": {device: asdict(report) for device, report in observed.attention.items()},
        "readings": {uuid: asdict(sample) for uuid, sample in observed.samples.items()},
        "facts": asdict(facts) if facts else None,
    }


def _last_line(diagnosis: Diagnosis) -> str:
    count = len(diagnosis.actionable)
    parts = [f"runs on {', '.join(diagnosis.devices)}"] if diagnosis.devices else []
    parts += [f"{count} {'row wants' if count == 1 else 'rows want'} something done"] if count else []
    verdict = diagnosis.verdict
    return f"Verdict: {verdict}: {'; '.join(parts) or 'does not start'} (exit code {verdict.exit_code})"


def _lines(finding: Finding, topic: str) -> Iterator[str]:
    yield from _wrapped(f"  {finding.status:<5} {topic}", finding.what)
    if finding.fix:
        yield from _wrapped("", f"{'hint' if finding.status is Status.OK else 'fix'}: {finding.fix}")
    if finding.command:
        yield f"{' ' * _INDENT}  {finding.command}"  # not wrapped, so that it can be copied
    if finding.anchor and (finding.fix or finding.status is not Status.OK):
        yield f"{' ' * _INDENT}see {PAGE}#{finding.anchor}"


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=head.ljust(_INDENT),
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
