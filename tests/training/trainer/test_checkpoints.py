"""Checkpoints come back bit for bit, appear completely or not at all, and errors say why one cannot be used."""

import errno
import json
import random
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from backend.errors import BadCheckpoint, TrainingError
from backend.training.trainer import checkpoints
from backend.training.trainer.checkpoints import (
    Checkpoint,
    CheckpointFolder,
    StatePacker,
    find_best,
    find_latest,
    is_disk_full,
    load_checkpoint,
    read_pointer,
    require_fresh,
    unpack_state,
    write_pointer,
)


def model(width: int = 4) -> nn.Sequential:
    """Two layers that share their weight, and a buffer."""
    made = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width), nn.BatchNorm1d(width))
    made[1].weight = made[0].weight
    return made


def checkpoint_at(step: int, *, score: float | None = None, width: int = 4, rest: dict | None = None) -> Checkpoint:
    """A checkpoint of a small model that took one step of AdamW."""
    torch.manual_seed(step)
    made = model(width)
    optimizer = torch.optim.AdamW(made.parameters())
    made(torch.randn(3, width)).sum().backward()
    optimizer.step()
    return Checkpoint(step, "ner", made.state_dict(), optimizer.state_dict(), rest or {}, {"epochs": 3}, score)


def names(output: Path) -> list[str]:
    """Everything in the folder of checkpoints."""
    return sorted(one.name for one in (output / "checkpoints").iterdir())


def test_everything_comes_back(tmp_path):
    """Weights, optimizer, generators of torch and Python, and any nesting: equal and of the same types."""
    rest = {
        "torch": torch.get_rng_state(),
        "python": random.Random(1).getstate(),
        "scaler": {"scale": 2.0**16, "tracker": None, 3: (1, [2.5, True])},
        "$odd": {
            "nan": float("inf"),
            "empty": torch.zeros(0),
            "scalar": torch.tensor(3),
            "half": torch.ones(2).bfloat16(),
        },
    }
    saved = checkpoint_at(40, score=0.5, rest=rest)

    folder = CheckpointFolder(tmp_path).save(saved)
    back = load_checkpoint(folder, task="ner", model=model())

    assert (back.step, back.task, back.score, back.config) == (40, "ner", 0.5, {"epochs": 3})
    torch.testing.assert_close(dict(back.weights), dict(saved.weights), rtol=0, atol=0)
    torch.testing.assert_close(back.optimizer, saved.optimizer, rtol=0, atol=0)
    assert back.optimizer["param_groups"][0]["betas"] == (0.9, 0.999)
    assert torch.equal(back.rest["torch"], rest["torch"])
    assert back.rest["python"] == rest["python"]
    assert back.rest["scaler"] == rest["scaler"]
    assert [one.dtype for one in back.rest["$odd"].values() if isinstance(one, torch.Tensor)] == [
        torch.float32,
        torch.int64,
        torch.bfloat16,
    ]
    random.Random().setstate(back.rest["python"])


def test_no_pickle_is_written(tmp_path):
    """Only safetensors and JSON: reading a foreign checkpoint runs no code."""
    folder = CheckpointFolder(tmp_path).save(checkpoint_at(1))

    assert [
        "manifest.json",
        "optimizer.safetensors",
        "rest.safetensors",
        "state.json",
        "weights.safetensors",
    ] == sorted(file.name for file in folder.iterdir())


def test_the_newest_and_the_best_are_kept(tmp_path):
    """keep counts the newest; the best stays beside them, the earlier one of equals; a NaN is no score."""
    folder = CheckpointFolder(tmp_path, keep=2)
    for step, score in enumerate((0.1, 0.9, 0.9, None, float("nan"), 0.3), start=1):
        folder.save(checkpoint_at(step, score=score))

    assert ["best", "latest", "step-00000002", "step-00000005", "step-00000006"] == names(tmp_path)
    assert find_latest(tmp_path) == tmp_path / "checkpoints/step-00000006"
    assert find_best(tmp_path) == tmp_path / "checkpoints/step-00000002"


def test_a_step_that_comes_again(tmp_path):
    """After a precision fallback the newer of two checkpoints of a step counts, and old higher steps are deleted."""
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in (10, 20, 10, 15):
        made = folder.save(checkpoint_at(step))

    assert ["latest", "step-00000010-2", "step-00000015"] == names(tmp_path)
    assert find_latest(tmp_path) == made


def test_a_lost_pointer(tmp_path):
    """Without a usable pointer the one written last counts; what is no checkpoint does not."""
    folder = CheckpointFolder(tmp_path, keep=3)
    for step in (1, 2):
        made = folder.save(checkpoint_at(step))
    (tmp_path / "checkpoints/step-00000009").mkdir()

    for pointer in ("step-00000077", "../..", "", "\udcff"):
        (tmp_path / "checkpoints/latest").write_text(pointer, encoding="utf-8", errors="surrogateescape")
        assert find_latest(tmp_path) == made
    (tmp_path / "checkpoints/latest").unlink()

    assert find_latest(tmp_path) == made
    assert find_latest(tmp_path / "nowhere") is None
    assert find_best(tmp_path) is None


