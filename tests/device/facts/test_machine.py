"""What the machine has: one record put together from host, driver and torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pynvml
import pytest

from backend.device.facts.machine import DeviceType, probe
from backend.device.facts.simulated import MACHINES, SimulatedDriver, SimulatedTorch, facts, simulated
from backend.device.records import Card, Driver, Host, Platform, TorchBuild, TorchDevice
from tests.fake_nvml import Board, FakeNvml, error_codes, error_name

PC = MACHINES["ada-and-blackwell"]
ADA, BLACKWELL = PC.cards


def found_on(profile, visible=None, order=None):
    """What probe finds on a profile, CUDA_VISIBLE_DEVICES set there."""
    return probe(
        driver=SimulatedDriver(profile),
        torch_source=SimulatedTorch(profile, visible, order),
        visible=visible,
        order=order,
        host=profile.host,
    )


def test_probe_reads_the_host(tmp_path):
    """One record of the machine; looked for no GPU, so it says why there is none."""
    (tmp_path / "cpu.max").write_text("100000 100000")
    (tmp_path / "memory.max").write_text("1000000")

    found = probe(look_for_gpu=False, cgroup=tmp_path)

    assert (1, 1_000_000, (), DeviceType.CPU) == (found.cores, found.memory_bytes, found.gpus, found.gpu_type)
    assert "USE_GPU=false or DEVICE=cpu" in found.why_no_gpu
    assert found.cpu_name
    assert found.free_memory_bytes <= 1_000_000
    assert found.platform.system


@pytest.mark.parametrize("code", error_codes(), ids=error_name)
def test_a_driver_that_does_not_answer(monkeypatch, code):
    """Whatever NVML says: a reason, no exception, and nothing of torch is imported."""
    nvml = FakeNvml().install(monkeypatch)
    nvml.broken["nvmlInit"] = code
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    bare = Host(1, "cpu", (), 1, 1)

    found = probe(host=bare)

    assert ((), DeviceType.CPU) == (found.gpus, found.gpu_type)
    assert found.driver.fault
    assert f"no NVIDIA driver answers and this is not Apple silicon ({found.driver.fault})" == found.why_no_gpu


@pytest.mark.parametrize("function", [name for name in FakeNvml().functions() if "Event" not in name])
def test_any_error_of_any_question(monkeypatch, function):
    """A survey is a record, whichever question to the driver fails and however."""
    nvml = FakeNvml(Board(ADA.uuid, ADA.name, total=ADA.total_bytes, free=ADA.free_bytes)).install(monkeypatch)
    profile = replace(PC, cards=(ADA,), sensors=PC.sensors[:1])
    for code in error_codes():
        nvml.broken[function] = code

        found = probe(torch_source=SimulatedTorch(profile), host=profile.host)

        assert (found.gpu_type is DeviceType.CUDA) == bool(found.usable)
        assert bool(found.why_no_gpu) != bool(found.usable)
        assert not nvml.running or function == "nvmlShutdown"  # what we took hold of we let go of


def test_no_context_is_opened():
    """The survey asks torch for properties only: no kernel runs and no allocator wakes on any card."""
    machine = simulated("ada-and-blackwell")

    probe(driver=machine.driver_source, torch_source=machine.torch_source, host=machine.profile.host)

    assert machine.torch_source.asked == []


def test_a_source_that_was_handed_in_stays_open(monkeypatch):
    """On WSL2 every start of NVML leaks: the monitor's source is not let go of."""
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
        pytest.param("1,0", "PCI_BUS_ID", [BLACKWELL, ADA], id="turned-round"),
        pytest.param(ADA.uuid, None, [ADA], id="by-uuid"),
        pytest.param(f"{ADA.uuid},{BLACKWELL.uuid}", None, [ADA, BLACKWELL], id="both-by-uuid"),
        pytest.param(ADA.uuid[:12], None, [ADA], id="by-the-beginning-of-a-uuid"),
        pytest.param("-1", None, [], id="none"),
        pytest.param("", None, [], id="empty"),
    ],
)
@pytest.mark.parametrize("build", [PC.torch, TorchBuild("2.13.0+cpu")], ids=["cuda-build", "cpu-build"])
def test_visible_devices(build, visible, order, expected):
    """Each card keeps its own memory under its UUID however torch numbers it; hidden ones are not shown.

    The same holds with a build that sees none of them: what is hidden on purpose is no fault.
    """
    found = found_on(replace(PC, torch=build), visible, order)

    assert [card.uuid for card in expected] == [gpu.uuid for gpu in found.gpus]
    assert [card.free_bytes for card in expected] == [gpu.free_bytes for gpu in found.gpus]
    numbers = range(len(expected)) if build.cuda else [-1] * len(expected)
    assert list(numbers) == [gpu.index for gpu in found.gpus]
    assert all(bool(gpu.fault) != bool(build.cuda) for gpu in found.gpus)
    if not expected:
        assert found.why_no_gpu == "CUDA_VISIBLE_DEVICES hides every card of this machine (2)"


