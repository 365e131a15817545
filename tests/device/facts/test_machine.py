"""``probe``: one record of host, driver and torch."""

import sys
from dataclasses import replace

import pynvml
import pytest

from backend.device.facts.machine import probe
from backend.device.facts.simulated import MACHINES, SimulatedDriver, SimulatedTorch
from backend.device.records import Card, DeviceType, Driver, MachineFacts, Platform, TorchBuild, TorchDevice
from tests.fake_nvml import Board, FakeNvml, error_codes, error_name

PC = MACHINES["ada-and-blackwell"]
ADA, BLACKWELL = PC.cards


def probe_on(profile, visible=None, order=None):
    """Probe a profile with these CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."""
    return probe(
        driver=SimulatedDriver(profile),
        torch_source=SimulatedTorch(profile, visible, order),
        visible=visible,
        order=order,
        host=profile.host,
    )


def test_probe_reads_the_host(tmp_path, monkeypatch):
    """Without ``look_for_gpu`` the record says why there is no GPU, and NVML is not started."""
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pytest.fail("NVML was started"))
    (tmp_path / "cpu.max").write_text("100000 100000")
    (tmp_path / "memory.max").write_text("1000000")

    machine = probe(look_for_gpu=False, cgroup=tmp_path)

    assert (1, 1_000_000, (), DeviceType.CPU) == (machine.cores, machine.memory_bytes, machine.gpus, machine.gpu_type)
    assert "USE_GPU=false or DEVICE=cpu" in machine.why_no_gpu
    assert machine.cpu_name
    assert machine.free_memory_bytes <= 1_000_000
    assert machine.platform.system


@pytest.mark.parametrize("code", error_codes(), ids=error_name)
def test_a_driver_that_does_not_answer(monkeypatch, code):
    """Whatever the error: a reason, no exception, and torch is not imported."""
    nvml = FakeNvml().install(monkeypatch)
    nvml.broken["nvmlInit"] = code
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    host = MachineFacts(1, "cpu", (), 1, free_memory_bytes=1)

    machine = probe(host=host)

    assert ((), DeviceType.CPU) == (machine.gpus, machine.gpu_type)
    assert machine.driver.fault
    assert f"no NVIDIA driver answers and this is not Apple silicon ({machine.driver.fault})" == machine.why_no_gpu


@pytest.mark.parametrize("function", [name for name in FakeNvml().functions() if "Event" not in name])
def test_any_error_of_any_function(monkeypatch, function):
    """``probe`` returns a record, whichever NVML function fails and however."""
    nvml = FakeNvml(Board(ADA.uuid, ADA.name, total=ADA.total_bytes, free=ADA.free_bytes)).install(monkeypatch)
    profile = replace(PC, cards=(ADA,), sensors=PC.sensors[:1])
    for code in error_codes():
        nvml.broken[function] = code

        machine = probe(torch_source=SimulatedTorch(profile), host=profile.host)

        assert (machine.gpu_type is DeviceType.CUDA) == bool(machine.usable)
        assert bool(machine.why_no_gpu) != bool(machine.usable)
        assert not nvml.running or function == "nvmlShutdown"  # NVML is shut down again


def test_a_given_source_stays_open(monkeypatch):
    """On WSL2 every start of NVML leaks, so a monitor's source is not closed."""
    closed = []
    driver = SimulatedDriver(PC)
    monkeypatch.setattr(driver, "close", lambda: closed.append(True))

    probe(driver=driver, torch_source=SimulatedTorch(PC), host=PC.host)

    assert closed == []


@pytest.mark.parametrize(
    ("visible", "order", "expected"),
    [
        pytest.param(None, None, [BLACKWELL, ADA], id="fastest-first"),
        pytest.param(None, "PCI_BUS_ID", [ADA, BLACKWELL], id="by-bus"),
        pytest.param("1", "PCI_BUS_ID", [BLACKWELL], id="the-second-by-bus"),
        pytest.param("1", None, [ADA], id="the-second-by-speed"),
        pytest.param("1,0", "PCI_BUS_ID", [BLACKWELL, ADA], id="reversed"),
        pytest.param(ADA.uuid, None, [ADA], id="by-uuid"),
        pytest.param(f"{ADA.uuid},{BLACKWELL.uuid}", None, [ADA, BLACKWELL], id="both-by-uuid"),
        pytest.param(ADA.uuid[:12], None, [ADA], id="by-the-beginning-of-a-uuid"),
        pytest.param("-1", None, [], id="none"),
        pytest.param("", None, [], id="empty"),
    ],
)
@pytest.mark.parametrize("build", [PC.torch, TorchBuild("2.13.0+cpu")], ids=["cuda-build", "cpu-build"])
def test_visible_devices(build, visible, order, expected):
    """Memory belongs to the UUID, however torch numbers the cards; hidden cards are not listed, with any build."""
    machine = probe_on(replace(PC, torch=build), visible, order)

    assert [card.uuid for card in expected] == [gpu.uuid for gpu in machine.gpus]
    assert [card.free_bytes for card in expected] == [gpu.free_bytes for gpu in machine.gpus]
    numbers = range(len(expected)) if build.cuda else [-1] * len(expected)
    assert list(numbers) == [gpu.index for gpu in machine.gpus]
    assert all(bool(gpu.fault) != bool(build.cuda) for gpu in machine.gpus)
    if not expected:
        assert machine.why_no_gpu == "CUDA_VISIBLE_DEVICES hides every card of this machine (2)"


