"""GPUManager, on this machine and on simulated ones."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.simulated import facts
from backend.device.plan import precision
from backend.device.plan.placement import LoaderSettings
from backend.device.records import AllocatorStats, MachineFacts
from backend.device.watch.monitor import DeviceMemory
from backend.errors import BadSettings, DeviceUnavailable
from backend.gpu_toolkit import manager
from backend.gpu_toolkit.gpu_config import GPUConfig
from backend.gpu_toolkit.manager import GPUManager, get_gpu_manager

GIB = 1024**3
PLAIN = MachineFacts(2, "a processor", (), 2**33, why_no_gpu="no NVIDIA driver answers")  # without bf16


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No manager and no machine from another test."""
    monkeypatch.setattr(manager, "process_manager", None)
    yield
    default_device.reset()


@pytest.fixture
def at() -> Callable[[str], None]:
    """Puts this process on a simulated machine."""

    def move(name: str, wishes: DeviceRequest | None = None) -> None:
        default_device.configure(facts(name), wishes)

    return move


class Ceilings:
    """Records memory limits instead of setting them."""

    def __init__(self) -> None:
        self.set: dict[str, int] = {}

    def __call__(self, device: str, memory_bytes: int) -> str:
        self.set[device] = memory_bytes
        return f"ceiling on {device}"


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        pytest.param("ada-and-blackwell", GPUConfig(), "cuda:0", id="the-freest"),
        pytest.param("ada-and-blackwell", GPUConfig(device_ids=[1]), "cuda:1", id="by-number"),
        pytest.param("ada-and-blackwell", GPUConfig(device="cuda:1"), "cuda:1", id="by-name"),
        pytest.param("h200", GPUConfig(device="cpu"), "cpu", id="the-cpu-beside-a-card"),
    ],
)
def test_device(at: Callable[[str], None], name: str, config: GPUConfig, expected: str):
    """Chosen once, with its ceiling; asking again sets nothing up again."""
    at(name)
    ceilings = Ceilings()
    found = GPUManager(config, set_ceiling=ceilings)

    assert torch.device(expected) == found.get_device() == found.get_device() == found.setup_device()
    assert {expected: found.placement.memory_bytes} == ceilings.set


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        pytest.param("no-gpu", GPUConfig(device="cuda"), "no NVIDIA driver", id="no-card"),
        pytest.param("rtx-4070-laptop", GPUConfig(device_ids=[3]), "cuda:3", id="index-out-of-range"),
    ],
)
def test_a_wish_that_cannot_be_granted(at: Callable[[str], None], name: str, config: GPUConfig, message: str):
    """It is an error with its reason, never another device."""
    at(name)

    with pytest.raises(DeviceUnavailable, match=message):
        GPUManager(config, set_ceiling=Ceilings()).get_device()


def test_the_ceiling_is_the_fraction(at: Callable[[str], None]):
    """``memory_fraction`` is of the whole card; by default 90 % of what is free."""
    at("h200")
    total = default_device.machine_facts().gpus[0].total_bytes
    half = GPUManager(GPUConfig(memory_fraction=0.5)).placement.memory_bytes
    default = GPUManager().placement.memory_bytes

    assert total * 0.5 == pytest.approx(half, rel=0.01)
    assert half < default < total


def test_setup_sets_how_numbers_are_computed(at: Callable[[str], None]):
    """TF32 and the search for convolutions only as asked, and the search only where it exists."""
    at("h200")
    before = precision.fp32_precision(), torch.backends.cudnn.benchmark
    try:
        GPUManager(GPUConfig(), set_ceiling=Ceilings()).setup_device()
        untouched = precision.fp32_precision()
        GPUManager(GPUConfig(allow_tf32=True, cudnn_benchmark=True), set_ceiling=Ceilings()).setup_device()
        asked = precision.fp32_precision(), torch.backends.cudnn.benchmark
    finally:
        precision.set_fp32_precision(before[0])
        torch.backends.cudnn.benchmark = before[1]

    assert before[0] == untouched
    assert ("tf32", True) == asked