def test_the_same_card_after_a_restart():
    """NVML's order may change between starts; UUID and memory stay together."""
    turned = replace(PC, cards=(replace(BLACKWELL, pci_index=0), replace(ADA, pci_index=1)), sensors=PC.sensors[::-1])

    before = {gpu.uuid: gpu.free_bytes for gpu in found_on(PC).gpus}

    assert before == {gpu.uuid: gpu.free_bytes for gpu in found_on(turned).gpus}


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        pytest.param(None, [0, -1, -1, -1], id="the-first-slice"),
        pytest.param(MACHINES["h100-mig"].cards[2].uuid, [0], id="the-slice-that-was-asked-for"),
    ],
)
def test_slices(visible, indices):
    """A process computes on one slice; the others say how to get them."""
    found = facts("h100-mig", visible=visible)

    assert indices == [gpu.index for gpu in found.gpus]
    assert all(f"CUDA_VISIBLE_DEVICES={gpu.uuid}" in gpu.fault for gpu in found.gpus[1:])
    assert (visible or found.gpus[0].uuid) == found.gpus[0].uuid


class TorchWith(SimulatedTorch):
    """A torch that sees the given devices whatever the profile's cards are."""

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
def test_a_slice_is_found_by_what_torch_tells(uuid, bus):
    """CUDA versions differ in which UUID a slice has; size tells the slices of one card apart."""
    profile = MACHINES["h100-mig"]
    wanted = profile.cards[1]
    device = TorchDevice(0, wanted.name, uuid, wanted.total_bytes - 1, (9, 0), bus)

    found = probe(driver=SimulatedDriver(profile), torch_source=TorchWith(profile, device), host=profile.host)

    assert (wanted.uuid, "2g.20gb", "") == (found.gpus[0].uuid, found.gpus[0].mig, found.gpus[0].fault)


def test_cuda_without_nvml():
    """A container with the driver's compute share alone: torch's devices, nothing known of their free memory."""
    profile = replace(PC, driver=Driver(fault="no NVML"), cards=(), sensors=())
    host = replace(PC.host, gpu_nodes=("/dev/nvidiactl",))
    device = TorchDevice(0, "NVIDIA L4", "GPU-1", 22 << 30, (8, 9))

    found = probe(driver=SimulatedDriver(profile), torch_source=TorchWith(profile, device), host=host)

    (gpu,) = found.usable
    assert (0, "GPU-1", None, True) == (gpu.index, gpu.uuid, gpu.free_bytes, gpu.bf16)


def test_a_device_file_and_nothing_behind_it():
    """torch was asked, and both reasons are told."""
    profile = replace(MACHINES["no-gpu"], torch_says="CUDA unknown error")
    host = replace(profile.host, gpu_nodes=("/dev/nvidiactl",))

    found = probe(driver=SimulatedDriver(profile), torch_source=SimulatedTorch(profile), host=host)

    assert f"{profile.driver.fault}; CUDA unknown error" == found.why_no_gpu


