"""Brings a page to an image model's size, bit for bit as transformers does with Pillow. Runs in the workers only."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from backend.errors import TooLarge
from backend.files.image_framing import Framing
from backend.files.limits import FileLimits

_TURNS = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}  # clockwise


def turned(image: Image.Image, degrees: int) -> Image.Image:
    """The image turned clockwise by a multiple of 90 degrees."""
    degrees %= 360
    return image.transpose(_TURNS[degrees]) if degrees else image


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
