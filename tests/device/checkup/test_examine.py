"""The check-up: each thing that can be wrong has a row, a way out and a place in docs/gpu.md, and sets the verdict."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.checkup.examine import Checkup, Extras, Row, Status, Verdict, examine, verdict_of
from backend.device.checkup.findings import Anchor
from backend.device.checkup.text import as_json, render
from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import Wishes
from backend.device.facts import nvml, simulated
from backend.device.facts.torch_builds import install_line
from backend.device.plan.attention import AttentionReport, KernelUse, Package, expected_report
from backend.device.plan.placement import place_all
from backend.device.records import CardSample, DeviceType, Driver, GPUInfo, MachineFacts, Platform, TorchBuild
from backend.errors import DeviceUnavailable

GIB = 2**30
PAGE = Path(__file__).resolve().parents[3] / "docs" / "gpu.md"
DRIVER, BUILD = (
    Driver("580.95.05", (13, 0)),
    TorchBuild("2.13.0+cu130", "13.0", archs=("sm_75", "sm_90", "compute_120")),
)
L4 = GPUInfo(0, "NVIDIA L4", "GPU-a", 22 * GIB, (8, 9), bf16=True, free_bytes=21 * GIB)
H100 = GPUInfo(1, "NVIDIA H100", "GPU-b", 80 * GIB, (9, 0), bf16=True, free_bytes=79 * GIB)
BROKEN = GPUInfo(-1, "NVIDIA RTX A400", "GPU-cdef", 4 * GIB, (8, 6), bf16=True, fault="it fell asleep")

CPU = MachineFacts(4, "a processor", (), 8 * GIB, why_no_gpu="no NVIDIA driver answers", free_memory_bytes=6 * GIB)
ONE = replace(CPU, gpus=(L4,), gpu_type=DeviceType.CUDA, why_no_gpu="", driver=DRIVER, torch=BUILD)
TWO = replace(ONE, gpus=(L4, H100))
SAVED = SavedChoice("GPU-a", "NVIDIA L4", 22 * GIB, "580.95.05", "2026-11-20T10:00:00+00:00")


def extras(facts: MachineFacts, wishes: Wishes | None = None, **more: object) -> Extras:
    """What check_gpu would gather on this machine, as far as it can be computed."""
    wishes, saved = wishes or Wishes(), more.get("saved")
    try:
        placements, refusal = place_all(facts, wishes, saved), ""
    except DeviceUnavailable as error:
        placements, refusal = (), str(error)
    return Extras(wishes=wishes, placements=placements, refusal=refusal, **more)


def check(facts: MachineFacts, wishes: Wishes | None = None, **more: object) -> Checkup:
    """The check-up of a machine with these wishes."""
    return examine(facts, extras(facts, wishes, **more))


def only(checkup: Checkup, topic: str) -> Row:
    """The last row of a topic."""
    return [row for row in checkup.rows if row.topic == topic][-1]


@pytest.mark.parametrize(
    ("machine", "verdict", "wanting"),
    [
        pytest.param("rtx-4070-laptop", Verdict.GOOD, [], id="rtx-4070-laptop"),
        pytest.param("ada-and-blackwell", Verdict.GOOD, [], id="ada-and-blackwell"),
        pytest.param("h200", Verdict.GOOD, [], id="h200"),
        pytest.param("h100-mig", Verdict.GOOD, [], id="h100-mig"),
        pytest.param("t4", Verdict.GOOD, [], id="t4"),
        pytest.param("v100", Verdict.GOOD, [], id="v100"),
        pytest.param("gb10", Verdict.GOOD, [], id="gb10"),
        pytest.param("apple-m3", Verdict.GOOD, [], id="apple-m3"),
        pytest.param("wsl2", Verdict.GOOD, [], id="wsl2"),
        pytest.param("windows-wddm", Verdict.DEGRADED, [("platform", "windows")], id="windows-wddm"),
        pytest.param("no-gpu", Verdict.GOOD, [], id="no-gpu"),
        pytest.param("vanishing", Verdict.GOOD, [], id="vanishing"),
        pytest.param(
            "cpu-build",
            Verdict.DEGRADED,
            [("gpu 0", "wrong-torch-build"), ("device", "gpu-not-used")],
            id="cpu-build",
        ),
        pytest.param(
            "old-driver",
            Verdict.DEGRADED,
            [("driver", "driver-too-old"), ("gpu 0", "driver-too-old"), ("device", "gpu-not-used")],
            id="old-driver",
        ),
        pytest.param(
            "new-card-old-build",
            Verdict.DEGRADED,
            [("gpu 0", "wrong-torch-build"), ("device", "gpu-not-used")],
            id="new-card-old-build",
        ),
    ],
)
def test_every_machine(machine, verdict, wanting):
    """A card that is there and not used is degraded; a machine without one, and nobody asking for one, is good."""
    checkup = check(simulated.facts(machine))

    assert wanting == [(row.topic, row.anchor) for row in checkup.wanting]
    assert verdict is checkup.verdict


def test_the_table_above_has_every_machine():
    """A machine that is added is looked at here, too."""
    tested = test_every_machine.pytestmark[0].args[1]

    assert list(simulated.MACHINES) == [case.values[0] for case in tested]


@pytest.mark.parametrize("machine", simulated.MACHINES)
def test_a_demand_for_a_gpu(machine):
    """USE_GPU=true is granted or the verdict is unusable; a fall back to the CPU is not good enough."""
    facts = simulated.facts(machine)
    checkup = check(facts, Wishes(use_gpu=True))

    assert bool(facts.usable) is (checkup.verdict is not Verdict.UNUSABLE)
    assert bool(facts.usable) is (Status.OK is only(checkup, "device").status)
    assert bool(facts.usable) is (checkup.devices not in ((), ("cpu",)))


@pytest.mark.parametrize("machine", ["cpu-build", "new-card-old-build"])
def test_the_exact_line_is_there_to_be_copied(machine):
    """A wrong build comes with the command that installs the right one, for the interpreter that runs this."""
    facts = simulated.facts(machine)
    row = only(check(facts), "gpu 0")
    line = install_line(facts.gpus[0].capability, facts.driver.cuda, facts.platform.machine, facts.torch.version)

    assert f"python -m {line}" == row.command
    assert f"  {row.command}\n" in render(check(facts), "title")


@pytest.mark.parametrize(
    ("facts", "wishes", "anchor"),
    [
        pytest.param(CPU, Wishes("cuda"), "cuda-not-available", id="no-card"),
        pytest.param(replace(ONE, gpus=(BROKEN,)), Wishes("cuda"), "gpu-not-used", id="no-usable-card"),
        pytest.param(TWO, Wishes("cuda:5"), "which-gpu-is-used", id="no-such-number"),
        pytest.param(TWO, Wishes(gpu=5), "which-gpu-is-used", id="no-such-option"),
        pytest.param(TWO, Wishes("mps"), "which-gpu-is-used", id="another-kind"),
    ],
)
def test_a_refused_wish(facts, wishes, anchor):
    """The refusal is the row, without the advice to run this very command; nothing is said of what would be used."""
    checkup = check(facts, wishes)
    row = only(checkup, "device")

    assert (Verdict.UNUSABLE, ()) == (checkup.verdict, checkup.devices)
    assert (Status.FAIL, anchor) == (row.status, row.anchor)
    assert "check_gpu" not in row.what
    assert row is checkup.rows[-1]


@pytest.mark.parametrize("why", nvml._WHY.values())
def test_a_driver_that_does_not_answer(why):
    """No driver is nobody's fault; one that is there and does not work is."""
    absent = why == nvml._WHY[nvml.pynvml.NVML_ERROR_LIBRARY_NOT_FOUND]
    row = only(check(replace(CPU, driver=Driver(fault=why))), "driver")

    assert absent is (row.status is Status.OK)
    assert absent or why in row.what


