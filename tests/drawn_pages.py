"""Small pages of three kinds that an image classifier can learn in seconds."""

import numpy as np
from PIL import Image, ImageDraw

KINDS = ("form", "invoice", "letter")


def page(kind: str, seed: int) -> Image.Image:
    """A page that can be told apart at 32 px, like no other of its kind."""
    random = np.random.default_rng([KINDS.index(kind), seed])
    image = Image.new("RGB", (90, 128), "white")
    draw, top = ImageDraw.Draw(image), int(random.integers(8))
    for y in range(30 + top, 120, 9):
        draw.line((8, y, 82 - int(random.integers(30)), y), fill="black", width=2)
    if kind == "invoice":
        draw.rectangle((45, 6, 84, 22 + top), fill="navy")
    if kind == "form":
        for x in range(10, 84, 14):
            draw.line((x, 30, x, 120), fill="black", width=3)
    return image
