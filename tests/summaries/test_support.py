"""Which sentences a written one rests on, from cosines and numbers alone."""

import numpy as np
import pytest

from backend.summaries.service import NEAR, supported
from backend.summaries.writers import Reading

SENTENCES = ("La venta subió 12 puntos.", "El gasto bajó 34 puntos.", "Llueve 56 días.")
READING = Reading(" ".join(SENTENCES), ((0, 25), (26, 50), (51, 66)), SENTENCES, 1.0)


@pytest.mark.parametrize(
    ("written", "cosines", "rests_on", "unsupported"),
    [
        pytest.param("La venta subió 12.", (0.9, 0.6, 0.0), [0], False, id="one"),
        pytest.param("La venta subió 12 y el gasto bajó 34.", (0.9, 0.6, 0.0), [0, 1], False, id="two-joined"),
        pytest.param("La venta subió 12 y llovió 56.", (0.9, 0.6, 0.0), [0], True, id="a-number-of-a-sentence-far-off"),
        pytest.param("La venta subió 99.", (0.9, 0.6, 0.0), [0], True, id="a-number-of-none"),
        pytest.param("Otra cosa.", (0.2, 0.1, 0.0), [], True, id="none-is-near"),
    ],
)
def test_a_number_may_be_of_any_near_sentence(
    written: str, cosines: tuple[float, ...], rests_on: list[int], unsupported: bool
) -> None:
    """The one that has it is named too, though others are nearer."""
    found = supported(written, np.array(cosines), READING, 0.0, NEAR)

    assert [SENTENCES[index] for index in rests_on] == [source.text for source in found.based_on]
    assert unsupported == found.unsupported
