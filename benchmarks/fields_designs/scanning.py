"""Makes a scan of a PDF: 200 dpi, turned, shaded, blurred, noisy, JPEG."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import numpy as np
import pypdfium2
from PIL import Image, ImageFilter

DPI = 200


def scan(pdf: Path, stem: Path, random: Random) -> Path:
    """Write the scan beside the other files, as ``stem.jpg``, or as an image-only ``stem.pdf`` of several pages."""
    with pypdfium2.PdfDocument(pdf) as document:
        pages = [_worn(page.render(scale=DPI / 72).to_pil().convert("L"), random) for page in document]
    if len(pages) == 1:
        target = stem.with_name(stem.name + ".jpg")
        pages[0].save(target, quality=random.randrange(45, 80), dpi=(DPI, DPI))
    else:
        target = stem.with_name(stem.name + ".pdf")
        pages[0].save(target, save_all=True, append_images=pages[1:], resolution=DPI, quality=random.randrange(55, 80))
    return target


def _worn(page: Image.Image, random: Random) -> Image.Image:
    """One sheet after a cheap scanner."""
    angle = random.choice((-1, 1)) * random.uniform(0.3, 2.0)
    page = page.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor=248)
    page = page.filter(ImageFilter.GaussianBlur(random.uniform(0.3, 1.0)))
    pixels = np.asarray(page, dtype=np.float32)
    noise = np.random.default_rng(random.randrange(2**32))
    rows, columns = pixels.shape
    light = np.linspace(1.0, random.uniform(0.78, 0.97), columns, dtype=np.float32)
    if random.random() < 0.5:
        light = light[::-1]
    contrast = random.uniform(0.75, 0.95)
    grain = noise.normal(0, random.uniform(2, 9), (rows, columns))
    shaded = (255 - (255 - pixels) * contrast) * light + grain
    page = Image.fromarray(np.clip(shaded, 0, 255).astype(np.uint8))
    again = io.BytesIO()
    page.save(again, "jpeg", quality=random.randrange(50, 85))
    return Image.open(again)
