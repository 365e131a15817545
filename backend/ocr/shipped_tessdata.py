"""Tesseract's language data that come with the service, unpacked into a folder that Tesseract can read.

    python -m backend.ocr.shipped_tessdata    # into the installation, for every process of it

Run when the service is installed and when an image is built; a start does the same for itself where it was not.
"""

from __future__ import annotations

import lzma
import shutil
import sys
from pathlib import Path
from types import MappingProxyType

from backend.errors import SetupError
from backend.models.fingerprint import file_digest
from backend.models.unpacked_folder import INSTALLED, UnpackedFolder, name_of
from backend.ocr.languages import DATA_SUFFIX

PACKED = Path(__file__).resolve().parents[1] / "models" / "bundled" / "tessdata"
# Of tessdata_fast 4.1.0.
SHA256 = MappingProxyType({
    "cat": "250db73cd5b380d2798581295dc12f20d0828cdb335a65d833d12dfdbf57117d",
    "deu": "19d219bbb6672c869d20a9636c6816a81eb9a71796cb93ebe0cb1530e2cdb22d",
    "eng": "7d4322bd2a7749724879683fc3912cb542f19906c83bcc1a52132556427170b2",
    "fra": "ced037562e8c80c13122dece28dd477d399af80911a28791a66a63ac1e3445ca",
    "glg": "7947619c5544d86849f563bd737ad90dbea9f5319fbd838c4747a7a1cd40b260",
    "ita": "b8f89e1e785118dac4d51ae042c029a64edb5c3ee42ef73027a6d412748d8827",
    "por": "c4932b937207a9514b7514d518b931a99938c02a28a5a5a553f8599ed58b7deb",
    "spa": "6f2e04d02774a18f01bed44b1111f2cd7f3ba7ac9dc4373cd3f898a40ea6b464",
})  # fmt: skip


def shipped_folder(keep_in: Path | None = None) -> Path:
    """The folder with the data of every shipped language, unpacked first where there is none. A second then.

    Looked for in the installation, then in ``keep_in``, and written there; without one, into the installation. Where
    neither can be written, a temporary folder serves this process alone.

    Raises: SetupError when the packed data are absent or damaged, or no folder has room.
    """
    try:
        return _unpacked().find(
            INSTALLED,
            keep_in,
            what="Tesseract's language data",
            costs="unpacking at every start: a second and 18 MB of temporary files",
        )
    except OSError as error:
        raise SetupError(f"no folder can hold Tesseract's language data, 18 MB ({error})") from error


def unpack_into(place: Path) -> Path:
    """Unpack into a folder under ``place``, unless another process has done so meanwhile.

    Raises: OSError when ``place`` cannot be written; SetupError when the packed data are absent or damaged.
    """
    return _unpacked().unpack_into(place)


def _unpacked() -> UnpackedFolder:
    files = {f"{code}{DATA_SUFFIX}": sha256 for code, sha256 in SHA256.items()}
    return UnpackedFolder(name_of("tessdata", files), files, _unpack)


def _unpack(folder: Path) -> None:
    for code, sha256 in SHA256.items():
        name = f"{code}{DATA_SUFFIX}"
        _unpack_file(PACKED / f"{name}.xz", folder / name, sha256)


def _unpack_file(packed: Path, file: Path, sha256: str) -> None:
    if not packed.is_file():
        raise SetupError(f"{packed} is not there; install the service again")
    try:
        with lzma.open(packed) as source, file.open("wb") as stream:
            shutil.copyfileobj(source, stream)
    except (lzma.LZMAError, EOFError) as error:
        raise SetupError(f"{packed} is damaged ({error}); install the service again") from error
    if (digest := file_digest(file)) != sha256:
        raise SetupError(f"{packed} holds data with SHA-256 {digest}, expected {sha256}; install the service again")


def main() -> int:
    """Unpack into the installation; the exit code."""
    try:
        sys.stdout.write(f"{unpack_into(INSTALLED)}\n")
    except (SetupError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
