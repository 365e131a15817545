"""Mixes the channels of a recording into one, so that nothing that is said in any of them is lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LOST_RATIO = 0.1  # energy of the mean to that of the loudest channel; below it the channels cancel each other out
_WEIGHED_EVERY = 7  # samples: enough to compare energies, at a seventh of the cost


def mixed(channels: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of the channels, or the loudest of them alone where the mean has hardly any of its energy left.

    That is so where channels are in opposite phase (a microphone's balanced cable that was taken for stereo: the mean
    is silence), and where one of four channels or more is all that is heard. A speaker on either side of a telephone
    call stays in the mean, at half of the amplitude.

    Args:
        channels: (samples, channels), about a second of them: the choice is made for all of them together.
    """
    count = channels.shape[1]
    if count == 1:
        return channels[:, 0]
    some = np.ascontiguousarray(channels[::_WEIGHED_EVERY])
    energies = np.einsum("nc,nc->c", some, some)
    loudest = int(energies.argmax())
    weights = np.full(count, 1.0 / count, np.float32)
    mean = some @ weights
    if float(mean @ mean) < _LOST_RATIO * float(energies[loudest]):
        return channels[:, loudest]
    return channels @ weights
