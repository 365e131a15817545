"""How the text lines of a page slope and bend, from the lines themselves, and points levelled by it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # (points, 2): x and y
Segments = NDArray[np.float64]  # (segments, 2, 2): x and y of the start and the end, left to right

_MIN_ASPECT = 3.0  # length to height of a line whose slope counts: that of a short word is chance
_MAX_SLOPE = 0.4  # steeper lines are stamps and slanting notes, not the page's
# Powers of x and y in the slope: a skewed page has the first, a keystoned one y, a page curled to its spine x and x^2.
_POWERS = ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1))
# Weight of "the page has one slope", in lines as long as the text is wide; a lone column of short words shows no curl.
_STIFFNESS = (0.02, 0.5, 0.5, 0.5, 0.5, 0.5)
_OUTLIER = 0.01  # slope by which a line may differ from its neighbours before it counts less
_ROUNDS = 4
_ENOUGH_LINES = 1.0  # of the width that the text covers, squared and summed: from then on lines show the page's slope
_MOST_SKEW = 0.1  # slope of a page of short pieces
_SKEW_STEP = 0.0025
_LEVEL = 0.15  # of a piece's height: pieces this far apart are level


@dataclass(frozen=True, slots=True)
class Flattening:
    """The vertical distance of every point from where its line would be on a level page.

    A line that meets the page's middle at the height v lies at y = v + d(x, v), d a polynomial without constant term.
    """

    middle: tuple[float, float]  # x, y
    radius: tuple[float, float]  # half of the width and height that the lines cover
    slopes: NDArray[np.float64]  # (powers,): of the slope as a polynomial in x and v, both from -1 to 1

    def level(self, points: Points) -> Points:
        """The points on the levelled page: x as it is, y as high as their lines are at the page's middle."""
        x = (points[:, 0] - self.middle[0]) / self.radius[0]
        level = points[:, 1]
        for _ in range(2):  # d changes slowly with v
            v = np.clip((level - self.middle[1]) / self.radius[1], -1, 1)
            columns = [x ** (i + 1) / (i + 1) * v**j for i, j in _POWERS]
            level = points[:, 1] - self.radius[0] * (np.stack(columns, axis=1) @ self.slopes)
        return np.stack([points[:, 0], level], axis=1)


def fit_flattening(segments: Segments, prior_slope: float) -> Flattening:
    """The slopes that fit the segments; those at odds with the others hardly count.

    Args:
        segments: parts of text lines that are straight enough; long ones count more.
        prior_slope: of a page with too few of them, pixels down per pixel to the right.
    """
    if not len(segments):
        return Flattening((0.0, 0.0), (1.0, 1.0), np.array([prior_slope, *[0.0] * (len(_POWERS) - 1)]))
    (left, top), (right, bottom) = segments.min(axis=(0, 1)), segments.max(axis=(0, 1))
    middle = (float(left + right) / 2, float(top + bottom) / 2)
    radius = (max(1.0, float(right - left) / 2), max(1.0, float(bottom - top) / 2))
    across, down = (segments[:, 1] - segments[:, 0]).T
    across = np.maximum(across, 1.0)
    x, v = ((segments.mean(axis=1) - middle) / radius).T
    powers = np.stack([x**i * v**j for i, j in _POWERS], axis=1)
    return Flattening(middle, radius, _robust_fit(powers, down / across, (across / (2 * radius[0])) ** 2, prior_slope))


def long_segments(lines: Sequence[Points], heights: Sequence[float]) -> Segments:
    """The segments of the lines that are long enough to show a slope.

    Args:
        lines: points along the middle of each line, left to right, at least two.
        heights: of the lines, in the same pixels.
    """
    long_lines = [line for line, height in zip(lines, heights, strict=True) if _is_long(line, height)]
    segments = [np.stack([line[:-1], line[1:]], axis=1) for line in long_lines]
    return np.concatenate([np.zeros((0, 2, 2)), *segments])


def prior_slope(segments: Segments, middles: Points, height: float) -> float:
    """One slope for the page: the weighted median of its long lines, else the one at which most pieces are level.

    Args:
        middles: of all pieces.
        height: median of the pieces.
    """
    if not len(middles):
        return 0.0
    across, down = (segments[:, 1] - segments[:, 0]).T
    width = max(1.0, float(np.ptp(middles[:, 0])))
    weights = (across / width) ** 2
    if weights.sum() >= _ENOUGH_LINES:
        slopes = down / np.maximum(across, 1.0)
        order = np.argsort(slopes)
        return float(slopes[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])
    candidates = np.arange(-_MOST_SKEW, _MOST_SKEW + 1e-9, _SKEW_STEP)
    level = np.sort(middles[:, 1] - candidates[:, None] * middles[:, 0], axis=1)
    together = np.exp(-((np.diff(level, axis=1) / (_LEVEL * max(1.0, height))) ** 2)).sum(axis=1)
    return float(candidates[np.argmax(together - 1e-3 * np.abs(candidates))])


def _is_long(line: Points, height: float) -> bool:
    across, down = line[-1] - line[0]
    return bool(across > _MIN_ASPECT * max(1.0, height) and abs(down) < _MAX_SLOPE * across)


def _robust_fit(
    powers: NDArray[np.float64], slopes: NDArray[np.float64], weights: NDArray[np.float64], prior: float
) -> NDArray[np.float64]:
    """Least squares around a page of one slope; outliers (Huber's) have less weight in each round."""
    fitted = np.array([prior, *[0.0] * (len(_POWERS) - 1)])
    prior_fit = fitted
    stiffness = np.diag(_STIFFNESS)
    for _ in range(_ROUNDS):
        residuals = np.abs(slopes - powers @ fitted)
        weighted = powers * (weights * np.minimum(1.0, _OUTLIER / np.maximum(residuals, 1e-9)))[:, None]
        fitted = np.linalg.solve(weighted.T @ powers + stiffness, weighted.T @ slopes + stiffness @ prior_fit)
    return fitted