@pytest.mark.parametrize(
    ("facts", "more", "status", "words"),
    [
        pytest.param(ONE, {}, Status.OK, "NVIDIA 580.95.05, runs CUDA up to 13.0", id="well"),
        pytest.param(replace(ONE, driver=Driver("999")), {}, Status.OK, "NVIDIA 999", id="cuda-unknown"),
        pytest.param(replace(ONE, driver=Driver("470", (11, 4))), {}, Status.WARN, "before CUDA 12.0", id="too-old"),
        pytest.param(replace(ONE, driver=Driver("535", (12, 0))), {}, Status.OK, "up to 12.0", id="old-enough"),
        pytest.param(replace(ONE, driver=Driver("580", fault="it limps")), {}, Status.WARN, "it limps", id="limps"),
        pytest.param(
            replace(CPU, driver=DRIVER, why_no_gpu="it lists no card"), {}, Status.WARN, "lists no card", id="no-cards"
        ),
        pytest.param(
            replace(CPU, driver=DRIVER, why_no_gpu="all are hidden"),
            {"visible": "-1"},
            Status.OK,
            "all are hidden",
            id="hidden-on-purpose",
        ),
        pytest.param(CPU, {"wishes": Wishes("cpu")}, Status.OK, "not asked for a GPU", id="not-wanted"),
        pytest.param(
            replace(CPU, platform=Platform(container="docker")), {}, Status.OK, "no NVIDIA driver", id="in-a-container"
        ),
    ],
)
def test_the_driver(facts, more, status, words):
    """What it is, what it can run, and whether that is enough."""
    row = only(check(facts, **more), "driver")

    assert (status, True) == (row.status, words in row.what)


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
    """What is installed and what it is built for."""
    assert only(check(facts), "torch").what.startswith(words)


