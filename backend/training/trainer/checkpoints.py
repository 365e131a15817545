"""Checkpoints on disk: tensors in safetensors, the rest in JSON (no pickle), each written completely or not at all.

    output/checkpoints/latest                    the name of the newest
    output/checkpoints/best                      the name of the one with the highest score
    output/checkpoints/step-00000040/
        weights.safetensors   optimizer.safetensors   rest.safetensors   state.json
        manifest.json                            what it belongs to, and size and digest of each file

A checkpoint is written to a hidden folder beside the others, flushed to the disk, and renamed: a run that is killed, or
a disk that is full, leaves those before it as they were. Old ones are renamed away before they are deleted.

``CheckpointManager`` also keeps what a run can return to in memory: the last good snapshot, and the best weights.
Random numbers are not kept: every step seeds its own (``train_step.seed_step``).
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.utils._pytree import tree_map_only

from backend.durable_files import flush
from backend.errors import BadCheckpoint, TrainingError
from backend.training.trainer.trainer_state import KEPT_ON_RESTORE, TrainerState

FOLDER = "checkpoints"
_KIND, _VERSION = "financia-training-checkpoint", 1
_PARTS = ("weights", "optimizer", "rest")
_STATE, _MANIFEST = "state.json", "manifest.json"
_PENDING, _RETIRED = ".writing-", ".deleting-"
_DIFFERENCES_SHOWN = 3
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_TENSOR, _TUPLE, _ITEMS = "$tensor", "$tuple", "$items"  # marks in state.json
_NEW_NAMES = {  # of the rest's states, in checkpoints before 2026-11-27
    "ladder": "precision_fallback",
    "numerics": "precision",
    "standing": "progress",
    "stepper": "train_step",
}
_ADVICE = "Delete this folder to go on from the checkpoint before it"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run at one moment. Nested values may hold tensors anywhere; they are read back on the CPU."""

    step: int  # optimizer steps done
    task: str  # Task.name
    weights: Mapping[str, Tensor]  # model.state_dict()
    optimizer: Mapping[str, Any]  # optimizer.state_dict()
    rest: Mapping[str, Any] = field(default_factory=dict)  # TrainerState.state_dict()
    config: Mapping[str, Any] = field(default_factory=dict)  # TrainingConfig.as_dict(), for people
    score: float | None = None  # of Task.goal at this step, higher is better; None where it was not evaluated


