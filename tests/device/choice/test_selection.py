"""Every request on every machine: devices with a reason, or an error that says what to change."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.choice.saved_choice import SavedChoice, choice_of
from backend.device.choice.selection import DeviceRequest as Request
from backend.device.choice.selection import choose, most_free
from backend.device.facts import simulated
from backend.device.records import DeviceType, Driver, GPUInfo, MachineFacts, TorchBuild
from backend.errors import DeviceUnavailable

GIB = 2**30
BUSY = GPUInfo(0, "NVIDIA GeForce RTX 4090", "GPU-b", 24 * GIB, (8, 9), bf16=True, free_bytes=5 * GIB)
IDLE = GPUInfo(1, "NVIDIA L4", "GPU-a", 22 * GIB, (8, 9), bf16=True, free_bytes=21 * GIB)
OLD = GPUInfo(2, "Tesla K80", "GPU-k", 11 * GIB, (3, 7), bf16=False, free_bytes=11 * GIB, fault="torch has no sm_37")
APPLE = GPUInfo(0, "Apple M3 Pro", "", 27 * GIB, (0, 0), bf16=True, unified=True)
HIDDEN = GPUInfo(-1, "NVIDIA GeForce RTX 5090", "GPU-h", 32 * GIB, (12, 0), bf16=True, fault="torch cannot see it")

CPU = MachineFacts(4, "a processor", (), 8 * GIB, why_no_gpu="no NVIDIA driver answers")
ONE = MachineFacts(4, "a processor", (), 8 * GIB, (IDLE,), DeviceType.CUDA)
TWO = MachineFacts(4, "a processor", (), 8 * GIB, (BUSY, IDLE), DeviceType.CUDA)
THREE = MachineFacts(4, "a processor", (), 8 * GIB, (BUSY, IDLE, OLD), DeviceType.CUDA)
MPS = MachineFacts(4, "a processor", (), 36 * GIB, (APPLE,), DeviceType.MPS)
BROKEN = MachineFacts(
    4, "a processor", (), 8 * GIB, (HIDDEN,), why_no_gpu="NVIDIA GeForce RTX 5090: torch cannot see it",
    driver=Driver("580.95.05", (13, 0)), torch=TorchBuild("2.13.0+cpu"),
)  # fmt: skip
MACHINES = {"cpu": CPU, "one": ONE, "two": TWO, "three": THREE, "mps": MPS, "broken": BROKEN}
SAVED = SavedChoice("GPU-b", "NVIDIA GeForce RTX 4090", 24 * GIB, "580.95.05", "2026-11-20T10:00:00+00:00")


@pytest.mark.parametrize(
    ("facts", "wanted", "devices", "reason"),
    [
        pytest.param(CPU, Request(), [], "CPU: no NVIDIA driver answers", id="auto-without-a-gpu-says-why"),
        pytest.param(CPU, Request("cpu"), [], "as asked for", id="cpu-asked-for"),
        pytest.param(TWO, Request(use_gpu=False), [], "as asked for", id="gpu-not-wanted"),
        pytest.param(ONE, Request(), [IDLE], "automatic choice, the only usable card", id="auto-one-card"),
        pytest.param(TWO, Request(), [IDLE], "the most free memory (21.0 GiB) of 2 cards", id="auto-free-not-total"),
        pytest.param(TWO, Request(use_gpu=True), [IDLE], "automatic choice", id="a-gpu-demanded"),
        pytest.param(TWO, Request("cuda"), [IDLE], "DEVICE=cuda, the most free memory", id="cuda-leaves-which-to-us"),
        pytest.param(TWO, Request("cuda:0"), [BUSY], "RTX 4090: DEVICE=cuda:0", id="named-although-busy"),
        pytest.param(TWO, Request("cuda:1", use_gpu=True), [IDLE], "NVIDIA L4: DEVICE=cuda:1", id="both-agree"),
        pytest.param(TWO, Request("cuda:all"), [BUSY, IDLE], "all usable ones", id="all"),
        pytest.param(THREE, Request("cuda:all"), [BUSY, IDLE], "all usable ones", id="all-usable"),
        pytest.param(TWO, Request("cuda:1,cuda:0"), [IDLE, BUSY], "L4 and NVIDIA GeForce", id="two-in-the-order-named"),
        pytest.param(TWO, Request(gpu=0), [BUSY], "RTX 4090: --gpu 0", id="option"),
        pytest.param(TWO, Request("cuda:1", gpu=0), [BUSY], "--gpu 0", id="option-before-device"),
        pytest.param(TWO, Request("cpu", gpu=0), [BUSY], "--gpu 0", id="option-before-cpu"),
        pytest.param(MPS, Request(), [APPLE], "Apple M3 Pro: automatic choice", id="apple"),
        pytest.param(MPS, Request("mps:0"), [APPLE], "DEVICE=mps:0", id="apple-numbered"),
        pytest.param(BROKEN, Request(), [], "CPU: NVIDIA GeForce RTX 5090: torch cannot", id="auto-falls-back-loudly"),
    ],
)
def test_choose(facts, wanted, devices, reason):
    """The requested devices, or the best; with the reason."""
    selected = choose(facts, wanted)

    assert devices == list(selected.devices)
    assert reason in selected.why


@pytest.mark.parametrize(
    ("facts", "wanted", "words"),
    [
        pytest.param(CPU, Request("cuda"), "DEVICE=cuda, but no NVIDIA driver answers; set DEVICE=auto", id="no-gpu"),
        pytest.param(CPU, Request(use_gpu=True), "but no NVIDIA driver answers; set USE_GPU=false", id="gpu-demanded"),
        pytest.param(CPU, Request(gpu=0), "--gpu 0, but no NVIDIA driver answers; leave --gpu out", id="option-no-gpu"),
        pytest.param(
            TWO,
            Request("cuda:2"),
            "found 2 cards: 0 NVIDIA GeForce RTX 4090 (24.0 GiB), 1 NVIDIA L4 (22.0 GiB); set DEVICE=auto or name one",
            id="one-too-far",
        ),
        pytest.param(TWO, Request(gpu=2), "--gpu 2, but found 2 cards", id="option-too-far"),
        pytest.param(THREE, Request("cuda:2"), "Tesla K80 cannot be used: torch has no sm_37", id="an-unusable-card"),
        pytest.param(THREE, Request(gpu=2), "Tesla K80 cannot be used: torch has no sm_37", id="option-unusable"),
        pytest.param(THREE, Request("cuda:3"), "Tesla K80 cannot be used", id="too-far-lists-the-unusable"),
        pytest.param(BROKEN, Request("cuda"), "torch cannot see it (pip install torch==2.13.0+cu1", id="wrong-build"),
        pytest.param(BROKEN, Request(use_gpu=True), "pip install torch==2.13.0", id="wrong-build-demanded"),
        pytest.param(BROKEN, Request(gpu=0), "RTX 5090 cannot be used: torch cannot", id="wrong-build-by-its-place"),
        pytest.param(TWO, Request("mps"), "DEVICE=mps, but found 2 cards", id="mps-on-an-nvidia-machine"),
        pytest.param(MPS, Request("mps:1"), "is not a device", id="apple-has-one"),
        pytest.param(TWO, Request("cuda", use_gpu=False), "contradicts USE_GPU=false", id="contradiction"),
        pytest.param(
            TWO, Request(use_gpu=False, gpu=0), "--gpu 0 contradicts USE_GPU=false", id="contradiction-option"
        ),
        pytest.param(TWO, Request("cpu", use_gpu=True), "contradicts USE_GPU=true", id="the-other-contradiction"),
        pytest.param(TWO, Request("cuda:1,cuda:1"), "names a card twice", id="named-twice"),
        pytest.param(TWO, Request("gpu"), "use auto, cpu, cuda, cuda:N, cuda:all", id="no-such-word"),
        pytest.param(TWO, Request("cuda:²"), "is not a device", id="a-digit-that-is-no-number"),
        pytest.param(TWO, Request(""), "is not a device", id="empty"),
        pytest.param(TWO, Request("gpu", gpu=0), "is not a device", id="a-bad-word-behind-an-option"),
    ],
)
def test_a_request_that_cannot_be_met(facts, wanted, words):
    """The error says what was requested, what there is and what to change."""
    with pytest.raises(DeviceUnavailable) as caught:
        choose(facts, wanted)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "devices"),
    [
        pytest.param(Request("cuda"), (BUSY,), id="cuda-leaves-which-to-it"),
        pytest.param(Request(use_gpu=True), (BUSY,), id="a-gpu-demanded-leaves-which-to-it"),
        pytest.param(Request("cuda:1"), (IDLE,), id="device-goes-before"),
        pytest.param(Request(gpu=1), (IDLE,), id="option-goes-before"),
        pytest.param(Request("cuda:all"), (BUSY, IDLE), id="all-goes-before"),
        pytest.param(Request("cpu"), (), id="cpu-goes-before"),
        pytest.param(Request(use_gpu=False), (), id="no-gpu-goes-before"),
    ],
)
def test_precedence_of_the_saved_choice(wanted, devices):
    """--gpu, then DEVICE, then the saved choice, then the automatic one."""
    assert devices == choose(TWO, wanted, SAVED).devices


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        pytest.param(ONE, "is not among the cards", id="taken-out"),
        pytest.param(replace(TWO, gpus=(replace(BUSY, fault="fell off the bus"), IDLE)), "cannot be used", id="broken"),
        pytest.param(MPS, "is not among the cards", id="another-machine"),
    ],
)
def test_stale_choice(facts, state):
    """The automatic choice, and a note that says how to choose again."""
    selected = choose(facts, Request(), SAVED)
    notes = [note for note in selected.notes if "saved choice" in note]

    assert "automatic choice" in selected.why
    assert 1 == len(notes)
    assert state in notes[0]
    assert "--choose" in notes[0]


def test_saved_apple():
    """Apple's GPU has no UUID and is matched by its name."""
    apple = SavedChoice("", "Apple M3 Pro", 1, "", "2026-11-20")

    assert "chosen on" in choose(MPS, Request(), apple).why
    assert "automatic" in choose(MPS, Request(), replace(apple, name="Apple M1")).why


