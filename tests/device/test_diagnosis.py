"""The diagnosis: each fault has a finding with a fix and a heading in docs/gpu.md, and sets the verdict."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import DeviceRequest
from backend.device.diagnosis import (
    Anchor,
    Diagnosis,
    Finding,
    Observations,
    Status,
    Verdict,
    as_json,
    diagnose,
    render,
)
from backend.device.facts import nvml, simulated
from backend.device.facts.torch_builds import install_line
from backend.device.plan.attention import AttentionReport, KernelUse, Package, expected_report
from backend.device.plan.placement import place_all
from backend.device.records import CardSample, DeviceType, Driver, GPUInfo, MachineFacts, Platform, TorchBuild
from backend.errors import DeviceUnavailable

GIB = 2**30
PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"
DRIVER, BUILD = (
    Driver("580.95.05", (13, 0)),
    TorchBuild("2.13.0+cu130", "13.0", archs=("sm_75", "sm_90", "compute_120")),
)
L4 = GPUInfo(0, "NVIDIA L4", "GPU-a", 22 * GIB, (8, 9), bf16=True, free_bytes=21 * GIB)
H100 = GPUInfo(1, "NVIDIA H100", "GPU-b", 80 * GIB, (9, 0), bf16=True, free_bytes=79 * GIB)
BROKEN = GPUInfo(-1, "NVIDIA RTX A400", "GPU-cdef", 4 * GIB, (8, 6), bf16=True, fault="it is broken")

CPU = MachineFacts(4, "a processor", (), 8 * GIB, why_no_gpu="no NVIDIA driver answers", free_memory_bytes=6 * GIB)
ONE = replace(CPU, gpus=(L4,), gpu_type=DeviceType.CUDA, why_no_gpu="", driver=DRIVER, torch=BUILD)
TWO = replace(ONE, gpus=(L4, H100))
SAVED = SavedChoice("GPU-a", "NVIDIA L4", 22 * GIB, "580.95.05", "2026-11-20T10:00:00+00:00")


def observe(facts: MachineFacts, wanted: DeviceRequest | None = None, **more: object) -> Observations:
    """The observations of check_gpu on this machine, as far as they can be computed."""
    wanted, saved = wanted or DeviceRequest(), more.get("saved")
    try:
        placements, refusal = place_all(facts, wanted, saved), ""
    except DeviceUnavailable as error:
        placements, refusal = (), str(error)
    return Observations(request=wanted, placements=placements, refusal=refusal, **more)


def check(facts: MachineFacts, wanted: DeviceRequest | None = None, **more: object) -> Diagnosis:
    """Diagnose a machine with this request."""
    return diagnose(facts, observe(facts, wanted, **more))


def last(diagnosis: Diagnosis, topic: str) -> Finding:
    """The last finding of a topic."""
    return [finding for finding in diagnosis.findings if finding.topic == topic][-1]


@pytest.mark.parametrize("machine", ["cpu-build", "new-card-old-build"])
def test_the_install_command(machine):
    """A wrong build comes with the command that installs the right one."""
    facts = simulated.facts(machine)
    finding = last(check(facts), "gpu 0")
    line = install_line(facts.gpus[0].capability, facts.driver.cuda, facts.platform.machine, facts.torch.version)

    assert f"python -m {line}" == finding.command
    assert f"  {finding.command}\n" in render(check(facts), "title")


@pytest.mark.parametrize(
    ("facts", "wanted", "anchor"),
    [
        pytest.param(CPU, DeviceRequest("cuda"), "cuda-not-available", id="no-card"),
        pytest.param(replace(ONE, gpus=(BROKEN,)), DeviceRequest("cuda"), "gpu-not-used", id="no-usable-card"),
        pytest.param(TWO, DeviceRequest("cuda:5"), "which-gpu-is-used", id="no-such-number"),
        pytest.param(TWO, DeviceRequest(gpu=5), "which-gpu-is-used", id="no-such-option"),
        pytest.param(TWO, DeviceRequest("mps"), "which-gpu-is-used", id="another-kind"),
    ],
)
def test_a_refused_request(facts, wanted, anchor):
    """The refusal is the last finding, without the advice to run check_gpu."""
    diagnosis = check(facts, wanted)
    finding = last(diagnosis, "device")

    assert (Verdict.UNUSABLE, ()) == (diagnosis.verdict, diagnosis.devices)
    assert (Status.FAIL, anchor) == (finding.status, finding.anchor)
    assert "check_gpu" not in finding.what
    assert finding is diagnosis.findings[-1]


@pytest.mark.parametrize("why", nvml.START_FAULTS.values())
def test_a_driver_that_does_not_answer(why):
    """A missing driver is ok; a broken one is a warning."""
    absent = why == nvml.START_FAULTS[nvml.pynvml.NVML_ERROR_LIBRARY_NOT_FOUND]
    finding = last(check(replace(CPU, driver=Driver(fault=why))), "driver")

    assert absent is (finding.status is Status.OK)
    assert absent or why in finding.what


@pytest.mark.parametrize(
    ("facts", "more", "status", "words"),
    [
        pytest.param(ONE, {}, Status.OK, "NVIDIA 580.95.05, runs CUDA up to 13.0", id="well"),
        pytest.param(replace(ONE, driver=Driver("999")), {}, Status.OK, "NVIDIA 999", id="cuda-unknown"),
        pytest.param(replace(ONE, driver=Driver("470", (11, 4))), {}, Status.WARN, "before CUDA 12.0", id="too-old"),
        pytest.param(replace(ONE, driver=Driver("580", fault="it limps")), {}, Status.WARN, "it limps", id="limps"),
        pytest.param(
            replace(CPU, driver=DRIVER, why_no_gpu="it lists no card"), {}, Status.WARN, "lists no card", id="no-cards"
        ),
        pytest.param(
            replace(CPU, driver=DRIVER, why_no_gpu="all are hidden"), {"visible": "-1"}, Status.OK, "all are hidden",
            id="hidden-on-purpose",
        ),
        pytest.param(CPU, {"wanted": DeviceRequest("cpu")}, Status.OK, "not asked for a GPU", id="not-wanted"),
    ],
)  # fmt: skip
def test_the_driver(facts, more, status, words):
    """Its version, the newest CUDA that it runs, and whether torch supports it."""
    finding = last(check(facts, **more), "driver")

    assert (status, True) == (finding.status, words in finding.what)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param(CPU, "not imported", id="not-needed"),
        pytest.param(replace(CPU, torch=TorchBuild("2.13.0+cpu")), "2.13.0+cpu, CPU build", id="cpu-build"),
        pytest.param(ONE, "2.13.0+cu130, built for CUDA 13.0, kernels for sm_75 to compute_120", id="cuda"),
        pytest.param(replace(ONE, torch=TorchBuild("2.13.0", hip="6.4")), "2.13.0, built for ROCm 6.4", id="rocm"),
        pytest.param(simulated.facts("apple-m3"), "2.13.0, with Metal", id="metal"),
    ],
)
def test_torch(facts, words):
    assert last(check(facts), "torch").what.startswith(words)


def test_a_container_without_a_card():
    """A hint how to pass one in, since the host may have one."""
    finding = last(check(replace(CPU, platform=Platform(container="docker"))), "driver")

    assert (Status.OK, "docker run --gpus all ...", "container") == (finding.status, finding.command, finding.anchor)


@pytest.mark.parametrize(
    ("memory_bytes", "free_bytes", "status"),
    [(8 * GIB, 6 * GIB, Status.OK), (8 * GIB, GIB, Status.WARN), (GIB, None, Status.WARN)],
)
def test_the_memory_of_the_machine(memory_bytes, free_bytes, status):
    """Less than the service needs is a warning."""
    finding = last(check(replace(CPU, memory_bytes=memory_bytes, free_memory_bytes=free_bytes)), "memory")

    assert status is finding.status


@pytest.mark.parametrize(
    ("shm_bytes", "what"), [(64 * 2**20, "64 MiB in /dev/shm: enough to serve"), (4 * GIB, "4.0 GiB in /dev/shm")]
)
def test_shared_memory(shm_bytes, what):
    """Too little for training is a hint, not a warning: the service uses none."""
    finding = last(check(replace(ONE, platform=Platform(shm_bytes=shm_bytes))), "shared memory")

    assert finding.what.startswith(what)
    assert (Status.OK, shm_bytes < GIB) == (finding.status, bool(finding.fix))


@pytest.mark.parametrize(
    ("sample", "words", "anchor"),
    [
        pytest.param(CardSample(ecc_errors=3), "3 uncorrected memory errors", "errors-of-the-card", id="ecc"),
        pytest.param(CardSample(xid_errors=((79, 2),)), "Xid 79 (2 times)", "errors-of-the-card", id="xid"),
        pytest.param(
            CardSample(throttle=("hw_thermal_slowdown",), temperature_celsius=93.4),
            "slowed down at 93 C: hw_thermal_slowdown",
            "heat-and-power",
            id="heat",
        ),
        pytest.param(CardSample(throttle=("hw_power_brake",)), "slowed down: hw_power", "heat-and-power", id="power"),
    ],
)
def test_a_faulty_card(sample, words, anchor):
    """It is used, with a warning."""
    diagnosis = check(ONE, samples={"GPU-a": sample})

    assert [(Status.WARN, anchor)] == [(finding.status, finding.anchor) for finding in diagnosis.actionable]
    assert words in diagnosis.actionable[0].what
    assert (Verdict.DEGRADED, ("cuda:0",)) == (diagnosis.verdict, diagnosis.devices)


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(CardSample(), id="tells-nothing"),
        pytest.param(CardSample(ecc_errors=0, xid_errors=(), throttle=()), id="well"),
        pytest.param(CardSample(throttle=("sw_power_cap", "gpu_idle")), id="at-its-power-limit"),
        pytest.param(CardSample(xid_errors=((31, 1), (43, 5))), id="errors-of-a-program"),
    ],
)
def test_a_healthy_card(sample):
    """Unknown, zero and normal values are not reported."""
    assert Verdict.GOOD is check(ONE, samples={"GPU-a": sample}).verdict


def test_a_card_that_is_lost():
    diagnosis = check(ONE, lost={"GPU-a": "GPU is lost"})

    assert [("gpu 0", "gpu-lost")] == [(finding.topic, finding.anchor) for finding in diagnosis.actionable]
    assert "GPU is lost" in diagnosis.actionable[0].what


@pytest.mark.parametrize(
    ("free_bytes", "processes", "status", "words"),
    [
        pytest.param(
            GIB, None, Status.WARN, "only 1.0 GiB of 22.0 GiB are free; the driver does not", id="unknown-processes"
        ),
        pytest.param(
            5 * GIB, ((4711, "python3", 17 * GIB),), Status.WARN, "held by PID 4711 python3 (17.0 GiB)",
            id="less-than-a-quarter",
        ),
        pytest.param(
            11 * GIB, ((1, "", None), (2, "Xorg", GIB)), Status.OK, "shared with PID 1, PID 2 Xorg (1.0 GiB)", id="half"
        ),
        pytest.param(
            11 * GIB, tuple((pid, "a", GIB) for pid in range(1, 6)), Status.OK, "PID 3 a (1.0 GiB) and 2 more",
            id="many",
        ),
    ],
)  # fmt: skip
def test_processes_that_hold_memory(free_bytes, processes, status, words):
    """Little free memory is a warning, with the processes if the driver lists them."""
    facts = replace(ONE, gpus=(replace(L4, free_bytes=free_bytes),))
    finding = last(check(facts, samples={"GPU-a": CardSample(processes=processes)}), "gpu 0")

    assert (status, True) == (finding.status, words in finding.what)
    assert "memory-held-by-others" == finding.anchor


def test_one_of_two_cards_unusable():
    """Degraded; the fix tells how to hide the card."""
    diagnosis = check(replace(ONE, gpus=(L4, BROKEN)))
    finding = last(diagnosis, "gpu GPU-cdef")

    assert (Verdict.DEGRADED, ("cuda:0",)) == (diagnosis.verdict, diagnosis.devices)
    assert "Cannot be used: it is broken" in finding.what
    assert "CUDA_VISIBLE_DEVICES" in finding.fix
    assert [finding] == list(diagnosis.actionable)


def test_slices():
    """One finding for the slice of this process, and one for the others with the variable that selects them."""
    diagnosis = check(simulated.facts("h100-mig"))
    slices = simulated.MACHINES["h100-mig"].cards

    assert 1 == sum(finding.topic.startswith("gpu") for finding in diagnosis.findings)
    assert last(diagnosis, "mig").what.startswith("3 more slices")
    assert f"CUDA_VISIBLE_DEVICES={slices[1].uuid} ..." == last(diagnosis, "mig").command


@pytest.mark.parametrize(
    ("facts", "wanted", "saved", "status", "words"),
    [
        pytest.param(TWO, DeviceRequest(), SAVED, Status.OK, "NVIDIA L4 (GPU-a), chosen on 2026-11-20", id="used"),
        pytest.param(TWO, DeviceRequest(gpu=1), SAVED, Status.OK, "an explicit wish goes first", id="overruled"),
        pytest.param(TWO, DeviceRequest(), replace(SAVED, uuid="GPU-x"), Status.WARN, "not there", id="stale"),
        pytest.param(CPU, DeviceRequest(), SAVED, Status.WARN, "not there, or not usable", id="no-card-at-all"),
    ],
)
def test_the_saved_choice(facts, wanted, saved, status, words):
    finding = last(check(facts, wanted, saved=saved), "saved choice")

    assert (status, True) == (finding.status, words in finding.what)


def test_a_device_that_cannot_compute():
    """The finding has the driver's error, and the verdict is unusable."""
    diagnosis = check(ONE, kernels={"cuda:0": "CUDA error: out of memory"})

    assert (Status.FAIL, True) == (last(diagnosis, "kernel").status, "out of memory" in last(diagnosis, "kernel").what)
    assert (Verdict.UNUSABLE, ()) == (diagnosis.verdict, diagnosis.devices)