class CheckpointFolder:
    """The checkpoints of one run, below its output folder. For rank 0 alone; not for two runs at once.

    Args:
        keep: newest ones to keep; the best is kept beside them.
    """

    def __init__(self, output: Path, *, keep: int = 2) -> None:
        self._folder = output / FOLDER
        self._keep = keep

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write it, point ``latest`` and ``best`` at it where due, and delete what is too many.

        Returns: its folder.

        Raises: TrainingError when it cannot be written (disk full, no permission), with all before it intact.
        """
        with self._writing(checkpoint.step):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            pending = self._folder / f"{_PENDING}{checkpoint.step:08d}"
            pending.mkdir()
            _write(pending, checkpoint, sequence=self._next_sequence())
            flush(pending)
            folder = self._free_name(checkpoint.step)
            pending.rename(folder)
            flush(self._folder)
            self._point("latest", folder)
            self._prune()
        return folder

    def _next_sequence(self) -> int:
        entries = _entries(self._folder)
        return entries[-1].sequence + 1 if entries else 1

    def _point(self, name: str, target: Path) -> None:
        write_pointer(self._folder / name, target.name, self._folder / f"{_PENDING}{name}")

    def _free_name(self, step: int) -> Path:
        """A step comes again after a precision fallback; its folders get numbers then."""
        names = (f"step-{step:08d}" + (f"-{again}" if again > 1 else "") for again in range(1, 10**6))
        return next(folder for name in names if not (folder := self._folder / name).exists())

    def _prune(self) -> None:
        entries = _entries(self._folder)
        scored = [entry for entry in entries if entry.score is not None and entry.score == entry.score]  # not NaN
        best = max(scored, key=lambda entry: (entry.score or 0.0, -entry.sequence), default=None)
        if best is not None:
            self._point("best", best.folder)
        for entry in entries[: -self._keep]:
            if best is None or entry.folder != best.folder:
                entry.folder.rename(self._folder / f"{_RETIRED}{entry.folder.name}")
        self._sweep()

    def _sweep(self) -> None:
        """Delete what a killed run left half written, and what was retired."""
        for path in (*self._folder.glob(f"{_PENDING}*"), *self._folder.glob(f"{_RETIRED}*")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    @contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            self._sweep()  # frees the disk space of the half-written one
            raise TrainingError(self._refusal(step, error)) from error

    def _refusal(self, step: int, error: Exception) -> str:
        latest = find_latest(self._folder.parent)
        previous = f"the one before it is intact: {latest}" if latest else "there is none before it"
        message = f"the checkpoint of step {step} could not be written to {self._folder} ({error}); {previous}"
        if not is_disk_full(error):
            return message
        free = shutil.disk_usage(self._folder).free if self._folder.exists() else 0
        return f"{message}. The disk is full, {free / 2**20:.0f} MiB are left: make room, then go on with --resume"


@dataclass(frozen=True, slots=True)
class _Entry:
    folder: Path
    sequence: int  # order of writing; a step may come twice
    score: float | None


def find_latest(output: Path) -> Path | None:
    """The folder of the newest complete checkpoint of the run that wrote to ``output``; None without any.

    Without a pointer, or with one that names no folder, the one written last counts.
    """
    return read_pointer(output / FOLDER / "latest") or _newest(output / FOLDER)


def find_best(output: Path) -> Path | None:
    """The folder of the checkpoint with the highest score; None where none was evaluated."""
    return read_pointer(output / FOLDER / "best")


def require_fresh(output: Path) -> None:
    """Raises: BadCheckpoint where ``output`` holds checkpoints already: a new run would mix with them."""
    if (latest := find_latest(output)) is not None:
        raise BadCheckpoint(
            f"{output} holds the checkpoints of another run ({latest.name}): continue it with --resume, choose another "
            f"--output, or delete {output / FOLDER}"
        )


def load_checkpoint(folder: Path, *, task: str | None = None, model: nn.Module | None = None) -> Checkpoint:
    """Read a checkpoint back, every byte checked.

    Args:
        task: name of the task that resumes.
        model: what the weights are for; only compared, nothing is loaded into it.

    Raises: BadCheckpoint where it is absent, broken, of another layout, or of another task or model; says which.
    """
    manifest = _manifest(folder)
    if task is not None and manifest["task"] != task:
        raise BadCheckpoint(f"{folder} is of the task {manifest['task']!r}, this run's is {task!r}")
    for name, facts in manifest["files"].items():
        _check_file(folder / name, facts)
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        parts = {part: unpack_state(state[part], load_file(folder / f"{part}.safetensors")) for part in _PARTS}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, BadCheckpoint) as error:
        raise BadCheckpoint(f"{folder} cannot be read: {error}") from error
    if model is not None:
        _check_model(folder, parts["weights"], model)
    parts["rest"] = _with_new_names(parts["rest"])
    return Checkpoint(manifest["step"], manifest["task"], **parts, config=manifest["config"], score=manifest["score"])


def _with_new_names(rest: Mapping[str, Any]) -> dict[str, Any]:
    """The rest of a checkpoint of any release, and that of the snapshot in it, under the names of this one."""
    renamed = {_NEW_NAMES.get(name, name): state for name, state in rest.items()}
    if snapshot := renamed.get(_SNAPSHOT):
        renamed[_SNAPSHOT] = {**snapshot, "rest": _with_new_names(snapshot["rest"])}
    return renamed


def _write(folder: Path, checkpoint: Checkpoint, *, sequence: int) -> None:
    state = {}
    for part in _PARTS:
        packer = StatePacker()
        state[part] = packer.pack(getattr(checkpoint, part))
        save_file(packer.tensors, folder / f"{part}.safetensors")
    write_json(folder / _STATE, state)
    files = [folder / _STATE, *(folder / f"{part}.safetensors" for part in _PARTS)]
    manifest = {
        "kind": _KIND,
        "version": _VERSION,
        "step": checkpoint.step,
        "sequence": sequence,
        "task": checkpoint.task,
        "score": checkpoint.score,
        "config": dict(checkpoint.config),
        "files": {file.name: {"bytes": file.stat().st_size, "blake2b": digest(file)} for file in files},
    }
    write_json(folder / _MANIFEST, manifest)
    for file in (*files, folder / _MANIFEST):
        flush(file)


def _check_file(file: Path, facts: Mapping[str, Any]) -> None:
    try:
        size = file.stat().st_size
        same = size == facts["bytes"] and digest(file) == facts["blake2b"]
    except OSError as error:
        raise BadCheckpoint(f"{file} cannot be read: {error}") from error
    if size != facts["bytes"]:
        raise BadCheckpoint(f"{file} is broken: {size} bytes instead of {facts['bytes']}. {_ADVICE}")
    if not same:
        raise BadCheckpoint(f"{file} is broken: its content changed since it was written. {_ADVICE}")


def _check_model(folder: Path, weights: Mapping[str, Any], model: nn.Module) -> None:
    saved, expected = _shapes(weights), _shapes(model.state_dict())
    names = [*expected, *(name for name in saved if name not in expected)]
    differences = [
        f"{name} is {saved.get(name, 'absent')} there and {expected.get(name, 'absent')} here"
        for name in names
        if saved.get(name) != expected.get(name)
    ]
    if differences:
        more = len(differences) - _DIFFERENCES_SHOWN
        shown = "; ".join(differences[:_DIFFERENCES_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise BadCheckpoint(f"{folder} is of another model: {shown}")


def _shapes(weights: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        if isinstance(value, Tensor)
        else "no tensor"
        for name, value in weights.items()
    }


def _manifest(folder: Path) -> dict[str, Any]:
    """Raises: BadCheckpoint for a folder that is absent, not ours, or of another layout."""
    if not folder.is_dir():
        raise BadCheckpoint(f"there is no checkpoint at {folder}")
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadCheckpoint(f"{folder} is no checkpoint of ours: it has no {_MANIFEST}") from error
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"{folder / _MANIFEST} is broken: {error}. {_ADVICE}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != _KIND:
        raise BadCheckpoint(f"{folder} is no checkpoint of ours: its {_MANIFEST} is of another program")
    if manifest.get("version") != _VERSION:
        raise BadCheckpoint(
            f"{folder} has layout {manifest.get('version')}, this version reads {_VERSION}; resume with the version "
            "that wrote it"
        )
    if absent := [name for name in ("step", "sequence", "task", "score", "config", "files") if name not in manifest]:
        raise BadCheckpoint(f"{folder / _MANIFEST} is broken: it has no {', '.join(absent)}. {_ADVICE}")
    return manifest


def _entries(folder: Path) -> list[_Entry]:
    """The complete checkpoints of a run, oldest first; a folder that is none of ours is left alone."""
    entries = []
    for path in folder.glob("step-*"):
        with suppress(BadCheckpoint):
            manifest = _manifest(path)
            entries.append(_Entry(path, manifest["sequence"], manifest["score"]))
    return sorted(entries, key=lambda entry: entry.sequence)


def _newest(folder: Path) -> Path | None:
    entries = _entries(folder)
    return entries[-1].folder if entries else None


class StatePacker:
    """Turns nested Python state into JSON and tensors; ``tensors`` collects the latter, on the CPU, by dotted name.

    Strings, numbers, None, lists, tuples, mappings with any plain keys and tensors come back equal and of the same
    type. Tensors that are one and the same (tied weights) are written once and come back as one.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def pack(self, tree: object, name: str = "") -> Any:
        """What JSON can hold of ``tree``, with references to ``tensors``. Raises: TypeError for anything else."""
        if isinstance(tree, np.generic):
            tree = tree.item()
        if tree is None or isinstance(tree, bool | int | float | str):
            return tree
        if isinstance(tree, Tensor):
            return {_TENSOR: self._add(tree, name)}
        if isinstance(tree, list | tuple):
            items = [self.pack(item, _join(name, index)) for index, item in enumerate(tree)]
            return items if isinstance(tree, list) else {_TUPLE: items}
        if isinstance(tree, Mapping):
            return self._mapping(tree, name)
        raise TypeError(f"{name or 'the state'}: a checkpoint has no place for {type(tree).__name__}")

    def _mapping(self, tree: Mapping[Any, Any], name: str) -> dict[str, Any]:
        if all(isinstance(key, str) and not key.startswith("$") for key in tree):
            return {key: self.pack(value, _join(name, key)) for key, value in tree.items()}
        return {_ITEMS: [[self.pack(key, name), self.pack(value, _join(name, key))] for key, value in tree.items()]}

    def _add(self, tensor: Tensor, name: str) -> str:
        if type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise TypeError(f"{name}: a checkpoint has no place for {type(tensor).__name__}, a kind of tensor")
        identity = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and identity in self._names:
            return self._names[identity]
        unique = name or "tensor"
        while unique in self.tensors:
            unique += "'"
        owns_storage = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        plain = tensor.detach().to("cpu").contiguous()
        self.tensors[unique] = plain if owns_storage else plain.clone()  # safetensors refuses parts of one storage
        self._names[identity] = unique
        return unique


