"""Where the language changes within a piece is told, and a piece in one language costs one look."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.speech.records import LanguageRun
from backend.speech.transcribe import language_runs
from backend.speech.whisper import LoadedWhisper

CODES = ("es", "en", "gl")


@dataclass
class ScriptedModel:
    """Stands for CTranslate2's Whisper: a row of the encoder's output holds the shares of the languages in it."""

    looks: list[tuple[int, ...]] = field(default_factory=list)

    def detect_language(self, encoded: Any) -> list[list[tuple[str, float]]]:
        windows = np.asarray(encoded)
        self.looks.append(windows.shape)
        return [
            sorted(((f"<|{code}|>", float(share)) for code, share in zip(CODES, shares, strict=True)), key=_share)
            for shares in windows.mean(axis=1)
        ]


def _share(scored: tuple[str, float]) -> float:
    return -scored[1]


def encoded(*parts: tuple[str, float], share: float = 0.98) -> NDArray[np.float32]:
    """The encoder's output for languages and their seconds, and two seconds of silence."""
    rows = [
        np.tile([share if code == other else (1 - share) / 2 for other in CODES], (round(50 * seconds), 1))
        for code, seconds in (*parts, (parts[-1][0], 2.0))
    ]
    return np.concatenate(rows).astype(np.float32)


def runs(model: ScriptedModel, rows: NDArray[np.float32], own: str = "es") -> tuple[LanguageRun, ...]:
    whisper = LoadedWhisper(model, None, 80)  # type: ignore[arg-type]
    return language_runs(whisper, rows, len(rows) / 50 - 2.0, own)


def test_changes_of_language_are_told_to_a_second() -> None:
    """All of the piece is in one of the runs."""
    found = runs(ScriptedModel(), encoded(("es", 9.0), ("en", 8.0), ("es", 6.5)))

    assert ["es", "en", "es"] == [run.code for run in found]
    assert np.allclose([0.0, 9.0, 17.0], [run.start_s for run in found], atol=1.0)
    assert (23.5, [run.end_s for run in found[:-1]]) == (found[-1].end_s, [run.start_s for run in found[1:]])


def test_one_language_costs_one_look() -> None:
    """At windows of about four seconds, none of them over another."""
    model = ScriptedModel()

    assert () == runs(model, encoded(("es", 23.0)))
    assert [(6, 191, 3)] == model.looks


def test_a_stretch_that_no_window_is_sure_of_changes_nothing() -> None:
    """Noise, names and related languages look like another one for a moment."""
    rows = np.concatenate([encoded(("es", 8.0))[:400], encoded(("gl", 4.0), share=0.6), encoded(("es", 8.0))])

    assert () == runs(ScriptedModel(), rows)


def test_short_pieces_have_one_language() -> None:
    """In two halves of three seconds it would be told wrong too often."""
    model = ScriptedModel()

    assert () == runs(model, encoded(("es", 1.5), ("en", 1.5)))
    assert [] == model.looks


def test_a_last_second_that_no_window_covers_belongs_to_the_one_before() -> None:
    """Windows begin every second: the last fraction has none."""
    found = runs(ScriptedModel(), encoded(("es", 6.0), ("en", 6.9)))

    assert 12.9 == found[-1].end_s
    assert ["es", "en"] == [run.code for run in found]
