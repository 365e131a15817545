"""What a run of the speech benchmark makes of answers: rows by set, rates by round, a long file."""

from importlib.util import find_spec

import pytest

from benchmarks import speech_hour, speech_quality, speech_speed
from benchmarks.speech_clips import Clip
from benchmarks.speech_peers import LOOP, Heard
from benchmarks.speech_scores import TimedText
from benchmarks.speech_speed import Load
from tests.benchmarks.test_speech_clips import folder  # noqa: F401 - a fixture
from tests.conftest import absent


def test_quality_by_set(tmp_path):
    """Errors with the language told, languages without; invented words where nobody speaks are shown."""
    clips = [
        Clip(tmp_path / "a", "es", "uno dos", "read", 2.0),
        Clip(tmp_path / "b", "es", "", "language_only", 2.0),
        Clip(tmp_path / "c", "none", "", "no_speech", 4.0),
    ]
    told = [Heard("uno tres", "es", 1.0, 2.0), Heard("x", "es", 1.0, 2.0), Heard("", None, 0.1, 0.1)]
    found = [Heard("uno dos", "es", 1.0, 2.0), Heard("x", "pt", 1.0, 2.0), Heard("Gracias.", "es", 3.0, 5.0)]
    result = speech_quality.as_json(clips, {LOOP: (told, found)})

    [row] = result["sets"]
    assert ("es read", 1, 2, {LOOP: 1}) == (row["set"], row["clips"], row["words"], row["edits"])
    assert (0.5, 0.0) == (row["wer"][LOOP], row["wer_language_found"][LOOP])
    assert {"right": 1, "of": 2} == result["languages"][LOOP]
    assert {"empty": 0, "of": 1, "invented": ["Gracias."], "cpu_s": 5.0} == result["no_speech"][LOOP]
    assert 4.1 == pytest.approx(result["cost"][LOOP]["cpu_s"])


def test_a_ratio_is_to_the_best_peer_of_its_round(tmp_path):
    """Not to the best of another round, nor to another number of clients."""
    seconds = {("fastapi", 0): 20.0, ("fastapi-workers", 0): 16.0, ("ours", 0): 8.0}
    seconds |= {("fastapi", 1): 9.0, ("fastapi-workers", 1): 30.0, ("ours", 1): 6.0}
    loads = [
        Load(name, index, clients, 100.0, took if clients == 4 else 1.0, 30.0, 1.0, 2.0)
        for clients in speech_speed.CLIENTS
        for (name, index), took in seconds.items()
    ]
    lone = Clip(tmp_path / "a", "es", "uno", "read", 10.0)
    alone = {"ours": [{"seconds": 1.1, "model_s": 1.0}] * 2, "fastapi": [{"seconds": 2.0}]}
    result = speech_speed.as_json(loads, alone, lone, [lone])
    ours = next(row for row in result["speed"] if (row["server"], row["clients"]) == ("ours", 4))

    assert (1.5, 2.0, 1.75) == tuple(ours["over_best_peer"][name] for name in ("min", "max", "median"))
    assert [1.5] == [row["target"] for row in result["speed"] if row.get("target")]
    assert 1.1 == pytest.approx(result["lone"]["ours"]["over_model"]["median"])
    assert result["lone"]["fastapi"]["over_model"] is None


def test_a_long_file_by_a_reader_that_loses_one_clip(monkeypatch, tmp_path, folder):  # noqa: F811 - the fixture
    """The peers' part, with a reader that knows every text and skips the second clip of the long file."""
    if find_spec("av") is None:
        absent("av is not installed (make install-dev installs it)")
    said = {"a": "uno dos", "b": "tres cuatro", "c": "cinco seis"}
    clips = [Clip(folder / f"{name}.wav", "es", text, "read", 4.0) for name, text in said.items()]
    texts = {clip.file: clip.text for clip in clips}

    def read(_, asked):
        for file, _language in asked:
            if file in texts:
                yield Heard(texts[file], "es", 1.0, 1.0)
            else:
                yield Heard("uno dos cinco seis", "es", 9.0, 9.0, (TimedText("dos", 0.0, 0.5),))

    monkeypatch.setattr(speech_hour, "clips", lambda _: clips)
    monkeypatch.setattr(speech_hour, "order", lambda parts, _: parts)
    monkeypatch.setattr(speech_hour, "cached", lambda name, asked: list(read(name, asked)))
    row = speech_hour.measure(tmp_path, tmp_path, 1.0, [LOOP], with_ours=False)["hour"]["readers"][LOOP]

    assert 1 == row["lost"]
    assert "b.wav" == row["lost_at"][0][0]
    assert (2 / 6, 0.0, 0.0) == (row["wer"], row["wer_alone"], row["misplaced"])