def test_a_container_without_a_card_says_how_to_hand_one_in():
    """As a hint: nobody in it can know whether the host has one."""
    row = only(check(replace(CPU, platform=Platform(container="docker"))), "driver")

    assert (Status.OK, "docker run --gpus all ...", "container") == (row.status, row.command, row.anchor)


@pytest.mark.parametrize(
    ("memory_bytes", "free_bytes", "status"),
    [
        (8 * GIB, 6 * GIB, Status.OK),
        (8 * GIB, None, Status.OK),
        (8 * GIB, GIB, Status.WARN),
        (GIB, None, Status.WARN),
    ],
)
def test_the_memory_of_the_machine(memory_bytes, free_bytes, status):
    """Less than the service needs to start is a warning."""
    row = only(check(replace(CPU, memory_bytes=memory_bytes, free_memory_bytes=free_bytes)), "memory")

    assert status is row.status


@pytest.mark.parametrize(
    ("shm_bytes", "what"), [(64 * 2**20, "64 MiB in /dev/shm: enough to serve"), (4 * GIB, "4.0 GiB in /dev/shm")]
)
def test_shared_memory(shm_bytes, what):
    """Little of it is a hint, never a warning: the service uses none."""
    row = only(check(replace(ONE, platform=Platform(shm_bytes=shm_bytes))), "shared memory")

    assert row.what.startswith(what)
    assert (Status.OK, shm_bytes < GIB) == (row.status, bool(row.fix))


def test_no_shared_memory_no_row():
    """macOS and Windows have no /dev/shm to speak of."""
    assert "shared memory" not in [row.topic for row in check(CPU).rows]


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
def test_a_sick_card(sample, words, anchor):
    """It is used, and the operator hears of it."""
    checkup = check(ONE, samples={"GPU-a": sample})

    assert [(Status.WARN, anchor)] == [(row.status, row.anchor) for row in checkup.wanting]
    assert words in checkup.wanting[0].what
    assert (Verdict.DEGRADED, ("cuda:0",)) == (checkup.verdict, checkup.devices)


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
    """What is unknown, zero or daily life is not reported."""
    assert Verdict.GOOD is check(ONE, samples={"GPU-a": sample}).verdict


def test_a_card_that_is_lost():
    """The driver knew it a moment ago."""
    checkup = check(ONE, lost={"GPU-a": "GPU is lost"})

    assert [("gpu 0", "gpu-lost")] == [(row.topic, row.anchor) for row in checkup.wanting]
    assert "GPU is lost" in checkup.wanting[0].what


@pytest.mark.parametrize(
    ("free_bytes", "processes", "status", "words"),
    [
        pytest.param(
            GIB, None, Status.WARN, "only 1.0 GiB of 22.0 GiB are free; the driver does not", id="nobody-told"
        ),
        pytest.param(
            5 * GIB,
            ((4711, "python3", 17 * GIB),),
            Status.WARN,
            "held by PID 4711 python3 (17.0 GiB)",
            id="less-than-a-quarter",
        ),
        pytest.param(
            11 * GIB, ((1, "", None), (2, "Xorg", GIB)), Status.OK, "shared with PID 1, PID 2 Xorg (1.0 GiB)", id="half"
        ),
        pytest.param(
            11 * GIB,
            tuple((pid, "a", GIB) for pid in range(1, 6)),
            Status.OK,
            "PID 3 a (1.0 GiB) and 2 more",
            id="a-crowd",
        ),
    ],
)
def test_who_holds_the_memory(free_bytes, processes, status, words):
    """Little free memory is a warning with names where the driver tells them."""
    facts = replace(ONE, gpus=(replace(L4, free_bytes=free_bytes),))
    row = only(check(facts, samples={"GPU-a": CardSample(processes=processes)}), "gpu 0")

    assert (status, True) == (row.status, words in row.what)
    assert "memory-held-by-others" == row.anchor


