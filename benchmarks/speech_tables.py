"""Tables of the speech benchmark: word errors, languages, speed, memory, the long file, and missed targets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.tables import Result, about, faults, mib, spread_cell, table

OURS, LOOP = "ours", "faster-whisper"
READERS: Mapping[str, str] = {
    LOOP: "faster-whisper's loop",
    "faster-whisper-vad": "the same, `vad_filter`",
    "faster-whisper-batched": "its batched pipeline",
    "fastapi": "faster-whisper behind FastAPI",
    "fastapi-workers": "the same, a worker a core",
    OURS: "**FinancIA Inference**",
}
GROWTH = 1.1  # of memory, from the middle of the clips to the last
_REST_ABOVE_IDLE = 300 * 2**20
_MODEL_REST_S = 300.0  # without a recording, before the service forgets the model
_EMPTY = "-"


def speech_section(result: Result) -> str:
    """All tables of a run; parts that were not measured are left out."""
    versions = ", ".join(f"{name} {told}" for name, told in result["readers"].items())
    load = result["load_average_1min"]
    head = f"{about(result)} {versions}; Whisper base, {result['arithmetic']}, {result['beams']} beams."
    sections = [f"{head} Load of the machine at the start: {load}."]
    if "sets" in result:
        sections += ["Word error rate, each clip's language told:", table(_set_rows(result))]
        sections += ["The rest of the same run, clips one after the other:", table(_rest_rows(result))]
    if "speed" in result:
        sections += [_speed_title(result), table(_speed_rows(result["speed"])), table(_lone_rows(result))]
    if "memory" in result:
        sections += ["Resident memory of the server and its processes, 2 clips a core at once:"]
        sections += [table(_memory_rows(result["memory"]))]
    if "hour" in result:
        sections += [_hour_title(result["hour"]), table(_hour_rows(result["hour"]["readers"]))]
    if names := missed(result):
        sections.append(f"Missed: {'; '.join(names)}.")
    return "\n\n".join([*sections, *faults("Not measured", result["unmeasured"])])


def missed(result: Result) -> list[str]:
    """The missed targets, each as a phrase."""
    return [name for name, is_reached in _targets(result) if not is_reached]


def _targets(result: Result) -> Iterator[tuple[str, bool]]:
    for row in result.get("sets", ()):
        yield f"word errors of {LOOP}, {row['set']}", row["edits"][OURS] <= row["edits"][LOOP]
    for row in result.get("speed", ()):
        if row.get("target"):
            name = f"{row['target']} times the best peer with {row['clients']} clients"
            yield name, row["over_best_peer"]["median"] >= row["target"]
    if over := result.get("lone", {}).get(OURS, {}).get("over_model"):
        most = result["lone_target"]
        yield f"a lone clip within {most} times its decoding", over["median"] <= most
    if memory := result.get("memory", {}).get(OURS):
        told = [bytes_ for _, bytes_ in memory["samples"]]
        yield "flat memory", told[-1] <= GROWTH * told[len(told) // 2]
        if memory["rest_s"] >= _MODEL_REST_S:
            yield "memory given back at rest", memory["rest_bytes"] <= memory["idle_bytes"] + _REST_ABOVE_IDLE
    if hour := result.get("hour", {}).get("readers", {}).get(OURS):
        yield "no clip of the long file lost", hour["lost"] == 0


def _set_rows(result: Result) -> list[list[str]]:
    readers = _in_order(result["sets"][0]["wer"])
    rows = [["set", "clips", "words", *(READERS[name] for name in readers)]]
    for row in result["sets"]:
        cells = [f"{row['wer'][name] * 100:.1f} %" for name in readers]
        rows.append([row["set"], str(row["clips"]), f"{row['words']:,}", *cells])
    return rows


def _rest_rows(result: Result) -> list[list[str]]:
    head = ["", "language found", "silence and noise left empty", "CPU seconds a second of sound"]
    rows = [[*head, "of silence and noise"]]
    for name in _in_order(result["languages"]):
        language, empty, cost = (result[key][name] for key in ("languages", "no_speech", "cost"))
        counts = [f"{language['right']} of {language['of']}", f"{empty['empty']} of {empty['of']}"]
        rows.append([READERS[name], *counts, f"{cost['cpu_s'] / cost['audio_s']:.3f}", f"{empty['cpu_s']:.1f}"])
    return rows


def _speed_title(result: Result) -> str:
    shape = result["speed_shape"]
    return (
        f"{shape['clips']} clips of people ({shape['audio_s']:.0f} s in all, none over 30 s), language not told, cache "
        f"off, over HTTP; and one clip of {shape['lone_s']:.1f} s with nothing else to do. Medians of rounds:"
    )


def _speed_rows(speed: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    head = ["", "clients", "seconds of sound a second", "answer, p50", "answer, worst", "CPU seconds a second of sound"]
    rows = [[*head, "against the best of the others", "to reach"]]
    for row in speed:
        cells = [spread_cell(row["times_real_time"]), f"{row['p50_s']['median']:.1f} s"]
        cells += [f"{row['max_s']['median']:.1f} s", f"{row['cpu_s_per_audio_s']['median']:.3f}"]
        over = spread_cell(row["over_best_peer"], "x") if "over_best_peer" in row else _EMPTY
        target = f"{row['target']:.1f}x" if row.get("target") else _EMPTY
        rows.append([READERS[row["server"]], str(row["clients"]), *cells, over, target])
    return rows


def _lone_rows(result: Result) -> list[list[str]]:
    rows = [["one clip alone", "answer", "against the model's own time", "to reach"]]
    for name, row in result["lone"].items():
        over = spread_cell(row["over_model"], "x") if row["over_model"] else _EMPTY
        target = f"at most {result['lone_target']:.1f}x" if row["over_model"] else _EMPTY
        rows.append([READERS[name], spread_cell(row["seconds"], " s"), over, target])
    return rows


def _memory_rows(memory: Mapping[str, Any]) -> list[list[str]]:
    rests = sorted({f"{row['rest_s']:.0f}" for row in memory.values()}, key=float)
    rows = [["", "clips", "ready", "half-way", "last", "most", f"at rest ({', '.join(rests)} s)"]]
    for name, row in memory.items():
        told = [bytes_ for _, bytes_ in row["samples"]]
        cells = [row["idle_bytes"], told[len(told) // 2], told[-1], row["peak_bytes"], row["rest_bytes"]]
        rows.append([READERS[name], str(row["clips"]), *map(mib, cells)])
    return rows


def _hour_title(hour: Mapping[str, Any]) -> str:
    return (
        f"{hour['clips']} Spanish clips one after the other in one file of {hour['seconds'] / 60:.0f} minutes. A clip "
        "is lost where less than half of the words come back that are found in it alone; a word stands wrong where no "
        "clip near its time says it:"
    )


def _hour_rows(readers: Mapping[str, Any]) -> list[list[str]]:
    rows = [["", "WER", "WER of the clips alone", "clips lost", "words that stand wrong", "took", "CPU"]]
    for name in _in_order(readers):
        row = readers[name]
        cells = [f"{row['wer'] * 100:.1f} %", f"{row['wer_alone'] * 100:.1f} %", str(row["lost"])]
        cells += [f"{row['misplaced'] * 100:.1f} %", f"{row['seconds']:,.0f} s", f"{row['cpu_s']:,.0f} s"]
        rows.append([READERS[name], *cells])
    return rows


def _in_order(readers: Mapping[str, Any]) -> list[str]:
    return [name for name in READERS if name in readers]