def test_settings_without_a_candidate():
    """For example PRECISION=bf16 on a card without it, which stops the service's start."""
    diagnosis = check(ONE, unserved="PRECISION=int8: nothing runs")

    assert "PRECISION=int8: nothing runs" == last(diagnosis, "precision").what
    assert Verdict.UNUSABLE is diagnosis.verdict


def test_attention_that_is_slow_or_broken():
    """The math kernel on a GPU is a warning; a package that does not work is a hint."""
    slow = AttentionReport("cuda:0", True, (KernelUse("bf16", "math", "math"),), (), ("take another torch",))
    package = Package("flash-attn", "2.8.3", False, "ImportError: undefined symbol")
    broken = replace(expected_report("cuda:0", (8, 9)), packages=(package,), advice=("flash-attn does not work",))

    slow_finding, broken_finding = (
        last(check(ONE, attention={"cuda:0": report}), "attention") for report in (slow, broken)
    )
    assert (Status.WARN, "take another torch") == (slow_finding.status, slow_finding.fix)
    assert (Status.OK, "flash-attn does not work") == (broken_finding.status, broken_finding.fix)
    assert broken_finding.what.endswith("installed: flash-attn 2.8.3 (unusable)")


def test_several_devices():
    """One finding names them all; each has its own memory limit."""
    diagnosis = check(TWO, DeviceRequest("cuda:all"))
    limits = [finding.what for finding in diagnosis.findings if finding.topic == "ceiling"]

    assert ("cuda:0", "cuda:1") == diagnosis.devices
    assert last(diagnosis, "device").what.startswith("cuda:0, cuda:1: ")
    assert ["cuda:0", "cuda:1"] == [what.partition(": ")[0] for what in limits]


