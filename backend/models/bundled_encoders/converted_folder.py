"""Where the bundled encoders lie as ordinary model folders, converted once."""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import Path

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.conversion import convert
from backend.models.bundled_encoders.packed_weights import read_packed
from backend.models.bundled_encoders.recipes import PACKED_FILE, Recipe, installation_advice, packed_file, read_layers
from backend.models.fingerprint import file_digest
from backend.models.unpacked_folder import INSTALLED, UnpackedFolder
from backend.telemetry import log_event

_log = logging.getLogger(__name__)


def folder_of(recipe: Recipe, models_dir: Path | None = None) -> Path:
    """The encoder's folder with every file as it must be, converted first where there is none. Seconds then.

    Looked for in the installation, then in ``models_dir``, and written there; without one, into the installation.
    Where neither can be written, a temporary folder serves this process alone.

    Raises: ModelUnavailable when the packed weights are absent or damaged, or no folder has room.
    """
    try:
        return _unpacked(recipe).find(
            INSTALLED,
            models_dir,
            what="the bundled model",
            costs="a conversion at every start: some 10 s and 250 MB of temporary files",
        )
    except OSError as error:
        raise ModelUnavailable(
            "the bundled model cannot be converted: neither STATE_DIR nor the temporary folder can hold its 250 MB "
            f"({error})"
        ) from error


def convert_into(place: Path, recipe: Recipe) -> Path:
    """Convert the encoder into a folder under ``place``, unless another process has done so meanwhile.

    Raises: OSError when ``place`` cannot be written; ModelUnavailable.
    """
    return _unpacked(recipe).unpack_into(place)


def is_sound(folder: Path, recipe: Recipe) -> bool:
    """Whether every file is there with its checksum; files that have not changed since are not read again."""
    return _unpacked(recipe).is_sound(folder)


def _unpacked(recipe: Recipe) -> UnpackedFolder:
    return UnpackedFolder(recipe.folder_name, recipe.files, partial(_convert, recipe))


def _convert(recipe: Recipe, folder: Path) -> None:
    """Write the encoder into an empty folder. Raises: ModelUnavailable where a checksum, before or after, is wrong."""
    started_s = time.monotonic()
    source = packed_file()
    _check(source, recipe.packed_sha256, f"{PACKED_FILE} of the bundled model", installation_advice())
    student = None
    if recipe.layers is not None:
        _check(
            recipe.layers, recipe.layers_sha256, f"{recipe.layers.name} of {recipe.name}", "install the service again"
        )
        student = read_layers(recipe.layers)
    packed = read_packed(source)
    convert(packed, folder, student)
    for name, sha256 in recipe.files.items():
        _check(
            folder / name, sha256, f"the converted {name}", "report it: this release converts to another result here"
        )
    log_event(
        _log, logging.INFO, "bundled model converted", model=recipe.name, s=round(time.monotonic() - started_s, 1)
    )


def _check(file: Path, expected: str, what: str, advice: str) -> None:
    digest = file_digest(file)
    if digest != expected:
        raise ModelUnavailable(f"{what} has SHA-256 {digest}, expected {expected}; {advice}")
