"""Opens an image file with Pillow or libheif: metadata and pixels of its pages. Runs in the workers only."""

from __future__ import annotations

import io
import math
import mmap
import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL import ImageFile as PillowImageFile

from backend.errors import TooLarge, UnreadableFile
from backend.files.file_types import FileType
from backend.files.limits import SMALLER_IMAGE_ADVICE, FileLimits, check_pixels
from backend.files.records import MAX_SIZES, Framing, PageSize
from backend.files.stored_file import MappedFile
from backend.reasons import because

_TRANSPOSES = {
    90: Image.Transpose.ROTATE_270,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}  # clockwise


def turned(image: Image.Image, degrees: int) -> Image.Image:
    """The image turned clockwise by a multiple of 90 degrees."""
    degrees %= 360
    return image.transpose(_TRANSPOSES[degrees]) if degrees else image


def framed(image: Image.Image, framing: Framing, limits: FileLimits, number: int) -> NDArray[np.uint8]:
    """The page as the model takes it.

    Args:
        image: gray or RGB, upright.
        number: of the page, for messages.

    Shapes: (height, width_px, 3) of ``framing.size``.

    Raises: TooLarge for a strip of which a copy in the model's proportions would have too many pixels.
    """
    height, width_px = framing.resized(image.height, image.width)
    if height * width_px > limits.render_pixels:
        raise TooLarge(
            f"page {number}: pixels of {image.width} x {image.height} as the image model resizes them",
            height * width_px,
            limits.render_pixels,
            "LIMIT_RENDER_PIXELS",
            advice="Send the page without most of its length.",
            param="file",
        )
    resized = image.resize((width_px, height), Image.Resampling(framing.resample))
    pixels = np.asarray(resized.convert("RGB"))
    return np.ascontiguousarray(pixels if framing.crop is None else _cropped(pixels, *framing.crop))


def _cropped(pixels: NDArray[np.uint8], height: int, width_px: int) -> NDArray[np.uint8]:
    """The middle; black around it where the page is smaller. As transformers' ``center_crop`` rounds."""
    for axis, wanted in ((0, height), (1, width_px)):
        have = pixels.shape[axis]
        if have < wanted:
            before = math.ceil((wanted - have) / 2)
            around = [(0, 0)] * 3
            around[axis] = (before, wanted - have - before)
            pixels = np.pad(pixels, around)
        else:
            first = (have - wanted) // 2
            pixels = pixels.take(range(first, first + wanted), axis=axis)
    return pixels


_FORMATS = {
    FileType.PNG: ["PNG"], FileType.JPEG: ["JPEG"], FileType.TIFF: ["TIFF"], FileType.WEBP: ["WEBP"],
    FileType.BMP: ["BMP", "DIB"], FileType.GIF: ["GIF"], FileType.HEIC: ["HEIF"],
}  # fmt: skip
# What Pillow raises on broken files. Not MemoryError, which has an answer of its own.
_BROKEN = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, SyntaxError, TypeError, ValueError,
    struct.error,
)  # fmt: skip
_ORIENTATION, _NEW_SUBFILE_TYPE = 0x0112, 0x00FE  # TIFF 6.0 tags
_REDUCED = 1  # bit of NewSubfileType: a thumbnail of another page
_DPI_RANGE = (20.0, 5000.0)  # outside, the stated resolution is a default or an error
_SQUARE = 1.15  # ratio of resolutions up to which pixels count as square; a fax has 204 x 98
# EXIF orientation (Exif 2.32, tag 0x0112) -> what makes it upright: mirror left to right first, then degrees clockwise.
EXIF_TURNS = {
    1: (False, 0), 2: (True, 0), 3: (False, 180), 4: (True, 180), 5: (True, 270), 6: (False, 90), 7: (True, 90),
    8: (False, 270),
}  # fmt: skip
_SIXTEEN_BIT = frozenset({"I;16", "I;16B", "I;16L", "I;16N", "I", "F"})
_GRAY = frozenset({"1", "L", "LA", "La"}) | _SIXTEEN_BIT