@pytest.mark.parametrize(
    ("name", "expected", "dtype"),
    [
        pytest.param("rtx-4070-laptop", True, torch.bfloat16, id="ada"),
        pytest.param("t4", True, torch.float16, id="turing-without-bf16"),
        pytest.param("v100", True, torch.float16, id="volta"),
        pytest.param("", False, torch.float32, id="a-processor-without-bf16"),
    ],
)
def test_mixed_precision(name: str, expected: bool, dtype: torch.dtype):
    """On where the hardware has a half of its own; emulation does not count."""
    default_device.configure(facts(name) if name else PLAIN)
    found = GPUManager()

    assert (expected, dtype) == (found.supports_amp(), found.get_amp_dtype())


def test_memory_of_a_card(at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch):
    at("h200")
    monkeypatch.setattr(manager.monitor, "memory", lambda facts, placement: DeviceMemory(8 * GIB, 141 * GIB))
    stats = AllocatorStats(allocated_bytes=2 * GIB, reserved_bytes=3 * GIB, peak_allocated_bytes=5 * GIB)
    found = GPUManager(allocator=lambda device: stats).get_memory_usage()

    assert (2.0, 3.0, 1.0, 5.0) == tuple(
        found[f"{name}_gb"] for name in ("allocated", "reserved", "cached", "peak_allocated")
    )
    assert (8.0, 133.0, 141.0) == (found["used_gb"], found["free_gb"], found["total_gb"])
    assert 2 * GIB == found["allocated_bytes"]
    assert {name.removesuffix("_gb") for name in found if name.endswith("_gb")} == {
        name.removesuffix("_bytes") for name in found if name.endswith("_bytes")
    }


def test_memory_of_the_asked_device(device: str):
    """On this machine the numbers are possible ones (--device cuda:0 asks a real card)."""
    found = GPUManager(GPUConfig(device=device)).get_memory_usage()

    assert 0 <= found["allocated_bytes"] <= found["total_bytes"]
    assert 0 < found["free_bytes"] < found["total_bytes"]
    assert 0 < found["used_ratio"] < 1


