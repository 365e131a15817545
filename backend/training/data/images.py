"""Document images as examples: which there are, decoding them safely with Pillow, and keeping decoded ones in memory.

Pillow and not OpenCV: it reads what the service reads (EXIF turns, 16 bits, CMYK, JPEG 2000) and resizes exactly as
transformers' image processors do. Formats that run other programs (EPS) or that nobody scans to are not opened at all.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from backend.errors import BadData
from backend.training.data.texts import read_rows

Pixels = NDArray[np.uint8]  # (height, width_px, 3), RGB
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "JPEG2000", "PPM", "AVIF")
PIXELS_MAX = 89_478_485  # Pillow's own bound against decompression bombs: a quarter of a GiB as RGB
CACHE_RATIO = 0.25  # of the memory this process may use (DESIGN §13)
_LISTS = ("labels.tsv", "labels.jsonl", "metadata.jsonl")  # the last is what the datasets library calls it
_FILE_FIELDS = ("file", "file_name", "image", "path")
_SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "val": "dev", "eval": "dev", "test": "dev"}
_THREADS_MAX = 8  # each may hold a page of PIXELS_MAX


@dataclass(frozen=True, slots=True)
class ImageExample:
    """One image file and what it is."""

    file: Path
    label: str
    split: str = ""  # "train", "dev", or "" where the data does not say


@dataclass(frozen=True, slots=True)
class Skipped:
    """An image that cannot be learnt from."""

    file: Path
    why: str  # one sentence


def read_examples(data: Path) -> list[ImageExample]:
    """Every example there is, in a fixed order, none opened yet.

    Args:
        data: a ``.tsv`` with a header or a ``.jsonl``, with ``file`` (relative to it) and ``label`` and perhaps
            ``split`` (train or dev); a folder with such a list as labels.tsv, labels.jsonl or metadata.jsonl; or a
            folder with one folder a class, perhaps under ``train`` and ``dev`` (or validation, val, eval, test).

    Raises: BadData where there is no example, or a line says nothing usable (file and line named).
    """
    if data.is_file():
        examples = _from_list(data)
    elif data.is_dir():
        lists = [data / name for name in _LISTS if (data / name).is_file()]
        examples = _from_list(lists[0]) if lists else list(_from_folders(data))
    else:
        raise BadData(f"{data} does not exist")
    if not examples:
        raise BadData(f"{data}: no example; expected one folder of images a class, or a list with file and label")
    return examples


def decode(file: Path, *, pixels_max: int = PIXELS_MAX) -> Image.Image:
    """The first picture of a file as upright RGB on white.

    Raises: BadData for what cannot be read, in one sentence without the path.
    """
    try:
        with Image.open(file, formats=_formats()) as image:
            size = image.width * image.height
            if size <= pixels_max:
                image.load()
                return _rgb(_upright(image))
    except FileNotFoundError as error:
        raise BadData("no such file") from error
    except Exception as error:  # the border to decoders: hostile files make them raise anything
        raise BadData(_reason(file, error)) from error
    raise BadData(f"{size} pixels are more than {pixels_max}")


def fit(image: Image.Image, height: int, width_px: int, *, resample: int = Image.Resampling.BILINEAR) -> Pixels:
    """The whole page squeezed to one size, as ViT's image processor does: margins and letterheads stay in view."""
    return np.asarray(image.resize((width_px, height), Image.Resampling(resample)), dtype=np.uint8)


