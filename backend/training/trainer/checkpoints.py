"""Checkpoints on disk: tensors in safetensors, the rest in JSON, published whole or not at all.

    output/checkpoints/latest                    the name of the newest
    output/checkpoints/best                      the name of the one with the highest score
    output/checkpoints/step-00000040/
        weights.safetensors   optimizer.safetensors   rest.safetensors   state.json
        manifest.json                            what it belongs to, and size and digest of each file

A checkpoint is written to a hidden folder beside the others, flushed to the disk, and renamed: a run that is killed, or
a disk that is full, leaves those before it as they were. Old ones are renamed away before they are deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from backend.durable_files import flush
from backend.errors import BadCheckpoint, TrainingError
from backend.training.trainer.durable import digest, is_full, point, pointed, write_json
from backend.training.trainer.state_codec import Packer, unpack

FOLDER = "checkpoints"
_KIND, _VERSION = "financia-training-checkpoint", 1
_PARTS = ("weights", "optimizer", "rest")
_STATE, _MANIFEST = "state.json", "manifest.json"
_PENDING, _RETIRED = ".writing-", ".deleting-"
_DIFFERENCES_SHOWN = 3
_ADVICE = "Delete this folder to go on from the checkpoint before it"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run at one moment. Trees may hold tensors anywhere; they are read back on the CPU."""

    step: int  # optimizer steps done
    task: str  # Task.name
    weights: Mapping[str, Tensor]  # model.state_dict()
    optimizer: Mapping[str, Any]  # optimizer.state_dict()
    rest: Mapping[str, Any] = field(default_factory=dict)  # schedule, scaler, sampler, generators, …: the loop's own
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
        """Write, publish, point ``latest`` and ``best`` at it where due, and delete what is too many.

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
            made = self._free_name(checkpoint.step)
            pending.rename(made)
            flush(self._folder)
            self._point("latest", made)
            self._prune()
        return made

    def _next_sequence(self) -> int:
        entries = _entries(self._folder)
        return entries[-1].sequence + 1 if entries else 1

    def _point(self, name: str, target: Path) -> None:
        point(self._folder / name, target.name, self._folder / f"{_PENDING}{name}")

    def _free_name(self, step: int) -> Path:
        """A step comes again after the precision ladder went back; its folders get numbers then."""
        names = (f"step-{step:08d}" + (f"-{again}" if again > 1 else "") for again in range(1, 10**6))
        return next(folder for name in names if not (folder := self._folder / name).exists())

    def _prune(self) -> None:
        entries = _entries(self._folder)
        scored = [one for one in entries if one.score is not None and one.score == one.score]  # NaN is no score
        best = max(scored, key=lambda one: (one.score or 0.0, -one.sequence), default=None)
        if best is not None:
            self._point("best", best.folder)
        for one in entries[: -self._keep]:
            if best is None or one.folder != best.folder:
                one.folder.rename(self._folder / f"{_RETIRED}{one.folder.name}")
        self._sweep()

    def _sweep(self) -> None:
        """Delete what a killed run left half written, and what was retired."""
        for left in (*self._folder.glob(f"{_PENDING}*"), *self._folder.glob(f"{_RETIRED}*")):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)

    @contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            self._sweep()  # gives the room back that the half-written one took
            raise TrainingError(self._refusal(step, error)) from error

    def _refusal(self, step: int, error: Exception) -> str:
        latest = find_latest(self._folder.parent)
        kept = f"the one before it is intact: {latest}" if latest else "there is none before it"
        message = f"the checkpoint of step {step} could not be written to {self._folder} ({error}); {kept}"
        if not is_full(error):
            return message
        free = shutil.disk_usage(self._folder).free if self._folder.exists() else 0
        return f"{message}. The disk is full, {free / 2**20:.0f} MiB are left: make room, then go on with --resume"


@dataclass(frozen=True, slots=True)
class _Entry:
    folder: Path
    sequence: int  # order of writing; a step may come twice
    score: float | None


def find_latest(output: Path) -> Path | None:
    """The folder of the newest whole checkpoint of the run that wrote to ``output``; None without any.

    Where the pointer is lost or points at nothing, the one written last counts.
    """
    return pointed(output / FOLDER / "latest") or _newest(output / FOLDER)


def find_best(output: Path) -> Path | None:
    """The folder of the checkpoint with the highest score; None where none was evaluated."""
    return pointed(output / FOLDER / "best")


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
        parts = {part: unpack(state[part], load_file(folder / f"{part}.safetensors")) for part in _PARTS}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, BadCheckpoint) as error:
        raise BadCheckpoint(f"{folder} cannot be read: {error}") from error
    if model is not None:
        _check_model(folder, parts["weights"], model)
    return Checkpoint(manifest["step"], manifest["task"], **parts, config=manifest["config"], score=manifest["score"])


def _write(folder: Path, checkpoint: Checkpoint, *, sequence: int) -> None:
    state = {}
    for part in _PARTS:
        packer = Packer()
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
    saved, wanted = _shapes(weights), _shapes(model.state_dict())
    names = [*wanted, *(name for name in saved if name not in wanted)]
    found = [
        f"{name} is {saved.get(name, 'absent')} there and {wanted.get(name, 'absent')} here"
        for name in names
        if saved.get(name) != wanted.get(name)
    ]
    if found:
        more = len(found) - _DIFFERENCES_SHOWN
        shown = "; ".join(found[:_DIFFERENCES_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise BadCheckpoint(f"{folder} is of another model: {shown}")


def _shapes(weights: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: f"{tuple(one.shape)} {str(one.dtype).removeprefix('torch.')}" if isinstance(one, Tensor) else "no tensor"
        for name, one in weights.items()
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
    """The whole checkpoints of a run, oldest first; a folder that cannot be understood is nobody's to delete."""
    found = []
    for one in folder.glob("step-*"):
        with suppress(BadCheckpoint):
            manifest = _manifest(one)
            found.append(_Entry(one, manifest["sequence"], manifest["score"]))
    return sorted(found, key=lambda entry: entry.sequence)


def _newest(folder: Path) -> Path | None:
    entries = _entries(folder)
    return entries[-1].folder if entries else None
