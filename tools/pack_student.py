"""Packs the layers of a distilled encoder for the repository: int8 rows, and a manifest of checksums.

    python -m tools.pack_student STATE [--output FOLDER]

STATE is a state dict that torch or safetensors has written, of a whole BERT or of its encoder alone. The word table and
the tokenizer are the bundled encoder's, so they are left out.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.conversion import convert
from backend.models.bundled_encoders.packed_weights import read_packed
from backend.models.bundled_encoders.recipes import (
    LAYERS_FILE,
    MANIFEST_FILE,
    STUDENT,
    packed_file,
    read_layers,
    write_layers,
)
from backend.models.fingerprint import file_digest

NAME = "financia/multilingual-e5-small-fast"
_LAYER = re.compile(r"(?:.*\.)?(layer\.\d+\..+)")


def layers_in(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """The tensors of transformer layers under transformers' names, whatever stands before ``layer.N.``."""
    matches = ((match, value) for name, value in state.items() if (match := _LAYER.fullmatch(name)))
    return {f"encoder.{match[1]}": value.astype(np.float32) for match, value in matches}


def pack(state: Mapping[str, NDArray[Any]], folder: Path, *, packed: Path, name: str = NAME) -> None:
    """Write layers and manifest; converts the result once to know its checksums.

    Args:
        packed: the packed weights that the word table comes from.

    Raises: ModelUnavailable when the state has no layers or the packed weights cannot be read.
    """
    layers = layers_in(state)
    if not layers:
        raise ModelUnavailable(f"no tensor is named layer.N.… among {', '.join(list(state)[:3])}")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LAYERS_FILE
    write_layers(file, layers)
    with tempfile.TemporaryDirectory() as work:
        convert(read_packed(packed), Path(work), read_layers(file))
        made = sorted(each for each in Path(work).rglob("*") if each.is_file())
        files = {str(each.relative_to(work)): file_digest(each) for each in made}
    manifest = {"name": name, "layers_sha256": file_digest(file), "files": files}
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_state(file: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file, or of a state dict that torch saved."""
    if file.suffix == ".safetensors":
        return load_file(file)
    import torch  # seconds, and not for safetensors

    state = torch.load(file, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in state.items()}


def main() -> int:
    """Pack, and say how large it is; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("state", type=Path, help="model.safetensors, or what torch.save wrote")
    parser.add_argument("--output", type=Path, default=STUDENT, help="where the service looks for it")
    options = parser.parse_args()
    try:
        pack(read_state(options.state), options.output, packed=packed_file())
    except (ModelUnavailable, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print(f"{options.output / LAYERS_FILE}: {(options.output / LAYERS_FILE).stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