class ImageFile:
    """An image file whose header was read. For one thread."""

    def __init__(self, data: mmap.mmap, kind: FileType, limits: FileLimits) -> None:
        self._data, self.kind, self._limits = data, kind, limits
        # Pillow raises above twice this, also while decoding a frame that is larger than the header said
        Image.MAX_IMAGE_PIXELS = max(1, limits.page_pixels // 2)
        if kind is FileType.HEIC:
            import pillow_heif  # several megabytes that few uploads need

            pillow_heif.register_heif_opener(thumbnails=False)
        with self._opened() as image:
            self._frames = _frames(image) if kind is FileType.TIFF else [0]

    def info(self) -> dict[str, Any]:
        """Page count, sizes of the first pages, metadata."""
        sizes = []
        with self._opened() as image:
            metadata = _metadata(image)
            for index, frame in enumerate(self._frames):
                if frame:
                    image.seek(frame)
                size = _upright_size(image)
                check_pixels(*image.size, self._limits, index + 1)
                sizes.append((size.width, size.height))
        return {"page_count": len(self._frames), "sizes": sizes, "metadata": metadata}

    def render(self, number: int, turn: int, *, color: bool, most_pixels: int) -> dict[str, Any]:
        """A page (from 1), upright by its EXIF orientation and then turned clockwise.

        Returns: ``pixels`` (height, width_px) uint8 or (height, width_px, 3); ``width`` and ``height`` of the page in
        its own pixels; ``scale_x``, ``scale_y``; ``dpi`` or None; ``incomplete``.
        """
        image, incomplete = self._decoded(number)
        mirrored, upright = EXIF_TURNS[exif_orientation(image)]
        dpi = _dpi(image)
        gray = image.mode in _GRAY or not color
        page = _eight_bit(image, gray=gray)
        size = page.size
        page = _with_square_pixels(page, dpi, most_pixels)
        scale = (page.width / size[0], page.height / size[1])
        pixels = np.asarray(page)
        if mirrored:
            pixels = pixels[:, ::-1]
        degrees = (upright + turn) % 360
        pixels = np.ascontiguousarray(np.rot90(pixels, -degrees // 90))
        if degrees % 180:
            size, scale = size[::-1], scale[::-1]
        return {
            "pixels": pixels,
            "width": size[0],
            "height": size[1],
            "scale_x": scale[0],
            "scale_y": scale[1],
            "dpi": max(dpi) * min(scale) if dpi else None,
            "incomplete": incomplete,
        }

    def upright(self, number: int, turn: int) -> tuple[Image.Image, str]:
        """A page (from 1) in gray or RGB with its own pixels, turned as by `render`; and what is missing of it."""
        image, incomplete = self._decoded(number)
        mirrored, upright = EXIF_TURNS[exif_orientation(image)]
        page = _eight_bit(image, gray=image.mode in _GRAY)
        if mirrored:
            page = page.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return turned(page, upright + turn), incomplete

    def close(self) -> None:
        """Nothing is held open between calls."""

    def _opened(self) -> Image.Image:
        try:
            return Image.open(_view(self._data, self.kind), formats=_FORMATS[self.kind])
        except Image.DecompressionBombError as error:  # of a frame that is larger than the header says, too
            raise _too_many_pixels(error, self._limits) from error
        except _BROKEN as error:
            raise UnreadableFile(f"file: it begins like {self.kind.upper()} but is broken: {_reason(error)}") from error

    def _decoded(self, number: int) -> tuple[Image.Image, str]:
        """The decoded frame, and a sentence on what is missing. Of a truncated file, what is there is decoded."""
        for tolerant in (False, True):
            PillowImageFile.LOAD_TRUNCATED_IMAGES = tolerant
            image = self._opened()
            try:
                if self._frames[number - 1]:
                    image.seek(self._frames[number - 1])
                check_pixels(*image.size, self._limits, number)
                image.load()
            except Image.DecompressionBombError as error:
                raise _too_many_pixels(error, self._limits) from error
            except _BROKEN as error:
                if tolerant:
                    raise UnreadableFile(
                        f"page {number}: the image cannot be decoded: {_reason(error)}", page=number
                    ) from error
                continue
            finally:
                PillowImageFile.LOAD_TRUNCATED_IMAGES = False
            return image, because("image_cut_off") if tolerant else ""
        raise AssertionError("the second attempt returns or raises")


def _view(data: mmap.mmap, kind: FileType) -> Any:
    """A file object with its own position; libheif needs the bytes in memory."""
    return io.BytesIO(data[:]) if kind is FileType.HEIC else MappedFile(data)


def _frames(image: Image.Image) -> list[int]:
    """The frames of a TIFF that are pages: not the thumbnails among them."""
    frames = []
    for index in range(MAX_SIZES):
        try:
            image.seek(index)
        except _BROKEN:
            break  # the end, or a broken directory, after which nothing can be found
        kind = image.tag_v2.get(_NEW_SUBFILE_TYPE, 0)  # type: ignore[attr-defined]  # TIFF only
        if not (isinstance(kind, int) and kind & _REDUCED):
            frames.append(index)
    return frames or [0]


def _metadata(image: Image.Image) -> dict[str, str]:
    metadata = {"mode": image.mode}
    if (frames := _frame_count(image)) > 1:
        metadata["frames"] = str(frames)  # only the first frame of an animation is read
    if dpi := _dpi(image):
        metadata["dpi"] = f"{dpi[0]:g}" if dpi[0] == dpi[1] else f"{dpi[0]:g} x {dpi[1]:g}"
    return metadata


def _frame_count(image: Image.Image) -> int:
    """The frames of an animation; 1 where a later one is too broken to count them: the first is the page."""
    try:
        return int(getattr(image, "n_frames", 1) or 1)
    except _BROKEN:
        return 1


def _upright_size(image: Image.Image) -> PageSize:
    width, height = image.size
    _, degrees = EXIF_TURNS[exif_orientation(image)]
    return PageSize(height, width) if degrees % 180 else PageSize(width, height)


def exif_orientation(image: Image.Image) -> int:
    """1 to 8; 1, as stored, where the file tells none."""
    if image.format == "TIFF":  # Pillow applies the orientation itself
        return 1
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001  # broken EXIF raises errors of any kind, and is no reason to refuse the image
        return 1
    return value if value in EXIF_TURNS else 1


def _dpi(image: Image.Image) -> tuple[float, float] | None:
    """Horizontal and vertical resolution as stored; None where it is absent or implausible."""
    try:
        across, down = (float(value) for value in image.info["dpi"][:2])
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError, IndexError):
        return None
    if not all(_DPI_RANGE[0] <= value <= _DPI_RANGE[1] for value in (across, down)):
        return None
    return round(across, 2), round(down, 2)


def _eight_bit(image: Image.Image, *, gray: bool) -> Image.Image:
    """As 8-bit gray or RGB, transparent parts on white."""
    if image.mode in _SIXTEEN_BIT:
        return Image.fromarray(_from_deep_gray(np.asarray(image)))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    elif image.mode not in ("1", "L", "RGB"):
        image = image.convert("RGB")  # CMYK, YCbCr, LAB, HSV, P
    return image.convert("L" if gray else "RGB")


def _from_deep_gray(values: NDArray[Any]) -> NDArray[np.uint8]:
    """16-bit or float gray as 8 bit: the high byte where all 16 bits are used, else stretched from least to most."""
    if values.dtype.kind == "u" and values.dtype.itemsize == 2 and int(values.max(initial=0)) > 0x0FFF:
        return (values >> 8).astype(np.uint8)
    numbers = np.nan_to_num(values.astype(np.float32))
    least, most = float(numbers.min(initial=0)), float(numbers.max(initial=0))
    return ((numbers - least) * (255.0 / max(most - least, 1e-6))).astype(np.uint8)


def _with_square_pixels(image: Image.Image, dpi: tuple[float, float] | None, most_pixels: int) -> Image.Image:
    """Enlarge the coarser axis where pixels are not square (a fax), and shrink where there are too many."""
    width, height = float(image.width), float(image.height)
    if dpi and max(dpi) / min(dpi) > _SQUARE:
        width, height = width * max(dpi) / dpi[0], height * max(dpi) / dpi[1]
    shrink = min(1.0, math.sqrt(most_pixels / (width * height)))
    size = (max(1, int(width * shrink)), max(1, int(height * shrink)))
    if size == image.size:
        return image
    return image.resize(size, Image.Resampling.BICUBIC if shrink == 1.0 else Image.Resampling.BOX)


def _too_many_pixels(error: Image.DecompressionBombError, limits: FileLimits) -> TooLarge:
    match = re.search(r"\d+", str(error))  # "Image size (400000000 pixels) exceeds limit of …"
    pixels = int(match[0]) if match else limits.page_pixels + 1
    return TooLarge(
        "file: pixels", pixels, limits.page_pixels, "LIMIT_PAGE_PIXELS", advice=SMALLER_IMAGE_ADVICE, param="file"
    )


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
