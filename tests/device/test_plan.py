"""Every wish on every machine: a placement with its reasons, or a refusal with its reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.facts import DeviceType, GPUInfo, MachineFacts
from backend.device.plan import Placement, Wishes, place, wants_gpu
from backend.errors import DeviceUnavailable

SMALL = GPUInfo(0, "Small Card", "GPU-a", 8 * 2**30, (7, 5), bf16=False)
LARGE = GPUInfo(1, "Large Card", "GPU-b", 80 * 2**30, (9, 0), bf16=True)
APPLE = GPUInfo(0, "Apple GPU", "", 16 * 2**30, (0, 0), bf16=True)

CPU = MachineFacts(4, "a processor", (), 2**33, why_no_gpu="no NVIDIA driver answers")
CUDA = MachineFacts(4, "a processor", (), 2**33, (SMALL, LARGE), DeviceType.CUDA)
MPS = MachineFacts(4, "a processor", (), 2**33, (APPLE,), DeviceType.MPS)


@pytest.mark.parametrize(
    ("facts", "wishes", "device", "reason"),
    [
        pytest.param(CPU, Wishes(), "cpu", "no NVIDIA driver answers", id="auto-without-a-gpu-says-why"),
        pytest.param(CPU, Wishes(use_gpu=False), "cpu", "as asked for", id="no-gpu-wanted-none-there"),
        pytest.param(CPU, Wishes("cpu"), "cpu", "as asked for", id="cpu-asked-for"),
        pytest.param(
            CUDA, Wishes(), "cuda:1", "Large Card: automatic choice, the largest of 2", id="auto-takes-the-largest"
        ),
        pytest.param(CUDA, Wishes(use_gpu=True), "cuda:1", "Large Card", id="gpu-demanded"),
        pytest.param(CUDA, Wishes(use_gpu=False), "cpu", "as asked for", id="gpu-not-wanted"),
        pytest.param(CUDA, Wishes("cpu"), "cpu", "as asked for", id="cpu-asked-for-beside-gpus"),
        pytest.param(CUDA, Wishes("cpu", use_gpu=False), "cpu", "as asked for", id="cpu-said-twice"),
        pytest.param(CUDA, Wishes("cuda"), "cuda:0", "Small Card: DEVICE=cuda", id="cuda-is-the-first"),
        pytest.param(CUDA, Wishes("cuda:0"), "cuda:0", "Small Card", id="the-small-one"),
        pytest.param(CUDA, Wishes("cuda:1", use_gpu=True), "cuda:1", "Large Card", id="both-wishes-agree"),
        pytest.param(MPS, Wishes(), "mps", "Apple GPU", id="apple-auto"),
        pytest.param(MPS, Wishes("mps"), "mps", "Apple GPU: DEVICE=mps", id="apple"),
    ],
)
def test_device(facts, wishes, device, reason):
    """What was asked for, or the best there is; the first reason says which."""
    placement = place(facts, wishes)

    assert device == placement.device
    assert reason in placement.why[0]


@pytest.mark.parametrize(
    ("facts", "wishes", "words"),
    [
        pytest.param(CPU, Wishes("cuda"), "DEVICE=cuda, but no NVIDIA driver answers", id="cuda-without-a-gpu"),
        pytest.param(CPU, Wishes("mps"), "DEVICE=mps, but", id="mps-without-a-gpu"),
        pytest.param(CPU, Wishes(use_gpu=True), "USE_GPU=true, but no NVIDIA driver answers", id="gpu-demanded"),
        pytest.param(CUDA, Wishes("cuda:2"), "found 2 cuda device(s)", id="one-too-far"),
        pytest.param(CUDA, Wishes("mps"), "found 2 cuda device(s)", id="mps-on-an-nvidia-machine"),
        pytest.param(MPS, Wishes("cuda"), "found 1 mps device(s)", id="cuda-on-an-apple"),
        pytest.param(MPS, Wishes("mps:1"), "found 1 mps device(s)", id="apple-has-one"),
        pytest.param(CUDA, Wishes("cuda", use_gpu=False), "contradicts USE_GPU=false", id="contradiction"),
        pytest.param(CUDA, Wishes("cpu", use_gpu=True), "contradicts USE_GPU=true", id="the-other-contradiction"),
        pytest.param(CPU, Wishes("cpu", use_gpu=True), "USE_GPU=true", id="the-other-contradiction-without-a-gpu"),
        pytest.param(CUDA, Wishes("gpu"), "use auto, cpu, cuda, cuda:N or mps", id="no-such-word"),
        pytest.param(CUDA, Wishes("CUDA"), "is not a device", id="upper-case"),
        pytest.param(CUDA, Wishes("cuda:one"), "is not a device", id="a-word-for-a-number"),
        pytest.param(CUDA, Wishes("cuda:-1"), "is not a device", id="a-negative-number"),
        pytest.param(CUDA, Wishes("cpu:0"), "is not a device", id="cpu-with-a-number"),
        pytest.param(CUDA, Wishes(""), "is not a device", id="empty"),
    ],
)
def test_a_wish_that_cannot_be_granted(facts, wishes, words):
    """It stops the start: an explicit wish is never silently ignored."""
    with pytest.raises(DeviceUnavailable) as caught:
        place(facts, wishes)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("cores", "wished", "lanes", "threads"),
    [
        pytest.param(1, None, 1, 1, id="one-core"),
        pytest.param(8, None, 8, 1, id="a-lane-a-core"),
        pytest.param(8, 2, 2, 4, id="two-wide-lanes"),
        pytest.param(8, 3, 3, 2, id="cores-left-over"),
        pytest.param(2, 4, 4, 1, id="more-lanes-than-cores"),
    ],
)
def test_lanes_of_a_cpu(cores, wished, lanes, threads):
    """Lanes times threads stay within the cores unless more lanes were asked for."""
    facts = MachineFacts(cores, "a processor", (), 2**33, why_no_gpu="none")

    assert (lanes, threads, 1) == (
        (placement := place(facts, Wishes(lanes=wished))).lanes,
        placement.threads,
        placement.depth,
    )


def test_lanes_of_a_gpu():
    """One, and the next batch is prepared while this one runs."""
    placement = place(CUDA, Wishes())

    assert (1, 2) == (placement.lanes, placement.depth)
    assert place(CUDA, Wishes(lanes=2)).lanes == 2


@pytest.mark.parametrize(("device", "kind"), [("cpu", "cpu"), ("cuda:3", "cuda"), ("mps", "mps")])
def test_type(device, kind):
    """The kind of a torch device string."""
    assert DeviceType(kind) is Placement(device, 1, 1, 1, ("why",)).type


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        (Wishes(), True),
        (Wishes(use_gpu=True), True),
        (Wishes("cuda"), True),
        (Wishes("cpu"), False),
        (Wishes(use_gpu=False), False),
    ],
)
def test_wants_gpu(wishes, expected):
    """No accelerator library is touched where none is wanted."""
    assert expected is wants_gpu(wishes)


@given(
    facts=st.sampled_from([CPU, CUDA, MPS]),
    device=st.one_of(st.sampled_from(["auto", "cpu", "cuda", "mps", "cuda:0", "cuda:"]), st.text(max_size=8)),
    use_gpu=st.sampled_from([None, True, False]),
    lanes=st.one_of(st.none(), st.integers(1, 64)),
)
def test_any_wish_on_any_machine(facts, device, use_gpu, lanes):
    """Either a placement that keeps to every explicit wish and says why, or DeviceUnavailable; nothing else."""
    try:
        placement = place(facts, Wishes(device, use_gpu, lanes))
    except DeviceUnavailable:
        return

    assert all(placement.why)
    assert placement.type is DeviceType.CPU or placement.type is facts.gpu_type
    assert device == "auto" or device.partition(":")[0] == placement.type
    assert use_gpu is None or use_gpu == (placement.type is not DeviceType.CPU)
    assert lanes is None or lanes == placement.lanes
    assert placement.threads >= 1
