"""Clips of the speech benchmark: what is said in each, the sets they make, and a long file made of them."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 16_000  # Hz
GAP_S = 0.7  # of silence between the clips of a long file
LONGEST_PART_S = 60.0  # of the clips that a long file is made of
# Kind of `transcripts.tsv` -> the name of its set; kinds that are not here have no text to compare with.
SETS: Mapping[str, str] = {
    "read": "read", "read_long": "read", "speech": "read", "short": "short", "spontaneous": "spontaneous",
    "synthetic": "synthetic", "synthetic_long": "synthetic", "noisy": "noisy", "format": "formats",
    "long": "5 minutes", "other_language": "other languages", "mixed": "two languages",
}  # fmt: skip
SPOKEN = ("read", "read_long", "speech", "short", "spontaneous")  # by people, without noise, each clip once
NO_SPEECH = "no_speech"


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording with its text."""

    file: Path
    language: str  # ISO 639-1, "mixed" or "none"
    text: str
    kind: str
    seconds: float

    @property
    def set(self) -> str:
        """The set its errors count in; empty where it has no text."""
        name = SETS.get(self.kind, "") if self.text else ""
        return f"{self.language} {name}" if name and self.language in {"es", "en"} else name

    @property
    def told_language(self) -> str | None:
        """What a caller who knows the language would say."""
        return self.language if len(self.language) == 2 else None


@dataclass(frozen=True, slots=True)
class Placed:
    """A clip within a long file."""

    clip: Clip
    start_s: float
    end_s: float


def clips(folder: Path) -> list[Clip]:
    """All of ``transcripts.tsv`` but the hostile files."""
    with (folder / "transcripts.tsv").open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            Clip(folder / row["file"], row["language"], row["text"], row["kind"], float(row["seconds"]))
            for row in rows
            if not row["kind"].startswith("nasty")
        ]


def spread_over(found: Sequence[Clip], count: int) -> list[Clip]:
    """``count`` of them, the same ones each time, spread evenly over their lengths and then mixed."""
    by_length = sorted(found, key=lambda clip: (clip.seconds, clip.file.name))
    if count < len(by_length):
        places = np.linspace(0, len(by_length) - 1, count).round().astype(int)
        by_length = [by_length[place] for place in places]
    random.Random(7).shuffle(by_length)
    return by_length


def samples(file: Path) -> NDArray[np.int16]:
    """The sound of a file, 16 kHz and mono."""
    import av  # installed with the extra [speech]

    with av.open(str(file)) as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
        parts = [frame.to_ndarray() for sound in container.decode(audio=0) for frame in resampler.resample(sound)]
        parts += [frame.to_ndarray() for frame in resampler.resample(None)]
    return np.concatenate([part.reshape(-1) for part in parts])


def order(parts: Sequence[Clip], seconds: float) -> Iterator[Clip]:
    """Clips one after the other until they last this long, each pass over them in another order."""
    numbers, told_s = random.Random(19), 0.0
    while told_s < seconds:
        for clip in numbers.sample(list(parts), len(parts)):
            yield clip
            told_s += clip.seconds + GAP_S
            if told_s >= seconds:
                return


def assemble(parts: Iterable[Clip], out: Path) -> list[Placed]:
    """Write the clips one after the other, `GAP_S` apart, as FLAC; where each came to stand."""
    import av  # installed with the extra [speech]

    gap = np.zeros(int(GAP_S * RATE), np.int16)
    placed, told, known = [], 0, dict[Path, "NDArray[np.int16]"]()
    container: Any
    with av.open(str(out), "w", format="flac") as container:
        stream = container.add_stream("flac", rate=RATE, layout="mono", format="s16")
        for clip in parts:
            if clip.file not in known:
                known[clip.file] = samples(clip.file)
            sound = known[clip.file]
            placed.append(Placed(clip, told / RATE, (told + len(sound)) / RATE))
            for piece in (sound, gap):
                frame = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="s16", layout="mono")
                frame.sample_rate = RATE
                container.mux(stream.encode(frame))
                told += len(piece)
        container.mux(stream.encode(None))
    return placed
