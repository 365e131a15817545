"""PURE: what a check-up says of what would be used: device, precision, attention, memory, the saved choice."""

from __future__ import annotations

from collections.abc import Iterator

from backend.device.checkup.findings import Anchor, Extras, Row, Status
from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import device_string, wants_gpu
from backend.device.plan.attention import AttentionReport
from backend.device.plan.placement import Placement, ceiling, loader_settings
from backend.device.plan.precision import common, dtypes_for
from backend.device.records import DeviceType, GPUInfo, MachineFacts

_THIS = " (python -m backend.check_gpu says what is wrong)"  # of selection.py's refusals; here it is being said


def choice_rows(facts: MachineFacts, extras: Extras) -> Iterator[Row]:
    """The saved choice, the devices, and what will happen on them; or why the wish is refused."""
    if extras.saved is not None and wants_gpu(extras.wishes):
        yield _saved(facts, extras, extras.saved)
    if extras.refusal:
        refusal = extras.refusal.replace(_THIS, "")
        yield Row("device", Status.FAIL, refusal, anchor=_why_refused(facts))
        return
    if not extras.placements:
        return
    yield _device(facts, extras)
    yield from (_kernel(device, fault) for device, fault in extras.kernels.items())
    cards = [gpu for gpu in (_card(facts, placement) for placement in extras.placements) if gpu]
    yield _precision(facts, extras, cards)
    for placement in extras.placements:
        report = extras.attention.get(placement.device)
        if report is not None and (row := _attention(placement, report)):
            yield row
    for gpu in cards:
        what = f"{device_string(facts, gpu)}: {ceiling(facts, gpu, extras.wishes.memory_fraction).why}"
        yield Row("ceiling", Status.OK, what, anchor="out-of-memory")
    yield from _work(facts, extras)


def _saved(facts: MachineFacts, extras: Extras, saved: SavedChoice) -> Row:
    what = f"{saved.name} ({saved.uuid or 'no UUID'}), chosen on {saved.chosen_at[:10]}"
    key = (saved.uuid, saved.uuid or saved.name)  # Apple's GPU has no UUID
    if any(key == (gpu.uuid, gpu.uuid or gpu.name) for gpu in facts.usable):
        used = any(placement.uuid == saved.uuid for placement in extras.placements)
        return Row(
            "saved choice",
            Status.OK,
            what if used else f"{what}; not used: an explicit wish goes first",
            anchor="which-gpu-is-used",
        )
    return Row(
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


def _device(facts: MachineFacts, extras: Extras) -> Row:
    first = extras.placements[0]
    if first.type is DeviceType.CPU:
        if wants_gpu(extras.wishes) and facts.gpus:
            return Row("device", Status.WARN, "CPU, as no card is usable: see above", anchor="gpu-not-used")
        return Row("device", Status.OK, first.why[0])
    names = ", ".join(placement.device for placement in extras.placements)
    several = len(facts.gpus) > 1
    return Row("device", Status.OK, f"{names}: {first.why[0]}", anchor="which-gpu-is-used" if several else "")


def _kernel(device: str, fault: str) -> Row:
    if not fault:
        return Row("kernel", Status.OK, f"a computation on {device} gave the right result")
    fix = "Mend what it says, or run without this device: DEVICE=cpu."
    return Row("kernel", Status.FAIL, f"the first computation on {device} failed: {fault}", fix, anchor="gpu-not-used")


def _card(facts: MachineFacts, placement: Placement) -> GPUInfo | None:
    if placement.type is DeviceType.CPU:
        return None
    number = int(placement.device.partition(":")[2] or 0)
    return next((gpu for gpu in facts.usable if gpu.index == number), None)


def _precision(facts: MachineFacts, extras: Extras, cards: list[GPUInfo]) -> Row:
    choice = common([dtypes_for(gpu) for gpu in cards]) if cards else dtypes_for(None, facts.cpu_flags)
    if extras.unserved:
        return Row("precision", Status.FAIL, extras.unserved, anchor="precision")
    tried = ", ".join(extras.runs or extras.placements[0].dtypes)
    return Row("precision", Status.OK, f"{choice.why}; the first start measures {tried}", anchor="precision")


def _attention(placement: Placement, report: AttentionReport) -> Row | None:
    best = next((use for dtype in placement.dtypes for use in report.kernels if use.dtype == dtype), None)
    if best is None:
        return None
    source = "torch's dispatcher says" if report.asked else "by torch's rules"
    what = f"{placement.device} in {best.dtype}: {best.unpadded} without padding, {best.padded} with it ({source})"
    broken = [one for one in report.packages if one.version and not one.usable]
    packages = [f"{one.name} {one.version}{' (unusable)' * (one in broken)}" for one in report.packages if one.version]
    slow = placement.type is not DeviceType.CPU and best.padded == "math"
    return Row(
        "attention",
        Status.WARN if slow else Status.OK,
        what + (f"; installed: {', '.join(packages)}" if packages else ""),
        "; ".join(report.advice) if slow or broken else "",  # a hint only where something can be done
        anchor="attention",
    )


def _work(facts: MachineFacts, extras: Extras) -> Iterator[Row]:
    first = extras.placements[0]
    if extras.allocator and first.type is DeviceType.CUDA:
        yield Row("allocator", Status.OK, f"PYTORCH_ALLOC_CONF={extras.allocator}", anchor="out-of-memory")
    lanes = f"{first.lanes} lane{'s' * (first.lanes != 1)} of {first.threads} thread{'s' * (first.threads != 1)}"
    if first.type is not DeviceType.CPU:
        each = " on each device" if len(extras.placements) > 1 else ""
        room = " and ".join(str(placement.workers) for placement in extras.placements)
        lanes = f"{lanes}{each}; memory for {room} process(es) with a large model, of which one is the fastest"
    yield Row("work", Status.OK, lanes)
    _, why = loader_settings(facts, first.type, devices=len(extras.placements))
    yield Row("training", Status.OK, why, anchor="shared-memory")