@pytest.mark.parametrize("small_disk", [1], indirect=True)
def test_a_full_disk_leaves_the_previous_intact(small_disk):
    """A real file system without space: the error advises, the checkpoint before loads, the next one fits."""
    folder = CheckpointFolder(small_disk)
    first = folder.save(checkpoint_at(1))

    with pytest.raises(TrainingError, match=r"step 2 .*one before it is intact: .*step-00000001.*disk is full"):
        folder.save(checkpoint_at(2, width=400))

    assert find_latest(small_disk) == first
    assert load_checkpoint(first, model=model()).step == 1
    assert ["latest", "step-00000001"] == names(small_disk)
    folder.save(checkpoint_at(3))
    assert ["latest", "step-00000001", "step-00000003"] == names(small_disk)


@pytest.mark.parametrize("breaks", ["save_file", "write_json", "flush", "digest", "write_pointer"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_anywhere(tmp_path, monkeypatch, breaks, number):
    """Whichever write fails, the checkpoint before it is intact, and the next save succeeds."""
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint_at(1))

    def fail(*arguments, **options):
        raise OSError(number, "no luck")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, breaks, fail)
        with pytest.raises(TrainingError, match=r"step 2 .*no luck") as caught:
            folder.save(checkpoint_at(2))

    assert ("disk is full" in str(caught.value)) == (number == errno.ENOSPC)
    assert load_checkpoint(find_latest(tmp_path)).step == 1
    assert not [name for name in names(tmp_path) if name.startswith(".")]
    folder.save(checkpoint_at(3))
    assert load_checkpoint(find_latest(tmp_path)).step == 3


@pytest.mark.parametrize("dies_in", ["save_file", "write_json", "flush", "write_pointer"])
def test_a_run_that_is_killed_while_it_writes(tmp_path, monkeypatch, dies_in):
    """What was half written is never taken for a checkpoint, and the next save clears it away."""
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint_at(1))

    def die(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, dies_in, die)
        with pytest.raises(KeyboardInterrupt):
            folder.save(checkpoint_at(2))

    assert load_checkpoint(find_latest(tmp_path)).step == 1
    folder.save(checkpoint_at(3))
    assert load_checkpoint(find_latest(tmp_path)).step == 3
    assert not [name for name in names(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize(
    ("file", "damage", "reason"),
    [
        pytest.param("weights.safetensors", "flip", "weights.safetensors is broken: its content", id="a-flipped-bit"),
        pytest.param("optimizer.safetensors", "cut", "optimizer.safetensors is broken: .* bytes instead", id="cut-off"),
        pytest.param("state.json", "remove", "state.json cannot be read", id="absent"),
        pytest.param("manifest.json", "cut", "manifest.json is broken", id="half-a-manifest"),
        pytest.param("manifest.json", "remove", "no checkpoint of ours", id="no-manifest"),
    ],
)
def test_broken_checkpoints_are_refused(tmp_path, file, damage, reason):
    """Every byte is checked, and the file is named."""
    folder = CheckpointFolder(tmp_path).save(checkpoint_at(1))
    content = bytearray((folder / file).read_bytes())
    content[-20] ^= 1
    if damage == "remove":
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content if damage == "flip" else content[: len(content) // 2])

    with pytest.raises(BadCheckpoint, match=reason):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"kind": "other"}, "of another program", id="foreign"),
        pytest.param({"version": 99}, "layout 99, this version reads 1", id="newer"),
        pytest.param({"files": ...}, "has no files", id="incomplete"),
    ],
)
def test_foreign_checkpoints_are_refused(tmp_path, changes, reason):
    """A folder of another program or version says so."""
    folder = CheckpointFolder(tmp_path).save(checkpoint_at(1))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8")) | changes
    kept = {name: value for name, value in manifest.items() if value is not ...}
    (folder / "manifest.json").write_text(json.dumps(kept), encoding="utf-8")

    with pytest.raises(BadCheckpoint, match=reason):
        load_checkpoint(folder)


def test_another_task_or_model_is_refused(tmp_path):
    """The error names the difference: which task, or which tensors in which shapes."""
    folder = CheckpointFolder(tmp_path).save(checkpoint_at(1))

    with pytest.raises(BadCheckpoint, match=r"of the task 'ner', this run's is 'embeddings'"):
        load_checkpoint(folder, task="embeddings")
    with pytest.raises(BadCheckpoint, match=r"0\.weight is \(4, 4\) float32 there and \(5, 5\) float32 here"):
        load_checkpoint(folder, model=model(5))
    with pytest.raises(BadCheckpoint, match=r"3\.weight is absent there and \(2, 4\) float32 here$"):
        load_checkpoint(folder, model=nn.Sequential(*model(), nn.Linear(4, 2, bias=False)))
    with pytest.raises(BadCheckpoint, match=r"0\.weight is .* there and absent here; .*; and 6 more$"):
        load_checkpoint(folder, model=nn.Identity())
    with pytest.raises(BadCheckpoint, match="there is no checkpoint at"):
        load_checkpoint(tmp_path / "checkpoints/step-00000002")