def test_model_on_the_device(device: str):
    """Weights move, their dtype stays, and training still works."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    model(torch.ones(1, 3, 8, 8))
    found = GPUManager(GPUConfig(device=device), set_ceiling=Ceilings()).optimize_model_for_gpu(model)
    found(torch.ones(2, 3, 8, 8, device=device)).sum().backward()

    assert found is model
    assert {(torch.device(device).type, torch.float32)} == {(one.device.type, one.dtype) for one in found.parameters()}
    assert all(one.grad is not None for one in found.parameters())
    assert found[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_model_with_checkpointing():
    """As the config says, also when it is said later."""
    default_device.configure(facts("no-gpu"))
    config = GPUConfig()
    found = GPUManager(config)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    found.optimize_model_for_gpu(model)
    before = ["forward" in vars(block) for block in model]
    config.enable_gradient_checkpointing = True
    found.optimize_model_for_gpu(model)

    assert ([False] * 3, [True] * 3) == (before, ["forward" in vars(block) for block in model])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param(GPUConfig(enable_distributed=True), "torchrun", id="no-process-group"),
        pytest.param(GPUConfig(enable_data_parallel=True), "two CUDA cards, but the manager has cpu", id="one-device"),
    ],
)
def test_parallel_where_it_cannot_be(at: Callable[[str], None], config: GPUConfig, message: str):
    """A wish that cannot be granted says what is missing."""
    at("no-gpu")

    with pytest.raises(DeviceUnavailable, match=message):
        GPUManager(config).optimize_model_for_gpu(nn.Linear(1, 1))


def test_data_parallel(at: Callable[[str], None]):
    at("ada-and-blackwell")
    found = GPUManager(GPUConfig(device_ids=[1, 0], enable_data_parallel=True), set_ceiling=Ceilings())
    wrapped = found.parallelize(nn.Linear(1, 1))

    assert isinstance(wrapped, nn.DataParallel)
    assert ["cuda:1", "cuda:0"] == [one.device for one in found.placements]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(GPUConfig(enable_distributed=True, memory_fraction=0.5), ["cuda:1"], id="its-own-of-all"),
        pytest.param(GPUConfig(enable_distributed=True, device_ids=[1, 0]), ["cuda:0"], id="its-own-of-these"),
    ],
)
def test_the_card_of_a_rank(
    at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, config: GPUConfig, expected: list[str]
):
    """The second of two processes that torchrun started; both would take the freest card otherwise."""
    at("ada-and-blackwell")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = GPUManager(config, set_ceiling=Ceilings())

    assert expected == [placement.device for placement in found.placements]
    assert all(placement.memory_bytes <= 0.5 * 48 * GIB for placement in found.placements if config.memory_fraction)


def test_every_card_gets_its_ceiling(at: Callable[[str], None]):
    at("ada-and-blackwell")
    ceilings = Ceilings()
    GPUManager(GPUConfig(device="cuda:all"), set_ceiling=ceilings).setup_device()

    assert {"cuda:0", "cuda:1"} == ceilings.set.keys()
    assert ceilings.set["cuda:1"] < ceilings.set["cuda:0"]


def test_distributed(at: Callable[[str], None]):
    """In a process group the model comes back wrapped, with the same gradients."""
    at("no-gpu")
    model = nn.Linear(2, 1)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = GPUManager(GPUConfig(enable_distributed=True)).optimize_model_for_gpu(model)
        wrapped(torch.ones(1, 2)).sum().backward()
        assert isinstance(wrapped, nn.parallel.DistributedDataParallel)
        del wrapped  # it holds the process group, whose end joins threads that need the interpreter's lock
    finally:
        torch.distributed.destroy_process_group()

    assert model.weight.grad is not None
    assert torch.equal(torch.ones(1, 2), model.weight.grad)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(GPUConfig(), LoaderSettings(), id="as-the-machine-has-it"),
        pytest.param(GPUConfig(num_workers=1), LoaderSettings(1, prefetch_factor=2), id="more-workers"),
        pytest.param(
            GPUConfig(num_workers=2, prefetch_factor=4, persistent_workers=True),
            LoaderSettings(2, False, 4, True),
            id="all-of-it",
        ),
        pytest.param(GPUConfig(pin_memory=True), LoaderSettings(), id="pinning-needs-a-card"),
    ],
)
def test_loader_of_a_small_machine(config: GPUConfig, expected: LoaderSettings):
    """DeviceRequest first, then the machine; what torch would refuse or warn of is left out."""
    default_device.configure(PLAIN)
    found = GPUManager(config).loader_settings()
    loader = torch.utils.data.DataLoader(
        [1, 2],
        num_workers=found.num_workers,
        pin_memory=found.pin_memory,
        prefetch_factor=found.prefetch_factor,
        persistent_workers=found.persistent_workers,
    )

    assert expected == found
    assert 2 == len(loader)


@pytest.mark.parametrize(("step", "expected"), [(None, True), (0, False), (99, False), (100, True)])
def test_empty_cache(at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, step: int | None, expected: bool):
    """At once without a step, and with steps at every ``empty_cache_interval``-th."""
    at("apple-m3")
    emptied: list[bool] = []
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: emptied.append(True))

    assert expected == GPUManager(GPUConfig(empty_cache_interval=100)).empty_cache(step)
    assert [True] * expected == emptied


def test_one_manager_a_process(at: Callable[[str], None]):
    """Made at the first call with its config; another config later is refused."""
    at("no-gpu")
    first = get_gpu_manager(GPUConfig(num_workers=1))

    assert first is get_gpu_manager() is get_gpu_manager(GPUConfig(num_workers=1))
    with pytest.raises(BadSettings, match="first call"):
        get_gpu_manager(GPUConfig(num_workers=2))
