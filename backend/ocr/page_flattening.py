"""How the text lines of a page slope and bend, from the lines themselves, and points levelled by it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # (points, 2): x and y
Segments = NDArray[np.float64]  # (segments, 2, 2): x and y of the start and the end, left to right

_MIN_ASPECT = 3.0  # length to height of a line whose slope counts: that of a short word is chance
_MAX_SLOPE = 0.4  # steeper lines are stamps and slanting notes, not the page's
# Powers of x and y in the slope: a skewed page has the first, a keystoned one y, a page curled to its spine x and x^2.
_POWERS = ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1))
# Weight of "the page has one slope, and this", in lines as long as the text is wide.
_SLOPE_STIFFNESS = 0.02
# Weight of "the page has no curl". Stiff, for a lone column of short words shows none: soft, flat made receipts kept
# 76 % of their words' successors instead of all. Wavy receipts need it soft: CER 0.076 stiff, 0.054 by choice.
STIFF, SOFT = 0.5, 0.005
_OUTLIER = 0.01  # slope by which a line may differ from its neighbours before it counts less
_ROUNDS = 4
_ENOUGH_LINES = 1.0  # of the width that the text covers, squared and summed: from then on lines show the page's slope
_MOST_SKEW = 0.1  # slope of a page of short pieces
_SKEW_STEP = 0.0025
_LEVEL = 0.15  # of a piece's height: pieces this far apart are level
_EDGE = 0.1  # of a piece's height: starts this far apart are on one edge
_LIKELIER = 1.15  # times: edges that run as the lines slope, or not at all


class Slopes(NamedTuple):
    """Where text lines are straight enough to show how the page slopes there."""

    segments: Segments
    lengths: NDArray[np.float64]  # (segments,): pixels across of the line that each is a part of

    def with_gaps(self, gaps: Segments) -> Slopes:
        """These and the gaps between neighbours in a row."""
        across = gaps[:, 1, 0] - gaps[:, 0, 0]
        return Slopes(np.concatenate([self.segments, gaps]), np.concatenate([self.lengths, across]))

    def weights(self, width: float) -> NDArray[np.float64]:
        """(segments,): how much each one tells; those of a line of this width make 1 together.

        The ends of a line are a pixel or two off, so the variance of its slope falls with its length squared.
        """
        across = self.segments[:, 1, 0] - self.segments[:, 0, 0]
        return np.maximum(across, 1.0) * np.maximum(self.lengths, 1.0) / width**2


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


def fit_flattening(slopes: Slopes, prior_slope: float, stiffness: float) -> Flattening:
    """The flattening that fits the slopes; those at odds with the others hardly count.

    Args:
        prior_slope: of a page with too few of them, pixels down per pixel to the right.
        stiffness: `STIFF` or `SOFT`.
    """
    segments = slopes.segments
    if not len(segments):
        return Flattening((0.0, 0.0), (1.0, 1.0), np.array([prior_slope, *[0.0] * (len(_POWERS) - 1)]))
    (left, top), (right, bottom) = segments.min(axis=(0, 1)), segments.max(axis=(0, 1))
    middle = (float(left + right) / 2, float(top + bottom) / 2)
    radius = (max(1.0, float(right - left) / 2), max(1.0, float(bottom - top) / 2))
    across, down = (segments[:, 1] - segments[:, 0]).T
    across = np.maximum(across, 1.0)
    x, v = ((segments.mean(axis=1) - middle) / radius).T
    powers = np.stack([x**i * v**j for i, j in _POWERS], axis=1)
    prior = np.array([prior_slope, *[0.0] * (len(_POWERS) - 1)])
    stiff = np.diag([_SLOPE_STIFFNESS, *[stiffness] * (len(_POWERS) - 1)])
    return Flattening(middle, radius, _robust_fit(powers, down / across, slopes.weights(2 * radius[0]), prior, stiff))


def slopes_of(lines: Sequence[Points], heights: Sequence[float]) -> Slopes:
    """The slopes of the lines that are long enough to show one.

    Args:
        lines: points along the middle of each line, left to right, at least two.
        heights: of the lines, in the same pixels.
    """
    long_lines = [line for line, height in zip(lines, heights, strict=True) if _is_long(line, height)]
    segments = [np.stack([line[:-1], line[1:]], axis=1) for line in long_lines]
    lengths = [np.full(len(line) - 1, line[-1, 0] - line[0, 0]) for line in long_lines]
    return Slopes(np.concatenate([np.zeros((0, 2, 2)), *segments]), np.concatenate([np.zeros(0), *lengths]))


def prior_slope(slopes: Slopes, middles: Points, height: float) -> float:
    """One slope for the page: the weighted median of its long lines, else the one at which most pieces are level.

    Args:
        middles: of all pieces.
        height: median of the pieces.
    """
    if not len(middles):
        return 0.0
    weights = slopes.weights(max(1.0, float(np.ptp(middles[:, 0]))))
    if weights.sum() >= _ENOUGH_LINES:
        across, down = (slopes.segments[:, 1] - slopes.segments[:, 0]).T
        tangents = down / np.maximum(across, 1.0)
        order = np.argsort(tangents)
        return float(tangents[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])
    candidates = np.arange(-_MOST_SKEW, _MOST_SKEW + 1e-9, _SKEW_STEP)
    levels = middles[:, 1] - candidates[:, None] * middles[:, 0]
    together = np.array([count_level(level, height) for level in levels])
    return float(candidates[np.argmax(together - 1e-3 * np.abs(candidates))])


def count_level(levels: NDArray[np.float64], height: float) -> float:
    """How many neighbours, from top to bottom, are level with each other.

    Args:
        levels: (pieces,), their heights on the page.
        height: median of the pieces.
    """
    return _count_near(levels, _LEVEL * max(1.0, height))


def slant_of(starts: Points, slope: float, height: float) -> float:
    """Pixels to the right per pixel up at which the edges of columns run.

    As the page's lines slope, where it was rotated; not at all, where it is curled or sheared; else, where it was
    photographed or has been deskewed by half, the one at which clearly more of its pieces begin on one edge.

    Args:
        starts: left ends of all pieces on the levelled page.
        slope: of the lines in the middle of the page.
        height: median of the pieces.
    """
    candidates = np.array([slope, 0.0, *np.arange(-_MOST_SKEW, _MOST_SKEW, _SKEW_STEP)])
    tolerance = _EDGE * max(1.0, height)
    together = np.array([_count_near(starts[:, 0] + slant * starts[:, 1], tolerance) for slant in candidates])
    together[:2] *= _LIKELIER
    return float(candidates[np.argmax(together)])


def _count_near(positions: NDArray[np.float64], tolerance: float) -> float:
    return float(np.exp(-((np.diff(np.sort(positions)) / tolerance) ** 2)).sum())


def _is_long(line: Points, height: float) -> bool:
    across, down = line[-1] - line[0]
    return bool(across > _MIN_ASPECT * max(1.0, height) and abs(down) < _MAX_SLOPE * across)


def _robust_fit(
    powers: NDArray[np.float64],
    slopes: NDArray[np.float64],
    weights: NDArray[np.float64],
    prior: NDArray[np.float64],
    stiffness: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Least squares around the prior; outliers (Huber's) have less weight in each round."""
    fitted = prior.copy()
    for _ in range(_ROUNDS):
        residuals = np.abs(slopes - powers @ fitted)
        weighted = powers * (weights * np.minimum(1.0, _OUTLIER / np.maximum(residuals, 1e-9)))[:, None]
        fitted[:] = np.linalg.solve(weighted.T @ powers + stiffness, weighted.T @ slopes + stiffness @ prior)
    return fitted
