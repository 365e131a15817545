"""The NVML source, with a fake NVML that fails in every way it can."""

import psutil
import pynvml
import pytest

from backend.device.facts.nvml import Nvml
from backend.device.records import CardSample, Driver, GPULost
from tests.fake_nvml import GIB, Board, FakeNvml, error_codes, error_name

L4, T4 = "GPU-11111111-0000-0000-0000-000000000000", "GPU-22222222-0000-0000-0000-000000000000"
SLICE = "MIG-33333333-0000-0000-0000-000000000000"
# Every card supports these; any other function may be missing on some card.
ESSENTIAL = {
    "nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID",
}  # fmt: skip
FATAL = [
    pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND,
]  # fmt: skip


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def nvml(monkeypatch):
    """Two healthy cards."""
    boards = (Board(L4), Board(T4, "Tesla T4", (7, 5), 15 * GIB, 14 * GIB, b"00000000:02:00.0"))
    return FakeNvml(*boards).install(monkeypatch)


@pytest.fixture
def mig(monkeypatch):
    """One card in two slices."""
    board = Board(L4, "NVIDIA H100 80GB HBM3", (9, 0), 80 * GIB, 79 * GIB, slices=[])
    for number, profile in enumerate(("3g.40gb", "1g.10gb")):
        uuid = SLICE[:-1] + str(number)
        mig_slice = Board(uuid, f"{board.name} MIG {profile}", (9, 0), 40 * GIB, 39 * GIB, parent=board)
        board.slices.append(mig_slice)
    return FakeNvml(board).install(monkeypatch)


def test_driver(nvml):
    """Version and newest CUDA; NVML is started once."""
    source = Nvml()

    assert Driver("580.95.05", (13, 2)) == source.driver()
    assert len(source.cards()) == 2
    assert nvml.calls["nvmlInit"] == 1


def test_cards(nvml):
    """Cards are in PCI order."""
    first, second = Nvml().cards()

    assert (L4, "NVIDIA L4", 0, (8, 9)) == (first.uuid, first.name, first.pci_index, first.capability)
    assert (24 * GIB, 20 * GIB, True, False) == (first.total_bytes, first.free_bytes, first.ecc, first.unified)
    assert (1, "00000000:02:00.0", "", "") == (second.pci_index, second.pci_bus_id, second.mig, second.driver_model)


def test_a_complete_sample(nvml):
    """In base units; being idle is no throttling."""
    sample = Nvml().sample(L4)

    expected = CardSample(
        used_bytes=4 * GIB,
        free_bytes=20 * GIB,
        total_bytes=24 * GIB,
        utilization_ratio=0.73,
        bandwidth_ratio=pytest.approx(0.41),
        temperature_celsius=61.0,
        power_watts=pytest.approx(68.9),
        power_limit_watts=72.0,
        energy_joules=pytest.approx(5000.5),
        clocks_hz=(
            ("graphics", 1_000_000_000),
            ("sm", 1_001_000_000),
            ("memory", 1_002_000_000),
            ("video", 1_003_000_000),
        ),
        throttle=("sw_thermal_slowdown",),
        ecc_errors=2,
        pcie_replays=4,
        xid_errors=(),
        processes=(),
    )
    assert expected == sample


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION], ids=error_name)
@pytest.mark.parametrize("function", [name for name in FakeNvml().functions() if name not in ESSENTIAL])
def test_one_unsupported_function(nvml, function, code):
    """Only the fields of that function are None."""
    complete = Nvml().sample(L4)
    nvml.broken[function] = code
    source = Nvml()

    assert [L4, T4] == [card.uuid for card in source.cards()]
    sample = source.sample(L4)
    missing = [name for name in CardSample.__slots__ if getattr(sample, name) != getattr(complete, name)]
    fields = {"nvmlDeviceGetMemoryInfo": 3, "nvmlDeviceGetUtilizationRates": 2}  # that fill several fields
    assert len(missing) <= fields.get(function, 1)


