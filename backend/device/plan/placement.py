"""PURE: facts and wishes in, one Placement a device with its reasons out."""

from __future__ import annotations

from dataclasses import dataclass

from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import Selected, Wishes, choose, device_string, gib, wants_gpu
from backend.device.plan.precision import DtypeChoice, common, dtypes_for
from backend.device.records import DeviceType, GPUInfo, MachineFacts
from backend.errors import BadSettings

__all__ = [
    "Ceiling",
    "LoaderSettings",
    "Placement",
    "Wishes",
    "card_of",
    "ceiling",
    "loader_settings",
    "place",
    "place_all",
    "suggested_workers",
    "wants_gpu",
    "workers_for",
]

_OF_FREE_RATIO = 0.9  # of what is free at the start: vLLM's and GLiNER's share, research/gpu_training.md §6
_CONTEXT_BYTES = 500 * 10**6  # of one process on a card, before any tensor: 300 to 500 MB (pytorch#107667, #20532)
_WINDOWS_BYTES = 700 * 10**6  # that the desktop takes back at any time; ComfyUI keeps 600 to 700 MB
_WSL_RATIO, _WSL_BYTES = 0.8, 2 * 2**30  # WSL2 spills or crashes before the card is full (WSL#41176, #40732)
_HOST_BYTES = 2**30  # what the service itself may hold of a memory it shares with the GPU (DESIGN §15)
_LEAST_BYTES = 256 * 2**20  # on a card that others fill: the attempt then fails with torch's own numbers
# The larger of our embedding models, paraphrase-multilingual-mpnet-base-v2: 278 million parameters in float32, and
# 32768 padded tokens at 33 KiB (twice the 16.5 KiB measured for a model half as wide, research §9.2).
_WEIGHTS_BYTES, _PEAK_BYTES = 1_112_000_000, 32768 * 33 * 2**10
_LOADERS = 8  # of one device; documents 001 and 002 stop there
_SHM_OF_A_LOADER_BYTES = (
    128 * 2**20
)  # three batches of 64 images of 3x224x224 float32; Docker's whole default is 64 MiB


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """How a torch DataLoader should feed this device; for training."""

    num_workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None  # None without workers: torch refuses it
    persistent_workers: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the models run."""

    device: str  # torch device string: "cuda:0", "mps" or "cpu"
    lanes: int  # threads that run batches
    threads: int  # arithmetic threads of one lane
    depth: int  # batches a lane holds at once: 2 where the host can prepare while the device works
    why: tuple[str, ...]  # one sentence a decision; logged at start, shown by GET /v1/system
    uuid: str = ""  # of the card; "" on CPU and MPS
    dtypes: tuple[str, ...] = ("fp32",)  # worth trying here, best first: "bf16", "fp16", "fp32"
    memory_bytes: int = 0  # ceiling for this process on the device
    workers: int = 1  # processes of this service that the device has memory for
    loader: LoaderSettings = LoaderSettings()

    @property
    def type(self) -> DeviceType:
        """The kind of the device."""
        return DeviceType(self.device.partition(":")[0])


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How much of the device this process may take."""

    bytes: int
    why: str  # one sentence


def place(facts: MachineFacts, wishes: Wishes, saved: SavedChoice | None = None) -> Placement:
    """The first of ``place_all``: where one device is enough."""
    return place_all(facts, wishes, saved)[0]


def place_all(facts: MachineFacts, wishes: Wishes, saved: SavedChoice | None = None) -> tuple[Placement, ...]:
    """One placement a device, in the order asked for; all with the same dtypes, so that vectors agree.

    Raises: DeviceUnavailable when an explicit wish cannot be granted (``auto`` falls back and says so);
    BadSettings for a GPU_MEMORY_FRACTION that is no share.
    """
    fraction = wishes.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        raise BadSettings([f"GPU_MEMORY_FRACTION={fraction:g}: must be above 0 and at most 1, for example 0.5"])
    selected = choose(facts, wishes, saved)
    if not selected.devices:
        return (_on_cpu(facts, wishes, selected),)
    dtypes = common([dtypes_for(gpu) for gpu in selected.devices])
    return tuple(_on_gpu(facts, wishes, selected, gpu, dtypes) for gpu in selected.devices)


def ceiling(facts: MachineFacts, gpu: GPUInfo, fraction: float | None = None) -> Ceiling:
    """What this process may allocate on the card without hurting itself or its neighbours.

    Args:
        fraction: GPU_MEMORY_FRACTION, of the whole card as torch counts it; None takes 90 % of what is free.
    """
    total, free = _memory(facts, gpu)
    if fraction is None:
        bounds = [
            (
                max(_LEAST_BYTES, int(_OF_FREE_RATIO * free)),
                f"{_OF_FREE_RATIO:.0%} of the {gib(free)} free at the start",
            )
        ]
    else:
        bounds = [(max(1, int(fraction * total)), f"GPU_MEMORY_FRACTION={fraction:g} of {gib(total)}")]
    reserve, holder = _reserve(facts, gpu)
    left = f"{gib(free)} of {gib(total)} were free at the start, less {gib(reserve)} for {holder}"
    bounds.append((max(_LEAST_BYTES, free - reserve), left))
    if facts.platform.wsl:
        bounds.append((int(_WSL_RATIO * total), f"{_WSL_RATIO:.0%} of {gib(total)}, all that WSL2 keeps resident"))
    most, why = min(bounds)
    return Ceiling(most, f"at most {gib(most)} on the device: {why}")


