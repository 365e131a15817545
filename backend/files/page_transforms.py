"""Affine transforms from an upright page, or an image with its EXIF orientation, to a PDF page's user space."""

from __future__ import annotations

from dataclasses import dataclass

# EXIF orientation (Exif 2.32, tag 0x0112) -> what makes it upright: mirror left to right first, then degrees clockwise.
EXIF_TURNS = {
    1: (False, 0),
    2: (True, 0),
    3: (False, 180),
    4: (True, 180),
    5: (True, 270),
    6: (False, 90),
    7: (True, 90),
    8: (False, 270),
}


@dataclass(frozen=True, slots=True)
class Matrix:
    """x' = a x + c y + e, y' = b x + d y + f, as in PDF (ISO 32000-1, 8.3.3)."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    def then(self, other: Matrix) -> Matrix:
        """The composition: this transform first, then the other."""
        return Matrix(
            self.a * other.a + self.b * other.c,
            self.a * other.b + self.b * other.d,
            self.c * other.a + self.d * other.c,
            self.c * other.b + self.d * other.d,
            self.e * other.a + self.f * other.c + other.e,
            self.e * other.b + self.f * other.d + other.f,
        )


# Clockwise turns of the unit square onto itself, y upwards.
_TURNS = {
    0: Matrix(1, 0, 0, 1, 0, 0),
    90: Matrix(0, -1, 1, 0, 0, 1),
    180: Matrix(-1, 0, 0, -1, 1, 1),
    270: Matrix(0, 1, -1, 0, 1, 0),
}
_MIRROR = Matrix(-1, 0, 0, 1, 1, 0)


def image_matrix(exif: int, width: float, height: float) -> Matrix:
    """Places an image (a unit square in PDF) upright on a page of this size, according to its EXIF orientation.

    Args:
        exif: the tag's value, 1 to 8; anything else is 1.
    """
    mirrored, turn = EXIF_TURNS.get(exif, (False, 0))
    start = _MIRROR if mirrored else _TURNS[0]
    return start.then(_TURNS[turn]).then(Matrix(width, 0, 0, height, 0, 0))


def upright_to_page(visible: tuple[float, float, float, float], rotate: int, width: float, height: float) -> Matrix:
    """Maps units of the upright page, y downwards, to the user space of a PDF page.

    Args:
        visible: the visible part of user space: left, bottom, right, top; y upwards.
        rotate: the upright page's /Rotate, 0 to 270.
        width: of the upright page, in units of its words; ``height`` likewise.
    """
    to_square = Matrix(1 / width, 0, 0, -1 / height, 0, 1)
    left, low, right, high = visible
    return to_square.then(_TURNS[-rotate % 360]).then(Matrix(right - left, 0, 0, high - low, left, low))
