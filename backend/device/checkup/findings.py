"""What a check-up is told beside the facts, and what it says: rows. Nothing is read or decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import Wishes
from backend.device.plan.attention import AttentionReport
from backend.device.plan.placement import Placement
from backend.device.records import CardSample

Anchor = Literal[  # the headings of docs/gpu.md that rows send to; a test keeps them there
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
    """How a row turned out."""

    OK = "ok"
    WARN = "warn"  # it runs, but something costs speed or was fallen back from
    FAIL = "fail"  # the service does not start like this


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at."""

    topic: str  # "driver", "gpu 0", …
    status: Status
    what: str  # what was found, with numbers
    fix: str = ""  # what to do about it; on an ok row a hint for other needs
    command: str = ""  # the line that does it, to be copied as it is
    anchor: Anchor = ""  # heading of docs/gpu.md that says more


@dataclass(frozen=True, slots=True)
class Extras:
    """What the facts alone do not tell. Everything may be left out: what nobody looked at gets no row."""

    wishes: Wishes = field(default_factory=Wishes)
    placements: tuple[Placement, ...] = ()  # what was chosen; () where the wish was refused
    refusal: str = ""  # why it was
    saved: SavedChoice | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)  # torch device -> "" or how its first kernel failed
    samples: Mapping[str, CardSample] = field(default_factory=dict)  # by UUID
    lost: Mapping[str, str] = field(default_factory=dict)  # UUID -> why the card gave no reading
    attention: Mapping[str, AttentionReport] = field(default_factory=dict)  # torch device -> which kernels run
    allocator: str = ""  # options of torch's allocator that will be in force
    runs: tuple[str, ...] = ()  # what PRECISION and RUNTIME leave to be measured there, "torch bf16"
    unserved: str = ""  # why PRECISION and RUNTIME leave nothing that could run there; "" when something is left
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