def test_what_is_left_out_is_said():
    """An unusable card is mentioned with its fault."""
    assert ("Tesla K80 is left out: torch has no sm_37",) == choose(THREE, Request()).notes
    assert ("Tesla K80 is left out: torch has no sm_37",) == choose(THREE, Request("cuda:all")).notes


TWINS = [
    GPUInfo(number, "NVIDIA H200", uuid, 140 * GIB, (9, 0), bf16=True, free_bytes=free)
    for number, (uuid, free) in enumerate(
        [("GPU-3", 139 * GIB), ("GPU-1", 138 * GIB), ("GPU-2", 140 * GIB), ("GPU-0", 60 * GIB)]
    )
]


def test_a_choice_that_survives_a_reboot():
    """The same card in any order of equal cards, and none with clearly less free memory."""
    for order in itertools.permutations(TWINS):
        renumbered = [replace(gpu, index=number) for number, gpu in enumerate(order)]
        assert "GPU-1" == most_free(renumbered).uuid


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param((BUSY, IDLE), "GPU-a", id="free-beats-total"),
        pytest.param(
            (replace(BUSY, free_bytes=None), replace(IDLE, total_bytes=48 * GIB)),
            "GPU-a",
            id="totals-where-one-does-not-tell-what-is-free",
        ),
        pytest.param((IDLE, replace(IDLE, uuid="GPU-z", capability=(12, 0))), "GPU-z", id="newer-among-equals"),
        pytest.param(
            (IDLE, replace(IDLE, uuid="GPU-z", capability=(12, 0), free_bytes=10 * GIB)), "GPU-a", id="free-beats-newer"
        ),
        pytest.param((replace(IDLE, free_bytes=0), replace(BUSY, free_bytes=0)), "GPU-a", id="all-full"),
    ],
)
def test_most_free(gpus, expected):
    """The most free memory, then the newer generation, then the first UUID."""
    assert expected == most_free(gpus).uuid


