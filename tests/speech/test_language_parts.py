"""A piece in which the language changes is cut in the pause between the two, and nothing of it is lost."""

import numpy as np
import pytest

from backend.files.speech_records import SAMPLE_RATE as RATE
from backend.speech.piece_runs import cut_by_language
from backend.speech.pieces import Stretch
from backend.speech.records import LanguageRun

LOUD = np.random.default_rng(0).normal(0, 3000, 12 * RATE).astype(np.int16)


def runs(*ends_s: tuple[str, float]) -> list[LanguageRun]:
    starts_s = [0.0, *(end_s for _, end_s in ends_s)]
    return [LanguageRun(code, start_s, end_s) for start_s, (code, end_s) in zip(starts_s, ends_s, strict=False)]


def seconds(*times: float) -> tuple[Stretch, ...]:
    return tuple(
        Stretch(round(start * RATE), round(end * RATE)) for start, end in zip(times[::2], times[1::2], strict=True)
    )


@pytest.mark.parametrize("said_s", [4.5, 5.0, 6.0])
def test_the_cut_is_in_the_longest_pause_that_is_near(said_s: float) -> None:
    """The model tells where the language changes to about a second; a longer pause far away does not count."""
    speech = seconds(0.0, 1.0, 2.5, 4.5, 4.7, 5.2, 6.0, 12.0)
    spanish, english = cut_by_language(runs(("es", said_s), ("en", 12.0)), LOUD, speech)

    assert ("es", 0, 5.6) == (spanish.code, spanish.start, spanish.end / RATE)
    assert ("en", 5.6, 12.0) == (english.code, english.start / RATE, english.end / RATE)
    assert seconds(0.0, 1.0, 2.5, 4.5, 4.7, 5.2) == spanish.stretches
    assert seconds(0.4, 6.4) == english.stretches


def test_without_a_pause_the_cut_is_where_it_is_quietest() -> None:
    """A short breath that the detector of speech left in."""
    samples = LOUD.copy()
    samples[round(6.4 * RATE) : round(6.6 * RATE)] //= 100
    spanish, english = cut_by_language(runs(("es", 6.0), ("en", 12.0)), samples, seconds(0.0, 12.0))

    assert pytest.approx(6.5, abs=0.1) == spanish.end / RATE
    assert 12 * RATE == sum(stretch.end - stretch.start for part in (spanish, english) for stretch in part.stretches)


@pytest.mark.parametrize(
    ("several", "speech"),
    [
        pytest.param([("th", 0.6), ("es", 6.0), ("en", 12.0)], (0.0, 0.5, 1.0, 5.5, 6.5, 12.0), id="first"),
        pytest.param([("es", 6.0), ("th", 6.8), ("en", 12.0)], (0.0, 5.9, 6.1, 6.7, 7.0, 12.0), id="between"),
        pytest.param([("es", 6.0), ("en", 11.4), ("th", 12.0)], (0.0, 5.5, 6.5, 11.2, 11.5, 12.0), id="last"),
    ],
)
def test_a_part_with_less_than_a_second_goes_with_its_neighbour(
    several: list[tuple[str, float]], speech: tuple[float, ...]
) -> None:
    """Of a fifth of a second the model wrote one word in Thai over and over, and took ten times as long."""
    parts = list(cut_by_language(runs(*several), LOUD, seconds(*speech)))

    assert ["es", "en"] == [part.code for part in parts]
    assert [(0, True), (12 * RATE, True)] == [
        (parts[0].start, parts[0].end == parts[1].start),
        (parts[1].end, parts[1].end > parts[1].start),
    ]


def test_many_changes_lose_no_sample() -> None:
    """However close they are; every part follows the one before."""
    many = runs(*((code, float(second)) for second, code in enumerate(["es", "en"] * 6, 1)))
    parts = list(cut_by_language(many, LOUD, seconds(0.0, 12.0)))

    assert [0, *(part.end for part in parts[:-1])] == [part.start for part in parts]
    assert 12 * RATE == parts[-1].end
    assert all(part.end > part.start for part in parts)