class TorchWith(SimulatedTorch):
    """A torch that sees the given devices instead of the profile's cards."""

    def __init__(self, profile, *devices):
        super().__init__(profile)
        self._devices = devices

    def devices(self):
        return self._devices


@pytest.mark.parametrize(
    ("uuid", "bus"),
    [
        pytest.param(f"GPU-{MACHINES['h100-mig'].cards[1].uuid[4:]}", "", id="its-own-uuid"),
        pytest.param(MACHINES["h100-mig"].cards[1].parent_uuid, "", id="its-card's-uuid-and-its-size"),
        pytest.param("", "00000000:00:09.0", id="no-uuid-but-the-bus-and-its-size"),
    ],
)
def test_matching_a_slice(uuid, bus):
    """CUDA versions differ in which UUID a slice has; the size distinguishes the slices of one card."""
    profile = MACHINES["h100-mig"]
    wanted = profile.cards[1]
    device = TorchDevice(0, wanted.name, uuid, wanted.total_bytes - 1, (9, 0), bus)

    machine = probe(driver=SimulatedDriver(profile), torch_source=TorchWith(profile, device), host=profile.host)

    assert (wanted.uuid, "2g.20gb", "") == (machine.gpus[0].uuid, machine.gpus[0].mig, machine.gpus[0].fault)


def test_cuda_without_nvml():
    """A container without the driver's "utility" capability: torch's devices, with unknown free memory."""
    profile = replace(PC, driver=Driver(fault="no NVML"), cards=(), sensors=())
    host = replace(PC.host, gpu_nodes=("/dev/nvidiactl",))
    device = TorchDevice(0, "NVIDIA L4", "GPU-1", 22 << 30, (8, 9))

    machine = probe(driver=SimulatedDriver(profile), torch_source=TorchWith(profile, device), host=host)

    (gpu,) = machine.usable
    assert (0, "GPU-1", None, True) == (gpu.index, gpu.uuid, gpu.free_bytes, gpu.bf16)


def test_a_device_file_without_a_device():
    """Both the driver's and torch's fault are reported."""
    profile = replace(MACHINES["no-gpu"], torch_fault="CUDA unknown error")
    host = replace(profile.host, gpu_nodes=("/dev/nvidiactl",))

    machine = probe(driver=SimulatedDriver(profile), torch_source=SimulatedTorch(profile), host=host)

    assert f"{profile.driver.fault}; CUDA unknown error" == machine.why_no_gpu


def test_cuda_that_does_not_start():
    """Driver and build match, but torch sees no device: its error is the fault."""
    profile = replace(PC, torch_fault="Error 802: system not yet initialized")

    machine = probe(driver=SimulatedDriver(profile), torch_source=TorchWith(profile), host=profile.host)

    assert ["Error 802: system not yet initialized"] * 2 == [gpu.fault for gpu in machine.gpus]
    assert "Error 802" in machine.why_no_gpu


def test_one_of_two_cards_is_usable():
    """The build has no kernels for the older card; the newer one is usable."""
    volta = replace(MACHINES["v100"].cards[0], pci_index=1)
    profile = replace(PC, cards=(ADA, volta))

    machine = probe_on(profile, order="PCI_BUS_ID")

    assert [ADA.uuid] == [gpu.uuid for gpu in machine.usable]
    assert "no kernels for sm_70 (Volta)" in machine.gpus[1].fault
    assert ("", DeviceType.CUDA) == (machine.why_no_gpu, machine.gpu_type)


@pytest.mark.parametrize(("total", "free", "expected"), [(100, 90, 90), (100, 140, 100), (100, None, 70)])
def test_unified_memory(total, free, expected):
    """Free memory is the machine's if the driver reports none, and never more than torch's total."""
    card = Card("GPU-1", "NVIDIA GB10", 0, total_bytes=total, free_bytes=free, capability=(12, 1), unified=True)
    profile = replace(MACHINES["gb10"], cards=(card,))
    host = replace(profile.host, free_memory_bytes=70)

    machine = probe(driver=SimulatedDriver(profile), torch_source=SimulatedTorch(profile), host=host)

    assert (expected, True) == (machine.gpus[0].free_bytes, machine.gpus[0].unified)


def test_apple_without_metal():
    """macOS in a virtual machine has no usable GPU; the reason names Metal, not NVIDIA."""
    host = MachineFacts(4, "Apple M1 (Virtual)", (), 1, platform=Platform("Darwin", "arm64"), free_memory_bytes=1)
    profile = replace(MACHINES["apple-m3"], mps=None, driver=Driver())

    machine = probe(driver=SimulatedDriver(profile), torch_source=SimulatedTorch(profile), host=host)

    assert DeviceType.CPU is machine.gpu_type
    assert "Metal" in machine.why_no_gpu