DEVICES = ["auto", "cpu", "cuda", "mps", "mps:0", "cuda:0", "cuda:1", "cuda:2", "cuda:all", "cuda:0,cuda:1", "cuda:"]


@given(
    name=st.sampled_from(sorted(MACHINES)),
    device=st.one_of(st.sampled_from(DEVICES), st.text(max_size=8)),
    use_gpu=st.sampled_from([None, True, False]),
    gpu=st.sampled_from([None, None, -1, 0, 1, 2]),
    saved=st.sampled_from([None, SAVED, replace(SAVED, uuid="GPU-x"), replace(SAVED, uuid="GPU-h")]),
)
def test_any_request_on_any_machine(name, device, use_gpu, gpu, saved):
    """Usable devices that match the request, with a reason, or DeviceUnavailable."""
    facts = MACHINES[name]
    try:
        selected = choose(facts, Request(device, use_gpu, gpu=gpu), saved)
    except DeviceUnavailable:
        return

    assert selected.why
    assert set(selected.devices) <= set(facts.usable)
    assert len(set(selected.devices)) == len(selected.devices)
    assert use_gpu is None or use_gpu is bool(selected.devices)
    if gpu is not None:
        assert [gpu] == [card.index for card in selected.devices]
    elif device.startswith(("cuda", "mps")):
        assert selected.devices
        assert facts.gpu_type is DeviceType(device[: 4 if device.startswith("cuda") else 3])
    elif device == "cpu":
        assert not selected.devices


@pytest.mark.parametrize("visible", [None, "0,1", "1,0"])
def test_a_choice_by_uuid_survives_cuda_visible_devices(visible):
    """The saved card is selected under its new number."""
    everything = simulated.facts("ada-and-blackwell")
    facts = simulated.facts("ada-and-blackwell", visible=visible)
    for gpu in everything.gpus:
        (chosen,) = choose(facts, Request(), choice_of(gpu, "580", "2026-11-20")).devices
        assert gpu.uuid == chosen.uuid
        assert chosen is facts.gpus[chosen.index]