@pytest.mark.parametrize("code", error_codes(), ids=error_name)
def test_any_error_of_any_sensor(nvml, code):
    """``sample`` returns a record or raises GPULost, and the next sample is complete again."""
    source = Nvml()
    complete = source.sample(L4)
    sensors = [name for name in nvml.functions() if name not in ESSENTIAL and name != "nvmlDeviceGetMemoryInfo"]
    nvml.broken = dict.fromkeys(sensors, code)
    try:
        sample = source.sample(L4)
    except GPULost:
        assert code in {*FATAL, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
    else:
        assert (20 * GIB, None, None) == (sample.free_bytes, sample.power_watts, sample.processes)
    nvml.broken.clear()

    assert complete == source.sample(L4)


@pytest.mark.parametrize("code", [*FATAL, pynvml.NVML_ERROR_UNKNOWN], ids=error_name)
def test_a_card_that_stays_lost(nvml, code):
    """NVML is restarted at most once in ``retry_s``; when the card is back, samples are complete again."""
    clock = Clock()
    source = Nvml(clock=clock, retry_s=30.0)
    source.sample(L4)
    nvml.broken["nvmlDeviceGetMemoryInfo"] = code

    for now_s, starts in ((1.0, 2), (2.0, 2), (30.0, 2), (31.0, 3), (32.0, 3)):
        clock.now_s = now_s
        with pytest.raises(GPULost):
            source.sample(L4)
        assert starts == nvml.calls["nvmlInit"]
    nvml.broken.clear()
    assert source.sample(L4).free_bytes == 20 * GIB


def test_a_driver_that_was_reset(nvml):
    """After `systemctl daemon-reload` on a container's host one restart of NVML repairs it."""
    source = Nvml()
    source.sample(L4)
    nvml.running = False  # every function raises "uninitialized"

    assert source.sample(L4).free_bytes == 20 * GIB
    assert nvml.calls["nvmlInit"] == 2


def test_a_driver_that_never_starts(nvml):
    """On WSL2 each start leaks, so the start is retried once in ``retry_s``."""
    clock = Clock()
    source = Nvml(clock=clock, retry_s=30.0)
    nvml.broken["nvmlInit"] = pynvml.NVML_ERROR_UNKNOWN
    for _ in range(5):
        with pytest.raises(GPULost, match="restart the container"):
            source.sample(L4)

    assert nvml.calls["nvmlInit"] == 1
    clock.now_s = 31.0
    nvml.broken.clear()
    assert source.sample(L4).free_bytes == 20 * GIB


def test_an_unknown_uuid(nvml):
    with pytest.raises(GPULost, match="lists no card GPU-0"):
        Nvml().sample("GPU-0")


def test_one_lost_card_of_two(nvml, monkeypatch):
    """It is listed with its fault; the other one is complete."""
    real = pynvml.nvmlDeviceGetHandleByIndex

    def first_is_lost(index: int) -> Board:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return real(index)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", first_is_lost)

    lost, working = Nvml().cards()

    assert "cannot talk to it: GPU is lost" in lost.fault
    assert (T4, "") == (working.uuid, working.fault)


def test_slices(mig):
    """A card in MIG mode is listed as its slices, each with its profile and card."""
    big, small = Nvml().cards()

    assert ("3g.40gb", "1g.10gb") == (big.mig, small.mig)
    assert (L4, (9, 0), 40 * GIB, 0) == (big.parent_uuid, big.capability, big.total_bytes, big.pci_index)


def test_mig_without_slices(mig):
    """The card is unusable; its fault says what to do."""
    mig.boards[0].slices = []

    (card,) = Nvml().cards()

    assert (L4, "") == (card.uuid, card.mig)
    assert "nvidia-smi mig" in card.fault


def test_unified_memory(nvml):
    """A card without memory of its own (GB10) reports the machine's."""
    nvml.broken["nvmlDeviceGetMemoryInfo"] = pynvml.NVML_ERROR_NOT_SUPPORTED

    card = Nvml().cards()[0]

    assert card.unified
    assert psutil.virtual_memory().total == card.total_bytes
    assert Nvml().sample(L4).total_bytes == card.total_bytes


@pytest.mark.parametrize(("number", "model"), [(0, "WDDM"), (1, "TCC"), (2, "MCDM")])
@pytest.mark.parametrize("function", ["nvmlDeviceGetDriverModel_v2", "nvmlDeviceGetDriverModel_v1"])
def test_driver_model(nvml, monkeypatch, function, number, model):
    """Windows has three; older drivers only have the first version of the function."""
    monkeypatch.setattr(pynvml, function, lambda device: [number, number])

    assert model == Nvml().cards()[0].driver_model


def test_older_drivers(nvml):
    """Before 535 the throttle reasons had another name, and the process lists another version."""
    nvml.boards[0].compute = [(7, 3 * GIB)]
    for function in (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
    ):
        nvml.broken[function] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND

    sample = Nvml().sample(L4)

    assert (("sw_power_cap",), ((7, "", 3 * GIB),)) == (sample.throttle, sample.processes)


def test_processes(nvml):
    """Largest first, one entry per process, names without folder and arguments."""
    nvml.boards[0].compute = [(10, GIB), (11, 9 * GIB), (12, None)]
    nvml.boards[0].graphics = [(10, GIB), (13, None)]
    nvml.names = {
        10: "/usr/bin/python3 train.py",
        11: "/usr/lib/xorg/Xorg",
        12: "C:\\Program Files\\NVIDIA\\NVIDIA Share.exe",
    }

    expected = ((11, "Xorg", 9 * GIB), (10, "python3", GIB), (12, "NVIDIA Share.exe", None), (13, "", None))
    assert expected == Nvml().processes(L4)


def test_xid_errors(nvml):
    """Counted per card and number since the first sample, across restarts of NVML."""
    source = Nvml()
    source.sample(L4)
    source.sample(T4)
    nvml.events = [(nvml.boards[0], 31), (nvml.boards[0], 31), (nvml.boards[1], 79)]

    assert ((31, 2),) == source.sample(L4).xid_errors
    assert ((79, 1),) == source.sample(T4).xid_errors
    nvml.running = False
    assert ((31, 2),) == source.sample(L4).xid_errors


def test_an_xid_of_a_card_without_uuid(nvml):
    """A card that fell off the bus (Xid 79) has no UUID any more."""
    source = Nvml()
    source.sample(L4)
    nvml.events = [(nvml.boards[0], 79)]
    nvml.broken["nvmlDeviceGetUUID"] = pynvml.NVML_ERROR_UNKNOWN

    assert ((79, 1),) == source.sample(L4).xid_errors


@pytest.mark.parametrize(
    "function", ["nvmlDeviceRegisterEvents", "nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes"]
)
def test_a_platform_without_events(nvml, function):
    """Windows, WSL2 and users without permission get None, not zero."""
    nvml.broken[function] = pynvml.NVML_ERROR_NOT_SUPPORTED

    assert Nvml().sample(L4).xid_errors is None
