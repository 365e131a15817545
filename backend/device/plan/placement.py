"""PURE: decides for each selected device how many lanes, dtypes, bytes and workers it gets, with the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import DeviceRequest, Selection, choose, device_string, gib
from backend.device.plan.precision import DtypeChoice, common, dtypes_for
from backend.device.records import DeviceType, GPUInfo, MachineFacts, TorchBuild
from backend.errors import BadSettings

_FREE_MEMORY_RATIO = 0.9  # of what is free at the start, as vLLM's gpu_memory_utilization
_CONTEXT_BYTES = 500 * 10**6  # of one process on a card, before any tensor: 300 to 500 MB (pytorch#107667, #20532)
_WINDOWS_BYTES = 700 * 10**6  # that the desktop takes back at any time; ComfyUI keeps 600 to 700 MB
_WSL_RATIO, _WSL_BYTES = 0.8, 2 * 2**30  # WSL2 spills or crashes before the card is full (WSL#41176, #40732)
_HOST_BYTES = 2**30  # what the service itself may need of a memory that it shares with the GPU
_LIMIT_MIN_BYTES = 256 * 2**20  # on a card that others fill: loading then fails with torch's own figures
# The larger of our embedding models, paraphrase-multilingual-mpnet-base-v2: 278 million parameters in float32, and
# 32768 padded tokens at 33 KiB (twice the 16.5 KiB measured for a model half as wide).
_WEIGHTS_BYTES, _PEAK_BYTES = 1_112_000_000, 32768 * 33 * 2**10
_LOADER_WORKERS_MAX = 8  # for one device, the usual limit of training guides
_VECTORS_RATIO = 0.125  # of a card's memory for vectors of search: 2 GiB of 16 GiB hold 2.8 million of width 384
_SHM_PER_LOADER_WORKER_BYTES = 128 * 2**20  # three batches of 64 images of 3x224x224 float32


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """Arguments of a torch DataLoader for this device; for training."""

    num_workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None  # None without workers: torch refuses it
    persistent_workers: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """One device on which models run, and how."""

    device: str  # torch device string: "cuda:0", "mps" or "cpu"
    lanes: int  # threads that run batches
    threads: int  # arithmetic threads of one lane
    depth: int  # batches in progress per lane: 2 where the host can prepare one while the device runs the other
    why: tuple[str, ...]  # one sentence per decision; logged at start, shown by GET /v1/system
    uuid: str = ""  # of the card; "" on CPU and MPS
    dtypes: tuple[str, ...] = ("fp32",)  # worth trying here, best first: "bf16", "fp16", "fp32"
    memory_bytes: int = 0  # limit of this process's models on the device
    vector_bytes: int = 0  # for vectors of search, beside it
    workers: int = 1  # processes of this service that fit into the device's memory
    loader: LoaderSettings = LoaderSettings()

    @property
    def type(self) -> DeviceType:
        """CUDA, MPS or CPU."""
        return DeviceType(self.device.partition(":")[0])

    @property
    def process_bytes(self) -> int:
        """Limit of this process on the device, models and vectors together."""
        return self.memory_bytes + self.vector_bytes


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much of the device's memory this process may take."""

    bytes: int
    why: str  # one sentence


def place(facts: MachineFacts, request: DeviceRequest, saved: SavedChoice | None = None) -> Placement:
    """The first of ``place_all``, for callers that use one device."""
    return place_all(facts, request, saved)[0]


def place_all(facts: MachineFacts, request: DeviceRequest, saved: SavedChoice | None = None) -> tuple[Placement, ...]:
    """One placement per device, in the requested order; all with the same dtypes, so that vectors agree.

    Raises: DeviceUnavailable when an explicit request cannot be met (``auto`` falls back to the CPU with the reason);
    BadSettings when GPU_MEMORY_FRACTION is out of range.
    """
    fraction = request.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        raise BadSettings([f"GPU_MEMORY_FRACTION={fraction:g}: must be above 0 and at most 1, for example 0.5"])
    selection = choose(facts, request, saved)
    if not selection.devices:
        return (_on_cpu(facts, request, selection),)
    dtypes = common([dtypes_for(gpu) for gpu in selection.devices])
    return tuple(_on_gpu(facts, request, selection, gpu, dtypes) for gpu in selection.devices)