class ImageCache:
    """Decoded images that stay in memory up to a bound, shared by epochs and threads; augmentation comes after it.

    What came first stays, nothing is thrown out for another: an epoch asks for every image once in a new order, so
    that a cache of a share of the images hits that share, while throwing out the least recently used hits about half
    the square of it. A bound of 0 keeps nothing.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: dict[Path, Pixels] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, file: Path, make: Callable[[], Pixels]) -> Pixels:
        """The image of ``file``, made at most once while there is room. Callers must not write into it.

        What ``make`` raises is not kept. Two threads may make the same image at once; one of them stays.
        """
        with self._lock:
            found = self._kept.get(file)
            self.hits += found is not None
            self.misses += found is None
        if found is not None:
            return found
        made = make()
        made.flags.writeable = False
        with self._lock:
            if file not in self._kept and self.held_bytes + made.nbytes <= self.limit_bytes:
                self._kept[file] = made
                self.held_bytes += made.nbytes
        return made


def cache_limit_bytes(memory_bytes: int, wanted_bytes: int | None = None, *, processes: int = 1) -> int:
    """What the cache of one process may hold: a quarter of the memory, or less where wished; 0 turns it off.

    Args:
        processes: of this run on this machine; each has a cache of its own.
    """
    most = int(memory_bytes * CACHE_RATIO) // max(1, processes)
    return most if wanted_bytes is None else min(most, wanted_bytes)


def sift(
    files: Sequence[Path], load: Callable[[Path], object], *, threads: int
) -> tuple[list[int], list[tuple[int, str]]]:
    """Load every file once: the positions of those that could be read, and of the others with the reason, in order.

    ``load`` raises BadData for what cannot be read; its results are dropped, so what should stay it keeps itself.
    """
    with ThreadPoolExecutor(max(1, min(threads, _THREADS_MAX)), thread_name_prefix="sift") as pool:
        reasons = list(pool.map(lambda file: _why_not(file, load), files))
    readable = [index for index, why in enumerate(reasons) if not why]
    return readable, [(index, why) for index, why in enumerate(reasons) if why]


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()  # registers every format of this build, which a look-up by name does not
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _reason(file: Path, error: Exception) -> str:
    if file.suffix.lower() == ".pdf":
        return "a PDF is not an image: render its pages first"
    if isinstance(error, UnidentifiedImageError):
        return f"not an image of {', '.join(_formats())}"
    return f"cannot be decoded ({type(error).__name__}: {error})"


def _why_not(file: Path, load: Callable[[Path], object]) -> str:
    try:
        load(file)
    except BadData as error:
        return str(error)
    return ""


def _from_folders(data: Path) -> Iterator[ImageExample]:
    parts = [folder for folder in _folders(data) if folder.name.lower() in _SPLITS and _folders(folder)]
    if parts and len(parts) == len(_folders(data)):
        for part in parts:
            yield from _classes(part, _SPLITS[part.name.lower()])
    else:
        yield from _classes(data, "")


def _classes(folder: Path, split: str) -> Iterator[ImageExample]:
    for one in _folders(folder):
        files = (file for file in one.rglob("*") if file.is_file() and not _hidden(file.relative_to(one)))
        yield from (ImageExample(file, one.name, split) for file in sorted(files))


def _folders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts) or path.name.lower() in ("thumbs.db", "desktop.ini")


def _from_list(file: Path) -> list[ImageExample]:
    return [_example(place, file.parent, row) for place, row in read_rows(file)]


def _example(place: str, folder: Path, row: Mapping[str, Any]) -> ImageExample:
    name = next((str(row[field]) for field in _FILE_FIELDS if row.get(field)), "")
    label, split = str(row.get("label", "")).strip(), str(row.get("split") or "").strip().lower()
    if not name or not label:
        raise BadData(f"{place}: no {'label' if name else 'file'}; the fields are {', '.join(row)}")
    if split and split not in _SPLITS:
        raise BadData(f"{place}: split {split!r} is none of {', '.join(_SPLITS)}")
    return ImageExample(folder / name, label, _SPLITS.get(split, ""))


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001  # broken EXIF raises anything; the pixels are sound
        return image


def _rgb(image: Image.Image) -> Image.Image:
    """On white, as paper is; 16 bits and floats brought down to 8 instead of cut off."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        most = 255.0 if values.max(initial=0) <= 255 else max(65535.0, values.max())
        most = 1.0 if image.mode == "F" and values.max(initial=0) <= 1 else most
        image = Image.fromarray((np.clip(np.nan_to_num(values) / most, 0, 1) * 255).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return image.convert("RGB")
