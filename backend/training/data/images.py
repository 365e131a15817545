"""The pages of a document image data set: read, kept decoded, checked for unreadable ones, split for evaluation."""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from backend.errors import BadData
from backend.telemetry import log_event
from backend.training.data.texts import SPLIT_SEED, hold_out, read_rows
from backend.training.tasks.pretrained import Preprocessing

Pixels = NDArray[np.uint8]  # (height, width_px, 3), RGB
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "JPEG2000", "PPM", "AVIF")
PIXELS_MAX = 89_478_485  # Pillow's own bound against decompression bombs: a quarter of a GiB as RGB
CACHE_RATIO = 0.25  # of the memory this process may use; the rest is for model, optimizer and batches
_LISTS = ("labels.tsv", "labels.jsonl", "metadata.jsonl")  # the last is the datasets library's name
_FILE_FIELDS = ("file", "file_name", "image", "path")
_SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "val": "dev", "eval": "dev", "test": "dev"}
_THREADS_MAX = 8  # each may hold a page of PIXELS_MAX


@dataclass(frozen=True, slots=True)
class ImageExample:
    """An image file and its class."""

    file: Path
    label: str
    split: str = ""  # "train", "dev", or "" where the data has no split


@dataclass(frozen=True, slots=True)
class SkippedImage:
    """An image that cannot be read."""

    file: Path
    why: str  # one sentence


def read_examples(data: Path) -> list[ImageExample]:
    """List all examples in a fixed order, without opening any image.

    Args:
        data: a ``.tsv`` with a header or a ``.jsonl``, with ``file`` (relative to it) and ``label`` and perhaps
            ``split`` (train or dev); a folder with such a list as labels.tsv, labels.jsonl or metadata.jsonl; or a
            folder with one folder a class, perhaps under ``train`` and ``dev`` (or validation, val, eval, test).

    Raises: BadData without examples, or with file and line of an unusable row.
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
    """The first image of a file as upright RGB on white.

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


def resize(image: Image.Image, height: int, width_px: int, *, resample: int = Image.Resampling.BILINEAR) -> Pixels:
    """Resize the whole page without cropping, as ViT's image processor does: margins and letterheads stay visible."""
    return np.asarray(image.resize((width_px, height), Image.Resampling(resample)), dtype=np.uint8)