def test_a_new_run_does_not_mix_with_an_old_one(tmp_path):
    """An output folder that holds checkpoints must be resumed or left."""
    require_fresh(tmp_path)
    CheckpointFolder(tmp_path).save(checkpoint_at(1))

    with pytest.raises(BadCheckpoint, match=r"--resume.*--output"):
        require_fresh(tmp_path)


def round_trip(tree: object) -> object:
    """Packed, through JSON, and unpacked."""
    packer = StatePacker()
    layout = json.loads(json.dumps(packer.pack(tree)))
    return unpack_state(layout, packer.tensors)


def test_numpy_scalars():
    """A task's metrics may be numpy's numbers; they become Python's."""
    assert round_trip(np.float32(0.5)) == 0.5


def test_tensors_keep_their_names_and_what_they_share():
    """Names are the paths; one tensor under two names is kept once; parts of a storage stand alone."""
    whole = torch.arange(24.0).reshape(2, 3, 2, 2)
    last = whole.clone().to(memory_format=torch.channels_last)
    tree = OrderedDict([("a.b", whole), ("tied", whole), ("a", {"b": last}), ("view", whole[1]), ("t", whole.mT)])
    packer = StatePacker()
    layout = packer.pack(tree)

    back = unpack_state(layout, packer.tensors)

    assert ["a.b", "a.b'", "view", "t"] == list(packer.tensors)
    assert back["tied"] is back["a.b"]
    assert torch.equal(last, back["a"]["b"])
    assert torch.equal(whole[1], back["view"])
    assert torch.equal(whole.mT, back["t"])
    assert packer.tensors["view"].untyped_storage().nbytes() == 12 * 4


@pytest.mark.parametrize("value", [object(), random.Random(), {1, 2}, b"raw", torch.float32])
def test_unsupported_values_are_named(value):
    """The error has the path to the value."""
    with pytest.raises(TypeError, match=rf"sampler\.1: .* {type(value).__name__}"):
        StatePacker().pack({"sampler": [0, value]})


def test_tensor_subclasses_are_refused():
    """A subclass holds more than its values (an 8-bit optimizer's state): saving the values alone would lose it."""

    class Scaled(torch.Tensor):
        pass

    with pytest.raises(TypeError, match=r"state: .* Scaled, a kind of tensor"):
        StatePacker().pack({"state": torch.zeros(2).as_subclass(Scaled)})


def test_a_missing_tensor():
    """A layout that refers to an absent tensor is a broken checkpoint."""
    with pytest.raises(BadCheckpoint, match="tensor w is missing"):
        unpack_state({"$tensor": "w"}, {})


def test_a_pointer_changes_atomically(tmp_path):
    """It names a folder beside it; a write that dies before the rename leaves the old name."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write_pointer(tmp_path / "latest", "a", tmp_path / ".pending")
    assert read_pointer(tmp_path / "latest") == tmp_path / "a"
    (tmp_path / ".pending").write_text("b", encoding="utf-8")  # as a killed run leaves it
    assert read_pointer(tmp_path / "latest") == tmp_path / "a"

    write_pointer(tmp_path / "latest", "b", tmp_path / ".pending")

    assert read_pointer(tmp_path / "latest") == tmp_path / "b"
    assert not (tmp_path / ".pending").exists()


@pytest.mark.parametrize("content", [b"", b"absent", b"..", b"a/../a", b"/", b"\xff\xfe", b"file"])
def test_a_pointer_names_only_a_folder_beside_it(tmp_path, content):
    """Only the plain name of a folder beside it counts."""
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "latest").write_bytes(content)

    assert read_pointer(tmp_path / "latest") is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (SafetensorError("Error while serializing: I/O error: Permission denied (os error 13)"), False),
        (OSError(errno.EIO, "Input/output error"), False),
    ],
)
def test_a_full_disk_is_recognised(error, expected):
    """By errno, or by the message of safetensors."""
    assert is_disk_full(error) == expected


def test_a_checkpoint_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    """Its states, and those of the snapshot in it, had other names."""
    old = {"ladder": {"drops": 1}, "numerics": {}, "standing": {"steps": 6}, "stepper": {"divisor": 8.0}, "best": {}}
    snapshot = {"weights": {}, "optimizer": {}, "rest": {**old, "standing": {"steps": 4}}}
    folder = CheckpointFolder(tmp_path).save(checkpoint_at(6, rest={**old, "snapshot": snapshot}))

    rest = load_checkpoint(folder).rest

    assert {"precision_fallback", "precision", "progress", "train_step", "best", "snapshot"} == set(rest)
    assert (6, 4) == (rest["progress"]["steps"], rest["snapshot"]["rest"]["progress"]["steps"])