def with_vectors(placement: Placement, wanted_bytes: int) -> Placement:
    """The placement with a part of its memory kept for vectors of search; unchanged on a CPU, and for 0.

    The part is taken from the limit before models are loaded and measured, so that no vector takes what they were
    promised.
    """
    if placement.type is DeviceType.CPU or not wanted_bytes:
        return placement
    vector_bytes = min(wanted_bytes, int(_VECTORS_RATIO * placement.memory_bytes))
    why = f"{gib(vector_bytes)} of it for vectors of search (SEARCH_MEMORY_BYTES, at most {_VECTORS_RATIO:.1%} of it)"
    return replace(
        placement,
        memory_bytes=placement.memory_bytes - vector_bytes,
        vector_bytes=vector_bytes,
        why=(*placement.why, why),
    )


def memory_limit(facts: MachineFacts, gpu: GPUInfo, fraction: float | None = None) -> MemoryLimit:
    """How much this process may allocate on the card without starving itself, the system or other processes.

    Args:
        fraction: GPU_MEMORY_FRACTION, of the whole card as torch counts it; None takes 90 % of what is free.
    """
    total, free = _memory(facts, gpu)
    if fraction is None:
        share = max(_LIMIT_MIN_BYTES, int(_FREE_MEMORY_RATIO * free))
        bounds = [(share, f"{_FREE_MEMORY_RATIO:.0%} of the {gib(free)} free at the start")]
    else:
        bounds = [(max(1, int(fraction * total)), f"GPU_MEMORY_FRACTION={fraction:g} of {gib(total)}")]
    reserve, holder = _reserve(facts, gpu)
    left = f"{gib(free)} of {gib(total)} were free at the start, less {gib(reserve)} for {holder}"
    bounds.append((max(_LIMIT_MIN_BYTES, free - reserve), left))
    if facts.platform.wsl:
        bounds.append((int(_WSL_RATIO * total), f"{_WSL_RATIO:.0%} of {gib(total)}, all that WSL2 keeps resident"))
    limit, why = min(bounds)
    return MemoryLimit(limit, f"at most {gib(limit)} on the device: {why}")


def card_of(facts: MachineFacts, placement: Placement) -> GPUInfo | None:
    """The accelerator of ``placement``; None for the CPU."""
    if placement.type is DeviceType.CPU:
        return None
    index = int(placement.device.partition(":")[2] or 0)
    return next((gpu for gpu in facts.gpus if gpu.index == index), None)