def test_unified_memory_is_judged_once():
    """It is the machine's: its own row warns, and the card's is silent."""
    facts = replace(ONE, gpus=(replace(L4, unified=True, free_bytes=GIB),))

    assert [] == [row.topic for row in check(facts).wanting]


def test_one_of_two_cards_unusable():
    """It costs speed, so it is degraded, and hiding the card on purpose ends the warning."""
    checkup = check(replace(ONE, gpus=(L4, BROKEN)))
    row = only(checkup, "gpu GPU-cdef")

    assert (Verdict.DEGRADED, ("cuda:0",)) == (checkup.verdict, checkup.devices)
    assert "Cannot be used: it fell asleep" in row.what
    assert "CUDA_VISIBLE_DEVICES" in row.fix
    assert [row] == list(checkup.wanting)


def test_slices():
    """The one that CUDA gives to this process, and the others with the variable that gives one of them to another."""
    checkup = check(simulated.facts("h100-mig"))
    slices = simulated.MACHINES["h100-mig"].cards

    assert 1 == sum(row.topic.startswith("gpu") for row in checkup.rows)
    assert only(checkup, "mig").what.startswith("3 more slices")
    assert f"CUDA_VISIBLE_DEVICES={slices[1].uuid} ..." == only(checkup, "mig").command


@pytest.mark.parametrize(
    ("facts", "wishes", "saved", "status", "words"),
    [
        pytest.param(TWO, Wishes(), SAVED, Status.OK, "NVIDIA L4 (GPU-a), chosen on 2026-11-20", id="used"),
        pytest.param(TWO, Wishes(gpu=1), SAVED, Status.OK, "an explicit wish goes first", id="overruled"),
        pytest.param(TWO, Wishes(), replace(SAVED, uuid="GPU-x"), Status.WARN, "not there", id="stale"),
        pytest.param(CPU, Wishes(), SAVED, Status.WARN, "not there, or not usable", id="no-card-at-all"),
    ],
)
def test_the_saved_choice(facts, wishes, saved, status, words):
    """Whether it is used, and why not."""
    row = only(check(facts, wishes, saved=saved), "saved choice")

    assert (status, True) == (row.status, words in row.what)


def test_a_saved_choice_is_no_concern_of_a_cpu():
    """Where no GPU is wanted, none is missed."""
    checkup = check(CPU, Wishes(use_gpu=False), saved=SAVED)

    assert "saved choice" not in [row.topic for row in checkup.rows]
    assert Verdict.GOOD is checkup.verdict


def test_a_device_that_cannot_compute():
    """The driver's own words, and the verdict is unusable: the service would die of the same."""
    checkup = check(ONE, kernels={"cuda:0": "CUDA error: out of memory"})

    assert (Status.FAIL, True) == (only(checkup, "kernel").status, "out of memory" in only(checkup, "kernel").what)
    assert (Verdict.UNUSABLE, ()) == (checkup.verdict, checkup.devices)


def test_settings_that_leave_nothing_to_run():
    """PRECISION=bf16 on a card without it stops the start, and so does the check."""
    checkup = check(ONE, unserved="PRECISION=int8: nothing runs")

    assert "PRECISION=int8: nothing runs" == only(checkup, "precision").what
    assert Verdict.UNUSABLE is checkup.verdict


def test_attention_names_the_kernels_that_run():
    """For the dtype that will be tried first, without padding and with it."""
    report = expected_report("cuda:0", (8, 9))
    row = only(check(ONE, attention={"cuda:0": report}), "attention")

    assert (Status.OK, "") == (row.status, row.fix)
    assert "cuda:0 in bf16: flash without padding, efficient with it (by torch's rules)" == row.what


def test_attention_that_is_slow_or_broken():
    """The plain kernel on a GPU is a warning; a package that does not work is a hint with its reason."""
    slow = AttentionReport("cuda:0", True, (KernelUse("bf16", "math", "math"),), (), ("take another torch",))
    package = Package("flash-attn", "2.8.3", False, "ImportError: undefined symbol")
    broken = replace(expected_report("cuda:0", (8, 9)), packages=(package,), advice=("flash-attn does not work",))

    slow_row, broken_row = (only(check(ONE, attention={"cuda:0": report}), "attention") for report in (slow, broken))
    assert (Status.WARN, "take another torch") == (slow_row.status, slow_row.fix)
    assert (Status.OK, "flash-attn does not work") == (broken_row.status, broken_row.fix)
    assert broken_row.what.endswith("installed: flash-attn 2.8.3 (unusable)")