def card_of(facts: MachineFacts, placement: Placement) -> GPUInfo | None:
    """The accelerator that ``placement`` names; None for the CPU."""
    if placement.type is DeviceType.CPU:
        return None
    index = int(placement.device.partition(":")[2] or 0)
    return next((gpu for gpu in facts.gpus if gpu.index == index), None)


def suggested_workers(
    free_bytes: int,
    weights_bytes: int,
    peak_bytes: int,
    context_bytes: int = _CONTEXT_BYTES,
    *,
    fraction: float = _OF_FREE_RATIO,
    reserve_bytes: int = 0,
) -> int:
    """Processes that fit into a device's free memory, each with its own context, weights and largest batch."""
    one = max(1, context_bytes + weights_bytes + peak_bytes)
    return max(1, int(free_bytes * fraction - reserve_bytes) // one)


def workers_for(most: Ceiling) -> int:
    """Processes with the larger of our embedding models that fit under the ceiling."""
    return suggested_workers(most.bytes, _WEIGHTS_BYTES, _PEAK_BYTES, fraction=1.0)


def loader_settings(facts: MachineFacts, kind: DeviceType, *, devices: int = 1) -> tuple[LoaderSettings, str]:
    """How to feed one of ``devices`` devices in training, and why."""
    where = facts.platform
    if kind is DeviceType.CPU:
        workers, why = facts.cores // 4, f"a quarter of {facts.cores} cores, the others compute"
    else:
        shared = f", shared by {devices} devices" if devices > 1 else ""
        workers, why = (facts.cores - 1) // devices, f"{facts.cores} cores, one kept back{shared}"
    if workers > _LOADERS:
        workers, why = _LOADERS, f"{_LOADERS} are enough for one device"
    room = None if where.shm_bytes is None else where.shm_bytes // _SHM_OF_A_LOADER_BYTES // devices
    if room is not None and workers > room:  # a worker that fills it dies of a bus error (pytorch#5040)
        workers, why = room, f"only {gib(where.shm_bytes or 0)} in /dev/shm; docker run --shm-size=2g gives more"
    unified = any(gpu.unified for gpu in facts.usable)
    pinned = kind is DeviceType.CUDA and not where.wsl and not unified  # WSL2's limit is low (WSL#8447)
    settings = LoaderSettings(
        num_workers=workers,
        pin_memory=pinned,
        prefetch_factor=2 if workers else None,  # torch's own; batches in flight are workers x this
        # Kept where each epoch would import torch anew (spawn); elsewhere they only grow (pytorch#62066).
        persistent_workers=workers > 0 and where.system in ("Windows", "Darwin"),
    )
    memory = "pinned memory" if pinned else "no pinned memory"
    return settings, f"training loads data with {workers} worker(s) ({why}), {memory}"


def _on_cpu(facts: MachineFacts, wishes: Wishes, selected: Selected) -> Placement:
    lanes = wishes.lanes or facts.cores
    threads = max(1, facts.cores // lanes)
    why = f"LANES={lanes}" if wishes.lanes else f"one lane for each of {facts.cores} usable cores"
    dtypes = dtypes_for(None, facts.cpu_flags)
    loader, loader_why = loader_settings(facts, DeviceType.CPU)
    free = facts.memory_bytes if facts.free_memory_bytes is None else facts.free_memory_bytes
    # A preempted OpenMP thread stalls its team: one wide lane is 1.5 to 1.8 times slower (DESIGN §5).
    return Placement(
        "cpu",
        lanes,
        threads,
        1,
        (selected.why, f"{why}, {threads} thread(s) each", dtypes.why, loader_why, *selected.notes),
        dtypes=dtypes.dtypes,
        memory_bytes=int(_OF_FREE_RATIO * free),
        loader=loader,
    )


def _on_gpu(facts: MachineFacts, wishes: Wishes, selected: Selected, gpu: GPUInfo, dtypes: DtypeChoice) -> Placement:
    lanes = wishes.lanes or 1
    lanes_why = f"LANES={lanes}" if wishes.lanes else "one lane"
    most = ceiling(facts, gpu, wishes.memory_fraction)
    workers = workers_for(most)
    loader, loader_why = loader_settings(facts, facts.gpu_type, devices=len(selected.devices))
    return Placement(
        device_string(facts, gpu),
        lanes,
        1,
        2,
        (
            selected.why,
            f"{lanes_why}: the device runs one batch while the next is prepared",
            dtypes.why,
            most.why,
            f"memory for {workers} process(es) with a large model; one with its own batches is the fastest",
            loader_why,
            *selected.notes,
        ),
        uuid=gpu.uuid,
        dtypes=dtypes.dtypes,
        memory_bytes=most.bytes,
        workers=workers,
        loader=loader,
    )


def _memory(facts: MachineFacts, gpu: GPUInfo) -> tuple[int, int]:
    """Total and free bytes; a unified memory is the machine's, so the cgroup bounds it too."""
    if not gpu.unified:
        return gpu.total_bytes, gpu.total_bytes if gpu.free_bytes is None else min(gpu.free_bytes, gpu.total_bytes)
    total = min(gpu.total_bytes, facts.memory_bytes)
    told = [free for free in (gpu.free_bytes, facts.free_memory_bytes) if free is not None]
    return total, min([total, *told])


def _reserve(facts: MachineFacts, gpu: GPUInfo) -> tuple[int, str]:
    if facts.platform.wsl:
        return _WSL_BYTES, "WSL2"
    if gpu.driver_model == "WDDM":
        return _WINDOWS_BYTES, "Windows and its desktop"
    if gpu.unified:
        return _HOST_BYTES, "the service itself, which shares this memory"
    return _CONTEXT_BYTES, "the CUDA context"