def workers_for(limit: MemoryLimit) -> int:
    """How many processes with the larger of our embedding models fit into the limit, each with its own context."""
    return max(1, limit.bytes // (_CONTEXT_BYTES + _WEIGHTS_BYTES + _PEAK_BYTES))


def loader_settings(facts: MachineFacts, kind: DeviceType, *, devices: int = 1) -> tuple[LoaderSettings, str]:
    """DataLoader arguments for training on one of ``devices`` devices, and the reasons."""
    system = facts.platform
    if kind is DeviceType.CPU:
        workers, why = facts.cores // 4, f"a quarter of {facts.cores} cores, the others compute"
    else:
        shared = f", shared by {devices} devices" if devices > 1 else ""
        workers, why = (facts.cores - 1) // devices, f"{facts.cores} cores, one kept back{shared}"
    if workers > _LOADER_WORKERS_MAX:
        workers, why = _LOADER_WORKERS_MAX, f"{_LOADER_WORKERS_MAX} are enough for one device"
    shm_workers = None if system.shm_bytes is None else system.shm_bytes // _SHM_PER_LOADER_WORKER_BYTES // devices
    if shm_workers is not None and workers > shm_workers:  # a full /dev/shm kills workers, bus error (pytorch#5040)
        workers = shm_workers
        why = f"only {gib(system.shm_bytes or 0)} in /dev/shm; docker run --shm-size=2g gives more"
    unified = any(gpu.unified for gpu in facts.usable)
    pinned = kind is DeviceType.CUDA and not system.wsl and not unified  # WSL2's limit is low (WSL#8447)
    settings = LoaderSettings(
        num_workers=workers,
        pin_memory=pinned,
        prefetch_factor=2 if workers else None,  # torch's default; batches in flight are workers x this
        # Kept where each epoch would import torch again (spawn); elsewhere their memory only grows (pytorch#62066).
        persistent_workers=workers > 0 and system.system in ("Windows", "Darwin"),
    )
    memory = "pinned memory" if pinned else "no pinned memory"
    return settings, f"training loads data with {workers} worker(s) ({why}), {memory}"


def _on_cpu(facts: MachineFacts, request: DeviceRequest, selection: Selection) -> Placement:
    lanes = request.lanes or facts.cores
    threads = max(1, facts.cores // lanes)
    why = f"LANES={lanes}" if request.lanes else f"one lane for each of {facts.cores} usable cores"
    dtypes = dtypes_for(None, facts.cpu_flags)
    loader, loader_why = loader_settings(facts, DeviceType.CPU)
    free = facts.memory_bytes if facts.free_memory_bytes is None else facts.free_memory_bytes
    # A preempted OpenMP thread stalls its team: one lane with all threads is 1.5 to 1.8 times slower (measured).
    return Placement(
        "cpu",
        lanes,
        threads,
        1,
        (selection.why, f"{why}, {threads} thread(s) each", dtypes.why, loader_why, *selection.notes),
        dtypes=dtypes.dtypes,
        memory_bytes=int(_FREE_MEMORY_RATIO * free),
        loader=loader,
    )


def _on_gpu(
    facts: MachineFacts, request: DeviceRequest, selection: Selection, gpu: GPUInfo, dtypes: DtypeChoice
) -> Placement:
    lanes = request.lanes or 1
    lanes_why = f"LANES={lanes}" if request.lanes else "one lane"
    limit = memory_limit(facts, gpu, request.memory_fraction)
    workers = workers_for(limit)
    loader, loader_why = loader_settings(facts, facts.gpu_type, devices=len(selection.devices))
    return Placement(
        device_string(facts, gpu),
        lanes,
        1,
        2,
        (
            selection.why,
            f"{lanes_why}: the device runs one batch while the next is prepared",
            dtypes.why,
            limit.why,
            f"memory for {workers} process(es) with a large model; one with its own batches is the fastest",
            loader_why,
            *selection.notes,
        ),
        uuid=gpu.uuid,
        dtypes=dtypes.dtypes,
        memory_bytes=limit.bytes,
        workers=workers,
        loader=loader,
    )


def _memory(facts: MachineFacts, gpu: GPUInfo) -> tuple[int, int]:
    """Total and free bytes; unified memory is the machine's, so the cgroup's limit applies too."""
    if not gpu.unified:
        return gpu.total_bytes, gpu.total_bytes if gpu.free_bytes is None else min(gpu.free_bytes, gpu.total_bytes)
    total = min(gpu.total_bytes, facts.memory_bytes)
    reported = [free for free in (gpu.free_bytes, facts.free_memory_bytes) if free is not None]
    return total, min([total, *reported])


def _reserve(facts: MachineFacts, gpu: GPUInfo) -> tuple[int, str]:
    if facts.platform.wsl:
        return _WSL_BYTES, "WSL2"
    if gpu.driver_model == "WDDM":
        return _WINDOWS_BYTES, "Windows and its desktop"
    if gpu.unified:
        return _HOST_BYTES, "the service itself, which shares this memory"
    return _CONTEXT_BYTES, "the CUDA context"


EVENT = "this process computes with"
NONE = "none"


def start_line(facts: MachineFacts, placements: Sequence[Placement], installed: TorchBuild) -> dict[str, str]:
    """Its fields, in the order in which they are read; every value without a line break.

    Args:
        installed: torch as its files tell, for a start that did not import it.
    """
    torch = facts.torch if facts.torch.version else installed
    fields = {
        "torch": torch.version or NONE,
        "cuda": torch.cuda or (f"none (ROCm {torch.hip})" if torch.hip else NONE),
        "driver": facts.driver.version or (NONE if facts.driver.fault else "not asked"),
        "device": "; ".join(_name(facts, placement) for placement in placements),
    }
    if placements[0].type is DeviceType.CPU:
        fields["why"] = placements[0].why[0]
    return {name: " ".join(value.split()) for name, value in fields.items()}


def _name(facts: MachineFacts, placement: Placement) -> str:
    card = card_of(facts, placement)
    if card is None:
        return f"cpu ({facts.cpu_name or 'unknown processor'}, {facts.cores} cores)"
    capability = ".".join(map(str, card.capability))
    compute = f", compute capability {capability}" if card.capability != (0, 0) else ""
    return f"{placement.device} ({card.name}, {gib(card.total_bytes)}{compute})"