def test_anchors_are_headings_of_the_page():
    """Every anchor is a heading of docs/gpu.md."""
    headings = re.findall(r"^##+ (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert [] == sorted(set(get_args(Anchor)) - {""} - anchors)


@given(
    machine=st.sampled_from(list(simulated.MACHINES)),
    device=st.sampled_from(["auto", "cpu", "cuda", "cuda:0", "cuda:1", "cuda:all", "mps", "tpu"]),
    use_gpu=st.sampled_from([None, True, False]),
    gpu=st.sampled_from([None, 0, 1, 9]),
    saved=st.sampled_from([None, SAVED]),
)
def test_any_request_on_any_machine(machine, device, use_gpu, gpu, saved):
    """Unusable exactly when the request is refused; every fault has a fix."""
    facts = simulated.facts(machine)
    observed = observe(facts, DeviceRequest(device, use_gpu, gpu=gpu), saved=saved)
    diagnosis = diagnose(facts, observed)

    assert bool(observed.refusal) is (diagnosis.verdict is Verdict.UNUSABLE)
    assert all(finding.what for finding in diagnosis.findings)
    assert all(finding.anchor and (finding.fix or finding.topic == "device") for finding in diagnosis.actionable)


@pytest.mark.parametrize("machine", simulated.MACHINES)
def test_the_text_report(machine):
    """ASCII, short lines (except commands), with every finding and fix."""
    diagnosis = check(simulated.facts(machine), attention={"cuda:0": expected_report("cuda:0", (8, 0))})
    text = render(diagnosis, "Check of a machine")
    flat = " ".join(text.split())

    assert text.isascii()
    assert all(len(line) <= 110 for line in text.splitlines() if "pip install" not in line)
    assert all(" ".join(finding.what.split()) in flat for finding in diagnosis.findings)
    assert all(" ".join(finding.fix.split()) in flat for finding in diagnosis.findings)
    assert all(f"docs/gpu.md#{finding.anchor}" in text for finding in diagnosis.actionable)
    assert f"Verdict: {diagnosis.verdict}: " in text.splitlines()[-1]


def test_the_text_report_names_a_topic_once():
    lines = render(check(ONE, samples={"GPU-a": CardSample(ecc_errors=1)}), "title").splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  ok    gpu 0 "))

    assert any(re.match(r"  warn {17}1 uncorrected", line) for line in lines[first:])


def test_as_json():
    """It is serialisable, with these keys."""
    facts = simulated.facts("ada-and-blackwell")
    uuid = facts.gpus[0].uuid
    observed = observe(facts, samples={uuid: CardSample()}, attention={"cuda:0": expected_report("cuda:0", (8, 9))})
    report = json.loads(json.dumps(as_json(diagnose(facts, observed), facts, observed, "a name")))

    assert [
        "verdict",
        "exit_code",
        "devices",
        "simulated",
        "rows",
        "placements",
        "attention",
        "readings",
        "facts",
    ] == list(report)
    assert ("good", 0, "a name") == (report["verdict"], report["exit_code"], report["simulated"])
    assert {"topic", "status", "what", "fix", "command", "anchor"} == set(report["rows"][0])
    assert 2 == len(report["facts"]["gpus"])
