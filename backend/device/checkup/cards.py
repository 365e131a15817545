"""PURE: what a check-up says of each card: what it is, whether it can be used, who holds its memory, its health."""

from __future__ import annotations

from collections.abc import Iterator

from backend.device.checkup.findings import Anchor, Extras, Row, Status
from backend.device.choice.selection import advice, gib, number_of
from backend.device.facts.compute_capability import architecture
from backend.device.records import CardSample, DeviceType, GPUInfo, MachineFacts, Process

_FREE_MIN_BYTES = 2 * 2**30  # a context (0.5 GiB), the weights of a base-size model and one batch
_FREE_MIN_RATIO = 0.25  # less free than this and somebody else is at work here
_SLOWED = ("thermal", "slowdown", "brake")  # of NVML's reasons those that mean trouble; power caps are daily life
# Faults of a program, not of the card; NVIDIA's k8s-device-plugin leaves a card with these in service.
_PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})


def card_rows(facts: MachineFacts, extras: Extras) -> Iterator[Row]:
    """Every card, in the order of the facts; the slices of a card that another process may use in one row."""
    others = [gpu for gpu in facts.gpus if _is_other_slice(facts, gpu)]
    for gpu in facts.gpus:
        if gpu in others:
            continue
        number = number_of(facts, gpu)
        topic = f"gpu {number}" if number >= 0 else f"gpu {gpu.uuid[:8]}"
        yield _card(facts, gpu, topic)
        if gpu.fault:
            continue
        if gpu.uuid in extras.lost:
            yield _lost(topic, extras.lost[gpu.uuid])
        sample = extras.samples.get(gpu.uuid, CardSample())
        yield from _memory(gpu, sample, topic)
        yield from _health(sample, topic)
    if others:
        yield _other_slices(others)


def _card(facts: MachineFacts, gpu: GPUInfo, topic: str) -> Row:
    what = f"{gpu.name}: {describe(facts, gpu)}"
    if gpu.fault:
        return _unusable(facts, gpu, topic, what)
    if gpu.mig:
        return Row(topic, Status.OK, f"{what}; one slice of the card", anchor="mig")
    if facts.gpu_type is DeviceType.MPS:
        return Row(topic, Status.OK, what, anchor="apple")
    if gpu.unified:
        return Row(topic, Status.OK, f"{what}; the processor takes from the same memory", anchor="unified-memory")
    if gpu.driver_model == "WDDM":
        return Row(topic, Status.OK, f"{what}; WDDM: Windows keeps a part of the memory", anchor="windows")
    return Row(topic, Status.OK, what, anchor="blackwell" if gpu.capability[0] in (10, 11, 12) else "")


def _is_other_slice(facts: MachineFacts, gpu: GPUInfo) -> bool:
    """A slice that is well, but not the one that CUDA gives to this process: no fault of anybody's."""
    return bool(gpu.mig) and gpu.index < 0 and any(one.mig for one in facts.usable) and not advice(facts, gpu)


def _other_slices(others: list[GPUInfo]) -> Row:
    named = ", ".join(f"{gpu.mig} ({gpu.uuid})" for gpu in others)
    what = f"{len(others)} more slice{'s' * (len(others) != 1)}, as CUDA gives a process only one: {named}"
    hint = "Start a service for each, and name its slice to it:"
    return Row("mig", Status.OK, what, hint, f"CUDA_VISIBLE_DEVICES={others[0].uuid} ...", "mig")


def describe(facts: MachineFacts, gpu: GPUInfo) -> str:
    """Generation, memory and what its hardware computes in, as one phrase."""
    room = gib(gpu.total_bytes)
    if gpu.free_bytes is not None:  # CUDA counts less in all than the driver counts free on an empty card
        room += f", {gib(min(gpu.free_bytes, gpu.total_bytes))} free"
    if facts.gpu_type is DeviceType.MPS or gpu.capability == (0, 0):
        return f"{room}, shared with the processor" if gpu.unified else room
    generation = architecture(gpu.capability)
    native = (("bf16", gpu.bf16), ("fp16", generation.fp16), ("TF32", generation.tf32), ("FP8", generation.fp8))
    able = ", ".join(name for name, there in native if there) or "fp32 only"
    part = f", slice {gpu.mig}" if gpu.mig else ""
    return f"{generation.name}, {generation.sm}{part}, {room}, in hardware {able}"


def _unusable(facts: MachineFacts, gpu: GPUInfo, topic: str, what: str) -> Row:
    what = f"{what}. Cannot be used: {gpu.fault}"
    hide = "or hide this card: name only the others in CUDA_VISIBLE_DEVICES" if facts.usable else ""
    told = advice(facts, gpu)  # a pip command, or a sentence why none helps
    if not told:
        fix = f"Repair it, {hide}." if hide else "Repair it; until then the service runs on the CPU."
        return Row(topic, Status.WARN, what, fix, anchor="gpu-not-used")
    anchor: Anchor = "driver-too-old" if gpu.fault.startswith("driver") else "wrong-torch-build"
    if not told.startswith("pip "):
        fix = told[0].upper() + told[1:] + (f", {hide}" if hide else "")
        return Row(topic, Status.WARN, what, f"{fix}.", anchor=anchor)
    fix = f"Install a torch that has kernels for it{f', {hide}' if hide else ''}."
    return Row(topic, Status.WARN, what, fix, f"python -m {told}", anchor)


def _lost(topic: str, why: str) -> Row:
    return Row(
        topic,
        Status.WARN,
        f"gives no readings: {why}",
        "Restart the container if nvidia-smi still works on the host, else the machine.",
        anchor="gpu-lost",
    )


def _memory(gpu: GPUInfo, sample: CardSample, topic: str) -> Iterator[Row]:
    free = gpu.free_bytes if gpu.free_bytes is not None else sample.free_bytes
    if free is None or gpu.unified:  # unified memory is the machine's, which has a row of its own
        return
    holders = [process for process in sample.processes or () if process[2] is None or process[2] > 0]
    if free >= _FREE_MIN_BYTES and free >= _FREE_MIN_RATIO * gpu.total_bytes:
        if holders:
            yield Row(topic, Status.OK, f"shared with {_named(holders)}", anchor="memory-held-by-others")
        return
    by = f"; held by {_named(holders)}" if holders else "; the driver does not tell by whom"
    yield Row(
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


def _health(sample: CardSample, topic: str) -> Iterator[Row]:
    if sample.ecc_errors:
        fix = "Save what runs and reset the card (nvidia-smi --gpu-reset) or restart; if they return, replace it."
        what = f"{sample.ecc_errors} uncorrected memory errors since the driver was loaded"
        yield Row(topic, Status.WARN, what, fix, anchor="errors-of-the-card")
    bad = [(xid, count) for xid, count in sample.xid_errors or () if xid not in _PROGRAM_XIDS]
    if bad:
        told = ", ".join(f"Xid {xid} ({count} times)" for xid, count in bad)
        fix = "Look into the kernel's log (dmesg | grep -i xid) and restart the machine."
        yield Row(topic, Status.WARN, f"the driver reported {told}", fix, anchor="errors-of-the-card")
    slowed = [reason for reason in sample.throttle or () if any(word in reason for word in _SLOWED)]
    if slowed:
        heat = f" at {sample.temperature_celsius:.0f} C" if sample.temperature_celsius is not None else ""
        fix = "See to its cooling and power supply."
        yield Row(topic, Status.WARN, f"slowed down{heat}: {', '.join(slowed)}", fix, anchor="heat-and-power")