def test_several_devices():
    """One row names them all; what differs has a row for each."""
    checkup = check(TWO, Wishes("cuda:all"))
    ceilings = [row.what for row in checkup.rows if row.topic == "ceiling"]

    assert ("cuda:0", "cuda:1") == checkup.devices
    assert only(checkup, "device").what.startswith("cuda:0, cuda:1: ")
    assert ["cuda:0", "cuda:1"] == [what.partition(": ")[0] for what in ceilings]


@pytest.mark.parametrize(
    ("statuses", "verdict", "exit_code"),
    [
        pytest.param([], Verdict.GOOD, 0, id="nothing-looked-at"),
        pytest.param([Status.OK, Status.OK], Verdict.GOOD, 0, id="all-well"),
        pytest.param([Status.OK, Status.WARN], Verdict.DEGRADED, 1, id="a-warning"),
        pytest.param([Status.WARN, Status.FAIL, Status.OK], Verdict.UNUSABLE, 2, id="the-worst-counts"),
    ],
)
def test_verdict(statuses, verdict, exit_code):
    """As bad as the worst row, and so is the exit code."""
    found = verdict_of(tuple(Row("topic", status, "what") for status in statuses))

    assert (verdict, exit_code) == (found, found.exit_code)


def test_anchors_are_headings_of_the_page():
    """Whoever is sent to a heading of docs/gpu.md finds it there."""
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
def test_any_wish_on_any_machine(machine, device, use_gpu, gpu, saved):
    """There is always an answer, unusable exactly when the start would be refused, and a way out of what is wrong."""
    facts = simulated.facts(machine)
    gathered = extras(facts, Wishes(device, use_gpu, gpu=gpu), saved=saved)
    checkup = examine(facts, gathered)

    assert bool(gathered.refusal) is (checkup.verdict is Verdict.UNUSABLE)
    assert all(row.what for row in checkup.rows)
    assert all(row.anchor and (row.fix or row.topic == "device") for row in checkup.wanting)


@pytest.mark.parametrize("machine", simulated.MACHINES)
def test_the_text(machine):
    """It fits a terminal, any of them: plain ASCII, short lines (commands apart), every row and way out in it."""
    checkup = check(simulated.facts(machine), attention={"cuda:0": expected_report("cuda:0", (8, 0))})
    text = render(checkup, "Check of a machine")
    flat = " ".join(text.split())

    assert text.isascii()
    assert all(len(line) <= 110 for line in text.splitlines() if "pip install" not in line)
    assert all(" ".join(row.what.split()) in flat for row in checkup.rows)
    assert all(" ".join(row.fix.split()) in flat for row in checkup.rows)
    assert all(f"docs/gpu.md#{row.anchor}" in text for row in checkup.wanting)
    assert f"Verdict: {checkup.verdict}: " in text.splitlines()[-1]


def test_the_text_names_a_topic_once():
    """Further rows of it follow without its name."""
    lines = render(check(ONE, samples={"GPU-a": CardSample(ecc_errors=1)}), "title").splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  ok    gpu 0 "))

    assert any(re.match(r"  warn {17}1 uncorrected", line) for line in lines[first:])


def test_as_json():
    """It can be written as JSON whatever is in it, and its keys stay."""
    facts = simulated.facts("ada-and-blackwell")
    uuid = facts.gpus[0].uuid
    gathered = extras(facts, samples={uuid: CardSample()}, attention={"cuda:0": expected_report("cuda:0", (8, 9))})
    told = json.loads(json.dumps(as_json(examine(facts, gathered), facts, gathered, "a name")))

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
    ] == list(told)
    assert ("good", 0, "a name") == (told["verdict"], told["exit_code"], told["simulated"])
    assert {"topic", "status", "what", "fix", "command", "anchor"} == set(told["rows"][0])
    assert 2 == len(told["facts"]["gpus"])


def test_as_json_without_facts():
    """Wrong settings keep us from looking; the answer keeps its shape."""
    told = as_json(Checkup(Verdict.UNUSABLE, ()), None, Extras())

    assert (None, None, []) == (told["facts"], told["simulated"], told["placements"])