def unpack_state(layout: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that ``StatePacker`` packed. Raises: BadCheckpoint for a tensor that is not there."""
    if isinstance(layout, list):
        return [unpack_state(item, tensors) for item in layout]
    if not isinstance(layout, dict):
        return layout
    if _TENSOR in layout:
        return _take(tensors, layout[_TENSOR])
    if _TUPLE in layout:
        return tuple(unpack_state(item, tensors) for item in layout[_TUPLE])
    if _ITEMS in layout:
        return {unpack_state(key, tensors): unpack_state(value, tensors) for key, value in layout[_ITEMS]}
    return {key: unpack_state(value, tensors) for key, value in layout.items()}


def _take(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise BadCheckpoint(f"the tensor {name} is missing")
    return tensors[name]


def _join(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a new file; not flushed."""
    with file.open("w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1)


def digest(file: Path) -> str:
    """BLAKE2b of the content, 128 bits in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def write_pointer(pointer: Path, target: str, pending: Path) -> None:
    """Make the file ``pointer`` hold the name ``target``, atomically: a reader sees the old name or the new one.

    Args:
        pending: name of the file that is written first, in the same folder.
    """
    pending.write_text(target + "\n", encoding="utf-8")
    flush(pending)
    pending.replace(pointer)
    flush(pointer.parent)


def read_pointer(pointer: Path) -> Path | None:
    """The folder beside ``pointer`` that it names; None where there is no pointer or no such folder."""
    try:
        name = pointer.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    target = pointer.parent / name
    is_plain = name == target.name and name not in ("", "..")
    return target if is_plain and target.is_dir() else None


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed for lack of disk space or quota; safetensors says so in its message alone."""
    number = getattr(error, "errno", None)
    return number in _DISK_FULL or any(f"os error {code}" in str(error) for code in _DISK_FULL)


_SNAPSHOT = "snapshot"  # in a checkpoint's rest, where the run's snapshot was taken at an earlier step


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment, on the CPU and shared with nothing."""

    weights: Mapping[str, Tensor]  # trainable ones and buffers; frozen weights never change
    optimizer: Mapping[str, Any]
    rest: Mapping[str, Any]  # TrainerState.state_dict()


class CheckpointManager:
    """Saves and restores a run. Rank 0 alone writes; every rank reads.

    Args:
        output: folder of the run; None keeps nothing on disk.
    """

    def __init__(self, state: TrainerState, output: Path | None) -> None:
        self._state, self._output = state, output
        self._folder = CheckpointFolder(output, keep=state.config.keep_checkpoints) if output is not None else None
        self._snapshot: Snapshot | None = None
        self._best_weights: dict[str, Tensor] | None = None  # where there is no folder

    def start(self, *, resume: bool) -> int | None:
        """Go on from the newest checkpoint and its snapshot; its step, or None where the run starts from the beginning.

        Raises: BadCheckpoint for one of another model or run, or where a new run would mix with another's.
        """
        self._state.group.barrier()
        if self._output is None:
            return None
        if not resume:
            require_fresh(self._output)
            self._state.group.barrier()  # until all have checked: the first checkpoint would be taken for another run's
            return None
        if (latest := find_latest(self._output)) is None:
            return None
        checkpoint = self._load(latest)
        self._state.model.load_state_dict(checkpoint.weights)
        rest = dict(checkpoint.rest)
        kept = rest.pop(_SNAPSHOT, None)
        restore_snapshot(self._state, Snapshot({}, checkpoint.optimizer, rest))
        self._snapshot = take_snapshot(self._state) if kept is None else Snapshot(**kept)
        return checkpoint.step

    @property
    def snapshot_steps(self) -> int:
        """Optimizer steps done at the last snapshot."""
        return 0 if self._snapshot is None else int(self._snapshot.rest["progress"]["steps"])

    def take_snapshot(self) -> None:
        """Keep what ``restore_snapshot`` returns to. The weights must be finite."""
        self._snapshot = take_snapshot(self._state)

    def restore_snapshot(self) -> None:
        """Restore the last snapshot, but not what the run found out since about memory, precision and examples."""
        if self._snapshot is None:
            raise RuntimeError("no snapshot was taken before the first step")
        restore_snapshot(self._state, self._snapshot, keep=KEPT_ON_RESTORE)

    def save(self, score: float | None) -> Path | None:
        """Write a checkpoint; its folder, None on other ranks and without an output folder.

        Raises: TrainingError when it cannot be written, with those before it intact.
        """
        state, folder = self._state, None
        if self._folder is not None and state.group.is_main:
            rest = state.state_dict()
            if (snapshot := self._earlier_snapshot(rest)) is not None:
                rest[_SNAPSHOT] = {each.name: getattr(snapshot, each.name) for each in fields(snapshot)}
            folder = self._folder.save(
                Checkpoint(
                    state.progress.steps,
                    state.task.name,
                    state.model.state_dict(),
                    state.optimizer.state_dict(),
                    rest,
                    state.config.as_dict(),
                    score,
                )
            )
        state.group.barrier()
        return folder

    def _earlier_snapshot(self, now: Mapping[str, Any]) -> Snapshot | None:
        """The snapshot, where the run went on since: a run that is interrupted between two needs it to resume alike."""
        if self._snapshot is None:
            return None
        moment = [(rest["batches"], rest["progress"]["steps"]) for rest in (self._snapshot.rest, now)]
        return None if moment[0] == moment[1] else self._snapshot

    def keep_best_weights(self) -> None:
        """The weights are the best so far. With an output folder ``save`` with their score keeps them."""
        if self._folder is None:
            self._best_weights = _on_cpu(trainable_tensors(self._state.model))

    def load_best_weights(self) -> None:
        """Give the model the weights of the best evaluation, if the run went on since."""
        state = self._state
        if state.best.is_at(state.progress.steps):
            return
        if self._best_weights is not None:
            copy_weights(state.model, self._best_weights)
        elif self._output is not None and (folder := find_best(self._output)) is not None:
            state.model.load_state_dict(self._load(folder).weights)

    def _load(self, folder: Path) -> Checkpoint:
        return load_checkpoint(folder, task=self._state.task.name, model=self._state.model)


def take_snapshot(run: TrainerState) -> Snapshot:
    """A copy of everything that the run goes on from."""
    return Snapshot(
        _on_cpu(trainable_tensors(run.model)), _on_cpu(run.optimizer.state_dict()), _on_cpu(run.state_dict())
    )


def restore_snapshot(run: TrainerState, snapshot: Snapshot, *, keep: tuple[str, ...] = ()) -> None:
    """Make the run what it was, bit for bit; of the rest all but the states named in ``keep``."""
    copy_weights(run.model, snapshot.weights)
    run.optimizer.zero_grad(set_to_none=True)
    run.optimizer.load_state_dict(_on_cpu(snapshot.optimizer))  # load_state_dict may keep what it is given
    run.load_state_dict({name: _on_cpu(state) for name, state in snapshot.rest.items() if name not in keep})


def trainable_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What training changes, by name: trainable weights and buffers."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    return {**weights, **dict(model.named_buffers())}


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy ``weights`` into the model's tensors, wherever they are; names that it does not have are an error."""
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    for name, saved in weights.items():
        tensors[name].copy_(saved)


@torch.no_grad()
def non_finite_tensors(model: nn.Module) -> list[str]:
    """Names of trainable weights and buffers that are not finite; waits for the device once."""
    tensors = {
        name: tensor
        for name, tensor in trainable_tensors(model).items()
        if tensor.is_floating_point() and tensor.numel()
    }
    if bool(torch.isfinite(get_total_norm(tensors.values(), norm_type=float("inf")))):
        return []
    return [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]


def _on_cpu(tree: Any) -> Any:
    """A copy of nested state, with its tensors on the CPU."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), tree)
