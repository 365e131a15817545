"""Clips, their sets, and the long file that is made of them."""

import wave
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.speech_clips import GAP_S, RATE, Clip, assemble, clips, order, samples, spread_over
from tests.conftest import absent

HEAD = "file\tlanguage\ttext\tkind\tseconds\n"


@pytest.fixture
def folder(tmp_path):
    """Three clips as tones of their own pitch and length, silence, and a hostile file."""
    rows = [
        ("a.wav", "es", 'un "a"', "read", 1.0),
        ("b.wav", "en", "b", "short", 0.5),
        ("c.wav", "de", "c", "other_language", 0.25),
    ]
    for number, (name, *_, seconds) in enumerate(rows, 1):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            times = np.arange(int(RATE * seconds)) / RATE
            file.writeframes((np.sin(2 * np.pi * 200 * number * times) * 9000).astype("<i2").tobytes())
    rows += [("d.wav", "none", "", "no_speech", 1.0), ("nasty/x.wav", "none", "", "nasty-error", 0)]
    lines = ["\t".join(map(str, row)) for row in rows]
    (tmp_path / "transcripts.tsv").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_clips_and_their_sets(folder):
    """Hostile files are left out; a text may hold quotation marks; Spanish and English have sets of their own."""
    found = clips(folder)

    assert ["es read", "en short", "other languages", ""] == [clip.set for clip in found]
    assert ["es", "en", "de", None] == [clip.told_language if clip.text else None for clip in found]
    assert 'un "a"' == found[0].text


def test_a_choice_of_clips_is_the_same_each_time(tmp_path):
    """And has short and long ones."""
    found = [Clip(tmp_path / str(number), "es", "a", "read", float(number)) for number in range(100)]
    chosen = spread_over(found, 5)

    assert chosen == spread_over(found[::-1], 5)
    assert [0.0, 25.0, 50.0, 74.0, 99.0] == sorted(clip.seconds for clip in chosen)
    assert 3 == len(spread_over(found[:3], 5))


def test_a_long_file_holds_every_clip_where_it_says(folder, tmp_path):
    """Sample by sample, with silence between them, through FLAC."""
    if find_spec("av") is None:
        absent("av is not installed (make install-dev installs it)")
    parts = [clip for clip in clips(folder) if clip.text]
    placed = assemble(order(parts, 4.0), tmp_path / "long.flac")
    sound = samples(tmp_path / "long.flac")

    assert placed[-1].end_s >= 4.0 - GAP_S
    assert {clip.file for clip in parts} == {one.clip.file for one in placed}
    for one in placed:
        start, end = round(one.start_s * RATE), round(one.end_s * RATE)
        assert np.array_equal(samples(one.clip.file), sound[start:end])
        assert not sound[end : end + int(GAP_S * RATE)].any()