class ImageCache:
    """Keeps decoded images in memory up to a limit, for all epochs and threads; augmentation comes after it.

    Nothing is evicted: an epoch reads every image once in a new order, so a cache that holds a share of the images
    hits that share, where LRU eviction would hit about half its square. A limit of 0 turns the cache off.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.hits = 0
        self.misses = 0
        self._images: dict[Path, Pixels] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._images)

    def get(self, file: Path, load: Callable[[], Pixels]) -> Pixels:
        """The image of ``file``, loaded at most once while there is room. Callers must not write into it.

        Errors of ``load`` are not cached. Two threads may load the same image at once; one result is kept.
        """
        with self._lock:
            image = self._images.get(file)
            self.hits += image is not None
            self.misses += image is None
        if image is not None:
            return image
        image = load()
        image.flags.writeable = False
        with self._lock:
            if file not in self._images and self.held_bytes + image.nbytes <= self.limit_bytes:
                self._images[file] = image
                self.held_bytes += image.nbytes
        return image


def cache_limit_bytes(memory_bytes: int, requested_bytes: int | None = None, *, processes: int = 1) -> int:
    """Limit of the cache of one process: a quarter of the memory, or less where requested; 0 turns it off.

    Args:
        processes: of this run on this machine; each has its own cache.
    """
    share_bytes = int(memory_bytes * CACHE_RATIO) // max(1, processes)
    return share_bytes if requested_bytes is None else min(share_bytes, requested_bytes)


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()  # registers every format of this build; a look-up by name does not
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _reason(file: Path, error: Exception) -> str:
    if file.suffix.lower() == ".pdf":
        return "a PDF is not an image: render its pages first"
    if isinstance(error, UnidentifiedImageError):
        return f"not an image of {', '.join(_formats())}"
    return f"cannot be decoded ({type(error).__name__}: {error})"


def _from_folders(data: Path) -> Iterator[ImageExample]:
    splits = [folder for folder in _folders(data) if folder.name.lower() in _SPLITS and _folders(folder)]
    if splits and len(splits) == len(_folders(data)):
        for split_folder in splits:
            yield from _classes(split_folder, _SPLITS[split_folder.name.lower()])
    else:
        yield from _classes(data, "")


def _classes(folder: Path, split: str) -> Iterator[ImageExample]:
    for class_folder in _folders(folder):
        files = (path for path in class_folder.rglob("*") if path.is_file() and not _hidden(path, class_folder))
        yield from (ImageExample(file, class_folder.name, split) for file in sorted(files))


def _folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _hidden(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return any(part.startswith(".") for part in parts) or path.name.lower() in ("thumbs.db", "desktop.ini")


def _from_list(file: Path) -> list[ImageExample]:
    return [_example(location, file.parent, row) for location, row in read_rows(file)]


def _example(location: str, folder: Path, row: Mapping[str, Any]) -> ImageExample:
    name = next((str(row[field]) for field in _FILE_FIELDS if row.get(field)), "")
    label, split = str(row.get("label", "")).strip(), str(row.get("split") or "").strip().lower()
    if not name or not label:
        raise BadData(f"{location}: no {'label' if name else 'file'}; the fields are {', '.join(row)}")
    if split and split not in _SPLITS:
        raise BadData(f"{location}: split {split!r} is none of {', '.join(_SPLITS)}")
    return ImageExample(folder / name, label, _SPLITS.get(split, ""))


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001  # broken EXIF raises anything; the pixels are sound
        return image


def _rgb(image: Image.Image) -> Image.Image:
    """As RGB on white; 16-bit and float images are scaled to 8 bits instead of clipped."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        white = 255.0 if values.max(initial=0) <= 255 else max(65535.0, values.max())
        white = 1.0 if image.mode == "F" and values.max(initial=0) <= 1 else white
        image = Image.fromarray((np.clip(np.nan_to_num(values) / white, 0, 1) * 255).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        background = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(background, layer).convert("RGB")
    return image.convert("RGB")


_log = logging.getLogger(__name__)
_FILES_IN_MESSAGE = 5  # files in one message


class PageStore:
    """Pages resized for the model, decoded at most once while the cache has room. Thread-safe."""

    def __init__(self, preprocessing: Preprocessing, cache: ImageCache) -> None:
        self.preprocessing = preprocessing
        self.cache = cache

    def pixels(self, file: Path) -> Pixels:
        """(height, width_px, 3) uint8, read-only. Raises: BadData for what cannot be read."""
        return self.cache.get(file, lambda: self._decoded(file))

    def _decoded(self, file: Path) -> Pixels:
        size = self.preprocessing
        return resize(decode(file), size.height, size.width_px, resample=size.resample)


@dataclass(frozen=True, slots=True)
class PageData:
    """The readable examples of a data set, split for training and evaluation."""

    labels: tuple[str, ...]  # of the training examples, in alphabetical order
    train: tuple[ImageExample, ...]
    evaluation: tuple[ImageExample, ...]
    skipped: tuple[SkippedImage, ...]  # unreadable files, in the order of the data
    origin: tuple[Path, ...]  # training data, and separate evaluation data if given

    @property
    def counts(self) -> tuple[int, ...]:
        """Training examples of each label."""
        counts = Counter(example.label for example in self.train)
        return tuple(counts[label] for label in self.labels)

    def target(self, example: ImageExample) -> int:
        """The class index of an example."""
        return self.labels.index(example.label)


def read_pages(
    data: Path, store: PageStore, *, evaluation: Path | None = None, held_out: float = 0.1, threads: int = 1
) -> PageData:
    """Read every page once, leave out unreadable ones, and split off the evaluation examples.

    Args:
        evaluation: separate evaluation data; else the examples of split dev in ``data``, else a share of each class.
        held_out: that share; identical images stay on one side. 0 for no evaluation.

    Raises: BadData without readable pages, for a single class, or an evaluation label that training does not have.
    """
    examples = read_examples(data)
    train = [example for example in examples if example.split != "dev"]
    evaluation_examples = [example for example in examples if example.split == "dev"]
    if evaluation is not None:
        evaluation_examples = read_examples(evaluation)
        marked = [example for example in evaluation_examples if example.split == "dev"]
        evaluation_examples = marked or evaluation_examples
    train, train_digests, skipped_train = _readable(train, store, threads)
    evaluation_examples, _, skipped_evaluation = _readable(evaluation_examples, store, threads)
    skipped = (*skipped_train, *skipped_evaluation)
    _log_skipped(skipped, len(train) + len(evaluation_examples))
    if not evaluation_examples and held_out and evaluation is None:
        strata = [example.label for example in train]
        held_out_indices = frozenset(hold_out(train_digests, share=held_out, seed=SPLIT_SEED, strata=strata))
        evaluation_examples = [example for index, example in enumerate(train) if index in held_out_indices]
        train = [example for index, example in enumerate(train) if index not in held_out_indices]
    labels = tuple(sorted({example.label for example in train}))
    _check(data, labels, evaluation_examples, skipped)
    origin = (data, evaluation) if evaluation else (data,)
    return PageData(labels, tuple(train), tuple(evaluation_examples), skipped, origin)


def _readable(
    examples: Sequence[ImageExample], store: PageStore, threads: int
) -> tuple[list[ImageExample], list[str], list[SkippedImage]]:
    """The readable examples, a digest of each one's pixels, and the unreadable files."""

    def digest(example: ImageExample) -> str | SkippedImage:
        try:
            return hashlib.blake2b(store.pixels(example.file).tobytes(), digest_size=16).hexdigest()
        except BadData as error:
            return SkippedImage(example.file, str(error))

    with ThreadPoolExecutor(max(1, min(threads, _THREADS_MAX)), thread_name_prefix="check-readable") as pool:
        results = list(pool.map(digest, examples))
    readable = [example for example, result in zip(examples, results, strict=True) if isinstance(result, str)]
    skipped = [result for result in results if isinstance(result, SkippedImage)]
    return readable, [result for result in results if isinstance(result, str)], skipped


def _log_skipped(skipped: Sequence[SkippedImage], readable: int) -> None:
    if skipped:
        log_event(
            _log,
            logging.WARNING,
            "images that cannot be read were left out",
            left_out=len(skipped),
            readable=readable,
            first=[f"{image.file.name}: {image.why}" for image in skipped[:_FILES_IN_MESSAGE]],
        )


def _check(
    data: Path, labels: Sequence[str], evaluation: Sequence[ImageExample], skipped: Sequence[SkippedImage]
) -> None:
    if len(labels) < 2:
        first_names = "; ".join(f"{image.file.name}: {image.why}" for image in skipped[:_FILES_IN_MESSAGE])
        cause = f"; {len(skipped)} images cannot be read: {first_names}" if skipped else ""
        raise BadData(
            f"{data} has {len(labels)} readable classes to learn ({', '.join(labels)}); at least 2 are needed{cause}"
        )
    for example in evaluation:
        if example.label not in labels:
            raise BadData(
                f"{example.file}: the evaluation data has the label {example.label!r}, "
                f"which no readable training image has ({', '.join(labels[:20])})"
            )