def test_cuda_that_does_not_start():
    """Driver and build fit, yet torch sees nothing: its own complaint is the fault."""
    profile = replace(PC, torch_says="Error 802: system not yet initialized")

    found = probe(driver=SimulatedDriver(profile), torch_source=TorchWith(profile), host=profile.host)

    assert ["Error 802: system not yet initialized"] * 2 == [gpu.fault for gpu in found.gpus]
    assert "Error 802" in found.why_no_gpu


def test_one_of_two_cards_is_usable():
    """An old card beside a new one: the build has no code for it, and the machine still has a GPU."""
    volta = replace(MACHINES["v100"].cards[0], pci_index=1)
    profile = replace(PC, cards=(ADA, volta))

    found = found_on(profile, order="PCI_BUS_ID")

    assert [ADA.uuid] == [gpu.uuid for gpu in found.usable]
    assert "no kernels for sm_70 (Volta)" in found.gpus[1].fault
    assert ("", DeviceType.CUDA) == (found.why_no_gpu, found.gpu_type)


def test_a_dead_card_is_named():
    """A card that the driver cannot talk to is shown with its fault."""
    dead = Card("", "NVIDIA GPU 2", 2, fault="the driver lists this card but cannot talk to it: GPU is lost")
    profile = replace(PC, cards=(ADA, dead))

    found = probe(driver=SimulatedDriver(profile), torch_source=SimulatedTorch(replace(PC, cards=(ADA,))), host=PC.host)

    assert [(0, ""), (-1, dead.fault)] == [(gpu.index, gpu.fault) for gpu in found.gpus]


@pytest.mark.parametrize(("total", "free", "expected"), [(100, 90, 90), (100, 140, 100), (100, None, 70)])
def test_unified_memory(total, free, expected):
    """Free memory is the machine's where the driver has no number, and never more than torch may take."""
    card = Card("GPU-1", "NVIDIA GB10", 0, total_bytes=total, free_bytes=free, capability=(12, 1), unified=True)
    profile = replace(MACHINES["gb10"], cards=(card,))
    host = replace(profile.host, free_memory_bytes=70)

    found = probe(driver=SimulatedDriver(profile), torch_source=SimulatedTorch(profile), host=host)

    assert (expected, True) == (found.gpus[0].free_bytes, found.gpus[0].unified)


def test_apple_without_metal():
    """macOS in a virtual machine has no GPU for us, and says so instead of speaking of NVIDIA."""
    host = Host(4, "Apple M1 (Virtual)", (), 1, 1, Platform("Darwin", "arm64"))
    profile = replace(MACHINES["apple-m3"], mps=None, driver=Driver())

    found = probe(driver=SimulatedDriver(profile), torch_source=SimulatedTorch(profile), host=host)

    assert DeviceType.CPU is found.gpu_type
    assert "Metal" in found.why_no_gpu


def test_the_machine_of_this_run(device):
    """A real card is found, usable, and torch's under its number."""
    found = probe()

    assert bool(found.why_no_gpu) != bool(found.usable)
    if device.startswith("cuda"):
        gpu = next(gpu for gpu in found.usable if gpu.index == int(device.partition(":")[2] or 0))
        assert 0 < gpu.free_bytes <= gpu.total_bytes
        assert gpu.uuid.startswith(("GPU-", "MIG-"))


def test_a_cpu_service_never_imports_torch():
    """Two seconds and 300 MiB that a CPU does not need."""
    script = (
        "import sys; from backend.device.facts.machine import probe\n"
        "probe(look_for_gpu=False); print('torch' in sys.modules)"
    )

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout.strip() == "False"


def test_nothing_is_asked_when_no_gpu_is_wanted(monkeypatch):
    """USE_GPU=false does not even start NVML."""

    def started() -> None:
        pytest.fail("NVML was started")

    monkeypatch.setattr(pynvml, "nvmlInit", started)

    assert probe(look_for_gpu=False).gpus == ()
