"""How channels become one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.files.audio_file import mixed

RATE = 16_000
VOICE = np.sin(2 * np.pi * 300 * np.arange(RATE) / RATE).astype(np.float32)
OTHER = np.sin(2 * np.pi * 470 * np.arange(RATE) / RATE).astype(np.float32)
SILENCE = np.zeros(RATE, np.float32)


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        pytest.param([VOICE], VOICE, id="one-is-taken-as-it-is"),
        pytest.param([VOICE, VOICE], VOICE, id="equal-ones"),
        pytest.param([VOICE, OTHER], (VOICE + OTHER) / 2, id="both-sides-of-a-call"),
        pytest.param([VOICE, SILENCE], VOICE / 2, id="one-side-speaks"),
        pytest.param([VOICE, -VOICE], VOICE, id="opposite-phase-is-not-lost"),
        pytest.param([0.9 * VOICE, -VOICE], -VOICE, id="nearly-opposite-takes-the-loudest"),
        pytest.param([SILENCE] * 5 + [VOICE], VOICE, id="one-of-six"),
        pytest.param([SILENCE, SILENCE], SILENCE, id="silence"),
    ],
)
def test_mixed(channels: list[NDArray[np.float32]], expected: NDArray[np.float32]):
    """The mean, unless it loses what the loudest channel has."""
    assert np.allclose(expected, mixed(np.stack(channels, axis=1)), atol=1e-6)
