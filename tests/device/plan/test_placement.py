"""Lanes, memory limit, workers and DataLoader settings of every kind of device, with their reasons."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.choice.selection import DeviceRequest
from backend.device.plan.placement import (
    LoaderSettings,
    MemoryLimit,
    Placement,
    loader_settings,
    memory_limit,
    place,
    place_all,
    with_vectors,
    workers_for,
)
from backend.device.records import DeviceType, GPUInfo, MachineFacts, Platform
from backend.errors import BadSettings, DeviceUnavailable

GIB, MB = 2**30, 10**6
SMALL = GPUInfo(0, "Tesla T4", "GPU-a", 16 * GIB, (7, 5), bf16=False, free_bytes=15 * GIB)
LARGE = GPUInfo(1, "NVIDIA A100 80GB", "GPU-b", 80 * GIB, (8, 0), bf16=True, free_bytes=79 * GIB)
APPLE = GPUInfo(0, "Apple M3 Pro", "", 27 * GIB, (0, 0), bf16=True, unified=True)
SPARK = GPUInfo(0, "NVIDIA GB10", "GPU-s", 120 * GIB, (12, 1), bf16=True, unified=True)

CPU = MachineFacts(4, "a processor", (), 8 * GIB, why_no_gpu="no NVIDIA driver answers", free_memory_bytes=6 * GIB)
CUDA = MachineFacts(16, "a processor", (), 64 * GIB, (SMALL, LARGE), DeviceType.CUDA)
MPS = MachineFacts(
    8, "a processor", (), 36 * GIB, (APPLE,), DeviceType.MPS, platform=Platform("Darwin", "arm64"),
    free_memory_bytes=20 * GIB,
)  # fmt: skip
WSL = replace(CUDA, platform=Platform(wsl=True))


def test_place_on_a_cpu():
    """One lane per core, bf16 if the processor has it, and most of the free memory."""
    placement = place(replace(CPU, cpu_flags=("amx_bf16",)), DeviceRequest())

    assert ("cpu", 4, 1, 1) == (placement.device, placement.lanes, placement.threads, placement.depth)
    assert ("bf16", "fp32") == placement.dtypes
    assert int(0.9 * 6 * GIB) == placement.memory_bytes
    assert ("", 1) == (placement.uuid, placement.workers)
    assert "CPU: no NVIDIA driver answers" == placement.why[0]
    assert "one lane for each of 4 usable cores, 1 thread(s) each" == placement.why[1]


def test_place_on_a_gpu():
    """One lane that prepares the next batch, dtypes by hardware, a limit below the free memory; with reasons."""
    placement = place(CUDA, DeviceRequest())

    assert ("cuda:1", "GPU-b", 1, 2) == (placement.device, placement.uuid, placement.lanes, placement.depth)
    assert ("bf16", "fp16", "fp32") == placement.dtypes
    assert int(0.9 * 79 * GIB) == placement.memory_bytes
    assert placement.workers > 1
    assert 2 == place(CUDA, DeviceRequest(lanes=2)).lanes
    assert "LANES=2" in place(CUDA, DeviceRequest(lanes=2)).why[1]
    for word in ("automatic choice", "one lane", "bf16", "90% of the 79.0 GiB free", "process", "training loads"):
        assert any(word in why for why in placement.why), word


def test_place_all():
    """One placement per device, in the requested order, with the same dtypes, so that vectors agree."""
    first, second = place_all(CUDA, DeviceRequest("cuda:1,cuda:0"))

    assert ["cuda:1", "cuda:0"] == [first.device, second.device]
    assert ["GPU-b", "GPU-a"] == [first.uuid, second.uuid]
    assert ("fp16", "fp32") == first.dtypes == second.dtypes
    assert first.memory_bytes > second.memory_bytes
    assert 3 == place_all(replace(CUDA, cores=8), DeviceRequest("cuda:all"))[0].loader.num_workers, "7 cores, 2 GPUs"
    assert first == place(CUDA, DeviceRequest("cuda:1,cuda:0"))
    assert 1 == len(place_all(CPU, DeviceRequest()))


@pytest.mark.parametrize(
    ("cores", "requested", "lanes", "threads"),
    [
        pytest.param(1, None, 1, 1, id="one-core"),
        pytest.param(8, 3, 3, 2, id="cores-left-over"),
        pytest.param(2, 4, 4, 1, id="more-lanes-than-cores"),
    ],
)
def test_lanes_of_a_cpu(cores, requested, lanes, threads):
    """Lanes times threads stay within the cores unless more lanes were requested."""
    placement = place(replace(CPU, cores=cores), DeviceRequest(lanes=requested))

    assert (lanes, threads, 1) == (placement.lanes, placement.threads, placement.depth)


@pytest.mark.parametrize(
    ("facts", "gpu", "fraction", "expected", "words"),
    [
        pytest.param(CUDA, LARGE, None, int(0.9 * 79 * GIB), "90% of the 79.0 GiB free", id="a-card-of-its-own"),
        pytest.param(CUDA, LARGE, 0.5, 40 * GIB, "GPU_MEMORY_FRACTION=0.5 of 80.0 GiB", id="half-of-the-whole-card"),
        pytest.param(
            CUDA, replace(LARGE, free_bytes=20 * GIB), 0.5, 20 * GIB - 500 * MB, "20.0 GiB of 80.0 GiB were free",
            id="neighbours-come-off-a-wish",
        ),
        pytest.param(
            CUDA, replace(LARGE, free_bytes=4 * GIB), None, 4 * GIB - 500 * MB, "CUDA context", id="little-is-free"
        ),
        pytest.param(CUDA, replace(LARGE, free_bytes=0), 0.5, 256 * 2**20, "0.0 GiB of 80.0 GiB", id="nothing-is-free"),
        pytest.param(WSL, LARGE, None, 64 * GIB, "80% of 80.0 GiB", id="wsl-by-total"),
        pytest.param(WSL, replace(SMALL, free_bytes=8 * GIB), None, 6 * GIB, "2.0 GiB for WSL2", id="wsl-by-free"),
        pytest.param(WSL, LARGE, 1.0, 64 * GIB, "80% of 80.0 GiB", id="wsl-before-a-wish"),
        pytest.param(
            CUDA, replace(SMALL, free_bytes=10 * GIB, driver_model="WDDM"), None, 9 * GIB, "90%",
            id="windows-with-room",
        ),
        pytest.param(
            CUDA, replace(SMALL, driver_model="WDDM"), 1.0, 15 * GIB - 700 * MB, "Windows", id="windows-keeps-700-mb"
        ),
        pytest.param(MPS, APPLE, None, 18 * GIB, "90% of the 20.0 GiB", id="apple-by-free-memory"),
        pytest.param(
            replace(MPS, free_memory_bytes=3 * GIB), APPLE, None, 2 * GIB, "which shares this memory",
            id="apple-nearly-full",
        ),
        pytest.param(
            replace(CUDA, memory_bytes=32 * GIB), SPARK, None, int(0.9 * 32 * GIB), "32.0 GiB", id="unified-in-a-cgroup"
        ),
        pytest.param(
            replace(CUDA, memory_bytes=120 * GIB, free_memory_bytes=100 * GIB), SPARK, 1.0, 99 * GIB,
            "100.0 GiB of 120.0 GiB", id="unified-leaves-the-service-its-own",
        ),
    ],
)  # fmt: skip
def test_memory_limit(facts, gpu, fraction, expected, words):
    """The requested fraction, without what other processes, the system and the context need; with the figures."""
    limit = memory_limit(facts, gpu, fraction)

    assert expected == limit.bytes
    assert words in limit.why


@given(
    gpu=st.builds(
        lambda total, free, unified, model: replace(
            LARGE, total_bytes=total, free_bytes=free, unified=unified, driver_model=model
        ),
        st.integers(GIB, 200 * GIB),
        st.one_of(st.none(), st.integers(0, 200 * GIB)),
        st.booleans(),
        st.sampled_from(["", "WDDM", "TCC"]),
    ),
    fraction=st.one_of(st.none(), st.floats(0.001, 1.0)),
    wsl=st.booleans(),
)
def test_any_memory_limit(gpu, fraction, wsl):
    """Above 0, and at most the card, the fraction, and the free memory (or 256 MiB, so that torch can try)."""
    facts = replace(CUDA, gpus=(gpu,), platform=Platform(wsl=wsl), free_memory_bytes=32 * GIB)

    limit = memory_limit(facts, gpu, fraction).bytes

    assert 0 < limit <= gpu.total_bytes
    assert limit <= max(256 * 2**20, gpu.total_bytes if gpu.free_bytes is None else gpu.free_bytes)
    assert fraction is None or limit <= fraction * gpu.total_bytes
    assert not gpu.unified or limit < 32 * GIB


@pytest.mark.parametrize("fraction", [0.0, 1.01, float("nan")])
@pytest.mark.parametrize("facts", [CPU, CUDA])
def test_a_fraction_out_of_range(facts, fraction):
    """Outside (0, 1] it is refused on every machine, also on a CPU."""
    with pytest.raises(BadSettings, match=r"GPU_MEMORY_FRACTION=.*at most 1"):
        place(facts, DeviceRequest(memory_fraction=fraction))


@pytest.mark.parametrize(("bytes_", "expected"), [(0, 1), (GIB, 1), (80 * GIB, 31)])
def test_suggested_workers(bytes_, expected):
    """The limit over context, weights and largest batch of one process, and at least one."""
    assert expected == workers_for(MemoryLimit(bytes_, ""))


@pytest.mark.parametrize(
    ("facts", "kind", "devices", "expected"),
    [
        pytest.param(replace(CUDA, cores=6), "cuda", 1, LoaderSettings(5, True, 2, False), id="a-core-kept-back"),
        pytest.param(CUDA, "cuda", 1, LoaderSettings(8, True, 2, False), id="no-more-than-eight"),
        pytest.param(CUDA, "cuda", 4, LoaderSettings(3, True, 2, False), id="cores-shared-by-four"),
        pytest.param(replace(CUDA, cores=1), "cuda", 1, LoaderSettings(0, True, None, False), id="a-single-core"),
        pytest.param(replace(WSL, cores=4), "cuda", 1, LoaderSettings(3, False, 2, False), id="wsl-pins-nothing"),
        pytest.param(
            replace(CUDA, platform=Platform(container="docker", shm_bytes=64 * 2**20)), "cuda", 1,
            LoaderSettings(0, True, None, False), id="dockers-own-shm",
        ),
        pytest.param(
            replace(CUDA, platform=Platform(container="docker", shm_bytes=2**29)), "cuda", 1,
            LoaderSettings(4, True, 2, False), id="shm-of-512-mib",
        ),
        pytest.param(
            replace(CUDA, cores=4, platform=Platform("Windows", "AMD64")), "cuda", 1,
            LoaderSettings(3, True, 2, True), id="windows-keeps-spawned-workers",
        ),
        pytest.param(MPS, "mps", 1, LoaderSettings(7, False, 2, True), id="apple-pins-nothing"),
        pytest.param(
            replace(CUDA, cores=4, gpus=(SPARK,)), "cuda", 1, LoaderSettings(3, False, 2, False),
            id="unified-pins-nothing",
        ),
        pytest.param(replace(CPU, cores=8), "cpu", 1, LoaderSettings(2, False, 2, False), id="a-cpu-computes-itself"),
        pytest.param(replace(CPU, cores=2), "cpu", 1, LoaderSettings(0, False, None, False), id="a-small-cpu"),
    ],
)  # fmt: skip
def test_loader(facts, kind, devices, expected):
    """From usable cores, /dev/shm and platform."""
    settings, why = loader_settings(facts, DeviceType(kind), devices=devices)

    assert expected == settings
    assert f"{expected.num_workers} worker" in why
    assert ("no pinned" in why) is not expected.pin_memory


def test_torch_takes_the_loader_settings():
    """DataLoader accepts every combination; it refuses prefetching without workers."""
    from dataclasses import asdict

    from torch.utils.data import DataLoader

    for cores in (1, 2, 8):
        settings, _ = loader_settings(replace(CPU, cores=cores), DeviceType.CPU)
        assert [0, 1] == [int(item) for item in DataLoader([0, 1], batch_size=None, **asdict(settings), timeout=0)]


@given(
    facts=st.sampled_from([CPU, CUDA, MPS, WSL]),
    device=st.one_of(st.sampled_from(["auto", "cpu", "cuda", "mps", "cuda:0", "cuda:all"]), st.text(max_size=8)),
    use_gpu=st.sampled_from([None, True, False]),
    lanes=st.one_of(st.none(), st.integers(1, 64)),
    fraction=st.one_of(st.none(), st.floats()),
)
def test_any_request_on_any_machine(facts, device, use_gpu, lanes, fraction):
    """Placements that match the request, with reasons, or one of our errors."""
    try:
        placements = place_all(facts, DeviceRequest(device, use_gpu, lanes, memory_fraction=fraction))
    except (DeviceUnavailable, BadSettings):
        return

    for placement in placements:
        assert all(placement.why)
        assert placement.type is DeviceType.CPU or placement.type is facts.gpu_type
        assert device == "auto" or device.partition(":")[0] == placement.type
        assert use_gpu is None or use_gpu == (placement.type is not DeviceType.CPU)
        assert lanes is None or lanes == placement.lanes
        assert placement.threads >= 1
        assert placement.workers >= 1
        assert placement.memory_bytes > 0
        assert "fp32" == placement.dtypes[-1]
        assert placement.dtypes == placements[0].dtypes


def test_vectors_of_search_take_a_part_of_the_limit():
    """An eighth at most, or what is wanted; models are promised the rest. A CPU is left as it is."""
    card = Placement("cuda:0", 1, 1, 2, ("asked for",), memory_bytes=16 * 2**30)
    large, small = with_vectors(card, 2**40), with_vectors(card, 2**20)
    on_cpu = Placement("cpu", 1, 1, 1, ("asked for",), memory_bytes=16 * 2**30)

    assert (14 * 2**30, 2 * 2**30) == (large.memory_bytes, large.vector_bytes)
    assert (16 * 2**30 - 2**20, 2**20) == (small.memory_bytes, small.vector_bytes)
    assert {card.process_bytes} == {large.process_bytes, small.process_bytes}
    assert "SEARCH_MEMORY_BYTES" in large.why[-1]
    assert on_cpu == with_vectors(on_cpu, 2**40)
    assert card == with_vectors(card, 0)
