"""Speech speed over HTTP: clips from many clients, a lone clip, and memory, beside faster-whisper behind FastAPI."""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ocr_peers import cores
from benchmarks.peers import OURS, Peer, Server, ours, resident_bytes, running, uvicorn
from benchmarks.results import spread
from benchmarks.speech_client import transcribe, transcribe_all
from benchmarks.speech_clips import SPOKEN, Clip, clips, spread_over
from benchmarks.speech_peers import weights
from benchmarks.speech_quality import FOLDER, LIMITS, cpu_seconds

CLIENTS = (1, 4, 16)
TARGET_CLIENTS, TARGET_TIMES = 4, 1.5
LONE_TARGET = 1.2
FASTAPI, FASTAPI_WORKERS = "fastapi", "fastapi-workers"
_LONGEST_S = 30.0  # of the clips that are sent at once
_LONE_S = 10.0
_LONE_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Load:
    """Clips from a number of clients to one server."""

    server: str
    round: int
    clients: int
    audio_s: float
    seconds: float
    cpu_s: float
    p50_s: float
    max_s: float


def bare(name: str) -> Peer:
    """faster-whisper behind FastAPI: all cores for one clip, or a one-thread worker a core (``fastapi-workers``)."""
    threads, workers = (1, cores()) if name == FASTAPI_WORKERS else (cores(), 1)
    env = {
        "BENCHMARK_MODEL": str(weights()),
        "BENCHMARK_THREADS": str(threads),
        "BENCHMARK_WORKERS": str(workers),
        "HF_HUB_OFFLINE": "1",
    }
    return uvicorn(name, "benchmarks.speech_app:app", env)


def measure(data: Path, work: Path, clip_count: int, rounds: int) -> dict[str, Any]:
    """Run every load on every server once per round, and the lone clip.

    Raises: RequestRefused for a refused clip: refusals are fast and would distort the rate.
    """
    spoken = [one for one in clips(data / FOLDER) if one.kind in SPOKEN and one.seconds <= _LONGEST_S]
    chosen = spread_over(spoken, clip_count)
    lone = min(spoken, key=lambda one: (abs(one.seconds - _LONE_S), one.file.name))
    loads: list[Load] = []
    alone: dict[str, list[dict[str, float]]] = {}
    for index in range(rounds):
        for peer in (bare(FASTAPI), bare(FASTAPI_WORKERS), ours(work / "state", **LIMITS)):
            with running(peer, work) as server:
                transcribe(server.port, lone.file, model="whisper-1")
                alone.setdefault(peer.name, []).append(_lone(server.port, lone))
                loads += [_load(server, index, clients, chosen) for clients in CLIENTS]
    return as_json(loads, alone, lone, chosen)


def _lone(port: int, clip: Clip) -> dict[str, float]:
    """One clip at a time and nothing else to do: seconds, and those of them in which the model worked."""
    answers = [transcribe(port, clip.file, model="whisper-1") for _ in range(_LONE_REPEATS)]
    model_s = [answer.stages_s["transcribe"] for answer in answers if "transcribe" in answer.stages_s]
    told = {"seconds": statistics.median(answer.seconds for answer in answers)}
    return told | ({"model_s": statistics.median(model_s)} if model_s else {})


def _load(server: Server, index: int, clients: int, chosen: Sequence[Clip]) -> Load:
    used_s, started_s = cpu_seconds(server.pid), time.perf_counter()
    answers = transcribe_all(server.port, [clip.file for clip in chosen], clients, model="whisper-1")
    seconds = time.perf_counter() - started_s
    times = [answer.seconds for answer in answers]
    audio_s = sum(clip.seconds for clip in chosen)
    cpu_s = cpu_seconds(server.pid) - used_s
    name = server.peer.name
    load = Load(name, index, clients, audio_s, seconds, cpu_s, statistics.median(times), max(times))
    print(f"round {index + 1}: {name}, {clients} clients: {audio_s / seconds:.2f} x real time", file=sys.stderr)
    return load


def as_json(
    loads: Sequence[Load], alone: dict[str, list[dict[str, float]]], lone: Clip, chosen: Sequence[Clip]
) -> dict[str, Any]:
    """The speed part of the result file. A ratio is of one round, where both stood side by side."""
    names = list(dict.fromkeys(load.server for load in loads))
    rows = [_row(name, clients, loads) for name in names for clients in CLIENTS]
    lone_rows = {
        name: {
            "seconds": spread(told["seconds"] for told in rounds),
            "over_model": spread(told["seconds"] / told["model_s"] for told in rounds if "model_s" in told)
            if all("model_s" in told for told in rounds)
            else None,
        }
        for name, rounds in alone.items()
    }
    shape = {"clips": len(chosen), "audio_s": sum(clip.seconds for clip in chosen), "lone_s": lone.seconds}
    return {"speed": rows, "lone": lone_rows, "lone_target": LONE_TARGET, "speed_shape": shape}


def _row(name: str, clients: int, loads: Sequence[Load]) -> dict[str, Any]:
    mine = [load for load in loads if (load.server, load.clients) == (name, clients)]
    row = {
        "server": name,
        "clients": clients,
        "times_real_time": spread(load.audio_s / load.seconds for load in mine),
        "cpu_s_per_audio_s": spread(load.cpu_s / load.audio_s for load in mine),
        "p50_s": spread(load.p50_s for load in mine),
        "max_s": spread(load.max_s for load in mine),
    }
    if name == OURS:
        row["over_best_peer"] = spread(
            min(other.seconds for other in loads if _is_rival(other, load)) / load.seconds for load in mine
        )
        row["target"] = TARGET_TIMES if clients == TARGET_CLIENTS else None
    return row


def _is_rival(other: Load, load: Load) -> bool:
    return other.server != OURS and (other.round, other.clients) == (load.round, load.clients)


def measure_memory(data: Path, work: Path, peer: Peer, clip_count: int, rest_s: float) -> dict[str, Any]:
    """Resident bytes of a server and its processes over many clips, and after a rest."""
    spoken = [one for one in clips(data / FOLDER) if one.kind in SPOKEN and one.seconds <= _LONGEST_S]
    every = [spoken[number % len(spoken)].file for number in range(clip_count)]
    step, samples = max(1, clip_count // 20), []
    with running(peer, work) as server:
        idle_bytes = resident_bytes(server.pid)
        for first in range(0, clip_count, step):
            transcribe_all(server.port, every[first : first + step], 2 * cores(), model="whisper-1")
            samples.append([min(first + step, clip_count), resident_bytes(server.pid)])
            print(f"{peer.name}: {samples[-1][0]} clips: {samples[-1][1] / 2**20:.0f} MiB", file=sys.stderr)
        time.sleep(rest_s)
        rest_bytes = resident_bytes(server.pid)
    return {
        "clips": clip_count,
        "idle_bytes": idle_bytes,
        "samples": samples,
        "peak_bytes": max(told for _, told in samples),
        "rest_s": rest_s,
        "rest_bytes": rest_bytes,
    }
