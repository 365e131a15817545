"""Tables of the speech benchmark: figures beside targets, and what is missed."""

import pytest

from benchmarks.speech_tables import missed, speech_section
from tests.benchmarks.test_render import ABOUT


def spread(value):
    return {"median": value, "min": value, "max": value, "n": 3}


def speed_row(server, clients, **more):
    row = {"server": server, "clients": clients, "times_real_time": spread(8.0), "cpu_s_per_audio_s": spread(0.2)}
    return row | {"p50_s": spread(1.0), "max_s": spread(2.0)} | more


@pytest.fixture
def result():
    """A run that reached all targets."""
    readers = ("faster-whisper", "ours")
    memory = {"clips": 4, "idle_bytes": 400 << 20, "samples": [[1, 700 << 20], [2, 720 << 20], [4, 730 << 20]]}
    hour = {
        "wer": 0.2,
        "wer_alone": 0.19,
        "lost": 0,
        "lost_at": [],
        "misplaced": 0.01,
        "seconds": 300.0,
        "cpu_s": 500.0,
    }
    cost = {"audio_s": 100.0, "seconds": 20.0, "cpu_s": 30.0}
    return ABOUT | {
        "load_average_1min": 0.1, "readers": {"faster-whisper": "1.2.1"}, "arithmetic": "int8", "beams": 5,
        "sets": [
            {"set": "es read", "clips": 2, "words": 50, "edits": dict.fromkeys(readers, 9),
             "wer": dict.fromkeys(readers, 0.18), "wer_language_found": dict.fromkeys(readers, 0.18)},
        ],
        "languages": {name: {"right": 9, "of": 10} for name in readers},
        "no_speech": {name: {"empty": 5, "of": 5, "invented": [], "cpu_s": 3.0} for name in readers},
        "cost": dict.fromkeys(readers, cost),
        "speed": [speed_row("fastapi", 4), speed_row("ours", 4, over_best_peer=spread(1.6), target=1.5)],
        "speed_shape": {"clips": 24, "audio_s": 180.0, "lone_s": 10.03},
        "lone": {"fastapi": {"seconds": spread(2.0), "over_model": None},
                 "ours": {"seconds": spread(1.0), "over_model": spread(1.1)}},
        "lone_target": 1.2,
        "memory": {"ours": memory | {"peak_bytes": 740 << 20, "rest_s": 330.0, "rest_bytes": 500 << 20}},
        "hour": {"seconds": 3601.0, "clips": 400, "readers": {name: dict(hour) for name in readers}},
        "unmeasured": {},
    }  # fmt: skip


def test_tables(result):
    """Every part has its rows."""
    text = speech_section(result)

    assert "| es read | 2 | 50 | 18.0 % | 18.0 % |" in text.splitlines()
    assert "| **FinancIA Inference** | 9 of 10 | 5 of 5 | 0.300 | 3.0 |" in text.splitlines()
    assert any("1.60x (1.60-1.60) | 1.5x" in row for row in text.splitlines())
    assert any("1.10x (1.10-1.10) | at most 1.2x" in row for row in text.splitlines())
    assert "| **FinancIA Inference** | 4 | 400 MiB | 720 MiB | 730 MiB | 740 MiB | 500 MiB |" in text.splitlines()
    assert "| **FinancIA Inference** | 20.0 % | 19.0 % | 0 | 1.0 % | 300 s | 500 s |" in text.splitlines()
    assert "Missed" not in text


def test_missed_targets(result):
    """Each by its name; none where nothing was measured."""
    result["sets"][0]["edits"]["ours"] = 10
    result["speed"][1]["over_best_peer"] = spread(1.4)
    result["lone"]["ours"]["over_model"] = spread(1.3)
    result["memory"]["ours"] |= {"rest_bytes": 720 << 20, "samples": [[1, 500 << 20], [2, 600 << 20], [4, 700 << 20]]}
    result["hour"]["readers"]["ours"]["lost"] = 1

    assert [
        "word errors of faster-whisper, es read",
        "1.5 times the best peer with 4 clients",
        "a lone clip within 1.2 times its decoding",
        "flat memory",
        "memory given back at rest",
        "no clip of the long file lost",
    ] == missed(result)
    assert [] == missed({})
