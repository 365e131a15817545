"""PURE: diagnoses a machine: findings about the host, each card and what the service would use, as text or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import DeviceRequest, advice, card_number, device_string, gib, wants_gpu
from backend.device.facts.compute_capability import architecture
from backend.device.plan.attention import AttentionReport
from backend.device.plan.placement import Placement, card_of, loader_settings, memory_limit
from backend.device.plan.precision import common, dtypes_for
from backend.device.records import CardSample, DeviceType, GPUInfo, MachineFacts, Platform, Process

PAGE = "docs/gpu.md"
_WIDTH, _INDENT = 110, 23  # columns of the text report; of its status and topic

Anchor = Literal[  # the headings of docs/gpu.md that findings link to; a test compares both
    "", "apple", "attention", "blackwell", "container", "cuda-not-available", "driver-too-old", "errors-of-the-card",
    "gpu-lost", "gpu-not-used", "heat-and-power", "memory-held-by-others", "memory-of-the-machine", "mig",
    "out-of-memory", "precision", "settings", "shared-memory", "unified-memory", "which-gpu-is-used", "windows",
    "wrong-torch-build", "wsl2",
]  # fmt: skip


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


_MEMORY_MIN_BYTES = 3 * 2**29  # the service with the bundled model is under 1 GiB resident; the rest is for requests
_SHM_MIN_BYTES = 2**30  # Docker's 64 MiB ends DataLoader workers with a bus error (pytorch#5040)
_DRIVER_CUDA_MIN = (12, 0)  # any driver of CUDA 12 runs the oldest build of torch, cu126 (minor-version compatibility)
_ABSENT = "not installed"  # in nvml.py's message for a machine without a driver; other faults have a broken one
_FIX_DRIVER = "Make `nvidia-smi` answer first, on the host and then in the container."
_FREE_MIN_BYTES = 2 * 2**30  # a context (0.5 GiB), the weights of a base-size model and one batch
_FREE_MIN_RATIO = 0.25  # with less free memory other processes use the card
_SLOWDOWNS = ("thermal", "slowdown", "brake")  # throttle reasons that mean trouble; power caps are normal
# Errors of a program, not of the card; NVIDIA's k8s-device-plugin keeps a card with these in service.
_PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})
_SEE_CHECK_GPU = " (python -m backend.check_gpu says what is wrong)"  # in selection.py's errors; this is check_gpu


def diagnose(facts: MachineFacts, observed: Observations | None = None) -> Diagnosis:
    """Every finding about this machine: the host first, then the cards, then what the service would use."""
    observed = observed or Observations()
    findings = (*_machine(facts, observed), *_cards(facts, observed), *_selection(facts, observed))
    verdict = verdict_of(findings)
    starts = verdict is not Verdict.UNUSABLE
    return Diagnosis(verdict, findings, tuple(placement.device for placement in observed.placements if starts))


def _machine(facts: MachineFacts, observed: Observations) -> Iterator[Finding]:
    """Platform, processor, memory, driver and torch."""
    yield _platform(facts.platform)
    yield Finding("processor", Status.OK, _processor(facts))
    yield _host_memory(facts)
    if facts.platform.shm_bytes is not None:
        yield _shared_memory(facts.platform.shm_bytes)
    yield _driver(facts, observed)
    yield _torch(facts)


def _platform(platform: Platform) -> Finding:
    where = f"{platform.label} on {platform.machine}"
    if platform.system == "Windows":
        return Finding(
            "platform",
            Status.WARN,
            where,
            "The service runs on Linux, macOS and WSL2. Under WSL2 the same card does the same work.",
            "wsl --install",
            "windows",
        )
    if platform.wsl:
        note = "the ceiling leaves 2 GiB free and memory is not pinned, because Windows shares both"
        return Finding("platform", Status.OK, f"{where}: {note}", anchor="wsl2")
    return Finding("platform", Status.OK, where)


def _processor(facts: MachineFacts) -> str:
    flags = f" ({', '.join(facts.cpu_flags)})" if facts.cpu_flags else ""
    return f"{facts.cpu_name or 'unknown'}, {facts.cores} usable core{'s' * (facts.cores != 1)}{flags}"


def _host_memory(facts: MachineFacts) -> Finding:
    free = facts.free_memory_bytes
    what = gib(facts.memory_bytes) + (f", {gib(free)} free" if free is not None else "")
    if min(facts.memory_bytes, free if free is not None else facts.memory_bytes) >= _MEMORY_MIN_BYTES:
        return Finding("memory", Status.OK, what)
    return Finding(
        "memory",
        Status.WARN,
        f"{what}: the service with the bundled model wants {gib(_MEMORY_MIN_BYTES)}",
        "Raise the container's memory limit, or end what holds the memory.",
        anchor="memory-of-the-machine",
    )


def _shared_memory(shm_bytes: int) -> Finding:
    what = f"{_size(shm_bytes)} in /dev/shm"
    if shm_bytes >= _SHM_MIN_BYTES:
        return Finding("shared memory", Status.OK, what)
    return Finding(
        "shared memory",
        Status.OK,  # the service itself uses none
        f"{what}: enough to serve; training wants {gib(_SHM_MIN_BYTES)} for its data",
        "Start a container for training with more; in compose: shm_size.",
        "docker run --shm-size=2g ...",
        "shared-memory",
    )


def _size(size_bytes: int) -> str:
    return gib(size_bytes) if size_bytes >= 2**30 else f"{size_bytes // 2**20} MiB"


def _driver(facts: MachineFacts, observed: Observations) -> Finding:
    driver = facts.driver
    if not wants_gpu(observed.request):
        return Finding("driver", Status.OK, "not asked for a GPU: USE_GPU=false or DEVICE=cpu")
    if not driver.version:
        return _no_driver(facts)
    cuda = f", runs CUDA up to {driver.cuda[0]}.{driver.cuda[1]}" if driver.cuda > (0, 0) else ""
    what = f"NVIDIA {driver.version}{cuda}"
    if driver.fault:
        return Finding("driver", Status.WARN, f"{what}: {driver.fault}", _FIX_DRIVER, anchor="cuda-not-available")
    if (0, 0) < driver.cuda < _DRIVER_CUDA_MIN:
        wanted = ".".join(map(str, _DRIVER_CUDA_MIN))
        fix = "Install the newest driver for this card from https://www.nvidia.com/drivers."
        what = f"{what}: no torch of today runs on a driver of before CUDA {wanted}"
        return Finding("driver", Status.WARN, what, fix, anchor="driver-too-old")
    if not facts.gpus:
        hidden = observed.visible is not None  # presumably on purpose
        fix = "" if hidden else "See whether `nvidia-smi` lists a card."
        what = f"{what}; {facts.why_no_gpu}"
        return Finding("driver", Status.OK if hidden else Status.WARN, what, fix, anchor="cuda-not-available")
    return Finding("driver", Status.OK, what)


def _no_driver(facts: MachineFacts) -> Finding:
    if facts.gpu_type is DeviceType.MPS:
        return Finding("driver", Status.OK, "none needed: Apple's GPU comes with the system")
    if facts.driver.fault and _ABSENT not in facts.driver.fault:
        return Finding("driver", Status.WARN, facts.driver.fault, _FIX_DRIVER, anchor="cuda-not-available")
    what = "no NVIDIA driver is installed here"
    if facts.platform.container:
        fix = "If the host has an NVIDIA card, hand it in; the host needs the NVIDIA Container Toolkit."
        return Finding("driver", Status.OK, what, fix, "docker run --gpus all ...", "container")
    return Finding("driver", Status.OK, what, anchor="cuda-not-available")


def _torch(facts: MachineFacts) -> Finding:
    build = facts.torch
    if not build.version:
        return Finding("torch", Status.OK, "not imported: nothing on this machine needs it to be")
    if facts.gpu_type is DeviceType.MPS:
        kind = "with Metal"
    else:
        kind = (
            f"built for CUDA {build.cuda}"
            if build.cuda
            else f"built for ROCm {build.hip}"
            if build.hip
            else "CPU build"
        )
    archs = f", kernels for {_range(build.archs)}" if build.archs else ""
    return Finding("torch", Status.OK, f"{build.version}, {kind}{archs}")


def _range(archs: tuple[str, ...]) -> str:
    return archs[0] if len(archs) == 1 else f"{archs[0]} to {archs[-1]}"


def _cards(facts: MachineFacts, observed: Observations) -> Iterator[Finding]:
    """Every card in the order of ``facts``; the MIG slices that this process cannot use in one finding."""
    others = [gpu for gpu in facts.gpus if _is_other_slice(facts, gpu)]
    for gpu in facts.gpus:
        if gpu in others:
            continue
        number = card_number(facts, gpu)
        topic = f"gpu {number}" if number >= 0 else f"gpu {gpu.uuid[:8]}"
        yield _card(facts, gpu, topic)
        if gpu.fault:
            continue
        if gpu.uuid in observed.lost:
            yield _lost(topic, observed.lost[gpu.uuid])
        sample = observed.samples.get(gpu.uuid, CardSample())
        yield from _card_memory(gpu, sample, topic)
        yield from _health(sample, topic)
    if others:
        yield _other_slices(others)


def _card(facts: MachineFacts, gpu: GPUInfo, topic: str) -> Finding:
    what = f"{gpu.name}: {describe(facts, gpu)}"
    if gpu.fault:
        return _unusable(facts, gpu, topic, what)
    if gpu.mig:
        return Finding(topic, Status.OK, f"{what}; one slice of the card", anchor="mig")
    if facts.gpu_type is DeviceType.MPS:
        return Finding(topic, Status.OK, what, anchor="apple")
    if gpu.unified:
        return Finding(topic, Status.OK, f"{what}; the processor takes from the same memory", anchor="unified-memory")
    if gpu.driver_model == "WDDM":
        return Finding(topic, Status.OK, f"{what}; WDDM: Windows keeps a part of the memory", anchor="windows")
    return Finding(topic, Status.OK, what, anchor="blackwell" if gpu.capability[0] in (10, 11, 12) else "")


def _is_other_slice(facts: MachineFacts, gpu: GPUInfo) -> bool:
    """Whether this is a working slice that CUDA does not give to this process, since it gives a process only one."""
    return bool(gpu.mig) and gpu.index < 0 and any(usable.mig for usable in facts.usable) and not advice(facts, gpu)


def _other_slices(others: list[GPUInfo]) -> Finding:
    named = ", ".join(f"{gpu.mig} ({gpu.uuid})" for gpu in others)
    what = f"{len(others)} more slice{'s' * (len(others) != 1)}, as CUDA gives a process only one: {named}"
    hint = "Start a service for each, and name its slice to it:"
    return Finding("mig", Status.OK, what, hint, f"CUDA_VISIBLE_DEVICES={others[0].uuid} ...", "mig")


def describe(facts: MachineFacts, gpu: GPUInfo) -> str:
    """Generation, memory and native dtypes, as one phrase."""
    memory = gib(gpu.total_bytes)
    if gpu.free_bytes is not None:  # CUDA's total is less than what the driver reports as free on an empty card
        memory += f", {gib(min(gpu.free_bytes, gpu.total_bytes))} free"
    if facts.gpu_type is DeviceType.MPS or gpu.capability == (0, 0):
        return f"{memory}, shared with the processor" if gpu.unified else memory
    generation = architecture(gpu.capability)
    dtypes = (("bf16", gpu.bf16), ("fp16", generation.fp16), ("TF32", generation.tf32), ("FP8", generation.fp8))
    native = ", ".join(name for name, is_native in dtypes if is_native) or "fp32 only"
    mig_slice = f", slice {gpu.mig}" if gpu.mig else ""
    return f"{generation.name}, {generation.sm}{mig_slice}, {memory}, in hardware {native}"


def _unusable(facts: MachineFacts, gpu: GPUInfo, topic: str, what: str) -> Finding:
    what = f"{what}. Cannot be used: {gpu.fault}"
    hide = "or hide this card: name only the others in CUDA_VISIBLE_DEVICES" if facts.usable else ""
    repair = advice(facts, gpu)  # a pip command, or a sentence why none helps
    if not repair:
        fix = f"Repair it, {hide}." if hide else "Repair it; until then the service runs on the CPU."
        return Finding(topic, Status.WARN, what, fix, anchor="gpu-not-used")
    anchor: Anchor = "driver-too-old" if gpu.fault.startswith("driver") else "wrong-torch-build"
    if not repair.startswith("pip "):
        fix = repair[0].upper() + repair[1:] + (f", {hide}" if hide else "")
        return Finding(topic, Status.WARN, what, f"{fix}.", anchor=anchor)
    fix = f"Install a torch that has kernels for it{f', {hide}' if hide else ''}."
    return Finding(topic, Status.WARN, what, fix, f"python -m {repair}", anchor)


def _lost(topic: str, why: str) -> Finding:
    return Finding(
        topic,
        Status.WARN,
        f"gives no readings: {why}",
        "Restart the container if nvidia-smi still works on the host, else the machine.",
        anchor="gpu-lost",
    )


def _card_memory(gpu: GPUInfo, sample: CardSample, topic: str) -> Iterator[Finding]:
    free = gpu.free_bytes if gpu.free_bytes is not None else sample.free_bytes
    if free is None or gpu.unified:  # unified memory is the machine's, which has a finding of its own
        return
    holders = [process for process in sample.processes or () if process[2] is None or process[2] > 0]
    if free >= _FREE_MIN_BYTES and free >= _FREE_MIN_RATIO * gpu.total_bytes:
        if holders:
            yield Finding(topic, Status.OK, f"shared with {_named(holders)}", anchor="memory-held-by-others")
        return
    by = f"; held by {_named(holders)}" if holders else "; the driver does not tell by whom"
    yield Finding(
        topic,
        Status.WARN,
        f"only {gib(free)} of {gib(gpu.total_bytes)} are free{by}",
        "End what holds it, or choose another card: --gpu N, DEVICE=cuda:N.",
        anchor="memory-held-by-others",
    )


def _named(holders: list[Process]) -> str:
    named = [
        f"PID {pid}" + (f" {name}" if name else "") + (f" ({gib(held)})" if held is not None else "")
        for pid, name, held in holders[:3]
    ]
    more = len(holders) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _health(sample: CardSample, topic: str) -> Iterator[Finding]:
    if sample.ecc_errors:
        fix = "Save what runs and reset the card (nvidia-smi --gpu-reset) or restart; if they return, replace it."
        what = f"{sample.ecc_errors} uncorrected memory errors since the driver was loaded"
        yield Finding(topic, Status.WARN, what, fix, anchor="errors-of-the-card")
    bad = [(xid, count) for xid, count in sample.xid_errors or () if xid not in _PROGRAM_XIDS]
    if bad:
        errors = ", ".join(f"Xid {xid} ({count} times)" for xid, count in bad)
        fix = "Look into the kernel's log (dmesg | grep -i xid) and restart the machine."
        yield Finding(topic, Status.WARN, f"the driver reported {errors}", fix, anchor="errors-of-the-card")
    slowdowns = [reason for reason in sample.throttle or () if any(word in reason for word in _SLOWDOWNS)]
    if slowdowns:
        heat = f" at {sample.temperature_celsius:.0f} C" if sample.temperature_celsius is not None else ""
        fix = "See to its cooling and power supply."
        yield Finding(topic, Status.WARN, f"slowed down{heat}: {', '.join(slowdowns)}", fix, anchor="heat-and-power")


def _selection(facts: MachineFacts, observed: Observations) -> Iterator[Finding]:
    """The saved choice, the selected devices and what runs on them; or why the request is refused."""
    if observed.saved is not None and wants_gpu(observed.request):
        yield _saved(facts, observed, observed.saved)
    if observed.refusal:
        refusal = observed.refusal.replace(_SEE_CHECK_GPU, "")
        yield Finding("device", Status.FAIL, refusal, anchor=_why_refused(facts))
        return
    if not observed.placements:
        return
    yield _device(facts, observed)
    yield from (_kernel(device, fault) for device, fault in observed.kernels.items())
    cards = [gpu for gpu in (card_of(facts, placement) for placement in observed.placements) if gpu]
    yield _precision(facts, observed, cards)
    for placement in observed.placements:
        report = observed.attention.get(placement.device)
        if report is not None and (finding := _attention(placement, report)):
            yield finding
    for gpu in cards:
        what = f"{device_string(facts, gpu)}: {memory_limit(facts, gpu, observed.request.memory_fraction).why}"
        yield Finding("ceiling", Status.OK, what, anchor="out-of-memory")
    yield from _work(facts, observed)


def _saved(facts: MachineFacts, observed: Observations, saved: SavedChoice) -> Finding:
    what = f"{saved.name} ({saved.uuid or 'no UUID'}), chosen on {saved.chosen_at[:10]}"
    if any(saved.is_for(gpu) for gpu in facts.usable):
        used = any(placement.uuid == saved.uuid for placement in observed.placements)
        return Finding(
            "saved choice",
            Status.OK,
            what if used else f"{what}; not used: an explicit wish goes first",
            anchor="which-gpu-is-used",
        )
    return Finding(
        "saved choice",
        Status.WARN,
        f"{what}: that card is not there, or not usable now, so the choice is automatic",
        "Choose again (--choose), or forget it.",
        "python -m backend.check_gpu --forget",
        "which-gpu-is-used",
    )


def _why_refused(facts: MachineFacts) -> Anchor:
    if not facts.gpus:
        return "cuda-not-available"
    return "which-gpu-is-used" if facts.usable else "gpu-not-used"


def _device(facts: MachineFacts, observed: Observations) -> Finding:
    first = observed.placements[0]
    if first.type is DeviceType.CPU:
        if wants_gpu(observed.request) and facts.gpus:
            return Finding("device", Status.WARN, "CPU, as no card is usable: see above", anchor="gpu-not-used")
        return Finding("device", Status.OK, first.why[0])
    names = ", ".join(placement.device for placement in observed.placements)
    several = len(facts.gpus) > 1
    return Finding("device", Status.OK, f"{names}: {first.why[0]}", anchor="which-gpu-is-used" if several else "")


def _kernel(device: str, fault: str) -> Finding:
    if not fault:
        return Finding("kernel", Status.OK, f"a computation on {device} gave the right result")
    fix = "Mend what it says, or run without this device: DEVICE=cpu."
    return Finding(
        "kernel", Status.FAIL, f"the first computation on {device} failed: {fault}", fix, anchor="gpu-not-used"
    )


def _precision(facts: MachineFacts, observed: Observations, cards: list[GPUInfo]) -> Finding:
    choice = common([dtypes_for(gpu) for gpu in cards]) if cards else dtypes_for(None, facts.cpu_flags)
    if observed.unserved:
        return Finding("precision", Status.FAIL, observed.unserved, anchor="precision")
    tried = ", ".join(observed.runs or observed.placements[0].dtypes)
    return Finding("precision", Status.OK, f"{choice.why}; the first start measures {tried}", anchor="precision")


def _attention(placement: Placement, report: AttentionReport) -> Finding | None:
    best = next((use for dtype in placement.dtypes for use in report.kernels if use.dtype == dtype), None)
    if best is None:
        return None
    source = "torch's dispatcher says" if report.asked else "by torch's rules"
    what = f"{placement.device} in {best.dtype}: {best.unpadded} without padding, {best.padded} with it ({source})"
    installed = [package for package in report.packages if package.version]
    broken = [package for package in installed if not package.usable]
    packages = [f"{package.name} {package.version}{' (unusable)' * (package in broken)}" for package in installed]
    slow = placement.type is not DeviceType.CPU and best.padded == "math"
    return Finding(
        "attention",
        Status.WARN if slow else Status.OK,
        what + (f"; installed: {', '.join(packages)}" if packages else ""),
        "; ".join(report.advice) if slow or broken else "",  # a hint only where something can be done
        anchor="attention",
    )


def _work(facts: MachineFacts, observed: Observations) -> Iterator[Finding]:
    first = observed.placements[0]
    if observed.allocator and first.type is DeviceType.CUDA:
        yield Finding("allocator", Status.OK, f"PYTORCH_ALLOC_CONF={observed.allocator}", anchor="out-of-memory")
    lanes = f"{first.lanes} lane{'s' * (first.lanes != 1)} of {first.threads} thread{'s' * (first.threads != 1)}"
    if first.type is not DeviceType.CPU:
        each = " on each device" if len(observed.placements) > 1 else ""
        workers = " and ".join(str(placement.workers) for placement in observed.placements)
        lanes = f"{lanes}{each}; memory for {workers} process(es) with a large model, of which one is the fastest"
    yield Finding("work", Status.OK, lanes)
    _, why = loader_settings(facts, first.type, devices=len(observed.placements))
    yield Finding("training", Status.OK, why, anchor="shared-memory")
